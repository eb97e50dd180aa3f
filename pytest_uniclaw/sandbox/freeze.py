"""Freezing a container for collection, and sweeping what an executor left running (design invariant 4)."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from pytest_uniclaw.errors import EngineError, SandboxLost
from pytest_uniclaw.sandbox import cgroup
from pytest_uniclaw.sandbox.base import Completed
from pytest_uniclaw.sandbox.engine import Container, address, failures

SWEEP = ("/usr/bin/python3", "-I", "-S", "/opt/uniclaw/sweep.py")
SWEEP_SECONDS = 10.0
FREEZE_TRIES = 4
FORCE_SECONDS = 5.0
PS = "-o pid,ppid,sess,uid,stat,lstart"


@contextmanager
def frozen(container: Container) -> Iterator[None]:
    """Hold every process of the container still inside the block; a dead container is still enough already.

    Raises:
        EngineError: the engine could not freeze or thaw it.
        SandboxLost: the container is gone.
    """
    alive = freeze(container)
    try:
        yield
    finally:
        if alive:
            with container.calls("thaw the sandbox"):
                container.api.unpause(container.name)


def freeze(container: Container) -> bool:
    """Pause the container; False when it is dead, which is as still.

    Processes that fork without end can outrun the kernel's freezer, so an engine that answers but cannot freeze is
    the executor's doing and costs it the container.
    """
    for attempt in range(FREEZE_TRIES):
        try:
            container.api.pause(container.name)
            return True
        except failures() as error:
            record = container.state()
            if record is None:
                raise container.diagnose("freeze the sandbox", error) from error
            if not record["State"]["Running"]:
                return False
            if record["State"]["Paused"]:
                return True
        time.sleep(0.05 * attempt)
    raise kill(container, "the executor's processes could not be frozen, so its sandbox was killed")


def kill(container: Container, why: str) -> SandboxLost:
    """Kill the container and return the error that says why."""
    with suppress(*failures()):
        container.api.kill(container.name, signal="SIGKILL")
    return SandboxLost(why, cause="killed")


@dataclass(frozen=True)
class HostProcess:
    """A process as the engine's host sees it; ``start`` tells two uses of a pid apart, ``state`` is that of ``ps``."""

    pid: int
    parent: int
    session: int
    uid: int
    state: str
    start: str

    def lives(self) -> bool:
        """Tell whether a thread of it can still run; its first one may have ended before the others."""
        return self.state[0] not in "ZX" or "l" in self.state


def host_processes(container: Container) -> list[HostProcess]:
    """Ask the engine's host, which an executor cannot deceive, for the processes of the container."""
    with container.calls("list the sandbox's processes"):
        rows = container.api.top(container.name, PS)["Processes"] or []
    return [HostProcess(int(r[0]), int(r[1]), int(r[2]), int(r[3]), r[4], r[5]) for r in rows]


@dataclass
class Sweeper:
    """Kills what is not in the service set. ``uid`` is the executor's, None when that is root.

    ``run`` runs a command as root inside. The set is kept twice: by the pids of the container, for the sweep inside,
    and by those of the host, for the check from outside.
    """

    container: Container
    uid: int | None
    run: Callable[[Sequence[str], float], Completed]
    inside: tuple[tuple[int, int], ...] = ()
    outside: frozenset[tuple[int, str]] = field(default_factory=frozenset)

    def keep(self) -> None:
        """Make what runs now the service set. Raises EngineError or SandboxLost."""
        listed = self.run([*SWEEP, "--list"], SWEEP_SECONDS)
        if listed.exit_code != 0:
            raise EngineError(f"the sandbox's processes could not be listed: {listed.output[-500:]!r}")
        found = json.loads(listed.output)
        self.inside = tuple((p["pid"], p["start"]) for p in found if p["pid"] != 1 and "sweep.py" not in p["cmd"])
        self.outside = frozenset((p.pid, p.start) for p in host_processes(self.container))

    def sweep(self) -> None:
        """Kill until nothing is left, from inside, else from the host, else with the whole container.

        Raises:
            SandboxLost: the container had to be killed (cause ``killed``), or is gone.
            EngineError: the engine does not answer.
        """
        command = [*SWEEP]
        if self.inside:
            command += ["--keep", ",".join(f"{pid}:{start}" for pid, start in self.inside)]
        if self.uid is not None:
            command += ["--uid", str(self.uid)]
        done = self.run(command, SWEEP_SECONDS)
        # A root executor may have replaced what ran inside, so its word is not taken for it.
        if done.exit_code == 0 and (self.uid is not None or not self.leftovers()):
            return
        self.force()

    def leftovers(self) -> list[HostProcess]:
        """Return what should be dead, as the host sees it."""
        with self.container.calls("look at the sandbox"):
            first = self.container.api.inspect_container(self.container.name)["State"]["Pid"]
        found = {p.pid: p for p in host_processes(self.container)}
        kept = {p.pid for p in found.values() if (p.pid, p.start) in self.outside}
        sessions = {found[pid].session for pid in kept if pid != first} - {0}
        spared = kept | {p.pid for p in found.values() if p.session in sessions}
        while more := {p.pid for p in found.values() if p.parent in spared - {first}} - spared:
            spared |= more
        return [
            p for p in found.values()
            if p.pid != first and p.pid not in spared and p.lives() and self.uid in (None, p.uid)
        ]

    def force(self) -> None:
        """Kill from the host, while nothing in the container can fork; where that fails, kill the container."""
        with self.container.calls("look at the sandbox"):
            record = self.container.api.inspect_container(self.container.name)
        self.limit_processes(1)
        here = cgroup.holds(record["Id"], record["State"]["Pid"])
        end = time.monotonic() + FORCE_SECONDS
        while time.monotonic() < end:
            left = self.leftovers()
            if not left:
                self.limit_processes(record["HostConfig"]["PidsLimit"])
                return
            if not here or not all(kill_from_host(p.pid, record["Id"]) for p in left):
                break
            time.sleep(0.02)
        raise kill(self.container, "the executor's processes could not be stopped, so its sandbox was killed")

    def limit_processes(self, number: int) -> None:
        """Set how many processes the container may have; those above stay, but none can fork."""
        api = self.container.api
        with self.container.calls("limit the sandbox's processes"):
            response = api.post(
                address(api, f"/containers/{self.container.name}/update"), json={"PidsLimit": number},
                timeout=api.timeout,
            )
            api._raise_for_status(response)  # type: ignore[attr-defined]


def kill_from_host(pid: int, container: str) -> bool:
    """Kill a process of a container of this machine, given by its full id; False when this account may not.

    One that is not in the container any more is ending: the engine's next list tells whether it did.
    """
    if not cgroup.holds(container, pid):
        return True
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return True


__all__ = ["Sweeper", "frozen", "host_processes"]
