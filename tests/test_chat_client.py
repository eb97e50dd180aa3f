"""A role's model, asked through the real gateway process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_uniclaw.errors import InfraError, ModelRefused
from pytest_uniclaw.models.chat_client import Reply, open_chat
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import GrantRequest, Provider, Tuning
from tests.support.scripted_upstream import Act, Handler, Upstream, error, ok, running_upstream

KEY = "sk-real-key-of-the-provider"
ASK = [{"role": "user", "content": "judge this"}]


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    provider = Provider(name="real", base_url=upstream.base_url, api_key=KEY)
    tuning = Tuning(tries=1, idle_seconds=5)
    with start_gateway(tmp_path_factory.mktemp("gateway"), [provider], tuning=tuning) as process:
        yield process


def request(folder: Path) -> GrantRequest:
    return GrantRequest(attempt=folder.name, role="supervisor", model="judge-1", provider="real", log=folder / "log")


def test_an_answer_and_its_ledger_row(gateway: GatewayProcess, upstream: Upstream, tmp_path: Path) -> None:
    upstream.play(ok("all good"))
    with open_chat(gateway.address, request(tmp_path), effort="high") as chat:
        reply = chat.complete(ASK, tools=[{"type": "function", "function": {"name": "t"}}], seconds=10)
    assert reply == Reply({"role": "assistant", "content": "all good"}, "stop", 11, 3)
    sent = upstream.requests[0]["body"]
    assert (sent["model"], sent["reasoning_effort"], sent["tools"][0]["function"]["name"]) == ("judge-1", "high", "t")
    (call,) = Gateway(gateway.address).calls(tmp_path.name, "supervisor")
    assert (call.status, call.input_tokens, call.output_tokens) == (200, 11, 3)


@pytest.mark.parametrize(
    ("act", "kind"),
    [
        (error(429, "slow down", "rate_limit_error"), "rate_limit"),
        (error(429, "no money", "insufficient_quota", "insufficient_quota"), "rate_limit"),
        (error(500), "infra"),
        (error(401, "wrong key"), "infra"),
    ],
    ids=["rate_limit", "quota", "server_error", "wrong_key"],
)
def test_what_the_provider_cannot_do_is_infrastructure(
    gateway: GatewayProcess, upstream: Upstream, tmp_path: Path, act: Act, kind: str
) -> None:
    upstream.play(act)
    with open_chat(gateway.address, request(tmp_path)) as chat, pytest.raises(InfraError) as caught:
        chat.complete(ASK, seconds=10)
    assert caught.value.kind == kind
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("act", "call_class"),
    [
        (error(400, "maximum context length is 10", code="context_length_exceeded"), "context_length"),
        (error(400, "blocked by content_filter", code="content_filter"), "content_filter"),
        (error(400, "unknown parameter"), "bad_request"),
    ],
    ids=["context_length", "content_filter", "bad_request"],
)
def test_what_the_provider_will_not_do_is_a_refusal(
    gateway: GatewayProcess, upstream: Upstream, tmp_path: Path, act: Act, call_class: str
) -> None:
    upstream.play(act)
    with open_chat(gateway.address, request(tmp_path)) as chat, pytest.raises(ModelRefused) as caught:
        chat.complete(ASK, seconds=10)
    assert caught.value.call_class == call_class


def hang(handler: Handler) -> None:
    handler.server.release.wait(20)


def test_a_hung_provider_ends_at_the_deadline(gateway: GatewayProcess, upstream: Upstream, tmp_path: Path) -> None:
    upstream.play(hang)
    with open_chat(gateway.address, request(tmp_path)) as chat, pytest.raises(InfraError, match=r"no answer in 0\.5 s"):
        chat.complete(ASK, seconds=0.5)


def test_the_grant_ends_with_the_chat(gateway: GatewayProcess, upstream: Upstream, tmp_path: Path) -> None:
    upstream.play(ok())
    with open_chat(gateway.address, request(tmp_path)) as chat:
        chat.complete(ASK, seconds=10)
    with pytest.raises((InfraError, RuntimeError)):
        chat.complete(ASK, seconds=10)
