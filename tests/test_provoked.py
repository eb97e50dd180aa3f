"""A provider's failure that the executor's own request provokes does not take the attempt out of the denominator."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_endings import FakeSandbox
from test_waiting import Busy, provider_of, run_busy

from pytest_uniclaw.attempt import Attempt, Ending
from pytest_uniclaw.executor import PLAIN_QUESTION
from pytest_uniclaw.models.client import Gateway, start_gateway
from pytest_uniclaw.models.grants import Tuning
from pytest_uniclaw.sandbox.base import Completed
from pytest_uniclaw.status import Status
from pytest_uniclaw.turn import ANSWERS_OTHERS, PROVOKED
from tests.support.scripted_upstream import Act, Handler, Upstream, ask, error, ok, running_upstream

pytestmark = pytest.mark.processes

NO_ENDPOINT = error(404, "No endpoints found that support the requested parameters", "not_found")
FLAGGED = error(403, "Your input was flagged by moderation", "moderation")
UNPAID = error(402, "more credits are needed for that many tokens", "payment_required")
BUSY = error(429, "slow down", "rate_limit")
LONG = error(429, "slow down", "rate_limit", retry_after="3600")
BROKEN = error(500, "an internal error", "server_error")


@dataclass
class Dying(Busy):
    """An agent that asks its model one thing, then exits with 1."""

    exit_code: int = 1

    def turn(self, sandbox: FakeSandbox, request: Any) -> Completed:
        began = time.monotonic()
        body = {"model": "busy", "messages": [{"role": "user", "content": request.message}]}
        self.replies.append(ask(self.agent_socket, self.keys[-1], body).status)
        request.log.write_text("dying")
        return Completed(Ending.EXITED, self.exit_code, b"", time.monotonic() - began)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


def answering(executor: Act, others: Act) -> Callable[[Handler], None]:
    """Answer the executor's requests in one way and the harness's question in another."""

    def act(handler: Handler) -> None:
        asked = handler.body["messages"][-1]["content"]
        (others if asked == PLAIN_QUESTION else executor)(handler)

    return act


def attempt_at(upstream: Upstream, root: Path, executor: Act, others: Act) -> tuple[Attempt, int]:
    """Return the attempt and the number of the harness's own calls."""
    upstream.play(answering(executor, others))
    tuning = Tuning(tries=2, backoff_seconds=0.01, backoff_cap_seconds=0.02)
    with start_gateway(root / "models", [provider_of(upstream)], tuning=tuning) as process:
        attempt = run_busy(Dying(root), process)
        return attempt, len(Gateway(process.address).calls(attempt.attempt_id, "harness"))


@pytest.mark.parametrize("refusal", [NO_ENDPOINT, FLAGGED, UNPAID], ids=["404", "403", "402"])
def test_a_refused_request_is_the_executors_own(upstream: Upstream, tmp_path: Path, refusal: Act) -> None:
    attempt, asked = attempt_at(upstream, tmp_path, refusal, ok())
    assert attempt.status is Status.EXECUTOR_INCOMPLETE
    assert attempt.turns[0].verdict, "the turn is judged by what it left, as that of any executor that dies"
    assert (attempt.tries, asked) == (1, len(attempt.turns)), "once for each refusal"
    assert PROVOKED in attempt.flags


@pytest.mark.parametrize("refusal", [NO_ENDPOINT, FLAGGED, UNPAID], ids=["404", "403", "402"])
def test_a_provider_that_refuses_everybody_is_infrastructure(upstream: Upstream, tmp_path: Path, refusal: Act) -> None:
    attempt, asked = attempt_at(upstream, tmp_path, refusal, refusal)
    assert attempt.status in {Status.INFRA_ERROR, Status.RATE_LIMIT}
    assert (attempt.tries, asked) == (2, 2)
    assert PROVOKED not in attempt.flags


@pytest.mark.parametrize("failure", [BUSY, BROKEN], ids=["429", "500"])
def test_a_provider_that_fails_the_executor_alone_in_every_try(
    upstream: Upstream, tmp_path: Path, failure: Act
) -> None:
    attempt, asked = attempt_at(upstream, tmp_path, failure, ok())
    assert attempt.status is Status.EXECUTOR_INCOMPLETE
    assert (attempt.tries, asked) == (2, 2)
    assert {PROVOKED, ANSWERS_OTHERS} <= set(attempt.flags)
    assert "in every try the model provider failed the executor" in attempt.reason


@pytest.mark.parametrize("failure", [BUSY, BROKEN], ids=["429", "500"])
def test_a_provider_that_fails_everybody_is_infrastructure(upstream: Upstream, tmp_path: Path, failure: Act) -> None:
    attempt, _ = attempt_at(upstream, tmp_path, failure, failure)
    assert attempt.status is (Status.RATE_LIMIT if failure is BUSY else Status.INFRA_ERROR)
    assert attempt.flags == ()


def test_a_provider_that_wants_a_long_pause_is_not_asked_in_it(upstream: Upstream, tmp_path: Path) -> None:
    attempt, _ = attempt_at(upstream, tmp_path, LONG, ok())
    assert attempt.status is Status.RATE_LIMIT
    assert [request["body"]["messages"][-1]["content"] == PLAIN_QUESTION for request in upstream.requests] == [False]
