"""From a scene to the message that the executor gets: simulator, rewriter, one rewrite request, a neutral line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pytest_uniclaw.errors import SimulatorError
from pytest_uniclaw.judge.base import Scene, Simulator, UserRefused
from pytest_uniclaw.judge.fingerprints import HiddenFingerprints
from pytest_uniclaw.judge.rewriter import Review, neutral_line, review

ASKED_AGAIN = "asked again"
"""The decision to have the simulator write another message."""

REFUSED = "fallback:refused"
"""The decision for a neutral line because the simulator's provider refused what the agent wrote or delivered."""


@runtime_checkable
class Reviser(Protocol):
    """A simulator that can be asked to write a message again."""

    def revise(self, scene: Scene, candidate: str, kinds: Sequence[str]) -> str:
        """Return another candidate; ``kinds`` say what the first one held, without values."""


@dataclass(frozen=True)
class FollowUpText:
    """What the simulator wrote (an empty text where it was refused), the message that is sent, and every decision."""

    candidates: tuple[str, ...]
    message: str
    decisions: tuple[str, ...]


def write_follow_up(simulator: Simulator, scene: Scene, hidden: HiddenFingerprints) -> FollowUpText:
    """Return the next message for the executor.

    A candidate that leaks, or of which nothing is left, is asked for again once where the simulator can do that; when
    the second one leaks as well, a neutral line is sent. So it is when the provider refuses what the scene holds:
    the agent must not be able to end a judged attempt by what it writes. Raises SimulatorError when there is no
    candidate for another reason, and what the simulator raises of infrastructure.
    """
    try:
        first = simulator.reply(scene)
    except UserRefused:
        line = neutral_line(hidden=hidden, language=scene.view.language, history=scene.history)
        return FollowUpText(("",), line, (REFUSED,))
    found = _review(first, scene, hidden)
    if not isinstance(simulator, Reviser) or not (found.leaks or not found.message):
        return _settled((first,), found, (), scene, hidden)
    asked = (*(f"dropped:{kind}" for kind in found.kinds), ASKED_AGAIN)
    try:
        second = simulator.revise(scene, first, tuple(dict.fromkeys(found.kinds)) or ("empty",))
    except SimulatorError:
        return _settled((first,), Review("", ()), (*asked, "no second answer"), scene, hidden)
    again = _review(second, scene, hidden)
    if again.leaks:
        again = Review("", again.kinds)
    return _settled((first, second), again, asked, scene, hidden)


def _review(candidate: str, scene: Scene, hidden: HiddenFingerprints) -> Review:
    view = scene.view
    return review(candidate, hidden=hidden, public=view.prompt, language=view.language, history=scene.history)


def _settled(
    candidates: tuple[str, ...], found: Review, earlier: tuple[str, ...], scene: Scene, hidden: HiddenFingerprints
) -> FollowUpText:
    dropped = (*earlier, *(f"dropped:{kind}" for kind in found.kinds))
    if found.message:
        return FollowUpText(candidates, found.message, (*dropped, f"kept:{found.kept}"))
    line = neutral_line(hidden=hidden, language=scene.view.language, history=scene.history)
    return FollowUpText(candidates, line, (*dropped, "fallback"))
