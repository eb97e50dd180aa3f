"""How an attempt ends when something under it breaks: without a container, by fakes at every seam of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.host_sandbox import HostSandbox
from task_package import build

from pytest_uniclaw.agents.base import Finish
from pytest_uniclaw.attempt import Attempt, Ending, FollowUp, Manifest, Turn
from pytest_uniclaw.budget import Budget
from pytest_uniclaw.errors import EngineError, InfraError, SandboxLost
from pytest_uniclaw.loop import run_attempt
from pytest_uniclaw.modelchoice import parse_model
from pytest_uniclaw.models.client import GatewayAddress
from pytest_uniclaw.privacy import PrivacyValues
from pytest_uniclaw.provisioning import provision
from pytest_uniclaw.record import record_attempt
from pytest_uniclaw.sandbox.base import CollectLimits, Completed, Vitals
from pytest_uniclaw.spec import AttemptSpec, RunContext
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import load_attempt
from pytest_uniclaw.task import load_task
from pytest_uniclaw.turn import Course
from pytest_uniclaw.verdict import Assessment, CapJudgement, Handoff, Judgement, State

Act = Callable[[], object]


def fail(error: Exception) -> Act:
    def act() -> object:
        raise error

    return act


def nothing() -> None:
    return


@dataclass
class FakeSandbox(HostSandbox):
    """Runs no command; ``on_collect`` happens while evidence is brought out."""

    root: Path
    on_collect: Act = nothing
    out_of_memory: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        super().__init__(self.root)

    def collect(self, folders: Mapping[str, Path], limits: CollectLimits) -> Mapping[str, Manifest]:
        for destination in folders.values():
            destination.mkdir(parents=True)
            (destination / "half").write_text("half")
        self.on_collect()
        return {folder: Manifest() for folder in folders}

    def vitals(self) -> Vitals:
        return Vitals(True, self.out_of_memory)


@dataclass
class Stage:
    """Everything that a test can let go wrong, and what happened."""

    root: Path
    on_open: Act = nothing
    on_prepare: Act = nothing
    on_turns: list[Act] = field(default_factory=list)
    on_digest: Act = nothing
    on_collect: Act = nothing
    out_of_memory: bool = False
    exit_code: int = 0
    sandboxes: list[FakeSandbox] = field(default_factory=list)

    name = "fake"
    version = "1"
    image = "fake"
    memory = 64 << 20
    trusted = True
    needs_model = False
    trusted_only = False

    @contextmanager
    def open(self, spec: object) -> Iterator[FakeSandbox]:
        self.on_open()
        number = len(self.sandboxes)
        assert all(sandbox.closed for sandbox in self.sandboxes), "a sandbox is still open"
        sandbox = FakeSandbox(self.root / f"sandbox{number}", self.on_collect, self.out_of_memory)
        self.sandboxes.append(sandbox)
        try:
            yield sandbox
        finally:
            sandbox.closed = True

    def digest(self, image: str) -> str:
        self.on_digest()
        return image

    def prepare(self, *arguments: object) -> None:
        self.on_prepare()

    def turn(self, sandbox: FakeSandbox, request: Any) -> Completed:
        request.log.write_text("x" * 100_000)
        if self.on_turns:
            self.on_turns.pop(0)()
        return Completed(Ending.EXITED, self.exit_code, b"", 1.0)

    def transcript_sources(self, sandbox: FakeSandbox) -> tuple[str, ...]:
        return ()

    def read_transcript(self, collected: Path) -> tuple[()]:
        return ()

    def finish(self, completed: Completed, records: object) -> Finish:
        return Finish(completed.exit_code == 0, "" if completed.exit_code == 0 else f"exit {completed.exit_code}")

    def assess(self, case: Any) -> Assessment:
        judgements = (Judgement(checkpoint=c.id, state=State.MET, fraction=1.0) for c in case.rubric.checkpoints)
        caps = (CapJudgement(cap=c.id, triggered=False) for c in case.rubric.caps)
        return Assessment(judgements=tuple(judgements), caps=tuple(caps))

    def reply(self, *arguments: object) -> str:
        return "Please go on."


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def spec_of(stage: Stage, *, retries: int = 0, gateway: GatewayAddress | None = None) -> AttemptSpec:
    package = build(stage.root / "repository", files={"script/model.yaml": "turns: [[{say: done}]]\n"})
    directory = stage.root / "runs" / "r" / "a1" / "fake" / "no-model" / "101_skill_usage" / "task" / "p1-000000"
    directory.mkdir(parents=True)
    fake: Any = stage
    return AttemptSpec(
        task=load_task(package.yaml), agent=fake, provider=fake, supervisor=fake, simulator=fake, budget=Budget(),
        run=RunContext(run="r", directory=stage.root / "runs" / "r", infra_retries=retries), directory=directory,
        model=parse_model("script") if gateway else None, gateway=gateway,
    )  # fmt: skip


def attempt_of(stage: Stage, *, retries: int = 0) -> Attempt:
    """Run an attempt as an item does: provisioned first, then played."""
    spec = spec_of(stage, retries=retries)
    with provision(spec) as executor:
        attempt = run_attempt(spec, executor=executor)
    assert all(sandbox.closed for sandbox in stage.sandboxes)
    assert load_attempt(spec.directory) == attempt
    return attempt


def test_nothing_breaks(stage: Stage) -> None:
    attempt = attempt_of(stage)
    assert (attempt.status, attempt.score, attempt.flags) == (Status.PASS, 1.0, ())


def test_a_sandbox_lost_before_the_executor_ran_is_infrastructure(stage: Stage) -> None:
    stage.on_prepare = fail(SandboxLost("the sandbox ended while in use", cause="killed"))
    attempt = attempt_of(stage)
    assert attempt.status is Status.INFRA_ERROR
    assert "before the executor ran" in attempt.reason
    assert attempt.turns == ()


@pytest.mark.parametrize(
    ("error", "status", "flags"),
    [
        (SandboxLost("it ran out of memory", cause="oom"), Status.EXECUTOR_INCOMPLETE, ("sandbox_lost:oom",)),
        (EngineError("no engine"), Status.INFRA_ERROR, ()),
        (InfraError("no gateway"), Status.INFRA_ERROR, ()),
        (OSError(28, "No space left on device"), Status.INFRA_ERROR, ()),
    ],
)
@pytest.mark.parametrize("where", ["turn", "collect"])
def test_a_turn_that_is_broken_off_is_recorded(
    stage: Stage, error: Exception, status: Status, flags: tuple[str, ...], where: str
) -> None:
    if where == "turn":
        stage.on_turns = [fail(error)]
    else:
        stage.on_collect = fail(error)
    attempt = attempt_of(stage)
    assert (attempt.status, attempt.flags) == (status, flags)
    (turn,) = attempt.turns
    assert turn.ending is (Ending.LOST if where == "turn" else Ending.EXITED)
    assert not turn.finished
    assert str(error) in turn.reason
    assert turn.verdict is None


def test_half_a_collection_is_no_evidence(stage: Stage) -> None:
    stage.on_collect = fail(InfraError("evidence could not be written"))
    attempt_of(stage)
    assert not list(stage.root.rglob("half"))


def test_a_log_that_the_disk_could_not_hold_is_cut_back(stage: Stage) -> None:
    stage.on_turns = [fail(OSError(28, "No space left on device"))]
    attempt_of(stage)
    (log,) = stage.root.rglob("agent.log")
    assert log.stat().st_size == 65_536


def test_a_retry_starts_afresh_once_the_first_sandbox_is_gone(stage: Stage) -> None:
    stage.on_turns = [fail(EngineError("no engine"))]
    attempt = attempt_of(stage, retries=1)
    assert (attempt.status, attempt.tries, len(attempt.turns)) == (Status.PASS, 2, 1)
    assert len(stage.sandboxes) == 2
    assert list(stage.root.rglob("tries/1/turns/1/agent.log"))


def test_an_engine_that_is_gone_at_the_end_costs_the_digests_only(stage: Stage) -> None:
    stage.on_digest = fail(EngineError("no engine"))
    attempt = attempt_of(stage)
    assert (attempt.status, attempt.flags, attempt.digests) == (Status.PASS, ("digests_unknown",), {})


def test_a_gateway_that_is_gone_is_infrastructure(stage: Stage) -> None:
    address = GatewayAddress(stage.root / "agent" / "agent.sock", stage.root / "admin" / "admin.sock")
    spec = spec_of(stage, gateway=address)
    attempt = run_attempt(spec)
    assert (attempt.status, attempt.flags) == (Status.INFRA_ERROR, ("usage_unknown",))


def unmet(case: Any, *flags: str) -> Assessment:
    judgements = tuple(Judgement(checkpoint=c.id, state=State.UNMET, fraction=0.0) for c in case.rubric.checkpoints)
    return Assessment(judgements=judgements, caps=(), flags=flags)


def fall(*_: object) -> Any:
    raise LookupError("nothing of this name")


ROLES_THAT_FAIL = {
    "supervisor": (fall, fall, Status.UNJUDGED, "the supervisor: LookupError: nothing of this name (test_endings.py:"),
    "assessment": (nothing, fall, Status.UNJUDGED, "the supervisor fake gave a NoneType, no Assessment"),
    "simulator": (unmet, fall, Status.SIMULATOR_ERROR, "the user simulator: LookupError: nothing of this name"),
}


@pytest.mark.parametrize(("assess", "reply", "status", "words"), ROLES_THAT_FAIL.values(), ids=ROLES_THAT_FAIL)
def test_a_role_that_fails_leaves_a_record_with_its_turns(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, assess: Any, reply: Any, status: Status, words: str
) -> None:
    monkeypatch.setattr(stage, "assess", lambda case: assess(case) if assess is not nothing else None, raising=False)
    monkeypatch.setattr(stage, "reply", reply, raising=False)
    attempt = attempt_of(stage)
    assert (attempt.status, len(attempt.turns)) == (status, 1)
    assert words in attempt.problem
    assert [path.name for path in stage.root.rglob("error.log")] == ["error.log"] * ("LookupError" in words)


def test_tampering_ends_the_attempt(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "assess", lambda case: unmet(case, "integrity:planted"), raising=False)
    attempt = run_attempt(spec_of(stage))
    assert (attempt.status, attempt.score, len(attempt.turns)) == (Status.INTEGRITY_VIOLATION, 0.0, 1)


@pytest.mark.parametrize(("exit_code", "status"), [(1, Status.INFRA_ERROR), (0, Status.PASS)])
def test_a_relay_that_ended_is_not_charged_to_the_executor(stage: Stage, exit_code: int, status: Status) -> None:
    address = GatewayAddress(stage.root / "agent" / "agent.sock", stage.root / "admin" / "admin.sock", relay="volume")
    address.relay_ended.parent.mkdir()
    spec = spec_of(stage)
    stage.exit_code = exit_code
    with provision(spec) as executor:
        stage.on_turns = [address.relay_ended.touch]
        executor.spec = replace(spec, gateway=address)
        attempt = run_attempt(spec, executor=executor)
    assert attempt.status is status
    assert ("the relay to the model gateway ended" in attempt.reason) is (status is Status.INFRA_ERROR)


def test_what_a_hidden_role_quotes_is_blanked_in_the_whole_record(stage: Stage) -> None:
    spec = spec_of(stage)
    secrets = PrivacyValues((("TOKEN", "s3cret-value"), ("WORD", "pass")), "a test")
    spec = replace(spec, run=replace(spec.run, privacy=secrets))
    course = Course(problem="it said s3cret-value", blocked=Status.PASS)
    course.turns.append(
        Turn(
            number=1, message="m s3cret-value", started="2026-11-30T00:00:00+00:00", seconds=1, wall_seconds=1,
            ending=Ending.EXITED,
            exit_code=0, finished=True, reason="r s3cret-value",
            handoff=Handoff(verdict="pass", attempt_state="complete_and_passed", recoverable=True, score=1.0),
            follow_up=FollowUp(candidate="c s3cret-value", message="f s3cret-value"),
        )
    )  # fmt: skip
    attempt = record_attempt(spec, course, started=datetime.now(UTC), wall=1.0, tries=1)
    assert load_attempt(spec.directory) == attempt
    assert attempt.status is Status.PASS
    (turn,) = attempt.turns
    assert (turn.message, turn.reason) == ("m [redacted]", "r [redacted]")
    assert turn.follow_up == FollowUp(candidate="c [redacted]", message="f [redacted]")
    assert turn.handoff is not None
    assert turn.handoff.verdict == "pass"
    assert attempt.problem == "it said [redacted]"
    stored = [path for path in spec.directory.rglob("*") if path.is_file() and b"s3cret-value" in path.read_bytes()]
    assert stored == []


def test_an_unfinished_turn_says_when_memory_ran_out(stage: Stage) -> None:
    stage.out_of_memory, stage.exit_code = True, 137
    attempt = attempt_of(stage)
    assert (attempt.status, attempt.flags) == (Status.EXECUTOR_INCOMPLETE, ("out_of_memory",))
    assert "ran out of 64 MiB of memory" in attempt.turns[0].reason


def test_a_record_that_the_disk_refuses_is_still_reported(stage: Stage) -> None:
    spec = spec_of(stage)
    (spec.directory / "uniclaw.json").mkdir()
    with provision(spec) as executor:
        attempt = run_attempt(spec, executor=executor)
    assert attempt.status is Status.PASS
    assert attempt.flags == ("not_stored:Is a directory",)
    assert not list(spec.directory.glob(".*.tmp"))
