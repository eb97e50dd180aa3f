"""From judgements to a verdict: the arithmetic that no judge is trusted with (design invariant 2).

A supervisor says met / partial / unmet per checkpoint and triggered or not per cap. Weights, caps, total, threshold
and decision are computed here, so that a sentence planted in an artifact cannot move a number.
"""

from __future__ import annotations

import math
from collections import Counter
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

from pytest_uniclaw.errors import GradingError
from pytest_uniclaw.rubric import WEIGHT_TOLERANCE, Rubric

SCORE_DIGITS = 6
"""Scores are rounded to this many decimals, so that ten weights of 0.1 reach exactly 1."""


class Value(BaseModel):
    """Base of the frozen values that are stored as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class State(StrEnum):
    """What a supervisor may say of one checkpoint."""

    MET = "met"
    PARTIAL = "partial"
    UNMET = "unmet"
    UNJUDGED = "unjudged"


class Quote(Value):
    """A piece of evidence: a file of the evidence tree and the words found in it."""

    path: str
    text: str = ""


class Judgement(Value):
    """One checkpoint as the supervisor saw it. ``fraction`` is the share of the weight earned, 0 to 1."""

    checkpoint: str
    state: State
    fraction: float
    rationale: str = ""
    evidence: tuple[Quote, ...] = ()
    flags: tuple[str, ...] = ()


class CapJudgement(Value):
    """One cap as the supervisor saw it; ``triggered`` is None where it could not be judged."""

    cap: str
    triggered: bool | None
    rationale: str = ""
    flags: tuple[str, ...] = ()


class Assessment(Value):
    """Everything a supervisor says of one turn; carries no total and no verdict.

    ``fatal`` lists the reasons that make the attempt irrecoverable. ``flags`` are facts about the grading itself,
    such as ``grader_crash`` or ``integrity:…``. ``grader`` names the supervisor and its version.
    """

    judgements: tuple[Judgement, ...]
    caps: tuple[CapJudgement, ...] = ()
    fatal: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    grader: str = ""


class Decision(StrEnum):
    """What the verdict says."""

    PASS = "pass"
    FAIL = "fail"
    CONTINUE = "continue"


class AttemptState(StrEnum):
    """The coarse state of the attempt, as the paper's supervisor schema names it (Appendix C)."""

    IN_PROGRESS = "in_progress"
    INCOMPLETE = "incomplete"
    COMPLETE_AND_PASSED = "complete_and_passed"
    TERMINAL_FAILURE = "terminal_failure"


class CheckpointScore(Value):
    """One line of the score: ``earned`` = weight × fraction."""

    id: str
    name: str
    weight: float
    earned: float
    state: State
    rationale: str = ""
    flags: tuple[str, ...] = ()


class CapScore(Value):
    """One cap of the rubric and whether it holds the score down."""

    id: str
    value: float
    triggered: bool
    rationale: str = ""


class Verdict(Value):
    """The computed result of one turn. ``score`` = min(``total``, every triggered cap), all in 0 to 1."""

    decision: Decision
    attempt_state: AttemptState
    recoverable: bool
    score: float
    total: float
    threshold: float
    checkpoints: tuple[CheckpointScore, ...]
    caps: tuple[CapScore, ...] = ()
    fatal: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    grader: str = ""

    @property
    def first_miss(self) -> CheckpointScore | None:
        """The first checkpoint that did not earn its whole weight."""
        return next((c for c in self.checkpoints if c.state is not State.MET), None)


class Handoff(Value):
    """The only four fields that may leave the supervisor toward the user simulator."""

    verdict: Literal["pass", "fail", "continue"]
    attempt_state: Literal["in_progress", "incomplete", "complete_and_passed", "terminal_failure"]
    recoverable: bool
    score: float


def compute_verdict(
    rubric: Rubric, assessment: Assessment, *, threshold: float, followups_left: int, finished: bool
) -> Verdict:
    """Turn an assessment into the verdict of one turn.

    ``finished`` says whether the executor finished the turn: an unfinished turn never passes. Raises
    :class:`GradingError` when a checkpoint is missing, doubled, unknown, unjudged or out of range,
    or when the weights do not sum to 1.
    """
    _refuse_weights(rubric)
    checkpoints = _score_checkpoints(rubric, assessment)
    caps = _score_caps(rubric, assessment)
    total = round(math.fsum(c.earned for c in checkpoints), SCORE_DIGITS)
    score = min([1.0, total, *(c.value for c in caps if c.triggered)])
    decision, state, recoverable = _decide(score, threshold, bool(assessment.fatal), followups_left, finished)
    return Verdict(
        decision=decision,
        attempt_state=state,
        recoverable=recoverable,
        score=score,
        total=total,
        threshold=threshold,
        checkpoints=checkpoints,
        caps=caps,
        fatal=assessment.fatal,
        flags=assessment.flags,
        grader=assessment.grader,
    )


