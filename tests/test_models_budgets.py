"""What calls may take and what they cost: prices, budgets of a grant, the session's cap, concurrency."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.models.accounts import (
    DEFAULT_OUTPUT_TOKENS,
    IMAGE_TOKENS,
    ORDINARY_INPUT_TOKENS,
    Account,
    Estimate,
    Treasury,
    estimate,
)
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.gateway import MAX_BODY, MAX_DEPTH, MAX_NODES, MAX_OUTPUT_TOKENS
from pytest_uniclaw.models.grants import (
    INFRA_CLASSES,
    Call,
    CallClass,
    GrantRequest,
    Provider,
    Spend,
    Tuning,
    provider_failure,
)
from pytest_uniclaw.models.prices import FREE, Price
from tests.support.scripted_upstream import (
    Handler,
    Reply,
    Upstream,
    ask,
    completion,
    error,
    ok,
    piece,
    running_upstream,
)

pytestmark = pytest.mark.processes

COUNT = itertools.count(1)
USER = {"role": "user", "content": "hello"}
PRICE = Price(input=1.0, output=2.0, cache_read=0.1)
UNKNOWN = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"))


def counts(sent: int, said: int, read: int | None = None, written: int | None = None) -> dict[str, int | None]:
    return dict(zip(UNKNOWN, (sent, said, read, written), strict=True))


@pytest.mark.parametrize(
    ("price", "used", "usd"),
    [
        (PRICE, counts(1_000_000, 500_000), 2.0),
        (PRICE, counts(1_000_000, 0, read=400_000), 0.64),
        (Price(input=1, output=2, cache_write=1.25), counts(100, 0, written=100), 0.000125),
        (Price(input=1, output=2), counts(100, 0, read=50, written=20), 0.0001),
        (Price(input=1, output=2), counts(10, 0, read=50), 0.00005),
        (PRICE, UNKNOWN, None),
        (PRICE, counts(5, 5) | {"output_tokens": None}, None),
        (Price(), counts(1, 1), None),
        (Price(input=1), counts(1, 1), None),
        (Price(input=1), counts(1, 0), 0.000001),
        (Price(), counts(0, 0), 0.0),
        (FREE, UNKNOWN, 0.0),
        (Price(input=0, output=0, cache_read=1), UNKNOWN, None),
    ],
)  # fmt: skip
def test_the_cost_of_a_call(price: Price, used: dict[str, int | None], usd: float | None) -> None:
    assert price.cost(used) == usd


def test_an_estimate_counts_bytes_and_images_and_the_requests_own_limit() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3_000_000}}
    messages = [USER, {"role": "user", "content": [{"type": "text", "text": "x" * 300}, picture]}]
    body = {"model": "m", "messages": messages}
    sent = estimate(body, len(json.dumps(body)))
    assert 100 + IMAGE_TOKENS < sent.input_tokens < 250 + IMAGE_TOKENS
    assert sent.output_tokens == DEFAULT_OUTPUT_TOKENS
    assert estimate({"messages": [USER], "max_tokens": 7}, 30) == Estimate(10, 7)
    assert estimate({"messages": [USER], "max_completion_tokens": 5, "max_tokens": 7}, 30) == Estimate(10, 7)
    assert estimate({"messages": "nonsense", "max_tokens": True}, 3) == Estimate(1, DEFAULT_OUTPUT_TOKENS)


def account(treasury: Treasury, price: Price | None = PRICE, **limits: object) -> Account:
    request = GrantRequest(attempt="a", role="executor", model="m", provider="p", log=Path("log"), **limits)
    return Account(request, price, treasury)


def refused(action: Callable[[], None]) -> CallFailed:
    with pytest.raises(CallFailed) as caught:
        action()
    assert caught.value.status == 403
    return caught.value


def test_tokens_are_reserved_and_settled() -> None:
    used = account(Treasury(), max_tokens=100)
    used.reserve(Estimate(30, 30))
    failure = refused(lambda: used.reserve(Estimate(30, 30)))
    assert failure.call_class is CallClass.BUDGET
    assert "0 used, 60 reserved, this call may take 60" in failure.message
    used.settle(Estimate(30, 30), counts(20, 5), Estimate(0, 0), own=True)
    used.reserve(Estimate(45, 30))
    used.settle(Estimate(45, 30), UNKNOWN, Estimate(45, 10), own=True)
    assert "80 used, 0 reserved" in refused(lambda: used.reserve(Estimate(20, 1))).message
    used.reserve(Estimate(10, 10))
    used.settle(Estimate(10, 10), UNKNOWN, Estimate(10, 1), own=False)
    used.reserve(Estimate(10, 10))  # what the provider broke off does not weigh on the grant


def test_money_is_reserved_and_settled_on_grant_and_session() -> None:
    treasury = Treasury(cap=10.0)
    used, other = account(treasury, max_cost_usd=4.0), account(treasury)
    million = Estimate(1_000_000, 1_000_000)
    used.reserve(million)
    assert treasury.spend() == Spend(reserved_usd=3.0, cap_usd=10.0)
    assert refused(lambda: used.reserve(million)).call_class is CallClass.BUDGET
    other.reserve(million)
    other.reserve(million)
    failure = refused(lambda: other.reserve(million))
    assert failure.call_class is CallClass.BUDGET
    assert "what is left of the session's 10 USD (0.0000 spent, 9.0000 reserved" in failure.message
    assert not treasury.spend().stopped
    used.settle(million, counts(500_000, 0), Estimate(0, 0), own=True)
    other.settle(million, UNKNOWN, Estimate(1_000_000, 0), own=False)
    other.settle(million, counts(0, 0), Estimate(0, 0), own=False)
    assert treasury.spend() == Spend(known_usd=0.5, unknown_calls=1, reserved_usd=1.0, cap_usd=10.0)
    used.reserve(million)


def test_the_size_of_one_wish_does_not_stop_the_session() -> None:
    treasury = Treasury(cap=10.0)
    used, other = account(treasury), account(treasury)
    huge, small = Estimate(10, 2_000_000_000), Estimate(10_000, 4096)
    assert refused(lambda: used.reserve(huge)).call_class is CallClass.BUDGET
    assert refused(lambda: used.reserve(Estimate(20_000_000, 10))).call_class is CallClass.BUDGET
    assert treasury.spend() == Spend(cap_usd=10.0), "nothing is held and nothing is stopped"
    nearly = Estimate(0, 4_999_999)
    used.reserve(nearly)
    assert refused(lambda: used.reserve(small)).call_class is CallClass.BUDGET, "its own call is in the way"
    assert refused(lambda: other.reserve(small)).call_class is CallClass.SESSION_BUDGET, "another's is"
    assert not treasury.spend().stopped, "for a call in flight may cost less"
    used.settle(nearly, counts(10, 10), Estimate(0, 0), own=True)
    other.reserve(small)


@pytest.mark.parametrize("unknown", [False, True])
def test_a_session_whose_money_is_spent_is_stopped_whatever_the_wish(unknown: bool) -> None:
    treasury = Treasury(cap=10.0)
    used, other = account(treasury), account(treasury)
    spent = Estimate(0, 4_999_999)
    used.reserve(spent)
    used.settle(spent, UNKNOWN if unknown else counts(0, 4_999_999), spent, own=True)
    assert not treasury.spend().stopped
    assert refused(lambda: other.reserve(Estimate(10, 2_000_000_000))).call_class is CallClass.SESSION_BUDGET
    assert treasury.spend().stopped


def test_a_model_without_a_price_costs_unknown_and_meets_no_cap() -> None:
    treasury = Treasury(cap=0.0)
    used = account(treasury, None)
    used.reserve(Estimate(1_000_000, 1))
    used.settle(Estimate(1_000_000, 1), counts(5, 5), Estimate(0, 0), own=True)
    assert treasury.spend() == Spend(unknown_calls=1, cap_usd=0.0)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


def provider_of(upstream: Upstream) -> Provider:
    return Provider(name="real", base_url=upstream.base_url, api_key="sk-REAL", prices={"priced": PRICE})


@pytest.fixture(scope="module")
def process(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("gateway")
    with start_gateway(folder, [provider_of(upstream)], tuning=Tuning(backoff_seconds=0.01)) as started:
        yield started
        assert "Traceback" not in (started.directory / "gateway.log").read_text()


class Session:
    """One grant; ``upstream_model`` is the provider's name of a model with a price."""

    def __init__(self, process: GatewayProcess, folder: Path, model: str = "priced", **limits: object) -> None:
        self.gateway = Gateway(process.address)
        self.attempt = f"attempt-{next(COUNT)}"
        asked = {"attempt": self.attempt, "role": "executor", "model": "agent-model", "provider": "real"}
        self.request = GrantRequest(**asked, upstream_model=model, log=folder / self.attempt, **limits)
        self.grant = self.gateway.grant(self.request)

    def ask(self, *, stream: bool = False, **extra: object) -> Reply:
        body = {"model": "agent-model", "messages": [USER], "stream": stream} | extra
        return ask(self.gateway.address.agent_socket, self.grant.key, body)

    @property
    def calls(self) -> list[Call]:
        return self.gateway.calls(self.attempt)


