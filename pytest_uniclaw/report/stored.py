"""Read the attempts of a stored run back as item records."""

from __future__ import annotations

from pathlib import Path

from pytest_uniclaw.report.record import ItemRecord, record_of_attempt
from pytest_uniclaw.status import PartialPolicy
from pytest_uniclaw.store import attempts_of


def records_of_run(run: Path, policy: PartialPolicy | None = None) -> list[ItemRecord]:
    """Return one record per item of a run, of its newest finished attempt, in path order."""
    chosen = policy or PartialPolicy()
    return [record_of_attempt(attempt, chosen, directory, replayed=False) for directory, attempt in attempts_of(run)]
