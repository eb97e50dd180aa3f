"""Sessions of OpenClaw as normalised records, from session files or from its database: untrusted bytes.

Both hold the same events, one JSON object each, of which those of type ``message`` are the conversation. What OpenClaw
itself writes in the user's name bears a provenance or one of its marks, and is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.joining import Joined
from pytest_uniclaw.agents.openclaw_database import Database, open_database
from pytest_uniclaw.agents.session_file import MAX_BYTES, depth, lines_of, nearest
from pytest_uniclaw.agents.transcript import records_from_messages
from pytest_uniclaw.agents.wire import Answer, image, kind_of, listed, tool_call, tool_result
from pytest_uniclaw.models.chat import Json, text_of
from pytest_uniclaw.models.player import is_real_user

SESSION = "chat"
DATABASE = "openclaw-agent.sqlite"
USER = "external_user"
"""The provenance of a message that a user wrote; most of those have none."""
_STAMP = re.compile(r"\[[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\d\d [^\]\n]{1,12}\] ")


@dataclass(frozen=True)
class Source:
    """The events of one session; ``agent`` is empty for the session in which the user speaks."""

    agent: str
    events: Any


def read_sessions(folder: Path, session: str = SESSION) -> tuple[Record, ...]:
    """Return the records of all sessions below a folder. Never raises on bad data.

    Sessions other than ``session`` are those of sub-agents; they stand before it and bear their id as ``agentId``. What
    is no JSON object is counted in one closing record of type ``notice`` with ``brokenLines``.
    """
    database = nearest(folder, DATABASE)
    if database:
        with open_database(database, nearest(folder, f"{DATABASE}-wal"), session, scratch=folder) as opened:
            found = (Source(name, events) for name, events in opened.sessions())
            return _merged(found, "openclaw", database=opened)
    files = _session_files(folder)
    names = sorted(files, key=lambda name: (name != session, name))
    return _merged([Source("" if name == session else name, _File(files[name])) for name in names], "openclaw")


def read_agents(folders: Iterable[tuple[str, Path]], centre: str, note: str) -> tuple[Record, ...]:
    """Return the records of several agents' session files, as :func:`read_sessions` does.

    The records of ``centre``, who speaks with the user, come last and without ``agentId``; what begins with ``note``
    was not said to it by the user.
    """
    sources = [
        Source("" if name == centre else name, _File(path))
        for name, folder in folders
        for path in sorted(_session_files(folder).values(), key=_begin)
    ]
    return _merged(sorted(sources, key=lambda source: source.agent != ""), centre, note=note)


class _File:
    """The events of one session file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.broken = self.size = 0
        self.cut = False

    def __iter__(self) -> Iterator[Json]:
        lines = lines_of(self._path)
        self.size = len(lines.data)
        yield from lines
        self.broken, self.cut = lines.broken, lines.cut


def _merged(
    sources: Iterable[Source], prefix: str, *, note: str = "", database: Database | None = None
) -> tuple[Record, ...]:
    """Join the records of sessions within the bounds of one transcript: the user's is read first and put last."""
    joined, size = Joined(), 0
    for number, source in enumerate(sources):
        if size > MAX_BYTES or joined.is_full():
            joined.cut += 1
            break
        talk = messages_of(source.events, all_users=bool(source.agent), note=note)
        found = records_from_messages(talk, f"{prefix}-{number}" if number else prefix)
        joined.add(found, source.agent, broken=source.events.broken, cut=source.events.cut)
        size += source.events.size
    joined.cut += bool(database and database.cut)
    return joined.records(prefix)


def messages_of(events: Iterable[Mapping[str, Any]], *, all_users: bool = False, note: str = "") -> Iterator[Json]:
    """Yield chat messages of OpenClaw's events; ``all_users`` keeps what agents tell each other.

    A call of a tool that does not exist is kept by OpenClaw as its result alone; here it is a call without arguments.
    """
    called: set[str] = set()
    for event in events:
        message = event.get("message")
        if event.get("type") != "message" or not isinstance(message, dict):
            continue
        stamp = {"timestamp": event.get("timestamp")}
        role = message.get("role")
        if role == "assistant":
            answer = _answer(message) | stamp
            called.update(str(call["id"]) for call in answer["tool_calls"])
            yield answer
        elif role == "toolResult":
            result = _result(message)
            if result["tool_call_id"] not in called:
                call = tool_call(result["tool_call_id"], result["name"], {})
                yield {"role": "assistant", "tool_calls": [call]} | stamp
            yield result | stamp
        elif role == "user":
            user: Json = {"role": "user", "content": _parts(message.get("content"), stamped=bool(note))}
            if all_users or (_by_user(message) and is_real_user(user) and not (note and _begins(user, note))):
                yield user | stamp


def _begins(user: Json, note: str) -> bool:
    return text_of(user).startswith(note)


def _result(message: Mapping[str, Any]) -> Json:
    identity, name = (str(message.get(key) or "") for key in ("toolCallId", "toolName"))
    return tool_result(identity, name, _parts(message.get("content")))


def _by_user(message: Mapping[str, Any]) -> bool:
    source = message.get("provenance")
    return not isinstance(source, dict) or source.get("kind") in (None, USER)


def _answer(message: Mapping[str, Any]) -> Json:
    """Return an answer of the model. One that failed without a word says why, so that it leaves a record."""
    blocks = listed(message.get("content"))
    thoughts = [b["thinking"] for b in blocks if kind_of(b) == "thinking" and isinstance(b.get("thinking"), str)]
    calls = [tool_call(*map(b.get, ("id", "name", "arguments"))) for b in blocks if kind_of(b) == "toolCall"]
    texts = _parts([block for block in blocks if kind_of(block) not in ("thinking", "toolCall")])
    reason, error = message.get("stopReason"), message.get("errorMessage")
    if reason in ("error", "aborted") and not texts and not calls:
        texts = [{"type": "text", "text": error if isinstance(error, str) and error else f"[{reason}]"}]
    answer = Answer(texts=texts, thoughts=thoughts, calls=calls).message()
    return answer | {"stop_reason": reason, "error_message": error}


def _parts(content: Any, *, stamped: bool = False) -> list[Any]:
    """Return the parts of a content in the words of the chat wire.

    ``stamped``: OpenClaw's gateway puts the time before a message.
    """
    parts = [_part(part) for part in listed(content) if part not in (None, "")]
    if stamped and parts and kind_of(parts[0]) == "text" and isinstance(parts[0].get("text"), str):
        parts[0] = parts[0] | {"text": _STAMP.sub("", parts[0]["text"], count=1)}
    return parts


def _part(part: Any) -> Any:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if kind_of(part) != "image" or not isinstance(part.get("data"), str):
        return part
    kind = part.get("mimeType")
    return image(kind if isinstance(kind, str) else "image/png", part["data"])


def _session_files(folder: Path) -> dict[str, Path]:
    """Return the session files below a folder by session; a copy that the executor nested deeper loses."""
    found = sorted(folder.rglob("*.jsonl"), key=depth, reverse=True) if folder.is_dir() else []
    return {path.stem: path for path in found if path.is_file()}


def _begin(path: Path) -> tuple[str, str]:
    """Return by what session files are ordered: when they were begun, as they say themselves."""
    head = next(iter(lines_of(path, 4096)), {})
    return str(head.get("timestamp")), path.name
