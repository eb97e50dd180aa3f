"""The exchange log: everything a grant sent and got, content-addressed and redacted (design.md section 7).

Layout of a log folder: ``blobs/<sha256>.json`` holds one message or one tool list each (a conversation repeats its
messages in every request, so each is stored once); ``exchanges.jsonl`` has one row per call::

    {"grant", "n", "started", "ms", "ttfb_ms", "class", "status", "stream", "model",
     "messages": [digest, …], "tools": digest | null, "params": {…}, "notes": [text, …],
     "chunks": [chunk, …] | null, "body": {…} | null, "error": {…} | null}

Requests of the responses wire stand there as the chat requests they became; ``notes`` say what that left out.
``chunks`` is the stream as the provider cut it. Where a secret runs over chunk borders it is one merged chunk instead.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_uniclaw.models.chat import Json, assemble
from pytest_uniclaw.models.ledger import AppendFile, json_line
from pytest_uniclaw.models.player import is_real_user
from pytest_uniclaw.models.sse import json_text
from pytest_uniclaw.redaction import Redactor

_BLOCK = 4096
"""Bytes that a file takes on disk at least, on most file systems."""


@dataclass
class Sent:
    """The request side of a row."""

    messages: list[str] = field(default_factory=list)
    tools: str | None = None
    params: Json = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass
class Got:
    """The answer side of a row: a stream's chunks as JSON texts and the message they make, or a body, or an error."""

    chunks: list[str] = field(default_factory=list)
    message: Json | None = None
    body: Any = None
    error: Json | None = None


class ExchangeLog:
    """One log folder; several grants of the same attempt and role may share it, one after another.

    ``size`` is what was written through this object, in bytes on disk: a small file takes a block.
    Raises OSError when the folder cannot be made; later write failures lose a record, not a call.
    """

    def __init__(self, directory: Path, redactor: Redactor) -> None:
        self._blobs = directory / "blobs"
        self._blobs.mkdir(parents=True, exist_ok=True)
        self._rows = AppendFile(directory / "exchanges.jsonl")
        self.size = 0
        self._known: dict[bytes, str] = {}
        self._redact = redactor

    def sent(self, body: Json) -> Sent:
        """Store the messages and tools of a request; safe to run in a thread."""
        skip = ("messages", "tools", "model")
        params = {key: value for key, value in body.items() if key not in skip}
        tools = self._blob(body["tools"]) if body.get("tools") else None
        return Sent([self._blob(message) for message in body["messages"]], tools, self._redact.value(params))

    def row(self, facts: Json, sent: Sent, got: Got) -> None:
        """Append one exchange."""
        request = {"messages": sent.messages, "tools": sent.tools, "params": sent.params, "notes": sent.notes}
        line = _row_line(facts | request, got)
        if self._redact.may_hold(line) or self._redact.may_hold(json_line(got.message)):
            line = _row_line(facts | request, self._redacted(got))
        self._rows.append(line)
        self.size += len(line)

    def close(self) -> None:
        """Close the row file."""
        self._rows.close()
        self._known.clear()

    def _redacted(self, got: Got) -> Got:
        chunks = rewritten([json.loads(text) for text in got.chunks], self._redact.value) if got.chunks else []
        return Got(list(map(json_text, chunks)), None, self._redact.value(got.body), self._redact.value(got.error))

    def _blob(self, value: Any) -> str:
        """Store a value once; what a conversation repeats is not searched for secrets again."""
        line = json_line(value)
        seen = hashlib.sha256(line).digest()
        if seen not in self._known:
            data = json_line(self._redact.value(value)) if self._redact.may_hold(line) else line
            digest = hashlib.sha256(data).hexdigest()
            self._write(self._blobs / f"{digest}.json", data)
            self.size += max(len(data), _BLOCK)
            self._known[seen] = digest
        return self._known[seen]

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # a full disk: the row will name a blob that is not there


def _row_line(head: Json, got: Got) -> bytes:
    """One row; the chunks are texts already and are not encoded again."""
    begin, end = json_line(head)[:-2], json_line({"body": got.body, "error": got.error})[1:]
    chunks = f"[{','.join(got.chunks)}]" if got.chunks else "null"
    return begin + f',"chunks":{chunks},'.encode("utf-8", "backslashreplace") + end


def log_end(log: Path) -> int:
    """Where a log ends now, in bytes: what is recorded from here on stands behind it. 0 for a log that has no row."""
    path = log / "exchanges.jsonl"
    return path.stat().st_size if path.is_file() else 0


def rebuild_messages(log: Path, start: int = 0) -> list[Json]:
    """The chat messages of the main conversation since ``start`` (:func:`log_end`), with the last answer as it came.

    The main conversation is the request with most messages, the latest one among equals: agents hold shorter side
    conversations (titles, memory, sub-agents). A message whose blob was lost is left out, and so is what an agent wrote
    in the user's name. An empty list when the log holds no exchange; raises nothing on a log that a kill or a full disk
    cut short.
    """
    rows = [row for row in read_rows(log, start) if row.get("messages")]
    if not rows:
        return []
    row = max(enumerate(rows), key=lambda pair: (len(pair[1]["messages"]), pair[0]))[1]
    found = (read_blob(log, digest) for digest in row["messages"])
    messages = [message for message in found if isinstance(message, dict)]
    messages = [message for message in messages if message.get("role") != "user" or is_real_user(message)]
    answer = _answer(row)
    return [*messages, answer] if answer else messages


def count_calls(log: Path) -> int:
    """How many calls of tools the model made by a log, repeated answers included."""
    answers = (_answer(row) for row in read_rows(log))
    lists = (answer.get("tool_calls") for answer in answers if answer)
    return sum(len(calls) for calls in lists if isinstance(calls, list))


def read_rows(log: Path, start: int = 0) -> list[Json]:
    """The rows of a log since ``start`` in the order in which the calls ended.

    Lines that a kill or a full disk cut short are left out.
    """
    path = log / "exchanges.jsonl"
    if not path.is_file():
        return []
    rows = []
    for line in path.read_bytes()[start:].splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows


def read_blob(log: Path, digest: str) -> Any:
    """One message or tool list of a log, None when it was lost."""
    try:
        return json.loads((log / "blobs" / f"{digest}.json").read_bytes())
    except (OSError, ValueError):
        return None


def rewritten(chunks: list[Json], change: Callable[[Any], Any]) -> list[Json]:
    """A stream with ``change`` (of any JSON value) applied to its words, which may run over the borders of chunks.

    The borders stay where they are unless something runs over one: then the stream becomes one merged chunk.
    """
    whole = assemble(chunks)
    message = whole.message()
    changed = change(message)
    singly = [change(chunk) for chunk in chunks]
    if assemble(singly).message() == changed:
        return singly
    calls = [call | {"index": index} for index, call in enumerate(changed.pop("tool_calls", ()))]
    delta = changed | ({"tool_calls": calls} if calls else {})
    head = {name: chunks[0][name] for name in ("id", "object", "created", "model") if name in chunks[0]}
    choice = {"index": 0, "delta": delta, "finish_reason": whole.finish_reason}
    return [head | {"choices": [choice], "usage": whole.usage}]


def _answer(row: Json) -> Json | None:
    if row.get("chunks"):
        whole = assemble(row["chunks"])
        return None if whole.empty else whole.message()
    body = row.get("body")
    choices = body.get("choices") if isinstance(body, dict) else None
    message = choices[0].get("message") if choices else None
    return message if isinstance(message, dict) else None
