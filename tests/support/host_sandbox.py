"""A stand-in for a sandbox that runs commands on the host, below one temporary folder, as the current user."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pytest_uniclaw.attempt import Ending, Manifest
from pytest_uniclaw.paths import SandboxPaths
from pytest_uniclaw.sandbox.base import CollectLimits, Completed, Entry, Pulse, TurnLimits, Vitals


class HostSandbox:
    """Keeps what it was asked for, so that tests can look at it."""

    def __init__(self, root: Path, user: str = "agent") -> None:
        self.user = user
        self.paths = SandboxPaths(home=f"{root}/home", workspace=f"{root}/workspace", private=f"{root}/private")
        for folder in (self.paths.home, self.paths.workspace, self.paths.private):
            Path(folder).mkdir(parents=True)
        self.entries: list[Entry] = []
        self.commands: list[list[str]] = []
        self.users: list[str] = []
        self.environments: list[dict[str, str]] = []

    def put(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self.entries.append(entry)
            target = Path(entry.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            if entry.source is None and entry.content is None:
                target.mkdir(exist_ok=True)
                target.chmod(entry.mode)
            elif entry.source is None:
                target.write_bytes(entry.content or b"")
                target.chmod(entry.mode)
            elif entry.source.is_dir():
                shutil.copytree(entry.source, target, dirs_exist_ok=True)
            else:
                shutil.copy(entry.source, target)
                target.chmod(entry.mode)

    def run(
        self, command: Sequence[str], *, user: str = "root", cwd: str | None = None,
        environment: Mapping[str, str] | None = None, seconds: float = 60.0, detach: bool = False,
    ) -> Completed:  # fmt: skip
        self.commands.append(list(command))
        self.users.append(user)
        self.environments.append(dict(environment or {}))
        started = time.monotonic()
        process = subprocess.Popen(
            list(command), cwd=cwd, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={"PATH": os.defpath, **(environment or {}), "HOME": self.paths.home},
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Completed(Ending.DEADLINE, None, output, time.monotonic() - started)
        return Completed(Ending.EXITED, process.returncode, output, time.monotonic() - started)

    def keep(self) -> None:
        return

    def turn(
        self, command: Sequence[str], *, environment: Mapping[str, str], limits: TurnLimits,
        pulse: Callable[[], Pulse], log: Path,
    ) -> Completed:  # fmt: skip
        completed = self.run(command, user=self.user, environment=environment, seconds=limits.seconds)
        log.write_bytes(completed.output)
        return completed

    def sweep(self) -> None:
        return

    def collect(self, folders: Mapping[str, Path], limits: CollectLimits) -> Mapping[str, Manifest]:
        return {folder: Manifest() for folder in folders}

    def vitals(self) -> Vitals:
        return Vitals(True)
