"""Pass rate, average score and coverage, overall and per group (paper section 4: PR and AS)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_uniclaw.report.record import ItemRecord
from pytest_uniclaw.status import Outcome, Status


@dataclass(frozen=True)
class Summary:
    """Figures of a group of items.

    ``selected`` counts every item that was asked for, ``judged`` those in the denominator. ``pass_rate`` and
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
    pass_rate: float | None
    average_score: float | None
    upstream_pass_rate: float | None

    @property
    def coverage(self) -> float:
        """Share of the selected items that were judged, 0 to 1."""
        return self.judged / self.selected if self.selected else 0.0


def summarise(name: str, records: Sequence[ItemRecord], *, selected: int | None = None) -> Summary:
    """Return the figures of a group; ``selected`` is given when more items were asked for than reported."""
    judged = [r for r in records if r.judged]
    passed = [r for r in judged if r.status == Status.PASS.value]
    finished = [r for r in judged if r.status != Status.EXECUTOR_INCOMPLETE.value]
    return Summary(
        name=name, selected=max(selected or 0, len(records)), judged=len(judged), passed=len(passed),
        partial=sum(r.outcome == Outcome.XFAILED.value for r in records),
        infra=sum(r.outcome == Outcome.INFRA.value for r in records),
        skipped=sum(r.outcome == "skipped" for r in records),
        pass_rate=len(passed) / len(judged) if judged else None,
        average_score=math.fsum(r.score for r in judged) / len(judged) if judged else None,
        upstream_pass_rate=len(passed) / len(finished) if finished else None,
    )  # fmt: skip


def group_by(records: Sequence[ItemRecord], key: Callable[[ItemRecord], str]) -> list[Summary]:
    """Return one summary per key, in the key's order."""
    groups: dict[str, list[ItemRecord]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return [summarise(name, group) for name, group in sorted(groups.items())]


def headline(summary: Summary) -> str:
    """Return the one line a session ends with: ``3/10 passed, 2 partial, coverage 10/10``."""
    parts = [f"{summary.passed}/{summary.selected} passed"]
    if summary.partial:
        parts.append(f"{summary.partial} partial")
    if summary.infra:
        parts.append(f"{summary.infra} infra")
    if summary.skipped:
        parts.append(f"{summary.skipped} skipped")
    parts.append(f"coverage {summary.judged}/{summary.selected}")
    return ", ".join(parts)
