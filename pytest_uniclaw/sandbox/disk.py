"""The free-space guard: an attempt that fills the engine's disk is ended before everything else on it breaks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_uniclaw.errors import EngineError, SandboxLost
from pytest_uniclaw.sandbox.base import MIB
from pytest_uniclaw.sandbox.engine import Container, calls

FLOOR_BYTES = 2048 * MIB
FLOOR_SHARE = 0.1
"""On a small disk the floor is this share of it."""
CULPRIT_BYTES = 64 * MIB
"""A sandbox that wrote less than this did not fill a disk."""


@dataclass
class DiskGuard:
    """Watches the file system of the engine's data folder; ``floor`` is the free space in bytes it must keep."""

    container: Container
    root: Path | None
    floor: int

    def check(self) -> None:
        """Do nothing while there is room, or while another sandbox is the one that takes it.

        Raises:
            SandboxLost: there is too little room and no sandbox wrote twice as much (cause ``disk``).
            EngineError: there is too little room and no sandbox took it.
        """
        free = free_bytes(self.root) if self.root else None
        if free is None or free >= self.floor:
            return
        written = written_bytes(self.container)
        mine = written.get(self.container.name, 0)
        if max(written.values(), default=0) < CULPRIT_BYTES:
            raise EngineError(
                f"the container engine's disk has {free // MIB} MiB free, at least {self.floor // MIB} MiB are needed, "
                f"and no sandbox filled it: make room on {self.root}"
            )
        if 2 * mine >= max(written.values()):
            raise SandboxLost(
                f"the sandbox filled the disk: it wrote {mine // MIB} MiB, {free // MIB} MiB are left", cause="disk",
            )


def guard(container: Container, floor: int | None) -> DiskGuard:
    """Return a guard for a container; it is idle where the engine's data folder is not on this machine."""
    with calls("say where its data lies"):
        root = Path(container.api.info()["DockerRootDir"])
    local = str(container.api.base_url).startswith("http+docker://local")
    size = total_bytes(root) if local else None
    if size is None:
        return DiskGuard(container, None, 0)
    return DiskGuard(container, root, floor if floor is not None else min(FLOOR_BYTES, int(size * FLOOR_SHARE)))


def free_bytes(folder: Path) -> int | None:
    """Return the free space of a folder's file system, None when it cannot be read."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


def total_bytes(folder: Path) -> int | None:
    """Return the size of a folder's file system, None when it cannot be read."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    return status.f_blocks * status.f_frsize


def written_bytes(container: Container) -> dict[str, int]:
    """Return by name what each sandbox of anyone's wrote, a dead one's too; the engine walks their layers for it."""
    with calls("measure the sandboxes"):
        listed: list[dict[str, Any]] = container.api.containers(all=True, size=True, filters={"label": "uniclaw=1"})
    return {name.lstrip("/"): int(item.get("SizeRw") or 0) for item in listed for name in item["Names"]}
