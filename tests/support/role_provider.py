"""A chat provider on loopback that plays role scripts, as a service would: it is told neither task nor turn."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from pytest_uniclaw.models.player import Player
from pytest_uniclaw.models.script import Fault, Say, Step, load_script
from tests.support.faulty import FaultyProvider, answer
from tests.support.judging import calls, use
from tests.support.scripted_upstream import Act

Json = dict[str, Any]


class RoleProvider(FaultyProvider):
    """Has a model per script. ``scripts`` are read with one ``lane``; shell steps are for nanobot.

    The first request of a conversation, which holds no answer yet, begins the next turn of its script.
    """

    def __init__(self, lane: str, **scripts: Path) -> None:
        super().__init__()
        self._scripts = {model: load_script(path, lane) for model, path in scripts.items()}
        self._turns: Counter[str] = Counter()

    def next_act(self, body: Any) -> Act:
        model, messages = body["model"], body["messages"]
        if model not in self._scripts:
            return super().next_act(body)
        self._turns[model] += not any(message["role"] == "assistant" for message in messages)
        player = Player(self._scripts[model], first_turn=self._turns[model])
        position, step = player.next_step(messages)
        return answer(lambda nonce: message_of(step, f"{position.turn}_{position.said}", nonce))


def message_of(step: Step, ident: str = "1", nonce: str = "") -> Json:
    """Return a step of a script as an assistant's message; a judge's submission gets the ``nonce`` it was told."""
    assert not isinstance(step, Fault)
    if isinstance(step, Say):
        return {"role": "assistant", "content": step.text}
    made = []
    for number, call in enumerate(step.calls):
        name = call.name if call.shell is None else "exec"
        arguments = json.loads(call.arguments) if call.shell is None else {"command": call.shell}
        if name == "submit_assessment" and nonce:
            arguments["nonce"] = nonce
        made.append(use(name, arguments, f"call_{ident}_{number}"))
    return calls(*made)
