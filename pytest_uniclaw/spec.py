"""AttemptSpec: everything one attempt is made of, as a frozen and picklable value."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_uniclaw import __version__
from pytest_uniclaw.agents.base import Agent
from pytest_uniclaw.budget import Budget
from pytest_uniclaw.desktop import EXTRA_MEMORY, image_for
from pytest_uniclaw.judge.base import Simulator, Supervisor
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.client import GatewayAddress
from pytest_uniclaw.privacy import PrivacyValues
from pytest_uniclaw.sandbox.base import Owner, SandboxProvider
from pytest_uniclaw.tape import Tape
from pytest_uniclaw.task import Task

NO_MODEL = "no-model"
"""What stands for the model's slug of an executor that needs no model."""


@dataclass(frozen=True)
class RunContext:
    """What all attempts of a session share.

    ``run`` is the run id, ``directory`` its folder, ``worker`` who runs this attempt (``main``, ``gw0`` …). The
    overrides ``user``, ``network`` and ``memory`` are None where each task's own value holds. ``environment`` is the
    base of what host-side package scripts get, ``proxies`` goes to executors that have a network. ``keys`` are the
    providers' keys, known here for redaction only.
    """

    run: str
    directory: Path
    worker: str = "main"
    snapshot_mode: bool = False
    privacy: PrivacyValues = PrivacyValues()
    user: str | None = None
    network: str | None = None
    memory: int | None = None
    keep: bool = False
    infra_retries: int = 1
    protocol: str = "strict"
    cassette_record: Path | None = None
    cassette_replay: Path | None = None
    cassette_lenient: bool = False
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    keys: tuple[str, ...] = field(default=(), repr=False)

    def secrets(self) -> tuple[str, ...]:
        """Return every value that no file of the run may hold: declared privacy values and the providers' keys."""
        return (*self.privacy.secrets(), *self.keys)


@dataclass(frozen=True)
class AttemptSpec:
    """One attempt to run: ``run_attempt(spec)`` needs nothing else.

    ``model`` and ``gateway`` are None for an agent that needs no model. ``directory`` is the attempt's own folder.
    ``reference`` is how the user named the agent (``nanobot@0.3.5``), so that two releases stay apart in one session.
    """

    task: Task
    agent: Agent
    provider: SandboxProvider
    supervisor: Supervisor
    simulator: Simulator
    budget: Budget
    run: RunContext
    directory: Path
    number: int = 1
    model: ModelChoice | None = None
    gateway: GatewayAddress | None = None
    reference: str = ""

    @property
    def attempt_id(self) -> str:
        """Unique in the run, and the last part of every label."""
        return f"{self.task.task_id}-{self.directory.name}"

    def tape(self, folder: Path) -> Tape:
        """Return this attempt's lanes in a folder of cassettes."""
        named = self.reference or self.agent.name
        model = self.model.slug if self.model else NO_MODEL
        lenient = self.run.cassette_lenient
        return Tape(folder, named, self.agent.version, model, self.task.task_id, self.number, lenient)

    @property
    def played(self) -> Tape | None:
        """The tape that answers this attempt's model calls, None when providers do."""
        return self.tape(self.run.cassette_replay) if self.run.cassette_replay else None

    @property
    def owner(self) -> Owner:
        """Whose containers these are."""
        return Owner(run=self.run.run, worker=self.run.worker, attempt=self.attempt_id)

    @property
    def user(self) -> str:
        """The executor's account."""
        return self.run.user or self.task.user

    @property
    def network(self) -> str:
        """The executor's network."""
        return self.run.network or self.task.network

    @property
    def image(self) -> str:
        """The executor's image: the agent's, or the one with a desktop where the task needs that."""
        return image_for(self.agent.image, self.task)

    @property
    def memory(self) -> int:
        """The executor's memory limit in bytes: the session's, else the task's, else what agent and browser need."""
        extra = EXTRA_MEMORY if self.task.gui or self.task.browser else 0
        return self.run.memory or self.task.memory_bytes or self.agent.memory + extra


def digests(spec: AttemptSpec) -> dict[str, str]:
    """Return what must be equal for a stored attempt to stand for this one (design invariant 8)."""
    settings = {
        "budget": repr(spec.budget),
        "user": spec.user,
        "network": spec.network,
        "memory": spec.memory,
        "snapshot": spec.run.snapshot_mode,
        "task": repr(replace(spec.task, path=Path(), folder=Path())),  # a conftest.py may have changed what was loaded
        "number": spec.number,
        "protocol": spec.run.protocol,
        "provider": spec.provider.name,
    }
    model = spec.model
    script = model.script.read_bytes() if model and model.script else b""
    return {
        "task": _tree_digest(spec.task),
        "agent": f"{spec.agent.name}@{spec.agent.version} {getattr(spec.agent, 'fingerprint', '')}".rstrip(),
        "model": f"{model.provider}/{model.name} {hashlib.sha256(script).hexdigest()[:12]}" if model else "",
        "image": spec.provider.digest(spec.image),
        "settings": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16],
        "supervisor": f"{spec.supervisor.name}@{spec.supervisor.version}",
        "simulator": f"{spec.simulator.name}@{spec.simulator.version}",
        "harness": __version__,
    }


def _tree_digest(task: Task) -> str:
    """Hash the YAML and the whole package by name, size and content of small files (large ones by their dates)."""
    digest = hashlib.sha256(task.path.read_bytes())
    for path in sorted(task.folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{path.relative_to(task.folder)}\0{size}\0".encode("utf-8", "surrogateescape"))
        digest.update(path.read_bytes() if size < 1 << 22 else str(path.stat().st_mtime_ns).encode())
    return digest.hexdigest()[:16]
