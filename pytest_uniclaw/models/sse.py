"""Server-sent events as chat APIs use them: ``data:`` lines, blank line between events."""

from __future__ import annotations

import json
from typing import Any

DONE = b"data: [DONE]\n\n"
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Chunk(dict[str, Any]):
    """A decoded event that is not changed any more and keeps its ``text``, so that it is encoded once or never.

    ``text`` is one line of JSON whose strings stand in it as they are, or as :func:`json_text` escapes them: who
    searches it finds what a search of the values would find.
    """

    __slots__ = ("text",)

    def __init__(self, value: dict[str, Any], text: str = "") -> None:
        super().__init__(value)
        self.text = text if text and "\\" not in text and "\n" not in text else json_text(value)


class EventParser:
    """Splits a byte stream into the data of its events, whatever the chunk borders and line ends are."""

    def __init__(self) -> None:
        self._rest = b""
        self._lines: list[bytes] = []

    def feed(self, data: bytes) -> list[str]:
        """Take the next bytes; return the data of every event they complete (comments and other fields dropped)."""
        self._rest += data
        held = b""
        if self._rest.endswith(b"\r"):  # its "\n" may be in the next piece
            self._rest, held = self._rest[:-1], b"\r"
        *lines, tail = self._rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = tail + held
        return [event for line in lines if (event := self._line(line)) is not None]

    def close(self) -> list[str]:
        """Take the end of the stream; return an event that lacks its blank line, if there is one."""
        return self.feed(b"\n\n") if self._rest or self._lines else []

    def _line(self, line: bytes) -> str | None:
        if line.startswith(b"data:"):
            self._lines.append(line[5:].removeprefix(b" "))
            return None
        if line or not self._lines:
            return None
        event, self._lines = b"\n".join(self._lines), []
        return event.decode("utf-8", "replace")


def json_text(value: Any) -> str:
    """A value as one line of JSON, in ASCII."""
    return _ENCODER.encode(value)


def text_of_chunk(chunk: dict[str, Any]) -> str:
    """The JSON text of one chunk."""
    return chunk.text if isinstance(chunk, Chunk) else json_text(chunk)


def encode(value: dict[str, Any], name: str = "") -> bytes:
    """One event that carries ``value`` as JSON; ``name`` is its type where the wire has typed events."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text_of_chunk(value)}\n\n".encode()
