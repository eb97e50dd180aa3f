"""Untrusted JSON made safe: valid UTF-8, finite, bounded in depth and length.

Whatever an executor wrote may hold lone surrogates, NULs, ``NaN``, endless nesting or megabytes on one line; what
leaves here can always be written as JSON and read by anything.
"""

from __future__ import annotations

import gc
import json
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MAX_LINE_BYTES = 16 * 1024 * 1024
"""A longer line is counted as broken without being parsed."""
MAX_LINE_MARKS = 300_000
"""A line with more values than this is broken too: what is short on disk is long in memory."""
MAX_TEXT_CHARACTERS = 1_000_000
"""Longer strings are cut, with a note of how much went."""
MAX_DEPTH = 64
NODE_CHARACTERS = 16
"""What a JSON value weighs in characters beside its text: ``[[],[],…]`` is short on disk and long in memory."""
_NUMBERS, _LISTS = (bool, int), (list, tuple)
_FEW_MARKS = 1_000
_MARKS = b"{[,"
"""Each value of JSON but the first has one of these before it."""
_NO_MARK = bytes(set(range(256)) - set(_MARKS) - {ord('"')})
_STRING = re.compile(rb'"[^"]*+"')
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
    if value is None or isinstance(value, _NUMBERS):
        return value
    if depth >= MAX_DEPTH:
        return "[nested too deeply]"
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, _LISTS):
        return [clean(item, depth + 1) for item in value]
    return clean_text(str(value))


@contextmanager
def no_collection() -> Iterator[None]:
    """Leave out the search for unused cycles: JSON has none, and looking for them takes longer than reading it."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


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
        elif isinstance(item, _LISTS):
            waiting.extend(item)
    return total


def marks_of(line: bytes) -> int:
    """Return about how many values a line of JSON holds, at least where it is more than a line may hold."""
    marks = sum(map(line.count, (b"{", b"[", b",")))
    if marks <= _FEW_MARKS:
        return marks
    bare = line.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_MARK)
    strings = bare.count(b'"') // 2
    if strings > 2 * (MAX_LINE_MARKS + 1):
        return strings // 2  # of two strings one at most is a key, and the other has a mark
    return len(_STRING.sub(b"", bare))


def parse_line(line: bytes) -> Any:
    """Parse one line of JSON. Raises ValueError for every way in which it is not one."""
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a line of {len(line)} bytes")
    if len(line) > MAX_LINE_MARKS and marks_of(line) > MAX_LINE_MARKS:
        raise ValueError("a line of too many values")
    try:
        with no_collection():
            return json.loads(line.decode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
