"""What is questionable in a package that loads: for its author, and for a session before anything runs."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_uniclaw.assets import BASE_SKILLS
from pytest_uniclaw.checkfile import (
    GRADER_MODULES,
    KINDS,
    Check,
    CheckFile,
    Mark,
    is_foreign,
    read_checks,
    read_imports,
)
from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.package import HiddenFolder, Reader, has_hidden, load_rubric, open_hidden
from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.task import Task

_CITED = re.compile(r"\breferences/[\w./-]*\w")
_RUBRIC_REMEDIES = (
    ("the weights sum to", "correct the weights, so that they sum to 1.00"),
    ("no weighted checkpoint", "write `- **0.30 — C1 Name.** text` lines below a heading such as `## 5. Checkpoints`"),
    ("is used twice", "give one of the two another id"),
    ("several pass thresholds", "leave one of them; the task's success_threshold decides"),
    ("cap ", "write a cap of at least 0 and below 1"),
    ("weight ", "write a weight above 0 and at most 1"),
)
"""What helps against the problems of a rubric, by words of theirs; the first that occur."""
_COMPANIONS = (
    (HiddenFolder.ORACLE, "solve.sh", "write it, to show that the task can be solved"),
    (HiddenFolder.SCRIPT, "model.yaml", "write it, to show without a model that an agent can do the task"),
)

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One remark on a package; ``line`` is one-based, 0 where none applies."""

    severity: Severity
    message: str
    path: Path
    line: int = 0
    remedy: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}" if self.line else str(self.path)
        return f"{where}: {self.message}" + (f"\n  fix: {self.remedy}" if self.remedy else "")


def finding_of(error: TaskError) -> Finding:
    """An error of the loader as a finding."""
    message = f"{error.field}: {error.message}" if error.field else error.message
    return Finding("error", message, error.path, error.line, error.remedy)


def lint_task(task: Task) -> list[Finding]:
    """All findings on one loaded task, in reading order. Reads the hidden references, as the supervisor would."""
    findings = list(_lint_fields(task))
    try:
        rubric, folder = _open(task)
    except TaskError as error:
        return [*findings, finding_of(error)]
    findings += [*_lint_problems(rubric, folder), *_lint_rule(task, rubric, folder)]
    if (folder / "checks").is_dir():
        findings += [*_lint_checks(rubric, folder, "warning"), *_lint_companions(task)]
    return findings


def lint_grading(task: Task, supervisor: str = "checks") -> list[Finding]:
    """The errors in rubric and checks that leave every attempt ``unjudged`` with a supervisor of this package.

    ``checks`` needs a check for every checkpoint and cap, but has none to find in a task that ships no checks: it is
    for another supervisor. ``auto`` asks a model about what has no check; ``model`` and ``codex`` run no checks.
    """
    try:
        rubric, folder = _open(task)
    except TaskError as error:
        return [finding_of(error)]
    has_checks = (folder / "checks").is_dir()
    if supervisor == "checks" and not has_checks:
        return []
    findings = list(_lint_problems(rubric, folder))
    if has_checks and supervisor in {"checks", "auto"}:
        findings += _lint_checks(rubric, folder, "error" if supervisor == "checks" else "warning")
    return [finding for finding in findings if finding.severity == "error"]


def shorten(text: str, folder: Path) -> str:
    """``text`` with every absolute path below ``folder`` written relative to it."""
    return re.sub(rf"(?<![^\s'\"`(]){re.escape(str(folder))}/", "", text)


