"""How an attempt ends: the status table of the design, section 5, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.verdict import Decision


class Status(StrEnum):
    """The status of an attempt; the members stand in order of precedence."""

    PRE_EXEC_FAILED = "pre_exec_failed"
    INFRA_ERROR = "infra_error"
    RATE_LIMIT = "rate_limit"
    INTEGRITY_VIOLATION = "integrity_violation"
    UNJUDGED = "unjudged"
    SIMULATOR_ERROR = "simulator_error"
    PASS = "pass"
    FAIL = "fail"
    GLOBAL_TIMEOUT = "global_timeout"
    BUDGET_EXHAUSTED = "budget_exhausted"
    EXECUTOR_INCOMPLETE = "executor_incomplete"


INFRA_STATUSES = frozenset(
    {Status.PRE_EXEC_FAILED, Status.INFRA_ERROR, Status.RATE_LIMIT, Status.UNJUDGED, Status.SIMULATOR_ERROR}
)
"""Statuses that leave the denominator; coverage shows them."""

PARTIAL_STATUSES = frozenset({Status.GLOBAL_TIMEOUT, Status.BUDGET_EXHAUSTED})
"""Statuses that may become a partial (xfailed) outcome."""


Protocol = Literal["strict", "paper"]
"""Whose arithmetic holds: this project's, or the published one (docs/reproducibility.md)."""

PAPER_STATUSES = frozenset({Status.PASS, Status.FAIL, Status.GLOBAL_TIMEOUT, Status.BUDGET_EXHAUSTED})
"""The denominator of the published figures; an executor that finished no turn is not in it."""


def is_judged(status: Status, protocol: str = "strict") -> bool:
    """Say whether an attempt is in the denominator of PR and AS."""
    return status in PAPER_STATUSES if protocol == "paper" else status not in INFRA_STATUSES


@dataclass(frozen=True)
class AttemptFacts:
    """What the status is decided from.

    ``finished_any`` says that the executor finished at least one turn, ``decision`` is that of the last verdict, and
    ``blocked`` is the one infra status that stopped the attempt, if any. ``promoted`` says that the best score of any
    judged turn reached the threshold under the paper's protocol, which makes a pass of what ran out of budget.
    """

    blocked: Status | None = None
    integrity_violated: bool = False
    decision: Decision | None = None
    global_timeout: bool = False
    finished_any: bool = False
    promoted: bool = False


def decide_status(facts: AttemptFacts) -> Status:
    """Return the first row of the table that holds."""
    if facts.blocked in {Status.PRE_EXEC_FAILED, Status.INFRA_ERROR, Status.RATE_LIMIT}:
        return facts.blocked
    if facts.integrity_violated:
        return Status.INTEGRITY_VIOLATION
    if facts.blocked is not None:
        return facts.blocked
    if facts.decision is Decision.PASS:
        return Status.PASS
    if facts.decision is Decision.FAIL:
        return Status.FAIL
    if not facts.global_timeout and not facts.finished_any:
        return Status.EXECUTOR_INCOMPLETE
    if facts.promoted:
        return Status.PASS
    return Status.GLOBAL_TIMEOUT if facts.global_timeout else Status.BUDGET_EXHAUSTED


class Outcome(StrEnum):
    """What pytest is told."""

    PASSED = "passed"
    FAILED = "failed"
    XFAILED = "xfailed"
    INFRA = "infra"


@dataclass(frozen=True)
class PartialPolicy:
    """When an attempt that did not pass counts as partial: ``xfail`` from ``floor`` on, or never."""

    mode: Literal["xfail", "fail"] = "xfail"
    floor: float = 0.5

    @classmethod
    def parse(cls, text: str) -> PartialPolicy:
        """Read ``xfail``, ``xfail:0.6`` or ``fail``. Raises :class:`SettingsError`."""
        mode, _, floor = text.partition(":")
        try:
            value = float(floor) if floor else cls.floor
        except ValueError:
            value = -1.0
        if mode == "fail" and not floor:
            return cls(mode="fail")
        if mode == "xfail" and 0.0 < value <= 1.0:
            return cls(mode="xfail", floor=value)
        raise SettingsError(f"--partial={text}: expected 'fail', 'xfail' or 'xfail:FLOOR' with 0 < FLOOR <= 1")


def outcome_of(status: Status, score: float, policy: PartialPolicy) -> Outcome:
    """Map a status and the attempt's score to the pytest outcome (design section 5)."""
    if status in INFRA_STATUSES:
        return Outcome.INFRA
    if status is Status.PASS:
        return Outcome.PASSED
    if status in PARTIAL_STATUSES and policy.mode == "xfail" and score >= policy.floor:
        return Outcome.XFAILED
    return Outcome.FAILED
