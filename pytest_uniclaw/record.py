"""Turn the course of an attempt into its record, and write it where people and upstream's readers look for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal, get_origin

from pydantic import BaseModel

from pytest_uniclaw.attempt import Attempt, LaneUse, Turn, Usage, best_score
from pytest_uniclaw.errors import InfraError, SettingsError, UniclawError
from pytest_uniclaw.models.client import Gateway
from pytest_uniclaw.models.grants import Call, LaneReport, Role
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.report.lines import one_line, score_line
from pytest_uniclaw.report.upstream import write_upstream
from pytest_uniclaw.spec import AttemptSpec, digests
from pytest_uniclaw.status import INFRA_STATUSES, AttemptFacts, Status, decide_status
from pytest_uniclaw.store import save_attempt
from pytest_uniclaw.tape import Tape
from pytest_uniclaw.turn import Course
from pytest_uniclaw.verdict import Decision, Verdict

SHORT = 160
"""Characters of a rationale in the one-line reason."""
OWN = frozenset({
    "attempt_id", "task_id", "category", "capability", "language", "agent", "model", "started", "ended", "protocol",
    "digests", "limits", "directory", "role", "lane", "id", "checkpoint", "cap", "sha256",
})  # fmt: skip
"""Fields whose texts are names of the harness or of the task package, never what anyone said."""
COUNTERS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def record_attempt(spec: AttemptSpec, course: Course, *, started: datetime, wall: float, tries: int) -> Attempt:
    """Decide the status and write the attempt's files; the record is returned even when the disk refuses them."""
    redactor = Redactor(spec.run.secrets())
    attempt: Attempt = redacted(_attempt(spec, course, started, wall, tries), redactor)
    if spec.run.cassette_record and attempt.status not in INFRA_STATUSES:
        attempt = redacted(_with_cassette(spec, attempt), redactor)
    try:
        save_attempt(spec.directory, attempt)
        write_upstream(spec.directory, attempt)
    except OSError as error:
        return attempt.model_copy(update={"flags": (*attempt.flags, f"not_stored:{error.strerror}")})
    return attempt


def redacted(value: Any, redactor: Redactor) -> Any:
    """Blank secrets by value in a record: hidden roles quote what they have read (invariant 5).

    Enumerations, literals and the :data:`OWN` fields stay: a secret may be an ordinary word, and the record must be
    readable.
    """
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, tuple):
        return tuple(redacted(item, redactor) for item in value)
    if isinstance(value, dict):
        return {key: redacted(item, redactor) for key, item in value.items()}
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        names = [name for name, info in fields if name not in OWN and get_origin(info.annotation) is not Literal]
        return value.model_copy(update={name: redacted(getattr(value, name), redactor) for name in names})
    return value


def _with_cassette(spec: AttemptSpec, attempt: Attempt) -> Attempt:
    """Record the attempt's model calls as a cassette; what keeps that from being done is a flag, not a failure."""
    assert spec.run.cassette_record is not None
    try:
        spec.tape(spec.run.cassette_record).record(spec.directory)
    except (UniclawError, OSError) as error:
        return attempt.model_copy(update={"flags": (*attempt.flags, f"cassette_not_recorded:{one_line(str(error))}")})
    return attempt


def _lanes(spec: AttemptSpec) -> tuple[LaneUse, ...]:
    """Return what became of the cassette's lanes; none where providers answered, or when the gateway is gone."""
    if spec.played is None or spec.gateway is None:
        return ()
    tape = spec.played
    try:
        return tuple(_lane_use(tape, report) for report in Gateway(spec.gateway).replays(spec.attempt_id))
    except (InfraError, SettingsError):
        return ()


def _lane_use(tape: Tape, report: LaneReport) -> LaneUse:
    drift = tuple(f"{drifted.n} by {drifted.matched}: {drifted.difference}" for drifted in report.drift)
    role = report.lane.rpartition("/")[2]
    return LaneUse(
        lane=report.lane, entries=report.entries, unused=report.unused, drift=drift, misses=report.misses,
        outdated=tape.outdated(role),
    )  # fmt: skip


def usage_by_role(calls: Iterable[Call], waited: Mapping[Role, float]) -> tuple[Usage, ...]:
    """Add up model calls per role; a counter that any call does not know is unknown (None) in the sum.

    ``waited`` are the seconds that providers made each role wait.
    """
    roles: dict[Role, list[Call]] = {}
    for call in calls:
        roles.setdefault(call.role, []).append(call)
    return tuple(_usage(role, rows, waited.get(role, 0.0)) for role, rows in sorted(roles.items()))


def _usage(role: str, calls: list[Call], waited: float) -> Usage:
    sums = {name: _sum([getattr(call, name) for call in calls]) for name in COUNTERS}
    tries = sum(call.tries for call in calls)
    return Usage(
        role=role, calls=len(calls), cost_usd=_cost(calls), tries=tries, waited_seconds=round(waited, 3), **sums
    )


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _cost(calls: list[Call]) -> float | None:
    known = [call.cost_usd for call in calls if call.cost_usd is not None]
    return sum(known) if len(known) == len(calls) else None


