"""The agent that does nothing: what it scores is the floor of a task's rubric (design.md section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.agents.base import Finish, ModelAccess, Record, TurnRequest
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.sandbox.base import MIB, Completed, Sandbox
from pytest_uniclaw.task import Task

ANSWER = "Nothing was done."


@dataclass(frozen=True)
class NopAgent:
    """Says that nothing was done, in one process of the sandbox, and finishes the turn."""

    name: str = "nop"
    version: str = "1"
    image: str = "runtime"
    memory: int = 512 * MIB
    trusted: bool = True
    needs_model: bool = False

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Prepare nothing."""

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Print the answer."""
        return sandbox.turn(
            ["echo", ANSWER], environment=request.environment, limits=request.limits, pulse=request.pulse,
            log=request.log,
        )  # fmt: skip

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name nothing: there is no conversation."""
        return ()

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Return no records."""
        return ()

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Finished unless the sandbox could not even run ``echo``."""
        if completed.ending is Ending.EXITED and completed.exit_code == 0:
            return Finish(True)
        return Finish(False, f"echo did not end well: {completed.ending.value}, exit code {completed.exit_code}")
