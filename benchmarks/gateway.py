"""Print what the model gateway costs, and the targets it is held to: ``python benchmarks/gateway.py [--short]``.

The real gateway process is pinned to one core; a scripted provider and the clients run on the others. Every event of a
stream arrives on its own, as from a real provider: the dearest case. Exit status 1 when a target is missed; the short
form, for machines that do other things too, allows twice the target for times.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import GrantRequest, Provider

STREAMS = 64
"""Streams at the same time."""
EVENTS = 100
PACE = 0.02
"""Seconds between two events of a stream."""
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
SYSTEM = "You are an agent with tools. " * 100
TOOL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}


@dataclass(frozen=True)
class Size:
    """How much is measured: streams in all, and requests per kind of latency."""

    streams: int
    requests: int


@dataclass(frozen=True)
class Figure:
    """One line of the report; ``limit`` is the target, ``least`` says that more is better."""

    title: str
    value: float
    unit: str
    limit: float | None = None
    least: bool = False
    is_time: bool = True

    def holds(self, slack: float) -> bool:
        """Return whether the target is met, a time's with slack."""
        if self.limit is None:
            return True
        slack = slack if self.is_time else 1.0
        return self.value * slack >= self.limit if self.least else self.value <= self.limit * slack

    def line(self) -> str:
        """Return the line as text."""
        target = "" if self.limit is None else f"   target {'≥' if self.least else '≤'} {self.limit:g}"
        return f"{self.title:52}{self.value:>10.2f} {self.unit}{target}"


@contextmanager
def provider_process(cores: set[int]) -> Iterator[int]:
    """Start the scripted provider; yields its port."""
    command = [sys.executable, str(Path(__file__).with_name("upstream.py")), str(EVENTS), str(PACE)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        os.sched_setaffinity(process.pid, cores)
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def request(path: str, key: str, body: dict[str, object]) -> bytes:
    """Return an HTTP request as bytes."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(data) + data


def chat_body(*, stream: bool) -> dict[str, object]:
    """Return a chat request of some 4 kB with a tool."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Write the report, please."}]
    tools = [{"type": "function", "function": {"name": "exec", "description": "run it", "parameters": TOOL}}]
    return {"model": "m", "messages": messages, "tools": tools, "stream": stream}


def responses_body(*, stream: bool) -> dict[str, object]:
    """Return the same request on the responses wire."""
    messages = [{"role": "user", "content": [{"type": "input_text", "text": "Write the report, please."}]}]
    tools = [{"type": "function", "name": "exec", "description": "run it", "parameters": TOOL, "strict": False}]
    return {"model": "m", "instructions": SYSTEM, "input": messages, "tools": tools, "stream": stream, "store": False}


async def run_streams(path: Path, asked: bytes, total: int) -> int:
    """Run ``total`` streams, 64 at a time; returns how many events came back."""
    numbers = itertools.count()

    async def client() -> int:
        events = 0
        reader, writer = await asyncio.open_unix_connection(str(path))
        while next(numbers) < total:
            writer.write(asked)
            events += await read_stream(reader)
        writer.close()
        return events

    return sum(await asyncio.gather(*(client() for _ in range(STREAMS))))


async def read_stream(reader: asyncio.StreamReader) -> int:
    """Read one answer to its end; returns its events."""
    events, tail = 0, b""
    while not tail.endswith(b"0\r\n\r\n"):
        data = await reader.read(65536)
        if not data:
            raise RuntimeError("the gateway closed a stream")
        events += data.count(b"data: ")
        tail = (tail + data)[-5:]
    return events


def latencies(connect: Callable[[], socket.socket], asked: bytes, count: int) -> list[float]:
    """Return milliseconds of ``count`` requests one after another on one connection."""
    found = []
    with connect() as connection:
        for _ in range(count):
            began = time.perf_counter()
            connection.sendall(asked)
            status = read_whole(connection)
            found.append((time.perf_counter() - began) * 1000)
            if status != 200:
                raise RuntimeError(f"a request was answered {status}")
    return found


def read_whole(connection: socket.socket) -> int:
    """Read one answer with a length; returns its status."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return int(head[9:12])


def unix(path: Path) -> socket.socket:
    """Return a connection to the agents' socket."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(path))
    return connection


