"""Cassettes of one attempt: which lane each role plays or records, and what became of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pytest_uniclaw.models.cassette import lane_file, lane_name, make_cassette, stale

PROMPTS = (Path(__file__).parent / "prompts", Path(__file__).parent / "judge")
"""Where this project's own prompts are: a cassette of others answers questions that are asked no more."""


@dataclass(frozen=True)
class Tape:
    """The lanes of an attempt in a folder of cassettes; they are named by what runs, never by the run.

    ``agent`` is the executor as the user named it, ``version`` its release, ``model`` the slug of its model,
    ``number`` the repeat.
    """

    folder: Path
    agent: str
    version: str
    model: str
    task_id: str
    number: int
    lenient: bool = False

    @property
    def metadata(self) -> dict[str, str]:
        """What a cassette must have been made with to be replayed without doubt."""
        return {"agent": f"{self.agent}@{self.version}", "prompts": prompts_digest()}

    def file(self, role: str, tag: str = "") -> Path:
        """Return the file of a role's lane; ``tag`` tells the judges of a panel apart."""
        return lane_file(self.folder, lane_name(self.agent, self.model, self.task_id, self.number, role, tag))

    def grant_fields(self, role: str, tag: str = "") -> dict[str, Any]:
        """Return what a grant needs to be answered from its lane."""
        return {"cassette": self.file(role, tag), "lenient": self.lenient}

    def outdated(self, role: str) -> tuple[str, ...]:
        """Return in which respects a lane was recorded with something else. Raises SettingsError without a lane."""
        return stale(self.file(role), self.metadata)

    def record(self, directory: Path) -> int:
        """Make the lanes of an attempt from its exchange logs; return the number of calls. Raises UniclawError."""
        calls = 0
        for log in sorted((directory / "exchange").glob("*")):
            if log.name == "harness":  # asks whether a provider answers, which a cassette cannot say
                continue
            name = lane_name(self.agent, self.model, self.task_id, self.number, log.name)
            calls += make_cassette(log, lane_file(self.folder, name), lane=name, metadata=self.metadata)
        return calls


@cache
def prompts_digest() -> str:
    """Return 12 hex digits that change with any prompt of this project."""
    total = hashlib.sha256()
    for folder in PROMPTS:
        for path in sorted([*folder.rglob("*.md"), *folder.rglob("*.yaml")]):
            total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()[:12]
