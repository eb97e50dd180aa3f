"""What is questionable in a package that loads: for its author, before anything runs."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_uniclaw.assets import BASE_SKILLS
from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.package import HiddenFolder, Reader, has_hidden, load_rubric, open_hidden
from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.task import Task

_MARKS = ("checkpoint", "cap", "fatal")
_CITED = re.compile(r"\breferences/[\w./-]*\w")


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark on a package; ``line`` is one-based, 0 where none applies."""

    severity: Literal["error", "warning"]
    message: str
    path: Path
    line: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """One ``@pytest.mark.<kind>("value")`` of a check function; ``value`` is empty when it is not a plain string."""

    kind: str
    value: str
    function: str
    path: Path
    line: int


def lint_task(task: Task) -> list[Finding]:
    """All findings on one loaded task, in reading order. Reads the hidden references, as the supervisor would."""
    findings = list(_lint_fields(task))
    folder = open_hidden(task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
    try:
        rubric = load_rubric(task, Reader.SUPERVISOR)
    except TaskError as error:
        return [*findings, Finding("error", error.message, error.path, error.line)]
    findings += _lint_rubric(task, rubric, folder)
    checks = folder / "checks"
    if checks.is_dir():
        findings += _lint_checks(rubric, checks)
        findings += _lint_companions(task)
    return findings


def read_marks(path: Path) -> list[Mark]:
    """The marks of every ``check_*`` function of one file, without importing it. Raises SyntaxError."""
    marks = []
    for node in ast.parse(path.read_bytes(), str(path)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("check_"):
            found = [mark for mark in map(_mark, node.decorator_list) if mark]
            marks += [Mark(kind, value, node.name, path, node.lineno) for kind, value in found or [("", "")]]
    return marks


def _lint_fields(task: Task) -> Iterator[Finding]:
    if task.path.stem != task.task_id:
        yield Finding("warning", f"the file is not named {task.task_id}{task.path.suffix}", task.path)
    if task.path.parent.name != task.category:
        yield Finding("warning", f"the file is not in a folder named {task.category}", task.path)
    if task.total_seconds < task.turn_seconds:
        message = f"max_total_seconds {task.total_seconds} is less than timeout_seconds {task.turn_seconds}"
        yield Finding("warning", message, task.path)
    for name in task.skills:
        folder = task.folder / "skills" / name
        if name not in BASE_SKILLS and not (folder / "SKILL.md").is_file():
            yield Finding("warning", f"skill {name} has no SKILL.md", folder)


def _lint_rubric(task: Task, rubric: Rubric, folder: Path) -> Iterator[Finding]:
    path = folder / "eval_rule.md"
    for problem in rubric.problems:
        line, _, message = problem.partition(": ")
        yield Finding("error", message, path, int(line.removeprefix("line ")))
    if rubric.pass_line is not None and rubric.pass_line != task.threshold:
        message = f"names a pass threshold of {rubric.pass_line:g}; the task's success_threshold is {task.threshold:g}"
        yield Finding("warning", message, path)
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for cited in _CITED.findall(line):
            if cited not in seen and not (folder.parent / cited).exists():
                yield Finding("warning", f"cites {cited}, which does not exist", path, number)
            seen.add(cited)


def _lint_checks(rubric: Rubric, folder: Path) -> Iterator[Finding]:
    marks: list[Mark] = []
    for path in sorted(folder.glob("*.py")):
        try:
            found = read_marks(path)
        except SyntaxError as error:
            yield Finding("error", f"cannot be parsed: {error.msg}", path, error.lineno or 0)
            continue
        if found and not path.name.startswith("check_"):
            yield Finding("error", "has checks but is not named check_*.py, so they never run", path)
        marks += found
    yield from _lint_marks(rubric, marks)


def _lint_marks(rubric: Rubric, marks: list[Mark]) -> Iterator[Finding]:
    known = {"checkpoint": [c.id for c in rubric.checkpoints], "cap": [c.id for c in rubric.caps]}
    per_function = Counter((mark.path, mark.function) for mark in marks)
    per_checkpoint = Counter(mark.value for mark in marks if mark.kind == "checkpoint")
    for mark in marks:
        if not mark.kind or per_function[mark.path, mark.function] > 1:
            message = f"{mark.function} needs exactly one of {', '.join(_MARKS)}"
        elif not mark.value:
            message = f"{mark.function}: the {mark.kind} mark needs one plain string"
        elif mark.kind in known and mark.value not in known[mark.kind]:
            message = f"{mark.function}: no {mark.kind} {mark.value!r} in the rubric ({_listed(known[mark.kind])})"
        elif mark.kind == "checkpoint" and per_checkpoint[mark.value] > 1:
            message = f"{mark.function}: checkpoint {mark.value} has {per_checkpoint[mark.value]} checks"
        else:
            continue
        yield Finding("error", message, mark.path, mark.line)
    checked = {mark.value for mark in marks if mark.kind == "cap"}
    for cap in rubric.caps:
        if cap.id not in checked and marks:
            yield Finding("warning", f"cap {cap.id} (eval_rule.md line {cap.line}) has no check", marks[0].path.parent)


def _lint_companions(task: Task) -> Iterator[Finding]:
    for folder, name in ((HiddenFolder.ORACLE, "solve.sh"), (HiddenFolder.SCRIPT, "model.yaml")):
        if not has_hidden(task, folder, name):
            yield Finding("warning", f"has checks but no {folder}/{name}", task.folder)


def _mark(decorator: ast.expr) -> tuple[str, str] | None:
    call = decorator if isinstance(decorator, ast.Call) else None
    parts = ast.unparse(call.func if call else decorator).split(".")
    if len(parts) != 3 or parts[:2] != ["pytest", "mark"] or parts[2] not in _MARKS:
        return None
    first = call.args[0] if call and call.args else None
    value = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    return parts[2], value


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
