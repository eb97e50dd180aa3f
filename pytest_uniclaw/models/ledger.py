"""The ledger: one JSON line per ended model call, on disk for people and in memory for the session."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from pytest_uniclaw.models.grants import Call, Role


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
    """All calls of a session, in the order in which they ended."""

    def __init__(self, directory: Path) -> None:
        self._file = AppendFile(directory / "ledger.jsonl")
        self._calls: defaultdict[str, list[Call]] = defaultdict(list)

    def append(self, call: Call) -> None:
        """Keep one ended call."""
        self._calls[call.attempt].append(call)
        self._file.append(json_line(call.model_dump(mode="json", by_alias=True)))

    def calls(self, attempt: str, role: Role | None = None) -> list[Call]:
        """The ended calls of an attempt, of one role or of all."""
        return [call for call in self._calls.get(attempt, ()) if role in (None, call.role)]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
