"""EDICT's own files, which the user fetches: nothing of them is part of this project.

``scripts/fetch-edict`` puts them somewhere, the environment variable ``UNICLAW_EDICT_SRC`` names that folder, and this
module verifies that it holds the pinned commit and lays the files out for a sandbox. A checkout may hold more.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pytest_uniclaw.errors import SettingsError

REPOSITORY = "https://github.com/cft0808/edict"
COMMIT = "14a207557719c046af0f993a7bff1cc5a5015b33"
VARIABLE = "UNICLAW_EDICT_SRC"
NEEDED = ("agents", "scripts", "data/schema.json", "edict/backend/app/models/task.py", "docker/demo_data/openclaw.json")
DIGEST = "b8ba1fb56e6726b9199a247bb6d5fb44ca35397c128cce9ef15f5413f6c94614"
"""Of the needed files of the commit; see :func:`digest`."""
CENTRE = "taizi"
"""The agent that hears the user and answers."""
GROUPS = {
    "sansheng": ("taizi", "zhongshu", "menxia", "shangshu"),
    "liubu": ("hubu", "libu", "bingbu", "xingbu", "gongbu", "libu_hr"),
}
"""Which agents share which part of the instructions."""
_MOST_BYTES = 16 * 1024 * 1024
_FIX = f"\n  fix: scripts/fetch-edict, then set {VARIABLE} to the folder that it prints"


@dataclass(frozen=True)
class Member:
    """One of EDICT's agents: its id, whom it may call, and its files by name."""

    id: str
    may_call: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True)
class Edict:
    """The verified source: the agents, and the board's files by their path below its folder."""

    members: tuple[Member, ...]
    board: tuple[tuple[str, bytes], ...]


@cache
def load_edict(folder: str) -> Edict:
    """Read and verify a source folder.

    Raises SettingsError, with what to do about it, for a folder that is not named, not there or not the pinned commit.
    """
    if not folder:
        raise SettingsError(f"EDICT is not part of this project, and {VARIABLE} does not say where it is{_FIX}")
    root = Path(folder)
    lacking = [name for name in NEEDED if not (root / name).exists()]
    if lacking:
        raise SettingsError(f"{VARIABLE}={folder}: {', '.join(lacking)} is not there{_FIX}")
    found = dict(_files(root))
    if digest(found) != DIGEST:
        raise SettingsError(f"{VARIABLE}={folder} is not EDICT at the commit {COMMIT[:12]}{_FIX}")
    return _edict(found)


def _files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the needed regular files by name; links, of which the commit has dangling ones, are left out."""
    size = 0
    for needed in NEEDED:
        start = root / needed
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if path.is_symlink() or not path.is_file() or "__pycache__" in path.parts:
                continue
            size += path.stat().st_size
            if size > _MOST_BYTES:
                raise SettingsError(f"{VARIABLE}={root} is not EDICT: it is too large{_FIX}")
            yield path.relative_to(root).as_posix(), path.read_bytes()


def digest(files: dict[str, bytes]) -> str:
    """Return the SHA-256 of names and contents."""
    lines = sorted(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _edict(files: dict[str, bytes]) -> Edict:
    listed: list[dict[str, Any]] = json.loads(files["docker/demo_data/openclaw.json"])["agents"]["list"]
    members = tuple(_member(entry["id"], entry["subagents"]["allowAgents"], files) for entry in listed)
    board = {name: content for name, content in files.items() if name.startswith(("scripts/", "data/", "edict/"))}
    board["data/tasks_source.json"] = b"[]\n"
    board["data/.refresh_watcher_pid"] = b"0\n"
    return Edict(members, tuple(board.items()))


def _member(name: str, may_call: Sequence[str], files: dict[str, bytes]) -> Member:
    """Return an agent with its instructions, of which sub-agents are told ``AGENTS.md`` alone."""
    soul = files[f"agents/{name}/SOUL.md"]
    shared = [files[f"agents/groups/{group}.md"] for group, members in GROUPS.items() if name in members]
    instructions = b"\n\n".join([files["agents/GLOBAL.md"], *shared, soul])
    return Member(name, tuple(may_call), (("SOUL.md", soul), ("AGENTS.md", instructions)))


if __name__ == "__main__":
    try:
        load_edict(sys.argv[1] if len(sys.argv) > 1 else "")
    except SettingsError as error:
        raise SystemExit(f"error: {error}") from None
