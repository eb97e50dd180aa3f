"""The wires that agents speak. Each turns a request into chat.completions, and a chat answer into its own words."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

from pytest_uniclaw.models.bridge import Extras, translate
from pytest_uniclaw.models.chat import Json, usage_only
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.responses import Response
from pytest_uniclaw.models.sse import DONE, encode


class Wire(Protocol):
    """One call on one wire. ``chat`` is the request for the provider, ``notes`` what it could not carry over."""

    chat: Json
    notes: tuple[str, ...]

    def whole(self, completion: Json) -> Json:
        """The body for an answer in one piece."""

    def begin(self) -> bytes:
        """What a stream begins with."""

    def chunk(self, chunk: Json) -> bytes:
        """What a chunk becomes; may be empty."""

    def end(self) -> bytes:
        """What a complete stream ends with."""

    def failed(self, failure: CallFailed) -> bytes:
        """What a broken stream ends with."""


class ChatWire:
    """``/v1/chat/completions``: everything passes as it is, but for token counts that were not asked for."""

    notes: tuple[str, ...] = ()

    def __init__(self, body: Json) -> None:
        self.chat = body
        options = body.get("stream_options")
        self._with_usage = isinstance(options, dict) and options.get("include_usage") is True

    def whole(self, completion: Json) -> Json:
        """See :class:`Wire`."""
        return completion

    def begin(self) -> bytes:
        """See :class:`Wire`."""
        return b""

    def chunk(self, chunk: Json) -> bytes:
        """See :class:`Wire`."""
        return encode(chunk) if self._with_usage or not usage_only(chunk) else b""

    def end(self) -> bytes:
        """See :class:`Wire`."""
        return DONE

    def failed(self, failure: CallFailed) -> bytes:
        """See :class:`Wire`."""
        return encode(failure.body())


class ResponsesWire:
    """``/v1/responses``. ``stem`` makes ids unique; ``extras`` belong to the grant. Raises CallFailed (bridge.py)."""

    def __init__(self, body: Json, extras: Extras, stem: str) -> None:
        translated = translate(body, extras)
        self.chat, self.notes = translated.body, translated.notes
        self._response = Response(body, translated.toolbox, extras, stem=stem, created=int(time.time()))

    def whole(self, completion: Json) -> Json:
        """See :class:`Wire`."""
        return self._response.whole(completion)

    def begin(self) -> bytes:
        """See :class:`Wire`."""
        return _encoded(self._response.begin())

    def chunk(self, chunk: Json) -> bytes:
        """See :class:`Wire`."""
        return _encoded(self._response.chunk(chunk))

    def end(self) -> bytes:
        """See :class:`Wire`."""
        return _encoded(self._response.end())

    def failed(self, failure: CallFailed) -> bytes:
        """See :class:`Wire`."""
        return _encoded(self._response.failed(failure))


def _encoded(events: Iterable[Json]) -> bytes:
    return b"".join(encode(event, event["type"]) for event in events)
