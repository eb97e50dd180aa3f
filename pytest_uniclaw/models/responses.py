"""Chat answers as Responses: the way out of the responses wire.

:class:`Response` is fed the chunks of a chat answer and gives the events of a Responses stream, in OpenAI's order:
``created``, ``in_progress``; per item ``output_item.added``, its deltas, its ``done`` events, ``output_item.done``;
last ``completed``, ``incomplete`` or ``failed``. A whole answer goes the same way, without the events.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, Literal

from pytest_uniclaw.models.bridge import Extras
from pytest_uniclaw.models.chat import Assembled, Json
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.toolbox import Tool, Toolbox

Events = Iterator[Json]
_Status = Literal["in_progress", "completed", "incomplete"]
_Kind = Literal["message", "reasoning"]
_ECHOED = (
    "instructions", "max_output_tokens", "metadata", "reasoning", "temperature", "text", "tool_choice", "tools",
    "top_p", "truncation", "user",
)  # fmt: skip
"""Parameters of the request that stand in the response again."""
_STOPPED = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reasons of an answer that is not whole, as ``incomplete_details.reason``."""
_CODES = frozenset({"context_length_exceeded", "insufficient_quota", "rate_limit_exceeded"})
"""Error codes that clients of the responses wire know; every other failure is a ``server_error``."""


class _Text:
    """A message or a reasoning item: one part of text that grows."""

    def __init__(self, kind: _Kind, stem: str, index: int) -> None:
        self.kind, self.index = kind, index
        self.id = f"{'msg' if kind == 'message' else 'rs'}_{stem}_{index}"
        self.text = ""
        self.status: _Status = "in_progress"
        self._stream = "response.output_text" if kind == "message" else "response.reasoning_text"
        self._logprobs: Json = {"logprobs": []} if kind == "message" else {}

    def json(self) -> Json:
        """The item with what it holds so far."""
        parts = [self._part()] if self.text else []
        if self.kind == "message":
            return {"id": self.id, "type": "message", "status": self.status, "role": "assistant", "content": parts}
        return {"id": self.id, "type": "reasoning", "summary": [], "content": parts, "encrypted_content": None}

    def open(self) -> Events:
        """The events that announce it."""
        yield _event("response.output_item.added", output_index=self.index, item=self.json())
        yield self._at("response.content_part.added", part=self._part())

    def grow(self, piece: str) -> Events:
        """More text."""
        self.text += piece
        yield self._at(f"{self._stream}.delta", delta=piece, **self._logprobs)

    def close(self, status: _Status) -> Events:
        """The events that end it."""
        self.status = status
        yield self._at(f"{self._stream}.done", text=self.text, **self._logprobs)
        yield self._at("response.content_part.done", part=self._part())
        yield _event("response.output_item.done", output_index=self.index, item=self.json())

    def _part(self) -> Json:
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": self.text}
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}

    def _at(self, kind: str, **fields: Any) -> Json:
        return _event(kind, item_id=self.id, output_index=self.index, content_index=0, **fields)


