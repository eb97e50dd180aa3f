"""From a submission to an assessment: what a judge says counts as far as its evidence can be verified.

A line whose evidence cannot be verified is asked for once more, and is then ``unjudged``: code gives no points for it
and takes none.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_uniclaw.judge.base import Assignment
from pytest_uniclaw.judge.desk import Desk
from pytest_uniclaw.judge.injection import Suspicion
from pytest_uniclaw.judge.strictjson import Rejected
from pytest_uniclaw.judge.submission import Backed, CapLine, CheckpointLine, Submission, read_submission
from pytest_uniclaw.judge.verify import INJECTION_EVIDENCE, UNVERIFIED, UNVERIFIED_QUOTE, Checked, Verifier, spoken_on
from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.rubric import Cap, Checkpoint
from pytest_uniclaw.verdict import Assessment, CapJudgement, Judgement, State

REASON_CHARACTERS = 2000
"""How much of a judge's reason is stored."""
UNVERIFIED_LOSS = "unverified:recoverable"
"""Flag: a judge gave the attempt up without evidence that could be verified; it is recoverable then."""
UNVERIFIED_HOLISTIC = "unverified:holistic"


class Examiner:
    """Accepts the submissions of one conversation: reads them strictly, verifies their evidence."""

    def __init__(self, assignment: Assignment, nonce: str, desk: Desk, suspicion: Suspicion) -> None:
        self._assignment, self._nonce, self._desk, self._suspicion = assignment, nonce, desk, suspicion
        self._spoken = spoken_on(desk)
        self._asked = False

    def accept(self, payload: Json) -> Assessment:
        """Return what a submission is worth. Raises Rejected, for evidence that cannot be verified only once."""
        submission = read_submission(payload, self._assignment, self._nonce)
        verifier = Verifier(self._desk, self._suspicion, self._spoken, claims_of(submission))
        assessment, problems = conclude(submission, self._assignment, verifier)
        if problems and not self._asked:
            self._asked = True
            raise Rejected(*problems, otherwise=assessment)
        return assessment


def claims_of(submission: Submission) -> list[Backed]:
    """Return everything in a submission that may cite evidence."""
    holistic = [submission.holistic] if submission.holistic else []
    return [*submission.checkpoints, *submission.caps, submission.recovery, *holistic]


def conclude(submission: Submission, assignment: Assignment, verifier: Verifier) -> tuple[Assessment, list[str]]:
    """Return the assessment, in the rubric's order, and what of its evidence to ask for again."""
    problems: list[str] = []
    checkpoints = {line.id: line for line in submission.checkpoints}
    judgements = [_checkpoint(c, checkpoints[c.id], verifier, problems) for c in assignment.checkpoints]
    lines = {line.id: line for line in submission.caps}
    caps = [_cap(cap, lines[cap.id], verifier, problems) for cap in assignment.caps]
    recoverable, flags = _recoverable(submission, verifier, problems)
    holistic, more = _holistic(submission, verifier, problems)
    return Assessment(
        judgements=tuple(judgements), caps=tuple(caps), flags=(*flags, *more), opinion=submission.decision.opinion,
        recoverable=recoverable, loss="" if recoverable else submission.recovery.reason[:REASON_CHARACTERS],
        holistic=holistic,
    ), problems  # fmt: skip


def _checkpoint(wanted: Checkpoint, line: CheckpointLine, verifier: Verifier, problems: list[str]) -> Judgement:
    checked = verifier.check(line, f"{wanted.name} {wanted.text}")
    needed = line.state in ("met", "partial")
    _note(f"checkpoint {line.id}", line, checked, needed, problems)
    state, fraction, flags = _STATES[line.state], line.earned, checked.flags
    reason = line.reason[:REASON_CHARACTERS]
    if needed and not checked.proofs:
        said = f"no evidence for {line.state!r} could be verified ({_few(checked.problems)}); the judge: {reason}"
        flags += (UNVERIFIED, INJECTION_EVIDENCE) if checked.planted_only else (UNVERIFIED,)
        state = State.UNMET if checked.planted_only else State.UNJUDGED  # what the executor planted is its own doing
        fraction, reason = 0.0, said[:REASON_CHARACTERS]
    return Judgement(
        checkpoint=line.id, state=state, fraction=fraction, rationale=reason, evidence=checked.proofs, flags=flags
    )


def _cap(wanted: Cap, line: CapLine, verifier: Verifier, problems: list[str]) -> CapJudgement:
    checked = verifier.check(line, wanted.condition)
    _note(f"cap {line.id}", line, checked, bool(line.triggered), problems)
    triggered, reason, flags = line.triggered, line.reason[:REASON_CHARACTERS], checked.flags
    if triggered and not checked.proofs and not checked.planted_only:
        triggered, flags = None, (*flags, UNVERIFIED)
        reason = f"none of its evidence could be verified ({_few(checked.problems)}); the judge: {reason}"
    return CapJudgement(
        cap=line.id, triggered=triggered, rationale=reason[:REASON_CHARACTERS], evidence=checked.proofs, flags=flags
    )


def _recoverable(submission: Submission, verifier: Verifier, problems: list[str]) -> tuple[bool, tuple[str, ...]]:
    recovery = submission.recovery
    if recovery.recoverable:
        return True, ()
    checked = verifier.check(recovery)
    _note("recovery", recovery, checked, True, problems)
    return (False, ()) if checked.proofs else (True, (UNVERIFIED_LOSS,))


def _holistic(submission: Submission, verifier: Verifier, problems: list[str]) -> tuple[float | None, tuple[str, ...]]:
    holistic = submission.holistic
    if holistic is None or not holistic.score:
        return (holistic.score if holistic else None), ()
    checked = verifier.check(holistic)
    _note("holistic", holistic, checked, True, problems)
    return (holistic.score, checked.flags) if checked.proofs else (None, (UNVERIFIED_HOLISTIC,))


def _note(name: str, claim: Backed, checked: Checked, needed: bool, problems: list[str]) -> None:
    """Add what to ask again: a claim without proof, or an accusation with a quote that stands nowhere."""
    if needed and not checked.proofs:
        problems.append(f"{name}: nothing that you cite proves it: {_few(checked.problems)}")
    elif not needed and UNVERIFIED_QUOTE in checked.flags:
        problems.append(f"{name}: {_few(checked.problems)}")


def _few(problems: Sequence[str], most: int = 5) -> str:
    more = f"; and {len(problems) - most} more" if len(problems) > most else ""
    return "; ".join(problems[:most]) + more


_STATES = {
    "met": State.MET, "partial": State.PARTIAL, "unmet": State.UNMET, "cannot_determine": State.UNJUDGED,
}  # fmt: skip
