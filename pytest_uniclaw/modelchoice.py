"""Which model an executor gets: the text of ``--model``, read once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.schema import RoleSettings

SCRIPT = "script"
"""Name of the provider that plays back a script file instead of asking a model."""


@dataclass(frozen=True)
class ModelChoice:
    """A model as the user named it.

    ``provider`` is ``script`` or the name of a provider of the settings; ``script`` is the file of
    ``--model=script:FILE``, None for the task's own script or a real provider.
    """

    provider: str
    name: str
    script: Path | None = None

    @property
    def scripted(self) -> bool:
        """Whether answers come from a script file."""
        return self.provider == SCRIPT

    @property
    def label(self) -> str:
        """The short name in ids and reports."""
        return SCRIPT if self.scripted else self.name

    @property
    def slug(self) -> str:
        """The folder name of the run layout: the whole reference with every unsafe character as a hyphen."""
        text = self.name if self.scripted else f"{self.provider}-{self.name}"
        return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "unknown-model"


@dataclass(frozen=True)
class RoleChoice:
    """What a hidden role works with on one task.

    ``model`` is None where neither session nor task names one. ``effort`` is a reasoning effort, ``guidance`` the task
    author's own words to the role (YAML ``codex.supervisor.instructions``, ``codex.user_simulator.policy``).
    ``judges`` is an odd number or ``auto``.
    """

    model: ModelChoice | None = None
    effort: str = ""
    guidance: str = ""
    judges: str = "1"


def choose_role(model: str, effort: str, task: RoleSettings, *, judges: str = "1") -> RoleChoice:
    """Merge the session's choice with a task's: the session's wins, as ``--model`` does."""
    named = model or (f"{task.provider}/{task.model}" if task.provider and task.model else task.model)
    return RoleChoice(
        parse_model(named) if named else None, effort or task.reasoning_effort,
        "\n".join(filter(None, (task.instructions, task.policy))), judges,
    )  # fmt: skip


def parse_model(text: str, *, default_provider: str = "openai") -> ModelChoice:
    """Read ``script``, ``script:FILE``, ``PROVIDER/NAME`` or ``NAME``."""
    if text == SCRIPT:
        return ModelChoice(SCRIPT, "scripted")
    if text.startswith(f"{SCRIPT}:"):
        path = Path(text.removeprefix(f"{SCRIPT}:"))
        return ModelChoice(SCRIPT, f"scripted-{path.stem}", path)
    provider, slash, name = text.partition("/")
    return ModelChoice(provider, name) if slash else ModelChoice(default_provider, text)
