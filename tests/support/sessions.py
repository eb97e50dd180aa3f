"""Inner pytest sessions as processes: start them, wait for what they do, and read what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_SECONDS = 120.0
"""Within this a session on a busy machine has begun its first turn."""
SESSION_SECONDS = 600.0


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Wait for a condition and return how long that took. Raises AssertionError at the deadline."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - began


@dataclass(frozen=True)
class Case:
    """One test case of a JUnit file; ``outcome`` is ``passed`` or its element: ``failure``, ``error``, ``skipped``."""

    outcome: str
    message: str
    properties: dict[str, str]

    @property
    def status(self) -> str:
        """The attempt's status."""
        return self.properties.get("status", "")


@dataclass
class Session:
    """A started session. ``root`` is a :class:`support.packages.Suite`'s root."""

    root: Path
    process: subprocess.Popen[bytes]
    log: Path
    junit: Path
    arguments: tuple[str, ...] = ()
    cases: dict[str, Case] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        """The run directory."""
        option = "--uniclaw-runs-dir="
        given = [argument.removeprefix(option) for argument in self.arguments if argument.startswith(option)]
        return (Path(given[0]) if given else self.root / "runs").joinpath("latest").resolve()

    @property
    def output(self) -> str:
        """What it printed."""
        return self.log.read_text("utf-8", "replace")

    def events(self) -> list[dict[str, Any]]:
        """The progress events so far."""
        found = []
        for path in sorted(self.run.glob("progress/*.jsonl")):
            lines = path.read_text("utf-8").split("\n")[:-1]  # the last one may still be being written
            found += [json.loads(line) for line in lines]
        return found

    def began(self, name: str) -> bool:
        """Say whether a turn of a task runs or ran."""
        return any(event["what"] == "turn" and f"task_101_{name}." in event["item"] for event in self.events())

    def wait_for_turns(self, *names: str) -> None:
        """Wait until a turn of each task has begun."""

        def begun() -> bool:
            if self.process.poll() is not None:
                raise AssertionError(f"the session ended with {self.process.returncode}:\n{self.output}")
            return all(self.began(name) for name in names)

        wait_until(begun, START_SECONDS, f"turns of {', '.join(names)}")

    def wait_for_run(self) -> None:
        """Wait until the run directory is there: a container may be made from now on."""
        wait_until(
            lambda: (self.run / "session.json").is_file() or self.process.poll() is not None, START_SECONDS, "the run"
        )

    def finish(self, seconds: float = SESSION_SECONDS) -> Session:
        """Wait for its end and read its JUnit file."""
        self.process.wait(seconds)
        if self.junit.is_file():
            self.cases = dict(_cases(self.junit))
        return self

    @property
    def code(self) -> int:
        """Its exit status."""
        assert self.process.returncode is not None
        return self.process.returncode

    def attempt(self, name: str) -> dict[str, Any]:
        """Return the stored record of a task's one attempt."""
        (path,) = self.run.glob(f"a1/*/*/*/task_101_{name}/p1-*/uniclaw.json")
        record: dict[str, Any] = json.loads(path.read_bytes())
        return record | {"folder": path.parent}


def start(
    root: Path, *arguments: str, environment: dict[str, str] | None = None, targets: Sequence[str] = ("suites",)
) -> Session:
    """Start pytest over a suite, or over other files, in a process group of its own."""
    log, junit = root / "output.txt", root / "junit.xml"
    command = [sys.executable, "-m", "pytest", *targets, f"--junitxml={junit}", "-rA", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=root, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True, env={**os.environ, **(environment or {})},  # noqa: TID251
        )  # fmt: skip
    return Session(root, process, log, junit, arguments)


def run(
    root: Path, *arguments: str, environment: dict[str, str] | None = None, targets: Sequence[str] = ("suites",)
) -> Session:
    """Run pytest over a suite, or over other files, to its end."""
    return start(root, *arguments, environment=environment, targets=targets).finish()


def _cases(junit: Path) -> Iterator[tuple[str, Case]]:
    """Yield every test case by the name of its task, without ``task_101_``."""
    for case in ElementTree.parse(junit).iter("testcase"):
        found = [child for child in case if child.tag in {"failure", "error", "skipped"}]
        properties = {p.get("name", ""): p.get("value", "") for p in case.iter("property")}
        message = "\n".join(f"{child.get('message')}\n{child.text}" for child in found)
        name = f"{case.get('classname')}.{case.get('name')}".partition("task_101_")[2].partition(".")[0]
        yield name, Case(found[0].tag if found else "passed", message, properties)


Process = tuple[int, int]
"""A process of this machine: its pid and its start time in clock ticks, which together name it for ever."""


def process_tree(root: int) -> dict[Process, str]:
    """Return a process and everything below it, with command lines."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            parents.setdefault(int(stat[1]), []).append(int(entry.name))
    found, todo = {}, [root]
    while todo:
        pid = todo.pop()
        todo += parents.get(pid, [])
        if stat := _stat(pid):
            found[pid, int(stat[19])] = _command(pid)
    return found


def alive(process: Process) -> bool:
    """Say whether a process still runs; a zombie does not."""
    stat = _stat(process[0])
    return stat is not None and int(stat[19]) == process[1] and stat[0] not in "ZX"


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat from the state on, None when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""