def test_the_cost_of_a_call_stands_in_the_ledger(upstream: Upstream, process: GatewayProcess, tmp_path: Path) -> None:
    upstream.play(ok())
    session, unpriced = Session(process, tmp_path), Session(process, tmp_path, "another")
    session.ask(stream=True)
    unpriced.ask()
    (call,) = session.calls
    assert (call.input_tokens, call.output_tokens, call.cache_read_tokens) == (11, 3, 4)
    assert call.cost_usd == pytest.approx((7 * 1.0 + 4 * 0.1 + 3 * 2.0) / 1e6)
    assert unpriced.calls[0].cost_usd is None
    rows = [json.loads(line) for line in (process.directory / "ledger.jsonl").read_text().splitlines()]
    assert {row["attempt"]: row["cost_usd"] for row in rows}[session.attempt] == call.cost_usd


def test_what_no_provider_worked_on_costs_0_and_the_rest_is_unknown(
    upstream: Upstream, process: GatewayProcess, tmp_path: Path
) -> None:
    costs = {}
    plays = {
        "quota": error(429, "pay", "insufficient_quota", "insufficient_quota"),
        "auth": error(401), "rate_limit": error(429, "slow: priced", "rate_limit", retry_after_ms="1"),
        "infra": error(500), "content_filter": error(400, "x", code="content_filter"),
        "stream_broken": lambda handler: handler.events([piece("half of")], done=False),
        "ok": lambda handler: handler.whole(200, completion() | {"usage": None}),
    }  # fmt: skip
    for name, act in plays.items():
        upstream.play(act)
        session = Session(process, tmp_path)
        session.ask(stream=name == "stream_broken")
        (call,) = session.calls
        assert call.call_class == name
        costs[name] = (call.cost_usd, call.input_tokens)
    nothing, unknown = (0.0, 0), (None, None)
    assert costs == dict.fromkeys(plays, unknown) | dict.fromkeys(("quota", "auth", "rate_limit"), nothing)


