"""What a session may cost, from what equal attempts cost before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.store import all_attempts, run_names

RUNS_READ = 20
"""How many of the newest runs are looked at."""


@dataclass(frozen=True)
class Planned:
    """One attempt that is about to run."""

    task_id: str
    agent: str
    model: str


@dataclass(frozen=True)
class Estimate:
    """``usd`` is the sum over the ``known`` of ``planned`` attempts that have a precedent with a known cost."""

    usd: float
    known: int
    planned: int

    def __str__(self) -> str:
        unknown = self.planned - self.known
        more = f"; {unknown} without precedent not counted" if unknown else ""
        return f"about {self.usd:.2f} USD for {self.known} of {self.planned} attempts, by earlier runs{more}"


def estimate_cost(runs: Path, planned: Sequence[Planned]) -> Estimate | None:
    """Estimate from the newest runs: the mean of the same task, else of the same agent and model on any task.

    Returns None when no attempt has a precedent with a known cost.
    """
    exact: dict[Planned, list[float]] = defaultdict(list)
    alike: dict[tuple[str, str], list[float]] = defaultdict(list)
    for attempt in _earlier(runs):
        cost = cost_of(attempt)
        if cost is not None:
            exact[Planned(attempt.task_id, attempt.agent, attempt.model)].append(cost)
            alike[attempt.agent, attempt.model].append(cost)
    costs = [exact.get(one) or alike.get((one.agent, one.model)) for one in planned]
    known = [fmean(found) for found in costs if found]
    return Estimate(sum(known), len(known), len(planned)) if known else None


def cost_of(attempt: Attempt) -> float | None:
    """Return what all roles of an attempt cost in USD; None when nobody was asked, or one cost is unknown."""
    costs = [usage.cost_usd for usage in attempt.usage]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def _earlier(runs: Path) -> Iterable[Attempt]:
    for name in run_names(runs)[:RUNS_READ]:
        for _, attempt in all_attempts(runs / name):
            yield attempt
