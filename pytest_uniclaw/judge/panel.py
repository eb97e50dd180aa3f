"""A panel: several independent judgements of one case, and what a majority of them says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import TypeVar

from pytest_uniclaw.errors import GradingError
from pytest_uniclaw.judge.base import Assignment, Case, Judge
from pytest_uniclaw.judge.drift import NEW_DEDUCTION, new_deductions
from pytest_uniclaw.verdict import Assessment, CapJudgement, Judgement, State, Verdict, Votes, compute_verdict

NEAR = 0.05
"""How near to the threshold a score is doubtful."""
DISAGREEMENT = "disagreement:"
"""Prefix of the flags for lines on which the judges differ; the line's id follows."""
JUDGE_LOST = "judge_lost:"
"""Prefix of the flags for judges without a usable answer; the judge's tag follows."""

Line = TypeVar("Line", Judgement, CapJudgement)


@dataclass(frozen=True)
class PanelSupervisor:
    """Asks ``supervisor`` several times, each time afresh, and takes the median per checkpoint, the majority per cap.

    With ``escalate`` the first judgement stands alone unless its score is within ``NEAR`` of the threshold or it could
    not determine something.
    """

    supervisor: Judge
    judges: int = 3
    escalate: bool = False

    def __post_init__(self) -> None:
        """Refuse an even number of judges."""
        if self.judges < 1 or self.judges % 2 == 0:
            raise ValueError(f"a panel has an odd number of judges, not {self.judges}")

    @property
    def name(self) -> str:
        """The name of the supervisor that is asked."""
        return self.supervisor.name

    @property
    def version(self) -> str:
        """The supervisor's own, and the size of the panel."""
        return f"{self.supervisor.version}x{'auto' if self.escalate else ''}{self.judges}"

    @property
    def needs_model(self) -> bool:
        """As the supervisor that is asked."""
        return bool(getattr(self.supervisor, "needs_model", False))

    def assess(self, case: Case) -> Assessment:
        """Judge the whole rubric. See :meth:`judge`."""
        return self.judge(case, Assignment.whole(case.rubric))

    def judge(self, case: Case, assignment: Assignment) -> Assessment:
        """Judge what is assigned. Raises GradingError when more than half of the judges have no usable answer."""
        asked = [self._ask(case, assignment, 1)]
        if self.escalate and isinstance(asked[0], Assessment) and not is_doubtful(case, assignment, asked[0]):
            return asked[0]
        asked += [self._ask(case, assignment, number) for number in range(2, self.judges + 1)]
        given = [answer for answer in asked if isinstance(answer, Assessment)]
        if len(given) * 2 <= len(asked):
            raise next(answer for answer in asked if isinstance(answer, GradingError))
        lost = tuple(f"{JUDGE_LOST}j{n}" for n, answer in enumerate(asked, 1) if isinstance(answer, GradingError))
        found = combine(case, assignment, asked)
        return found.model_copy(update={"flags": (*found.flags, *lost, *new_deductions(case, found))})

    def _ask(self, case: Case, assignment: Assignment, number: int) -> Assessment | GradingError:
        try:
            return self.supervisor.judge(case, replace(assignment, tag=f"j{number}"))
        except GradingError as error:
            return error


def panel_of(supervisor: Judge, judges: str) -> Judge:
    """Return the supervisor for ``judges``: 1 itself, an odd number a panel, ``auto`` a panel of 3 where in doubt."""
    if judges == "1":
        return supervisor
    return PanelSupervisor(supervisor, 3, True) if judges == "auto" else PanelSupervisor(supervisor, int(judges))


def is_doubtful(case: Case, assignment: Assignment, assessment: Assessment) -> bool:
    """Whether the score is near the threshold, or cannot be computed for want of a judgement."""
    try:
        verdict = verdict_with(case, assignment, assessment)
    except GradingError:
        return True
    return abs(verdict.score - case.task.threshold) <= NEAR + 1e-9


def verdict_with(case: Case, assignment: Assignment, assessment: Assessment) -> Verdict:
    """Return the verdict that an assessment gives together with what checks have settled. Raises GradingError."""
    settled = assignment.settled
    whole = assessment.model_copy(
        update={
            "judgements": (*settled.judgements, *assessment.judgements), "caps": (*settled.caps, *assessment.caps),
            "fatal": (*settled.fatal, *assessment.fatal),
        }
    )  # fmt: skip
    return compute_verdict(
        case.rubric, whole, threshold=case.task.threshold, followups_left=case.followups_left, finished=case.finished
    )


