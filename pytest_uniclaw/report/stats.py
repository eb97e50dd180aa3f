"""Pass rate, average score and coverage, overall and per group (paper section 4: PR and AS)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_uniclaw.report.record import NOT_RUN, SKIPPED, ItemRecord
from pytest_uniclaw.status import Outcome, Status


@dataclass(frozen=True)
class Summary:
    """Figures of a group of items.

    ``selected`` counts every item that was asked for, also the ones that the session did not come to (``not_run``);
    ``judged`` those in the denominator. ``pass_rate`` and
    ``average_score`` are over judged items, None when there is none. ``upstream_pass_rate`` leaves out
    ``executor_incomplete`` as upstream does: beside ours it shows the survivorship bias.
    """

    name: str
    selected: int
    judged: int
    passed: int
    partial: int
    infra: int
    skipped: int
    not_run: int
    pass_rate: float | None
    average_score: float | None
    upstream_pass_rate: float | None

    @property
    def coverage(self) -> float:
        """Share of the selected items that were judged, 0 to 1."""
        return self.judged / self.selected if self.selected else 0.0


def summarise(name: str, records: Sequence[ItemRecord]) -> Summary:
    """Return the figures of a group, which has a record for every selected item."""
    judged = [r for r in records if r.judged]
    passed = [r for r in judged if r.status == Status.PASS.value]
    finished = [r for r in judged if r.status != Status.EXECUTOR_INCOMPLETE.value]
    return Summary(
        name=name, selected=len(records), judged=len(judged), passed=len(passed),
        partial=sum(r.outcome == Outcome.XFAILED.value for r in records),
        infra=sum(r.outcome == Outcome.INFRA.value for r in records),
        skipped=sum(r.status == SKIPPED for r in records), not_run=sum(r.status == NOT_RUN for r in records),
        pass_rate=len(passed) / len(judged) if judged else None,
        average_score=math.fsum(r.score or 0.0 for r in judged) / len(judged) if judged else None,
        upstream_pass_rate=len(passed) / len(finished) if finished else None,
    )  # fmt: skip


def group_by(records: Sequence[ItemRecord], key: Callable[[ItemRecord], str]) -> list[Summary]:
    """Return one summary per key, in the key's order."""
    groups: dict[str, list[ItemRecord]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return [summarise(name, group) for name, group in sorted(groups.items())]


def rate_rows(records: Sequence[ItemRecord], between: str) -> list[Summary]:
    """Return the rows of the table of rates: one per executor and capability, ``between`` these two, and ``all``."""
    groups = group_by(records, lambda r: f"{f'{r.agent} {r.model}'.strip()}{between}{r.capability}")
    return [*groups, summarise("all", records)]


def names_of(records: Sequence[ItemRecord], *, repeated: bool = False) -> list[str]:
    """Name each record's executor as item ids do: ``agent``, ``agent-model`` of several models, ``[k]`` of repeats.

    ``repeated`` says that there are repeats though none of the records is a second one.
    """
    models: dict[str, set[str]] = {}
    for record in records:
        models.setdefault(record.agent, set()).update({record.model} - {""})
    numbered = repeated or any(record.number > 1 for record in records)
    return [
        record.agent
        + (f"-{record.model}" if record.model and len(models[record.agent]) > 1 else "")
        + (f"[{record.number}]" if numbered else "")
        for record in records
    ]


def headline(summary: Summary) -> str:
    """Return the one line a session ends with: ``3/10 passed, 2 partial, coverage 10/10``."""
    parts = [f"{summary.passed}/{summary.selected} passed"]
    if summary.partial:
        parts.append(f"{summary.partial} partial")
    if summary.infra:
        parts.append(f"{summary.infra} infra")
    if summary.skipped:
        parts.append(f"{summary.skipped} skipped")
    if summary.not_run:
        parts.append(f"{summary.not_run} not run")
    parts.append(f"coverage {summary.judged}/{summary.selected}")
    return ", ".join(parts)
