"""The database in which newer releases of OpenClaw keep their sessions, read as untrusted bytes.

SQLite never sees it in this process: one opcode of a hostile database can run for hours, and no signal or handler of
this process would end it. A private copy is read by ``openclaw_reader`` in a child, which is bounded in processor time,
memory and output and killed at a deadline; what it has written by then is taken.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pytest_uniclaw.agents import openclaw_reader
from pytest_uniclaw.agents.cleaning import MAX_LINE_BYTES, parse_line
from pytest_uniclaw.agents.transcript import MAX_BYTES, MAX_LINES
from pytest_uniclaw.models.chat import Json

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_SESSIONS = 200
"""Sessions beside the user's."""
READ_SECONDS = 20.0
READER_BYTES = 1024 * 1024 * 1024
"""The reader's address space."""
OUTPUT_BYTES = 3 * MAX_BYTES
"""What the reader may write: the events, one more of them, and what base64 adds."""
FAILED_BYTES = 1024 * 1024
"""What counts for a value that zstd refuses: it may be unpacked nearly to its end before that shows."""
NAMELESS = "[no id]"


class Line(NamedTuple):
    """One line of the reader's output."""

    session: int
    kind: bytes
    data: bytes


@dataclass
class Events:
    """The events of one session, each read when it is asked for. Never raises.

    After the iteration ``broken`` counts those that are no JSON object, ``size`` the bytes of all, and ``cut`` says
    whether some were left out.
    """

    lines: Iterable[Line]
    broken: int = 0
    size: int = 0
    cut: bool = False

    def __iter__(self) -> Iterator[Json]:
        for line in self.lines:
            if self.size > MAX_BYTES:
                self.cut = True
                return
            value = self._value(line)
            if isinstance(value, dict):
                yield value
            else:
                self.broken += 1

    def _value(self, line: Line) -> object:
        try:
            data = _unpacked(line.data) if line.kind == b"zstd" else line.data
        except zstd.ZstdError:
            self.size += FAILED_BYTES
            return None
        self.size += len(data)
        try:
            return parse_line(data)
        except ValueError:
            return None


@dataclass
class Database:
    """What was read of a database; ``cut`` says that it is not all: a bound was reached, or SQLite refused some."""

    output: BinaryIO
    cut: bool

    def sessions(self) -> Iterator[tuple[str, Events]]:
        """Yield the sessions by id, the user's with an empty one and before all others, each to be read at once."""
        for number, lines in groupby(self._lines(), lambda line: line.session):
            yield _session(number, lines)

    def _lines(self) -> Iterator[Line]:
        """Yield the lines that are whole; only a reader that was stopped leaves another."""
        for line in self.output:
            try:
                number, kind, data = line.split(b" ")
                found = Line(int(number), kind, b64decode(data.removesuffix(b"\n"), validate=True))
            except ValueError:
                found = None
            if found is None or not line.endswith(b"\n"):
                self.cut = True
                return
            yield found


def _session(number: int, lines: Iterator[Line]) -> tuple[str, Events]:
    name = next(lines).data.decode("utf-8", "replace") or NAMELESS
    return name if number else "", Events(lines)


@contextmanager
def open_database(path: Path, journal: Path | None, session: str, *, scratch: Path) -> Iterator[Database]:
    """Read a database and the journal that belongs to it, ``session`` first. Raises nothing for what is in them.

    ``scratch`` is a folder for files that are gone when the block ends.
    """
    if sum(file.stat().st_size for file in (path, journal) if file) > MAX_FILE_BYTES:
        yield Database(BytesIO(), cut=True)
        return
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        copy = Path(folder) / "sessions.sqlite"
        shutil.copyfile(path, copy)
        if journal:
            shutil.copyfile(journal, f"{copy}-wal")
        with (Path(folder) / "events").open("w+b") as output:
            whole = _read(copy, session, output)
            output.seek(0)
            yield Database(output, cut=not whole)


def _read(copy: Path, session: str, output: BinaryIO) -> bool:
    """Have a child read a database; return whether it left nothing out."""
    order = {
        "session": session, "seconds": int(READ_SECONDS), "memory": READER_BYTES, "output": OUTPUT_BYTES,
        "line": MAX_LINE_BYTES, "bytes": MAX_BYTES, "rows": MAX_LINES, "sessions": MAX_SESSIONS,
    }  # fmt: skip
    command = [
        sys.executable, "-I", "-S", openclaw_reader.__file__, f"{copy.as_uri()}?mode=ro", json.dumps(order),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL, timeout=READ_SECONDS,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _unpacked(packed: bytes) -> bytes:
    """Return the event behind a compressed value, at most one byte more than a line may have. Raises ZstdError."""
    found: bytes = zstd.ZstdDecompressor().decompress(packed, MAX_LINE_BYTES + 1)
    return found