class _Call:
    """A tool call: its arguments grow; the input of a custom tool is known when they are whole."""

    def __init__(self, call_id: str, tool: Tool, stem: str, index: int) -> None:
        self.call_id, self.tool, self.index = call_id, tool, index
        self.id = f"{'ctc' if tool.custom else 'fc'}_{stem}_{index}"
        self.arguments = ""
        self.status: _Status = "in_progress"

    def json(self) -> Json:
        """The item with what it holds so far."""
        kind = "custom_tool_call" if self.tool.custom else "function_call"
        item = {"id": self.id, "type": kind, "status": self.status, "call_id": self.call_id, "name": self.tool.name}
        if self.tool.namespace is not None:
            item["namespace"] = self.tool.namespace
        if self.tool.custom:
            return item | {"input": custom_input(self.arguments) if self.status == "completed" else ""}
        return item | {"arguments": self.arguments}

    def open(self) -> Events:
        """The event that announces it."""
        yield _event("response.output_item.added", output_index=self.index, item=self.json())

    def grow(self, piece: str) -> Events:
        """More of the arguments."""
        self.arguments += piece
        if not self.tool.custom:
            yield self._at("response.function_call_arguments.delta", delta=piece)

    def close(self) -> Events:
        """The events that end it."""
        self.status = "completed"
        if self.tool.custom:
            text = custom_input(self.arguments)
            yield self._at("response.custom_tool_call_input.delta", delta=text)
            yield self._at("response.custom_tool_call_input.done", input=text)
        else:
            done = {"name": self.tool.name, "arguments": self.arguments}
            yield self._at("response.function_call_arguments.done", **done)
        yield _event("response.output_item.done", output_index=self.index, item=self.json())

    def _at(self, kind: str, **fields: Any) -> Json:
        return _event(kind, item_id=self.id, output_index=self.index, **fields)


class Response:
    """One response as it comes to be. ``stem`` makes its ids unique, ``created`` is Unix time in seconds."""

    def __init__(self, request: Json, toolbox: Toolbox, extras: Extras, *, stem: str, created: int) -> None:
        self._head = _head(request, stem, created)
        self._toolbox = toolbox
        self._extras = extras
        self._stem = stem
        self._numbers = itertools.count()
        self._seen = Assembled()
        self._items: list[_Text | _Call] = []
        self._calls: dict[int, _Call] = {}

    def begin(self) -> list[Json]:
        """The events before the first chunk."""
        begun = self._head | {"status": "in_progress"}
        return self._numbered(_event(f"response.{name}", response=begun) for name in ("created", "in_progress"))

    def chunk(self, chunk: Json) -> list[Json]:
        """The events of one chunk."""
        thought, said = len(self._seen.reasoning), len(self._seen.text)
        self._seen.add(chunk)
        return self._numbered(self._grown(self._seen.reasoning[thought:], self._seen.text[said:]))

    def end(self) -> list[Json]:
        """The events after the last chunk."""
        return self._numbered(self._ended())

    def failed(self, failure: CallFailed) -> list[Json]:
        """The event of an answer that broke off."""
        error = failure.body()["error"]
        code = error["code"] if error["code"] in _CODES else "server_error"
        outcome = {"status": "failed", "error": {"code": code, "message": error["message"]}}
        response = self._head | outcome | {"output": self._output()}
        return self._numbered(iter([_event("response.failed", response=response)]))

    def whole(self, completion: Json) -> Json:
        """The response for a chat answer that came in one piece."""
        message = completion["choices"][0]["message"]
        calls = message.get("tool_calls")
        calls = calls if isinstance(calls, list) else []
        numbered = [call | {"index": index} for index, call in enumerate(calls) if isinstance(call, dict)]
        delta = message | {"tool_calls": numbered}
        finish = completion["choices"][0].get("finish_reason")
        chunk = {"choices": [{"delta": delta, "finish_reason": finish}], "usage": completion.get("usage")}
        self.chunk(chunk)
        response: Json = self.end()[-1]["response"]
        return response

    def _grown(self, thought: str, said: str) -> Events:
        pieces: tuple[tuple[_Kind, str], ...] = (("reasoning", thought), ("message", said))
        for kind, piece in pieces:
            if piece:
                yield from self._text(kind, piece)
        # A call's name is whole when arguments of it, or of a later call, have come.
        begun = max((index for index, call in self._seen.calls.items() if call["function"]["arguments"]), default=-1)
        for index, call in sorted(self._seen.calls.items()):
            if index <= begun and call["function"]["name"]:
                yield from self._called(index, call, call["function"]["arguments"])

    def _text(self, kind: _Kind, piece: str) -> Events:
        last = self._items[-1] if self._items else None
        if not isinstance(last, _Text) or last.kind != kind or last.status != "in_progress":
            yield from self._close_text("completed")
            last = _Text(kind, self._stem, len(self._items))
            self._items.append(last)
            yield from last.open()
        yield from last.grow(piece)

    def _called(self, index: int, call: Json, arguments: str) -> Events:
        """Announce a call the first time, and pass on what is new of its arguments."""
        item = self._calls.get(index)
        if item is None:
            yield from self._close_text("completed")
            call_id = call["id"] or f"call_{self._stem}_{index}"
            item = _Call(call_id, self._toolbox.find(call["function"]["name"]), self._stem, len(self._items))
            self._calls[index] = item
            self._items.append(item)
            yield from item.open()
        if len(arguments) > len(item.arguments):
            yield from item.grow(arguments[len(item.arguments) :])

    def _ended(self) -> Events:
        reason = _STOPPED.get(self._seen.finish_reason or "")
        yield from self._close_text("incomplete" if reason and not self._seen.calls else "completed")
        for index, call in sorted(self._seen.calls.items()):
            # Some providers send no arguments at all for a function without parameters.
            yield from self._called(index, call, call["function"]["arguments"] or ("" if reason else "{}"))
            item = self._calls[index]
            if "extra_content" in call:
                self._extras.keep(item.call_id, call["extra_content"])
            if reason is None or _is_json(item.arguments):
                yield from item.close()  # a call that was cut off is not done: nobody may run it
        outcome: Json = {"output": self._output(), "usage": responses_usage(self._seen.usage)}
        if reason:
            outcome |= {"status": "incomplete", "incomplete_details": {"reason": reason}}
        else:
            outcome["status"] = "completed"
        yield _event(f"response.{outcome['status']}", response=self._head | outcome)

    def _close_text(self, status: _Status) -> Events:
        last = self._items[-1] if self._items else None
        if isinstance(last, _Text) and last.status == "in_progress":
            yield from last.close(status)

    def _output(self) -> list[Json]:
        """All items; what has not come to its end is incomplete."""
        for item in self._items:
            if item.status == "in_progress":
                item.status = "incomplete"
        return [item.json() for item in self._items]

    def _numbered(self, events: Events) -> list[Json]:
        return [event | {"sequence_number": next(self._numbers)} for event in events]