def cpu_seconds(pid: int) -> float:
    """Return user and system seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_peak(pid: int) -> float:
    """Return the largest resident size of a process in MB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM"))) / 1024


def measure_streams(process: GatewayProcess, key: str, size: Size) -> list[Figure]:
    """Measure streams on a fresh gateway; events are counted as the provider sends them."""
    started = resident_peak(process.pid)
    used, wall = stream_cost(process, request(CHAT, key, chat_body(stream=True)), size)
    peak, bridged = resident_peak(process.pid), request(RESPONSES, key, responses_body(stream=True))
    events = size.streams * EVENTS
    return [
        Figure("chat: stream events per CPU second", events / used, "events/s", 8000, least=True),
        Figure("  microseconds of CPU per event", used / events * 1e6, "µs"),
        Figure("  share of its core", used / wall * 100, "%"),
        Figure("resident peak at 64 streams", peak, "MB", 60, is_time=False),
        Figure("  resident peak before", started, "MB"),
        Figure("responses: stream events per CPU second", events / stream_cost(process, bridged, size)[0], "events/s"),
    ]


def stream_cost(process: GatewayProcess, asked: bytes, size: Size) -> tuple[float, float]:
    """Return CPU seconds of the gateway and wall seconds of all streams; each has at least the provider's events."""
    before, began = cpu_seconds(process.pid), time.monotonic()
    events = asyncio.run(run_streams(process.address.agent_socket, asked, size.streams))
    used, wall = cpu_seconds(process.pid) - before, time.monotonic() - began
    if events < size.streams * EVENTS:  # a chat has no usage event that it did not ask for, and [DONE] more
        raise RuntimeError(f"{events} events came back of {size.streams * EVENTS}")
    return used, wall


def measure_latency(process: GatewayProcess, key: str, port: int, size: Size) -> list[Figure]:
    """Measure what the gateway adds to a whole answer; direct and through it in turn."""
    socket_path = process.address.agent_socket
    direct = request(CHAT, "none", chat_body(stream=False))
    asked = {
        "chat": (request(CHAT, key, chat_body(stream=False)), 5.0),
        "responses": (request(RESPONSES, key, responses_body(stream=False)), 10.0),
    }
    times: dict[str, list[float]] = {name: [] for name in ("direct", *asked)}
    for _ in range(10):
        times["direct"] += latencies(lambda: socket.create_connection(("127.0.0.1", port)), direct, size.requests // 10)
        for name, (data, _) in asked.items():
            times[name] += latencies(lambda: unix(socket_path), data, size.requests // 10)
    floor = percentiles(times.pop("direct"))
    figures = [Figure("whole answer without gateway, p50", floor[0], "ms"), Figure("  p99", floor[1], "ms")]
    for name, found in times.items():
        middle, high = percentiles(found)
        figures.append(Figure(f"{name}: added latency of a whole answer, p50", middle - floor[0], "ms", asked[name][1]))
        figures.append(Figure(f"{name}: added latency of a whole answer, p99", high - floor[1], "ms"))
    return figures


def percentiles(values: list[float]) -> tuple[float, float]:
    """Return p50 and p99."""
    cuts = statistics.quantiles(values, n=100)
    return cuts[49], cuts[98]


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few seconds, and twice the time where time is limited")
    short = parser.parse_args().short
    size = Size(STREAMS, 300) if short else Size(3 * STREAMS, 2000)
    cores = sorted(os.sched_getaffinity(0))
    others = set(cores[1:]) or set(cores)
    os.sched_setaffinity(0, others)
    with tempfile.TemporaryDirectory(prefix="uniclaw-benchmark-") as folder, provider_process(others) as port:
        provider = Provider(name="real", base_url=f"http://127.0.0.1:{port}/v1", api_key="sk-benchmark-key")
        with start_gateway(Path(folder) / "models", [provider]) as process:
            os.sched_setaffinity(process.pid, {cores[0]})
            log = Path(folder) / "log"
            asked = GrantRequest(attempt="a", role="executor", model="m", provider="real", log=log)
            key = Gateway(process.address).grant(asked).key
            figures = measure_streams(process, key, size) + measure_latency(process, key, port, size)
    for figure in figures:
        print(figure.line())
    missed = [figure.title for figure in figures if not figure.holds(2.0 if short else 1.0)]
    if missed:
        print(f"MISSED: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
