"""Which model an executor gets: the text of ``--model``, read once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

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


def parse_model(text: str, *, default_provider: str = "openai") -> ModelChoice:
    """Read ``script``, ``script:FILE``, ``PROVIDER/NAME`` or ``NAME``."""
    if text == SCRIPT:
        return ModelChoice(SCRIPT, "scripted")
    if text.startswith(f"{SCRIPT}:"):
        path = Path(text.removeprefix(f"{SCRIPT}:"))
        return ModelChoice(SCRIPT, f"scripted-{path.stem}", path)
    provider, slash, name = text.partition("/")
    return ModelChoice(provider, name) if slash else ModelChoice(default_provider, text)