def _attempt(spec: AttemptSpec, course: Course, started: datetime, wall: float, tries: int) -> Attempt:
    usage, known, flags = _used(spec), _digests(spec), list(course.flags)
    lanes = _lanes(spec)
    flags += [f"cassette_differs:{lane.lane}" for lane in lanes if not lane.exact]
    flags += [flag for flag, value in (("usage_unknown", usage), ("digests_unknown", known)) if value is None]
    return Attempt(
        attempt_id=spec.attempt_id, task_id=spec.task.task_id, category=spec.task.category,
        capability=spec.task.capability, language=spec.task.language, agent=spec.reference or spec.agent.name,
        model=spec.model.label if spec.model else "", number=spec.number,
        **judged_fields(course, spec.run.protocol, spec.task.threshold),
        started=started.isoformat(timespec="seconds"), ended=datetime.now(UTC).isoformat(timespec="seconds"),
        executor_seconds=round(course.spent, 3), wall_seconds=round(wall, 3), tries=tries,
        usage=usage or (), flags=tuple(flags), digests=known or {}, protocol=spec.run.protocol,
        cassettes=lanes,
        limits={"memory": str(spec.memory), "user": spec.user, "network": spec.network, "sandbox": spec.provider.name},
    )  # fmt: skip


def judged_fields(course: Course, protocol: str, threshold: float) -> dict[str, Any]:
    """Return the fields of an attempt that follow from its turns and their verdicts."""
    turns, verdicts = tuple(course.turns), course.verdicts
    last, best = verdicts[-1] if verdicts else None, best_of(turns, protocol)
    status = decide_status(
        AttemptFacts(
            blocked=course.blocked, integrity_violated=course.tampered, decision=_decision(verdicts),
            global_timeout=course.global_timeout, finished_any=any(t.finished for t in turns),
            promoted=protocol == "paper" and best is not None and best >= threshold,
        )
    )  # fmt: skip
    score = 0.0 if best is None or status is Status.INTEGRITY_VIOLATION else best
    return {
        "status": status, "score": score, "threshold": threshold, "turns": turns, "problem": _problem(course),
        "reason": _reason(status, score, course), "last_score": last.score if last else None,
        "unfinished_best": best_score(turns, finished=False),
    }  # fmt: skip


def _decision(verdicts: Sequence[Verdict]) -> Decision | None:
    """Return the decision of the dialogue. A pass stands, also where a stored dialogue went on after it."""
    if any(verdict.decision is Decision.PASS for verdict in verdicts):
        return Decision.PASS
    return verdicts[-1].decision if verdicts else None


def best_of(turns: tuple[Turn, ...], protocol: str) -> float | None:
    """Return the score that counts: the best of the finished turns; under the paper's protocol of all judged ones."""
    kinds = (True, False) if protocol == "paper" else (True,)
    scores = [best for finished in kinds if (best := best_score(turns, finished=finished)) is not None]
    return max(scores, default=None)


def _used(spec: AttemptSpec) -> tuple[Usage, ...] | None:
    """Return the attempt's model use, None when the gateway is gone."""
    if spec.gateway is None:
        return ()
    gateway = Gateway(spec.gateway)
    try:
        calls = gateway.calls(spec.attempt_id)
        roles = {call.role for call in calls}
        waited = {role: gateway.activity(spec.attempt_id, role).waited_seconds for role in roles}
    except InfraError:
        return None
    return usage_by_role(calls, waited)


def _digests(spec: AttemptSpec) -> dict[str, str] | None:
    """Return what a stored attempt must equal to be replayed, None when the engine is gone: it is never replayed."""
    try:
        return digests(spec)
    except (InfraError, OSError):
        return None


def _problem(course: Course) -> str:
    """Return the whole message of what broke the attempt off, else why its last unfinished turn is unfinished."""
    return course.problem or next((t.reason for t in reversed(course.turns) if not t.finished and t.reason), "")


def _reason(status: Status, score: float, course: Course) -> str:
    """Say in one line why the attempt ended as it did."""
    turns, problem = tuple(course.turns), one_line(_problem(course))
    last = course.verdicts[-1] if course.verdicts else None
    if course.blocked is not None:
        return f"{status.value}: {problem}"
    if status is Status.PASS:
        return f"score {score:.2f} after {len(turns)} {'turn' if len(turns) == 1 else 'turns'}"
    text = score_line(status.value, score, last.threshold if last else 0.0, len(turns))
    if (unfinished := best_score(turns, finished=False) or 0.0) > score:
        text += f" ({unfinished:.2f} in an unfinished turn, which does not count)"
    if last is not None:
        if last.decision is Decision.FAIL and last.fatal:
            return f"{text}; fatal: {one_line(last.fatal[0], SHORT)}"
        if miss := last.first_miss:
            rationale = one_line(miss.rationale, SHORT) or miss.state.value
            text += f"; first miss {miss.id} {one_line(miss.name, SHORT)}: {rationale}"
    return f"{text}; {problem}" if problem else text
