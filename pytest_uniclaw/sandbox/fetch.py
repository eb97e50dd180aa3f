"""Folders and files out of a container: what the engine streams, checked on the way by :mod:`.collect`."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from pytest_uniclaw.attempt import Manifest, Refusal
from pytest_uniclaw.errors import InfraError
from pytest_uniclaw.sandbox.base import MIB, CollectLimits
from pytest_uniclaw.sandbox.collect import extract
from pytest_uniclaw.sandbox.engine import Container, address, failures

FOLDER_BIT, SYMLINK_BIT = 1 << 31, 1 << 27
"""The engine reports modes as Go's ``os.FileMode``."""
TYPE_BITS = FOLDER_BIT | SYMLINK_BIT | sum(1 << bit for bit in (19, 21, 24, 25, 26))
"""None of them is set in the mode of a regular file."""
ACCOUNT_FILES = ("/etc/passwd", "/etc/group")
"""The engine reads them, as the container has them, for each command and for the owners of what it archives."""
ACCOUNT_BYTES = MIB
"""An account file is smaller; the engine may hold one line of any length in memory."""


class Blocked(Exception):
    """What stands in a path is no folder and leads to none, so that nothing can lie behind it."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.refusal = Refusal(path=path, reason="no folder")


def fetch(
    container: Container, path: str, destination: Path, limits: CollectLimits, end: float,
    replaceable: Sequence[str] = (),
) -> Manifest:
    """Bring one folder or file out; ``end`` is the monotonic time at which that must be over.

    ``replaceable`` are the folders above it that the executor could have swapped: behind a link nothing is read.
    A file, a FIFO or a loop of links in the place of a folder above is refused likewise, whoever put it there.

    Raises:
        EngineError: the engine does not answer.
        SandboxLost: the container is gone.
        InfraError: the host could not write.
    """
    try:
        for above in replaceable:
            if is_link(container, above):
                return Manifest(refused=(Refusal(path=above, reason="symbolic link"),), refused_total=1)
        response = request(container, "get", path)
    except Blocked as blocked:
        return Manifest(refused=(blocked.refusal,), refused_total=1)
    if response is None:
        return Manifest()
    try:
        left = max(end - time.monotonic(), 0.0)
        return extract(chunks(container, response), destination, replace(limits, seconds=left))
    except OSError as error:
        raise InfraError(f"evidence could not be written: {error.strerror or error}: {destination}") from error
    finally:
        response.close()  # the engine holds the container's lock while a stream is open


def is_link(container: Container, path: str) -> bool:
    """Tell whether a path in the container is a symbolic link. Raises Blocked."""
    response = request(container, "head", path)
    return response is not None and bool(mode_of(response) & SYMLINK_BIT)


def account_trap(container: Container) -> Refusal | None:
    """Return an account file that the engine cannot read, None without one. Raises EngineError, SandboxLost.

    A root executor may have put a FIFO in its place: the engine would wait for ever, and hold the container's lock
    where it archives. Only while the container is frozen does the answer stay true.
    """
    for file in ACCOUNT_FILES:
        with container.calls(f"look at {file}"), ask(container, "head", file) as response:
            if response.status_code != 404 and not (response.ok and is_small_file(response)):
                return Refusal(path=file, reason="no small regular file any more")
    return None


def is_small_file(response: Any) -> bool:
    """Tell whether what is described is a regular file of a size that an account file may have."""
    stat = described(response)
    return not int(stat["mode"]) & TYPE_BITS and int(stat["size"]) <= ACCOUNT_BYTES


def described(response: Any) -> Mapping[str, Any]:
    """Return the engine's description of a path."""
    stat: Mapping[str, Any] = json.loads(base64.b64decode(response.headers["X-Docker-Container-Path-Stat"]))
    return stat


def mode_of(response: Any) -> int:
    """Return the mode that a description tells."""
    return int(described(response)["mode"])


def request(container: Container, method: str, path: str) -> Any:
    """Ask for a path's archive (``get``) or description (``head``); None when there is no such path. Raises Blocked."""
    with container.calls(f"read {path}"):
        response = ask(container, method, path)
        if response.ok:
            return response
        response.close()
        if response.status_code == 404 and container.state() is not None:
            return None
        found = obstacle(container, path)
        if found is None:
            container.api._raise_for_status(response)  # type: ignore[attr-defined]
    raise Blocked(found or path)


def ask(container: Container, method: str, path: str) -> Any:
    """Return the engine's answer, whatever it is."""
    api = container.api
    where = address(api, f"/containers/{container.name}/archive")
    return api.request(method, where, params={"path": path}, stream=True, timeout=api.timeout)


def obstacle(container: Container, path: str) -> str | None:
    """Return the first part of a path that the engine cannot go through; None when the path is not what fails.

    The engine has one status for that and for its own faults. So it is asked for each folder from the top: one that
    can describe the container's first folder works, and what it then fails at is in the container. Behind a link that
    leads nowhere it finds nothing, and can make nothing.
    """
    link = ""
    for part in [*(str(parent) for parent in reversed(PurePosixPath(path).parents)), path]:
        with ask(container, "head", part) as answer:
            if answer.status_code == 404:
                return link if link and not leads_somewhere(container, link) else None
            if not answer.ok:
                return part if part != "/" else None
            mode = mode_of(answer)
        if part != path and not mode & (FOLDER_BIT | SYMLINK_BIT):
            return part
        link = part if mode & SYMLINK_BIT else ""
    return None


def leads_somewhere(container: Container, link: str) -> bool:
    """Tell whether a link in the container leads to a folder that is there."""
    with ask(container, "head", f"{link}/.") as answer:
        return bool(answer.ok)


def chunks(container: Container, response: Any) -> Iterator[bytes]:
    """Yield the archive; a stream that breaks is the engine's or the container's end, not the archive's."""
    try:
        yield from response.iter_content(MIB)
    except failures() as error:
        raise container.diagnose("stream an archive", error) from error
