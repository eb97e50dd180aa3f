"""A busy provider's waiting reaches the attempt: not billed to the executor, counted once however many calls wait."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from test_endings import FakeSandbox, Stage, spec_of

from pytest_uniclaw.attempt import Attempt, Ending
from pytest_uniclaw.loop import run_attempt
from pytest_uniclaw.modelchoice import parse_model
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import Call, Provider
from pytest_uniclaw.provisioning import provision
from pytest_uniclaw.report.upstream import usage_record
from pytest_uniclaw.sandbox.base import Completed
from pytest_uniclaw.status import Status
from tests.support.scripted_upstream import Upstream, ask, error, ok, running_upstream

pytestmark = pytest.mark.processes

CALLS = 3
"""Calls that the agent makes at the same time."""


@dataclass
class Busy(Stage):
    """An agent whose turn is ``CALLS`` model calls side by side and nothing else."""

    agent_socket: Path = Path()
    keys: list[str] = field(default_factory=list)
    replies: list[int] = field(default_factory=list)

    needs_model = True

    def prepare(self, sandbox: object, task: object, access: Any) -> None:
        self.keys.append(access.key)

    def turn(self, sandbox: FakeSandbox, request: Any) -> Completed:
        began = time.monotonic()
        body = {"model": "busy", "messages": [{"role": "user", "content": request.message}]}
        with ThreadPoolExecutor(CALLS) as pool:
            futures = [pool.submit(ask, self.agent_socket, self.keys[-1], body) for _ in range(CALLS)]
            self.replies += [future.result().status for future in futures]
        request.log.write_text("done")
        return Completed(Ending.EXITED, self.exit_code, b"", time.monotonic() - began)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


def provider_of(upstream: Upstream) -> Provider:
    return Provider(name="real", base_url=upstream.base_url, prices={"busy": {"input": 1, "output": 2}})


def run_busy(stage: Busy, process: GatewayProcess) -> Attempt:
    stage.agent_socket = process.address.agent_socket
    spec = replace(spec_of(stage, retries=1, gateway=process.address), model=parse_model("real/busy"))
    with provision(spec) as executor:
        return run_attempt(spec, executor=executor)


@pytest.fixture(scope="module")
def waited(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> tuple[Attempt, list[Call], Path]:
    """An attempt whose calls all waited for one second, its calls, and its root."""
    upstream.play(*[error(429, "slow down", "rate_limit", retry_after="1")] * CALLS, ok())
    root = tmp_path_factory.mktemp("waited")
    stage = Busy(root)
    with start_gateway(root / "models", [provider_of(upstream)]) as process:
        attempt = run_busy(stage, process)
        assert stage.replies == [200] * CALLS
        return attempt, Gateway(process.address).calls(attempt.attempt_id, "executor"), root


def test_waiting_is_counted_once_and_not_billed(waited: tuple[Attempt, list[Call], Path]) -> None:
    attempt, calls, _ = waited
    assert attempt.status is Status.PASS
    (turn,) = attempt.turns
    each = [call.waited_seconds for call in calls]
    assert len(each) == CALLS
    assert min(each) >= 0.9, "every call waited for the whole Retry-After"
    assert max(each) <= turn.waited_seconds < sum(each) - 0.9, "overlaps count once"
    assert turn.seconds == pytest.approx(attempt.executor_seconds, abs=0.01)
    assert turn.seconds + turn.waited_seconds <= turn.wall_seconds + 0.01, "what is billed is without the waiting"


def test_waiting_stands_in_the_attempts_usage(waited: tuple[Attempt, list[Call], Path]) -> None:
    attempt, calls, root = waited
    (usage,) = attempt.usage
    assert (usage.role, usage.calls, usage.tries) == ("executor", CALLS, sum(call.tries for call in calls))
    assert usage.tries > CALLS
    assert usage.waited_seconds == pytest.approx(attempt.turns[0].waited_seconds, abs=0.01)
    assert usage.cost_usd == pytest.approx(CALLS * (11 * 1.0 + 3 * 2.0) / 1e6)
    (stored,) = (json.loads(path.read_text()) for path in (root / "runs").rglob("usage.json"))
    ours = {"cost_usd": usage.cost_usd, "tries": usage.tries, "waited_seconds": usage.waited_seconds}
    assert stored["uniclaw"] == {"roles": {"executor": ours}, "cost_usd": usage.cost_usd}
    assert stored["summary"]["executor"]["estimated_cost"] == usage.cost_usd
    unknown = usage.model_copy(update={"role": "supervisor", "cost_usd": None})
    record = usage_record(attempt.model_copy(update={"usage": (usage, unknown)}))
    assert record["uniclaw"]["roles"]["supervisor"]["cost_usd"] == record["uniclaw"]["cost_usd"] == "unknown"
    assert record["summary"]["supervisor"]["estimated_cost"] is None


def test_the_sessions_cap_is_not_the_executors_doing(upstream: Upstream, tmp_path: Path) -> None:
    upstream.play(ok())
    with start_gateway(tmp_path / "models", [provider_of(upstream)], max_cost_usd=1e-6) as process:
        stage = Busy(tmp_path, exit_code=1)
        attempt = run_busy(stage, process)
        assert Gateway(process.address).spend().stopped
    assert stage.replies == [403] * CALLS
    assert attempt.status is Status.INFRA_ERROR
    assert "the session's cost cap stopped the executor: session_budget" in attempt.reason
    assert (attempt.tries, attempt.flags) == (1, ("session_budget",))
    assert [usage.cost_usd for usage in attempt.usage] == [0.0]
    assert upstream.requests == []
