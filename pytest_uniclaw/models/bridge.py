"""A Responses request as a chat.completions request: the way in of the responses wire. Pure functions.

Rules: one answer of the model (reasoning, text, calls) is one assistant message. Results stand directly behind the
message with their calls, in the order of the calls; pictures in them follow in one user message. A call without a
result gets a placeholder and a result without a call becomes words, since chat providers refuse either. Instructions
and developer messages at the beginning become one system message, later ones stay where they are. Nothing is kept
between requests: what refers to a stored response is refused.
"""

from __future__ import annotations

import json
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.models.toolbox import Toolbox, refused

PICTURES = "Attached image(s) from tool result:"
"""How the user message begins that carries the pictures of tool results."""
ORPHAN = "[result of a tool call that is no longer in this conversation]"
"""How the user message begins that carries such a result."""
_NO_RESULT = "(no result: the call was interrupted)"
_PICTURE_ONLY = "(see the attached image)"
_STORED = ("previous_response_id", "conversation", "prompt")
"""Parameters that refer to something kept by the service."""
_COPIED = ("temperature", "top_p", "user", "seed", "stop")
_SILENT = frozenset(
    {
        "model", "input", "instructions", "stream", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text",
        "max_output_tokens", "store", "include", "metadata", "client_metadata", "prompt_cache_key", "truncation",
        "stream_options", "background", *_STORED, *_COPIED,
    }
)  # fmt: skip
"""Parameters that are translated, or that change nothing about the answer."""
_TEXTS = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


class Extras:
    """The ``extra_content`` of a grant's tool calls by call id: some providers want it back, and a Responses item has
    no place for it. Bounded; the oldest go first.
    """

    def __init__(self, limit: int = 1000) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def keep(self, call_id: str, value: Any) -> None:
        """Remember the extra content of one call."""
        self._kept[call_id] = value
        self._kept.move_to_end(call_id)
        if len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def of(self, call_id: str) -> Json:
        """The fields to add to a call."""
        kept = self._kept.get(call_id)
        return {} if kept is None else {"extra_content": kept}


@dataclass(frozen=True)
class Translated:
    """A chat request, the tools behind its functions' names, and what could not be carried over."""

    body: Json
    toolbox: Toolbox
    notes: tuple[str, ...]


def translate(body: Json, extras: Extras) -> Translated:
    """Translate a request. Raises CallFailed (``bad_request``) for one that no chat provider can answer."""
    for name in _STORED:
        if body.get(name) is not None:
            raise refused(f"'{name}' is not supported: this service stores nothing, send the conversation in 'input'")
    if body.get("background"):
        raise refused("'background' is not supported: this service stores no responses")
    toolbox = Toolbox(_offered(body))
    chat = {name: body[name] for name in _COPIED if body.get(name) is not None} | _options(body)
    chat |= {name: body[name] for name in ("model", "stream") if name in body}
    chosen = toolbox.choice(body.get("tool_choice"))
    conversation = _Conversation(toolbox, extras)
    conversation.read(body.get("instructions"), body.get("input"))
    chat["messages"] = conversation.messages()
    if toolbox.functions:
        chat["tools"] = toolbox.functions
        chat |= {} if chosen is None else {"tool_choice": chosen}
        if isinstance(body.get("parallel_tool_calls"), bool):
            chat["parallel_tool_calls"] = body["parallel_tool_calls"]
    unknown = [f"parameter {name} left out" for name in sorted(set(body) - _SILENT)]
    return Translated(chat, toolbox, tuple(dict.fromkeys([*toolbox.notes, *conversation.notes, *unknown])))


def _offered(body: Json) -> Any:
    """The tools of a request, with those that items of its input add; of two with one name the later one counts."""
    tools, given = body.get("tools"), body.get("input")
    added = [item.get("tools") for item in given if _adds_tools(item)] if isinstance(given, list) else []
    if not added:
        return tools
    if not all(isinstance(some, list) for some in (tools or [], *added)):
        raise refused("'tools' must be a list")
    every = [tool for some in (tools or [], *added) for tool in some]
    return list({str(tool.get("name", tool)) if isinstance(tool, dict) else str(tool): tool for tool in every}.values())


