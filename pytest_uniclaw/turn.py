"""One turn of the loop: run the executor, freeze and collect, judge, and write the next user message."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pytest_uniclaw.agents.base import Finish
from pytest_uniclaw.attempt import Ending, FollowUp, Turn
from pytest_uniclaw.budget import billed_seconds
from pytest_uniclaw.errors import GradingError, InfraError, SandboxLost, TaskError
from pytest_uniclaw.executor import Executor, TurnEvidence
from pytest_uniclaw.judge.base import Case, Visible
from pytest_uniclaw.judge.firewall import fingerprints_of
from pytest_uniclaw.judge.rewriter import rewrite
from pytest_uniclaw.models.grants import CallClass, classify_turn
from pytest_uniclaw.package import Reader, load_rubric
from pytest_uniclaw.sandbox.base import Completed, TurnLimits
from pytest_uniclaw.status import Status
from pytest_uniclaw.task import PublicView
from pytest_uniclaw.verdict import Verdict, compute_verdict, handoff_of

Sink = Callable[[dict[str, Any]], None]
"""Receives progress events: JSON primitives with at least ``what``."""
Stop = SandboxLost | InfraError | OSError
"""What can break off a turn: the sandbox, the engine or gateway, the host."""
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

    def block(self, status: Status, why: object) -> None:
        """Stop with an infrastructure status."""
        self.blocked, self.problem = status, str(why)

    def note(self, *flags: str) -> None:
        """Add flags, each once."""
        self.flags.extend(flag for flag in flags if flag not in self.flags)


def play_turn(course: Course, executor: Executor, number: int, message: str, sink: Sink) -> tuple[Verdict, str]:
    """Run, collect and judge one turn; it is appended to the course as far as it came.

    Returns the verdict and the agent's answer. Raises what provisioning, sandbox, provider and grader raise.
    """
    calls_before = len(executor.calls())
    turn, seen, stop = _run(course, executor, number, message)
    course.turns.append(turn)
    if not turn.finished and not isinstance(stop, InfraError | OSError):
        _raise_infra(classify_turn(executor.calls()[calls_before:]))
    if stop is not None:
        raise stop
    sink({"what": "judging", "turn": number})
    verdict = _judge(course, executor, turn, seen)
    course.turns[-1] = turn.model_copy(update={"verdict": verdict, "handoff": handoff_of(verdict)})
    sink({"what": "verdict", "turn": number, "verdict": verdict.decision.value, "score": verdict.score})
    return verdict, seen.answer


def next_message(course: Course, executor: Executor, view: PublicView, answer: str, messages: list[str]) -> str:
    """Ask the user simulator for the next message, pass it through the rewriter and note it on the last turn."""
    turn = course.turns[-1]
    if turn.handoff is None:
        raise ValueError("a turn without verdict has no handoff")
    visible = Visible(answer, tuple(f.path for f in turn.manifest.files), turn.number)
    candidate = executor.spec.simulator.reply(view, visible, turn.handoff, messages[1:])
    hidden = fingerprints_of(executor.task)
    rewritten = rewrite(candidate, hidden=hidden, public=view.prompt, language=view.language, history=messages[1:])
    follow_up = FollowUp(candidate=candidate, message=rewritten.message, decisions=rewritten.decisions)
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
    finish = executor.spec.agent.finish(completed, seen.records)
    if not finish.finished and stop is None:
        finish = _with_memory(course, executor, finish)
    turn = Turn(
        number=number, message=message, started=started, seconds=round(billed, 3),
        wall_seconds=round(time.monotonic() - began, 3), ending=completed.ending, exit_code=completed.exit_code,
        finished=finish.finished and stop is None, reason=str(stop) if stop else finish.reason,
        directory=f"turns/{number}", manifest=seen.manifest, waited_seconds=round(waited, 3),
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


def _raise_infra(found: CallClass | None) -> None:
    """An unfinished turn whose last model call failed for the provider's reasons is infrastructure (invariant 3)."""
    if found is not None:
        kind = "rate_limit" if found in {CallClass.RATE_LIMIT, CallClass.QUOTA} else "infra"
        raise InfraError(f"the model provider failed the executor: {found.value}", kind=kind)


def _judge(course: Course, executor: Executor, turn: Turn, seen: TurnEvidence) -> Verdict:
    spec = executor.spec
    try:
        rubric = load_rubric(executor.task, Reader.SUPERVISOR)
    except TaskError as error:
        raise GradingError(f"the rubric cannot be read: {error}") from None
    case = Case(executor.task, rubric, seen.evidence, turn.number, course.verdicts, spec.provider, spec.owner)
    assessment = spec.supervisor.assess(case)
    course.note(*assessment.flags)
    left = spec.budget.turns - turn.number
    return compute_verdict(
        rubric, assessment, threshold=spec.task.threshold, followups_left=left, finished=turn.finished
    )
