"""The local sandbox: namespaces of this machine, for trusted agents only, where no container engine can be had.

It has the paths, accounts and lack of network of a Docker sandbox, but the host's programs, and it bounds neither
memory nor CPU. It is not isolation from a hostile executor: only the oracle and the nop agent run in it unless the
operator asks. Without root on the host every account inside is the same one, so a service's files are not hidden.
"""

from __future__ import annotations

import hashlib
import os
import platform
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO

from pytest_uniclaw.attempt import Ending, Manifest
from pytest_uniclaw.errors import EngineError, InfraError, SandboxLost, SettingsError, UniclawError
from pytest_uniclaw.paths import SandboxPaths, paths_for, scratch_prefix
from pytest_uniclaw.sandbox import grading, provision
from pytest_uniclaw.sandbox.archive import account_id, pack
from pytest_uniclaw.sandbox.base import (
    CollectLimits,
    Completed,
    Entry,
    GradingJob,
    GradingOutput,
    Pulse,
    Sandbox,
    SandboxSpec,
    TurnLimits,
    Vitals,
    Workspace,
    WorkspaceJob,
)
from pytest_uniclaw.sandbox.collect import extract
from pytest_uniclaw.sandbox.local_exec import CHUNK, follow, run_command, run_turn, started
from pytest_uniclaw.sandbox.local_holder import PATH, Holder, held, missing_programs, python_binds, rights
from pytest_uniclaw.sandbox.local_workspace import LocalWorkspace
from pytest_uniclaw.sandbox.workspace import payload

PUT_SECONDS = 120.0
PROBE_SECONDS = 30.0
_SPAWN = ["bash", "-c", 'setsid "$@" > /dev/null 2>&1 < /dev/null &', "detach"]


class LocalSandbox:
    """A running PID 1 in its namespaces, as :class:`~pytest_uniclaw.sandbox.base.Sandbox` describes it."""

    def __init__(self, holder: Holder, user: str, environment: Mapping[str, str]) -> None:
        self.holder, self.user = holder, user
        self.paths: SandboxPaths = paths_for(user)
        self._environment = {"PATH": PATH, **provision.base_environment(self.paths), **environment}
        self._kept: list[tuple[int, int]] = []

    def put(self, entries: Iterable[Entry]) -> None:
        """Write files; a missing parent folder is made, and is root's."""
        above = self.paths.logs.rsplit("/", 1)[0]
        homes = (self.paths.home, self.paths.workspace)
        fixed = (*homes, above, *(entry.path for entry in provision.skeleton(self.paths, self.user)))
        with pack(entries, executor=self.user, homes=homes, fixed=fixed) as archive:
            unpack(self.holder, archive)

    def run(
        self, command: Sequence[str], *, user: str = "root", cwd: str | None = None,
        environment: Mapping[str, str] | None = None, seconds: float = 60.0, detach: bool = False,
    ) -> Completed:
        """Run a harness command; at the deadline its process group is killed."""
        completed = run_command(
            self.holder, [*_SPAWN, *command] if detach else command, user=account_id(user),
            cwd=cwd or self.paths.workspace, seconds=seconds,
            environment=self._visible(environment, provision.home_of(user, self.paths, self.user)),
        )
        return replace(completed, exit_code=None) if detach else completed

    def keep(self) -> None:
        """Record every process that runs now as the service set."""
        listed = self.holder.ask({"op": "list"})["processes"]
        self._kept = [(process["pid"], process["start"]) for process in listed]

    def turn(
        self, command: Sequence[str], *, environment: Mapping[str, str], limits: TurnLimits,
        pulse: Callable[[], Pulse], log: Path,
    ) -> Completed:
        """Run the executor's command as its user, watched."""
        return run_turn(
            self.holder, command, user=account_id(self.user), cwd=self.paths.workspace,
            environment=self._visible(environment, self.paths.home), limits=limits, pulse=pulse, sweep=self.sweep,
            log=log,
        )

    def sweep(self) -> None:
        """Kill every process outside the service set. Raises SandboxLost when one could not be killed."""
        uid = account_id(self.user) if self.holder.mode == "root" else 0
        done = self.holder.ask({"op": "sweep", "keep": self._kept, "uid": uid or None})
        if done["left"]:
            raise SandboxLost(f"{len(done['left'])} processes of the executor could not be stopped", cause="killed")

    def collect(self, folders: Mapping[str, Path], limits: CollectLimits) -> Mapping[str, Manifest]:
        """Stop every process, bring the folders out, let them go on."""
        end = time.monotonic() + limits.seconds
        self.holder.ask({"op": "stop"})
        try:
            return {path: fetch(self.holder, path, target, limits, end) for path, target in folders.items()}
        finally:
            self.holder.ask({"op": "continue"})

    def retain(self) -> str:
        """Nothing: the namespaces end with the process that holds them."""
        return ""

    def vitals(self) -> Vitals:
        """Say whether PID 1 runs."""
        return Vitals(self.holder.alive(), exit_code=self.holder.process.poll())

    def _visible(self, environment: Mapping[str, str] | None, home: str) -> dict[str, str]:
        return {**self._environment, **provision.visible(environment, home)}


