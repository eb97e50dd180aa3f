"""What is read off the output of a command-line agent beside its conversation: its session's id, its last error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pytest_uniclaw.agents.cleaning import parse_line

SESSION_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,199}")
"""What may become a word of a later command: never an option, never more than one word."""
REASON_CHARACTERS = 300


def find_session(output: bytes, key: str) -> str:
    """Return the first value of a key (or JSON pointer) in the JSON lines of an output that can be a session's id."""
    path = key[1:].split("/") if key.startswith("/") else [key]
    for event in _events(output.splitlines()):
        value: Any = event
        for part in path:
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, str) and SESSION_ID.fullmatch(value):
            return value
    return ""


def last_error(output: bytes) -> str:
    """Return on one line what was said of an error last: in an event of JSON, else in the last line that is none."""
    lines = output.splitlines()
    for event in _events(reversed(lines)):
        error = event.get("error") if event.get("type") in ("error", "result", "turn.failed") else None
        data = error.get("data") if isinstance(error, dict) else None
        told = (part.get("message") for part in (data, error, event) if isinstance(part, dict))
        said = next((text for text in told if isinstance(text, str) and text), error)
        if isinstance(said, str):
            return " ".join(said.split())[:REASON_CHARACTERS]
    plain = (line for line in reversed(lines) if line.strip() and not line.lstrip().startswith(b"{"))
    return " ".join(next(plain, b"").decode("utf-8", "replace").split())[:REASON_CHARACTERS]


def _events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = parse_line(line) if line.startswith(b"{") else None
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
