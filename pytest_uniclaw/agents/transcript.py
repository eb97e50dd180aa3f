"""One transcript schema for every agent (upstream-contract section 1.10), made of untrusted bytes.

A record is ``{"type": "message", "id", "timestamp", "message": {"role", "content": [blocks]}}``. Roles are ``user``,
``assistant`` and ``toolResult`` (with ``toolCallId`` and ``toolName``). Blocks are ``text``, ``thinking``,
``toolCall`` (``id``, ``name``, ``arguments``) and, in memory only, ``image`` (``mimeType``, base64 ``data``):
:func:`move_images_out` turns those into files, and :func:`to_jsonl` never writes one.

An executor may write a small file that becomes large values, so everything is bounded before it is built. Where a bound
cut something, a closing record of type ``notice`` says so with ``cut``, the number of cuts (:func:`was_cut`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.cleaning import clean, clean_text, parse_line
from pytest_uniclaw.agents.usage import complete_last_turn, final_answer, tool_usage

MODEL_ERROR = "[Assistant reply unavailable due to model error.]"
"""What nanobot stores in place of an answer when the model failed; such a record gets ``stopReason: error``."""
MAX_BYTES = 64 * 1024 * 1024
"""Bytes that are read of an agent's session; what follows is cut."""
MAX_LINES = 200_000
MAX_RECORDS = 20_000
MAX_BLOCKS = 1_000
"""Blocks of one record."""
MAX_ALL_BLOCKS = 200_000
"""Blocks of all records together."""
MAX_RECORD_TEXT = 4 * 1024 * 1024
"""Characters of the texts of one record; images do not count."""
NODE_CHARACTERS = 16
"""What a JSON value weighs in characters beside its text: ``[[],[],…]`` is short on disk and long in memory."""
CUT = "[the rest of this message was cut]"
_DATA_URL = re.compile(r"data:image/([a-z0-9.+-]{1,20});base64,", re.IGNORECASE)
_EXTENSIONS = {"jpeg": "jpg", "svg+xml": "svg", "x-icon": "ico"}
_ENDINGS = {"stop_reason": "stopReason", "error_message": "errorMessage"}
"""How an agent's own store says that an answer ended, where it says so."""
_ROLES = {"user": "user", "assistant": "assistant", "tool": "toolResult"}


def read_head(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return at most ``most`` bytes of a file and one more, by which :class:`Lines` knows that there were more."""
    with path.open("rb") as file:
        return file.read(most + 1)


@dataclass
class Lines:
    """The JSON objects of untrusted bytes, one a line, each made when it is asked for. Never raises.

    ``most`` is the number of bytes that are read. After the iteration ``broken`` counts the lines that are no JSON
    object, and ``cut`` says whether lines were left out.
    """

    data: bytes
    most: int = MAX_BYTES
    broken: int = 0
    cut: bool = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.cut = len(self.data) > self.most
        data = self.data[: self.data.rfind(b"\n", 0, self.most) + 1] if self.cut else self.data
        for number, line in enumerate(BytesIO(data)):
            if number == MAX_LINES:
                self.cut = True
                return
            if not line.strip():
                continue
            try:
                value = parse_line(line.rstrip(b"\n"))
            except ValueError:
                value = None
            if isinstance(value, dict):
                yield value
            else:
                self.broken += 1


def normalise_nanobot(data: bytes) -> tuple[Record, ...]:
    """Read a nanobot session file, either release. Never raises.

    Metadata and system lines are dropped; lines that are no JSON object are counted in one closing record of type
    ``notice`` with ``brokenLines``.
    """
    lines = Lines(data)
    records = records_from_messages((value for value in lines if value.get("_type") is None), prefix="nanobot")
    return with_notices(records, "nanobot", broken=lines.broken, cut=int(lines.cut))


def with_notices(records: tuple[Record, ...], prefix: str, *, broken: int = 0, cut: int = 0) -> tuple[Record, ...]:
    """Return records and a closing notice of broken lines and of cuts, if there were any."""
    facts = {name: count for name, count in (("brokenLines", broken), ("cut", cut)) if count}
    if not facts:
        return records
    return (*records, {"type": "notice", "id": f"{prefix}-{len(records):06d}", "timestamp": "", **facts})


def was_cut(records: Iterable[Record]) -> bool:
    """Whether a bound of this module cut something of the records."""
    return any(record.get("type") == "notice" and bool(record.get("cut")) for record in records)


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
        room -= 0 if _is_image(block) else weight(block, room)
        if len(blocks) == most or room < 0:
            return [*blocks, {"type": "text", "text": CUT}], 1
        blocks.append(block)
    return blocks, int(any(CUT in (block.get("text"), block.get("arguments", {}).get("_raw")) for block in blocks))


def weight(value: Any, most: int) -> int:
    """Return how many characters a JSON value weighs; the count ends above ``most``."""
    total, waiting = 0, [value]
    while waiting and total <= most:
        item = waiting.pop()
        total += NODE_CHARACTERS
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, dict):
            total += sum(map(len, item))
            waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)
    return total


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
        return _json_text(part)
    if part.get("type") == "image_url":
        source = part.get("image_url")
        url = source.get("url") if isinstance(source, dict) else source
        return _text_or_image(url) if isinstance(url, str) else None
    for key in ("text", "content", "refusal"):
        if isinstance(part.get(key), str):
            return _text_or_image(part[key]) if part[key] else None
    return _json_text(part)


def _json_text(value: Any) -> Record:
    """A text block that shows a JSON value, or says that it is too large to be shown."""
    if weight(value, MAX_RECORD_TEXT) > MAX_RECORD_TEXT:
        return {"type": "text", "text": CUT}
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
    "CUT", "MAX_BLOCKS", "MAX_BYTES", "MAX_RECORDS", "MODEL_ERROR", "Lines", "complete_last_turn", "final_answer",
    "move_images_out", "normalise_nanobot", "read_head", "records_from_messages", "to_jsonl", "tool_usage", "was_cut",
    "with_notices",
]  # fmt: skip
