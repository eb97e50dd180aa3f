"""What may be wrong with an agent's table beyond the types of its values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_uniclaw.agents.command_words import names_in
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.sandbox.base import MIB
from pytest_uniclaw.sandbox.image_spec import IMAGES
from pytest_uniclaw.settings import parse_size

if TYPE_CHECKING:
    from pytest_uniclaw.agents.command_table import AgentTable

GIVEN = "given"
"""The session's id is ours: a uuid for each attempt."""
IMAGE = re.compile(
    r"([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
"""How an engine lets an image be called."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LEAST_MEMORY = 64 * MIB
"""Below this no agent starts; an engine refuses less than 6 MiB."""
ALWAYS = ("home", "workspace")
MODEL = ("model", "base_url", "key")
MESSAGE = ("message", "message_file")
EXAMPLES = {
    "image": 'image = "my-agent:1", or an image of ours such as "runtime"',
    "first": 'first = ["my-agent", "--message", "{message}"]',
    "next": 'next = ["my-agent", "--resume", "{session}", "--message", "{message}"]',
    "session": 'session = "given", or the key that holds the id in a line of JSON of the output, such as "sessionID"',
    "memory": 'memory = "2g"',
    "files": 'files = { "~/.my-agent/config.json" = \'{"model": "{model}"}\' }',
    "transcript": 'transcript = { path = "~/.my-agent/sessions/*.jsonl", format = "openai-jsonl" }',
}
"""How keys are written rightly."""


class TableError(Exception):
    """A problem of one field: its dotted name, its value, what is wrong, and what helps."""

    def __init__(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        self.field, self.value, self.problem, self.remedy = field, value, problem, remedy
        super().__init__(problem)


def check_table(table: AgentTable) -> None:
    """Raise :class:`TableError` for the first thing that is wrong."""
    _check_values(table)
    _check_files(table)
    for field, text, allowed in _places(table):
        if "\0" in text:
            raise TableError(field, text, "a NUL character, which no command, file or variable can hold")
        _check_placeholders(field, text, allowed)
    _check_message(table)


def _check_values(table: AgentTable) -> None:
    """Check what a type cannot say."""
    if ":" not in table.image and "/" not in table.image and table.image not in IMAGES:
        near = difflib.get_close_matches(table.image, IMAGES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TableError(
            "image", table.image, f"no image of ours has this name{hint}",
            f"name an image of your own with its tag, such as {table.image}:1, or one of ours: {', '.join(IMAGES)}",
        )  # fmt: skip
    if not IMAGE.fullmatch(table.image):
        raise TableError("image", table.image, "no name of an image", EXAMPLES["image"])
    try:
        enough = parse_size(table.memory, "memory") >= LEAST_MEMORY
    except SettingsError:
        enough = False
    if not enough:
        raise TableError("memory", table.memory, "expected a size such as 512m or 2g, 64m at least")
    for name in table.environment:
        if not VARIABLE.fullmatch(name):
            raise TableError("environment", name, "no name of a variable", "use letters, digits and underscores")
    if table.transcript.path and table.transcript.format == "none":
        raise TableError("transcript.path", table.transcript.path, "a file without a format", EXAMPLES["transcript"])
    paths = {"skills": table.skills, "skills_note": table.skills_note, "transcript.path": table.transcript.path}
    for field, path in [*paths.items(), *((f"files.{path}", path) for path in table.files)]:
        if path and (not path.startswith(("~/", "/", "{home}/", "{workspace}/")) or ".." in path.split("/")):
            raise TableError(field, path, "expected a path that begins with ~/ or /")
    folder = re.split(r"[*?\[{]", re.sub(r"^(~|\{home\}|\{workspace\})/", "/home/", table.transcript.path))[0]
    if table.transcript.path and folder.count("/") < 3:
        raise TableError("transcript.path", table.transcript.path, "it names no folder of the agent's own")


def _check_files(table: AgentTable) -> None:
    """Refuse a path that names no file, and a file where another's folder must be."""
    for path in table.files:
        if path.rpartition("/")[2] in ("", "."):
            raise TableError("files", path, "a folder: expected the path of a file", EXAMPLES["files"])
        if below := next((other for other in table.files if other.startswith(f"{path}/")), ""):
            raise TableError("files", path, f"both a file and the folder of {below}", EXAMPLES["files"])


def _places(table: AgentTable) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield every text that may hold placeholders: its field, itself, and the names that are known there."""
    model = MODEL if table.needs_model else ()
    given = ("session",) if table.session == GIVEN else ()
    start = (*ALWAYS, *model, *given)
    for path, content in table.files.items():
        yield f"files.{path}", path, start
        yield f"files.{path}", content, start
    yield from ((f"environment.{name}", value, start) for name, value in table.environment.items())
    turn = (*MESSAGE, "turn", *ALWAYS, *model)
    yield from ((f"first[{index}]", word, (*turn, *given)) for index, word in enumerate(table.first))
    yield from ((f"next[{index}]", word, (*turn, "session")) for index, word in enumerate(table.next))
    yield "stdin", table.stdin, (*turn, *given)
    yield "skills", table.skills, ALWAYS
    yield "skills_note", table.skills_note, ALWAYS
    yield "transcript.path", table.transcript.path, (*ALWAYS, "session")


def _check_placeholders(field: str, text: str, allowed: tuple[str, ...]) -> None:
    for name in names_in(text):
        if name in allowed:
            continue
        near = difflib.get_close_matches(name, allowed, 1)
        hint = f"; did you mean {{{near[0]}}}?" if near else ""
        known = " ".join(f"{{{known}}}" for known in allowed)
        raise TableError(
            field, text, f"unknown placeholder {{{name}}}{hint}",
            f"known here: {known}; the text itself is written {{{{{name}}}}}",
        )  # fmt: skip


def _check_message(table: AgentTable) -> None:
    """Refuse an agent that would never be told its task, or could not find its session again."""
    for field, words in (("first", table.first), ("next", table.next)):
        if words and not set(MESSAGE) & set(names_in("\n".join((*words, table.stdin)))):
            raise TableError(
                field, list(words), "no {message}: the agent would not be told its task",
                'put {message} or {message_file} into it, or write stdin = "{message}"',
            )  # fmt: skip
    if table.session != GIVEN and "session" not in names_in("\n".join(table.next)):
        raise TableError(
            "next", list(table.next), f"no {{session}}, though session = {table.session!r} looks for its id",
            EXAMPLES["next"],
        )  # fmt: skip
