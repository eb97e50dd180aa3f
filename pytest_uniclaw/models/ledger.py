"""The ledger: one JSON line per ended model call, on disk for people and in memory for the session."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from pytest_uniclaw.models.grants import Role


def json_line(value: Any) -> bytes:
    """One line of UTF-8 JSON; lone surrogates become their ``\\uXXXX`` escapes, so the line is always valid UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace") + b"\n"


class AppendFile:
    """A file that only grows, by one ``write`` per record, so that a kill leaves whole lines.

    Opening raises OSError. A later failure (full disk) is told on stderr once and must not fail a model call.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._told = False

    def append(self, line: bytes) -> None:
        """Write one line."""
        try:
            written = os.write(self._fd, line)
            problem = "" if written == len(line) else "the disk is full"
        except OSError as error:
            problem = str(error)
        if problem and not self._told:
            self._told = True
            sys.stderr.write(f"{self.path}: a record was lost: {problem}\n")

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Ledger:
    """All calls of a session, in the order in which they ended.

    A row is :class:`pytest_uniclaw.models.grants.Call` as JSON. Lines are kept rather than values, for they are a fifth
    of the size: a long session has some hundred thousand calls.
    """

    def __init__(self, directory: Path) -> None:
        self._file = AppendFile(directory / "ledger.jsonl")
        self._lines: defaultdict[str, list[tuple[Role, bytes]]] = defaultdict(list)

    def append(self, row: dict[str, Any]) -> None:
        """Keep one ended call."""
        line = json_line(row)
        self._lines[row["attempt"]].append((row["role"], line))
        self._file.append(line)

    def lines(self, attempt: str, role: Role | None = None) -> list[bytes]:
        """The ended calls of an attempt, of one role or of all, as JSON."""
        return [line for called, line in self._lines.get(attempt, ()) if role in (None, called)]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
