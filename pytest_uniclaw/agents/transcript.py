"""One transcript schema for every agent (upstream-contract section 1.10), made of untrusted bytes.

A record is ``{"type": "message", "id", "timestamp", "message": {"role", "content": [blocks]}}``. Roles are ``user``,
``assistant`` and ``toolResult`` (with ``toolCallId`` and ``toolName``). Blocks are ``text``, ``thinking``,
``toolCall`` (``id``, ``name``, ``arguments``) and, in memory only, ``image`` (``mimeType``, base64 ``data``):
:func:`move_images_out` turns those into files, and :func:`to_jsonl` never writes one.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.cleaning import clean, clean_text, parse_line
from pytest_uniclaw.agents.usage import complete_last_turn, final_answer, tool_usage

MODEL_ERROR = "[Assistant reply unavailable due to model error.]"
"""What nanobot stores in place of an answer when the model failed; such a record gets ``stopReason: error``."""
_DATA_URL = re.compile(r"data:image/([a-z0-9.+-]{1,20});base64,", re.IGNORECASE)
_EXTENSIONS = {"jpeg": "jpg", "svg+xml": "svg", "x-icon": "ico"}
_ROLES = {"user": "user", "assistant": "assistant", "tool": "toolResult"}


def normalise_nanobot(data: bytes) -> tuple[Record, ...]:
    """Read a nanobot session file, either release. Never raises.

    Metadata and system lines are dropped; lines that are no JSON object are counted in one closing record of type
    ``notice`` with ``brokenLines``.
    """
    messages: list[Mapping[str, Any]] = []
    broken = 0
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            value = parse_line(line)
        except ValueError:
            broken += 1
            continue
        if not isinstance(value, dict):
            broken += 1
        elif value.get("_type") is None:
            messages.append(value)
    records = records_from_messages(messages, prefix="nanobot")
    if not broken:
        return records
    notice = {"type": "notice", "id": f"nanobot-{len(records):06d}", "timestamp": "", "brokenLines": broken}
    return (*records, notice)


def records_from_messages(messages: Iterable[Mapping[str, Any]], prefix: str = "message") -> tuple[Record, ...]:
    """Make records of chat-completions messages, as an agent stores them or as the exchange log holds them.

    Ids are ``<prefix>-%06d``; messages without content and those of other roles are dropped.
    """
    records: list[Record] = []
    for message in messages:
        role = _ROLES.get(str(message.get("role")))
        blocks = _blocks(message, role) if role else []
        if role and blocks:
            records.append(_record(message, role, blocks, f"{prefix}-{len(records):06d}"))
    return tuple(records)


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


def _blocks(message: Mapping[str, Any], role: str) -> list[Record]:
    blocks: list[Record] = []
    thinking = message.get("reasoning_content")
    if role == "assistant" and isinstance(thinking, str) and thinking.strip():
        blocks.append({"type": "thinking", "thinking": clean_text(thinking)})
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    blocks.extend(block for part in parts if (block := _block(part)))
    calls = message.get("tool_calls")
    if role == "assistant" and isinstance(calls, list):
        blocks.extend(block for call in calls if (block := _tool_call(call)))
    return blocks


def _block(part: Any) -> Record | None:
    """Make one block of one content part; None when there is nothing in it."""
    if part is None or part == "":
        return None
    if isinstance(part, str):
        return _text_or_image(part)
    if not isinstance(part, dict):
        return {"type": "text", "text": clean_text(json.dumps(clean(part), ensure_ascii=False))}
    if part.get("type") == "image_url":
        source = part.get("image_url")
        url = source.get("url") if isinstance(source, dict) else source
        return _text_or_image(url) if isinstance(url, str) else None
    for key in ("text", "content", "refusal"):
        if isinstance(part.get(key), str):
            return _text_or_image(part[key]) if part[key] else None
    return {"type": "text", "text": clean_text(json.dumps(clean(part), ensure_ascii=False))}


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
    if isinstance(raw, str):
        try:
            arguments = parse_line(raw.encode("utf-8", "replace"))
        except ValueError:
            arguments = None
    if not isinstance(arguments, dict):
        arguments = {"_raw": raw if isinstance(raw, str) else json.dumps(clean(raw))}
    name, identity = (clean_text(str(value or ""), 200) for value in (function.get("name"), call.get("id")))
    return {"type": "toolCall", "id": identity, "name": name, "arguments": clean(arguments)}


def move_images_out(records: Sequence[Record]) -> tuple[tuple[Record, ...], dict[str, bytes]]:
    """Replace inline images by ``[image: inline_images/<hash>.<ext>]`` texts.

    Returns the records and the files by that relative name; equal images are one file, and data that is no base64
    is dropped with a note.
    """
    images: dict[str, bytes] = {}
    moved = []
    for record in records:
        message = record.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        if isinstance(message, dict) and isinstance(blocks, list) and any(_is_image(block) for block in blocks):
            content = [_image_text(block, images) if _is_image(block) else block for block in blocks]
            record = {**record, "message": {**message, "content": content}}
        moved.append(record)
    return tuple(moved), images


def _is_image(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "image"


def _image_text(block: Mapping[str, Any], images: dict[str, bytes]) -> Record:
    kind = str(block.get("mimeType", "")).partition("/")[2]
    try:
        data = base64.b64decode(str(block.get("data", "")), validate=True)
    except (binascii.Error, ValueError):
        return {"type": "text", "text": f"[image: {kind}, not decodable]"}
    extension = re.sub(r"[^a-z0-9]", "", _EXTENSIONS.get(kind, kind)) or "bin"
    name = f"inline_images/{hashlib.sha256(data).hexdigest()[:16]}.{extension}"
    images[name] = data
    return {"type": "text", "text": f"[image: {name}]"}


def to_jsonl(records: Sequence[Record]) -> bytes:
    """One JSON object a line, valid UTF-8, no inline images."""
    lines = (json.dumps(clean(record), ensure_ascii=False, allow_nan=False) for record in move_images_out(records)[0])
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


__all__ = [
    "MODEL_ERROR", "complete_last_turn", "final_answer", "move_images_out", "normalise_nanobot",
    "records_from_messages", "to_jsonl", "tool_usage",
]  # fmt: skip
