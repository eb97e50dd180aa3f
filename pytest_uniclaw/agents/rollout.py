"""Rollout files of the Codex CLI as normalised records: one file per thread, all of them untrusted bytes.

A file holds one JSON object a line, ``{"timestamp", "type", "payload"}``. Of these the ``response_item`` are the
conversation as the model has it: messages, reasoning, calls of tools and their results. What codex itself writes in
the user's name (its environment, a sub-agent's end) is left out, and so are system and developer messages. Items of
one answer of the model become one record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.cleaning import clean_text
from pytest_uniclaw.agents.transcript import (
    MAX_BLOCKS,
    MAX_BYTES,
    MAX_RECORDS,
    Lines,
    read_head,
    records_from_messages,
    was_cut,
    with_notices,
)
from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.models.player import is_real_user

NAMES = "rollout-*.jsonl"
_THREAD = re.compile(r"rollout-.{1,40}-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.jsonl")
_TEXTS = frozenset({"input_text", "output_text", "summary_text", "reasoning_text", "text"})
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call"})


def read_rollouts(folder: Path) -> tuple[Record, ...]:
    """Return the records of all threads below a folder. Never raises on bad data.

    The first thread that was begun is the session. Others, of sub-agents, stand before it and bear their thread's id
    as ``agentId``; so the end of the records is always the end of the session. Lines that are no JSON object are
    counted in one closing record of type ``notice`` with ``brokenLines``. The bounds of a transcript hold for the
    threads together; the session is read first.
    """
    files = sorted((path for path in folder.rglob(NAMES) if path.is_file()), key=lambda path: path.name)
    session: list[Record] = []
    others: list[Record] = []
    broken, cut, left = 0, 0, MAX_BYTES
    for path in files:
        if left <= 0 or len(session) + len(others) >= MAX_RECORDS:
            cut += 1
            break
        lines = Lines(read_head(path, left), left)
        left -= len(lines.data)
        thread = _THREAD.fullmatch(path.name)
        agent = {"agentId": thread[1] if thread else clean_text(path.stem, 100)} if path != files[0] else {}
        found = records_from_messages(messages_of(_items(lines)), f"codex-{len(others)}" if agent else "codex")
        (others if agent else session).extend(record | agent for record in found if record["type"] == "message")
        broken, cut = broken + lines.broken, cut + lines.cut + was_cut(found)
    return with_notices((*others, *session), "codex", broken=broken, cut=cut)


def _items(lines: Iterable[Json]) -> Iterator[tuple[Any, Json]]:
    """Yield the response items of one thread, each with its timestamp."""
    for value in lines:
        payload = value.get("payload")
        if value.get("type") == "response_item" and isinstance(payload, dict):
            yield value.get("timestamp"), payload


@dataclass
class _Answer:
    """One answer of the model as its items come."""

    stamp: Any
    texts: list[Json] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Json] = field(default_factory=list)

    def take(self, item: Mapping[str, Any], kind: str) -> None:
        """Add an item of the model; what is beyond one more than a record's blocks could never be kept."""
        if kind == "message":
            self.texts += _parts(item.get("content"))[: MAX_BLOCKS + 1 - len(self.texts)]
        elif kind == "reasoning":
            self.thoughts += _words(item)[: MAX_BLOCKS + 1 - len(self.thoughts)]
        elif len(self.calls) <= MAX_BLOCKS:
            self.calls.append(_call(item, kind))

    def message(self) -> Json:
        """The whole answer."""
        return {
            "role": "assistant", "timestamp": self.stamp, "content": self.texts,
            "reasoning_content": "\n".join(self.thoughts), "tool_calls": self.calls,
        }  # fmt: skip


def messages_of(items: Iterable[tuple[Any, Mapping[str, Any]]]) -> Iterator[Json]:
    """Yield chat messages of (timestamp, response item); adjacent items of the model are one message."""
    answer: _Answer | None = None
    names: dict[str, str] = {}
    for stamp, item in items:
        kind = _kind(item)
        if kind in _CALLS or kind == "reasoning" or (kind == "message" and item.get("role") == "assistant"):
            answer = answer or _Answer(stamp)
            answer.take(item, kind)
            if kind in _CALLS and len(answer.calls) <= MAX_BLOCKS:
                names[answer.calls[-1]["id"]] = answer.calls[-1]["function"]["name"]
            continue
        if answer and (kind == "message" or kind.endswith("_output")):
            yield answer.message()
            answer = None
        message = _result(item, names) if kind.endswith("_output") else _user(item, kind)
        if message is not None:
            yield message | {"timestamp": stamp}
    if answer:
        yield answer.message()


def _call(item: Mapping[str, Any], kind: str) -> Json:
    """Return a tool call; a namespace of codex's stands before the name, free input is the argument ``input``."""
    name = str(item.get("name") or kind)
    if isinstance(item.get("namespace"), str) and item["namespace"]:
        name = f"{item['namespace']}.{name}"
    arguments = item.get("arguments")
    if kind == "custom_tool_call":
        arguments = {"input": item.get("input")}
    elif kind == "local_shell_call":
        arguments = item.get("action")
    return {"id": str(item.get("call_id") or ""), "function": {"name": name, "arguments": arguments}}


def _result(item: Mapping[str, Any], names: Mapping[str, str]) -> Json:
    output = item.get("output")
    content = _parts(output) if isinstance(output, list) else output
    identity = str(item.get("call_id") or "")
    return {"role": "tool", "tool_call_id": identity, "name": names.get(identity, ""), "content": content}


def _user(item: Mapping[str, Any], kind: str) -> Json | None:
    if kind != "message" or item.get("role") != "user":
        return None
    message: Json = {"role": "user", "content": _parts(item.get("content"))}
    return message if is_real_user(message) else None


def _parts(content: Any) -> list[Json]:
    """Return the parts of a content in the words of the chat wire; what is neither text nor image stays as it is.

    One part more than a record may have tells the reader that there were more.
    """
    found = content[: MAX_BLOCKS + 1] if isinstance(content, list) else [content]
    return [_part(part) for part in found if part is not None]


def _part(part: Any) -> Json:
    if not isinstance(part, dict):
        return {"type": "text", "text": str(part)}
    if _kind(part) in _TEXTS:
        return {"type": "text", "text": part.get("text")}
    return {"type": "image_url", "image_url": part.get("image_url")} if _kind(part) == "input_image" else part


def _kind(value: Mapping[str, Any]) -> str:
    kind = value.get("type")
    return kind if isinstance(kind, str) else ""


def _words(item: Mapping[str, Any]) -> list[str]:
    """Return the words of a reasoning item: its content, else its summary."""
    for name in ("content", "summary"):
        parts = item.get(name)
        listed = parts[: MAX_BLOCKS + 1] if isinstance(parts, list) else []
        texts = [part.get("text") for part in listed if isinstance(part, dict)]
        if words := [text for text in texts if isinstance(text, str) and text]:
            return words
    return []
