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
HOLISTIC = "holistic_score"
"""Flag: the total is the judge's own figure, for a rubric that gives a formula and no weights."""


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
    """A piece of evidence: a file and the words found in it, or a region (left, top, right, bottom) of an image.

    With neither it says that the file or folder was searched, or ran as a check.
    """

    path: str
    text: str = ""
    region: tuple[float, ...] = ()


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
    evidence: tuple[Quote, ...] = ()
    flags: tuple[str, ...] = ()


class Opinion(Value):
    """A judge's own decision, as the paper's supervisor states it (Appendix C): kept, and used for no number.

    ``score`` and ``confidence`` are within 0 and 1. ``attempt_state`` is one of :class:`AttemptState`, or upstream's
    ``complete_but_failed``.
    """

    verdict: Literal["pass", "fail", "continue"]
    attempt_state: Literal[
        "in_progress", "incomplete", "complete_but_failed", "complete_and_passed", "terminal_failure"
    ]
    recoverable: bool
    score: float
    confidence: float
    rationale: str
    missing_artifacts: tuple[str, ...] = ()
    guidance_tags: tuple[str, ...] = ()


class Votes(Value):
    """How a panel voted on one question, a vote per judge in their order.

    A vote is a checkpoint's fraction, or 1 (yes) or 0 (no) for a cap and for ``recoverable``; None is no answer.
    """

    kind: Literal["checkpoint", "cap", "recoverable", "holistic"]
    id: str
    votes: tuple[float | None, ...]

    @property
    def unanimous(self) -> bool:
        """Whether every judge gave the same answer."""
        return len(set(self.votes)) == 1


class Assessment(Value):
    """Everything a supervisor says of one turn; carries no total and no verdict.

    ``fatal`` lists the reasons that make the attempt irrecoverable. ``recoverable`` False says, with verified evidence
    and the reason in ``loss``, that no further message could help; it counts below the threshold only. ``holistic`` is
    a judge's figure, 0 to 1, for a rubric without weights. ``flags`` are facts about the grading itself, such as
    ``grader_crash`` or ``integrity:…``. ``grader`` names the supervisor and its version.
    """

    judgements: tuple[Judgement, ...]
    caps: tuple[CapJudgement, ...] = ()
    fatal: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    grader: str = ""
    opinion: Opinion | None = None
    recoverable: bool = True
    loss: str = ""
    holistic: float | None = None
    judges: tuple[Votes, ...] = ()


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
    evidence: tuple[Quote, ...] = ()
    flags: tuple[str, ...] = ()


class CapScore(Value):
    """One cap of the rubric and whether it holds the score down."""

    id: str
    value: float
    triggered: bool
    rationale: str = ""
    evidence: tuple[Quote, ...] = ()


class Verdict(Value):
    """The computed result of one turn. ``score`` = min(``total``, every triggered cap), all in 0 to 1.

    ``drift`` is the judge's own score less this one, None where there is no ``opinion``.
    """

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
    opinion: Opinion | None = None
    drift: float | None = None
    judges: tuple[Votes, ...] = ()

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
    :class:`GradingError` when a checkpoint is missing, doubled, unknown, unjudged or out of range, when a cap is, when
    the weights do not sum to 1, or when a rubric without weights has no holistic score.
    """
    checkpoints = _score_checkpoints(rubric, assessment)
    caps = _score_caps(rubric, assessment)
    total = _total(rubric, assessment, checkpoints)
    score = min([1.0, total, *(c.value for c in caps if c.triggered)])
    decision, state, recoverable = _decide(score, threshold, assessment, followups_left, finished)
    lost = (assessment.loss or "the supervisor gave no reason",) if decision is Decision.FAIL else ()
    opinion = assessment.opinion
    return Verdict(
        decision=decision,
        attempt_state=state,
        recoverable=recoverable,
        score=score,
        total=total,
        threshold=threshold,
        checkpoints=checkpoints,
        caps=caps,
        fatal=assessment.fatal or lost,
        flags=assessment.flags if rubric.checkpoints else (*assessment.flags, HOLISTIC),
        grader=assessment.grader,
        opinion=opinion,
        drift=round(opinion.score - score, SCORE_DIGITS) if opinion else None,
        judges=assessment.judges,
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
    score: float, threshold: float, assessment: Assessment, followups_left: int, finished: bool
) -> tuple[Decision, AttemptState, bool]:
    if assessment.fatal or (score < threshold and not assessment.recoverable):
        return Decision.FAIL, AttemptState.TERMINAL_FAILURE, False
    if not finished:
        return Decision.CONTINUE, AttemptState.IN_PROGRESS, followups_left > 0
    if score >= threshold:
        return Decision.PASS, AttemptState.COMPLETE_AND_PASSED, True
    working = assessment.opinion is not None and assessment.opinion.attempt_state == "in_progress"
    return Decision.CONTINUE, AttemptState.IN_PROGRESS if working else AttemptState.INCOMPLETE, followups_left > 0


def _total(rubric: Rubric, assessment: Assessment, checkpoints: tuple[CheckpointScore, ...]) -> float:
    """Sum what was earned; a rubric that gives a formula and no weights has the judge's own figure instead."""
    holistic = assessment.holistic
    if not rubric.formula_scored or rubric.checkpoints:
        if holistic is not None:
            raise GradingError("a holistic score was given for a rubric with weighted checkpoints")
        _refuse_weights(rubric)
        return round(math.fsum(c.earned for c in checkpoints), SCORE_DIGITS)
    if holistic is None:
        raise GradingError("eval_rule.md is scored by a formula, and the supervisor gave no holistic score")
    if not (math.isfinite(holistic) and 0.0 <= holistic <= 1.0):
        raise GradingError(f"the holistic score {holistic!r} is not within 0 and 1")
    return round(holistic, SCORE_DIGITS)


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
        evidence=judgement.evidence,
        flags=judgement.flags,
    )


def _score_caps(rubric: Rubric, assessment: Assessment) -> tuple[CapScore, ...]:
    given = {j.cap: j for j in assessment.caps}
    strange = [name for name in given if name not in {c.id for c in rubric.caps}]
    doubled = [name for name, n in Counter(j.cap for j in assessment.caps).items() if n > 1]
    for problem, names in (("unknown to the rubric", strange), ("judged twice", doubled)):
        if names:
            raise GradingError(f"caps {problem}: {', '.join(names)}")
    scores = []
    for cap in rubric.caps:
        judgement = given.get(cap.id)
        if judgement is not None and judgement.triggered is None:
            raise GradingError(f"cap {cap.id} could not be judged: {judgement.rationale or 'no reason given'}")
        if judgement is None:
            scores.append(CapScore(id=cap.id, value=cap.value, triggered=False))
        else:
            scores.append(
                CapScore(
                    id=cap.id, value=cap.value, triggered=bool(judgement.triggered), rationale=judgement.rationale,
                    evidence=judgement.evidence,
                )
            )  # fmt: skip
    return tuple(scores)
