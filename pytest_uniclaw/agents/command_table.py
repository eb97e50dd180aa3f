"""The table that describes an agent without Python: ``[agents.NAME]`` of ``uniclaw.toml``, and those of our own.

Everything that can be wrong with a table is said when it is read, with file, line, field, value and remedy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, field_validator

from pytest_uniclaw.agents.command_words import names_in
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.sandbox.image_spec import IMAGES
from pytest_uniclaw.settings import AgentTables, parse_size

GIVEN = "given"
"""The session's id is ours: a uuid for each attempt."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RESERVED_NAME = "custom"
"""What items of a conftest's agent are called."""
ALWAYS = ("home", "workspace")
MODEL = ("model", "base_url", "key")
MESSAGE = ("message", "message_file")

Format = Literal["none", "openai-jsonl", "stream-json", "opencode-json"]


class TranscriptTable(BaseModel):
    """Where an agent writes its conversation and how; without ``path`` its standard output is meant."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    format: Format = "none"
    path: StrictStr = ""


class AgentTable(BaseModel):
    """One table; docs/how-to/add-an-agent.md says what each key means."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    image: StrictStr = Field(min_length=1)
    first: tuple[StrictStr, ...] = Field(min_length=1)
    next: tuple[StrictStr, ...] = ()
    stdin: StrictStr = ""
    session: StrictStr = Field(default=GIVEN, min_length=1)
    version: StrictStr = Field(default="1", pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")
    memory: StrictStr = "2g"
    needs_model: StrictBool = True
    files: Mapping[StrictStr, StrictStr] = {}
    environment: Mapping[StrictStr, StrictStr] = {}
    skills: StrictStr = ""
    skills_note: StrictStr = ""
    command_marks: StrictStr = ""
    transcript: TranscriptTable = TranscriptTable()

    @field_validator("transcript", mode="before")
    @classmethod
    def _short_form(cls, value: Any) -> Any:
        """A format alone is that of the standard output."""
        return {"format": value} if isinstance(value, str) else value


class TableError(Exception):
    """A problem of one field: its dotted name, its value, what is wrong, and what helps."""

    def __init__(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        self.field, self.value, self.problem, self.remedy = field, value, problem, remedy
        super().__init__(problem)


def read_tables(tables: AgentTables) -> dict[str, AgentTable]:
    """Return every agent's table by name. Raises :class:`SettingsError` for the first thing that is wrong."""
    return {name: read_table(name, table, tables.path) for name, table in tables.tables.items()}


def read_table(name: str, table: Any, path: Path) -> AgentTable:
    """Return one table, checked. Raises :class:`SettingsError`."""
    try:
        if not NAME.fullmatch(name) or name == RESERVED_NAME:
            raise TableError("", name, "not a name of an agent", "use letters, digits, dots, dashes and underscores")
        if not isinstance(table, dict):
            raise TableError("", table, "expected a table", f"write [agents.{name}] and its keys below it")
        read = _parsed(table)
        _check_values(read)
        for field, text, allowed in _places(read):
            _check_placeholders(field, text, allowed)
        _check_message(read)
    except TableError as error:
        raise SettingsError(_told(name, error, path)) from None
    return read


def _parsed(table: Mapping[str, Any]) -> AgentTable:
    try:
        return AgentTable.model_validate(dict(table))
    except ValidationError as error:
        problem = error.errors()[0]
    place = [str(part) for part in problem["loc"]]
    field = ".".join(place)
    if problem["type"] == "missing":
        raise TableError(field, None, "this key is missing", _EXAMPLES.get(field, ""))
    if problem["type"] != "extra_forbidden":
        raise TableError(field, problem["input"], problem["msg"], _EXAMPLES.get(place[0], ""))
    known = list((TranscriptTable if len(place) > 1 else AgentTable).model_fields)
    near = difflib.get_close_matches(place[-1], known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise TableError(field, problem["input"], f"unknown key{hint}", f"known keys: {', '.join(known)}")


_EXAMPLES = {
    "image": 'image = "my-agent:1", or an image of ours such as "runtime"',
    "first": 'first = ["my-agent", "--message", "{message}"]',
    "next": 'next = ["my-agent", "--resume", "{session}", "--message", "{message}"]',
    "session": 'session = "given", or the key that holds the id in a line of JSON of the output, such as "sessionID"',
    "memory": 'memory = "2g"',
    "files": "files = { \"~/.my-agent/config.json\" = '{\"model\": \"{model}\"}' }",
    "transcript": 'transcript = { path = "~/.my-agent/sessions/*.jsonl", format = "openai-jsonl" }',
}


def _check_values(table: AgentTable) -> None:
    """Check what a type cannot say."""
    if ":" not in table.image and "/" not in table.image and table.image not in IMAGES:
        near = difflib.get_close_matches(table.image, IMAGES, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TableError(
            "image", table.image, f"no image of ours has this name{hint}",
            f"name an image of your own with its tag, such as {table.image}:1, or one of ours: {', '.join(IMAGES)}",
        )  # fmt: skip
    try:
        parse_size(table.memory, "memory")
    except SettingsError:
        raise TableError("memory", table.memory, "expected a size such as 512m or 2g") from None
    if table.transcript.path and table.transcript.format == "none":
        raise TableError(
            "transcript.path", table.transcript.path, "a file without a format", _EXAMPLES["transcript"]
        )
    paths = {"skills": table.skills, "skills_note": table.skills_note, "transcript.path": table.transcript.path}
    for field, path in [*paths.items(), *((f"files.{path}", path) for path in table.files)]:
        if path and (not path.startswith(("~/", "/", "{home}/", "{workspace}/")) or ".." in path.split("/")):
            raise TableError(field, path, "expected a path that begins with ~/ or /")
    folder = re.split(r"[*?\[{]", re.sub(r"^(~|\{home\}|\{workspace\})/", "/home/", table.transcript.path))[0]
    if table.transcript.path and folder.count("/") < 3:
        raise TableError("transcript.path", table.transcript.path, "it names no folder of the agent's own")


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
            _EXAMPLES["next"],
        )  # fmt: skip


def _told(name: str, error: TableError, path: Path) -> str:
    line = line_of(path, name, error.field)
    where = f"{path}:{line}" if line else f"{path}"
    value = "" if error.value is None else f" = {error.value!r:.120}"
    what = f" {error.field}{value}" if error.field else ("" if error.value is None else f" {error.value!r:.80}")
    return f"{where}: [agents.{name}]{what}: {error.problem}" + (f"\n  fix: {error.remedy}" if error.remedy else "")


def line_of(path: Path, name: str, field: str) -> int:
    """Return the line of a key of an agent's table, that of the table where it is not found, else 0."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return 0
    table, (key, _, below) = f"agents.{name}", field.partition("[")[0].partition(".")
    places: dict[str, int] = {}
    here = ""
    for number, line in enumerate(lines, 1):
        if head := re.fullmatch(r"\s*\[([^\[\]]+)\]\s*(#.*)?", line):
            here = re.sub(r"[\s\"']", "", head[1])
            places.setdefault(here, number)
        elif word := re.match(r"\s*([\"']?)([^\"'=]+?)\1\s*=", line):
            places.setdefault(f"{here}.{word[2]}", number)
    wanted = (f"{table}.{key}.{below}", f"{table}.{key}", table)
    return next((places[place] for place in wanted if place in places), 0)
