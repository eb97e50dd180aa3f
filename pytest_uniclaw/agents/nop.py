"""The agent that does nothing: what it scores is the floor of a task's rubric (design.md section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_uniclaw.agents.base import CommandLineAgent, TurnRequest
from pytest_uniclaw.sandbox.base import MIB, Sandbox

ANSWER = "Nothing was done."


@dataclass(frozen=True)
class NopAgent(CommandLineAgent):
    """Says that nothing was done, in one process of the sandbox, and finishes the turn."""

    name: str = "nop"
    memory: int = 512 * MIB
    trusted: bool = True

    def command(self, sandbox: Sandbox, request: TurnRequest) -> Sequence[str]:
        """Print the answer."""
        return ["echo", ANSWER]
