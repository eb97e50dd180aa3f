"""How a turn of OpenClaw ended: from its transcript and from the JSON object that it prints, never from words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_uniclaw.agents.base import Finish, Record
from pytest_uniclaw.agents.usage import has_tool_call, last_turn, text_of

REASON_CHARACTERS = 300


def finish_of(records: Sequence[Record], name: str) -> Finish:
    """Finished iff the last turn ends with a whole answer of a model that did not fail.

    Only the session in which the user speaks counts: where it is empty, a sub-agent's last words are no answer.
    """
    records = [record for record in records if "agentId" not in record]
    turn = last_turn(records)
    if not turn:
        return Finish(False, f"{name} stored no reply" if records else f"{name} stored no session")
    last: Mapping[str, Any] = turn[-1]
    reason = last.get("stopReason")
    if last.get("role") != "assistant":
        return Finish(False, f"{name}'s session ends without an answer")
    if reason == "error":
        return Finish(False, f"the model failed: {last.get('errorMessage') or 'no reason given'}"[:REASON_CHARACTERS])
    if reason == "aborted":
        return Finish(False, f"{name} broke its run off")
    if has_tool_call(dict(last)):
        return Finish(False, f"{name}'s session ends in a tool call")
    if reason == "length":
        return Finish(False, f"{name}'s last message was cut at the model's limit")
    return Finish(True) if text_of(dict(last)) else Finish(False, f"{name}'s last message is empty")


def last_object(output: bytes) -> dict[str, Any]:
    """Return the JSON object that begins at a line's brace last, empty where there is none that is whole."""
    text = output.decode("utf-8", "replace")
    start = len(text)
    while start > 0:
        start = text.rfind("{", 0, start)
        if start < 0:
            return {}
        if start and text[start - 1] != "\n":
            continue
        try:
            value, _ = json.JSONDecoder().raw_decode(text, start)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}
    return {}


def error_of(answer: Mapping[str, Any]) -> str:
    """Return on one line what OpenClaw's answer says of an error."""
    error = answer.get("error")
    said = error.get("message") if isinstance(error, dict) else None
    return " ".join(said.split())[:REASON_CHARACTERS] if isinstance(said, str) else ""
