"""An untrusted tar stream into a fresh host folder: regular files only, capped, nothing followed (invariant 4)."""

from __future__ import annotations

import hashlib
import os
import tarfile
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pytest_uniclaw.attempt import FileRecord, Manifest, Refusal
from pytest_uniclaw.sandbox.base import MIB, CollectLimits
from pytest_uniclaw.sandbox.names import safe_parts, shown

LISTED = 1000
"""Refusals listed by name; all are counted."""
CHUNK = MIB
SKIPPED_FACTOR = 4
"""A stream is left once the content that was not kept passes this many times ``total_bytes``."""
KINDS = {
    tarfile.LNKTYPE: "hard link", tarfile.SYMTYPE: "symbolic link", tarfile.CHRTYPE: "character device",
    tarfile.BLKTYPE: "block device", tarfile.FIFOTYPE: "FIFO",
}


class Cut(Exception):
    """The rest of the stream is given up; the text says why."""


class Stream:
    """A file-like view of the chunks, as :mod:`tarfile` wants it, that stops at the deadline."""

    def __init__(self, chunks: Iterable[bytes], expired: Callable[[], bool]) -> None:
        self.chunks, self.expired = iter(chunks), expired
        self.ready: deque[bytes] = deque()
        self.held = 0

    def read(self, size: int) -> bytes:
        """Return exactly ``size`` bytes, fewer only at the end of the stream."""
        while self.held < size:
            if self.expired():
                raise Cut("the time for collecting is over")
            chunk = next(self.chunks, None)
            if chunk is None:
                break
            self.ready.append(chunk)
            self.held += len(chunk)
        taken, wanted = [], size
        while wanted and self.ready:
            chunk = self.ready.popleft()
            taken.append(chunk[:wanted])
            if len(chunk) > wanted:
                self.ready.appendleft(chunk[wanted:])
            wanted -= len(taken[-1])
        self.held -= size - wanted
        return b"".join(taken)


@dataclass
class Extraction:
    """The state of one extraction below an open folder."""

    root: int
    limits: CollectLimits
    files: list[FileRecord] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    refused_total: int = 0
    kept: int = 0
    skipped: int = 0
    folders: set[tuple[str, ...]] = field(default_factory=set)
    current: tuple[tuple[str, ...], int] | None = None

    def refuse(self, name: str, reason: str) -> None:
        """Count a refusal and list it while there is room."""
        self.refused_total += 1
        if len(self.refusals) < LISTED:
            self.refusals.append(Refusal(path=shown(name), reason=reason))

    def take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        """Keep a member, or say why not. Folders appear only where a file needs them."""
        if member.isdir():
            return
        top, _, below = member.name.partition("/")
        name = below or top
        parts = safe_parts(name)
        reason = self.objection(member) or (parts if isinstance(parts, str) else None)
        if reason is None and not isinstance(parts, str):
            reason = self.write(tar, member, parts)
        if reason is not None:
            self.refuse(name, reason)
            self.skipped += max(member.size, 0)
            if self.skipped > SKIPPED_FACTOR * self.limits.total_bytes:
                raise Cut("too much that could not be kept")

    def objection(self, member: tarfile.TarInfo) -> str | None:
        """Return why a member's kind or size is refused."""
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.issparse():
            return KINDS.get(member.type, "not a regular file")
        if member.size > self.limits.file_bytes:
            return f"too large: {member.size} bytes, at most {self.limits.file_bytes}"
        if len(self.files) >= self.limits.files:
            return f"too many files, at most {self.limits.files}"
        if self.kept + member.size > self.limits.total_bytes:
            return f"too much in all, at most {self.limits.total_bytes} bytes"
        return None

    def write(self, tar: tarfile.TarFile, member: tarfile.TarInfo, parts: tuple[str, ...]) -> str | None:
        """Write one file; return why it was refused, None when it was kept."""
        folder = self.folder(parts[:-1])
        if folder is None:
            return "a file of that name stands where its folder should be, or too many folders"
        made = create(folder, parts[-1])
        if made is None:
            return "several files share this name"
        name, descriptor = made
        digest = hashlib.sha256()
        left = member.size
        source = tar.extractfile(member)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            try:
                os.fchmod(descriptor, 0o644)
                while source and left and (data := source.read(min(CHUNK, left))):
                    file.write(data)
                    digest.update(data)
                    left -= len(data)
            except BaseException:
                os.unlink(name, dir_fd=folder)
                raise
        if left:
            os.unlink(name, dir_fd=folder)
            raise Cut("the stream broke off")
        self.kept += member.size
        path = "/".join((*parts[:-1], name))
        self.files.append(FileRecord(path=path, size=member.size, sha256=digest.hexdigest()))
        return None

    def folder(self, parts: tuple[str, ...]) -> int | None:
        """Return a descriptor of a folder below the root, made where missing; the last one is kept open."""
        if self.current and self.current[0] == parts:
            return self.current[1]
        self.close()
        here = os.dup(self.root)
        for depth, part in enumerate(parts, 1):
            if parts[:depth] not in self.folders and len(self.folders) >= self.limits.files:
                os.close(here)
                return None
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=here)
                os.chmod(part, 0o755, dir_fd=here)
            self.folders.add(parts[:depth])
            try:
                below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            except NotADirectoryError:
                return None
            finally:
                os.close(here)
            here = below
        self.current = parts, here
        return here

    def close(self) -> None:
        """Close the folder that is kept open."""
        if self.current:
            os.close(self.current[1])
            self.current = None


def create(folder: int, name: str) -> tuple[str, int] | None:
    """Create a file that was not there, under this name or this name with ``~2`` … ``~9``; None when all are taken."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    for suffix in ("", *(f"~{number}" for number in range(2, 10))):
        tried = name.encode()[:255 - len(suffix)].decode(errors="ignore") + suffix
        with suppress(FileExistsError):
            return tried, os.open(tried, flags, 0o644, dir_fd=folder)
    return None


def extract(
    stream: Iterable[bytes], destination: Path, limits: CollectLimits, clock: Callable[[], float] = time.monotonic,
) -> Manifest:
    """Write the regular files of a tar below ``destination``, which must not exist or be empty.

    The first component of every name is dropped (the folder that was asked for); a file that was asked for itself
    keeps its name. Whatever the stream holds, nothing is written elsewhere and no link is followed or made.

    Raises:
        OSError: the host could not write (a full disk, say), or ``destination`` holds something already.
    """
    destination.mkdir(mode=0o755, parents=True, exist_ok=True)
    if any(destination.iterdir()):
        raise FileExistsError(f"evidence is collected into a fresh folder only: {destination}")
    end = clock() + limits.seconds
    root = os.open(destination, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    state = Extraction(root, limits)
    try:
        read_members(Stream(stream, lambda: clock() > end), state)
    except Cut as cut:
        state.refuse("…", f"{cut}: what follows was not collected")
    finally:
        state.close()
        os.close(root)
    return Manifest(files=tuple(state.files), refused=tuple(state.refusals), refused_total=state.refused_total)


def read_members(stream: Stream, state: Extraction) -> None:
    """Take every member of the tar; a damaged one ends it."""
    try:
        with tarfile.open(
            fileobj=stream, mode="r|", bufsize=tarfile.RECORDSIZE * 16, encoding="utf-8", errors="surrogateescape",  # type: ignore[call-overload]
        ) as tar:
            while member := tar.next():
                tar.members = []  # a stream is read once; 100,000 remembered headers would cost 100 MB
                state.take(tar, member)
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        raise Cut(f"a damaged archive ({type(error).__name__})") from error


__all__ = ["LISTED", "extract"]
