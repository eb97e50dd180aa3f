"""Outcomes as pytest exceptions: passed returns, failed, xfailed and infra raise."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_uniclaw.agents.guard import ERROR_LOG
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.report.lines import cut, one_line, score_line
from pytest_uniclaw.report.record import SKIPPED, ItemRecord, clean_text
from pytest_uniclaw.status import Outcome

PROPERTIES = (
    "score", "status", "threshold", "capability", "language", "agent", "model", "supervisor", "simulator", "number",
    "protocol", "directory",
)  # fmt: skip
"""The fields of a record that are JUnit properties by their names."""
TOKEN_COUNTERS = ("input_tokens", "output_tokens")
ERROR_LINES = 15
"""How much of ``error.log`` a report shows."""

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
        raise TaskInfra(clean_text(detail_of(record)), pytrace=False)
    if record.outcome == Outcome.FAILED.value:
        raise TaskFailed(clean_text(detail_of(record)), pytrace=False)


def detail_of(record: ItemRecord) -> str:
    """Return all that is known of a non-pass: why, the checkpoints that cost something, where to look.

    Nothing is said twice: the one-line reason, which has the first of these, stays in the summary.
    """
    return "\n".join([*(_loss(record) if record.judged else _obstacle(record)), *_places(record)])


def _obstacle(record: ItemRecord) -> list[str]:
    message = record.detail or record.reason
    told = message if record.status == SKIPPED or message.startswith(record.status) else f"{record.status}: {message}"
    return told.splitlines()


def _loss(record: ItemRecord) -> list[str]:
    lines = [score_line(record.status, record.score or 0.0, record.threshold, len(record.turns))]
    lines += [f"  {line}" for line in record.detail.splitlines()]
    for line in record.checkpoints:
        if line.earned < line.weight:
            lines.append(f"  {line.id} {line.name}: {line.earned:.2f} of {line.weight:.2f}  {cut(line.rationale, 200)}")
    lines += [f"  cap {cap.id} at {cap.value:.2f}: {cut(cap.rationale, 200)}" for cap in record.caps if cap.triggered]
    return lines + [f"  fatal: {cut(reason, 200)}" for reason in record.fatal]


def _places(record: ItemRecord) -> list[str]:
    """Name the attempt's folder, and show the end of an adapter's traceback: it is nowhere else."""
    if not record.directory:
        return []
    lines = [f"  see {record.directory}"]
    log = Path(record.directory, ERROR_LOG)
    if record.outcome == Outcome.INFRA.value and log.is_file():
        tail = log.read_text("utf-8", "replace").splitlines()[-ERROR_LINES:]
        lines += [f"  {ERROR_LOG} ends:", *(f"    {line}" for line in tail)]
    return lines


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
    the set-up phase. Where one line is shown of a report (``short test summary``, JUnit's ``message``), it is the
    reason; a skip is located at the task, not at the line of ours that skips.
    """
    report.uniclaw = item_record.dump()  # type: ignore[attr-defined]
    item.user_properties.extend(properties_of(item_record))
    if item_record.outcome == Outcome.INFRA.value and report.failed:
        report.when = "setup"
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        crash.message = item_record.reason if item_record.directory else one_line(crash.message)
    if item_record.status == SKIPPED and isinstance(report.longrepr, tuple):
        report.longrepr = (str(item.path), 1, report.longrepr[2])


def properties_of(record: ItemRecord) -> list[tuple[str, object]]:
    """Return flat JUnit properties; values are JSON primitives. What is unknown, such as a score of infra, has none."""
    data = record.dump()
    rows: list[tuple[str, object]] = [(name, data[name]) for name in PROPERTIES if data[name] is not None]
    rows += [("turns", len(record.turns)), ("executor_seconds", record.seconds), ("replayed", record.replayed)]
    rows += [(f"checkpoint.{c['id']}", c["earned"]) for c in data["checkpoints"]]
    counts = [(f"tokens.{u.role}.{name}", getattr(u, name)) for u in record.usage for name in TOKEN_COUNTERS]
    return rows + [(name, value) for name, value in counts if value is not None]