def test_budgets_stop_calls_with_403_and_that_is_the_attempts_own(
    upstream: Upstream, process: GatewayProcess, tmp_path: Path
) -> None:
    upstream.play(ok())
    for limits, words in (({"max_tokens": 120}, "120 tokens"), ({"max_cost_usd": 0.0002}, "0.0002 USD")):
        session = Session(process, tmp_path, **limits)
        assert session.ask(max_tokens=20).status == 200
        reply = session.ask(max_tokens=200)
        assert (reply.status, reply.headers["x-uniclaw-class"]) == (403, "budget")
        assert words in reply.json["error"]["message"]
        assert "retry-after" not in reply.headers
        stopped = session.calls[-1]
        assert (stopped.call_class, stopped.tries, stopped.cost_usd, stopped.input_tokens) == ("budget", 0, 0.0, 0)
        assert provider_failure(session.calls) is None
        assert session.ask(max_tokens=20).status == 200, "a smaller call still fits"


def test_an_ended_reservation_is_given_back_after_a_failure(
    upstream: Upstream, process: GatewayProcess, tmp_path: Path
) -> None:
    upstream.play(error(401), error(500), error(500), error(500), error(500), error(500), ok())
    session = Session(process, tmp_path, max_tokens=150)
    assert [session.ask(max_tokens=100).status for _ in range(3)] == [401, 500, 200]


