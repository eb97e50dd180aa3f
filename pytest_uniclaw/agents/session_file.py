"""Files that an agent left, read as untrusted bytes: which file, how much of it, and its lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.cleaning import MAX_LINE_MARKS, marks_of, parse_line

MAX_BYTES = 64 * 1024 * 1024
"""Bytes that are read of an agent's session; what follows is cut."""
MAX_LINES = 200_000
MAX_MARKS = 1_000_000
"""Values that are read of an agent's session; what follows is cut."""


def nearest(folder: Path, *names: str) -> Path | None:
    """Return the file of one of these names that is nearest to the top; one that the executor nested deeper loses."""
    found = (path for name in names for path in folder.rglob(name) if path.is_file())
    return min(found, key=depth, default=None)


def depth(path: Path) -> tuple[int, str]:
    """Return by what paths are ordered, those nearest to the top first."""
    return len(path.parts), str(path)


def read_head(path: Path, most: int = MAX_BYTES) -> bytes:
    """Return at most ``most`` bytes of a file and one more, by which :class:`Lines` knows that there were more."""
    with path.open("rb") as file:
        return file.read(most + 1)


def lines_of(path: Path, most: int = MAX_BYTES) -> Lines:
    """Return the lines of a file's first ``most`` bytes."""
    return Lines(read_head(path, most), most)


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
        marks = 0
        for number, line in enumerate(BytesIO(data)):
            found = marks_of(line)
            marks += found if found <= MAX_LINE_MARKS else 0
            if number == MAX_LINES or marks > MAX_MARKS:
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
