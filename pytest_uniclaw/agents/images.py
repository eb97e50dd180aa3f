"""Images in a transcript: as files beside it, and never in the lines that are written."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.cleaning import clean

_EXTENSIONS = {"jpeg": "jpg", "svg+xml": "svg", "x-icon": "ico"}


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
        if isinstance(message, dict) and isinstance(blocks, list) and any(is_image(block) for block in blocks):
            content = [_image_text(block, images) if is_image(block) else block for block in blocks]
            record = {**record, "message": {**message, "content": content}}
        moved.append(record)
    return tuple(moved), images


def is_image(block: Any) -> bool:
    """Whether a block is an inline image."""
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
