"""Names in the workspace: found without leaving it, shown without surprises.

A name is relative to the workspace, with ``/``. Bytes that are no UTF-8 and characters that could break a line are
shown as ``\\xNN``, and a file is found by its name as it is shown.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from .common import ToolError

_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class Found:
    """A regular file: where it is, its name as shown, its size in bytes."""

    path: Path
    name: str
    size: int

    def open(self) -> BinaryIO:
        """Open it; never blocks and never follows a link. Raises OSError."""
        return os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")

    def head(self, size: int) -> bytes:
        """Return its first bytes. Raises OSError."""
        with self.open() as file:
            return file.read(size)


@dataclass(frozen=True)
class Entry:
    """One thing in a folder, ``depth`` levels below where the walk began; ``note`` says what is odd about it."""

    path: Path
    name: str
    kind: Literal["file", "folder", "other"]
    depth: int = 0
    size: int = 0
    note: str = ""


class Root:
    """The workspace; nothing is found outside it."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).resolve()

    def find(self, name: str) -> Path:
        """Return the real path of a name. Raises ToolError."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or "\0" in name:
            raise ToolError(f"{shown(name)}: a path is relative to the workspace and has no '..'; see list_files")
        path = self.folder
        for part in parts:
            path = self.step(path, part, name)
        return path

    def step(self, folder: Path, part: str, name: str) -> Path:
        """Return the real path of one more part of a name."""
        path: Path | None = folder / part
        if not there(folder / part):
            path = next((entry for entry in inside(folder) if shown(entry.name) == part), None)
        if path is None:
            raise ToolError(f"{shown(name)}: there is no such file or folder; see list_files")
        real = self.resolved(path)
        if real is None:
            raise ToolError(f"{shown(name)}: a link that leads out of the workspace or nowhere is not followed")
        return real

    def resolved(self, path: Path) -> Path | None:
        """Return where a path really leads, None when that is not in the workspace."""
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: links in a circle
            return None
        return real if real.is_relative_to(self.folder) else None

    def file(self, name: str) -> Found:
        """Return a regular file. Raises ToolError."""
        entry = self.entry(self.find(name))
        if entry.kind == "folder":
            raise ToolError(f"{shown(name)}: is a folder; see list_files")
        if entry.kind == "other":
            raise ToolError(f"{shown(name)}: {entry.note}")
        return Found(entry.path, entry.name, entry.size)

    def name_of(self, path: Path) -> str:
        """Return the shown name of a path in the workspace."""
        return shown(path.relative_to(self.folder).as_posix())

    def walk(self, path: Path, depth: int) -> Iterator[Entry]:
        """Yield what lies below a real folder, sorted, each folder before what is in it; links are not entered."""
        waiting = [(found, 1) for found in reversed(inside(path))]
        while waiting:
            found, level = waiting.pop()
            entry = self.entry(found, level)
            yield entry
            if entry.kind == "folder" and level < depth:
                waiting.extend((inner, level + 1) for inner in reversed(inside(found)))

    def entry(self, path: Path, depth: int = 0) -> Entry:
        """Look at one thing."""
        name = self.name_of(path)
        try:
            status = path.lstat()
        except OSError as error:
            return Entry(path, name, "other", depth, note=error.strerror or "unreadable")
        if stat.S_ISDIR(status.st_mode):
            return Entry(path, name, "folder", depth)
        if stat.S_ISREG(status.st_mode):
            return Entry(path, name, "file", depth, status.st_size)
        if stat.S_ISLNK(status.st_mode):
            real = self.resolved(path)
            target = "a place outside the workspace or nowhere" if real is None else self.name_of(real)
            return Entry(path, name, "other", depth, note=f"a link to {target}")
        return Entry(path, name, "other", depth, note="neither a file nor a folder")


def there(path: Path) -> bool:
    """Tell whether a name is taken."""
    try:
        path.lstat()
    except (OSError, ValueError):
        return False
    return True


def inside(folder: Path) -> list[Path]:
    """Return the sorted paths of what is in a folder; empty when it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def shown(name: str) -> str:
    """Return a name as printable text."""
    return _UNSHOWN.sub(lambda match: escaped(match[0]), name)


def escaped(character: str) -> str:
    """Return a character as the hexadecimal of its bytes."""
    policy = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", policy))
