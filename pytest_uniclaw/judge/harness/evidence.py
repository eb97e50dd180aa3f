"""Safe readers over what was collected from a turn: the one fixture that checks get.

Everything below ``evidence/`` was written by the executor. A file that is missing, too large, undecodable or malformed
raises AssertionError with a text for a person, so a check that reads it counts as unmet and says why.
"""

from __future__ import annotations

import builtins
import csv
import io
import json
import math
import os
import stat
from collections.abc import Callable
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

MIB = 1024 * 1024
BYTES_LIMIT = 64 * MIB
"""Largest file that ``bytes`` reads."""
TEXT_LIMIT = 16 * MIB
"""Largest file that ``text``, ``json``, ``csv`` and ``state`` read."""
INTEGER_DIGITS = 4000
"""Longest integer that ``json`` accepts."""
CELL_LIMIT = 1 * MIB
"""Longest cell that ``csv`` accepts."""


class Evidence:
    """What was collected from the turn. Names are relative, with ``/``: ``evidence.text("report.md")``."""

    def __init__(self, root: Path, *, award: Callable[[float, str], None], violation: Callable[[str], None]) -> None:
        self._root = root
        self._award = award
        self._violation = violation

    def files(self) -> list[str]:
        """Return the relative names of the regular files under ``results/``, sorted."""
        names = []
        base = self._root / "evidence" / "results"
        for folder, _, files in os.walk(base):
            for name in files:
                path = Path(folder, name)
                if stat.S_ISREG(path.lstat().st_mode):
                    names.append(path.relative_to(base).as_posix())
        return sorted(names)

    def exists(self, name: str) -> bool:
        """Say whether ``results/name`` is a regular file."""
        return _find(self._root / "evidence" / "results", name) is not None

    def path(self, name: str) -> Path:
        """Return the path of ``results/name``, to be opened by a library."""
        return _need(self._root / "evidence", "results", name)

    def bytes(self, name: str) -> builtins.bytes:
        """Return the content of ``results/name``, at most 64 MiB."""
        return _read(self.path(name), f"results/{name}", BYTES_LIMIT)

    def text(self, name: str) -> str:
        """Return the text of ``results/name`` (UTF-8, at most 16 MiB), without a byte order mark."""
        return _decode(_read(self.path(name), f"results/{name}", TEXT_LIMIT), f"results/{name}")

    def json(self, name: str) -> Any:
        """Return the parsed ``results/name``; NaN and infinite numbers are malformed."""
        return _parse(self.text(name), f"results/{name}")

    def csv(self, name: str, delimiter: str = ",") -> list[dict[str, str]]:
        """Return the rows of ``results/name`` by the names of its first line; short rows are filled with ``""``."""
        return _rows(self.text(name), f"results/{name}", delimiter)

    def state(self, name: str) -> str:
        """Return the text of ``state/name``, which a service exported after the turn."""
        path = _need(self._root / "evidence", "state", name)
        return _decode(_read(path, f"state/{name}", TEXT_LIMIT), f"state/{name}")

    def state_json(self, name: str) -> Any:
        """Return the parsed ``state/name``."""
        return _parse(self.state(name), f"state/{name}")

    @cached_property
    def transcript(self) -> list[dict[str, Any]]:
        """The normalised records of the whole conversation; empty when there is no transcript."""
        path = _find(self._root / "evidence", "transcript.jsonl")
        if path is None:
            return []
        text = _read(path, "transcript.jsonl", 4 * BYTES_LIMIT).decode("utf-8", "replace")
        records = [_record(line) for line in text.split("\n") if line.strip()]
        return [record for record in records if record]

    @cached_property
    def tool_calls(self) -> list[dict[str, Any]]:
        """Every tool call of the agent in order, as ``{"name": …, "arguments": …}``."""
        return [
            {"name": block.get("name", ""), "arguments": block.get("arguments")}
            for message in self._messages("assistant")
            for block in _blocks(message)
            if block.get("type") == "toolCall"
        ]

    @cached_property
    def answer(self) -> str:
        """The text of the agent's last message that has any, stripped; empty when it said nothing."""
        for message in reversed(self._messages("assistant")):
            texts = [str(block.get("text", "")) for block in _blocks(message) if block.get("type") == "text"]
            if text := "\n".join(texts).strip():
                return text
        return ""

    def reference(self, name: str) -> Path:
        """Return the path of ``references/name``, a hidden file of the package."""
        return _need(self._root, "references", name)

    def reference_json(self, name: str) -> Any:
        """Return the parsed ``references/name``."""
        return _parse(_decode(self.reference(name).read_bytes(), f"references/{name}"), f"references/{name}")

    def award(self, fraction: float, why: str = "") -> None:
        """Give the running checkpoint a share of its weight, 0 to 1; the largest of several calls counts.

        ``why`` is the rationale in the report: say what is missing, for a human. The check then returns normally; a
        check that fails earns nothing whatever it awarded.
        """
        self._award(fraction, why)

    def violation(self, text: str) -> None:
        """Report that the executor tampered with grading: the attempt ends as ``integrity_violation``."""
        self._violation(text)

    def _messages(self, role: str) -> list[dict[str, Any]]:
        messages = [record.get("message") for record in self.transcript if record.get("type") == "message"]
        return [message for message in messages if isinstance(message, dict) and message.get("role") == role]


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _find(base: Path, name: str) -> Path | None:
    """Return the regular file ``base/name`` if no part of it is a link."""
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not parts or "\0" in name or ".." in parts or name.startswith("/"):
        return None
    path = base
    for number, part in enumerate(parts, 1):
        path = path / part
        try:
            mode = path.lstat().st_mode
        except (OSError, ValueError):
            return None
        if not (stat.S_ISREG(mode) if number == len(parts) else stat.S_ISDIR(mode)):
            return None
    return path


