"""``script/model.yaml``: what the scripted model says, read and checked.

The file holds ``turns``, one list of steps per user message. A step is a mapping with one action::

    shell: COMMAND                              run with the agent's own shell tool
    call: {name, arguments}                     one tool call;  calls: [{name, arguments}, {shell}] several at once
    say: TEXT                                   the answer; may hold {last_tool_output} and {turn}
    empty: true                                 an answer without text
    raw_call: {name, arguments: TEXT}           a tool call whose arguments need not be JSON
    fail: {status, type, code, message, retry_after, times}    an error answer
    hang: true                                  no answer;  reset: true  a cut connection;  break: true  a cut stream
    body: TEXT                                  a 200 that is no completion

A script of a hidden role may hold ``lanes`` instead, one script per task id, with ``default`` for every other task:
``{default: {turns: …}, task_101_…: {turns: …}}``.

``think: TEXT`` may stand beside or before a step that answers; ``times: N`` beside a fault lets it happen N times.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.yamlsource import YamlSource, read_yaml

DEFAULT_LANE = "default"
FaultKind = Literal["fail", "hang", "reset", "body", "break"]


@dataclass(frozen=True)
class ToolUse:
    """One tool call: a ``name`` with ``arguments`` as JSON text, or a ``shell`` command for the agent's own tool."""

    name: str = ""
    arguments: str = "{}"
    shell: str | None = None


@dataclass(frozen=True)
class Say:
    """A text of the model, without tool calls; it ends the turn. Empty text is a silent model."""

    text: str
    think: str = ""


@dataclass(frozen=True)
class Use:
    """One assistant message with tool calls."""

    calls: tuple[ToolUse, ...]
    think: str = ""


@dataclass(frozen=True)
class Fault:
    """A failing provider. ``times`` None is for ever; ``body`` is for kind ``body``, the rest for kind ``fail``."""

    kind: FaultKind
    times: int | None = None
    status: int = 500
    type: str | None = None
    code: str | None = None
    message: str = ""
    retry_after: float | None = None
    body: str = ""


Step = Say | Use | Fault


@dataclass(frozen=True)
class Script:
    """A loaded script: the steps of each turn."""

    path: Path
    turns: tuple[tuple[Step, ...], ...]


def load_script(path: Path, lane: str = "") -> Script:
    """Read and check a script; of one with lanes, the part named ``lane`` or ``default``.

    Raises SettingsError when there is no file or no such lane, TaskError for what is wrong in it.
    """
    if not path.is_file():
        raise SettingsError(
            f"{path}: there is no such script\n  fix: write it (a task's own is script/model.yaml in its injection "
            "folder), or name one with --model=script:FILE"
        )
    source = read_yaml(path)
    if "lanes" not in source.data:
        return Script(path, _turns(source, (), source.data))
    _only(source, (), source.data, ("lanes",))
    lanes = source.data["lanes"]
    if not isinstance(lanes, dict) or not lanes:
        raise source.error("must be a mapping", ("lanes",), remedy="write {default: {turns: …}}")
    read = {str(name): _turns(source, ("lanes", str(name)), value) for name, value in lanes.items()}
    for name in (lane, DEFAULT_LANE):
        if name in read:
            return Script(path, read[name])
    raise SettingsError(f"{path}: no lane {lane!r} and no lane {DEFAULT_LANE!r} (lanes: {', '.join(read)})")


Loc = tuple[str | int, ...]


def _turns(source: YamlSource, loc: Loc, value: Any) -> tuple[tuple[Step, ...], ...]:
    if not isinstance(value, dict):
        raise source.error("must be a mapping", loc, remedy="write {turns: …}")
    _only(source, loc, value, ("turns",))
    turns, here = value.get("turns"), (*loc, "turns")
    if not isinstance(turns, list) or not turns:
        raise source.error("must be a list of turns", here, remedy="write one list of steps per user message")
    return tuple(_turn(source, (*here, index), turn) for index, turn in enumerate(turns))


def _turn(source: YamlSource, loc: Loc, turn: Any) -> tuple[Step, ...]:
    if not isinstance(turn, list) or not turn:
        remedy = "a turn is a list of steps: write `- - shell: …` for the first and `  - say: …` for the next"
        raise source.error("must be a list of steps", loc, remedy=remedy)
    steps: list[Step] = []
    pending = ""
    for index, value in enumerate(turn):
        here = (*loc, index)
        if isinstance(value, dict) and list(value) == ["think"]:
            pending += _text(source, (*here, "think"), value["think"])
            continue
        step = _step(source, here, value)
        if pending and not isinstance(step, Fault):
            step, pending = replace(step, think=pending + step.think), ""
        steps.append(step)
    if pending:
        remedy = "add a `say` or a tool step after it"
        raise source.error("thinks, but nothing follows", (*loc, len(turn) - 1), remedy=remedy)
    return tuple(steps)


def _step(source: YamlSource, loc: Loc, value: Any) -> Step:
    known = ", ".join(_STEPS)
    if not isinstance(value, dict):
        shown = repr(value)[:60]
        raise source.error(f"must be a step; the file says {shown}", loc, remedy=f"write `name: value`, one of {known}")
    _only(source, loc, value, (*_STEPS, "think", "times"))
    names = [name for name in value if name in _STEPS]
    if len(names) != 1:
        raise source.error(f"has {len(names)} actions, not one", loc, remedy=f"give each step exactly one of {known}")
    name = names[0]
    step = _STEPS[name](source, (*loc, name), value[name])
    if "think" in value:
        if isinstance(step, Fault):
            raise source.error("has no meaning beside a fault", (*loc, "think"), remedy="remove it")
        step = replace(step, think=_text(source, (*loc, "think"), value["think"]))
    if "times" in value:
        if not isinstance(step, Fault):
            raise source.error("belongs to faults only", (*loc, "times"), remedy="repeat the step instead")
        step = replace(step, times=_times(source, (*loc, "times"), value["times"]))
    return step


