"""One transcript schema for every agent (upstream-contract section 1.10), made of untrusted bytes.

A record is ``{"type": "message", "id", "timestamp", "message": {"role", "content": [blocks]}}``. Roles are ``user``,
``assistant`` and ``toolResult`` (with ``toolCallId`` and ``toolName``). Blocks are ``text``, ``thinking``,
``toolCall`` (``id``, ``name``, ``arguments``) and, in memory only, ``image`` (``mimeType``, base64 ``data``):
``images`` turns those into files and never writes one.

An executor may write a small file that becomes large values, so everything is bounded before it is built. Where a bound
cut something, a closing record of type ``notice`` says so with ``cut``, the number of cuts (``joining``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.cleaning import clean, clean_text, no_collection, parse_line, weight
from pytest_uniclaw.agents.images import is_image, move_images_out, to_jsonl
from pytest_uniclaw.agents.joining import MAX_RECORDS, was_cut, with_notices
from pytest_uniclaw.agents.session_file import MAX_BYTES, MAX_LINES, Lines
from pytest_uniclaw.agents.usage import final_answer, tool_usage

MODEL_ERROR = "[Assistant reply unavailable due to model error.]"
"""What nanobot stores in place of an answer when the model failed; such a record gets ``stopReason: error``."""
MAX_BLOCKS = 1_000
"""Blocks of one record."""
MAX_ALL_BLOCKS = 200_000
"""Blocks of all records together."""
MAX_RECORD_TEXT = 4 * 1024 * 1024
"""Characters of the texts of one record; images do not count."""
CUT = "[the rest of this message was cut]"
_DATA_URL = re.compile(r"data:image/([a-z0-9.+-]{1,20});base64,", re.IGNORECASE)
_ENDINGS = {"stop_reason": "stopReason", "error_message": "errorMessage"}
"""How an agent's own store says that an answer ended, where it says so."""
_ROLES = {"user": "user", "assistant": "assistant", "tool": "toolResult"}


def normalise_nanobot(data: bytes) -> tuple[Record, ...]:
    """Read a nanobot session file, either release. Never raises.

    Metadata and system lines are dropped; lines that are no JSON object are counted in one closing record of type
    ``notice`` with ``brokenLines``.
    """
    lines = Lines(data)
    records = records_from_messages((value for value in lines if value.get("_type") is None), prefix="nanobot")
    return with_notices(records, "nanobot", broken=lines.broken, cut=int(lines.cut))


def records_from_messages(messages: Iterable[Mapping[str, Any]], prefix: str = "message") -> tuple[Record, ...]:
    """Make records of chat-completions messages, as an agent stores them or as the exchange log holds them.

    Ids are ``<prefix>-%06d``; messages without content and those of other roles are dropped. Messages beyond the bounds
    are not taken from the iterable at all.
    """
    records: list[Record] = []
    cut, left = 0, MAX_ALL_BLOCKS
    for message in messages:
        role = _ROLES.get(str(message.get("role")))
        if not role:
            continue
        if len(records) == MAX_RECORDS or left <= 0:
            cut += 1
            break
        blocks, cuts = _bounded(_blocks(message, role), min(left, MAX_BLOCKS))
        cut += cuts
        left -= len(blocks)
        if not blocks and role == "toolResult":
            blocks = [{"type": "text", "text": ""}]  # answered with nothing is not the same as cut off by a kill
        if blocks:
            records.append(_record(message, role, blocks, f"{prefix}-{len(records):06d}"))
    return with_notices(tuple(records), prefix, cut=cut)


def _bounded(found: Iterator[Record], most: int) -> tuple[list[Record], int]:
    """Take the blocks of one record within its bounds; return them and the number of cuts (0 or 1).

    A cut ends in a text block that says so.
    """
    blocks: list[Record] = []
    room = MAX_RECORD_TEXT
    for block in found:
        room -= 0 if is_image(block) else weight(block, room)
        if len(blocks) == most or room < 0:
            return [*blocks, {"type": "text", "text": CUT}], 1
        blocks.append(block)
    return blocks, int(any(CUT in (block.get("text"), block.get("arguments", {}).get("_raw")) for block in blocks))


