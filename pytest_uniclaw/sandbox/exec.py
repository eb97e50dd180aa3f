"""Commands in a container: a stream that can be waited on with a deadline, which the SDK's own cannot."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.sandbox.base import MIB
from pytest_uniclaw.sandbox.engine import Container, address, is_missing

OUTPUT_BYTES = MIB
HEADER = struct.Struct(">BxxxL")
RECEIVE_BYTES = 65536
HEARTBEAT_SECONDS = 5.0
"""How often a silent command is asked for: an engine that hangs is found out, and an exit without end of stream."""


@dataclass
class HeadAndTail:
    """Keeps the first and the last half of ``limit`` bytes and counts what lay between."""

    limit: int = OUTPUT_BYTES
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    total: int = 0

    def write(self, data: bytes) -> None:
        """Add output."""
        self.total += len(data)
        room = self.limit // 2 - len(self.head)
        self.head += data[:room] if room > 0 else b""
        self.tail += data[max(room, 0):]
        if len(self.tail) > 2 * self.limit:
            del self.tail[:-(self.limit // 2)]

    def value(self) -> bytes:
        """Return what was kept, with a line that counts what was left out."""
        half = self.limit // 2
        missing = self.total - len(self.head) - min(len(self.tail), half)
        gap = b"\n[... %d bytes left out ...]\n" % missing if missing else b""
        return bytes(self.head) + gap + bytes(self.tail[-half:] if half else b"")


class Frames:
    """Takes the engine's multiplexed stream apart: stdout and stderr in the order in which they came."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def feed(self, data: bytes) -> bytes:
        """Return the payload of ``data``; an incomplete frame's part is returned as well, headers are not."""
        self.buffer += data
        out = bytearray()
        while len(self.buffer) >= HEADER.size:
            _, size = HEADER.unpack_from(self.buffer)
            if size == 0:
                del self.buffer[:HEADER.size]
                continue
            have = len(self.buffer) - HEADER.size
            out += self.buffer[HEADER.size:HEADER.size + size]
            if have >= size:
                del self.buffer[:HEADER.size + size]
            elif have:
                self.buffer[:] = HEADER.pack(1, size - have)
                break
            else:
                break
        return bytes(out)


@dataclass
class Running:
    """A started command and the connection its output comes on."""

    container: Container
    exec_id: str
    connection: socket.socket
    frames: Frames
    early: bytes

    def read(self, seconds: float) -> bytes | None:
        """Return output, ``b""`` at the end of the stream, None when nothing came within ``seconds``."""
        data, self.early = self.early, b""
        if not data:
            poll = select.poll()
            poll.register(self.connection, select.POLLIN | select.POLLHUP | select.POLLERR)
            if not poll.poll(max(seconds, 0.0) * 1000):
                return None
            received = receive(self.connection)
            if not received:
                return received
            data = received
        return self.frames.feed(data) or None

    def status(self) -> tuple[bool, int | None]:
        """Return whether the command runs, and its exit status once it does not.

        Raises:
            EngineError: the engine does not answer.
            SandboxLost: the container died.
        """
        with self.container.calls("look at a command"):
            record = self.container.api.exec_inspect(self.exec_id)
        return bool(record["Running"]), record["ExitCode"]


def receive(connection: socket.socket) -> bytes | None:
    """Read what is there, None when that is nothing yet; a broken connection reads as its end."""
    try:
        return connection.recv(RECEIVE_BYTES)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    except OSError:
        return b""


def create(
    container: Container, command: Sequence[str], *, user: str, cwd: str | None, environment: Mapping[str, str],
) -> str:
    """Define a command in the container and return its id; values travel in its own environment only."""
    with container.calls("start a command"):
        made = container.api.exec_create(
            container.name, list(command), user=user, workdir=cwd, environment=dict(environment),
        )
    return str(made["Id"])


def start_detached(container: Container, exec_id: str) -> None:
    """Start a command and let it go."""
    with container.calls("start a background command"):
        container.api.exec_start(exec_id, detach=True)


@contextmanager
def started(container: Container, exec_id: str) -> Iterator[Running]:
    """Start a command and yield it; the connection is closed at the end, the command is not."""
    with container.calls("start a command"):
        response = container.api.post(
            address(container.api, f"/exec/{exec_id}/start"), json={"Detach": False, "Tty": False},
            headers={"Connection": "Upgrade", "Upgrade": "tcp"}, stream=True, timeout=container.api.timeout,
        )
        container.api._raise_for_status(response)  # type: ignore[attr-defined]
        connection, early = take_over(container.api, response)
    try:
        yield Running(container, exec_id, connection, Frames(), early)
    finally:
        response.close()


def take_over(api: Any, response: Any) -> tuple[socket.socket, bytes]:
    """Return the raw connection below a response, and what was read ahead of it with the headers.

    The SDK drops the bytes read ahead, which loses output and the frame boundary on a busy machine.
    """
    connection = api._get_raw_response_socket(response)
    connection = getattr(connection, "_sock", connection)
    connection.settimeout(0)
    buffered = response.raw._fp.fp
    ahead = buffered.peek(1)
    return connection, buffered.read1(len(ahead)) if ahead else b""


Watch = Callable[[float, float], Ending | None]
"""Called with the time and the time of the last output, both monotonic; a returned ending ends the command."""


def follow(running: Running, sink: Callable[[bytes], None], watch: Watch, tick: float) -> Ending:
    """Pass the output on until the command exits or the watch ends it; the watch is asked every ``tick`` seconds.

    Returns:
        EXITED, or what the watch said.
    """
    last_output = asked = checked = time.monotonic()
    while True:
        now = time.monotonic()
        if now - asked >= tick:
            asked = now
            ending = watch(now, last_output)
            if ending is not None:
                return ending
        data = running.read(asked + tick - now)
        if data == b"":
            return Ending.EXITED
        if data:
            last_output = time.monotonic()
            sink(data)
        elif now - max(last_output, checked) >= HEARTBEAT_SECONDS:
            checked = time.monotonic()
            if not running.status()[0]:
                return Ending.EXITED


def exit_code(running: Running, seconds: float = 10.0) -> int | None:
    """Return the exit status of a command whose stream has ended; None when the engine does not settle in time.

    Raises:
        EngineError: the engine does not answer.
        SandboxLost: the container died with the command.
    """
    end = time.monotonic() + seconds
    pause = 0.005
    while True:
        active, code = running.status()
        if not active and code is not None:
            return code
        if time.monotonic() > end:
            return None
        lost = running.container.death()
        if lost:
            raise lost
        time.sleep(pause)
        pause = min(2 * pause, 0.2)


__all__ = [
    "Frames", "HeadAndTail", "Running", "create", "exit_code", "follow", "is_missing", "start_detached", "started",
]
