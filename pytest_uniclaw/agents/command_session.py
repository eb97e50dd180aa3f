"""The conversation of a command-line agent, from its own files or from what it printed, as records of one schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.command_events import READERS, SUB_AGENT
from pytest_uniclaw.agents.joining import MAX_RECORDS, Joined, messages_only
from pytest_uniclaw.agents.session_file import MAX_BYTES, lines_of, read_head
from pytest_uniclaw.agents.transcript import records_from_messages
from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.models.player import is_real_user

LISTED_FILES = 1_000


class _Reader:
    """Reads the messages of one session; what could not be read is counted as they are asked for."""

    def __init__(self, kind: str) -> None:
        self.read = READERS[kind]
        self.left = MAX_BYTES
        self.broken = 0
        self.cut = 0
        self.others: list[Json] = []

    def messages(self, path: Path, *, printed: bool) -> Iterator[Json]:
        """Yield the session's messages of a file; those of sub-agents are set aside.

        Of an output only the lines that begin like JSON are events, and the user's words are known from elsewhere.
        """
        if self.left <= 0:
            self.cut += 1
            return
        lines = lines_of(path, self.left)
        self.left -= len(lines.data)
        for message in self.read(lines):
            if SUB_AGENT in message:
                if len(self.others) <= MAX_RECORDS:
                    self.others.append(message)
            elif message.get("role") != "user" or (not printed and is_real_user(message)):
                yield message
        self.broken += 0 if printed else lines.broken
        self.cut += int(lines.cut)


def read_session(folder: Path, kind: str, pattern: str, prefix: str) -> tuple[Record, ...]:
    """Return the records of a session. Never raises on bad data.

    ``pattern`` names the agent's files below the one folder in ``folder`` that was collected, in the order of their
    names; without one that folder holds a ``.message`` and an ``.output`` of each turn. Messages of sub-agents stand
    before the session's own and bear the id of the call that began them as ``agentId``, so the end of the records is
    always that of the session.
    """
    reader = _Reader(kind)
    files = _named(folder, pattern) if pattern else []
    messages = _of_files(reader, files) if pattern else _of_outputs(reader, folder)
    session = records_from_messages(messages, prefix)
    joined = Joined(cut=reader.cut, missing="" if files else pattern)
    joined.add(session, "", broken=reader.broken, cut=False)
    joined.others += islice(_sub_agents(reader.others, prefix), MAX_RECORDS - len(joined.own))
    return joined.records(prefix)


def _named(folder: Path, pattern: str) -> list[Path]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(islice((p for p in found if _matches(p.relative_to(folder).parts[1:], pattern)), LISTED_FILES))


def _of_files(reader: _Reader, files: Iterable[Path]) -> Iterator[Json]:
    for path in files:
        yield from reader.messages(path, printed=False)


def _matches(parts: tuple[str, ...], pattern: str) -> bool:
    """Whether a relative path has the pattern's parts, each by its own wildcards; ``**`` is any number of folders."""
    wanted = PurePosixPath(pattern).parts
    if "**" in wanted:
        return bool(parts) and fnmatchcase(parts[-1], wanted[-1])
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _of_outputs(reader: _Reader, folder: Path) -> Iterator[Json]:
    for path in sorted(folder.rglob("*.message"))[:LISTED_FILES]:
        yield {"role": "user", "content": read_head(path, MAX_BYTES).decode("utf-8", "replace")}
        output = path.with_suffix(".output")
        if output.is_file():
            yield from reader.messages(output, printed=True)


def _sub_agents(messages: Iterable[Json], prefix: str) -> Iterator[Record]:
    for number, message in enumerate(messages):
        records = records_from_messages([message], f"{prefix}-sub-{number:06d}")
        yield from messages_only(records, str(message[SUB_AGENT]))
