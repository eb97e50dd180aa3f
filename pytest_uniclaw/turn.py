"""One turn of the loop: run the executor, freeze and collect, judge, and write the next user message."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pytest_uniclaw.agents.base import Finish
from pytest_uniclaw.agents.guard import keep_crash
from pytest_uniclaw.attempt import Ending, FollowUp, Turn
from pytest_uniclaw.budget import billed_seconds
from pytest_uniclaw.errors import (
    AgentError,
    GradingError,
    InfraError,
    ModelRefused,
    SandboxLost,
    SettingsError,
    SimulatorError,
    TaskError,
    UniclawError,
)
from pytest_uniclaw.executor import Executor, TurnEvidence
from pytest_uniclaw.judge.base import Case, Scene, Visible
from pytest_uniclaw.judge.checks import INTEGRITY
from pytest_uniclaw.judge.firewall import fingerprints_of
from pytest_uniclaw.judge.gate import write_follow_up
from pytest_uniclaw.models.grants import Call, CallClass, infra_error, is_refusal, provider_failure
from pytest_uniclaw.package import Reader, load_rubric
from pytest_uniclaw.sandbox.base import Completed, TurnLimits
from pytest_uniclaw.status import Status
from pytest_uniclaw.task import PublicView
from pytest_uniclaw.verdict import Assessment, Verdict, compute_verdict, handoff_of

Sink = Callable[[dict[str, Any]], None]
"""Receives progress events: JSON primitives with at least ``what``."""
Stop = SandboxLost | InfraError | OSError
"""What can break off a turn: the sandbox, the engine or gateway, the host."""
CANNOT_ANSWER = (ModelRefused, TaskError, SettingsError)
"""What keeps a hidden role from its answer and is neither infrastructure nor the executor's: model, package, option."""
AGENT_ERROR = "agent_error"
"""Flag: the agent's adapter failed, not what lies under it."""
SPENT = "session_budget"
"""Flag: the session's money was used up."""
PROVOKED = "provider_refused_the_request"
"""Flag: the executor's last model call was refused, and the provider answered another question right after."""
ANSWERS_OTHERS = "provider_answers_others"
"""Flag: a provider that failed the executor for longer than the gateway tries answered another question right after."""
SANDBOX_LOST = "sandbox_lost:"
"""How a flag begins that says why the executor lost its sandbox; a turn that this broke off is judged by nobody."""
OUT_OF_MEMORY = "out_of_memory"
"""Flag: the kernel killed a process of the sandbox for memory during a turn that was not finished."""