def combine(case: Case, assignment: Assignment, asked: Sequence[Assessment | GradingError]) -> Assessment:
    """Return what the panel says. ``asked`` has an answer per judge, at least one of them an assessment."""
    votes: list[Votes] = []
    judgements = [_checkpoint(line.id, asked, votes) for line in assignment.checkpoints]
    caps = [_cap(cap.id, asked, votes) for cap in assignment.caps]
    given = [answer for answer in asked if isinstance(answer, Assessment)]
    hopes = [float(a.recoverable) if isinstance(a, Assessment) else None for a in asked]
    votes.append(Votes(kind="recoverable", id="", votes=tuple(hopes)))
    holistic = _holistic(asked, votes) if assignment.holistic else None
    recoverable = hopes.count(0.0) * 2 <= len(given)
    flags = [flag for answer in given for flag in answer.flags if not flag.startswith(NEW_DEDUCTION)]
    flags += [f"{DISAGREEMENT}{vote.id or vote.kind}" for vote in votes if not vote.unanimous]
    return Assessment(
        judgements=tuple(judgements), caps=tuple(caps), flags=tuple(dict.fromkeys(flags)),
        grader=f"{given[0].grader} judges:{len(asked)}", opinion=_middle(case, assignment, given).opinion,
        recoverable=recoverable, loss="" if recoverable else next(a.loss for a in given if not a.recoverable),
        holistic=holistic, judges=tuple(votes),
    )  # fmt: skip


def _checkpoint(identity: str, asked: Sequence[Assessment | GradingError], votes: list[Votes]) -> Judgement:
    """Take the median of the judges that could tell; of two in the middle the lower one."""
    lines = [_line(answer, lambda a: {j.checkpoint: j for j in a.judgements}, identity) for answer in asked]
    fractions = [line.fraction if line and line.state is not State.UNJUDGED else None for line in lines]
    votes.append(Votes(kind="checkpoint", id=identity, votes=tuple(fractions)))
    known = [fraction for fraction in fractions if fraction is not None]
    if len(known) * 2 <= len(asked):
        return next(line for line in lines if line and line.state is State.UNJUDGED)
    middle = median_low(known)
    return next(line for line, fraction in zip(lines, fractions, strict=True) if line and fraction == middle)


def _cap(identity: str, asked: Sequence[Assessment | GradingError], votes: list[Votes]) -> CapJudgement:
    """Take what more than half of all judges say; where no answer has that many, the cap could not be judged."""
    lines = [_line(answer, lambda a: {j.cap: j for j in a.caps}, identity) for answer in asked]
    said = [None if line is None or line.triggered is None else float(line.triggered) for line in lines]
    votes.append(Votes(kind="cap", id=identity, votes=tuple(said)))
    for answer in (1.0, 0.0):
        if said.count(answer) * 2 > len(asked):
            return next(line for line, vote in zip(lines, said, strict=True) if line and vote == answer)
    return CapJudgement(cap=identity, triggered=None, rationale="the judges of the panel do not agree")


def _holistic(asked: Sequence[Assessment | GradingError], votes: list[Votes]) -> float | None:
    scores = [answer.holistic if isinstance(answer, Assessment) else None for answer in asked]
    votes.append(Votes(kind="holistic", id="", votes=tuple(scores)))
    known = [score for score in scores if score is not None]
    return median_low(known) if len(known) * 2 > len(asked) else None


def _line(
    answer: Assessment | GradingError, lines: Callable[[Assessment], dict[str, Line]], identity: str
) -> Line | None:
    return lines(answer).get(identity) if isinstance(answer, Assessment) else None


def _middle(case: Case, assignment: Assignment, given: Sequence[Assessment]) -> Assessment:
    """Return the assessment with the median score; one whose score cannot be computed ranks last."""
    ranked = sorted(given, key=lambda a: _score(case, assignment, a))
    return ranked[(len(ranked) - 1) // 2]


def _score(case: Case, assignment: Assignment, assessment: Assessment) -> float:
    try:
        return verdict_with(case, assignment, assessment).score
    except GradingError:
        return math.inf
