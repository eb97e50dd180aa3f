"""Commands in a container: a stream that can be waited on with a deadline, which the SDK's own cannot."""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.sandbox.engine import Container, address, failures
from pytest_uniclaw.sandbox.stream import MARK_VARIABLE, Ended, Frames, switched

RECEIVE_BYTES = 65536
HEARTBEAT_SECONDS = 5.0
"""How often a silent command is asked for: an engine that hangs is found out, and an exit without end of stream."""
THAW_SECONDS = 5.0
"""How long the engine may take to notice that a container was thawed."""
SETTLE_SECONDS = 10.0
ROOT = "0:0"


@dataclass(frozen=True)
class Command:
    """A command that the engine knows and that is not started yet; ``ended`` recognises its end."""

    container: Container
    exec_id: str
    ended: Ended


def prepare(
    container: Container, command: Sequence[str], *, user: str, cwd: str, environment: Mapping[str, str],
    stdin: bool = False, guarded: bool = False,
) -> Command:
    """Define a command; the values of its environment are seen by it alone, not by who inspects the container.

    With ``stdin`` its standard input is what :meth:`Running.send` sends, which never ends. With ``guarded`` no other
    account than root can forge its end; the container's root must be able to switch accounts. ``user`` is uid:gid.
    """
    ended = Ended()
    if guarded and user != ROOT:
        command, environment = switched(command, environment, user.partition(":")[0])
        user = ROOT
    variables = {**environment, MARK_VARIABLE: ended.mark}
    return Command(container, define(container, ended.wrap(command), user, cwd, variables, stdin), ended)


def define(
    container: Container, command: list[str], user: str, cwd: str, environment: Mapping[str, str], stdin: bool = False,
) -> str:
    """Create an exec and return its id.

    A busy engine may take a thawed container for a paused one until its own late event of the pause is followed by
    that of the thaw: so a refusal is asked again while the record says paused.
    """
    end = time.monotonic() + THAW_SECONDS
    while True:
        try:
            made = container.api.exec_create(
                container.name, command, user=user, workdir=cwd, environment=dict(environment), stdin=stdin,
            )
            return str(made["Id"])
        except failures() as error:
            record = container.state()
            if record is None or not record["State"]["Paused"] or time.monotonic() > end:
                raise container.diagnose("start a command", error) from error
        time.sleep(0.05)


def detach(
    container: Container, command: Sequence[str], *, user: str, cwd: str, environment: Mapping[str, str],
) -> None:
    """Start a command and let it go."""
    exec_id = define(container, list(command), user, cwd, environment)
    with container.calls("start a background command"):
        container.api.exec_start(exec_id, detach=True)


@dataclass
class Running:
    """A started command and the connection its output comes on."""

    command: Command
    connection: socket.socket
    early: bytes
    frames: Frames = field(default_factory=Frames)

    def send(self, data: bytes, seconds: float) -> None:
        """Write to the command's standard input, within ``seconds``. Raises EngineError and SandboxLost."""
        with self.command.container.calls("write to a command"):
            self.connection.settimeout(seconds)
            self.connection.sendall(data)
            self.connection.settimeout(0)

    def read(self, seconds: float) -> bytes | None:
        """Return output, ``b""`` at the command's end, None when nothing came within ``seconds``."""
        if self.command.ended.code is not None:
            return b""
        data, self.early = self.early, b""
        if not data:
            poll = select.poll()
            poll.register(self.connection, select.POLLIN | select.POLLHUP | select.POLLERR)
            if not poll.poll(max(seconds, 0.0) * 1000):
                return None
            received = receive(self.connection)
            if not received:
                return self.command.ended.rest() if received == b"" else None
            data = received
        output = self.command.ended.feed(self.frames.feed(data))
        return output or (b"" if self.command.ended.code is not None else None)

    def status(self) -> tuple[bool, int | None]:
        """Return whether the command runs, and its exit status once it does not.

        Raises:
            EngineError: the engine does not answer.
            SandboxLost: the container died.
        """
        container = self.command.container
        with container.calls("look at a command"):
            record = container.api.exec_inspect(self.command.exec_id)
        return bool(record["Running"]), record["ExitCode"]

    def exit_code(self) -> int | None:
        """Return the exit status of a command whose output ended; None when the engine does not settle in time.

        Raises:
            EngineError: the engine does not answer, or the connection broke and the command lives on.
            SandboxLost: the container died with the command.
        """
        end = time.monotonic() + SETTLE_SECONDS
        pause = 0.005
        while self.command.ended.code is None:
            active, code = self.status()
            if not active and code is not None:
                return code
            lost = self.command.container.death()
            if lost:
                raise lost
            if time.monotonic() > end:
                if active:
                    raise EngineError("the connection to a command broke while it ran")
                return None
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
        return self.command.ended.code


def receive(connection: socket.socket) -> bytes | None:
    """Read what is there, None when that is nothing yet; a broken connection reads as its end."""
    try:
        return connection.recv(RECEIVE_BYTES)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    except OSError:
        return b""


@contextmanager
def started(command: Command) -> Iterator[Running]:
    """Start a command and yield it; the connection is closed at the end, the command is not."""
    api = command.container.api
    with command.container.calls("start a command"):
        response = api.post(
            address(api, f"/exec/{command.exec_id}/start"), json={"Detach": False, "Tty": False},
            headers={"Connection": "Upgrade", "Upgrade": "tcp"}, stream=True, timeout=api.timeout,
        )
        api._raise_for_status(response)  # type: ignore[attr-defined]
        connection, early = take_over(api, response)
    try:
        yield Running(command, connection, early)
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


__all__ = ["Command", "Running", "detach", "follow", "prepare", "started"]
