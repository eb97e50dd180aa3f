"""Whoever opens connections to the agents' socket and says nothing locks nobody out."""

from __future__ import annotations

import asyncio
import resource
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pytest_uniclaw.models import connections
from pytest_uniclaw.models.client import Gateway, GatewayAddress
from pytest_uniclaw.models.connections import (
    HEADER_SECONDS,
    MAX_CONNECTIONS,
    MAX_FILES,
    Connections,
    raise_file_limit,
)
from pytest_uniclaw.models.grants import GrantRequest
from tests.support.scripted_upstream import ask

pytestmark = pytest.mark.processes

FEW_FILES = 256
PARENT = f"""
import resource, sys
from pathlib import Path
from pytest_uniclaw.models.client import start_gateway
resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW_FILES // 2}, {FEW_FILES}))
process = start_gateway(Path(sys.argv[1]))
print(process.pid, process.address.agent_socket, process.address.admin_socket, flush=True)
sys.stdin.read()
"""
"""Starts a gateway that may open few files."""


class Site:
    """A site with few connections: ``/`` answers at once, ``/held`` when it is let go."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held = 0
        self.release = asyncio.Event()
        self.peers: list[Peer] = []
        self.open: Callable[[], int] = lambda: 0

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/", self._at_once)
        app.router.add_get("/held", self._later)
        return app

    async def _at_once(self, request: web.Request) -> web.Response:
        return web.Response(text="here")

    async def _later(self, request: web.Request) -> web.Response:
        self.held += 1
        await self.release.wait()
        return web.Response(text="let go")

    async def connect(self) -> Peer:
        self.peers.append(Peer(*await asyncio.open_unix_connection(str(self.path))))
        return self.peers[-1]

    async def close(self) -> None:
        for peer in self.peers:
            await peer.close()


class Peer:
    """A client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, path: str = "/") -> None:
        self.send(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()

    async def answer(self) -> bytes:
        """The body of the next answer, nothing when the connection is closed first."""
        async with asyncio.timeout(10):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = await self._reader.readline()
                if not line:
                    return b""
                head += line
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return await self._reader.readexactly(length)

    async def closed(self) -> bool:
        """Wait until the other side has closed it; whatever comes before that is no news."""
        async with asyncio.timeout(10):
            return await self._reader.read() == b""


def run(limit: int, talk: Callable[[Site], Coroutine[Any, Any, None]], seconds: float = 60.0) -> None:
    async def main(folder: Path) -> None:
        site, bound = Site(folder / "s"), Connections(limit, seconds)
        app = site.application()
        app.middlewares.insert(0, bound.middleware)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        server = await bound.listen(runner, site.path)
        site.open = lambda: len(runner.server.connections)
        async with asyncio.timeout(30):
            await talk(site)
        await site.close()
        server.close()
        await runner.cleanup()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder)))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def test_one_more_closes_the_one_that_has_been_without_a_request_for_longest() -> None:
    async def talk(site: Site) -> None:
        peers = [await site.connect() for _ in range(3)]
        for peer in reversed(peers):
            peer.ask()
            assert await peer.answer() == b"here"
        late = await site.connect()
        assert await peers[2].closed(), "it asked first, the others later"
        for peer in (late, peers[0], peers[1]):
            peer.ask()
            assert await peer.answer() == b"here"

    run(3, talk)


def test_a_request_in_progress_is_never_closed_and_a_flood_locks_nobody_out() -> None:
    async def talk(site: Site) -> None:
        working = await site.connect()
        working.ask("/held")
        await until(lambda: site.held == 1)
        idle = [await site.connect() for _ in range(50)]
        half = await site.connect()
        half.send(b"GET / HTTP/1.1\r\nhost:")
        other = await site.connect()
        other.ask()
        assert await other.answer() == b"here"
        assert [await peer.closed() for peer in idle[:47]] == [True] * 47
        site.release.set()
        assert await working.answer() == b"let go"
        working.ask()
        assert await working.answer() == b"here", "it is kept for the next request"

    run(4, talk)


def test_when_all_have_requests_the_new_one_is_closed() -> None:
    async def talk(site: Site) -> None:
        working = [await site.connect() for _ in range(2)]
        for peer in working:
            peer.ask("/held")
        await until(lambda: site.held == 2)
        assert await (await site.connect()).closed()
        site.release.set()
        assert [await peer.answer() for peer in working] == [b"let go"] * 2
        new = await site.connect()
        new.ask()
        assert await new.answer() == b"here"

    run(2, talk)


