"""The truth table of statuses (design section 5), row by row and as a whole, and the outcomes that follow."""

from __future__ import annotations

import itertools

import pytest

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.status import (
    INFRA_STATUSES,
    PARTIAL_STATUSES,
    AttemptFacts,
    Outcome,
    PartialPolicy,
    Status,
    decide_status,
    is_judged,
    outcome_of,
)  # fmt: skip
from pytest_uniclaw.verdict import Decision

FIRST_INFRA = (Status.PRE_EXEC_FAILED, Status.INFRA_ERROR, Status.RATE_LIMIT)
LATE_INFRA = (Status.UNJUDGED, Status.SIMULATOR_ERROR)
BLOCKS = (None, *FIRST_INFRA, *LATE_INFRA)
DECISIONS = (None, *Decision)


def by_the_table(facts: AttemptFacts) -> Status:
    """The rows of the design in its order, each written as it stands there."""
    rows = [
        *((facts.blocked is status, status) for status in FIRST_INFRA),
        (facts.integrity_violated, Status.INTEGRITY_VIOLATION),
        *((facts.blocked is status, status) for status in LATE_INFRA),
        (facts.decision is Decision.PASS, Status.PASS),
        (facts.decision is Decision.FAIL, Status.FAIL),
        (facts.global_timeout, Status.GLOBAL_TIMEOUT),
        (facts.finished_any, Status.BUDGET_EXHAUSTED),
        (True, Status.EXECUTOR_INCOMPLETE),
    ]
    return next(status for holds, status in rows if holds)


@pytest.mark.parametrize("blocked", BLOCKS)
@pytest.mark.parametrize("decision", DECISIONS)
def test_the_whole_truth_table(blocked: Status | None, decision: Decision | None) -> None:
    for violated, timeout, finished in itertools.product([False, True], repeat=3):
        facts = AttemptFacts(blocked, violated, decision, timeout, finished)
        assert decide_status(facts) is by_the_table(facts), facts


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        (AttemptFacts(blocked=Status.PRE_EXEC_FAILED, integrity_violated=True), Status.PRE_EXEC_FAILED),
        (AttemptFacts(blocked=Status.INFRA_ERROR, decision=Decision.PASS), Status.INFRA_ERROR),
        (AttemptFacts(blocked=Status.RATE_LIMIT, finished_any=True), Status.RATE_LIMIT),
        (AttemptFacts(blocked=Status.UNJUDGED, integrity_violated=True), Status.INTEGRITY_VIOLATION),
        (AttemptFacts(integrity_violated=True, decision=Decision.PASS), Status.INTEGRITY_VIOLATION),
        (AttemptFacts(blocked=Status.UNJUDGED, decision=Decision.CONTINUE), Status.UNJUDGED),
        (AttemptFacts(blocked=Status.SIMULATOR_ERROR, finished_any=True), Status.SIMULATOR_ERROR),
        (AttemptFacts(decision=Decision.PASS, global_timeout=True, finished_any=True), Status.PASS),
        (AttemptFacts(decision=Decision.FAIL, global_timeout=True), Status.FAIL),
        (AttemptFacts(decision=Decision.CONTINUE, global_timeout=True), Status.GLOBAL_TIMEOUT),
        (AttemptFacts(decision=Decision.CONTINUE, finished_any=True), Status.BUDGET_EXHAUSTED),
        (AttemptFacts(decision=Decision.CONTINUE), Status.EXECUTOR_INCOMPLETE),
        (AttemptFacts(), Status.EXECUTOR_INCOMPLETE),
        (AttemptFacts(decision=Decision.CONTINUE, finished_any=True, promoted=True), Status.PASS),
        (AttemptFacts(decision=Decision.CONTINUE, global_timeout=True, promoted=True), Status.PASS),
        (AttemptFacts(decision=Decision.FAIL, finished_any=True, promoted=True), Status.FAIL),
        (AttemptFacts(decision=Decision.CONTINUE, promoted=True), Status.EXECUTOR_INCOMPLETE),
    ],
)  # fmt: skip
def test_precedence_examples(facts: AttemptFacts, status: Status) -> None:
    assert decide_status(facts) is status


OUTCOMES = {
    Status.PRE_EXEC_FAILED: Outcome.INFRA, Status.INFRA_ERROR: Outcome.INFRA, Status.RATE_LIMIT: Outcome.INFRA,
    Status.INTEGRITY_VIOLATION: Outcome.FAILED, Status.UNJUDGED: Outcome.INFRA, Status.SIMULATOR_ERROR: Outcome.INFRA,
    Status.PASS: Outcome.PASSED, Status.FAIL: Outcome.FAILED, Status.GLOBAL_TIMEOUT: Outcome.XFAILED,
    Status.BUDGET_EXHAUSTED: Outcome.XFAILED, Status.EXECUTOR_INCOMPLETE: Outcome.FAILED,
}  # fmt: skip


@pytest.mark.parametrize("status", Status)
def test_outcomes_by_status(status: Status) -> None:
    assert outcome_of(status, 0.5, PartialPolicy()) is OUTCOMES[status]
    below = Outcome.FAILED if status in PARTIAL_STATUSES else OUTCOMES[status]
    assert outcome_of(status, 0.49, PartialPolicy()) is below
    assert outcome_of(status, 0.89, PartialPolicy(mode="fail")) is below


def test_denominators_of_the_two_protocols() -> None:
    strict = {status for status in Status if is_judged(status)}
    paper = {status for status in Status if is_judged(status, "paper")}
    assert strict == set(Status) - INFRA_STATUSES
    assert paper == {Status.PASS, Status.FAIL, Status.GLOBAL_TIMEOUT, Status.BUDGET_EXHAUSTED}


def test_every_status_is_in_one_class() -> None:
    judged = {Status.PASS, Status.FAIL, Status.INTEGRITY_VIOLATION, Status.EXECUTOR_INCOMPLETE}
    assert INFRA_STATUSES | PARTIAL_STATUSES | judged == set(Status)
    assert not INFRA_STATUSES & PARTIAL_STATUSES


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("xfail", PartialPolicy("xfail", 0.5)), ("xfail:0.7", PartialPolicy("xfail", 0.7)),
        ("xfail:1", PartialPolicy("xfail", 1.0)), ("fail", PartialPolicy("fail")),
    ],
)  # fmt: skip
def test_partial_policies(text: str, policy: PartialPolicy) -> None:
    assert PartialPolicy.parse(text) == policy


@pytest.mark.parametrize(
    "text", ["", "fail:0.5", "xfail:0", "xfail:1.1", "xfail:-1", "xfail:nan", "xfail:inf", "xfail:x", "skip", "XFAIL"]
)
def test_wrong_partial_policies_are_usage_errors(text: str) -> None:
    with pytest.raises(SettingsError, match="--partial="):
        PartialPolicy.parse(text)
