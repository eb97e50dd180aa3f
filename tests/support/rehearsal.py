"""An attempt without a container whose roles ask the models of a faulty provider through a real gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from test_endings import FakeSandbox, Stage, spec_of

from pytest_uniclaw.attempt import Attempt, Ending
from pytest_uniclaw.budget import Budget
from pytest_uniclaw.judge.conversation import Limits
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.person import ModelSimulator
from pytest_uniclaw.loop import run_attempt
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import Call, Provider, Role, Tuning
from pytest_uniclaw.sandbox.base import Completed, Workspace, WorkspaceJob
from pytest_uniclaw.verdict import Assessment, State
from tests.support.faulty import FaultyProvider, answer
from tests.support.judging import FakeProvider, calls, use
from tests.support.scripted_upstream import Act, ask, running

Json = dict[str, Any]
TRIES = 2
TUNING = Tuning(tries=TRIES, idle_seconds=30, backoff_seconds=0.01, backoff_cap_seconds=0.01, give_up_seconds=20)
IMPATIENT = TUNING.model_copy(update={"idle_seconds": 0.4})
"""For providers that hang, and for nothing else: a busy machine must not look like one."""
KEY = "sk-real-key-of-the-provider"


@dataclass
class Rehearsal(Stage):
    """An attempt whose roles ask the models of ``acts``; a role without acts is a stand-in that always passes.

    The agent asks its model once a turn and has finished when it got an answer and ``exit_code`` is 0; the judge's
    stand-in lets the first ``failing`` turns fail. Deliverable of every turn is ``half``.
    """

    process: GatewayProcess | None = None
    acts: dict[Role, list[Act]] = field(default_factory=dict)
    provider: FaultyProvider = field(default_factory=FaultyProvider)
    stream: bool = True
    failing: int = 0
    key: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    desks: FakeProvider = field(default_factory=FakeProvider)

    @property
    def asks(self) -> bool:
        return "executor" in self.acts

    def prepare(self, sandbox: object, task: object, access: Any) -> None:
        self.key = access.key if access else ""

    def turn(self, sandbox: FakeSandbox, request: Any) -> Completed:
        began = time.monotonic()
        request.log.write_text("done")
        code = self.exit_code
        if self.key:
            assert self.process is not None
            body = {"model": self.model("executor"), "messages": [{"role": "user", "content": request.message}]}
            reply = ask(self.process.address.agent_socket, self.key, body | {"stream": self.stream})
            broken = any(isinstance(event, dict) and "error" in event for event in reply.events)
            code = code if reply.status == 200 and not broken else 1
        return Completed(Ending.EXITED, code, b"", time.monotonic() - began)

    def assess(self, case: Any) -> Assessment:
        assessment = super().assess(case)
        if case.turn > self.failing:
            return assessment
        lines = [j.model_copy(update={"state": State.UNMET, "fraction": 0.0}) for j in assessment.judgements]
        return assessment.model_copy(update={"judgements": tuple(lines)})

    def open_workspace(self, job: WorkspaceJob) -> AbstractContextManager[Workspace]:
        return self.desks.open_workspace(job)

    def model(self, role: Role) -> str:
        """The name of a role's model, its own in every test: no cool-down reaches another test."""
        return f"{role}-{self.root.name}"

    def choice(self, role: Role) -> ModelChoice:
        self.provider.lanes[self.model(role)] = self.acts[role]
        return ModelChoice("faulty", self.model(role))

    def run(self, *, followups: int = 1, retries: int = 0, **given: Any) -> Attempt:
        assert self.process is not None
        spec = spec_of(self, gateway=self.process.address, retries=retries)
        parts: Json = {"model": self.choice("executor") if self.asks else None}
        if "supervisor" in self.acts:
            parts["supervisor"] = ModelSupervisor(self.choice("supervisor"), limits=Limits(**self.limits))
        if "user_simulator" in self.acts:
            parts["simulator"] = ModelSimulator(self.choice("user_simulator"))
        directory = spec.directory.with_name(f"p1-{self.root.name}")
        directory.mkdir()
        return run_attempt(replace(spec, directory=directory, budget=Budget(followups=followups), **parts, **given))

    def calls(self, attempt: Attempt, role: Role) -> list[Call]:
        assert self.process is not None
        return Gateway(self.process.address).calls(attempt.attempt_id, role)


@pytest.fixture(scope="module")
def provider() -> Iterator[FaultyProvider]:
    with running(FaultyProvider()) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(provider: FaultyProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    known = Provider(name="faulty", base_url=provider.base_url, api_key=KEY)
    with start_gateway(tmp_path_factory.mktemp("gateway"), [known], tuning=TUNING) as process:
        yield process


@pytest.fixture(scope="module")
def impatient(provider: FaultyProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    known = Provider(name="faulty", base_url=provider.base_url)
    with start_gateway(tmp_path_factory.mktemp("impatient"), [known], tuning=IMPATIENT) as process:
        yield process


Rehearse = Callable[..., Rehearsal]


@pytest.fixture
def rehearse(provider: FaultyProvider, gateway: GatewayProcess, tmp_path: Path) -> Rehearse:
    """Make a rehearsal from the acts of its roles: ``rehearse(supervisor=[…])``."""

    def make(
        executor: list[Act] | None = None, supervisor: list[Act] | None = None, simulator: list[Act] | None = None,
        **more: Any,
    ) -> Rehearsal:  # fmt: skip
        given: dict[Role, list[Act] | None] = {
            "executor": executor, "supervisor": supervisor, "user_simulator": simulator,
        }  # fmt: skip
        acts = {role: list(played) for role, played in given.items() if played}
        failing = more.pop("failing", 1 if simulator else 0)
        return Rehearsal(tmp_path, provider=provider, acts=acts, failing=failing, **{"process": gateway, **more})

    return make


def submission(**changes: Any) -> Json:
    """A sound submission that earns everything."""
    proof = {"reason": "it is there", "evidence": [{"path": "evidence/results/half", "quote": "half"}]}
    return {
        "checkpoints": [{"id": name, "state": "met"} | proof for name in ("C1", "C2")],
        "caps": [{"id": "fabricated_rows", "triggered": False, "reason": "none is made up"}],
        "recovery": {"recoverable": True, "reason": "it could go on"},
        "decision": {
            "verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": True, "score": 1.0,
            "confidence": 0.9, "rationale": "all is there",
        },
    } | changes  # fmt: skip


def with_line(name: str, **line: Any) -> Json:
    """The sound submission with another answer for one checkpoint."""
    payload = submission()
    payload["checkpoints"] = [{"id": name} | line if x["id"] == name else x for x in payload["checkpoints"]]
    return payload


def submit(payload: Json) -> Act:
    """The judge calls its final tool."""
    return answer(lambda nonce: calls(use("submit_assessment", payload | {"nonce": nonce})))


def written(payload: Json, change: Callable[[str], str] = lambda text: text) -> Act:
    """The judge answers in text; ``change`` makes something else of the JSON."""
    return answer(lambda nonce: change(json.dumps(payload | {"nonce": nonce}, ensure_ascii=False)))


def speak(message: str, mode: str = "instruction") -> Act:
    """The user simulator calls its final tool."""
    return answer(calls(use("say_to_agent", {"mode": mode, "message": message})))


GOOD = submit(submission())
PLEASE = "Please compare both files once more."
