"""The table that describes an agent without Python: ``[agents.NAME]`` of ``uniclaw.toml``, and those of our own.

Everything that can be wrong with a table is said when it is read, with file, line, field, value and remedy.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, field_validator
from pydantic_core import ErrorDetails

from pytest_uniclaw.agents.command_checks import EXAMPLES, GIVEN, TableError, check_table
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.settings import AgentTables

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
RESERVED_NAME = "custom"
"""What items of a conftest's agent are called."""
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
    session: StrictStr = Field(default=GIVEN, pattern=r"[^/]")
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
        check_table(read)
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
        raise TableError(field, None, "this key is missing", EXAMPLES.get(field, ""))
    if problem["type"] != "extra_forbidden":
        raise TableError(field, problem["input"], _in_words(problem), EXAMPLES.get(place[0], ""))
    known = list((TranscriptTable if len(place) > 1 else AgentTable).model_fields)
    near = difflib.get_close_matches(place[-1], known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise TableError(field, problem["input"], f"unknown key{hint}", f"known keys: {', '.join(known)}")


_WORDS = {
    "tuple_type": "expected a list of texts",
    "mapping_type": "expected a table",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "string_type": "expected a text",
    "bool_type": "expected true or false",
    "string_too_short": "expected a text that is not empty",
    "too_short": "expected a list that is not empty",
    "literal_error": "expected {expected}",
    "version string_pattern_mismatch": "expected letters, digits and ._+- only, a letter or digit first",
    "session string_pattern_mismatch": "expected a text that names a key",
}
"""What is wrong, in TOML's words, by the kind of the problem, or by its field and kind."""


def _in_words(problem: ErrorDetails) -> str:
    """Return what is wrong with a value: pydantic's own words speak of Python's types."""
    words = _WORDS.get(problem["type"], _WORDS.get(f"{problem['loc'][0]} {problem['type']}"))
    return problem["msg"] if words is None else words.format(**problem.get("ctx", {}))


def _told(name: str, error: TableError, path: Path) -> str:
    line = line_of(path, name, error.field)
    where = f"{path}:{line}" if line else f"{path}"
    value = "" if error.value is None else f" = {error.value!r:.120}"
    field = "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in error.field)
    what = f" {field}{value}" if error.field else ("" if error.value is None else f" {error.value!r:.80}")
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
