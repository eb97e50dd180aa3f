"""What an executor may take of the gateway itself: requests in memory and on disk, rows of refusals."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pytest_uniclaw import provisioning
from pytest_uniclaw.models import bounds, call, gateway
from pytest_uniclaw.models.bounds import FURTHER
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.gateway import AgentApp
from pytest_uniclaw.models.grants import CallClass, Grant, GrantRequest
from pytest_uniclaw.models.ledger import Ledger
from pytest_uniclaw.models.registry import Registry
from tests.support.scripted_upstream import completion

USER = {"role": "user", "content": "hello"}
DOCS = Path(__file__).parents[1] / "docs" / "reference"


class Bench:
    """The agents' side in this process, with one grant; its backend holds calls while ``shut``."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        self.ledger, self.registry = Ledger(folder), Registry({})
        self.log = folder / "log"
        asked = {"attempt": "a", "role": "executor", "model": "m", "provider": "gate", "log": self.log}
        self.grant = self.registry.issue(GrantRequest(**asked, **limits), None)
        self.open_gate = asyncio.Event()
        self.open_gate.set()
        self.came = 0
        self.miss = False
        app = AgentApp(self.registry, self.ledger, {"gate": self}, {}).application()
        self.server = TestServer(app)
        self.client = TestClient(self.server)

    @asynccontextmanager
    async def open(self, body: Any, running: Any) -> AsyncIterator[Any]:
        """As a backend."""
        self.came += 1
        await self.open_gate.wait()
        if self.miss:
            raise CallFailed(CallClass.REPLAY_MISS, 409, "no answer")
        yield completion()

    async def ask(self, body: Any, **headers: str) -> tuple[int, str, str]:
        """Return status, class and whether the connection is kept."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers |= {"authorization": f"Bearer {self.grant.key}"}
        async with self.client.post("/v1/chat/completions", data=data, headers=headers) as response:
            await response.read()
            told = response.headers
            return response.status, told.get("x-uniclaw-class", "ok"), told.get("connection", "")

    def wish(self, size: int = 0, text: str = "x") -> dict[str, Any]:
        """A request of at least so many bytes."""
        return {"model": "m", "messages": [{"role": "user", "content": text * max(1, size)}]}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.001)

    @property
    def in_flight(self) -> int:
        return self.registry.activity("a").calls_in_flight

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.ledger.lines("a")]

    @property
    def exchanges(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.log / "exchanges.jsonl").read_text("utf-8").splitlines()]


def run(folder: Path, talk: Callable[[Bench], Coroutine[Any, Any, None]], **limits: Any) -> None:
    """Run a conversation with the agents' side."""

    async def main() -> None:
        bench = Bench(folder, **limits)
        # As the gateway itself listens: bodies come as they were sent.
        await bench.server.start_server(auto_decompress=False)
        async with asyncio.timeout(30), bench.client:
            await talk(bench)
            await bench.registry.close()
        bench.ledger.close()

    asyncio.run(main())


def test_a_body_is_not_read_before_there_is_a_place(tmp_path: Path) -> None:
    async def talk(bench: Bench) -> None:
        bench.open_gate.clear()
        first = asyncio.create_task(bench.ask(bench.wish()))
        await bench.until(lambda: bench.came == 1)
        second = asyncio.create_task(bench.ask(b"{"))
        await bench.until(lambda: bench.in_flight == 2)
        assert bench.rows == [], "nobody knows yet that it is no JSON"
        bench.open_gate.set()
        assert [(await first)[0], (await second)[0]] == [200, 400]
        assert [row["class"] for row in bench.rows] == ["ok", "bad_request"]

    run(tmp_path, talk, max_concurrency=1)


def test_requests_in_flight_are_bounded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_IN_FLIGHT", 20_000)
    monkeypatch.setattr(gateway, "MAX_BODY", 10_000)

    async def talk(bench: Bench) -> None:
        large, packed = bench.wish(9000), gzip.compress(json.dumps(bench.wish(9000)).encode())
        assert len(packed) < 200
        bench.open_gate.clear()
        held = [asyncio.create_task(bench.ask(packed, **{"content-encoding": "gzip"})) for _ in range(2)]
        await bench.until(lambda: bench.came == 2)
        assert (await bench.ask(large))[:2] == (429, "budget")
        assert (await bench.ask(packed, **{"content-encoding": "gzip"}))[:2] == (429, "budget")
        small = asyncio.create_task(bench.ask(bench.wish()))
        await bench.until(lambda: bench.came == 3)
        bench.open_gate.set()
        assert [(await task)[0] for task in (*held, small)] == [200] * 3
        for _ in range(3):  # what was taken has been given back, also by refused calls
            assert (await bench.ask(packed, **{"content-encoding": "gzip"}))[0] == 200
            assert (await bench.ask(bench.wish(10_000)))[:2] == (413, "bad_request")
            broken = packed[:-9]
            assert (await bench.ask(broken, **{"content-encoding": "gzip"}))[:2] == (400, "bad_request")
        assert (await bench.ask(large))[0] == 200

    run(tmp_path, talk)