def _shell(source: YamlSource, loc: Loc, value: Any) -> Use:
    return Use((ToolUse(shell=_text(source, loc, value)),))


def _one_call(source: YamlSource, loc: Loc, value: Any) -> Use:
    return Use((_tool(source, loc, value),))


def _many_calls(source: YamlSource, loc: Loc, value: Any) -> Use:
    if not isinstance(value, list) or not value:
        remedy = "write `- {name: …, arguments: {…}}` or `- {shell: …}`"
        raise source.error("must be a list of calls", loc, remedy=remedy)
    calls = []
    for index, item in enumerate(value):
        here = (*loc, index)
        if isinstance(item, dict) and "shell" in item:
            _only(source, here, item, ("shell",))
            calls.append(ToolUse(shell=_text(source, (*here, "shell"), item["shell"])))
        else:
            calls.append(_tool(source, here, item))
    return Use(tuple(calls))


def _tool(source: YamlSource, loc: Loc, value: Any) -> ToolUse:
    name = _named(source, loc, value)
    arguments = value.get("arguments", {})
    if not isinstance(arguments, dict):
        raise source.error("must be a mapping", (*loc, "arguments"), remedy="write {argument: value}")
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        remedy = "quote dates and other values that JSON does not have"
        raise source.error(f"is not JSON: {error}", (*loc, "arguments"), remedy=remedy) from error
    return ToolUse(name, text)


def _raw_call(source: YamlSource, loc: Loc, value: Any) -> Use:
    name = _named(source, loc, value)
    return Use((ToolUse(name, _text(source, (*loc, "arguments"), value.get("arguments", ""), blank=True)),))


def _named(source: YamlSource, loc: Loc, value: Any) -> str:
    if not isinstance(value, dict):
        raise source.error("must be a mapping", loc, remedy="write {name: tool, arguments: {…}}")
    _only(source, loc, value, ("name", "arguments"))
    if "name" not in value:
        raise source.error("has no name", loc, remedy="add `name:`, the tool's literal name")
    return _text(source, (*loc, "name"), value["name"])


def _say(source: YamlSource, loc: Loc, value: Any) -> Say:
    return Say(_text(source, loc, value))


def _empty(source: YamlSource, loc: Loc, value: Any) -> Say:
    _true(source, loc, value)
    return Say("")


def _fail(source: YamlSource, loc: Loc, value: Any) -> Fault:
    if not isinstance(value, dict):
        raise source.error("must be a mapping", loc, remedy="write {status: 429, type: rate_limit, message: …}")
    _only(source, loc, value, ("status", "type", "code", "message", "retry_after", "times"))
    status, wait = value.get("status"), value.get("retry_after")
    if type(status) is not int or not 400 <= status <= 599:
        message = f"must be an HTTP error status, 400 to 599, not {status!r}"
        raise source.error(message, (*loc, "status"), remedy="write 429")
    if wait is not None and (isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= 86400):
        raise source.error(f"must be seconds, not {wait!r}", (*loc, "retry_after"), remedy="write a number such as 1")
    words = {key: _text(source, (*loc, key), value[key]) for key in ("type", "code", "message") if key in value}
    times = _times(source, (*loc, "times"), value["times"]) if "times" in value else None
    message = words.get("message", f"scripted failure {status}")
    return Fault("fail", times, status, words.get("type"), words.get("code"), message, retry_after=wait)


def _flag(kind: FaultKind) -> Callable[[YamlSource, Loc, Any], Fault]:
    def parse(source: YamlSource, loc: Loc, value: Any) -> Fault:
        _true(source, loc, value)
        return Fault(kind)

    return parse


def _body(source: YamlSource, loc: Loc, value: Any) -> Fault:
    return Fault("body", body=_text(source, loc, value))


_STEPS: Mapping[str, Callable[[YamlSource, Loc, Any], Step]] = {
    "shell": _shell,
    "call": _one_call,
    "calls": _many_calls,
    "say": _say,
    "fail": _fail,
    "hang": _flag("hang"),
    "reset": _flag("reset"),
    "body": _body,
    "break": _flag("break"),
    "empty": _empty,
    "raw_call": _raw_call,
}


def _only(source: YamlSource, loc: Loc, value: Mapping[Any, Any], names: tuple[str, ...]) -> None:
    for key in value:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, 1)
            remedy = f"did you mean {near[0]}?" if near else f"known here: {', '.join(names)}"
            raise source.error("is not known", (*loc, key if isinstance(key, str) else str(key)), remedy=remedy)


def _text(source: YamlSource, loc: Loc, value: Any, *, blank: bool = False) -> str:
    if not isinstance(value, str) or not (blank or value.strip()):
        raise source.error(f"must be text; the file says {value!r}", loc, remedy="quote it, or write text")
    return value


def _true(source: YamlSource, loc: Loc, value: Any) -> None:
    if value is not True:
        raise source.error(f"takes only `true`; the file says {value!r}", loc, remedy="write true, or remove the step")


def _times(source: YamlSource, loc: Loc, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise source.error(f"must be a whole number from 1, not {value!r}", loc, remedy="leave it out for `always`")
    return value
