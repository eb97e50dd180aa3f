"""The oracle: runs the solution that a package ships, to show that its task can be solved (design.md section 6)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.agents.base import CommandLineAgent, ModelAccess, TurnRequest
from pytest_uniclaw.errors import TaskUnavailable
from pytest_uniclaw.package import HiddenFolder, Reader, has_hidden, open_hidden
from pytest_uniclaw.sandbox.base import Entry, Sandbox
from pytest_uniclaw.task import Task

SCRIPT = "solve.sh"


@dataclass(frozen=True)
class OracleAgent(CommandLineAgent):
    """Runs ``oracle/solve.sh`` of the package in the workspace, as the executor's account; finished iff it exits 0."""

    name: str = "oracle"
    trusted: bool = True

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Copy ``oracle/`` to the private folder. Raises :class:`TaskUnavailable` when the package has no solution."""
        if not has_hidden(task, HiddenFolder.ORACLE, SCRIPT):
            raise _no_oracle(task)
        folder = open_hidden(task, HiddenFolder.ORACLE, Reader.ORACLE_AGENT)
        sandbox.put(_entries(folder, _home(sandbox)))

    def command(self, sandbox: Sandbox, request: TurnRequest) -> Sequence[str]:
        """Run the solution; it is told the turn's number as ``UNICLAW_TURN``."""
        script = 'cd "$1" && UNICLAW_TURN="$3" exec bash "$2"'
        solution = f"{_home(sandbox)}/{SCRIPT}"
        return ["bash", "-c", script, "oracle", sandbox.paths.workspace, solution, str(request.number)]


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
