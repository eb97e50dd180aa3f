"""The agent seam: what an executor's adapter must do, and a base class that does most of it.

Adapters are frozen dataclasses, so they can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.sandbox.base import MIB, Completed, Pulse, Sandbox, TurnLimits
from pytest_uniclaw.task import Task

Record = dict[str, Any]
"""One normalised transcript record (upstream's schema: ``type``, ``id``, ``timestamp``, ``message``)."""


@dataclass(frozen=True)
class ModelAccess:
    """How the executor reaches its model: an OpenAI-compatible base URL inside the sandbox and a virtual key."""

    base_url: str
    key: str = field(repr=False)
    model: str


@dataclass(frozen=True)
class TurnRequest:
    """One turn to run. ``number`` is one-based; ``environment`` holds the task's declared privacy values."""

    number: int
    message: str
    limits: TurnLimits
    pulse: Callable[[], Pulse]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Finish:
    """Whether the executor finished the turn by its own word, and if not, why in one line."""

    finished: bool
    reason: str = ""


class Agent(Protocol):
    """An executor's adapter."""

    @property
    def name(self) -> str:
        """The name that options, ids and records use."""

    @property
    def version(self) -> str:
        """The release of the agent."""

    @property
    def image(self) -> str:
        """An image of the registry."""

    @property
    def memory(self) -> int:
        """The default memory limit in bytes."""

    @property
    def trusted(self) -> bool:
        """Whether it runs no foreign decisions, as the oracle and nop."""

    @property
    def needs_model(self) -> bool:
        """Whether a gateway grant must be made for it."""

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Write configuration and links into a fresh sandbox, before the first turn."""

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Run one turn in the session that earlier turns of this attempt used."""

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name the sandbox files or folders to collect for :meth:`read_transcript`."""

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Parse what was collected (untrusted bytes) into normalised records of the whole session.

        Never raises on bad data.
        """

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Say whether the last turn was finished, from its ending and the transcript, never from words in a text."""


@dataclass(frozen=True)
class CommandLineAgent:
    """An agent that is one command a turn and keeps no session file; a subclass gives ``name`` and :meth:`command`.

    Its conversation, if it has a model, is rebuilt from its model calls.
    """

    name: str
    version: str = "1"
    image: str = "runtime"
    memory: int = 1024 * MIB
    trusted: bool = False
    needs_model: bool = False

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Prepare nothing."""

    def command(self, sandbox: Sandbox, request: TurnRequest) -> Sequence[str]:
        """Return the program and its arguments for one turn."""
        raise NotImplementedError(f"{type(self).__name__} has no method `command`")

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Run the command. Raises TypeError when it is not a list of words."""
        words: object = self.command(sandbox, request)
        if not isinstance(words, list | tuple) or not words:
            raise TypeError(f"{type(self).__name__}.command returned {words!r:.40}; return a list of words")
        return sandbox.turn(
            words, environment=request.environment, limits=request.limits, pulse=request.pulse, log=request.log
        )

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name nothing."""
        return ()

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Return no records."""
        return ()

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Finished iff the command exited with 0; if not, the reason has the last line it printed."""
        if completed.ending is not Ending.EXITED:
            return Finish(False, f"{self.name} was stopped: {completed.ending.value}")
        if completed.exit_code == 0:
            return Finish(True)
        last = completed.output.decode("utf-8", "replace").strip().rpartition("\n")[2][-200:]
        return Finish(False, f"{self.name} exited with {completed.exit_code}" + (f": {last}" if last else ""))
