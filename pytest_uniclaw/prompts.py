"""The first message an executor gets: a short runtime preamble in the task's language, then the user's request."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from pytest_uniclaw.paths import SandboxPaths
from pytest_uniclaw.task import PublicView

_NO_SKILLS = {"en": "  (none)", "zh": "  （无）"}


def first_message(view: PublicView, paths: SandboxPaths, *, gui: bool = False) -> str:
    """The executor's first message.

    ``gui`` adds the desktop's geometry. Every path comes from ``paths``. The same view gives the same text.
    """
    skills = dict.fromkeys(view.skills)
    lines = "\n".join(f"  - {paths.skills}/{name}/SKILL.md" for name in skills) or _NO_SKILLS[view.language]
    preamble = _template(f"runtime.{view.language}.md").format(
        workspace=paths.workspace, results=paths.results, sources=paths.sources, skills=lines
    )
    desktop = _template(f"desktop.{view.language}.md") if gui else ""
    return f"{preamble}{desktop}\n{view.prompt}\n"


@lru_cache
def _template(name: str) -> str:
    return resources.files("pytest_uniclaw").joinpath("prompts", name).read_text(encoding="utf-8")