@dataclass
class Course:
    """What has happened so far in one try of an attempt; the only mutable state of the loop.

    ``spent`` is billed executor time in seconds; ``problem`` says in one line what stopped the attempt early.
    """

    turns: list[Turn] = field(default_factory=list)
    spent: float = 0.0
    blocked: Status | None = None
    problem: str = ""
    flags: list[str] = field(default_factory=list)
    global_timeout: bool = False

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts so far."""
        return tuple(t.verdict for t in self.turns if t.verdict)

    @property
    def tampered(self) -> bool:
        """Whether a check found that the executor tampered with grading."""
        return any(flag.startswith(INTEGRITY) for flag in self.flags)

    def block(self, status: Status, why: object) -> None:
        """Stop with an infrastructure status."""
        self.blocked, self.problem = status, str(why)

    def note(self, *flags: str) -> None:
        """Add flags, each once."""
        self.flags.extend(flag for flag in flags if flag not in self.flags)


def play_turn(
    course: Course, executor: Executor, number: int, message: str, sink: Sink
) -> tuple[Verdict, TurnEvidence]:
    """Run, collect and judge one turn; it is appended to the course as far as it came.

    Returns the verdict and what it was given of. Raises what provisioning, sandbox, provider and grader raise.
    """
    calls_before = len(executor.calls())
    turn, seen, stop = _run(course, executor, number, message)
    course.turns.append(turn)
    if not isinstance(stop, InfraError | OSError):
        calls = executor.calls()[calls_before:]
        _refuse_misses(executor, calls)
        if not turn.finished:
            _raise_infra(course, executor, calls)
            if executor.relay_ended():
                raise InfraError("the relay to the model gateway ended")
    if stop is not None:
        raise stop
    of = executor.spec.budget.turns
    sink({"what": "judging", "turn": number, "of": of})
    verdict = _judge(course, executor, turn, seen)
    course.turns[-1] = turn.model_copy(update={"verdict": verdict, "handoff": handoff_of(verdict)})
    sink({"what": "verdict", "turn": number, "of": of, "verdict": verdict.decision.value, "score": verdict.score})
    return verdict, seen


def next_message(course: Course, executor: Executor, view: PublicView, seen: TurnEvidence, messages: list[str]) -> str:
    """Ask the user simulator for the next message, pass it through the rewriter and note it on the last turn.

    Raises SimulatorError and, for a simulator that asks a model, InfraError.
    """
    turn, spec = course.turns[-1], executor.spec
    if turn.handoff is None:
        raise ValueError("a turn without verdict has no handoff")
    visible = Visible(seen.answer, tuple(f.path for f in turn.manifest.files), turn.number)
    scene = Scene(
        view, visible, turn.handoff, tuple(messages[1:]), results=seen.evidence.results, transcript=seen.records,
        provider=spec.provider, owner=spec.owner, roles=executor.roles,
    )  # fmt: skip
    with _answering(executor, "user simulator", spec.simulator, SimulatorError):
        hidden = fingerprints_of(executor.task).protecting(spec.run.secrets(), view.prompt)
        text = write_follow_up(spec.simulator, scene, hidden)
    candidate, *revised = text.candidates
    follow_up = FollowUp(candidate=candidate, revised="".join(revised), message=text.message, decisions=text.decisions)
    course.turns[-1] = turn.model_copy(update={"follow_up": follow_up})
    return follow_up.message


def _run(course: Course, executor: Executor, number: int, message: str) -> tuple[Turn, TurnEvidence, Stop | None]:
    budget, began, waited = executor.spec.budget, time.monotonic(), executor.waited()
    started = datetime.now(UTC).isoformat(timespec="milliseconds")
    limits = TurnLimits(budget.turn_limit(course.spent), budget.silence_seconds, budget.max_waiting_seconds)
    completed, seen, stop = _run_and_collect(executor, number, message, limits)
    waited = _waited_since(executor, waited)
    billed = billed_seconds(completed.seconds, waited, budget)
    course.spent += billed
    course.note(*seen.flags)
    finish = Finish(False, str(stop))
    if stop is None:
        finish, stop = _finish(course, executor, completed, seen)
    turn = Turn(
        number=number, message=message, started=started, seconds=round(billed, 3),
        wall_seconds=round(time.monotonic() - began, 3), ending=completed.ending, exit_code=completed.exit_code,
        finished=finish.finished, reason=finish.reason, directory=f"turns/{number}", manifest=seen.manifest,
        waited_seconds=round(waited, 3),
    )  # fmt: skip
    return turn, seen, stop


def _run_and_collect(
    executor: Executor, number: int, message: str, limits: TurnLimits
) -> tuple[Completed, TurnEvidence, Stop | None]:
    """Run and collect; whatever breaks that off, the turn is recorded as far as it came."""
    began, completed = time.monotonic(), None
    try:
        completed = executor.turn(number, message, limits)
        return completed, executor.collect(number), None
    except (SandboxLost, InfraError, OSError) as error:
        lost = completed or Completed(Ending.LOST, None, b"", time.monotonic() - began)
        return lost, executor.salvage(number), error


def _finish(course: Course, executor: Executor, completed: Completed, seen: TurnEvidence) -> tuple[Finish, Stop | None]:
    """Ask the agent whether it finished; a declared error breaks the turn off.

    An adapter that fails at that has read what the executor wrote: the turn is unfinished, never infrastructure, or an
    executor could leave the denominator by what it writes (invariant 3).
    """
    try:
        finish = executor.agent.finish(completed, seen.records)
    except AgentError as error:
        course.note(AGENT_ERROR)
        return Finish(False, str(error)), None
    except (SandboxLost, InfraError, OSError) as error:
        return Finish(False, str(error)), error
    return finish if finish.finished else _with_memory(course, executor, finish), None


def _waited_since(executor: Executor, before: float) -> float:
    """Return the provider waiting of a turn; a gateway that is gone cannot tell, and its attempt is infra anyway."""
    try:
        return executor.waited() - before
    except InfraError:
        return 0.0


def _with_memory(course: Course, executor: Executor, finish: Finish) -> Finish:
    """Say when an unfinished turn ran out of memory: the kernel may have killed the agent and spared the sandbox."""
    try:
        if not executor.sandbox.vitals().out_of_memory:
            return finish
    except (InfraError, SandboxLost):
        return finish
    course.note(OUT_OF_MEMORY)
    return Finish(finish.finished, f"{finish.reason} (it ran out of {executor.spec.memory >> 20} MiB of memory)")


def _refuse_misses(executor: Executor, calls: Sequence[Call]) -> None:
    """A call that a cassette does not hold says nothing of the executor: whatever followed it is no result."""
    missed = next((call for call in calls if call.call_class is CallClass.REPLAY_MISS), None)
    if missed is not None and executor.spec.played is not None:
        why = missed.errors[-1].message if missed.errors else "no such call was recorded"
        raise InfraError(f"the cassette does not hold the executor's call {missed.n}: {why}")


def _raise_infra(course: Course, executor: Executor, calls: Sequence[Call]) -> None:
    """An unfinished turn whose last model call failed for the provider's reasons is infrastructure (invariant 3).

    An executor writes its requests, and so can have one refused. A provider that refused one and answers a plain
    question has nothing wrong with it: the turn is the executor's. One that was busy or broken may have recovered in
    the meantime: the attempt is tried again, and :func:`~pytest_uniclaw.loop.run_attempt` looks at all its tries.
    """
    failure = provider_failure(calls)
    if failure is None:
        return None
    if failure.call_class is not CallClass.SESSION_BUDGET and executor.provider_answers():
        if is_refusal(failure):
            return course.note(PROVOKED)
        course.note(ANSWERS_OTHERS)
    raise infra_error("executor", failure)


def _judge(course: Course, executor: Executor, turn: Turn, seen: TurnEvidence) -> Verdict:
    spec = executor.spec
    try:
        rubric = load_rubric(executor.task, Reader.SUPERVISOR)
    except TaskError as error:
        raise GradingError(f"the rubric cannot be read: {error}") from None
    left = spec.budget.turns - turn.number
    case = Case(
        executor.task, rubric, seen.evidence, turn.number, course.verdicts, spec.provider, spec.owner,
        finished=turn.finished, followups_left=left, roles=executor.roles, variant=executor.variant,
    )  # fmt: skip
    with _answering(executor, "supervisor", spec.supervisor, GradingError):
        assessment: object = spec.supervisor.assess(case)
    if not isinstance(assessment, Assessment):
        raise GradingError(f"the supervisor {spec.supervisor.name} gave a {type(assessment).__name__}, no Assessment")
    course.note(*assessment.flags)
    return compute_verdict(
        rubric, assessment, threshold=spec.task.threshold, followups_left=left, finished=turn.finished
    )


@contextmanager
def _answering(
    executor: Executor, role: str, part: object, failed: type[GradingError] | type[SimulatorError]
) -> Iterator[None]:
    """Run a hidden role, which may be a conftest's. What keeps it from its answer, a crash too, becomes ``failed``."""
    try:
        yield
    except CANNOT_ANSWER as error:
        raise failed(str(error)) from None
    except (UniclawError, OSError):
        raise
    except Exception as error:
        raise failed(f"the {role}: {keep_crash(part, error, executor.spec.directory, executor.redactor)}") from None
