"""The closed loop: executor, hidden supervisor, user simulator, rewriter (paper section 3; design section 2).

``run_attempt`` knows protocols only: no engine, no pytest. It returns an :class:`Attempt` for every way an attempt
can end; only a fault of this project itself escapes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime

from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.errors import (
    AgentError,
    GradingError,
    InfraError,
    PreExecError,
    SandboxLost,
    SettingsError,
    SimulatorError,
    TaskError,
    UniclawError,
)
from pytest_uniclaw.executor import Executor
from pytest_uniclaw.prompts import first_message
from pytest_uniclaw.provisioning import Unprovisioned, open_executor
from pytest_uniclaw.record import record_attempt
from pytest_uniclaw.spec import AttemptSpec
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import set_aside
from pytest_uniclaw.task import public_view
from pytest_uniclaw.turn import (
    AGENT_ERROR,
    ANSWERS_OTHERS,
    PROVOKED,
    SANDBOX_LOST,
    SPENT,
    Course,
    Sink,
    next_message,
    play_turn,
)
from pytest_uniclaw.verdict import Decision


def run_attempt(
    spec: AttemptSpec, sink: Sink = lambda event: None, executor: Executor | Unprovisioned | None = None
) -> Attempt:
    """Run one attempt to its end and record it in ``spec.directory``.

    ``executor`` is an already opened one (a fixture's); without it, and for every retry after an infrastructure
    error, a fresh one is opened here.
    """
    started, clock = datetime.now(UTC), time.monotonic()
    tries, others_answered = 0, True
    while True:
        tries += 1
        course = Course()
        _guarded(course, _opened(spec, executor), sink)
        others_answered &= ANSWERS_OTHERS in course.flags
        if not _may_end_otherwise(course) or tries > spec.run.infra_retries:
            break
        sink({"what": "retry", "why": course.problem})
        if isinstance(executor, Executor):
            executor.close()
        executor = None
        set_aside(spec.directory, tries)
    if others_answered and tries > 1:
        _charge(course)
    return record_attempt(spec, course, started=started, wall=time.monotonic() - clock, tries=tries)


def _may_end_otherwise(course: Course) -> bool:
    """Say whether another try is worth its cost: an adapter that failed would fail again, and spent money stays so."""
    return course.blocked in {Status.INFRA_ERROR, Status.RATE_LIMIT} and {AGENT_ERROR, SPENT}.isdisjoint(course.flags)


def _charge(course: Course) -> None:
    """Every try was broken off by a provider that answered others: what the executor asks is what breaks it."""
    course.blocked, course.problem = None, f"in every try {course.problem}, which answered others meanwhile"
    course.note(PROVOKED)


@contextmanager
def _opened(spec: AttemptSpec, executor: Executor | Unprovisioned | None) -> Iterator[Executor]:
    """Yield the given executor, raise what kept it from being provisioned, or open a fresh one."""
    if isinstance(executor, Unprovisioned):
        raise executor.error
    with nullcontext(executor) if executor else open_executor(spec) as opened:
        yield opened


def _guarded(course: Course, opened: AbstractContextManager[Executor], sink: Sink) -> None:
    """Play one try; every declared error becomes the status that the design gives it."""
    try:
        with opened as executor:
            _play_whole(course, executor, sink)
    except PreExecError as error:
        course.block(Status.PRE_EXEC_FAILED, error)
    except AgentError as error:
        course.block(Status.INFRA_ERROR, error)
        course.note(AGENT_ERROR)
    except InfraError as error:
        course.block(Status.RATE_LIMIT if error.kind == "rate_limit" else Status.INFRA_ERROR, error)
        course.note(*[SPENT] * (error.kind == "spent"))
    except (TaskError, SettingsError) as error:
        course.block(Status.PRE_EXEC_FAILED, error)
    except GradingError as error:
        course.block(Status.UNJUDGED, error)
    except SimulatorError as error:
        course.block(Status.SIMULATOR_ERROR, error)
    except SandboxLost as error:
        course.problem = str(error)
        course.note(f"{SANDBOX_LOST}{error.cause}")
    except OSError as error:
        course.block(Status.INFRA_ERROR, f"the host failed: {error}")


def _play_whole(course: Course, executor: Executor, sink: Sink) -> None:
    """Play, and end what runs beside the turns, also after a declared error; an interrupt does not wait for that."""
    try:
        _play(course, executor, sink)
    except (UniclawError, OSError):
        course.note(*executor.wrap_up())
        raise
    course.note(*executor.wrap_up())


def _play(course: Course, executor: Executor, sink: Sink) -> None:
    """Alternate executor turns and verdicts until the verdict is final, or turns or executor time run out."""
    budget = executor.spec.budget
    view = public_view(executor.task, executor.variant)
    messages = [first_message(view, executor.sandbox.paths, gui=executor.task.gui)]
    for number in range(1, budget.turns + 1):
        sink({"what": "turn", "turn": number, "of": budget.turns})
        verdict, seen = play_turn(course, executor, number, messages[-1], sink)
        course.global_timeout = budget.exhausted(course.spent)
        if verdict.decision is not Decision.CONTINUE or number == budget.turns or course.global_timeout:
            return
        if course.tampered:
            return
        messages.append(next_message(course, executor, view, seen, messages))
