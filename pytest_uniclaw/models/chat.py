"""The chat.completions wire as pure functions: chunks to a message, a message to chunks, token counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
_PIECE = 48
"""Characters per chunk when a whole message is cut into a stream."""
_IMAGE_TOKENS = 765


@dataclass
class Assembled:
    """A streamed answer as it grows: the first choice's text, tool calls, finish reason, and the usage."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, Json] = field(default_factory=dict)
    finish_reason: str | None = None
    usage: Any = None

    def add(self, chunk: Json) -> None:
        """Fold one chunk in; whatever is not of the expected type is passed over."""
        if chunk.get("usage"):
            self.usage = chunk["usage"]
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index", 0) not in (0, None):
            return
        if isinstance(choice.get("finish_reason"), str):
            self.finish_reason = choice["finish_reason"]
        delta = choice.get("delta")
        if isinstance(delta, dict):
            self._delta(delta)

    def message(self) -> Json:
        """The answer so far as an assistant message."""
        message: Json = {"role": "assistant", "content": self.text or None}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            message["tool_calls"] = [self.calls[index] for index in sorted(self.calls)]
        return message

    @property
    def empty(self) -> bool:
        """Whether nothing that belongs into a transcript has come yet."""
        return not (self.text or self.reasoning or self.calls or self.finish_reason)

    def _delta(self, delta: Json) -> None:
        for name in ("content", "refusal"):
            if isinstance(delta.get(name), str):
                self.text += delta[name]
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str):
            self.reasoning += thought
        calls = delta.get("tool_calls")
        for part in calls if isinstance(calls, list) else ():
            if isinstance(part, dict):
                self._call(part)

    def _call(self, part: Json) -> None:
        index = part.get("index")
        index = index if isinstance(index, int) else max(self.calls, default=0)
        blank = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self.calls.setdefault(index, blank)
        if isinstance(part.get("id"), str) and part["id"]:
            call["id"] = part["id"]
        if "extra_content" in part:
            call["extra_content"] = part["extra_content"]
        function = part.get("function")
        for name in ("name", "arguments"):
            if isinstance(function, dict) and isinstance(function.get(name), str):
                call["function"][name] += function[name]


def assemble(chunks: list[Json]) -> Assembled:
    """Fold a recorded stream."""
    found = Assembled()
    for chunk in chunks:
        found.add(chunk)
    return found


def is_completion(value: Any) -> bool:
    """Whether a decoded body is a chat completion with a message in it."""
    choices = value.get("choices") if isinstance(value, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    return isinstance(first, dict) and isinstance(first.get("message"), dict)


def completion(message: Json, *, model: str, ident: str, created: int, usage: Json, finish_reason: str) -> Json:
    """A whole chat.completion around one assistant message."""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    head = {"id": ident, "object": "chat.completion", "created": created, "model": model}
    return head | {"choices": [choice], "usage": usage}


def chunks_of(whole: Json) -> Iterator[Json]:
    """Cut a chat.completion into chat.completion.chunk values: role, pieces, finish, usage."""
    head = {k: whole[k] for k in ("id", "created", "model") if k in whole} | {"object": "chat.completion.chunk"}

    def chunk(delta: Json, finish: str | None = None) -> Json:
        return head | {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}

    choice = whole["choices"][0]
    yield chunk({"role": "assistant", "content": ""})
    yield from (chunk(delta) for delta in _deltas(choice["message"]))
    yield chunk({}, choice.get("finish_reason") or "stop")
    if whole.get("usage"):
        yield head | {"choices": [], "usage": whole["usage"]}


def usage_only(chunk: Json) -> bool:
    """Whether a chunk exists only to carry the usage, and is dropped for clients that did not ask for it."""
    return not chunk.get("choices") and bool(chunk.get("usage"))


def token_counts(usage: Any) -> dict[str, int | None]:
    """The ledger's four counters from a provider's usage; None for each that it does not state."""
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    details = details if isinstance(details, dict) else {}
    return {
        "input_tokens": _count(usage.get("prompt_tokens")),
        "output_tokens": _count(usage.get("completion_tokens")),
        "cache_read_tokens": _count(details.get("cached_tokens", usage.get("cache_read_input_tokens"))),
        "cache_write_tokens": _count(details.get("cache_write_tokens", usage.get("cache_creation_input_tokens"))),
    }


def text_of(message: Any) -> str:
    """The text of one message's content, whether it is a string or a list of parts."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part.get("text") if isinstance(part, dict) else part for part in parts)
    return "\n".join(text for text in texts if isinstance(text, str))


def estimate_tokens(messages: Any, tools: Any = None) -> int:
    """A plausible token count: four characters a token, a flat figure for each image."""
    total = len(json.dumps(tools)) if tools else 0
    images = 0
    for message in messages if isinstance(messages, list) else ():
        total += len(text_of(message)) + 16
        if isinstance(message, dict):
            total += len(json.dumps(message["tool_calls"])) if message.get("tool_calls") else 0
            parts = message.get("content")
            images += sum(isinstance(p, dict) and "image_url" in p for p in parts) if isinstance(parts, list) else 0
    return total // 4 + images * _IMAGE_TOKENS


def _deltas(message: Json) -> Iterator[Json]:
    for name in ("reasoning_content", "content"):
        text = message.get(name)
        yield from ({name: piece} for piece in _pieces(text if isinstance(text, str) else ""))
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call["function"]
        opening = {"name": function["name"], "arguments": ""}
        yield {"tool_calls": [call | {"index": index, "function": opening}]}
        for piece in _pieces(function["arguments"]):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
