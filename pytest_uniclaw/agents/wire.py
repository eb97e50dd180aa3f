"""Messages of the chat wire, as the readers of sessions make them of what each agent keeps; all of it untrusted.

Of each sort of part one more is kept than a record may have blocks: it tells the reader that there were more. Of each
part only that is kept which a record will show, so that what is short on disk is not held as long values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_uniclaw.agents.cleaning import clean, no_collection, weight
from pytest_uniclaw.agents.transcript import CUT, MAX_BLOCKS, MAX_RECORD_TEXT, json_text
from pytest_uniclaw.models.chat import Json

KEPT = MAX_BLOCKS + 1
"""Parts of one sort that are kept of a message."""


@dataclass
class Answer:
    """One answer of the model as its parts come."""

    stamp: Any = None
    texts: list[Any] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Json] = field(default_factory=list)

    def say(self, parts: Sequence[Any]) -> None:
        """Add parts of the content."""
        self.texts += map(slim, parts[: KEPT - len(self.texts)])

    def think(self, words: Sequence[str]) -> None:
        """Add reasoning."""
        self.thoughts += words[: KEPT - len(self.thoughts)]

    def call(self, call: Json) -> bool:
        """Add a call of a tool; False when there were too many already."""
        taken = len(self.calls) < KEPT
        if taken:
            self.calls.append(call)
        return taken

    def message(self) -> Json:
        """The whole answer."""
        return {
            "role": "assistant", "timestamp": self.stamp, "content": self.texts,
            "reasoning_content": "\n".join(self.thoughts), "tool_calls": self.calls,
        }  # fmt: skip


def tool_call(identity: Any, name: Any, arguments: Any) -> Json:
    """Return a call of a tool, as an answer holds it: what is no text is JSON, for that weighs least."""
    if isinstance(arguments, dict | list):
        small = weight(arguments, MAX_RECORD_TEXT) <= MAX_RECORD_TEXT
        with no_collection():
            arguments = json.dumps(clean(arguments), ensure_ascii=False) if small else CUT
    return {"id": identity, "function": {"name": name, "arguments": arguments}}


def tool_result(identity: str, name: str, content: Any) -> Json:
    """Return the message that holds a call's result."""
    kept = [slim(part) for part in content[:KEPT]] if isinstance(content, list) else slim(content)
    return {"role": "tool", "tool_call_id": identity, "name": name, "content": kept}


def slim(part: Any) -> Any:
    """Return of a part of a content what a record will show."""
    if isinstance(part, list):
        return json_text(part)
    if not isinstance(part, dict):
        return part
    if part.get("type") == "image_url":
        source = part.get("image_url")
        return {"type": "image_url", "image_url": source.get("url") if isinstance(source, dict) else source}
    shown = next((part[key] for key in ("text", "content", "refusal") if isinstance(part.get(key), str)), None)
    return json_text(part) if shown is None else {"type": "text", "text": shown}


def image(kind: Any, data: Any) -> Json:
    """Return the part for an image: its media type and its data in base64."""
    return {"type": "image_url", "image_url": f"data:{kind};base64,{data}"}


def listed(content: Any) -> list[Any]:
    """Return the parts of a content that are kept; what is no list is one part."""
    return content[:KEPT] if isinstance(content, list) else [content]


def blocks_of(content: Any) -> list[Json]:
    """Return the JSON objects among the parts that are kept; what is no list has none."""
    parts = [part for part in listed(content) if isinstance(part, dict)] if isinstance(content, list) else []
    return [slim(part) if part.get("type") == "text" else part for part in parts]


def kind_of(value: Any) -> str:
    """Return the ``type`` of a JSON object, empty for what has none."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""
