"""Turn the course of an attempt into its record, and write it where people and upstream's readers look for it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from pytest_uniclaw.attempt import Attempt, Turn, Usage, best_score
from pytest_uniclaw.errors import InfraError
from pytest_uniclaw.models.client import Gateway
from pytest_uniclaw.models.grants import Call
from pytest_uniclaw.report.upstream import write_upstream
from pytest_uniclaw.spec import AttemptSpec, digests
from pytest_uniclaw.status import AttemptFacts, Status, decide_status
from pytest_uniclaw.store import save_attempt
from pytest_uniclaw.turn import Course
from pytest_uniclaw.verdict import Decision, Verdict

COUNTERS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def record_attempt(spec: AttemptSpec, course: Course, *, started: datetime, wall: float, tries: int) -> Attempt:
    """Decide the status and write the attempt's files; the record is returned even when the disk refuses them."""
    attempt = _attempt(spec, course, started, wall, tries)
    try:
        save_attempt(spec.directory, attempt)
        write_upstream(spec.directory, attempt)
    except OSError as error:
        return attempt.model_copy(update={"flags": (*attempt.flags, f"not_stored:{error.strerror}")})
    return attempt


def usage_by_role(calls: Iterable[Call]) -> tuple[Usage, ...]:
    """Add up model calls per role; a counter that any call does not know is unknown (None) in the sum."""
    roles: dict[str, list[Call]] = {}
    for call in calls:
        roles.setdefault(call.role, []).append(call)
    return tuple(_usage(role, rows) for role, rows in sorted(roles.items()))


def _usage(role: str, calls: list[Call]) -> Usage:
    sums = {name: _sum([getattr(call, name) for call in calls]) for name in COUNTERS}
    return Usage(role=role, calls=len(calls), cost_usd=_cost(calls), **sums)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _cost(calls: list[Call]) -> float | None:
    known = [call.cost_usd for call in calls if call.cost_usd is not None]
    return sum(known) if len(known) == len(calls) else None


def _attempt(spec: AttemptSpec, course: Course, started: datetime, wall: float, tries: int) -> Attempt:
    turns = tuple(course.turns)
    last = course.verdicts[-1] if course.verdicts else None
    status = decide_status(
        AttemptFacts(
            blocked=course.blocked,
            integrity_violated=any(flag.startswith("integrity:") for flag in course.flags),
            decision=last.decision if last else None,
            global_timeout=course.global_timeout,
            finished_any=any(t.finished for t in turns),
        )
    )
    best = best_score(turns, finished=True)
    score = 0.0 if best is None or status is Status.INTEGRITY_VIOLATION else best
    calls, known, flags = _calls(spec), _digests(spec), list(course.flags)
    flags += [flag for flag, value in (("usage_unknown", calls), ("digests_unknown", known)) if value is None]
    return Attempt(
        attempt_id=spec.attempt_id, task_id=spec.task.task_id, category=spec.task.category,
        capability=spec.task.capability, language=spec.task.language, agent=spec.reference or spec.agent.name,
        model=spec.model.label if spec.model else "", number=spec.number, status=status, score=score,
        threshold=spec.task.threshold, reason=_reason(status, score, course, last, turns),
        started=started.isoformat(timespec="seconds"), ended=datetime.now(UTC).isoformat(timespec="seconds"),
        turns=turns, last_score=last.score if last else None, unfinished_best=best_score(turns, finished=False),
        executor_seconds=round(course.spent, 3), wall_seconds=round(wall, 3), tries=tries,
        usage=usage_by_role(calls or ()), flags=tuple(flags), digests=known or {},
        limits={"memory": str(spec.memory), "user": spec.user, "network": spec.network, "sandbox": spec.provider.name},
    )  # fmt: skip


def _calls(spec: AttemptSpec) -> list[Call] | None:
    """Return the attempt's model calls, None when the gateway is gone."""
    try:
        return Gateway(spec.gateway).calls(spec.attempt_id) if spec.gateway else []
    except InfraError:
        return None


def _digests(spec: AttemptSpec) -> dict[str, str] | None:
    """Return what a stored attempt must equal to be replayed, None when the engine is gone: it is never replayed."""
    try:
        return digests(spec)
    except (InfraError, OSError):
        return None


def _reason(status: Status, score: float, course: Course, last: Verdict | None, turns: tuple[Turn, ...]) -> str:
    """Say in one line why the attempt ended as it did."""
    if course.blocked is not None:
        return f"{status.value}: {_line(course.problem)}"
    if status is Status.PASS:
        return f"score {score:.2f} after {_turns(turns)}"
    text = f"{status.value}: score {score:.2f}"
    if last is not None:
        text = f"{text} < {last.threshold:.2f}" if score < last.threshold else text
        text += f" after {_turns(turns)}"
        if last.decision is Decision.FAIL and last.fatal:
            return f"{text}; fatal: {_line(last.fatal[0])}"
        if miss := last.first_miss:
            text += f"; first miss {miss.id} {_line(miss.name)}: {_line(miss.rationale) or miss.state.value}"
    unfinished = next((t.reason for t in reversed(turns) if not t.finished and t.reason), "")
    return f"{text}; {_line(course.problem or unfinished)}" if course.problem or unfinished else text


def _turns(turns: tuple[Turn, ...]) -> str:
    return "1 turn" if len(turns) == 1 else f"{len(turns)} turns"


def _line(text: str) -> str:
    first = " ".join(text.split())
    return first if len(first) <= 160 else first[:159] + "…"
