"""Keyed hashes of rows of words and letters: one salt, one integer per row, each row from the one before it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence

_PRIME = (1 << 61) - 1


class _Units(dict[str, int]):
    """The hash of each word or letter, made when it is first asked for."""

    def __init__(self, salt: bytes) -> None:
        super().__init__()
        self._salt = salt

    def __missing__(self, unit: str) -> int:
        digest = hashlib.blake2b(unit.encode("utf-8", "replace"), digest_size=8, key=self._salt).digest()
        self[unit] = value = int.from_bytes(digest, "big") % _PRIME
        return value


class Hasher:
    """Hashes under one salt. A row's hash is a polynomial of its units' hashes, so that a window can roll."""

    def __init__(self, salt: bytes) -> None:
        self.salt = salt
        self._units = _Units(salt)
        self._base = self._units["\0base"] | 1

    def single(self, kind: str, text: str) -> int:
        """Return the hash of one feature."""
        return self._units[f"\0{kind}\0{text}"]

    def run(self, kind: str, units: Sequence[str]) -> int:
        """Return the hash of a row of words or characters."""
        return self._total(units) ^ self._units[f"\0{kind}:{len(units)}"]

    def runs(self, kind: str, units: Sequence[str], lengths: Iterable[int], least: int = 0) -> Iterator[int]:
        """Yield the hashes of all rows of the given lengths; ``least``: letters that a row of one unit must have."""
        values = list(map(self._units.__getitem__, units))
        for length in lengths:
            seed, total, top = self._units[f"\0{kind}:{length}"], 0, pow(self._base, length, _PRIME)
            for end, value in enumerate(values):
                total = total * self._base + value
                if end >= length:
                    total -= values[end - length] * top
                total %= _PRIME
                if end >= length - 1 and (length > 1 or len(units[end]) >= least):
                    yield total ^ seed

    def spelled(self, kind: str, letters: str) -> tuple[int, int]:
        """Return two hashes of a text that is sought letter by letter: for all kinds, and for its own."""
        total, length = self._total(letters), len(letters)
        return total ^ self._units[f"\0:{length}"], total ^ self._units[f"\0spelled {kind}:{length}"]

    def spelled_kinds(self, letters: str, lengths: Iterable[int], marks: frozenset[int]) -> set[str]:
        """Return the kinds of spelled texts that occur anywhere in ``letters``."""
        found = set()
        for length in lengths:
            for start, run in enumerate(self.runs("", letters, (length,))):
                if run in marks:
                    window = letters[start : start + length]
                    found |= {kind for kind in SPELLED_KINDS if self.spelled(kind, window)[1] in marks}
        return found

    def _total(self, units: Sequence[str]) -> int:
        total = 0
        for value in map(self._units.__getitem__, units):
            total = (total * self._base + value) % _PRIME
        return total


SPELLED_KINDS = ("name", "address", "file", "path", "identifier", "secret")
"""The kinds that are sought letter by letter, too."""
