"""Redaction by value (design invariant 5): a known secret is blanked wherever it stands, in text and in files.

A value is found as it is, as JSON quotes it (also inside JSON text), percent-encoded, in hexadecimal and in base64 at
any offset of one line. What was compressed, encrypted or spelled otherwise is not found: who can read a secret can
always write it in a way of their own.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from mmap import mmap
from typing import Any, AnyStr
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"
SHORTEST_SECRET = 4
"""Characters; shorter values are words of ordinary text and are left alone."""
SHORTEST_ENCODED = 8
"""Characters; a shorter piece of base64 or hexadecimal stands in ordinary data by chance."""
JSON_DEPTH = 3
"""How often JSON text may be quoted in JSON text: arguments of a tool call, in its message, in a line of a log."""
VIRTUAL_KEY = r"(?<![A-Za-z0-9_-])uck-[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])"
"""A key of the gateway. Whole, because ``truck-`` and the like begin many a slug."""
_KEY_MARK = "uck-"
_FAST_KEY = r"uck-(?<![A-Za-z0-9_-]uck-)[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])"
"""VIRTUAL_KEY in the order in which the search for it is fast: what begins with letters is not tried everywhere."""
_NO_SECRETS = frozenset({"true", "false", "null", "none"})
"""Settings are declared like secrets; these words are syntax in every JSON file."""


Searchable = bytes | mmap
"""Bytes, or a file that is mapped into memory."""
BLOCK = 8
"""Bytes that are looked up at once in large data."""
LARGE = 1 << 20
"""Bytes; from here on one look at each block is faster than a search for each form of each secret."""
_ALIGNED = 2 * BLOCK - 1
"""Bytes; what is as long holds a whole block wherever it stands."""


class Redactor:
    """Blanks secret values and virtual keys; the time that it takes hardly depends on the number of secrets.

    Of values that begin at the same place the longest is blanked, and what is blanked is not looked at again.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        kept = {s for s in secrets if len(s) >= SHORTEST_SECRET and s.casefold() not in _NO_SECRETS}
        forms = {form for secret in kept for form in _forms(secret)}
        wide = {secret.encode(code, "replace") for secret in kept for code in ("utf-16-le", "utf-16-be")}
        self._needles = sorted(forms, key=_longest_first)
        self._key = re.compile(_FAST_KEY)
        encoded = sorted({form.encode("utf-8", "replace") for form in forms} | wide, key=_longest_first)
        self._byte_needles = _Needles(encoded)
        self._byte_key = re.compile(_FAST_KEY.encode())

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        needles = [needle for needle in self._needles if needle in text]
        keys = _KEY_MARK in text
        if not keys and len(needles) == 1:
            return text.replace(needles[0], REDACTED)
        if not keys and not needles:
            return text
        return "".join(_pieces(text, _spans(text, needles, self._key), REDACTED, ""))

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string (keys too) redacted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        return value

    def may_hold(self, data: Searchable) -> bool:
        """Say whether there is anything to redact in the whole data."""
        return self._has_key(data) or any(data.find(needle) >= 0 for needle in self._byte_needles.likely(data))

    def data(self, data: bytes) -> bytes:
        """Return bytes without secrets; where they are no text, their length and so their format stay as they were."""
        needles = [needle for needle in self._byte_needles.likely(data) if needle in data]
        keys = self._has_key(data)
        if not needles and not keys:
            return data
        mask = b"*" if b"\0" in data else b""
        if len(needles) == 1 and not keys:
            return data.replace(needles[0], mask * len(needles[0]) or REDACTED.encode())
        return b"".join(_pieces(data, _spans(data, needles, self._byte_key), REDACTED.encode(), mask))

    def _has_key(self, data: Searchable) -> bool:
        return data.find(_KEY_MARK.encode()) >= 0 and self._byte_key.search(data) is not None


class _Needles:
    """Byte strings, longest first, and which of them large data may hold.

    Wherever a long needle stands in the data, some blocks of the data's own grid lie within it. So the data is looked
    at once, block by block, and only a needle all of whose blocks of one alignment were seen is searched for.
    """

    def __init__(self, needles: Sequence[bytes]) -> None:
        self._all = needles
        shortest = min((len(needle) for needle in needles if len(needle) >= _ALIGNED), default=_ALIGNED)
        self._step = (shortest + 1 - BLOCK) // BLOCK
        self._grids = {needle: list(self._alignments(needle)) for needle in needles if len(needle) >= _ALIGNED}
        self._blocks = {block for grids in self._grids.values() for grid in grids for block in grid}

    def likely(self, data: Searchable) -> Sequence[bytes]:
        """Return the needles that the data may hold, longest first."""
        if len(data) < LARGE or not self._blocks:
            return self._all
        with memoryview(data) as whole, whole[: len(data) // BLOCK * BLOCK] as even, even.cast("Q") as blocks:
            seen = self._blocks.intersection(blocks[:: self._step])
        return [needle for needle in self._all if self._may_stand(needle, seen)]

    def _may_stand(self, needle: bytes, seen: set[int]) -> bool:
        grids = self._grids.get(needle)
        return grids is None or any(seen.issuperset(grid) for grid in grids)

    def _alignments(self, needle: bytes) -> Iterator[list[int]]:
        """Yield the blocks of a needle for each place on the grid at which it may begin."""
        width = self._step * BLOCK
        for first in range(width):
            starts = range(first, len(needle) - BLOCK + 1, width)
            yield [int.from_bytes(needle[start : start + BLOCK], sys.byteorder) for start in starts]


def _spans(text: AnyStr, needles: Sequence[AnyStr], key: re.Pattern[AnyStr]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of what is to be blanked: the leftmost, of those the first needle, the key last."""
    waiting: list[tuple[int, int, int]] = []

    def look(order: int, start: int) -> None:
        if order < len(needles):
            begin = text.find(needles[order], start)
            end = begin + len(needles[order])
        else:
            found = key.search(text, start)
            begin, end = found.span() if found else (-1, -1)
        if begin >= 0:
            heappush(waiting, (begin, order, end))

    for order in range(len(needles) + 1):
        look(order, 0)
    done = 0
    while waiting:
        begin, order, end = heappop(waiting)
        if begin >= done:
            yield begin, end
            done = end
        look(order, done)


def _pieces(text: AnyStr, spans: Iterable[tuple[int, int]], blank: AnyStr, mask: AnyStr) -> Iterator[AnyStr]:
    """Yield the text with ``blank`` for each span, or with as many of ``mask`` as the span is long."""
    done = 0
    for begin, end in spans:
        yield text[done:begin]
        yield mask * (end - begin) or blank
        done = end
    yield text[done:]


def _longest_first(form: str | bytes) -> tuple[int, str | bytes]:
    return -len(form), form


def _forms(secret: str) -> set[str]:
    data = secret.encode("utf-8", "replace")
    plain = {secret}
    for _ in range(JSON_DEPTH):
        plain |= {json.dumps(form, ensure_ascii=ascii)[1:-1] for form in plain for ascii in (True, False)}
    escaped = {quote(data), quote(data, safe=""), quote_plus(data)}
    digits = {data.hex(), data.hex().upper(), *_base64(data)}
    return plain | escaped | {form for form in digits if len(form) >= SHORTEST_ENCODED}


def _base64(data: bytes) -> Iterator[str]:
    """Yield what stands in base64 text for ``data`` whatever comes before and after it, in both alphabets."""
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + data).decode()
        whole = text[-(-shift * 4 // 3) : (shift + len(data)) * 4 // 3]  # characters that hold bits of the data only
        yield whole
        yield whole.translate(str.maketrans("+/", "-_"))