def test_a_money_budget_without_a_price_is_refused(process: GatewayProcess, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="max_cost_usd needs a price, and the provider 'real' has none for 'other'"):
        Session(process, tmp_path, "other", max_cost_usd=1.0)


def test_the_sessions_cap_stops_calls_of_every_grant(upstream: Upstream, tmp_path: Path) -> None:
    upstream.play(ok())
    providers = [provider_of(upstream)]
    with start_gateway(tmp_path / "run", providers, max_cost_usd=0.001) as process:
        first, second = Session(process, tmp_path), Session(process, tmp_path)
        gateway = first.gateway
        assert gateway.spend() == Spend(cap_usd=0.001)
        assert first.ask(max_tokens=100).status == 200
        assert gateway.spend() == Spend(known_usd=0.000017, cap_usd=0.001)
        reply = second.ask(max_tokens=1000)
        assert (reply.status, reply.headers["x-uniclaw-class"]) == (403, "session_budget")
        assert "the session's cost cap of 0.001 USD is reached" in reply.json["error"]["message"]
        assert getattr(provider_failure(second.calls), "call_class", None) == "session_budget"
        assert gateway.spend() == Spend(known_usd=0.000017, cap_usd=0.001, stopped=True)
        assert len(upstream.requests) == 1


def test_an_oversized_wish_is_the_attempts_own(upstream: Upstream, tmp_path: Path) -> None:
    upstream.play(ok())
    with start_gateway(tmp_path / "run", [provider_of(upstream)], max_cost_usd=1.0) as process:
        session, other = Session(process, tmp_path), Session(process, tmp_path)
        for name in ("max_tokens", "max_completion_tokens"):
            reply = session.ask(**{name: 2_000_000_000, "max_tokens": 2_000_000_000})
            assert (reply.status, reply.headers["x-uniclaw-class"]) == (403, "budget")
        assert provider_failure(session.calls) is None
        assert session.gateway.spend() == Spend(cap_usd=1.0)
        assert other.ask().status == 200


def test_a_refused_call_leaves_no_request_behind(upstream: Upstream, process: GatewayProcess, tmp_path: Path) -> None:
    upstream.play(ok())
    session = Session(process, tmp_path, max_calls=1)
    assert session.ask().status == 200
    before = sorted(path.name for path in (session.request.log / "blobs").iterdir())
    for number in range(3):
        padded = {"role": "user", "content": f"{number}" * 300_000}
        assert session.ask(messages=[padded], metadata={"pad": "x" * 100_000}).status == 403
    assert sorted(path.name for path in (session.request.log / "blobs").iterdir()) == before
    answered, *rows = (session.request.log / "exchanges.jsonl").read_text().splitlines()
    assert json.loads(answered)["messages"] == [name.removesuffix(".json") for name in before]
    assert [(json.loads(row)["class"], json.loads(row)["messages"], len(row) < 1000) for row in rows] == [
        ("budget", [], True)
    ] * 3


def test_money_of_calls_in_flight_is_reserved(upstream: Upstream, process: GatewayProcess, tmp_path: Path) -> None:
    upstream.play(lambda handler: (upstream.release.wait(10), handler.whole(200, completion())))
    session = Session(process, tmp_path)
    before = session.gateway.spend()
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(session.ask, max_tokens=1_000_000)
        wait_for(lambda: session.gateway.spend().reserved_usd > before.reserved_usd + 2.0)
        upstream.release.set()
        assert future.result().status == 200
    after = session.gateway.spend()
    assert after.reserved_usd == pytest.approx(before.reserved_usd)
    assert after.known_usd == pytest.approx(before.known_usd + 0.000017)


class Gate:
    """An act that holds each request until the test lets it through, and notes who came."""

    def __init__(self, upstream: Upstream) -> None:
        self.came: list[str] = []
        self.free = threading.Semaphore(0)
        upstream.play(self)

    def __call__(self, handler: Handler) -> None:
        self.came.append(handler.server.requests[-1]["body"]["user"])
        self.free.acquire(timeout=10)
        handler.whole(200, completion())


