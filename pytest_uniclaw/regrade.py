"""Judge stored evidence again, without running an agent: another supervisor's word on the same attempts.

The dialogue stays as it was, so a regraded attempt has the turns of its original; only judgements, and what follows
from them, are new. Evidence is read where it lies and copied nowhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pytest_uniclaw.attempt import Attempt, Turn, Usage, best_score
from pytest_uniclaw.errors import GradingError, InfraError, ModelRefused, SandboxLost, TaskError
from pytest_uniclaw.judge.base import Case, Evidence, Supervisor
from pytest_uniclaw.models.client import Gateway, GatewayAddress
from pytest_uniclaw.package import Reader, load_rubric
from pytest_uniclaw.record import best_of, reason_of, usage_by_role
from pytest_uniclaw.report.upstream import write_upstream
from pytest_uniclaw.roles import RoleModels
from pytest_uniclaw.sandbox.base import Owner, SandboxProvider
from pytest_uniclaw.status import AttemptFacts, Status, decide_status
from pytest_uniclaw.store import save_attempt
from pytest_uniclaw.task import Task
from pytest_uniclaw.turn import Course
from pytest_uniclaw.verdict import Decision, Verdict, compute_verdict, handoff_of

KEPT = frozenset({Status.PRE_EXEC_FAILED, Status.INFRA_ERROR, Status.RATE_LIMIT})
"""What no supervisor can mend: these attempts are carried over as they are."""


@dataclass(frozen=True)
class Regrading:
    """What a regrade is done with. ``run`` is its own run id, ``gateway`` None where no model is asked."""

    run: str
    supervisor: Supervisor
    provider: SandboxProvider
    gateway: GatewayAddress | None = None
    secrets: tuple[str, ...] = ()


def regrade_attempt(regrading: Regrading, task: Task, stored: Path, attempt: Attempt, directory: Path) -> Attempt:
    """Judge every turn of a stored attempt again and write the new record into ``directory``.

    What a supervisor cannot judge is recorded as ``unjudged``, and an engine or provider that fails as infrastructure,
    so that every attempt of the run stands in the new one. Raises OSError when the record cannot be written.
    """
    course = Course(global_timeout=attempt.status is Status.GLOBAL_TIMEOUT)
    if attempt.status in KEPT:
        course.block(attempt.status, attempt.problem or attempt.reason)
        course.turns = [_moved(turn, stored, directory) for turn in attempt.turns]
    else:
        _judge_turns(course, regrading, task, stored, attempt, directory)
    regraded = _record(course, regrading, attempt)
    save_attempt(directory, regraded)
    write_upstream(directory, regraded)
    return regraded


def _judge_turns(
    course: Course, regrading: Regrading, task: Task, stored: Path, attempt: Attempt, directory: Path
) -> None:
    try:
        rubric = load_rubric(task, Reader.SUPERVISOR)
        for turn in attempt.turns:
            course.turns.append(_moved(turn, stored, directory))
            left = max(0, task.followups + 1 - turn.number)
            case = Case(
                task, rubric, Evidence(stored / turn.directory / "evidence"), turn.number, course.verdicts,
                regrading.provider, Owner(regrading.run, "main", attempt.attempt_id), finished=turn.finished,
                followups_left=left, roles=_roles(regrading, task, attempt, directory),
            )  # fmt: skip
            assessment = regrading.supervisor.assess(case)
            course.note(*assessment.flags)
            verdict = compute_verdict(
                rubric, assessment, threshold=task.threshold, followups_left=left, finished=turn.finished
            )
            course.turns[-1] = course.turns[-1].model_copy(update={"verdict": verdict, "handoff": handoff_of(verdict)})
    except (GradingError, ModelRefused, TaskError) as error:
        course.block(Status.UNJUDGED, error)
    except InfraError as error:
        course.block(Status.RATE_LIMIT if error.kind == "rate_limit" else Status.INFRA_ERROR, error)
    except SandboxLost as error:
        course.block(Status.INFRA_ERROR, f"the grading sandbox was lost: {error}")


def _roles(regrading: Regrading, task: Task, attempt: Attempt, directory: Path) -> RoleModels | None:
    if regrading.gateway is None:
        return None
    return RoleModels(regrading.gateway, attempt.attempt_id, directory, task.task_id, regrading.secrets)


def _moved(turn: Turn, stored: Path, directory: Path) -> Turn:
    """Return a turn whose folder is named from the new record's place; what was judged of it is left out."""
    place = os.path.relpath(stored / turn.directory, directory)
    return turn.model_copy(update={"directory": place, "verdict": None, "handoff": None})


def _record(course: Course, regrading: Regrading, attempt: Attempt) -> Attempt:
    turns = tuple(course.turns)
    best = best_of(turns, attempt.protocol)
    status = decide_status(
        AttemptFacts(
            blocked=course.blocked, integrity_violated=any(flag.startswith("integrity:") for flag in course.flags),
            decision=_decision(course.verdicts), global_timeout=course.global_timeout,
            finished_any=any(t.finished for t in turns),
            promoted=attempt.protocol == "paper" and best is not None and best >= attempt.threshold,
        )
    )  # fmt: skip
    score = 0.0 if best is None or status is Status.INTEGRITY_VIOLATION else best
    last = course.verdicts[-1] if course.verdicts else None
    grader = f"{regrading.supervisor.name}@{regrading.supervisor.version}"
    return attempt.model_copy(
        update={
            "status": status, "score": score, "turns": turns, "last_score": last.score if last else None,
            "unfinished_best": best_score(turns, finished=False), "problem": course.problem,
            "reason": reason_of(status, score, course, last, turns), "flags": tuple(course.flags),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "digests": attempt.digests | {"supervisor": grader}, "cassettes": (),
            "usage": (*[used for used in attempt.usage if used.role != "supervisor"], *_used(regrading, attempt)),
        }
    )  # fmt: skip


def _used(regrading: Regrading, attempt: Attempt) -> tuple[Usage, ...]:
    """Return what this supervisor's model was used for the attempt, nothing where that cannot be told."""
    if regrading.gateway is None:
        return ()
    gateway = Gateway(regrading.gateway)
    try:
        calls = gateway.calls(attempt.attempt_id, "supervisor")
        waited = gateway.activity(attempt.attempt_id, "supervisor").waited_seconds if calls else 0.0
    except InfraError:
        return ()
    return usage_by_role(calls, {"supervisor": waited})


def _decision(verdicts: tuple[Verdict, ...]) -> Decision | None:
    """Return the decision of the dialogue as a whole: a pass at any turn stands, although the dialogue went on."""
    if any(verdict.decision is Decision.PASS for verdict in verdicts):
        return Decision.PASS
    return verdicts[-1].decision if verdicts else None
