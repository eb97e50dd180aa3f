"""What the kernel knows of a container, read from the host's cgroup files (versions 1 and 2)."""

from __future__ import annotations

from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def oom_kills(container: str, pid: int, root: Path = CGROUPS, processes: Path = Path("/proc")) -> int | None:
    """Return how many processes of a container the kernel killed for memory, None when this cannot be read here.

    ``container`` is the full id and ``pid`` its first process as the engine's host numbers it (0: not running).
    Unreadable are a remote engine and one inside a virtual machine. ``root`` and ``processes`` are for tests.
    """
    for hierarchy, path in memberships(pid, processes):
        if container not in path:
            continue
        name = "memory.oom_control" if hierarchy == "memory" else "memory.events"
        base = root / "memory" if hierarchy == "memory" else root
        kills = read_counter(base / path.lstrip("/") / name, "oom_kill")
        if kills is not None:
            return kills
    return None


def memberships(pid: int, processes: Path = Path("/proc")) -> list[tuple[str, str]]:
    """Return the cgroups of a process that count memory, as (``memory`` or empty for version 2, path)."""
    try:
        lines = (processes / str(pid) / "cgroup").read_text().splitlines() if pid > 0 else []
    except OSError:
        return []
    fields = [line.split(":", 2) for line in lines]
    found = [("memory", path) for _, controllers, path in fields if "memory" in controllers.split(",")]
    return found + [("", path) for number, controllers, path in fields if number == "0" and not controllers]


def holds(container: str, pid: int, processes: Path = Path("/proc")) -> bool:
    """Tell whether a process is one of this machine's and in a container, given by its full id.

    Every thread is looked at: one that has ended is in no container any more (version 1), and the first may end alone.
    """
    try:
        return any(container in file.read_text() for file in (processes / str(pid) / "task").glob("*/cgroup"))
    except OSError:  # a thread ended meanwhile; who asks again finds out whether the process did
        return False


def read_counter(file: Path, key: str) -> int | None:
    """Return the number after a key in a file of ``key number`` lines, None when there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    pairs = (line.split() for line in lines)
    return next((int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] == key), None)