def test_calls_over_the_concurrency_wait_their_turn_in_order(
    upstream: Upstream, process: GatewayProcess, tmp_path: Path
) -> None:
    gate, session = Gate(upstream), Session(process, tmp_path, max_concurrency=2)
    with ThreadPoolExecutor(5) as pool:
        futures = []
        for number in range(1, 6):
            futures.append(pool.submit(session.ask, user=str(number)))
            wait_for(lambda n=number: session.gateway.activity(session.attempt).calls_in_flight == n)
            wait_for(lambda n=number: len(gate.came) == min(n, 2))
        for done in range(1, 4):
            gate.free.release()
            wait_for(lambda n=done: len(gate.came) == 2 + n)
        gate.free.release(2)
        assert [future.result().status for future in futures] == [200] * 5
    assert gate.came == ["1", "2", "3", "4", "5"]
    assert [call.waited_seconds for call in session.calls] == [0.0] * 5
    assert session.gateway.activity(session.attempt).waited_seconds == 0.0, "that was not the provider's doing"


def test_a_grant_may_refuse_what_is_over_its_concurrency(
    upstream: Upstream, process: GatewayProcess, tmp_path: Path
) -> None:
    gate, session = Gate(upstream), Session(process, tmp_path, max_concurrency=1, refuse_busy=True)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(session.ask, user="1")
        wait_for(lambda: gate.came == ["1"])
        reply = session.ask(user="2")
        assert (reply.status, reply.headers["x-uniclaw-class"]) == (403, "budget")
        assert "1 calls of this key are under way" in reply.json["error"]["message"]
        gate.free.release(2)
        assert first.result().status == 200
        assert session.ask(user="3").status == 200
    assert gate.came == ["1", "3"]


def test_a_waiting_call_ends_with_its_grant(upstream: Upstream, process: GatewayProcess, tmp_path: Path) -> None:
    gate = Gate(upstream)
    short = Session(process, tmp_path, max_concurrency=1, expires_seconds=0.5)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(short.ask, user=str(number)) for number in range(2)]
        wait_for(lambda: short.gateway.activity(short.attempt).calls_in_flight == 2 and len(gate.came) == 1)
        time.sleep(0.5)
        gate.free.release()
        assert sorted(future.result().status for future in futures) == [200, 403]
    assert [call.call_class for call in short.calls] == ["ok", "budget"]
    revoked = Session(process, tmp_path, max_concurrency=1)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(revoked.ask, user=str(number)) for number in range(2)]
        wait_for(lambda: revoked.gateway.activity(revoked.attempt).calls_in_flight == 2 and len(gate.came) == 2)
        revoked.gateway.revoke(revoked.grant)
        assert [call.call_class for call in revoked.calls] == ["cancelled", "cancelled"]
        gate.free.release()
        for future in futures:
            with pytest.raises((OSError, http.client.HTTPException)):
                future.result(10)
    assert len(gate.came) == 2


def test_prices_reach_the_gateway_without_built_in_ones() -> None:
    assert Provider(name="p", base_url="http://x").prices == {}
    stated = Provider(name="p", base_url="http://x", prices={"gpt-4.1": {"input": 2, "output": 8}})
    assert stated.prices["gpt-4.1"].complete
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        Provider(name="p", base_url="http://x", prices={"m": {"input": -1}})


def test_the_page_on_model_calls_names_every_class_and_field() -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "model-calls.md").read_text("utf-8")
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    classes = {row[1].strip(" `"): row[3].strip() for row in rows if len(row) == 5}
    assert set(classes) == set(CallClass)
    assert {kind for kind, who in classes.items() if who in {"provider", "session"}} == INFRA_CLASSES
    fields = {name.strip(" `") for row in rows if len(row) == 4 for name in row[1].split(",")}
    assert fields == {field.alias or name for name, field in Call.model_fields.items()}
    assert f"{DEFAULT_OUTPUT_TOKENS} tokens" in page
    assert f"{ORDINARY_INPUT_TOKENS} tokens of its input and {DEFAULT_OUTPUT_TOKENS} of its output" in page
    limits = (f"{MAX_NODES} JSON values", f"{MAX_DEPTH} levels", f"0 to {MAX_OUTPUT_TOKENS}", f"{MAX_BODY >> 20} MiB")
    assert [words for words in limits if words not in page] == []


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.005)