def custom_input(arguments: str) -> str:
    """The free text of a custom tool in the arguments of the function that stands for it."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return arguments
    text = value.get("input") if isinstance(value, dict) else value
    return text if isinstance(text, str) else arguments


def responses_usage(usage: Any) -> Json | None:
    """A chat usage in the words of the responses wire; None while the provider states none."""
    sent, said = (_count(usage, name) for name in ("prompt_tokens", "completion_tokens"))
    if sent is None or said is None:
        return None
    cached = _count(usage.get("prompt_tokens_details"), "cached_tokens")
    written = _count(usage.get("prompt_tokens_details"), "cache_write_tokens")
    thought = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    return {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": cached or 0, "cache_write_tokens": written or 0},
        "output_tokens": said,
        "output_tokens_details": {"reasoning_tokens": thought or 0},
        "total_tokens": sent + said,
    }


def _head(request: Json, stem: str, created: int) -> Json:
    head: Json = {"id": f"resp_{stem}", "object": "response", "created_at": created, "status": "in_progress"}
    head |= {"error": None, "incomplete_details": None, "model": request.get("model"), "output": [], "usage": None}
    head |= {name: request.get(name) for name in _ECHOED}
    head["tools"] = head["tools"] or []
    head["tool_choice"] = head["tool_choice"] or "auto"
    head["text"] = head["text"] or {"format": {"type": "text"}}
    parallel = request.get("parallel_tool_calls")
    head["parallel_tool_calls"] = parallel if isinstance(parallel, bool) else True
    return head | {"previous_response_id": None, "store": False, "background": False}


def _event(kind: str, **fields: Any) -> Json:
    return {"type": kind} | fields


def _count(values: Any, name: str) -> int | None:
    value = values.get(name) if isinstance(values, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
