"""A simulated user without a model: what a person says who sees the files and the answer, and nothing else.

The scene cannot carry hidden data (design invariant 1); of the handoff only ``attempt_state`` is used, never the score,
so that follow-ups are no signal to climb on.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_uniclaw.errors import SimulatorError
from pytest_uniclaw.judge.base import Scene, Visible
from pytest_uniclaw.judge.phrases import phrases
from pytest_uniclaw.task import PublicView
from pytest_uniclaw.verdict import Handoff

NAMES_SHOWN = 3
"""How many missing files one message names."""
_NAME = r"[^\W_][\w.\-]*\.[A-Za-z0-9]{1,8}"
_UNDER_RESULTS = re.compile(rf"results/((?:[\w.\-]+/)*{_NAME})")
_LIST_ITEM = re.compile(rf"\s*(?:[-*•]|\d{{1,2}}[.)、])\s*[`\"“]?({_NAME})(?![\w/])")
_SENTENCE_START = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
_QUESTION = re.compile(r"[?？][\s\"'”’)）*_`]*\Z")


@dataclass(frozen=True)
class TemplateSimulator:
    """Writes the next user message from fixed sentences, in the task's language.

    Equal scenes give an equal message; task, turn and what was said before choose among the variants.
    """

    name: str = "template"
    version: str = "1"

    def reply(self, scene: Scene) -> str:
        """Return the candidate message; raises SimulatorError for a handoff that asks for none."""
        view, visible = scene.view, scene.visible
        if scene.handoff.verdict != "continue":
            raise SimulatorError(f"{view.task_id}: no user message follows the verdict {scene.handoff.verdict}")
        said = "\n".join(scene.history)
        sentences = [
            _choose(phrases(view.language)[slot], f"{view.task_id}:{visible.turn}:{slot}", said, names)
            for slot, names in _slots(view, visible, scene.handoff)
        ]
        return ("" if view.language == "zh" else " ").join(sentences)


def named_deliverables(prompt: str) -> tuple[str, ...]:
    """Return the files that a request asks for below its results folder, as it names them.

    Counted are paths such as ``…/results/report.md`` and file names that lead the items of a list whose introducing
    sentence names the results folder.
    """
    names = dict.fromkeys(match.rstrip(".") for match in _UNDER_RESULTS.findall(prompt))
    introduced = False
    for line in prompt.splitlines():
        item = _LIST_ITEM.match(line)
        if item and introduced:
            names[item[1]] = None
        elif not item and line.strip() and not line.startswith((" ", "\t")):
            introduced = "results/" in _SENTENCE_START.split(line.strip())[-1]
        elif "results/" in line:
            introduced = True
    return tuple(names)


def missing_deliverables(view: PublicView, visible: Visible) -> tuple[str, ...]:
    """Return the deliverables that the request names and the results lack; source files never count."""
    sources = {PurePosixPath(name).name for name in view.sources}
    present = set(visible.files) | {PurePosixPath(name).name for name in visible.files}
    return tuple(n for n in named_deliverables(view.prompt) if n not in present and n not in sources)


def asks_something(answer: str) -> bool:
    """Say whether the agent's final words end with a question."""
    return bool(_QUESTION.search(answer))


def _slots(view: PublicView, visible: Visible, handoff: Handoff) -> Iterator[tuple[str, str]]:
    """Yield the kinds of sentences to say, with the file names to put into them."""
    missing = missing_deliverables(view, visible)
    if asks_something(visible.answer):
        yield "question", ""
    if handoff.attempt_state == "in_progress":
        yield "in_progress", ""
    if not visible.files:
        yield "empty", ""
    elif missing:
        yield "missing", ("、" if view.language == "zh" else ", ").join(missing[:NAMES_SHOWN])
    if handoff.attempt_state != "in_progress":
        yield ("incomplete" if visible.turn <= 1 else "again"), ""


def _choose(variants: Sequence[str], seed: str, said: str, names: str) -> str:
    """Choose by the seed among the variants that were not said yet, or among all when every one was."""
    filled = [variant.replace("{names}", names) for variant in variants]
    fresh = [variant for variant in filled if variant not in said] or filled
    return fresh[int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") % len(fresh)]