def _record(message: Mapping[str, Any], role: str, blocks: list[Record], identity: str) -> Record:
    body: dict[str, Any] = {"role": role, "content": blocks}
    stamp = _timestamp(message.get("timestamp"))
    if stamp:
        body["timestamp"] = stamp
    if role == "toolResult":
        body["toolCallId"] = clean_text(str(message.get("tool_call_id") or ""), 200)
        body["toolName"] = clean_text(str(message.get("name") or ""), 200)
    if role == "assistant" and blocks == [{"type": "text", "text": MODEL_ERROR}]:
        body["stopReason"] = "error"
        body["errorMessage"] = MODEL_ERROR
    for name, key in _ENDINGS.items():
        if role == "assistant" and isinstance(message.get(name), str):
            body[key] = clean_text(message[name], 2000)
    return {"type": "message", "id": identity, "timestamp": stamp, "message": body}


def _timestamp(value: Any) -> Any:
    """ISO 8601 with a zone (naive stamps are UTC), a finite number as it is, else an empty string."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return clean(value)
    if not isinstance(value, str):
        return ""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return clean_text(value, 64)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def _blocks(message: Mapping[str, Any], role: str) -> Iterator[Record]:
    """Yield the blocks of a message, each made when it is asked for: who asks holds the bounds."""
    thinking = message.get("reasoning_content")
    if role == "assistant" and isinstance(thinking, str) and thinking.strip():
        yield {"type": "thinking", "thinking": clean_text(thinking)}
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    yield from (block for part in parts if (block := _block(part)))
    calls = message.get("tool_calls")
    if role == "assistant" and isinstance(calls, list):
        yield from (block for call in calls if (block := _tool_call(call)))


def _block(part: Any) -> Record | None:
    """Make one block of one content part; None when there is nothing in it."""
    if part is None or part == "":
        return None
    if isinstance(part, str):
        return _text_or_image(part)
    if not isinstance(part, dict):
        return json_text(part)
    if part.get("type") == "image_url":
        source = part.get("image_url")
        url = source.get("url") if isinstance(source, dict) else source
        return _text_or_image(url) if isinstance(url, str) else None
    for key in ("text", "content", "refusal"):
        if isinstance(part.get(key), str):
            return _text_or_image(part[key]) if part[key] else None
    return json_text(part)


def json_text(value: Any) -> Record:
    """Return a text block that shows a JSON value, or says that it is too large to be shown."""
    if weight(value, MAX_RECORD_TEXT) > MAX_RECORD_TEXT:
        return {"type": "text", "text": CUT}
    with no_collection():
        return {"type": "text", "text": clean_text(json.dumps(clean(value), ensure_ascii=False))}


def _text_or_image(text: str) -> Record:
    found = _DATA_URL.match(text)
    if found:
        return {"type": "image", "mimeType": f"image/{found[1].lower()}", "data": clean_text(text[found.end() :], None)}
    return {"type": "text", "text": clean_text(text)}


def _tool_call(call: Any) -> Record | None:
    if not isinstance(call, dict):
        return None
    function = call.get("function")
    if not isinstance(function, dict):
        return None
    raw = function.get("arguments")
    arguments: Any = raw
    if weight(raw, MAX_RECORD_TEXT) > MAX_RECORD_TEXT:
        arguments = {"_raw": CUT}
    elif isinstance(raw, str):
        try:
            arguments = parse_line(raw.encode("utf-8", "replace"))
        except ValueError:
            arguments = None
    if not isinstance(arguments, dict):
        arguments = {"_raw": raw if isinstance(raw, str) else json.dumps(clean(raw))}
    name, identity = (clean_text(str(value or ""), 200) for value in (function.get("name"), call.get("id")))
    with no_collection():
        return {"type": "toolCall", "id": identity, "name": name, "arguments": clean(arguments)}


__all__ = [
    "CUT", "MAX_BLOCKS", "MAX_BYTES", "MAX_LINES", "MAX_RECORDS", "MODEL_ERROR", "final_answer",
    "move_images_out", "normalise_nanobot", "records_from_messages", "to_jsonl", "tool_usage", "was_cut",
]  # fmt: skip
