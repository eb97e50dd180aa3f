"""The files of a package: do the declared ones exist, stay inside, and are they really here.

Everything looks at directory entries only, and at the first bytes of files small enough to be a large-file pointer.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_uniclaw.schema import ServiceYaml, TaskYaml
from pytest_uniclaw.yamlsource import Location, YamlSource

EVAL_RULE = "references/eval_rule.md"
BASE_SKILLS: Mapping[str, str] = {
    "agent-browser": "agent-browser",
    "agent-browser-control": "agent-browser",
    "apt-package-manager": "apt-packages",
    "apt-packages": "apt-packages",
    "desktop-control": "desktop-control",
    "duckduckgo-search": "duckduckgo-search",
    "linux-gui-control": "desktop-control",
    "web-search": "web-search",
}
"""Skills that a package may list without shipping them, and the folder of ours that they mean; upstream's names too."""
_SKILLS = Path(__file__).with_name("skills")
POINTER_MARK = b"version https://git-lfs.github.com/spec/"
POINTER_BYTES = 1024
"""A large-file pointer is a text file smaller than this."""


def base_skill(name: str) -> dict[str, bytes]:
    """Return the files of a base skill by their path in its folder; its head bears the name that was asked for.

    Raises KeyError for any other name.
    """
    folder = _SKILLS / BASE_SKILLS[name]
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}
    own = f"name: {folder.name}\n".encode()
    return files | {"SKILL.md": files["SKILL.md"].replace(own, f"name: {name}\n".encode(), 1)}


def check_declared(source: YamlSource, fields: TaskYaml, folder: Path) -> None:
    """Check that every declared file exists inside the package. Raises TaskError at the entry's line."""
    if EVAL_RULE not in fields.references:
        remedy = f"add `- {EVAL_RULE}` to `references:` and write that file"
        raise source.error(f"must include {EVAL_RULE}", ("references",), remedy=remedy)
    for index, name in enumerate(fields.references):
        where: Location = ("references", index)
        if not name.startswith("references/"):
            raise source.error(f"{name!r} is not below references/", where, remedy=f"move it to references/{name}")
        _require(source, where, folder, name, directory=False if name == EVAL_RULE else None)
    _refuse_leaks(source, ("references",), folder / "references")
    _refuse_leaks(source, ("sources",), folder / "sources")
    for index, name in enumerate(fields.sources):
        _require(source, ("sources", index), folder / "sources", name)
    for index, name in enumerate(fields.skills):
        _check_skill(source, index, folder, name)
    for index, service in enumerate(fields.services):
        _check_service(source, index, folder, service)
    for index, name in enumerate(fields.pre_exec):
        where = ("pre_exec", index)
        if name.startswith("sources/"):
            remedy = "move the script to ops/: everything below sources/ is copied to the executor"
            raise source.error(f"{name!r} would be shown to the executor", where, remedy=remedy)
        _require(source, where, folder, name, directory=False)


def escapes(path: Path, root: Path) -> bool:
    """Whether a link leads out of ``root`` (or in circles)."""
    try:
        return not path.resolve(strict=False).is_relative_to(root.resolve())
    except (OSError, RuntimeError):
        return True


def walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry below ``folder`` that is not a directory, links unfollowed, in no order; nothing if it is absent."""
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from walk(Path(entry.path))
        else:
            yield entry


def is_pointer(path: str | Path, size: int) -> bool:
    """Whether a file of ``size`` bytes is the text stub that stands for a large file that was not fetched."""
    if not len(POINTER_MARK) < size < POINTER_BYTES:
        return False
    with Path(path).open("rb") as file:
        return file.read(len(POINTER_MARK)) == POINTER_MARK


def _check_skill(source: YamlSource, index: int, folder: Path, name: str) -> None:
    if os.path.lexists(folder / "skills" / name):
        _require(source, ("skills", index), folder / "skills", name, directory=True)
        _refuse_leaks(source, ("skills", index), folder / "skills" / name)
    elif name not in BASE_SKILLS:
        remedy = f"add skills/{name}/SKILL.md to {folder}, or use one of {', '.join(sorted(BASE_SKILLS))}"
        raise source.error(f"no skill {name!r} in the package or in pytest-uniclaw", ("skills", index), remedy=remedy)


def _check_service(source: YamlSource, index: int, folder: Path, service: ServiceYaml) -> None:
    where = ("services", index, "path" if service.path else "name")
    name = service.path or service.name
    _require(source, where, folder / "services", name, directory=True)
    _refuse_leaks(source, where, folder / "services" / name)


def _refuse_leaks(source: YamlSource, where: Location, root: Path) -> None:
    """Links below a folder that is copied whole must stay in it, or a hidden file could ride along."""
    for entry in walk(root):
        if entry.is_symlink() and escapes(Path(entry.path), root):
            remedy = "put the file itself there"
            raise source.error(f"{entry.path} is a link that leads out of {root}", where, remedy=remedy)


def _require(source: YamlSource, where: Location, root: Path, name: str, *, directory: bool | None = None) -> None:
    """Check that ``root/name`` exists, is reached without leaving ``root``, and is a directory or file as asked."""
    path = root
    mode = 0
    for part in Path(name).parts:
        path = path / part
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                if escapes(path, root):
                    remedy = "put the file itself into the package"
                    raise source.error(f"{name!r} is a link that leads out of {root}", where, remedy=remedy)
                mode = path.stat().st_mode
        except OSError as error:
            remedy = f"add {root / name}, or correct the entry"
            raise source.error(f"{name!r} does not exist: {error.strerror}", where, remedy=remedy) from error
    if directory is not None and stat.S_ISDIR(mode) != directory:
        kind = "a folder" if directory else "a file"
        raise source.error(f"{name!r} must be {kind}", where, remedy=f"make {root / name} {kind}")
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise source.error(f"{name!r} is neither a file nor a folder", where, remedy=f"replace {root / name}")
