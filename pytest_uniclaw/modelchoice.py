"""Which model an executor gets: the text of ``--model``, read once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_uniclaw.schema import RoleSettings

SCRIPT = "script"
"""Name of the provider that plays back a script file instead of asking a model."""


@dataclass(frozen=True)
class ModelChoice:
    """A model as the user named it.

    ``provider`` is ``script`` or the name of a provider of the settings; ``script`` is the file of
    ``--model=script:FILE``, None for the task's own script or a real provider. ``shown`` is its name in ids and reports
    where the short one would not be its alone.
    """

    provider: str
    name: str
    script: Path | None = None
    shown: str = ""

    @property
    def scripted(self) -> bool:
        """Whether answers come from a script file."""
        return self.provider == SCRIPT

    @property
    def label(self) -> str:
        """The short name in ids and reports."""
        return self.shown or (SCRIPT if self.scripted else self.name)

    @property
    def slug(self) -> str:
        """The folder name of the run layout: the whole reference with every unsafe character as a hyphen."""
        text = self.name if self.scripted else f"{self.provider}-{self.name}"
        return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "unknown-model"


def parse_models(texts: Sequence[str]) -> tuple[ModelChoice, ...]:
    """Read several models; no two of them have the same label, or one's results would stand for the other's."""
    choices = [parse_model(text) for text in texts]
    for name in (_full_name, _whole_text):
        often = Counter(choice.label for choice in choices)
        choices = [
            replace(choice, shown=name(choice, text)) if often[choice.label] > 1 else choice
            for choice, text in zip(choices, texts, strict=True)
        ]
    return tuple(choices)


def _full_name(choice: ModelChoice, text: str) -> str:
    return f"{SCRIPT}-{choice.script.stem}" if choice.script else choice.slug if not choice.scripted else SCRIPT


def _whole_text(choice: ModelChoice, text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-")


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
