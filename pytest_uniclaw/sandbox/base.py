"""The sandbox seam: where an executor runs and where evidence is graded.

An adapter offers a :class:`SandboxProvider`; everything above it sees these protocols and frozen values only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pytest_uniclaw.attempt import Ending, Manifest
from pytest_uniclaw.paths import SandboxPaths

MIB = 1024 * 1024


@dataclass(frozen=True)
class Owner:
    """Who a container belongs to; becomes its labels, by which it is found and removed (design invariant 7)."""

    run: str
    worker: str
    attempt: str


@dataclass(frozen=True)
class SandboxSpec:
    """What to provision. ``image`` names an image of :mod:`pytest_uniclaw.sandbox.images`, or is a full reference.

    ``gateway`` is the host folder that holds the agents' socket, None when no model is used; ``relay`` names the
    engine's volume that holds it instead where host folders cannot be mounted. ``lifetime`` is the
    number of seconds after which a leftover may be reaped by anyone. ``keepable`` leaves it out of the run's reaping,
    so that :meth:`Sandbox.retain` can keep it.
    """

    owner: Owner
    image: str
    user: Literal["agent", "root"] = "agent"
    network: Literal["isolated", "internet"] = "isolated"
    memory: int = 2048 * MIB
    cpus: float = 0.0
    pids: int = 1024
    shm: int = 1024 * MIB
    gateway: Path | None = None
    relay: str = ""
    lifetime: float = 7200.0
    keepable: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """One file to put into a sandbox: its ``content``, or a host ``source`` (file or folder, links not followed).

    With neither it is an empty folder.
    """

    path: str
    content: bytes | None = None
    source: Path | None = None
    mode: int = 0o644
    user: str = "root"


@dataclass(frozen=True)
class Completed:
    """How a command ended. ``output`` is the merged head of stdout and stderr (bounded), ``seconds`` its wall time."""

    ending: Ending
    exit_code: int | None
    output: bytes
    seconds: float


@dataclass(frozen=True)
class Pulse:
    """Signs of life from outside the sandbox, read while a turn runs.

    ``idle`` is the number of seconds since the last model call event (None: no model), ``busy`` says a call is in
    flight and ``waited`` is the provider waiting of this attempt so far, in seconds.
    """

    idle: float | None = None
    busy: bool = False
    waited: float = 0.0


@dataclass(frozen=True)
class TurnLimits:
    """Deadlines of one turn, in seconds; waiting seen in the pulse extends ``seconds`` by up to ``max_waiting``."""

    seconds: float
    silence: float
    max_waiting: float = 0.0


@dataclass(frozen=True)
class CollectLimits:
    """Caps on what one collection may bring out."""

    file_bytes: int = 256 * MIB
    total_bytes: int = 1024 * MIB
    files: int = 10_000
    seconds: float = 120.0


@dataclass(frozen=True)
class Vitals:
    """The state of the container: is it running, and did the kernel kill something of it for memory?"""

    running: bool
    out_of_memory: bool = False
    exit_code: int | None = None


class Sandbox(Protocol):
    """A provisioned sandbox. Every call has a deadline.

    Errors raised by every method: :class:`~pytest_uniclaw.errors.EngineError` when the engine does not answer,
    :class:`~pytest_uniclaw.errors.SandboxLost` when the container is gone while the engine answers.
    """

    paths: SandboxPaths
    user: str

    def put(self, entries: Iterable[Entry]) -> None:
        """Write files, creating parent folders; one archive, links never followed."""

    def run(
        self,
        command: Sequence[str],
        *,
        user: str = "root",
        cwd: str | None = None,
        environment: Mapping[str, str] | None = None,
        seconds: float = 60.0,
        detach: bool = False,
    ) -> Completed:
        """Run a harness command. At the deadline it is killed inside and ``ending`` is ``deadline``.

        ``detach`` starts a background command and returns at once (exit code None).
        """

    def keep(self) -> None:
        """Record every process that runs now as the service set, which sweeps leave alone."""

    def turn(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        limits: TurnLimits,
        pulse: Callable[[], Pulse],
        log: Path,
    ) -> Completed:
        """Run the executor's command as its user; stream its output into ``log``.

        Ends it at the deadline or after silence, and then sweeps every process outside the service set.
        """

    def sweep(self) -> None:
        """Kill every process outside the service set until none is left."""

    def collect(self, folders: Mapping[str, Path], limits: CollectLimits) -> Mapping[str, Manifest]:
        """Freeze the container, stream each sandbox folder (or file) into a host folder, thaw.

        A folder must lie directly below one that the executor cannot replace (``/tmp_workspace/…``, ``$HOME/…``).
        Regular files only; links and special files are listed as refused. A folder that does not exist yields an
        empty manifest.
        """

    def retain(self) -> str:
        """Leave the sandbox running at its end; return the command that enters it, empty where it cannot be kept."""

    def vitals(self) -> Vitals:
        """Ask the engine how the container is."""


@dataclass(frozen=True)
class GradingJob:
    """One run of deterministic checks in a fresh grading sandbox.

    ``evidence`` and ``references`` are host folders that are copied in, root-owned and read-only. ``only`` names the
    test node ids to run; empty means all. ``seconds`` bounds the whole job, ``check_seconds`` each check.
    """

    owner: Owner
    evidence: Path
    references: Path
    only: tuple[str, ...] = ()
    seconds: float = 300.0
    check_seconds: float = 20.0
    memory: int = 1024 * MIB


@dataclass(frozen=True)
class GradingOutput:
    """``lines`` are the raw JSON lines the grading harness wrote; ``log`` is the tail of its output."""

    lines: tuple[str, ...]
    exit_code: int | None
    timed_out: bool
    log: str


@dataclass(frozen=True)
class WorkspaceJob:
    """A read-only workspace for a role's tools.

    ``folders`` maps names in the workspace (relative, with ``/``) to host files or folders, which are copied in,
    root-owned and read-only. A leftover may be reaped by anyone some minutes after ``seconds``. ``memory`` bounds the
    tools, in bytes.
    """

    owner: Owner
    folders: Mapping[str, Path]
    seconds: float = 1800.0
    memory: int = 1024 * MIB


class Workspace(Protocol):
    """An open workspace. The tools are those of :mod:`pytest_uniclaw.judge.toolset`, and ``find_quotes``."""

    def call(self, tool: str, arguments: Mapping[str, Any], *, seconds: float = 60.0) -> Mapping[str, Any]:
        """Run a tool, for at most ``seconds``.

        Returns:
            ``{"text": str, "images": [{"mime", "data" (base64)}], "next_offset": int | None, "error": str | None}``,
            of ``find_quotes`` also ``"found": [bool, …]``. What cannot be had is told in ``error``; so is a tool that
            died, hung or printed nonsense.

        Raises:
            EngineError: the engine does not answer.
            SandboxLost: the workspace is gone while the engine answers.
        """


class SandboxProvider(Protocol):
    """A kind of sandbox, a frozen and picklable value.

    ``trusted_only`` providers run only agents the operator trusts.
    """

    @property
    def name(self) -> str:
        """The name that options and records use."""

    @property
    def trusted_only(self) -> bool:
        """Whether it runs only agents that the operator trusts."""

    def open(self, spec: SandboxSpec) -> AbstractContextManager[Sandbox]:
        """Provision; on exit remove everything, whatever happened."""

    def grade(self, job: GradingJob) -> GradingOutput:
        """Run the checks of a job in a second sandbox: no network, non-root, evidence read-only."""

    def open_workspace(self, job: WorkspaceJob) -> AbstractContextManager[Workspace]:
        """Copy a job's folders into a fresh sandbox without network or rights; on exit everything is removed.

        Raises TaskError for a link out of a folder or a special file, OSError for what cannot be read, EngineError.
        """

    def check(self, images: Sequence[str]) -> None:
        """Raise :class:`~pytest_uniclaw.errors.SettingsError` with the remedy when this sandbox cannot be used here."""

    def digest(self, image: str) -> str:
        """Return a string that changes when the image does."""


__all__ = [
    "MIB",
    "CollectLimits",
    "Completed",
    "Entry",
    "GradingJob",
    "GradingOutput",
    "Manifest",
    "Owner",
    "Pulse",
    "Sandbox",
    "SandboxProvider",
    "SandboxSpec",
    "TurnLimits",
    "Vitals",
    "Workspace",
    "WorkspaceJob",
]
