"""Judge stored evidence again, without running an agent: another supervisor's word on the same attempts.

The dialogue stays as it was, so a regraded attempt has the turns of its original; only judgements, and what follows
from them, are new. Evidence is read where it lies and copied nowhere.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pytest_uniclaw.attempt import Attempt, Turn, Usage
from pytest_uniclaw.errors import GradingError, InfraError, SandboxLost
from pytest_uniclaw.judge.base import Case, Evidence, Supervisor
from pytest_uniclaw.judge.checks import INTEGRITY
from pytest_uniclaw.models.client import Gateway, GatewayAddress
from pytest_uniclaw.package import Reader, load_rubric
from pytest_uniclaw.record import judged_fields, usage_by_role
from pytest_uniclaw.report.upstream import write_upstream
from pytest_uniclaw.roles import RoleModels
from pytest_uniclaw.sandbox.base import Owner, SandboxProvider
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import save_attempt
from pytest_uniclaw.task import Task
from pytest_uniclaw.turn import CANNOT_ANSWER, SANDBOX_LOST, Course
from pytest_uniclaw.verdict import compute_verdict, handoff_of

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
    regraded = _record(course, regrading, attempt, task.threshold)
    save_attempt(directory, regraded)
    write_upstream(directory, regraded)
    return regraded


def _judge_turns(
    course: Course, regrading: Regrading, task: Task, stored: Path, attempt: Attempt, directory: Path
) -> None:
    try:
        rubric = load_rubric(task, Reader.SUPERVISOR)
        lost = any(flag.startswith(SANDBOX_LOST) for flag in attempt.flags)
        for turn in attempt.turns:
            course.turns.append(_moved(turn, stored, directory))
            if turn.verdict is None and lost:
                break  # it was broken off, and what was saved of it is nothing to judge
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
    except (GradingError, *CANNOT_ANSWER) as error:
        course.block(Status.UNJUDGED, error)
    except InfraError as error:
        course.block(Status.RATE_LIMIT if error.kind == "rate_limit" else Status.INFRA_ERROR, error)
    except SandboxLost as error:
        course.block(Status.INFRA_ERROR, f"the grading sandbox was lost: {error}")
    except OSError as error:
        course.block(Status.INFRA_ERROR, f"the host failed: {error}")


def _roles(regrading: Regrading, task: Task, attempt: Attempt, directory: Path) -> RoleModels | None:
    if regrading.gateway is None:
        return None
    return RoleModels(regrading.gateway, attempt.attempt_id, directory, task.task_id, regrading.secrets)


def _moved(turn: Turn, stored: Path, directory: Path) -> Turn:
    """Return a turn whose folder is named from the new record's place; what was judged of it is left out."""
    place = os.path.relpath(stored / turn.directory, directory)
    return turn.model_copy(update={"directory": place, "verdict": None, "handoff": None})


def _record(course: Course, regrading: Regrading, attempt: Attempt, threshold: float) -> Attempt:
    grader = f"{regrading.supervisor.name}@{regrading.supervisor.version}"
    return attempt.model_copy(
        update={
            **judged_fields(course, attempt.protocol, threshold),
            "flags": tuple(dict.fromkeys((*_flags_of_run(attempt), *course.flags))),
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            "digests": attempt.digests | {"supervisor": grader}, "cassettes": (),
            "usage": (*[used for used in attempt.usage if used.role != "supervisor"], *_used(regrading, attempt)),
        }
    )  # fmt: skip


def _flags_of_run(attempt: Attempt) -> list[str]:
    """Return the flags that another judge changes nothing of; tampering is found anew, also where no verdict has it."""
    judged = {flag for turn in attempt.turns if turn.verdict for flag in turn.verdict.flags}
    return [flag for flag in attempt.flags if flag not in judged and not flag.startswith(INTEGRITY)]


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
