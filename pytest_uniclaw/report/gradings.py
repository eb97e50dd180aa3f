"""Gradings to compare: a stored run's, or a table that people filled in."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.report.agreement import Grade, Grading
from pytest_uniclaw.report.record import ItemRecord
from pytest_uniclaw.report.stored import records_of_run

KEYS = ("task_id", "agent", "model", "attempt")
"""What tells attempts apart; a table may leave out all but the first."""
WORDS = {
    **dict.fromkeys(("1", "true", "yes", "pass", "passed"), True),
    **dict.fromkeys(("0", "false", "no", "fail", "failed"), False),
}


def gradings_of(sources: Sequence[Path]) -> list[Grading]:
    """Return the gradings of runs and tables, keyed alike: by what the tables tell apart, else by all of ``KEYS``.

    Raises :class:`SettingsError` for what cannot be read, and for attempts that a table cannot tell apart.
    """
    tables = {source: _rows(source) for source in sources if source.is_file()}
    named = [key for key in KEYS if all(key in rows[0] for rows in tables.values())]
    return [
        _of_table(source, tables[source], named) if source in tables else _of_run(source, named) for source in sources
    ]


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise SettingsError(f"{path}: is no CSV table in UTF-8: {error}") from None
    rows = [{str(k).strip(): (v or "").strip() for k, v in row.items() if k is not None} for row in table]
    if not rows or not {"task_id", "passed"} <= set(rows[0]):
        raise SettingsError(
            f"{path}: expected a CSV table with the columns task_id and passed\n"
            f"  fix: give it a first line such as task_id,passed,score; {', '.join(KEYS[1:])} may follow"
        )
    return rows


def _of_table(path: Path, rows: list[dict[str, str]], keys: list[str]) -> Grading:
    found: dict[tuple[str, ...], Grade] = {}
    for line, row in enumerate(rows, start=2):
        key = tuple(row[name] for name in keys)
        if key in found:
            raise SettingsError(f"{path}:{line}: {' '.join(key)} is graded twice")
        found[key] = Grade(_passed(path, line, row["passed"]), _score(path, line, row.get("score", "")))
    return found


def _of_run(run: Path, keys: list[str]) -> Grading:
    found: dict[tuple[str, ...], Grade] = {}
    for record in records_of_run(run):
        if not record.judged or record.score is None:
            continue
        key = tuple(_key(record)[name] for name in keys)
        if key in found:
            raise SettingsError(
                f"{run}: several attempts are {' '.join(key)}\n"
                f"  fix: add the columns {', '.join(KEYS[1:])} to the table, so that each row names one attempt"
            )
        found[key] = Grade(record.status == "pass", record.score)
    return found


def _key(record: ItemRecord) -> dict[str, str]:
    return dict(zip(KEYS, (record.task_id, record.agent, record.model, str(record.number)), strict=True))


def _passed(path: Path, line: int, text: str) -> bool:
    if text.lower() not in WORDS:
        raise SettingsError(f"{path}:{line}: passed: {text!r} is neither pass nor fail")
    return WORDS[text.lower()]


def _score(path: Path, line: int, text: str) -> float | None:
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise SettingsError(f"{path}:{line}: score: {text!r} is no number from 0 to 1")
    return value
