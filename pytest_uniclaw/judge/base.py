"""The seams of the hidden side and of the user's side, and the evidence both read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.errors import SimulatorError
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.models.chat_client import Reply
from pytest_uniclaw.models.grants import Role
from pytest_uniclaw.models.role_grant import RoleGrant
from pytest_uniclaw.rubric import Cap, Checkpoint, Rubric
from pytest_uniclaw.sandbox.base import Owner, SandboxProvider
from pytest_uniclaw.task import PublicView, Task, Variant
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
        return [json.loads(line) for line in path.read_bytes().splitlines() if line] if path.is_file() else []

    def of_turn(self, number: int) -> Evidence:
        """Return the evidence of another turn of the same attempt (``turns/<n>/evidence``), which need not exist."""
        return Evidence(self.folder.parent.parent / str(number) / self.folder.name)


class Talks(Protocol):
    """A role's model in one conversation."""

    def complete(self, messages: Sequence[Json], *, tools: Sequence[Json] = (), seconds: float) -> Reply:
        """Return the model's next message; ``seconds`` bounds the call.

        Raises :class:`~pytest_uniclaw.errors.InfraError` for what the provider could not do and
        :class:`~pytest_uniclaw.errors.ModelRefused` for what it would not do.
        """


class Roles(Protocol):
    """How the hidden roles of one attempt reach their models; picklable."""

    def open(
        self, role: Role, choice: ModelChoice, *, turn: int, effort: str = "", tag: str = ""
    ) -> AbstractContextManager[Talks]:
        """Open a conversation for one turn; ``tag`` tells the judges of a panel apart.

        Raises :class:`~pytest_uniclaw.errors.SettingsError`, TaskError (a fault in a script) and InfraError.
        """

    def lend(
        self, role: Role, choice: ModelChoice, *, turn: int, tag: str = "", calls: int | None = None,
        tokens: int | None = None,
    ) -> AbstractContextManager[RoleGrant]:  # fmt: skip
        """Open a grant for a program that talks to the role's model by itself. Raises what :meth:`open` raises."""


@dataclass(frozen=True)
class Case:
    """What a supervisor is asked to judge: the task with its hidden references, a turn's evidence, earlier verdicts.

    ``variant`` is the task as the executor saw it, None for the task's own request. ``finished`` says whether the
    executor finished the turn, ``followups_left`` how many user messages may follow. ``roles`` is None where no model
    can be asked.
    """

    task: Task
    rubric: Rubric
    evidence: Evidence
    turn: int
    earlier: tuple[Verdict, ...]
    provider: SandboxProvider
    owner: Owner
    finished: bool = True
    followups_left: int = 0
    roles: Roles | None = None
    variant: Variant | None = None

    @property
    def request(self) -> str:
        """The user's request as the executor got it."""
        return self.variant.prompt if self.variant else self.task.prompt


@dataclass(frozen=True)
class Assignment:
    """What of a case a judge is asked: these checkpoints and caps, or a holistic score of a rubric without weights.

    ``settled`` is what deterministic checks decided of the rest: facts that no judge overrides. ``tag`` tells the
    judges of a panel apart.
    """

    checkpoints: tuple[Checkpoint, ...]
    caps: tuple[Cap, ...]
    holistic: bool = False
    settled: Assessment = Assessment(judgements=())
    tag: str = ""

    @classmethod
    def whole(cls, rubric: Rubric) -> Assignment:
        """Return the assignment to judge a whole rubric."""
        return cls(rubric.checkpoints, rubric.caps, rubric.formula_scored and not rubric.checkpoints)

    @property
    def empty(self) -> bool:
        """Whether nothing is asked."""
        return not (self.checkpoints or self.caps or self.holistic)


class Supervisor(Protocol):
    """A hidden grader, a frozen and picklable value. ``name`` and ``version`` stand in every result.

    One that asks a model says so by a property ``needs_model`` that is True; one that runs in containers of its own
    names their images in a property ``images``.
    """

    @property
    def name(self) -> str:
        """The name that options and records use."""

    @property
    def version(self) -> str:
        """Changes when the same input may give another answer."""

    def assess(self, case: Case) -> Assessment:
        """Judge every checkpoint and cap. Raises :class:`~pytest_uniclaw.errors.GradingError` when it cannot."""


class Judge(Supervisor, Protocol):
    """A supervisor that can be asked for a part of a rubric."""

    def judge(self, case: Case, assignment: Assignment) -> Assessment:
        """Judge what is assigned, and nothing else. Raises GradingError when it cannot."""


@dataclass(frozen=True)
class Visible:
    """What a user can see of a turn: the agent's final words, the deliverables' names, how many turns went by."""

    answer: str
    files: tuple[str, ...]
    turn: int


@dataclass(frozen=True)
class Scene:
    """All that a simulated user gets; none of its types can carry hidden data (invariant 1).

    ``history`` holds the follow-ups sent before. ``results`` is the host folder of the collected deliverables and
    ``transcript`` the part of the conversation that a user sees. ``provider`` and ``owner`` are for a workspace of its
    own, ``roles`` for a model; each is None where there is none.
    """

    view: PublicView
    visible: Visible
    handoff: Handoff
    history: tuple[str, ...] = ()
    results: Path | None = None
    transcript: tuple[Record, ...] = ()
    provider: SandboxProvider | None = None
    owner: Owner | None = None
    roles: Roles | None = None


class UserRefused(SimulatorError):
    """The provider of the simulated user refuses what a request holds: what the agent wrote is filtered or too long."""


class Simulator(Protocol):
    """A simulated user, a frozen and picklable value; its argument cannot carry hidden data (invariant 1).

    One that asks a model says so by a property ``needs_model`` that is True.
    """

    @property
    def name(self) -> str:
        """The name that options and records use."""

    @property
    def version(self) -> str:
        """Changes when the same input may give another answer."""

    def reply(self, scene: Scene) -> str:
        """Return the candidate for the next user message; raises :class:`~pytest_uniclaw.errors.SimulatorError`."""
