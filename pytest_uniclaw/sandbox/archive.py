"""Host files into one tar for a sandbox: ownership and modes as declared, no link of the host ever followed."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.paths import USER_IDS
from pytest_uniclaw.sandbox.base import MIB, Entry

IN_MEMORY_BYTES = 8 * MIB


@dataclass
class Packer:
    """Writes one tar whose names start at the sandbox's root.

    ``executor`` owns the parent folders that this creates inside ``homes``; elsewhere they are root's.
    ``fixed`` are folders that exist with an owner of their own, so they are never written as a parent.
    """

    tar: tarfile.TarFile
    executor: str = "root"
    homes: tuple[str, ...] = ()
    fixed: frozenset[str] = frozenset()
    folders: set[str] = field(default_factory=set)

    def add(self, entry: Entry) -> None:
        """Add an entry with its parents. Raises TaskError for a link that leaves its source and for special files."""
        path = PurePosixPath(entry.path)
        if not path.is_absolute() or ".." in path.parts:
            raise ValueError(f"a sandbox path must be absolute and without '..': {entry.path!r}")
        self.add_parents(path)
        if entry.source is not None:
            self.add_source(entry, entry.source, str(path))
        elif entry.content is not None:
            info = member(str(path), tarfile.REGTYPE, entry.mode, entry.user)
            info.size = len(entry.content)
            self.tar.addfile(info, io.BytesIO(entry.content))
        else:
            self.add_folder(str(path), entry.mode, entry.user)

    def add_parents(self, path: PurePosixPath) -> None:
        """Write the executor's parent folders; the engine itself makes every other missing one, root's, 0755."""
        for parent in reversed(path.parents):
            inside = any(home in {str(above) for above in parent.parents} for home in self.homes)
            if inside and str(parent) not in self.folders | self.fixed:
                self.add_folder(str(parent), 0o755, self.executor)

    def add_folder(self, path: str, mode: int, user: str) -> None:
        """Write a folder; who may read it may enter it."""
        self.folders.add(path)
        self.tar.addfile(member(path, tarfile.DIRTYPE, mode | (mode & 0o444) >> 2, user))

    def add_source(self, entry: Entry, source: Path, path: str) -> None:
        """Write a host file or a folder's whole tree below ``path``."""
        kind = source.lstat().st_mode
        if stat.S_ISREG(kind):
            self.add_file(source, path, entry)
        elif stat.S_ISDIR(kind):
            self.add_folder(path, entry.mode, entry.user)
            for found in walk(source):
                self.add_found(found, source, f"{path}/{found.relative_to(source).as_posix()}", entry)
        else:
            raise refused(source, "is neither a regular file nor a folder")

    def add_found(self, found: Path, root: Path, path: str, entry: Entry) -> None:
        """Write one entry of a source folder."""
        kind = found.lstat().st_mode
        if stat.S_ISREG(kind):
            self.add_file(found, path, entry)
        elif stat.S_ISDIR(kind):
            self.add_folder(path, entry.mode, entry.user)
        elif stat.S_ISLNK(kind):
            info = member(path, tarfile.SYMTYPE, 0o777, entry.user)
            info.linkname = inner_target(found, root)
            self.tar.addfile(info)
        else:
            raise refused(found, "is a special file")

    def add_file(self, source: Path, path: str, entry: Entry) -> None:
        """Write a regular file; it stays executable where the host's is."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with os.fdopen(os.open(source, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise refused(source, "is not a regular file")
            executable = (entry.mode & 0o444) >> 2 if status.st_mode & stat.S_IXUSR else 0
            info = member(path, tarfile.REGTYPE, entry.mode | executable, entry.user)
            info.size = status.st_size
            self.tar.addfile(info, file)


def member(path: str, kind: bytes, mode: int, user: str) -> tarfile.TarInfo:
    """Return a tar header; the ids are those of our images' accounts."""
    info = tarfile.TarInfo(path.lstrip("/"))
    info.type, info.mode, info.mtime = kind, mode, int(time.time())
    info.uid = info.gid = account_id(user)
    return info


def account_id(user: str) -> int:
    """Return the uid (and gid) of an account name or of a number in decimal."""
    return USER_IDS[user] if user in USER_IDS else int(user)


def walk(folder: Path) -> Iterator[Path]:
    """Yield everything below a folder, parents first, in name order, entering no link."""
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from walk(Path(entry.path))


def inner_target(link: Path, root: Path) -> str:
    """Return a link's target when it is relative and what it leads to lies in the root; raise TaskError otherwise."""
    target = str(link.readlink())
    end = link.resolve()
    if Path(target).is_absolute() or not end.is_relative_to(root.resolve()) or not end.exists():
        raise refused(link, f"is a link to {target!r}, which leaves its folder")
    return target


def refused(path: Path, message: str) -> TaskError:
    """Return the error for something that may not enter a sandbox."""
    return TaskError(path, message, remedy="put a regular file there, or a relative link that stays inside the folder")


def pack(
    entries: Iterable[Entry], *, executor: str = "root", homes: tuple[str, ...] = (), fixed: Iterable[str] = (),
) -> IO[bytes]:
    """Return an open temporary file, at its start, that holds the tar of all entries (in memory while it is small).

    Raises:
        TaskError: an entry's source holds a special file or a link out of it.
        OSError: a source cannot be read.
    """
    with ExitStack() as cleanup:
        stream: IO[bytes] = cleanup.enter_context(tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES))
        with tarfile.open(
            fileobj=stream, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape",
        ) as tar:
            packer = Packer(tar, executor, homes, frozenset(fixed))
            for entry in entries:
                packer.add(entry)
        stream.seek(0)
        cleanup.pop_all()
    return stream


__all__ = ["account_id", "pack"]
