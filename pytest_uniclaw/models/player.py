"""Which step of a script a request is at.

Steps that answer are told apart by the assistant messages the agent has kept since the last real user message, so the
choice needs no state and survives retries. Faults add no message; only how often one with ``times`` has happened is
counted, per grant.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from pytest_uniclaw.models.bridge import ORPHAN
from pytest_uniclaw.models.chat import Json, text_of
from pytest_uniclaw.models.script import Fault, Say, Script, Step

NOTHING_MORE = "I have nothing more to add."
_STAMP = re.compile(r"^\[[A-Z][a-z]{2} [^\[\]\n]{4,40}\]\s*")
"""A time that an agent puts before what it tells the model: ``[Mon 2026-11-30 12:00 UTC]``."""
_MARKERS = (
    "<environment_context>",
    "<user_instructions>",
    "<turn_aborted>",
    "<user_shell_command>",
    "<subagent_notification>",
    "<codex_internal_context",
    "<recommended_plugins>",
    "<image_resize_notice>",
    "# AGENTS.md instructions",
    "[uniclaw re-ask]",
    ORPHAN,
    "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>",
    "The previous attempt did not produce a user-visible answer",
    "Attached image(s) from tool result",
    "Attached media from tool result",
    "(attached media from previous tool call)",
    "(conversation continued)",
    "Please provide your response to the user based on the conversation above.",
    "The tool-call budget for this turn is exhausted.",
    "Output limit reached. Continue exactly where you left off",
    "The previous assistant response was cut off.",
    "The previous model response attempted to call tools, but",
    "Continue the active task from the working-memory checkpoint above.",
)
"""How user-role messages begin that agents, or our own roles, write themselves."""
_CONTEXT_BEGIN, _CONTEXT_END = "[Runtime Context", "[/Runtime Context]"
"""nanobot puts this block before the user's words, in the same message."""


@dataclass(frozen=True)
class Position:
    """Where a conversation is: turn (from 1) and assistant messages since its user message."""

    turn: int
    said: int
    last_tool_output: str


class Player:
    """One grant's way through a script. ``first_turn`` is the turn of the grant's first user message."""

    def __init__(self, script: Script, first_turn: int = 1) -> None:
        self._script = script
        self._offset = first_turn - 1
        self._fired: Counter[tuple[int, int]] = Counter()

    def next_step(self, messages: list[Json]) -> tuple[Position, Step]:
        """The step for a request; past the end a closing word."""
        position = locate(messages)
        position = replace(position, turn=position.turn + self._offset) if position.turn else position
        steps = self._script.turns[position.turn - 1] if 0 < position.turn <= len(self._script.turns) else ()
        said = 0
        for index, step in enumerate(steps):
            if isinstance(step, Fault):
                if said == position.said and self._fires(step, (position.turn, index)):
                    return position, step
            elif said == position.said:
                return position, step
            else:
                said += 1
        return position, Say(NOTHING_MORE)

    def _fires(self, fault: Fault, key: tuple[int, int]) -> bool:
        if fault.times is not None and self._fired[key] >= fault.times:
            return False
        self._fired[key] += 1
        return True


def locate(messages: list[Json]) -> Position:
    """Find the position of a request in its conversation, past the agents' own user messages."""
    turn = said = 0
    output = ""
    for message in messages:
        role = message.get("role")
        if role == "user" and is_real_user(message):
            turn, said = turn + 1, 0
        elif role == "assistant":
            said += 1
        elif role == "tool":
            output = text_of(message)
    return Position(turn, said, output)


def is_real_user(message: Json) -> bool:
    """Whether a user-role message holds words of the user, not only of the agent's machinery."""
    text = _STAMP.sub("", text_of(message).lstrip())
    if text.startswith(_CONTEXT_BEGIN) and _CONTEXT_END in text:
        return bool(text.partition(_CONTEXT_END)[2].strip()) or not isinstance(message.get("content"), str)
    return not text.startswith(_MARKERS)
