"""What may be done with a package's folder: open a hidden part, copy it privately, say why it cannot run here.

Each hidden folder has exactly one reader (design invariant 1); :func:`open_hidden` is the one door to all three.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from enum import StrEnum
from pathlib import Path

from pytest_uniclaw.assets import escapes, is_pointer, walk
from pytest_uniclaw.errors import AccessDenied, TaskError
from pytest_uniclaw.privacy import PrivacyValues
from pytest_uniclaw.rubric import Rubric, parse_rubric
from pytest_uniclaw.task import Task, Variant, resolve_variant
from pytest_uniclaw.yamlsource import read_text


class HiddenFolder(StrEnum):
    """The folders of a package that an executor, a user or a report must never see."""

    REFERENCES = "references"
    ORACLE = "oracle"
    SCRIPT = "script"


class Reader(StrEnum):
    """Who asks for a hidden folder."""

    SUPERVISOR = "supervisor"
    ORACLE_AGENT = "oracle agent"
    SCRIPTED_PROVIDER = "scripted provider"
    EXECUTOR = "executor"
    USER_SIMULATOR = "user simulator"
    REWRITER = "rewriter"
    REPORT = "report"


_READERS = {
    HiddenFolder.REFERENCES: Reader.SUPERVISOR,
    HiddenFolder.ORACLE: Reader.ORACLE_AGENT,
    HiddenFolder.SCRIPT: Reader.SCRIPTED_PROVIDER,
}
_REMEDIES = {
    HiddenFolder.REFERENCES: "write references/eval_rule.md",
    HiddenFolder.ORACLE: "write oracle/solve.sh, or leave the task out of an oracle run",
    HiddenFolder.SCRIPT: "write script/model.yaml, or pass --model=script:FILE",
}


def open_hidden(task: Task, folder: HiddenFolder, reader: Reader) -> Path:
    """The absolute path of a hidden folder, for its one reader.

    Raises AccessDenied for anybody else, whether or not the folder exists, and TaskError when the package lacks it.
    """
    if _READERS[folder] is not reader:
        raise AccessDenied(f"{task.task_id}: {folder}/ is read by the {_READERS[folder]} only, not by the {reader}")
    path = task.folder / folder.value
    if not path.is_dir():
        raise TaskError(task.path, f"the package has no folder {path}", remedy=_REMEDIES[folder])
    return path


def has_hidden(task: Task, folder: HiddenFolder, name: str = "") -> bool:
    """Whether the package ships a hidden folder, or the file ``name`` in it; says nothing of the content."""
    path = task.folder / folder.value / name
    return path.is_file() if name else path.is_dir()


def load_rubric(task: Task, reader: Reader) -> Rubric:
    """Parse the task's ``eval_rule.md``, as the supervisor. Raises AccessDenied, TaskError."""
    return parse_rubric(read_text(open_hidden(task, HiddenFolder.REFERENCES, reader) / "eval_rule.md"))


def unavailable(task: Task, values: PrivacyValues, snapshot_mode: bool) -> str | None:
    """Why this sound package cannot run on this machine, as a reason to skip it; None when it can.

    Names the missing privacy keys or the first large file that was not fetched. Costs directory reads only.
    """
    variant = resolve_variant(task, snapshot_mode)
    problem = values.problems(variant.privacy_keys)
    if problem:
        return f"{task.task_id}: {problem}"
    pointers = _pointers(task, variant)
    if not pointers:
        return None
    more = f" and {len(pointers) - 1} more" if len(pointers) > 1 else ""
    return f"{task.task_id}: large file {pointers[0]}{more} not fetched (run `git lfs pull` in {task.folder})"


def private_copy(task: Task, destination: Path) -> Task:
    """The task on a private copy of its package, ``destination/<category>/<task_id>``, which scripts may rewrite.

    The same task, and nothing copied, when it has no ``pre_exec``. Links are kept, made relative, if they stay
    inside the package. Raises TaskError for a link that does not, or a special file; OSError as the disk has it.
    """
    if not task.pre_exec:
        return task
    copy = destination / task.category / task.task_id
    copy.parent.mkdir(parents=True, exist_ok=True)
    _copy_tree(task.folder, copy, task.folder)
    return dataclasses.replace(task, folder=copy.absolute())


def _pointers(task: Task, variant: Variant) -> list[str]:
    """Unfetched files among what the sandbox and the supervisor need, relative to the package, sorted."""
    needed = [task.folder / HiddenFolder.REFERENCES.value]
    needed += [task.folder / "services" / service.path for service in task.services]
    needed += [task.folder / "skills" / skill for skill in task.skills]
    sources = task.folder / "sources"
    withheld = {str(sources / name) for name in variant.excluded_sources}
    found = []
    for folder in (*needed, sources):
        for entry in walk(folder):
            plain = entry.is_file(follow_symlinks=False) and entry.path not in withheld
            if plain and is_pointer(entry.path, entry.stat(follow_symlinks=False).st_size):
                found.append(str(Path(entry.path).relative_to(task.folder)))
    return sorted(found)


def _copy_tree(source: Path, target: Path, root: Path) -> None:
    target.mkdir()
    with os.scandir(source) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            here, there = Path(entry.path), target / entry.name
            if entry.is_symlink():
                if escapes(here, root):
                    raise TaskError(here, "is a link that leads out of the package", remedy="put the file itself there")
                aim = here.resolve()
                there.symlink_to(os.path.relpath(aim, here.parent.resolve()))
            elif entry.is_dir(follow_symlinks=False):
                _copy_tree(here, there, root)
            elif entry.is_file(follow_symlinks=False):
                shutil.copy(here, there)
            else:
                raise TaskError(here, "is neither a file, a folder nor a link", remedy="remove it from the package")
    shutil.copymode(source, target)
