"""Read OpenClaw's session database in a process of its own: what makes SQLite hang or swell ends this program alone.

``python -I -S openclaw_reader.py URI ORDER`` imports nothing but the standard library. ORDER is a JSON object with
``session``, which is read first, and the bounds: ``seconds`` of processor time, bytes of ``memory`` and of ``output``,
bytes of one ``line``, and of all sessions together ``bytes``, ``rows`` and the number of other ``sessions``.

A line of the output is a session's number (0 is ``session``), a kind and base64: first ``name``, then ``json`` or
``zstd`` for each event. The program exits with 0 iff nothing was left out, and writes what it has before an error.
"""

from __future__ import annotations

import json
import re
import resource
import sqlite3
import sys
from base64 import b64encode
from contextlib import closing
from typing import Any

NAME_BYTES = 200
"""A session with a longer id is left out."""
_PRAGMAS = (
    "trusted_schema = OFF", "cell_size_check = ON", "mmap_size = 0", "temp_store = MEMORY", "query_only = ON",
    "hard_heap_limit = {memory}",
)  # fmt: skip
_SCHEMA = "SELECT type, substr(sql, 1, 100) FROM sqlite_master WHERE name = 'transcript_events' COLLATE NOCASE"
_TABLE = re.compile(rb'CREATE TABLE "?transcript_events"?\s*\(')
_COLUMNS = "SELECT name, hidden FROM pragma_table_xinfo('transcript_events')"
_EVENTS = "SELECT event_json, event_zstd FROM transcript_events WHERE session_id = ? ORDER BY seq LIMIT ?"
_SESSIONS = """
SELECT CASE WHEN typeof(session_id) = 'text' AND length(CAST(session_id AS BLOB)) <= ? THEN session_id END
FROM transcript_events
"""
"""Ids as they come: ``DISTINCT`` and ``GROUP BY`` would keep all of them before the first is bounded."""


class Reader:
    """What is still allowed of one database, and whether something was left out."""

    def __init__(self, connection: sqlite3.Connection, order: dict[str, Any]) -> None:
        self._connection = connection
        self._out = sys.stdout.buffer
        self._own: str = order["session"]
        self._sessions: int = order["sessions"]
        self._rows: int = order["rows"]
        self._bytes: int = order["bytes"]
        self.cut = False

    def read(self) -> None:
        """Write the events of all sessions. Raises what SQLite raises."""
        if not is_ordinary(self._connection):
            self.cut = True
            return
        self._session(0, self._own)
        self._out.flush()
        for number, name in enumerate(self._others(), 1):
            if self._rows <= 0 or self._bytes <= 0:
                self.cut = True
                return
            self._session(number, name)

    def _session(self, number: int, name: str) -> None:
        self._write(number, "name", name.encode())
        for plain, packed in self._connection.execute(_EVENTS, (name, self._rows + 1)):
            if self._rows <= 0 or self._bytes <= 0:
                self.cut = True
                return
            self._rows -= 1
            self._bytes -= sum(len(value) for value in (plain, packed) if isinstance(value, bytes))
            if isinstance(plain, bytes):
                self._write(number, "json", plain)
            else:
                self._write(number, "zstd", packed if isinstance(packed, bytes) else b"")

    def _others(self) -> list[str]:
        """Return the ids of the other sessions, as many as are allowed."""
        found: set[str] = set()
        for (raw,) in self._connection.execute(_SESSIONS, (NAME_BYTES,)):
            try:
                name = raw.decode() if raw is not None else None
            except UnicodeDecodeError:
                name = None
            if name is None:
                self.cut = True
            elif name != self._own and name not in found:
                if len(found) == self._sessions:
                    self.cut = True
                    break
                found.add(name)
        return sorted(found)

    def _write(self, number: int, kind: str, data: bytes) -> None:
        self._out.write(b"%d %s %s\n" % (number, kind.encode(), b64encode(data)))


def is_ordinary(connection: sqlite3.Connection) -> bool:
    """Whether the events stand in a real table whose columns are all stored: a view or a column could compute."""
    entries = connection.execute(_SCHEMA).fetchmany(2)
    if len(entries) != 1 or entries[0][0] != b"table" or not _TABLE.match(entries[0][1] or b""):
        return False
    return all(hidden == 0 for _, hidden in connection.execute(_COLUMNS))


def bound_process(seconds: int, memory: int, output: int) -> None:
    """Bound this process for good; macOS knows no bound of the address space."""
    limits = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_FSIZE: output, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":
        limits[resource.RLIMIT_AS] = memory
    for kind, most in limits.items():
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def main(uri: str, order: dict[str, Any]) -> int:
    """Read a database and return the exit status."""
    bound_process(order["seconds"], order["memory"], order["output"])
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        connection.text_factory = bytes
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, order["line"])
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma.format(memory=order['memory'] // 2)}").fetchall()
        reader = Reader(connection, order)
        reader.read()
    return int(reader.cut)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], json.loads(sys.argv[2])))
