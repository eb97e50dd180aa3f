"""The oracle: runs the solution that a package ships, to show that its task can be solved (design.md section 6)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.agents.base import Finish, ModelAccess, Record, TurnRequest
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import TaskUnavailable
from pytest_uniclaw.package import HiddenFolder, Reader, has_hidden, open_hidden
from pytest_uniclaw.sandbox.base import MIB, Completed, Entry, Sandbox
from pytest_uniclaw.task import Task

SCRIPT = "solve.sh"


@dataclass(frozen=True)
class OracleAgent:
    """Runs ``oracle/solve.sh`` of the package in the workspace, as the executor's account; finished iff it exits 0."""

    name: str = "oracle"
    version: str = "1"
    image: str = "runtime"
    memory: int = 1024 * MIB
    trusted: bool = True
    needs_model: bool = False

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Copy ``oracle/`` to the private folder. Raises :class:`TaskUnavailable` when the package has no solution."""
        if not has_hidden(task, HiddenFolder.ORACLE, SCRIPT):
            raise _no_oracle(task)
        folder = open_hidden(task, HiddenFolder.ORACLE, Reader.ORACLE_AGENT)
        sandbox.put(_entries(folder, _home(sandbox)))

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Run the solution; it is told the turn's number as ``UNICLAW_TURN``."""
        script = 'cd "$1" && exec bash "$2"'
        command = ["bash", "-c", script, "oracle", sandbox.paths.workspace, f"{_home(sandbox)}/{SCRIPT}"]
        environment = {**request.environment, "UNICLAW_TURN": str(request.number)}
        return sandbox.turn(
            command, environment=environment, limits=request.limits, pulse=request.pulse, log=request.log
        )

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name nothing: a shell script holds no conversation."""
        return ()

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Return no records."""
        return ()

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Decide by the exit code alone."""
        if completed.ending is not Ending.EXITED:
            return Finish(False, f"{SCRIPT} did not end: {completed.ending.value}")
        if completed.exit_code:
            last = completed.output.decode("utf-8", "replace").strip().rpartition("\n")[2][-200:]
            return Finish(False, f"{SCRIPT} exited with {completed.exit_code}: {last}")
        return Finish(True)


def _home(sandbox: Sandbox) -> str:
    return f"{sandbox.paths.private}/oracle"


def _no_oracle(task: Task) -> TaskUnavailable:
    return TaskUnavailable(
        task.path, f"{task.task_id} ships no oracle: no oracle/{SCRIPT} in {task.folder}",
        remedy="write oracle/solve.sh, or leave the task out of an oracle run",
    )  # fmt: skip


def _entries(folder: Path, target: str) -> Iterator[Entry]:
    """List the regular files below ``folder``, links left out, readable and runnable by every account."""
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            source = Path(parent, name)
            if source.is_file() and not source.is_symlink():
                yield Entry(f"{target}/{source.relative_to(folder).as_posix()}", source=source, mode=0o755)
