"""Commands in a local sandbox: started through the holder, followed with a deadline, ended from the host."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.sandbox.base import Completed, Pulse, TurnLimits
from pytest_uniclaw.sandbox.local_holder import Holder
from pytest_uniclaw.sandbox.stream import HeadAndTail
from pytest_uniclaw.sandbox.turn import BoundedLog, Watchdog

CHUNK = 65536
TICK_SECONDS = 0.5
DRAIN_SECONDS = 0.2
"""How long output is awaited that a command's surviving children still hold the pipe for."""
SETTLE_SECONDS = 0.5
KILLED = 137
Watch = Callable[[float, float], Ending | None]


@contextmanager
def started(
    holder: Holder, command: Sequence[str], *, user: int, cwd: str, environment: Mapping[str, str],
    stdin: int = subprocess.DEVNULL, stderr: int = subprocess.STDOUT,
) -> Iterator[subprocess.Popen[bytes]]:  # fmt: skip
    """Start a command inside; its values travel in its environment only. Its process group ends with the block.

    Raises SandboxLost when PID 1 is gone, EngineError when the host cannot start it.
    """
    if not holder.alive():
        raise holder.lost()
    try:
        process = subprocess.Popen(
            holder.command(command, user, cwd), env=dict(environment), stdin=stdin, stdout=subprocess.PIPE,
            stderr=stderr, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise EngineError(f"the host could not start a command in the local sandbox: {error}") from error
    try:
        yield process
    finally:
        kill_group(process)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a command that still runs, with its process group; what left the group is the sweep's to find."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def follow(process: subprocess.Popen[bytes], sink: Callable[[bytes], None], watch: Watch, tick: float) -> Ending:
    """Pass output on until the command exits or ``watch(now, last output)`` ends it (asked every ``tick`` seconds)."""
    assert process.stdout is not None
    last_output = asked = time.monotonic()
    while True:
        now = time.monotonic()
        if now - asked >= tick:
            asked = now
            ending = watch(now, last_output)
            if ending is not None:
                return ending
        if select.select([process.stdout], [], [], tick)[0]:
            data = os.read(process.stdout.fileno(), CHUNK)
            if not data:
                return wait_for_exit(process, watch, last_output, tick)
            last_output = time.monotonic()
            sink(data)
        elif process.poll() is not None:
            drain(process, sink)
            return Ending.EXITED


def wait_for_exit(process: subprocess.Popen[bytes], watch: Watch, last_output: float, tick: float) -> Ending:
    """Wait for a command that has closed its output."""
    while True:
        try:
            process.wait(tick)
            return Ending.EXITED
        except subprocess.TimeoutExpired:
            ending = watch(time.monotonic(), last_output)
            if ending is not None:
                return ending


def drain(process: subprocess.Popen[bytes], sink: Callable[[bytes], None]) -> None:
    """Take what is left in the pipe of a command that ended."""
    assert process.stdout is not None
    while select.select([process.stdout], [], [], DRAIN_SECONDS)[0]:
        data = os.read(process.stdout.fileno(), CHUNK)
        if not data:
            return
        sink(data)


def exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """Return the exit status as a shell gives it: 128 and the signal for a killed command."""
    code = process.poll()
    return 128 - code if code is not None and code < 0 else code


def run_command(
    holder: Holder, command: Sequence[str], *, user: int, cwd: str, environment: Mapping[str, str], seconds: float
) -> Completed:
    """Run a command to its end or its deadline. Raises SandboxLost, EngineError."""
    began = time.monotonic()
    output = HeadAndTail()
    with started(holder, command, user=user, cwd=cwd, environment=environment) as process:
        ending = follow(
            process, output.write, lambda now, _: Ending.DEADLINE if now - began >= seconds else None,
            min(TICK_SECONDS, seconds),
        )  # fmt: skip
        code = exit_code(process)
    seconds = time.monotonic() - began
    raise_if_dead(holder, code)
    return Completed(ending, code if ending is Ending.EXITED else None, output.value(), seconds)


def run_turn(
    holder: Holder, command: Sequence[str], *, user: int, cwd: str, environment: Mapping[str, str], limits: TurnLimits,
    pulse: Callable[[], Pulse], sweep: Callable[[], None], log: Path,
) -> Completed:  # fmt: skip
    """Run the executor's command until it exits, the deadline or silence; see :meth:`Sandbox.turn`."""
    before = pulse().waited
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with (
        log.open("wb", buffering=0) as file,
        started(holder, command, user=user, cwd=cwd, environment=environment) as process,
    ):
        output = BoundedLog(file)
        watch = Watchdog(limits, pulse, lambda: None, began, before)
        tick = min(TICK_SECONDS, limits.seconds / 4, limits.silence / 4)
        ending = follow(process, output.write, watch, tick)
        seconds = time.monotonic() - began
        if ending is not Ending.EXITED:
            sweep()
            kill_group(process)
            drain(process, output.write)
        code = exit_code(process)
        output.close()
    raise_if_dead(holder, code)
    return Completed(ending, code, output.summary.value(), seconds)


def raise_if_dead(holder: Holder, code: int | None) -> None:
    """Raise SandboxLost when PID 1 is gone; that a killed command died with it shows a moment later."""
    if code == KILLED:
        with suppress(subprocess.TimeoutExpired):
            holder.process.wait(SETTLE_SECONDS)
    if not holder.alive():
        raise holder.lost()