def _adds_tools(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") == "additional_tools"


def _options(body: Json) -> Json:
    """The parameters that have other names on the chat wire."""
    found: Json = {}
    reasoning, text, limit = body.get("reasoning"), body.get("text"), body.get("max_output_tokens")
    if limit is not None:
        found["max_tokens"] = limit
    if isinstance(reasoning, dict) and reasoning.get("effort") is not None:
        found["reasoning_effort"] = reasoning["effort"]
    if isinstance(text, dict) and text.get("verbosity") is not None:
        found["verbosity"] = text["verbosity"]
    form = text.get("format") if isinstance(text, dict) else None
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "json_object":
        found["response_format"] = {"type": kind}
    elif isinstance(form, dict) and kind == "json_schema":
        schema = {key: value for key, value in form.items() if key != "type" and value is not None}
        found["response_format"] = {"type": kind, kind: schema}
    return found


@dataclass
class _Answer:
    """One answer of the model as it is put together, with the results of its calls."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Json] = field(default_factory=list)
    results: list[Json | None] = field(default_factory=list)
    pictures: list[Json] = field(default_factory=list)
    open: bool = True

    def messages(self) -> Iterator[Json]:
        text = "\n".join(self.texts)
        message: Json = {"role": "assistant", "content": None if self.calls and not text else text}
        if self.thoughts:
            message["reasoning_content"] = "\n".join(self.thoughts)
        yield message | ({"tool_calls": self.calls} if self.calls else {})
        for call, result in zip(self.calls, self.results, strict=True):
            yield result or {"role": "tool", "tool_call_id": call["id"], "content": _NO_RESULT}
        if self.pictures:
            yield {"role": "user", "content": [{"type": "text", "text": PICTURES}, *self.pictures]}


class _Conversation:
    """Chat messages as they grow out of input items."""

    def __init__(self, toolbox: Toolbox, extras: Extras) -> None:
        self.notes: list[str] = []
        self._toolbox = toolbox
        self._extras = extras
        self._parts: list[Json | _Answer] = []
        self._open: dict[str, list[tuple[_Answer, deque[int]]]] = {}

    def read(self, instructions: Any, given: Any) -> None:
        """Take a request's words in. Raises CallFailed for what is no input."""
        if isinstance(instructions, str) and instructions:
            self._parts.append({"role": "system", "content": instructions})
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not items:
            raise refused("'input' must be a text, or a list of at least one item")
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                raise refused(f"'input[{index}]' must be an object")
            self._item(f"input[{index}]", item)

    def messages(self) -> list[Json]:
        """The chat messages."""
        found: list[Json] = []
        for part in self._parts:
            found += part.messages() if isinstance(part, _Answer) else [part]
        return found

    def _item(self, where: str, item: Json) -> None:
        kind = item.get("type") or ("message" if "role" in item else None)
        if kind == "message":
            self._message(where, item)
        elif kind == "reasoning":
            if text := _reasoning(item):
                self._answer().thoughts.append(text)
        elif kind in ("function_call", "custom_tool_call"):
            self._call(where, item)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self._result(where, item)
        elif _adds_tools(item):
            return  # they stand in the toolbox
        elif kind == "item_reference":
            raise refused(f"'{where}' refers to a stored item: this service stores nothing, send the item itself")
        else:
            self.notes.append(f"item {kind} left out: the chat wire has none of its kind")

    def _message(self, where: str, item: Json) -> None:
        role = item.get("role")
        if role == "assistant":
            self._answer().texts += [text] if (text := _text_of(self._content(item))) else []
        elif role in ("system", "developer"):
            self._system(_text_of(self._content(item)))
        elif role == "user":
            self._add({"role": "user", "content": _simple(self._content(item))})
        else:
            raise refused(f"'{where}' must have the role user, assistant, system or developer")

    def _system(self, text: str) -> None:
        first = self._parts[0] if len(self._parts) == 1 else None
        if isinstance(first, dict) and first["role"] == "system":
            first["content"] += f"\n\n{text}"
        else:
            self._add({"role": "system", "content": text})

    def _call(self, where: str, item: Json) -> None:
        name, call_id = item.get("name"), item.get("call_id")
        if not isinstance(name, str) or not isinstance(call_id, str):
            raise refused(f"'{where}' must have a name and a call_id")
        if item["type"] == "custom_tool_call":
            arguments = json.dumps({"input": item.get("input")}, ensure_ascii=False)
        else:
            arguments = item["arguments"] if isinstance(item.get("arguments"), str) else "{}"
        namespace = item.get("namespace")
        flat = self._toolbox.flat(name, namespace if isinstance(namespace, str) else None)
        function = {"name": flat, "arguments": arguments}
        answer = self._answer()
        answer.calls.append({"id": call_id, "type": "function", "function": function} | self._extras.of(call_id))
        answer.results.append(None)
        waiting = self._open.setdefault(call_id, [])
        if not waiting or waiting[-1][0] is not answer:
            waiting.append((answer, deque()))
        waiting[-1][1].append(len(answer.calls) - 1)

    def _result(self, where: str, item: Json) -> None:
        call_id, parts = item.get("call_id"), self._content({"content": item.get("output")})
        pictures = [part for part in parts if part["type"] != "text"]
        text = _text_of(parts) or (_PICTURE_ONLY if pictures else "")
        self._close()
        waiting = self._open.get(call_id, []) if isinstance(call_id, str) else []
        if waiting:
            answer, places = waiting[-1]
            answer.results[places.popleft()] = {"role": "tool", "tool_call_id": call_id, "content": text}
            answer.pictures += pictures
            if not places:
                waiting.pop()
            return
        words: Json = {"type": "text", "text": f"{ORPHAN}\n{text}"}
        self._add({"role": "user", "content": _simple([words, *pictures])})

    def _content(self, item: Json) -> list[Json]:
        """The parts of a content, which may be a text, a list, or (in results) any JSON."""
        content = item.get("content")
        if isinstance(content, str):
            return [{"type": "text", "text": content}]
        if not isinstance(content, list):
            return [] if content is None else [{"type": "text", "text": json.dumps(content, ensure_ascii=False)}]
        parts = [(given, _part(given)) for given in content]
        for given, part in parts:
            if part is None:
                kind = given.get("type") if isinstance(given, dict) else type(given).__name__
                self.notes.append(f"content {kind} left out: the chat wire cannot carry it")
        return [part for _, part in parts if part is not None]

    def _answer(self) -> _Answer:
        """The answer that the next item of the model belongs to."""
        last = self._parts[-1] if self._parts else None
        if isinstance(last, _Answer) and last.open:
            return last
        answer = _Answer()
        self._parts.append(answer)
        return answer

    def _close(self) -> None:
        last = self._parts[-1] if self._parts else None
        if isinstance(last, _Answer):
            last.open = False

    def _add(self, message: Json) -> None:
        self._parts.append(message)


def _part(part: Any) -> Json | None:
    """One part of a content on the chat wire, None for what it cannot carry. Raises CallFailed for a type of none."""
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str | None):
        raise refused("the type of a content part must be a text")
    if kind in _TEXTS or kind == "refusal":
        text = part.get("refusal" if kind == "refusal" else "text")
        return {"type": "text", "text": text} if isinstance(text, str) else None
    if kind in ("input_image", "image_url"):
        url = part.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        detail = {"detail": part["detail"]} if part.get("detail") in ("auto", "low", "high") else {}
        return {"type": "image_url", "image_url": {"url": url} | detail} if isinstance(url, str) else None
    if kind == "input_file":
        file = {name: part[name] for name in ("file_data", "filename") if isinstance(part.get(name), str)}
        return {"type": "file", "file": file} if "file_data" in file else None
    return {"type": kind, kind: part.get(kind)} if kind == "input_audio" else None


def _reasoning(item: Json) -> str:
    """The words of a reasoning item: its content, else its summary."""
    for name in ("content", "summary"):
        parts = item.get(name)
        texts = [part.get("text") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        if words := [text for text in texts if isinstance(text, str) and text]:
            return "\n".join(words)
    return ""


def _text_of(parts: list[Json]) -> str:
    return "\n".join(part["text"] for part in parts if part["type"] == "text")


def _simple(parts: list[Json]) -> Any:
    """A content of texts only as one text, which every provider takes."""
    return parts if any(part["type"] != "text" for part in parts) else _text_of(parts)