def handoff_of(verdict: Verdict) -> Handoff:
    """Reduce a verdict to the four fields that may cross the firewall."""
    return Handoff(
        verdict=verdict.decision.value,
        attempt_state=verdict.attempt_state.value,
        recoverable=verdict.recoverable,
        score=verdict.score,
    )


def _decide(
    score: float, threshold: float, fatal: bool, followups_left: int, finished: bool
) -> tuple[Decision, AttemptState, bool]:
    if fatal:
        return Decision.FAIL, AttemptState.TERMINAL_FAILURE, False
    if not finished:
        return Decision.CONTINUE, AttemptState.IN_PROGRESS, followups_left > 0
    if score >= threshold:
        return Decision.PASS, AttemptState.COMPLETE_AND_PASSED, True
    return Decision.CONTINUE, AttemptState.INCOMPLETE, followups_left > 0


def _refuse_weights(rubric: Rubric) -> None:
    """Raise GradingError for weights that do not sum to 1: a score over them would be no share of anything."""
    if abs(rubric.weight_sum - 1.0) > WEIGHT_TOLERANCE:
        line = rubric.checkpoints[0].line if rubric.checkpoints else 0
        raise GradingError(
            f"eval_rule.md line {line}: the weights sum to {rubric.weight_sum:g}, not to 1.00; `uniclaw lint` says more"
        )


def _score_checkpoints(rubric: Rubric, assessment: Assessment) -> tuple[CheckpointScore, ...]:
    given = {j.checkpoint: j for j in assessment.judgements}
    doubled = [name for name, n in Counter(j.checkpoint for j in assessment.judgements).items() if n > 1]
    known = [c.id for c in rubric.checkpoints]
    strange = [name for name in given if name not in known]
    missing = [name for name in known if name not in given]
    for problem, names in (("judged twice", doubled), ("unknown to the rubric", strange), ("not judged", missing)):
        if names:
            raise GradingError(f"checkpoints {problem}: {', '.join(names)}")
    return tuple(_score_one(c.id, c.name, c.weight, given[c.id]) for c in rubric.checkpoints)


def _score_one(identity: str, name: str, weight: float, judgement: Judgement) -> CheckpointScore:
    fraction = judgement.fraction
    if judgement.state is State.UNJUDGED:
        raise GradingError(f"checkpoint {identity} could not be judged: {judgement.rationale or 'no reason given'}")
    if not (math.isfinite(fraction) and 0.0 <= fraction <= 1.0):
        raise GradingError(f"checkpoint {identity}: fraction {fraction!r} is not within 0 and 1")
    expected = {State.MET: fraction == 1.0, State.UNMET: fraction == 0.0, State.PARTIAL: 0.0 < fraction < 1.0}
    if not expected[judgement.state]:
        raise GradingError(f"checkpoint {identity}: {judgement.state.value} contradicts fraction {fraction}")
    return CheckpointScore(
        id=identity,
        name=name,
        weight=weight,
        earned=round(weight * fraction, SCORE_DIGITS),
        state=judgement.state,
        rationale=judgement.rationale,
        flags=judgement.flags,
    )


def _score_caps(rubric: Rubric, assessment: Assessment) -> tuple[CapScore, ...]:
    given = {j.cap: j for j in assessment.caps}
    strange = [name for name in given if name not in {c.id for c in rubric.caps}]
    if strange:
        raise GradingError(f"caps unknown to the rubric: {', '.join(strange)}")
    scores = []
    for cap in rubric.caps:
        judgement = given.get(cap.id)
        if judgement is not None and judgement.triggered is None:
            raise GradingError(f"cap {cap.id} could not be judged: {judgement.rationale or 'no reason given'}")
        triggered = bool(judgement and judgement.triggered)
        scores.append(
            CapScore(
                id=cap.id, value=cap.value, triggered=triggered, rationale=judgement.rationale if judgement else ""
            )
        )
    return tuple(scores)
