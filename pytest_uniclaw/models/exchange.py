"""The exchange log: everything a grant sent and got, content-addressed and redacted (design.md section 7).

Layout of a log folder: ``blobs/<sha256>.json`` holds one message or one tool list each (a conversation repeats its
messages in every request, so each is stored once); ``exchanges.jsonl`` has one row per call::

    {"grant", "n", "started", "ms", "ttfb_ms", "class", "status", "stream", "model",
     "messages": [digest, …], "tools": digest | null, "params": {…},
     "chunks": [chunk, …] | null, "body": {…} | null, "error": {…} | null}

``chunks`` is the stream as the provider cut it. Where a secret runs over chunk borders it is one merged chunk instead.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_uniclaw.models.chat import Json, assemble
from pytest_uniclaw.models.ledger import AppendFile, json_line
from pytest_uniclaw.redaction import Redactor


@dataclass
class Sent:
    """The request side of a row."""

    messages: list[str] = field(default_factory=list)
    tools: str | None = None
    params: Json = field(default_factory=dict)


class ExchangeLog:
    """One log folder; several grants of the same attempt and role may share it, one after another.

    Raises OSError when the folder cannot be made; later write failures lose a record, not a call.
    """

    def __init__(self, directory: Path, redactor: Redactor) -> None:
        self._blobs = directory / "blobs"
        self._blobs.mkdir(parents=True, exist_ok=True)
        self._rows = AppendFile(directory / "exchanges.jsonl")
        self._known: set[str] = set()
        self._redact = redactor

    def sent(self, body: Json) -> Sent:
        """Store the messages and tools of a request; safe to run in a thread."""
        skip = ("messages", "tools", "model")
        params = {key: value for key, value in body.items() if key not in skip}
        tools = self._blob(body["tools"]) if body.get("tools") else None
        return Sent([self._blob(message) for message in body["messages"]], tools, self._redact.value(params))

    def row(self, facts: Json, sent: Sent, chunks: list[Json] | None, body: Any, error: Json | None) -> None:
        """Append one exchange."""
        answer = {
            "chunks": self._chunks(chunks) if chunks else None,
            "body": self._redact.value(body),
            "error": self._redact.value(error),
        }
        request = {"messages": sent.messages, "tools": sent.tools, "params": sent.params}
        self._rows.append(json_line(facts | request | answer))

    def close(self) -> None:
        """Close the row file."""
        self._rows.close()
        self._known.clear()

    def _chunks(self, chunks: list[Json]) -> list[Json]:
        whole = assemble(chunks)
        message = whole.message()
        clean = self._redact.value(message)
        if clean == message:
            return [self._redact.value(chunk) for chunk in chunks]
        calls = [call | {"index": index} for index, call in enumerate(clean.pop("tool_calls", ()))]
        delta = clean | ({"tool_calls": calls} if calls else {})
        return [{"choices": [{"index": 0, "delta": delta, "finish_reason": whole.finish_reason}], "usage": whole.usage}]

    def _blob(self, value: Any) -> str:
        data = json_line(self._redact.value(value))
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._known:
            self._write(self._blobs / f"{digest}.json", data)
            self._known.add(digest)
        return digest

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.with_suffix(".tmp")
        try:
            temporary.write_bytes(data)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)  # a full disk: the row will name a blob that is not there


def rebuild_messages(log: Path) -> list[Json]:
    """The chat messages of the attempt's main conversation, with the last answer, as far as it came.

    The main conversation is the request with most messages, the latest one among equals: agents hold shorter side
    conversations (titles, memory, sub-agents). A message whose blob was lost is left out. An empty list when the log
    holds no exchange; raises nothing on a log that a kill or a full disk cut short.
    """
    rows = _rows(log / "exchanges.jsonl")
    if not rows:
        return []
    row = max(enumerate(rows), key=lambda pair: (len(pair[1]["messages"]), pair[0]))[1]
    messages = [message for digest in row["messages"] if (message := _read_blob(log, digest)) is not None]
    answer = _answer(row)
    return [*messages, answer] if answer else messages


def _rows(path: Path) -> list[Json]:
    if not path.is_file():
        return []
    rows = []
    for line in path.read_bytes().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and row.get("messages"):
            rows.append(row)
    return rows


def _read_blob(log: Path, digest: str) -> Json | None:
    try:
        value = json.loads((log / "blobs" / f"{digest}.json").read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _answer(row: Json) -> Json | None:
    if row.get("chunks"):
        whole = assemble(row["chunks"])
        return None if whole.empty else whole.message()
    body = row.get("body")
    choices = body.get("choices") if isinstance(body, dict) else None
    message = choices[0].get("message") if choices else None
    return message if isinstance(message, dict) else None