def unpack(holder: Holder, archive: IO[bytes]) -> None:
    """Write a tar below the sandbox's root. Raises EngineError when it does not arrive whole, SandboxLost."""
    owner = "--same-owner" if holder.mode == "root" else "--no-same-owner"
    command = ["tar", "--extract", "--preserve-permissions", "--numeric-owner", owner, "--directory=/", "--file=-"]
    with tempfile.TemporaryFile() as file:
        while data := archive.read(CHUNK):
            file.write(data)
        file.seek(0)
        said = bytearray()
        end = time.monotonic() + PUT_SECONDS
        with started(holder, command, user=0, cwd="/", environment={"PATH": PATH}, stdin=file.fileno()) as process:
            late = follow(process, said.extend, lambda now, _: Ending.DEADLINE if now > end else None, 1.0)
            code = process.poll()
    if late is not Ending.EXITED or code != 0:
        raise EngineError(f"files could not be put into the local sandbox: {said[-500:].decode('utf-8', 'replace')}")


def fetch(holder: Holder, path: str, destination: Path, limits: CollectLimits, end: float) -> Manifest:
    """Bring one folder or file out until ``end`` (monotonic). Raises InfraError when the host cannot write."""
    place = PurePosixPath(path)
    command = ["tar", "--create", f"--directory={place.parent}", "--file=-", "--", place.name]
    left = replace(limits, seconds=max(end - time.monotonic(), 0.0))
    environment = {"PATH": PATH, "LANG": "C.UTF-8"}
    try:
        with started(
            holder, command, user=0, cwd="/", environment=environment, stderr=subprocess.DEVNULL
        ) as process:
            return extract(chunks(process), destination, left)
    except OSError as error:
        raise InfraError(f"evidence could not be written: {error.strerror or error}: {destination}") from error


