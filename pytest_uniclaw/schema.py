"""The fields of a task file as YAML writes them, and the words for what can be wrong with them.

Upstream's format (UniClawBench) plus ``uniclaw:``. Types are strict: ``"20m"``, ``"false"`` and an empty ``skills:``
are errors here, where upstream takes them or crashes on them.
"""

from __future__ import annotations

import difflib
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.extension import UPSTREAM_DEFAULTS, Command, Extension, Name, ServiceExtension, as_tuple
from pytest_uniclaw.yamlsource import YamlSource, dotted

MAX_SECONDS = 7 * 24 * 3600
"""Longest budget a task may ask for; a larger figure is a slip of the unit."""
AGENT_SYSTEMS = ("openclaw", "openclaw_edict", "nanobot", "codex", "command", "oracle", "nop")
"""Names this project ships or upstream knows; other names belong to agents registered elsewhere."""
_HEADED = {
    "auto": None, "true": True, "headed": True, "1": True, "yes": True, "false": False, "headless": False, "0": False,
    "no": False,
}  # fmt: skip


def _text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value.strip()


def relative_path(value: str) -> str:
    """Pass a path that stays below its folder, normalised (``./a//b/`` -> ``a/b``). Raises ValueError."""
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in value:
        raise ValueError("must be a relative path below the task's folder, without '..'")
    return str(path)


def _agent_sys(value: str) -> str:
    name = value.strip().lower() or "openclaw"
    if name in {"edict", "openclaw+edict"}:
        raise ValueError("is the old name of openclaw_edict; write agent_sys: openclaw_edict")
    near = difflib.get_close_matches(name, AGENT_SYSTEMS, 1, cutoff=0.8)
    if near and name not in AGENT_SYSTEMS:
        raise ValueError(f"is no agent; did you mean {near[0]}?")
    if not name.replace("_", "").replace("-", "").isalnum() or not name.isascii():
        raise ValueError(f"must be the name of an agent, such as {', '.join(AGENT_SYSTEMS[:3])}")
    return name


def _headed(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int) and str(value).strip().lower() in _HEADED:
        return _HEADED[str(value).strip().lower()]
    raise ValueError("must be auto, true or false")