def _open(task: Task) -> tuple[Rubric, Path]:
    folder = open_hidden(task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
    return load_rubric(task, Reader.SUPERVISOR), folder


def _lint_fields(task: Task) -> Iterator[Finding]:
    if task.path.stem != task.task_id:
        message = f"the file is not named {task.task_id}{task.path.suffix}"
        yield Finding("warning", message, task.path, remedy="rename the file, or correct task_id")
    if task.path.parent.name != task.category:
        message = f"the file is not in a folder named {task.category}"
        yield Finding("warning", message, task.path, remedy="move the file, or correct category")
    if task.total_seconds < task.turn_seconds:
        message = f"max_total_seconds {task.total_seconds} is less than timeout_seconds {task.turn_seconds}"
        yield Finding("warning", message, task.path, remedy="raise max_total_seconds, or lower timeout_seconds")
    if task.headed is False and task.recording != "none":
        message = f"recording {task.recording} films the desktop, which headed: false takes away"
        yield Finding("warning", message, task.path, remedy="leave out one of the two")
    for name in task.skills:
        folder = task.folder / "skills" / name
        if name not in BASE_SKILLS and not (folder / "SKILL.md").is_file():
            yield Finding("warning", f"skill {name} has no SKILL.md", folder, remedy=f"write {folder}/SKILL.md")


def _lint_problems(rubric: Rubric, folder: Path) -> Iterator[Finding]:
    path = folder / "eval_rule.md"
    for problem in rubric.problems:
        line, _, text = problem.partition(": ")
        message, _, hint = text.partition("; write ")
        known = next((remedy for words, remedy in _RUBRIC_REMEDIES if words in message), "correct the line")
        yield Finding("error", message, path, int(line.removeprefix("line ")), f"write {hint}" if hint else known)


def _lint_rule(task: Task, rubric: Rubric, folder: Path) -> Iterator[Finding]:
    path = folder / "eval_rule.md"
    if rubric.pass_line is not None and rubric.pass_line != task.threshold:
        message = f"names a pass threshold of {rubric.pass_line:g}; the task's success_threshold is {task.threshold:g}"
        yield Finding("warning", message, path, remedy="make the two equal; success_threshold decides")
    seen: set[str] = set()
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        for cited in _CITED.findall(line):
            if cited not in seen and not (folder.parent / cited).exists():
                remedy = "add the file, or correct the line"
                yield Finding("warning", f"cites {cited}, which does not exist", path, number, remedy)
            seen.add(cited)


def _lint_checks(rubric: Rubric, references: Path, missing: Severity) -> Iterator[Finding]:
    """Match checks and rubric; ``missing`` is how bad a checkpoint or cap without a check is."""
    if rubric.formula_scored:
        message = "scores by a formula, which checks cannot judge"
        remedy = "write weighted checkpoints, or remove references/checks and grade with another supervisor"
        yield Finding(missing, message, references / "eval_rule.md", remedy=remedy)
    folder = references / "checks"
    paths, files = sorted(folder.rglob("*.py")), []
    local = {part for path in paths for part in path.relative_to(folder).with_suffix("").parts}
    for path in paths:
        try:
            file = read_checks(path)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 0
            message = f"cannot be parsed: {getattr(error, 'msg', error)}"
            yield Finding("error", message, path, line, "correct the Python; checks run with Python 3.11")
            continue
        files.append(file)
        yield from _lint_file(file, local)
    yield from _lint_marks(rubric, files)
    if len(files) == len(paths):
        yield from _lint_missing(rubric, files, references / "eval_rule.md", missing)


def _lint_file(file: CheckFile, local: set[str]) -> Iterator[Finding]:
    marked = [check for check in file.checks if check.marks]
    if marked and not file.runs:
        message = "has checks but is not named check_*.py, so they never run"
        yield Finding("error", message, file.path, marked[0].line, f"rename it to check_{file.path.name}")
    for line in file.hiding if file.runs else ():
        message = "may bind a name that begins with check_, which pytest takes for a check"
        remedy = "define checks as plain functions, and name helpers otherwise"
        yield Finding("warning", message, file.path, line, remedy)
    for name, line in read_imports(file.path):
        if is_foreign(name) and name not in local:
            message = f"imports {name}, which the grading image does not have"
            remedy = f"use the standard library, a file beside it, or one of {', '.join(sorted(GRADER_MODULES))}"
            yield Finding("warning", message, file.path, line, remedy)


def _lint_marks(rubric: Rubric, files: Sequence[CheckFile]) -> Iterator[Finding]:
    known = {"checkpoint": [c.id for c in rubric.checkpoints], "cap": [c.id for c in rubric.caps]}
    marks = Counter(mark for file in files for check in file.checks for mark in check.marks)
    for file in files:
        last = {check.function: check for check in file.checks}
        for check in file.checks if file.runs else [check for check in file.checks if check.marks]:
            if last[check.function] is not check:
                message = f"{check.function} is defined again on line {last[check.function].line}, so this never runs"
                yield Finding("error", message, file.path, check.line, "give one of the two another name")
                continue
            yield from _lint_check(file.path, check, known, marks)


def _lint_check(path: Path, check: Check, known: dict[str, list[str]], marks: Counter[Mark]) -> Iterator[Finding]:
    """Yield what is wrong with the marks of one check: nothing, or the first that is."""
    name, mark = check.function, check.marks[0] if check.marks else Mark("", "")
    names = known.get(mark.kind, [mark.value])
    if len(check.marks) > 1 or not (check.marks or check.undecided):
        message = f"{name} needs exactly one of {', '.join(KINDS)}"
        remedy = 'write one mark above it, such as @pytest.mark.checkpoint("C1"), or name a helper otherwise'
        yield Finding("error", message, path, check.line, remedy)
    elif check.undecided:
        message, remedy = f"{name}: only running it shows what it decides", "write the mark plainly, with a plain text"
        yield Finding("warning", message, path, check.line, remedy)
    elif not mark.value:
        message, remedy = f"{name}: the {mark.kind} mark needs one plain string", f'write @pytest.mark.{mark.kind}("…")'
        yield Finding("error", message, path, check.line, remedy)
    elif mark.value not in names:
        message = f"{name}: no {mark.kind} {mark.value!r} in the rubric ({_listed(known[mark.kind])})"
        yield Finding("error", message, path, check.line, _nearest(mark, known[mark.kind]))
    elif mark.kind in known and marks[mark] > 1:
        message = f"{name}: {mark.kind} {mark.value} has {marks[mark]} checks"
        yield Finding("error", message, path, check.line, "make one check of them; each id has exactly one")


def _nearest(mark: Mark, names: list[str]) -> str:
    near = difflib.get_close_matches(mark.value or "", names, 1)
    return f"did you mean {near[0]}?" if near else f"name one of the rubric's, or add the {mark.kind} to eval_rule.md"


def _lint_missing(rubric: Rubric, files: Sequence[CheckFile], path: Path, severity: Severity) -> Iterator[Finding]:
    """Checkpoints and caps without a check; never more than a warning where a check may be out of sight."""
    found = {(mark.kind, mark.value) for file in files for check in file.checks for mark in check.marks}
    severity = "warning" if any(file.opaque for file in files) else severity
    wanted = [("checkpoint", c.id, c.line) for c in rubric.checkpoints] + [("cap", c.id, c.line) for c in rubric.caps]
    for kind, identity, line in wanted:
        if (kind, identity) not in found:
            message = f"{kind} {identity} has no check; the supervisor `checks` cannot judge it"
            remedy = f'add a check to references/checks that is marked @pytest.mark.{kind}("{identity}")'
            yield Finding(severity, message, path, line, remedy)


def _lint_companions(task: Task) -> Iterator[Finding]:
    for folder, name, remedy in _COMPANIONS:
        if not has_hidden(task, folder, name):
            yield Finding("warning", f"has checks but no {folder}/{name}", task.folder, remedy=remedy)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