def test_ended_connections_do_not_count() -> None:
    async def talk(site: Site) -> None:
        kept = await site.connect()
        kept.ask()
        assert await kept.answer() == b"here"
        for path in ("/", "/held") * 5:
            other = await site.connect()
            other.ask(path)
            if path == "/":
                await other.answer()
            else:
                await until(lambda: site.held > 0)
                site.held = 0
            await other.close()
            await until(lambda: site.open() == 1)
        kept.ask()
        assert await kept.answer() == b"here"

    run(2, talk)


def test_a_connection_without_a_whole_header_is_closed() -> None:
    async def talk(site: Site) -> None:
        working = await site.connect()
        working.ask("/held")
        asked = await site.connect()
        asked.ask()
        assert await asked.answer() == b"here"
        silent, half = await site.connect(), await site.connect()
        half.send(b"GET / HTTP/1.1\r\nhost: x\r\n")
        assert await silent.closed()
        assert await half.closed()
        asked.ask()
        assert await asked.answer() == b"here", "one that has asked may be silent for long"
        site.release.set()
        assert await working.answer() == b"let go"

    run(10, talk, seconds=0.3)


@pytest.mark.parametrize(
    ("soft", "hard", "asked", "found"),
    [
        (1024, 4096, (4096, 4096), 4096),
        (1024, 1 << 30, (MAX_FILES, 1 << 30), MAX_FILES),
        (1024, resource.RLIM_INFINITY, (MAX_FILES, resource.RLIM_INFINITY), MAX_FILES),
        (4096, 4096, None, 4096),
        (1 << 20, 1 << 20, None, MAX_FILES),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, MAX_FILES),
    ],
)
def test_the_limit_of_open_files_is_raised(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, asked: tuple[int, int] | None, found: int
) -> None:
    wishes: list[tuple[int, int]] = []
    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(connections.resource, "setrlimit", lambda _, limits: wishes.append(limits))
    assert raise_file_limit() == found
    assert wishes == ([asked] if asked else [])


def test_a_system_that_allows_less_than_its_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(connections.resource, "getrlimit", lambda _: (256, resource.RLIM_INFINITY))
    monkeypatch.setattr(connections.resource, "setrlimit", refuse)
    assert raise_file_limit() == 256


def test_the_gateway_raises_its_own_limit(tmp_path: Path) -> None:
    with gateway_with_few_files(tmp_path) as (pid, _):
        limits = Path(f"/proc/{pid}/limits").read_text("utf-8")
    (line,) = [line for line in limits.splitlines() if line.startswith("Max open files")]
    assert line.split()[3:5] == [str(FEW_FILES)] * 2


@contextmanager
def gateway_with_few_files(folder: Path) -> Iterator[tuple[str, GatewayAddress]]:
    command = [sys.executable, "-c", PARENT, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, *sockets = parent.stdout.readline().split()
        yield pid, GatewayAddress(*map(Path, sockets))
        assert parent.stdin is not None
        parent.stdin.close()


def test_more_silent_connections_than_files_stop_neither_admin_nor_agents(tmp_path: Path) -> None:
    script = tmp_path / "model.yaml"
    script.write_text("turns:\n  - - say: still here\n", "utf-8")
    with gateway_with_few_files(tmp_path) as (_, address):
        gateway = Gateway(address)
        asked = {"attempt": "a", "role": "executor", "model": "m", "provider": "script", "script": script}
        grant = gateway.grant(GrantRequest(**asked, log=tmp_path / "log"))
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        with flood(address.agent_socket, FEW_FILES + 100):
            assert gateway.calls("a") == []
            assert ask(address.agent_socket, grant.key, body).said == "still here"
            assert [call.call_class for call in gateway.calls("a")] == ["ok"]
    assert (tmp_path / "gateway.log").read_bytes() == b""


@contextmanager
def flood(path: Path, number: int) -> Iterator[None]:
    """Hold so many silent connections; begin when the gateway has taken the last one in."""
    opened: list[socket.socket] = []
    try:
        for _ in range(number):
            opened.append(silent := socket.socket(socket.AF_UNIX))
            # As a deadline for a connect that blocks; a socket with a time-out would not wait for a full queue.
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", 10, 0))
            silent.connect(str(path))
        last_closed = opened[number - FEW_FILES // 2 - 1]
        last_closed.settimeout(10)
        assert last_closed.recv(1) == b""
        yield
    finally:
        for silent in opened:
            silent.close()


def test_the_page_states_the_bounds() -> None:
    page = (Path(__file__).parents[1] / "docs" / "reference" / "model-calls.md").read_text("utf-8")
    stated = (f"together: {MAX_CONNECTIONS}", f"up to {MAX_FILES}", f"after {HEADER_SECONDS:g} seconds")
    assert [words for words in stated if words not in page] == []
