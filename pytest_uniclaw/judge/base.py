"""The seams of the hidden side and of the user's side, and the evidence both read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.sandbox.base import Owner, SandboxProvider
from pytest_uniclaw.task import PublicView, Task
from pytest_uniclaw.verdict import Assessment, Handoff, Verdict


@dataclass(frozen=True)
class Evidence:
    """What was collected from a turn, as one host folder.

    ``results/`` (deliverables), ``state/`` (exported service state), ``transcript.jsonl`` (normalised records),
    ``tool_usage.json`` and ``manifest.json``. Everything in it is untrusted.
    """

    folder: Path

    @property
    def results(self) -> Path:
        """The collected deliverables."""
        return self.folder / "results"

    @property
    def state(self) -> Path:
        """The exported state of background services."""
        return self.folder / "state"

    def records(self) -> list[dict[str, Any]]:
        """Return the normalised transcript."""
        path = self.folder / "transcript.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line] if path.is_file() else []


@dataclass(frozen=True)
class Case:
    """What a supervisor is asked to judge: the task with its hidden references, a turn's evidence, earlier verdicts."""

    task: Task
    rubric: Rubric
    evidence: Evidence
    turn: int
    earlier: tuple[Verdict, ...]
    provider: SandboxProvider
    owner: Owner


class Supervisor(Protocol):
    """A hidden grader, a frozen and picklable value. ``name`` and ``version`` stand in every result."""

    @property
    def name(self) -> str:
        """The name that options and records use."""

    @property
    def version(self) -> str:
        """Changes when the same input may give another answer."""

    def assess(self, case: Case) -> Assessment:
        """Judge every checkpoint and cap. Raises :class:`~pytest_uniclaw.errors.GradingError` when it cannot."""


@dataclass(frozen=True)
class Visible:
    """What a user can see of a turn: the agent's final words, the deliverables' names, how many turns went by."""

    answer: str
    files: tuple[str, ...]
    turn: int


class Simulator(Protocol):
    """A simulated user, a frozen and picklable value; its arguments cannot carry hidden data (invariant 1)."""

    @property
    def name(self) -> str:
        """The name that options and records use."""

    @property
    def version(self) -> str:
        """Changes when the same input may give another answer."""

    def reply(self, view: PublicView, visible: Visible, handoff: Handoff, history: Sequence[str]) -> str:
        """Return the candidate for the next user message; raises :class:`~pytest_uniclaw.errors.SimulatorError`."""
