"""The conversation as the user reads it: text of the visible records, its beginning and its end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_uniclaw.agents.base import Record

HEAD_BYTES = TAIL_BYTES = 30 * 1024
"""How much of a long conversation's beginning and end is shown."""
INDENT = "    "
"""What stands before each line of what was said, and of no heading. White space, so that quotes are found across it."""
_BREAK = r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
_LINE_START = re.compile(rf"(?<={_BREAK})(?!{_BREAK})")
"""Where a line that is not empty begins, by any reader's idea of lines."""
_SPEAKERS = {"user": "you", "assistant": "agent", "toolResult": "tool result"}


def visible_conversation(records: Sequence[Record]) -> str:
    """Return a transcript as text; of a long one head and tail, with a line that says how much is left out.

    Thoughts, images and records of other roles are not shown. Only headings begin at the margin.
    """
    data = "\n\n".join(_messages(records)).encode("utf-8", "replace")
    if len(data) <= HEAD_BYTES + TAIL_BYTES:
        return data.decode("utf-8")
    head, tail = data[:HEAD_BYTES].decode("utf-8", "ignore"), data[-TAIL_BYTES:].decode("utf-8", "ignore")
    return f"{head}\n\n[{len(data) - HEAD_BYTES - TAIL_BYTES} bytes are not shown here]\n\n{INDENT}…{tail}"


def indented(text: str) -> str:
    """Return what somebody said so that no line of it can pass for a heading."""
    return INDENT + _LINE_START.sub(INDENT, text)


def _messages(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        message = record.get("message")
        if not isinstance(message, dict):
            continue
        speaker, texts = _SPEAKERS.get(str(message.get("role"))), list(_texts(message))
        if speaker and texts:
            yield f"## {speaker}\n" + "\n".join(map(indented, texts))


def _texts(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else ""
        if kind == "text" and isinstance(block.get("text"), str):
            yield block["text"]
        elif kind == "toolCall":
            yield f"[{block.get('name')}] {json.dumps(block.get('arguments'), ensure_ascii=False)}"