def chunks(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Yield a command's output; an empty chunk now and then lets the reader look at its clock."""
    assert process.stdout is not None
    while True:
        if not select.select([process.stdout], [], [], 1.0)[0]:
            yield b""
            continue
        data = os.read(process.stdout.fileno(), CHUNK)
        if not data:
            return
        yield data


@dataclass(frozen=True)
class LocalProvider:
    """Sandboxes made of this machine's namespaces."""

    name: str = "local"
    trusted_only: bool = True

    @contextmanager
    def open(self, spec: SandboxSpec) -> Iterator[Sandbox]:
        """Provision a sandbox; at the end its processes and files are gone.

        Raises:
            EngineError: the machine refused.
            SettingsError: the task needs a network, which this sandbox does not have.
        """
        if spec.network == "internet":
            raise SettingsError("the local sandbox has no network\n  fix: use --sandbox=docker for this task")
        with held(spec.gateway) as holder:
            sandbox = LocalSandbox(holder, spec.user, spec.environment)
            sandbox.put(provision.skeleton(sandbox.paths, spec.user))
            yield sandbox

    def grade(self, job: GradingJob) -> GradingOutput:
        """Run the checks in a second sandbox with this interpreter, evidence and references root's and read-only."""
        with held(binds=python_binds()) as holder:
            with pack(grading.payload(job)) as archive:
                unpack(holder, archive)
            command = [sys.executable, *grading.COMMAND[1:]]
            environment = {"PATH": PATH, "HOME": "/home/grader", "LANG": "C.UTF-8", "TZ": "UTC"}
            done = run_command(
                holder, command, user=int(grading.GRADER), cwd=grading.ROOT, seconds=job.seconds,
                environment=environment,
            )  # fmt: skip
            lines = read_lines(holder, job.owner.run)
        log = done.output[-grading.LOG_BYTES:].decode("utf-8", "replace")
        return GradingOutput(lines, done.exit_code, done.ending is not Ending.EXITED, log)

    @contextmanager
    def open_workspace(self, job: WorkspaceJob) -> Iterator[Workspace]:
        """Open a workspace with this interpreter, its libraries and the host's programs. Raises as grading does."""
        with held(binds=python_binds()) as holder:
            with pack(payload(job)) as archive:
                unpack(holder, archive)
            yield LocalWorkspace(holder, job)

    def check(self, images: Sequence[str]) -> None:
        """Make a sandbox and run a command in it. Raises SettingsError with the remedy where that fails."""
        if sys.platform != "linux":
            raise SettingsError(f"the local sandbox needs Linux, this is {sys.platform}\n  fix: use --sandbox=docker")
        lacking = missing_programs()
        if lacking:
            raise SettingsError(
                f"the local sandbox needs {', '.join(lacking)}\n  fix: install bash, coreutils, tar and util-linux"
            )
        try:
            with held(binds=python_binds()) as holder:
                probe = [sys.executable, "-I", "-c", "import pytest"]
                done = run_command(
                    holder, probe, user=int(grading.GRADER), cwd="/", environment={"PATH": PATH}, seconds=PROBE_SECONDS
                )
        except UniclawError as error:
            raise SettingsError(f"{error}\n  fix: {_remedy()}") from error
        if done.exit_code != 0:
            said = done.output[-300:].decode("utf-8", "replace").strip()
            raise SettingsError(f"this Python does not run in the local sandbox: {said}\n  fix: use --sandbox=docker")

    def digest(self, image: str) -> str:
        """Name what the host's programs are as far as that can be had cheaply: kernel, distribution and Python."""
        release = Path("/etc/os-release")
        facts = (platform.platform(), sys.version, release.read_text("utf-8") if release.is_file() else "", rights())
        return f"local-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"


def read_lines(holder: Holder, run: str) -> tuple[str, ...]:
    """Return the judgement lines, bounded in number and size; empty when none were written."""
    name = "judgements.jsonl"
    with tempfile.TemporaryDirectory(prefix=scratch_prefix(run)) as folder:
        target = Path(folder, "out")
        limits = grading.OUTPUT_LIMITS
        fetch(holder, f"{grading.ROOT}/out/{name}", target, limits, time.monotonic() + limits.seconds)
        path = target / name
        text = path.read_text("utf-8", "replace") if path.is_file() else ""
    lines = (line[: grading.LINE_CHARACTERS] for line in text.splitlines() if line.strip())
    return tuple(lines)[: grading.LINES]


def _remedy() -> str:
    if rights() == "root":
        return "this container or machine forbids namespaces even to root; use --sandbox=docker"
    return "allow unprivileged user namespaces (kernel.unprivileged_userns_clone=1), run as root, or use docker"


__all__ = ["LocalProvider", "LocalSandbox"]
