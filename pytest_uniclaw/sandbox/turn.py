"""One turn of the executor: its command, its log, and the watch that ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.sandbox.base import MIB, Completed, Pulse, TurnLimits
from pytest_uniclaw.sandbox.engine import Container
from pytest_uniclaw.sandbox.exec import Running, follow, prepare, started
from pytest_uniclaw.sandbox.stream import HeadAndTail

LOG_BYTES = 64 * MIB
TICK_SECONDS = 1.0
DRAIN_SECONDS, DRAIN_QUIET_SECONDS = 2.0, 0.2
SETTLE_SECONDS = 0.5
KILLED = 137


@dataclass
class Watchdog:
    """Decides when a turn is over that does not end by itself. All times are monotonic seconds.

    ``guard`` raises when the sandbox must end at once (the disk). Waiting for the provider that happens during the
    turn extends its deadline, by at most ``limits.max_waiting``.
    """

    limits: TurnLimits
    pulse: Callable[[], Pulse]
    guard: Callable[[], None]
    began: float
    waited_before: float = field(default=0.0)

    def __call__(self, now: float, last_output: float) -> Ending | None:
        """Return the ending that is due, None while the turn may go on."""
        self.guard()
        pulse = self.pulse()
        waiting = min(max(pulse.waited - self.waited_before, 0.0), self.limits.max_waiting)
        if now - self.began >= self.limits.seconds + waiting:
            return Ending.DEADLINE
        quiet = now - max(last_output, self.began)
        if pulse.idle is not None:
            quiet = min(quiet, pulse.idle)
        if not pulse.busy and quiet >= self.limits.silence:
            return Ending.SILENCE
        return None


@dataclass
class BoundedLog:
    """Writes the head of a stream to a file, at most ``limit`` bytes, and keeps a summary in memory."""

    file: BinaryIO
    limit: int = LOG_BYTES
    summary: HeadAndTail = field(default_factory=HeadAndTail)

    def write(self, data: bytes) -> None:
        """Add output."""
        room = self.limit - self.summary.total
        self.summary.write(data)
        if room > 0:
            self.file.write(data[:room])

    def close(self) -> None:
        """Say in the file how much of the stream it does not hold."""
        missing = self.summary.total - self.limit
        if missing > 0:
            self.file.write(b"\n[... %d more bytes were not logged ...]\n" % missing)


def run_turn(
    container: Container, command: Sequence[str], *, user: str, cwd: str, environment: Mapping[str, str],
    limits: TurnLimits, pulse: Callable[[], Pulse], guard: Callable[[], None], sweep: Callable[[], None], log: Path,
) -> Completed:
    """Run the executor's command until it exits, the deadline or silence; see :meth:`Sandbox.turn`.

    A turn that was ended has no exit code.

    Raises:
        SandboxLost: the container died, or filled the disk.
        EngineError: the engine does not answer, or lost the connection to the command.
    """
    before = pulse().waited
    prepared = prepare(container, command, user=user, cwd=cwd, environment=environment, guarded=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("wb", buffering=0) as file, started(prepared) as running:
        output = BoundedLog(file)
        watch = Watchdog(limits, pulse, guard, began, before)
        tick = min(TICK_SECONDS, limits.seconds / 4, limits.silence / 4)
        ending = follow(running, output.write, watch, tick)
        seconds = time.monotonic() - began
        code = None
        if ending is Ending.EXITED:
            code = running.exit_code()
        else:
            sweep()
            drain(running, output.write)
        output.close()
    if code == KILLED or (ending is Ending.EXITED and running.command.ended.code is None):
        raise_if_dying(container)
    return Completed(ending, code, output.summary.value(), seconds)


def drain(running: Running, sink: Callable[[bytes], None]) -> None:
    """Take the output that the killed processes left in the pipe."""
    end = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < end:
        data = running.read(DRAIN_QUIET_SECONDS)
        if not data:
            return
        sink(data)


def raise_if_dying(container: Container) -> None:
    """Raise SandboxLost when a killed command turns out to have died with its container, which shows a moment later."""
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        lost = container.death()
        if lost:
            raise lost
        if time.monotonic() > end:
            return
        time.sleep(0.02)


__all__ = ["Watchdog", "run_turn"]
