"""Folders and files out of a container: what the engine streams, checked on the way by :mod:`.collect`."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_uniclaw.attempt import Manifest, Refusal
from pytest_uniclaw.errors import InfraError
from pytest_uniclaw.sandbox.base import MIB, CollectLimits
from pytest_uniclaw.sandbox.collect import extract
from pytest_uniclaw.sandbox.engine import Container, address, failures

SYMLINK_BIT = 1 << 27
"""The engine reports modes as Go's ``os.FileMode``."""


def fetch(
    container: Container, path: str, destination: Path, limits: CollectLimits, end: float,
    replaceable: Sequence[str] = (),
) -> Manifest:
    """Bring one folder or file out; ``end`` is the monotonic time at which that must be over.

    ``replaceable`` are the folders above it that the executor could have swapped: behind a link nothing is read.

    Raises:
        EngineError: the engine does not answer.
        SandboxLost: the container is gone.
        InfraError: the host could not write.
    """
    for above in replaceable:
        if is_link(container, above):
            return Manifest(refused=(Refusal(path=above, reason="symbolic link"),), refused_total=1)
    response = request(container, "get", path)
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
    """Tell whether a path in the container is a symbolic link."""
    response = request(container, "head", path)
    if response is None:
        return False
    described = json.loads(base64.b64decode(response.headers["X-Docker-Container-Path-Stat"]))
    return bool(described["mode"] & SYMLINK_BIT)


def request(container: Container, method: str, path: str) -> Any:
    """Ask for a path's archive (``get``) or description (``head``); None when there is no such path."""
    api = container.api
    with container.calls(f"read {path}"):
        response = api.request(
            method, address(api, f"/containers/{container.name}/archive"), params={"path": path}, stream=True,
            timeout=api.timeout,
        )
        if response.status_code == 404 and container.state() is not None:
            response.close()
            return None
        api._raise_for_status(response)  # type: ignore[attr-defined]
    return response


def chunks(container: Container, response: Any) -> Iterator[bytes]:
    """Yield the archive; a stream that breaks is the engine's or the container's end, not the archive's."""
    try:
        yield from response.iter_content(MIB)
    except failures() as error:
        raise container.diagnose("stream an archive", error) from error
