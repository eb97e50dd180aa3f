"""Rollout files of the Codex CLI as normalised records: one file per thread, all of them untrusted bytes.

A file holds one JSON object a line, ``{"timestamp", "type", "payload"}``. Of these the ``response_item`` are the
conversation as the model has it: messages, reasoning, calls of tools and their results. What codex itself writes in
the user's name (its environment, a sub-agent's end) is left out, and so are system and developer messages. Items of
one answer of the model become one record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.joining import Joined
from pytest_uniclaw.agents.session_file import MAX_BYTES, lines_of
from pytest_uniclaw.agents.transcript import records_from_messages
from pytest_uniclaw.agents.wire import Answer, blocks_of, kind_of, listed, tool_call, tool_result
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
    joined, left = Joined(), MAX_BYTES
    for path in files:
        if left <= 0 or joined.is_full():
            joined.cut += 1
            break
        lines = lines_of(path, left)
        left -= len(lines.data)
        thread = _THREAD.fullmatch(path.name)
        agent = "" if path == files[0] else thread[1] if thread else path.stem
        prefix = f"codex-{len(joined.others)}" if agent else "codex"
        found = records_from_messages(messages_of(_items(lines)), prefix)
        joined.add(found, agent, broken=lines.broken, cut=lines.cut)
    return joined.records("codex")


def _items(lines: Iterable[Json]) -> Iterator[tuple[Any, Json]]:
    """Yield the response items of one thread, each with its timestamp."""
    for value in lines:
        payload = value.get("payload")
        if value.get("type") == "response_item" and isinstance(payload, dict):
            yield value.get("timestamp"), payload


def messages_of(items: Iterable[tuple[Any, Mapping[str, Any]]]) -> Iterator[Json]:
    """Yield chat messages of (timestamp, response item); adjacent items of the model are one message."""
    answer: Answer | None = None
    names: dict[str, str] = {}
    for stamp, item in items:
        kind = kind_of(item)
        if kind in _CALLS or kind == "reasoning" or (kind == "message" and item.get("role") == "assistant"):
            answer = answer or Answer(stamp)
            _take(answer, item, kind, names)
            continue
        if answer and (kind == "message" or kind.endswith("_output")):
            yield answer.message()
            answer = None
        message = _result(item, names) if kind.endswith("_output") else _user(item, kind)
        if message is not None:
            yield message | {"timestamp": stamp}
    if answer:
        yield answer.message()


def _take(answer: Answer, item: Mapping[str, Any], kind: str, names: dict[str, str]) -> None:
    """Add an item of the model to its answer, and a call's name to those by which results are paired with calls."""
    if kind == "message":
        answer.say(_parts(item.get("content")))
    elif kind == "reasoning":
        answer.think(_words(item))
    else:
        call = _call(item, kind)
        if answer.call(call):
            names[call["id"]] = call["function"]["name"]


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
    return tool_call(str(item.get("call_id") or ""), name, arguments)


def _result(item: Mapping[str, Any], names: Mapping[str, str]) -> Json:
    output = item.get("output")
    content = _parts(output) if isinstance(output, list) else output
    identity = str(item.get("call_id") or "")
    return tool_result(identity, names.get(identity, ""), content)


def _user(item: Mapping[str, Any], kind: str) -> Json | None:
    if kind != "message" or item.get("role") != "user":
        return None
    message: Json = {"role": "user", "content": _parts(item.get("content"))}
    return message if is_real_user(message) else None


def _parts(content: Any) -> list[Json]:
    """Return the parts of a content in the words of the chat wire; what is neither text nor image stays as it is."""
    return [_part(part) for part in listed(content) if part is not None]


def _part(part: Any) -> Json:
    if not isinstance(part, dict):
        return {"type": "text", "text": str(part)}
    if kind_of(part) in _TEXTS:
        return {"type": "text", "text": part.get("text")}
    return {"type": "image_url", "image_url": part.get("image_url")} if kind_of(part) == "input_image" else part


def _words(item: Mapping[str, Any]) -> list[str]:
    """Return the words of a reasoning item: its content, else its summary."""
    for name in ("content", "summary"):
        texts = [part.get("text") for part in blocks_of(item.get(name))]
        if words := [text for text in texts if isinstance(text, str) and text]:
            return words
    return []
