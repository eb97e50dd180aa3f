"""Images in a transcript: as files beside it, and never in the lines that are written."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.cleaning import clean
from pytest_uniclaw.agents.joining import with_notices

MAX_IMAGES = 500
MAX_IMAGE_BYTES = 64 * 1024 * 1024
"""Bytes of all images of one transcript."""
EXTENSIONS = {"png": "png", "jpeg": "jpg", "jpg": "jpg", "gif": "gif", "webp": "webp"}
"""By the media type that the agent states. A file of any other type is ``.bin``, which nothing opens by itself."""
_BREAKS = "\x85\u2028\u2029"
"""Line breaks to ``str.splitlines`` that JSON may leave as they are."""
NOT_KEPT = f"[image: not kept, for a transcript has at most {MAX_IMAGES} and {MAX_IMAGE_BYTES >> 20} MiB of them]"


def move_images_out(records: Sequence[Record]) -> tuple[tuple[Record, ...], dict[str, bytes]]:
    """Replace inline images by ``[image: inline_images/<hash>.<ext>]`` texts.

    Returns the records and the files by that relative name; equal images are one file, and data that is no base64
    is dropped with a note. So are images beyond the bounds; these are cuts, and a closing notice counts them.
    """
    shelf = _Shelf()
    moved = []
    for record in records:
        message = record.get("message")
        blocks = message.get("content") if isinstance(message, dict) else None
        if isinstance(message, dict) and isinstance(blocks, list) and any(is_image(block) for block in blocks):
            content = [{"type": "text", "text": shelf.put(block)} if is_image(block) else block for block in blocks]
            record = {**record, "message": {**message, "content": content}}
        moved.append(record)
    return with_notices(tuple(moved), "images", cut=shelf.cut), shelf.images


def is_image(block: Any) -> bool:
    """Whether a block is an inline image."""
    return isinstance(block, dict) and block.get("type") == "image"


class _Shelf:
    """The images of one transcript by name, within its bounds; ``cut`` counts those that were left out."""

    def __init__(self) -> None:
        self.images: dict[str, bytes] = {}
        self.cut = 0
        self._room = MAX_IMAGE_BYTES

    def put(self, block: Mapping[str, Any]) -> str:
        """Keep an image, and return the text that stands for it."""
        extension = EXTENSIONS.get(str(block.get("mimeType", "")).partition("/")[2], "bin")
        try:
            data = base64.b64decode(str(block.get("data", "")), validate=True)
        except (binascii.Error, ValueError):
            return f"[image: {extension}, not decodable]"
        name = f"inline_images/{hashlib.sha256(data).hexdigest()[:16]}.{extension}"
        if name not in self.images:
            if len(self.images) == MAX_IMAGES or len(data) > self._room:
                self.cut += 1
                return NOT_KEPT
            self.images[name] = data
            self._room -= len(data)
        return f"[image: {name}]"


def to_jsonl(records: Sequence[Record]) -> bytes:
    """One JSON object a line by any reader's idea of lines, valid UTF-8, no inline images."""
    lines = (json.dumps(clean(record), ensure_ascii=False, allow_nan=False) for record in move_images_out(records)[0])
    return "".join(f"{_one_line(line)}\n" for line in lines).encode("utf-8")


def _one_line(line: str) -> str:
    for character in _BREAKS if not line.isascii() else "":
        line = line.replace(character, f"\\u{ord(character):04x}")
    return line
