"""Outcomes as pytest exceptions: passed returns, failed, xfailed and infra raise."""

from __future__ import annotations

import pytest

from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.report.record import ItemRecord, clean_text
from pytest_uniclaw.status import Outcome

RECORD = pytest.StashKey[ItemRecord]()
"""Where an item keeps its record until its report is made."""


class TaskFailed(pytest.fail.Exception):  # type: ignore[name-defined, misc]
    """The executor did not do the task."""

    __module__ = "builtins"


class TaskInfra(pytest.fail.Exception):  # type: ignore[name-defined, misc]
    """The attempt could not be judged for reasons outside the executor."""

    __module__ = "builtins"


def raise_outcome(record: ItemRecord) -> None:
    """Raise what tells pytest the outcome of a record; a pass returns.

    A partial raises the exception class itself: :func:`pytest.xfail` does nothing under ``--runxfail``.
    """
    if record.outcome == Outcome.XFAILED.value:
        raise pytest.xfail.Exception(clean_text(record.reason), pytrace=False)
    if record.outcome == Outcome.INFRA.value:
        raise TaskInfra(clean_text(record.reason), pytrace=False)
    if record.outcome == Outcome.FAILED.value:
        raise TaskFailed(clean_text(detail_of(record)), pytrace=False)


def detail_of(record: ItemRecord) -> str:
    """Return the failure text: the one-line reason, then the checkpoints that cost something."""
    lines = [record.reason]
    for line in record.checkpoints:
        if line.earned < line.weight:
            lines.append(f"  {line.id} {line.name}: {line.earned:.2f} of {line.weight:.2f}  {line.rationale[:200]}")
    lines += [f"  cap {cap.id} at {cap.value:.2f}: {cap.rationale[:200]}" for cap in record.caps if cap.triggered]
    lines += [f"  fatal: {reason[:200]}" for reason in record.fatal]
    lines += [f"  see {record.directory}"] if record.directory else []
    return "\n".join(lines)


def clean_report(report: pytest.TestReport, redactor: Redactor) -> None:
    """Make every text that pytest itself put on a report valid UTF-8, and take secrets out of it.

    One lone surrogate would end the session; a traceback shows a secret where ``--showlocals`` is on.
    """

    def cleaned(text: str) -> str:
        return redactor.text(clean_text(text))

    report.sections = [(cleaned(title), cleaned(text)) for title, text in report.sections]
    if isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        report.longrepr = (path, line, cleaned(reason))
    elif report.longrepr is not None and (text := str(report.longrepr)) != cleaned(text):
        report.longrepr = cleaned(text)


def shape_report(item_record: ItemRecord, item: pytest.Item, report: pytest.TestReport) -> None:
    """Attach the record to a report and flat properties to its item; an infra outcome becomes an error.

    JUnit and html tell an error from a failure by the phase: what the executor could not have caused belongs to
    the set-up phase.
    """
    report.uniclaw = item_record.dump()  # type: ignore[attr-defined]
    item.user_properties.extend(properties_of(item_record))
    if item_record.outcome == Outcome.INFRA.value and report.failed:
        report.when = "setup"


def properties_of(record: ItemRecord) -> list[tuple[str, object]]:
    """Return flat JUnit properties; values are JSON primitives."""
    data = record.dump()
    names = ("score", "status", "threshold", "capability", "language", "agent", "model", "number", "directory")
    rows: list[tuple[str, object]] = [(name, data[name]) for name in names]
    rows += [("turns", len(record.turns)), ("executor_seconds", record.seconds), ("replayed", record.replayed)]
    rows += [(f"checkpoint.{c['id']}", c["earned"]) for c in data["checkpoints"]]
    return rows + [(f"tokens.{name}", value) for name, value in data["tokens"].items() if value is not None]