def test_a_grant_fills_the_exchange_log_only_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_STORED", 100_000)

    async def talk(bench: Bench) -> None:
        found = [await bench.ask(bench.wish(30_000, letter)) for letter in "abcdefgh"]
        assert [status for status, _, _ in found] == [200] * 4 + [403] * 4
        assert {kind for _, kind, _ in found[4:]} == {"budget"}
        assert len(list((bench.log / "blobs").iterdir())) == 4

    run(tmp_path, talk)


def test_small_messages_count_as_what_they_take_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_STORED", 100_000)

    async def talk(bench: Bench) -> None:
        messages = [{"role": "user", "content": str(number)} for number in range(30)]
        assert (await bench.ask({"model": "m", "messages": messages}))[0] == 200
        assert (await bench.ask(bench.wish()))[:2] == (403, "budget")

    run(tmp_path, talk)


def test_few_calls_wait_for_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_WAITING", 2)

    async def talk(bench: Bench) -> None:
        bench.open_gate.clear()
        tasks = [asyncio.create_task(bench.ask(bench.wish())) for _ in range(3)]
        await bench.until(lambda: bench.in_flight == 3)
        assert (await bench.ask(bench.wish()))[:2] == (429, "budget")
        tasks[2].cancel()
        await bench.until(lambda: bench.in_flight == 2)
        tasks[2] = asyncio.create_task(bench.ask(bench.wish()))
        await bench.until(lambda: bench.in_flight == 3)
        bench.open_gate.set()
        assert [(await task)[0] for task in tasks] == [200] * 3

    run(tmp_path, talk, max_concurrency=1)


def test_only_the_first_refusals_of_a_class_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_REFUSALS", 3)

    async def talk(bench: Bench) -> None:
        assert await bench.ask(bench.wish()) == (200, "ok", "")
        refused = [await bench.ask(b"{") for _ in range(6)]
        assert refused == [(400, "bad_request", "")] * 2 + [(400, "bad_request", "close")] * 4
        assert [row["class"] for row in bench.rows] == ["ok", *["bad_request"] * 3]
        assert [[error["message"] == FURTHER for error in row["errors"]] for row in bench.rows[1:]] == [
            [False], [False], [False, True],
        ]  # fmt: skip
        assert [row["notes"] for row in bench.exchanges] == [[], [], [], [FURTHER]]
        bench.miss = True
        misses = [await bench.ask(bench.wish()) for _ in range(5)]
        assert {status for status, _, _ in misses} == {409}
        bench.miss = False
        assert (await bench.ask(bench.wish()))[0] == 200
        assert [(await bench.ask(bench.wish()))[1] for _ in range(5)] == ["budget"] * 5
        written = [*["ok"], *["bad_request"] * 3, *["replay_miss"] * 3, "ok", *["budget"] * 3]
        assert [row["class"] for row in bench.rows] == written, "each class counts for itself, answers always"
        assert [row["class"] for row in bench.exchanges] == written

    run(tmp_path, talk, max_calls=7)


def test_calls_that_are_broken_off_before_they_are_read_count_as_refusals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call, "MAX_REFUSALS", 2)

    async def talk(bench: Bench) -> None:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {bench.grant.key}\r\n"
        for _ in range(4):
            _, writer = await asyncio.open_connection(bench.server.host, bench.server.port)
            writer.write(f"{head}content-length: 100\r\n\r\n{{".encode())
            await bench.until(lambda: bench.in_flight == 1)
            writer.close()
            await bench.until(lambda: bench.in_flight == 0)
        assert [row["class"] for row in bench.rows] == ["cancelled"] * 2

    run(tmp_path, talk)


def test_an_executor_has_a_bound_of_calls_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[GrantRequest] = []

    class Fake:
        def __init__(self, address: object) -> None:
            pass

        def grant(self, request: GrantRequest) -> Grant:
            asked.append(request)
            return Grant(id="g", key="k", model="m")

        def revoke(self, grant: Grant) -> None:
            pass

    monkeypatch.setattr(provisioning, "Gateway", Fake)
    model = SimpleNamespace(script=None, scripted=False, name="m", provider="p")
    settings = SimpleNamespace(secrets=lambda: ())
    spec: Any = SimpleNamespace(
        model=model, gateway="here", attempt_id="a", directory=tmp_path, played=None, run=settings
    )
    executor: Any = SimpleNamespace()
    task: Any = None
    with ExitStack() as stack:
        provisioning._grant(spec, task, executor, stack)
    assert [(request.max_concurrency, request.refuse_busy) for request in asked] == [(16, False)]


def test_the_pages_state_the_bounds() -> None:
    grants, calls = ((DOCS / name).read_text("utf-8") for name in ("gateway.md", "model-calls.md"))
    assert f"{provisioning.EXECUTOR_CALLS} calls at once" in grants
    stated = (
        f"{provisioning.EXECUTOR_CALLS} calls at once", f"{bounds.MAX_WAITING} more",
        f"{bounds.MAX_IN_FLIGHT >> 20} MiB", f"{bounds.MAX_STORED >> 30} GiB", f"first {bounds.MAX_REFUSALS} refusals",
    )  # fmt: skip
    assert [words for words in stated if words not in calls] == []
