"""Untrusted JSON made safe: valid UTF-8, finite, bounded in depth and length.

Whatever an executor wrote may hold lone surrogates, NULs, ``NaN``, endless nesting or megabytes on one line; what
leaves here can always be written as JSON and read by anything.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is counted as broken without being parsed."""
MAX_TEXT_CHARACTERS = 1_000_000
"""Longer strings are cut, with a note of how much went."""
MAX_DEPTH = 64
_NUL = "\N{SYMBOL FOR NULL}"
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def clean_text(text: str, limit: int | None = MAX_TEXT_CHARACTERS) -> str:
    """Return ``text`` without lone surrogates and NULs, cut at ``limit`` characters (None: whole)."""
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}\n[{len(text) - limit} characters cut]"
    if "\0" in text:
        text = text.replace("\0", _NUL)
    return text if text.isascii() else _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def clean(value: Any, depth: int = 0) -> Any:
    """Return ``value`` as JSON primitives that any reader accepts; what is nested too deeply becomes a note."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if depth >= MAX_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item, depth + 1) for item in value]
    return clean_text(str(value))


def parse_line(line: bytes) -> Any:
    """Parse one line of JSON. Raises ValueError for every way in which it is not one."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a line of {len(line)} bytes")
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