def _recording(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _services(value: Any) -> Any:
    return (value,) if isinstance(value, dict) else as_tuple(value)


Text = Annotated[str, AfterValidator(_text)]
Path_ = Annotated[str, AfterValidator(relative_path)]
Paths = Annotated[tuple[Path_, ...], BeforeValidator(as_tuple)]
Seconds = Annotated[int, Field(gt=0, le=MAX_SECONDS)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class RoleSettings(_Strict):
    """``codex.supervisor`` or ``codex.user_simulator``: what the task asks of a hidden role; blank = the session's."""

    model: str = ""
    provider: str = ""
    config: str = ""
    reasoning_effort: str = ""
    instructions: str = ""
    policy: str = ""


class CodexYaml(_Strict):
    """The ``codex:`` mapping."""

    max_user_followups: int = Field(2, ge=0, le=50)
    supervisor: RoleSettings = RoleSettings()
    user_simulator: RoleSettings = RoleSettings()


class ServiceYaml(_Strict):
    """One entry of ``services:``."""

    name: Name
    start: Command
    path: Path_ = ""
    oneshot: bool = False


class TaskYaml(_Strict):
    """A whole task file, before anything on disk is looked at; a budget of 0 stands for the category's."""

    task_id: Name
    category: Name
    task: Text
    task_snapshot: str = ""
    agent_sys: Annotated[str, AfterValidator(_agent_sys)] = "openclaw"
    agent_id: Text = "main"
    model: Text = "gpt-5.4"
    image_model: str = ""
    timeout_seconds: Seconds = 0
    max_total_seconds: Seconds = 0
    success_threshold: float = Field(1.0, gt=0, le=1, allow_inf_nan=False)
    references: Paths = ()
    sources: Paths = ()
    skills: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] = ()
    services: Annotated[tuple[ServiceYaml, ...], BeforeValidator(_services)] = ()
    pre_exec: Paths = ()
    pre_exec_parallel_safe: bool = False
    codex: CodexYaml | None = CodexYaml()
    recording: Annotated[Literal["none", "low", "high"], BeforeValidator(_recording)] = "none"
    headed: Annotated[bool | None, BeforeValidator(_headed)] = None
    uniclaw: Extension = UPSTREAM_DEFAULTS


_MOVED = {
    "task_live": "put the live wording in `task:` and the offline one in `task_snapshot:`; SNAPSHOT_MODE chooses",
    "privacy": "list the variable names, one a line, in a file `.privacy` in the task's injection folder",
}
_MAPPINGS: dict[tuple[str, ...], type[BaseModel]] = {
    (): TaskYaml,
    ("services", "*"): ServiceYaml,
    ("codex",): CodexYaml,
    ("codex", "supervisor"): RoleSettings,
    ("codex", "user_simulator"): RoleSettings,
    ("uniclaw",): Extension,
    ("uniclaw", "services", "*"): ServiceExtension,
}
_PROBLEMS = {
    "int_type": ("must be a whole number", "write digits only, such as 1200, without quotes or a unit"),
    "int_from_float": ("must be a whole number", "write digits only, such as 1200"),
    "float_type": ("must be a number", "write a number, such as 0.9, without quotes"),
    "bool_type": ("must be a YAML boolean", "write true or false, without quotes"),
    "string_type": ("must be text", "quote it, or write text"),
    "tuple_type": ("must be a list", "write one `- item` line per entry, or leave the field out"),
    "model_type": ("must be a mapping", "write `field: value` lines below it, or leave it out"),
    "dict_type": ("must be a mapping", "write `name: value` lines below it, or leave it out"),
    "finite_number": ("must be a finite number", "write a number, such as 0.9"),
    "missing": ("is required", "add it"),
}


def validate(source: YamlSource) -> TaskYaml:
    """Check the parsed mapping. Raises TaskError: the first problem in full, the others of the file below it."""
    for name, remedy in _MOVED.items():
        if name in source.data:
            raise source.error("is not a field of a task file", (name,), remedy=remedy)
    try:
        return TaskYaml.model_validate(source.data)
    except ValidationError as error:
        problems = sorted((_explain(source, detail) for detail in error.errors()), key=lambda problem: problem.line)
    first, others = problems[0], problems[1:]
    also = "".join(f"\n  also: line {other.line}: {other.field}: {other.message}" for other in others)
    raise TaskError(first.path, first.message, line=first.line, field=first.field, remedy=first.remedy + also)


def _explain(source: YamlSource, detail: ErrorDetails) -> TaskError:
    location, kind = detail["loc"], detail["type"]
    if kind == "extra_forbidden":
        return _unknown(source, location)
    value = "nothing" if detail["input"] is None else repr(detail["input"])
    shown = value if len(value) <= 60 else value[:57] + "..."
    if kind == "missing":
        message, remedy = _PROBLEMS[kind]
        return source.error(message, location, remedy=f"add a line `{location[-1]}: …`")
    if kind in _PROBLEMS:
        message, remedy = _PROBLEMS[kind]
    elif kind == "value_error":
        message, remedy = str(detail["ctx"]["error"]), "change the value"
    else:
        message = detail["msg"].replace("Input should", "should")
        remedy = "change the value"
    if detail["input"] is None:
        remedy = "give it a value, or delete the line to get the default"
    return source.error(f"{message}; the file says {shown}", location, remedy=remedy)


def _unknown(source: YamlSource, location: tuple[int | str, ...]) -> TaskError:
    name, parent = str(location[-1]), location[:-1]
    names = list(_model_at(parent).model_fields)
    near = difflib.get_close_matches(name, names, 1)
    elsewhere = [place for place, model in _MAPPINGS.items() if name in model.model_fields]
    if near:
        remedy = f"did you mean {near[0]}?"
    elif elsewhere:
        remedy = f"it belongs under `{dotted(elsewhere[0]) or 'the top level'}`"
    else:
        remedy = f"known here: {', '.join(names)}"
    return source.error("is not a known field", location, remedy=remedy)


def _model_at(parent: tuple[int | str, ...]) -> type[BaseModel]:
    for pattern, model in _MAPPINGS.items():
        if len(pattern) == len(parent) and all(p in ("*", step) for p, step in zip(pattern, parent, strict=True)):
            return model
    return TaskYaml