def _need(base: Path, folder: str, name: str) -> Path:
    path = _find(base / folder, name)
    if path is None:
        raise AssertionError(f"{folder}/{name} does not exist")
    return path


def _read(path: Path, label: str, limit: int) -> bytes:
    size = path.stat().st_size
    if size > limit:
        raise AssertionError(f"{label} has {size} bytes, more than the {limit} that are read")
    return path.read_bytes()


def _decode(data: bytes, label: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AssertionError(f"{label} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}") from None


def _parse(text: str, label: str) -> Any:
    def constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    def whole(digits: str) -> int:
        if len(digits) > INTEGER_DIGITS:
            raise ValueError(f"a number of {len(digits)} digits")
        return int(digits)

    def real(digits: str) -> float:
        value = float(digits)
        if not math.isfinite(value):
            raise ValueError(f"the number {digits[:30]} is out of range")
        return value

    try:
        return json.loads(text, parse_constant=constant, parse_int=whole, parse_float=real)
    except RecursionError:
        raise AssertionError(f"{label} is not valid JSON: nested too deeply") from None
    except ValueError as error:
        raise AssertionError(f"{label} is not valid JSON: {error}") from None


def _rows(text: str, label: str, delimiter: str) -> list[dict[str, str]]:
    csv.field_size_limit(CELL_LIMIT)
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if any(line)]
    except csv.Error as error:
        raise AssertionError(f"{label} is not a CSV table: {error}") from None
    if not lines:
        raise AssertionError(f"{label} is empty")
    header = [name.strip() for name in lines[0]]
    if len(set(header)) != len(header):
        raise AssertionError(f"{label} names a column twice: {', '.join(header)[:200]}")
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if len(line) > len(header):
            raise AssertionError(f"{label}: row {number} has {len(line)} cells, its header has {len(header)}")
        rows.append(dict(zip(header, line + [""] * (len(header) - len(line)), strict=True)))
    return rows
