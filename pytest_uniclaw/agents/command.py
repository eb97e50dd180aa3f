"""Any command-line agent, described by a table: one command a turn, its session, its files, its conversation.

What a turn needs of the set-up (session, model, key) is kept on this side, where no executor can read or break it.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pytest_uniclaw.agents.base import Finish, ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.command_checks import GIVEN
from pytest_uniclaw.agents.command_output import find_session, last_error
from pytest_uniclaw.agents.command_session import read_session
from pytest_uniclaw.agents.command_table import AgentTable
from pytest_uniclaw.agents.command_words import QUOTED_FILES, fill, names_in
from pytest_uniclaw.agents.joining import has_notice
from pytest_uniclaw.agents.message import is_long, message_file, note_message_file, plain_text
from pytest_uniclaw.agents.usage import has_tool_call, last_turn, messages, text_of
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import InfraError, SettingsError
from pytest_uniclaw.sandbox.base import Completed, Entry, Sandbox
from pytest_uniclaw.settings import parse_size
from pytest_uniclaw.task import Task

_PREPARE = """
set -eu
user=$1 home=$2 skills=$3 note=$4
if [ -n "$skills" ]; then mkdir -p "$skills"; fi
if [ -n "$note" ]; then mkdir -p "$(dirname "$note")"; fi
for skill in "$home"/skills/*/; do
    [ -f "${skill}SKILL.md" ] || continue
    if [ -z "$note" ] || [ "$(head -c 3 "${skill}SKILL.md")" = --- ]; then
        link=$skills/$(basename "$skill")
        if [ -n "$skills" ] && [ ! -e "$link" ]; then ln -s "${skill%/}" "$link"; fi
    else
        echo "There is a further skill; read its file before you use it: ${skill}SKILL.md" >> "$note"
    fi
done
chown -hR "$user:" "$home"
"""
"""Links the skills to where the agent looks; a note names those that have no head of name and description."""
_STATES: WeakKeyDictionary[Sandbox, Mapping[str, str]] = WeakKeyDictionary()
"""What was made or learned for the agent in each sandbox: session, model, address and key."""
_TURN = """
exec <"$1"
shift
command -v -- "$1" >/dev/null || { echo "$1: not found" >&2; exit 127; }
exec "$@"
"""
"""The turn's command with its standard input; the shell's own words on a missing program name a line of this."""


@dataclass(frozen=True)
class CommandAgent:
    """The agent of a table."""

    name: str
    table: AgentTable
    trusted: bool = False

    @property
    def version(self) -> str:
        """The release that the table states."""
        return self.table.version

    @property
    def image(self) -> str:
        """The image that the table names."""
        return self.table.image

    @property
    def memory(self) -> int:
        """The table's memory limit in bytes."""
        return parse_size(self.table.memory, "memory")

    @property
    def needs_model(self) -> bool:
        """Whether the table asks for a model."""
        return self.table.needs_model

    @property
    def fingerprint(self) -> str:
        """A digest of the table: a stored attempt of another description does not stand for this one."""
        return hashlib.sha256(self.table.model_dump_json().encode()).hexdigest()[:12]

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """Write the table's files, readable by the executor alone, and show the agent its skills."""
        if access is None and self.needs_model:
            raise SettingsError(f"{self.name} needs a model: pass --model=NAME, or --model=script for the task's own")
        state = {"session": str(uuid.uuid4()) if self.table.session == GIVEN else ""}
        if access is not None:
            state |= {"model": access.model, "base_url": access.base_url, "key": access.key}
        values = _values(sandbox, state)
        _STATES[sandbox] = state
        sandbox.put(list(self._files(sandbox, values)))
        skills, note = (_absolute(fill(path, values), sandbox) for path in (self.table.skills, self.table.skills_note))
        command = ["bash", "-c", _PREPARE, "prepare", sandbox.user, sandbox.paths.home, skills, note]
        done = sandbox.run(command)
        if done.exit_code != 0:
            said = done.output.decode("utf-8", "replace").strip()[-500:]
            raise InfraError(f"{self.name} could not be set up: {said}")

    def _files(self, sandbox: Sandbox, values: Mapping[str, str]) -> Iterator[Entry]:
        for name, template in self.table.files.items():
            content = fill(template, values, quoted=name.endswith(QUOTED_FILES)).encode()
            yield Entry(_absolute(fill(name, values), sandbox), content=content, mode=0o600, user=sandbox.user)

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """Run the command of the turn, and keep what is needed of its output."""
        state = _STATES[sandbox]
        later = request.number > 1 and bool(state["session"]) and bool(self.table.next)
        words = self.table.next if later else self.table.first
        values = {**_values(sandbox, state), "turn": str(request.number)}
        entries, values, by_file = self._with_message(sandbox, request, words, values)
        stdin = f"{sandbox.paths.private}/stdin.txt" if self.table.stdin else "/dev/null"
        if self.table.stdin:
            entries.append(Entry(stdin, content=fill(self.table.stdin, values).encode()))
        if entries:
            sandbox.put(entries)
        own = {name: fill(value, values) for name, value in self.table.environment.items()}
        completed = sandbox.turn(
            ["/bin/sh", "-c", _TURN, self.name, stdin, *(fill(word, values) for word in words)],
            environment={**own, **request.environment}, limits=request.limits, pulse=request.pulse, log=request.log,
        )  # fmt: skip
        self._keep(sandbox, request, state, completed)
        if by_file:
            note_message_file(request.log)
        return completed

    def _with_message(
        self, sandbox: Sandbox, request: TurnRequest, words: Sequence[str], values: Mapping[str, str]
    ) -> tuple[list[Entry], dict[str, str], bool]:
        """Return the files of the turn's message, the values with it, and whether an argument points to its file."""
        text = plain_text(request.message, tuple(self.table.command_marks))
        entries, used = [], set(names_in("\n".join((*words, self.table.stdin))))
        path = f"{sandbox.paths.private}/message.txt"
        if "message_file" in used:
            entries.append(Entry(path, content=text.encode()))
        argument = text
        by_file = is_long(text) and any("message" in names_in(word) for word in words)
        if by_file:
            entry, argument = message_file(sandbox, text)
            entries.append(entry)
        return entries, {**values, "message": argument, "message_file": path}, by_file

    def _keep(self, sandbox: Sandbox, request: TurnRequest, state: Mapping[str, str], completed: Completed) -> None:
        """Keep the session's id once it is known, and the output where that is the conversation."""
        entries = []
        if not state["session"] and (found := find_session(completed.output, self.table.session)):
            _STATES[sandbox] = {**state, "session": found}
        if self._is_told_by_output:
            stem = f"{_outputs(sandbox)}/{request.number:04}"
            message = plain_text(request.message, tuple(self.table.command_marks))
            entries.append(Entry(f"{stem}.message", content=message.encode(), mode=0o600))
            entries.append(Entry(f"{stem}.output", source=request.log, mode=0o600))
        if entries:
            sandbox.put(entries)

    @property
    def _is_told_by_output(self) -> bool:
        transcript = self.table.transcript
        return transcript.format != "none" and not transcript.path

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """Name the folder of the conversation: of the agent's files, or of the kept outputs."""
        if self.table.transcript.format == "none":
            return ()
        if self._is_told_by_output:
            return (_outputs(sandbox),)
        return (_absolute(fill(self._session_files()[0], _values(sandbox, {})), sandbox),)

    def _session_files(self) -> tuple[str, str]:
        """Return the folder of the agent's session files, and the pattern of their names below it."""
        parts = self.table.transcript.path.split("/")
        varies = (index for index, part in enumerate(parts) if re.search(r"[*?\[]|\{session\}", part))
        first = next(varies, len(parts) - 1)
        return "/".join(parts[:first]), fill("/".join(parts[first:]), {"session": "*"})

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """Parse the outputs of all turns, or the session files. Never raises on bad data."""
        pattern = "" if self._is_told_by_output else self._session_files()[1]
        return read_session(collected, self.table.transcript.format, pattern, self.name)

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """Finished iff the command exited with 0 and the conversation, if the agent tells it, ends with an answer."""
        if completed.ending is not Ending.EXITED:
            return Finish(False, f"{self.name} was stopped: {completed.ending.value}")
        if completed.exit_code != 0:
            said = last_error(completed.output)
            return Finish(False, f"{self.name} exited with {completed.exit_code}" + (f": {said}" if said else ""))
        if not self._is_known(completed, records):
            return Finish(False, f"{self.name} printed no session id: no line of its output has {self.table.session!r}")
        if self.table.transcript.format == "none":
            return Finish(True)
        turn = last_turn(records)
        if not turn:
            if has_notice(records, "missing"):
                return Finish(False, f"{self.name} told nothing: no file is {self.table.transcript.path}")
            return Finish(False, f"{self.name} told no reply" if records else f"{self.name} told nothing")
        last: Mapping[str, Any] = turn[-1]
        if last.get("role") != "assistant" or has_tool_call(dict(last)):
            return Finish(False, f"{self.name} ended without an answer")
        return Finish(True) if text_of(dict(last)) else Finish(False, f"{self.name}'s last message is empty")

    def _is_known(self, completed: Completed, records: Sequence[Record]) -> bool:
        """Whether a first turn told its session's id where it should: without it the next one remembers nothing."""
        users = sum(message.get("role") == "user" for message in messages(records))
        return self.table.session == GIVEN or users != 1 or bool(find_session(completed.output, self.table.session))


def _values(sandbox: Sandbox, state: Mapping[str, str]) -> dict[str, str]:
    return {**state, "home": sandbox.paths.home, "workspace": sandbox.paths.workspace}


def _absolute(path: str, sandbox: Sandbox) -> str:
    return f"{sandbox.paths.home}{path[1:]}" if path.startswith("~/") else path


def _outputs(sandbox: Sandbox) -> str:
    return f"{sandbox.paths.private}/turns"
