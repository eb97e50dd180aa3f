"""The database in which newer releases of OpenClaw keep their sessions, read as untrusted bytes.

A private copy is opened read-only. Every step of SQLite is bounded in time and size, and only a real table is read: a
view could compute for ever.
"""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.cleaning import MAX_LINE_BYTES, parse_line
from pytest_uniclaw.agents.transcript import MAX_BYTES, MAX_LINES
from pytest_uniclaw.models.chat import Json

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_SESSIONS = 200
READ_SECONDS = 30.0
_STEPS = 10_000
"""Steps of SQLite's machine between two looks at the clock."""
_SESSIONS = "SELECT DISTINCT session_id FROM transcript_events WHERE typeof(session_id) = 'text' LIMIT ?"
_EVENTS = "SELECT event_json, event_zstd FROM transcript_events WHERE session_id = ? ORDER BY seq LIMIT ?"
_KIND = "SELECT count(*) FROM sqlite_master WHERE name = 'transcript_events' AND type = 'table'"


@dataclass
class Events:
    """The events of one session, each read when it is asked for. Never raises.

    After the iteration ``broken`` counts those that are no JSON object, ``size`` their bytes, and ``cut`` says whether
    some were left out.
    """

    database: Database
    session: bytes
    broken: int = 0
    size: int = 0
    cut: bool = False

    def __iter__(self) -> Iterator[Json]:
        for number, (plain, packed) in enumerate(self.database.rows(_EVENTS, (self.session.decode(), MAX_LINES + 1))):
            if number == MAX_LINES or self.size > MAX_BYTES:
                self.cut = True
                return
            try:
                data = plain if isinstance(plain, bytes) else _unpacked(packed)
                value = parse_line(data)
            except ValueError:
                self.broken += 1
                continue
            self.size += len(data)
            if isinstance(value, dict):
                yield value
            else:
                self.broken += 1


@dataclass
class Database:
    """An open database; ``broken`` says that SQLite refused something of it or took too long."""

    connection: sqlite3.Connection | None
    broken: bool = False
    deadline: float = field(default_factory=lambda: time.monotonic() + READ_SECONDS)

    def sessions(self, first: str) -> list[str]:
        """Return the ids of the sessions, ``first`` before all others."""
        if not [row for row in self.rows(_KIND, ()) if row[0] == 1]:
            self.broken = True
            return []
        found = {name.decode("utf-8", "replace") for (name,) in self.rows(_SESSIONS, (MAX_SESSIONS,))}
        return sorted(found, key=lambda name: (name != first, name))

    def events(self, session: str) -> Events:
        """Return the events of a session."""
        return Events(self, session.encode())

    def rows(self, query: str, values: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, as many as can be read."""
        if self.connection is None:
            return
        try:
            yield from self.connection.execute(query, values)
        except (sqlite3.Error, ValueError, OverflowError, MemoryError):
            self.broken = True

    def late(self) -> int:
        """Whether SQLite is to stop; called by it every :data:`_STEPS` steps."""
        return int(time.monotonic() > self.deadline)


@contextmanager
def open_database(path: Path, journal: Path | None) -> Iterator[Database]:
    """Open a copy of a database and of the journal that belongs to it. Raises nothing for what is in them."""
    if sum(file.stat().st_size for file in (path, journal) if file) > MAX_FILE_BYTES:
        yield Database(None, broken=True)
        return
    with tempfile.TemporaryDirectory(prefix="uniclaw-") as folder:
        copy = Path(folder) / "sessions.sqlite"
        shutil.copyfile(path, copy)
        if journal:
            shutil.copyfile(journal, f"{copy}-wal")
        with closing(sqlite3.connect(f"{copy.as_uri()}?mode=ro", uri=True)) as connection:
            database = Database(connection)
            connection.text_factory = bytes
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 4 * MAX_LINE_BYTES)
            connection.set_progress_handler(database.late, _STEPS)
            for pragma in ("trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0"):
                list(database.rows(f"PRAGMA {pragma}", ()))
            yield database


def _unpacked(packed: Any) -> bytes:
    """Return the event behind a compressed value. Raises ValueError for what is none."""
    if not isinstance(packed, bytes):
        raise ValueError("neither text nor bytes")
    try:
        found: bytes = zstd.ZstdDecompressor().decompress(packed, MAX_LINE_BYTES + 1)
    except zstd.ZstdError as error:
        raise ValueError("not compressed by zstd") from error
    return found
