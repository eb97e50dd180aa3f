"""What command-line agents write of their conversation, as messages of the chat wire. All of it is untrusted bytes.

* ``openai-jsonl``: one chat message a line, bare or as the value of ``message``.
* ``stream-json``: events ``assistant``, ``user`` and ``result`` with content blocks, as qwen-code and Claude Code print
  them. Adjacent answers of the model are one message. What the agent prints in the model's name for a failed call,
  which its ``result`` repeats as the error, is no answer.
* ``opencode-json``: events ``text``, ``reasoning`` and ``tool_use`` of opencode; those of one message are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from pytest_uniclaw.agents.transcript import MAX_BLOCKS
from pytest_uniclaw.agents.wire import Answer, blocks_of, image, kind_of, listed, tool_call, tool_result
from pytest_uniclaw.models.chat import Json

SUB_AGENT = "_uniclaw_sub_agent"
"""In a message of a sub-agent: the id of the call that began it."""


def openai_messages(lines: Iterable[Json]) -> Iterator[Json]:
    """Yield the chat messages of lines."""
    for line in lines:
        inner = line.get("message")
        message = inner if isinstance(inner, dict) and "role" not in line else line
        if isinstance(message.get("role"), str):
            yield {"timestamp": line.get("timestamp"), **message}


def stream_messages(lines: Iterable[Json]) -> Iterator[Json]:
    """Yield the messages of ``stream-json`` events."""
    answers: dict[str, Answer] = {}
    names: dict[str, str] = {}
    for event in lines:
        kind, parent = event.get("type"), str(event.get("parent_tool_use_id") or "")
        blocks = _blocks(event)
        if kind == "assistant":
            answer = answers.setdefault(parent, Answer(event.get("timestamp")))
            _take(answer, blocks, names)
        elif kind in ("user", "result", "tool_result"):
            answer = answers.pop(parent, Answer())
            if kind != "result" or not _is_stand_in(answer, event):
                yield _of(answer.message(), parent)
            yield from (_of(message, parent) for message in _told(event, blocks, names))
    yield from (_of(answer.message(), parent) for parent, answer in answers.items())


def _told(event: Json, blocks: list[Json], names: Mapping[str, str]) -> Iterator[Json]:
    """Yield what an event in the user's name tells the model: results of calls, and words."""
    yield from (_result(block, event, names) for block in blocks if kind_of(block) == "tool_result")
    if words := [_part(block) for block in blocks if kind_of(block) in ("text", "image")]:
        yield {"role": "user", "timestamp": event.get("timestamp"), "content": words}


def _of(message: Json, parent: str) -> Json:
    return message | {SUB_AGENT: parent} if parent else message


def _take(answer: Answer, blocks: list[Json], names: dict[str, str]) -> None:
    """Add the blocks of an event to an answer, and the names by which results are paired with calls."""
    for block in blocks:
        kind = kind_of(block)
        if kind == "tool_use":
            call = _call(block.get("id"), block.get("name"), block.get("input"))
            if answer.call(call):
                names[call["id"]] = call["function"]["name"]
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            answer.think([block["thinking"]])
        elif kind in ("text", "image"):
            answer.say([_part(block)])


def _is_stand_in(answer: Answer, result: Mapping[str, Any]) -> bool:
    """Whether an answer is the text of the error with which the turn ended."""
    error = result.get("error")
    told = error.get("message") if isinstance(error, dict) else error
    said = [part.get("text") for part in answer.texts]
    return result.get("is_error") is True and isinstance(told, str) and said == [told] and not answer.calls


def _result(block: Mapping[str, Any], event: Mapping[str, Any], names: Mapping[str, str]) -> Json:
    content, identity = block.get("content"), str(block.get("tool_use_id") or "")
    parts = [_part(part) for part in listed(content)] if isinstance(content, list) else content
    return tool_result(identity, names.get(identity, ""), parts) | {"timestamp": event.get("timestamp")}


def opencode_messages(lines: Iterable[Json]) -> Iterator[Json]:
    """Yield the messages of ``opencode-json`` events."""
    answer, results, current = Answer(), list[Json](), ""
    for event in lines:
        part = event.get("part")
        if not isinstance(part, dict):
            continue
        if str(part.get("messageID")) != current:
            yield from (answer.message(), *results)
            answer, results, current = Answer(_moment(event.get("timestamp"))), [], str(part.get("messageID"))
        _take_part(answer, results, str(event.get("type")), part)
    yield from (answer.message(), *results)


def _take_part(answer: Answer, results: list[Json], kind: str, part: Mapping[str, Any]) -> None:
    if kind == "text":
        answer.say([{"type": "text", "text": part.get("text")}])
    elif kind == "reasoning" and isinstance(part.get("text"), str):
        answer.think([part["text"]])
    elif kind == "tool_use":
        call, result = _call_and_result(part)
        if answer.call(call):
            results.append(result | {"timestamp": answer.stamp})


def _call_and_result(part: Mapping[str, Any]) -> tuple[Json, Json]:
    """Return a call and its result. A call that opencode could not make is one of ``invalid``, which names it."""
    state, name = part.get("state"), part.get("tool")
    state = state if isinstance(state, dict) else {}
    arguments = state.get("input")
    if name == "invalid" and isinstance(arguments, dict) and isinstance(arguments.get("tool"), str):
        name, arguments = arguments["tool"], {}
    call = _call(part.get("callID"), name, arguments)
    said = state.get("output") if state.get("output") is not None else state.get("error")
    files = state.get("attachments")
    images = [{"type": "image_url", "image_url": file.get("url")} for file in files if isinstance(file, dict)
              and str(file.get("url")).startswith("data:image/")] if isinstance(files, list) else []  # fmt: skip
    content = [{"type": "text", "text": said}, *images[:MAX_BLOCKS]] if images else said
    return call, tool_result(call["id"], call["function"]["name"], content)


def _moment(stamp: Any) -> Any:
    """Return milliseconds since 1970 as ISO 8601."""
    try:
        return datetime.fromtimestamp(stamp / 1000, UTC).isoformat(timespec="milliseconds")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def _blocks(event: Mapping[str, Any]) -> list[Json]:
    message = event.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return blocks_of(content)


def _call(identity: Any, name: Any, arguments: Any) -> Json:
    return tool_call(str(identity or ""), str(name or ""), arguments)


def _part(block: Any) -> Any:
    """Return a content block in the words of the chat wire."""
    source = block.get("source") if isinstance(block, dict) else None
    if isinstance(source, dict) and kind_of(block) == "image":
        return image(source.get("media_type"), source.get("data"))
    return block


READERS = {"openai-jsonl": openai_messages, "stream-json": stream_messages, "opencode-json": opencode_messages}
"""The reader of each format but ``none``."""
