"""The conversation as the user reads it: text of the visible records, its beginning and its end."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pytest_uniclaw.agents.base import Record

HEAD_BYTES = TAIL_BYTES = 30 * 1024
"""How much of a long conversation's beginning and end is shown."""
_SPEAKERS = {"user": "you", "assistant": "agent", "toolResult": "tool result"}


def visible_conversation(records: Sequence[Record]) -> str:
    """Return a transcript as text; of a long one head and tail, with a line that says how much is left out.

    Thoughts, images and records of other roles are not shown.
    """
    data = "\n\n".join(_messages(records)).encode("utf-8", "replace")
    if len(data) <= HEAD_BYTES + TAIL_BYTES:
        return data.decode("utf-8")
    head, tail = data[:HEAD_BYTES].decode("utf-8", "ignore"), data[-TAIL_BYTES:].decode("utf-8", "ignore")
    return f"{head}\n\n[{len(data) - HEAD_BYTES - TAIL_BYTES} bytes are not shown here]\n\n{tail}"


def _messages(records: Sequence[Record]) -> Iterator[str]:
    for record in records:
        message = record.get("message")
        if not isinstance(message, dict):
            continue
        speaker, texts = _SPEAKERS.get(str(message.get("role"))), list(_texts(message))
        if speaker and texts:
            yield f"## {speaker}\n" + "\n".join(texts)


def _texts(message: dict[str, Any]) -> Iterator[str]:
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        kind = block.get("type") if isinstance(block, dict) else ""
        if kind == "text" and isinstance(block.get("text"), str):
            yield block["text"]
        elif kind == "toolCall":
            yield f"[{block.get('name')}] {json.dumps(block.get('arguments'), ensure_ascii=False)}"
