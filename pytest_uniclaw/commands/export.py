"""``uniclaw export``: attempts of a run in a format that other tools read."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.commands.runs import add_runs_dir, runs_dir
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.judge.base import Evidence
from pytest_uniclaw.report.atif import trajectory
from pytest_uniclaw.store import all_attempts, find_run, load_attempt, write_json

FILE = "trajectory.json"


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "export",
        help="write attempts as ATIF trajectories (Agent Trajectory Interchange Format)",
        description=f"Write the conversation of an attempt, or of every attempt of a run, as {FILE} in the attempt's "
        "folder: ATIF-v1.7, with tool calls, results, usage, status and score. Nothing of the rubric is in it.",
    )
    parser.add_argument("source", nargs="?", default="latest", metavar="ATTEMPT|RUN",
                        help="an attempt's folder, or a run by id, path or latest (default)")  # fmt: skip
    add_runs_dir(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the files and print their paths; 1 when no attempt has a conversation. Raises SettingsError."""
    written = 0
    for directory, attempt in _attempts(runs_dir(options), options.source):
        found = _trajectory(directory, attempt)
        if found is None:
            sys.stdout.write(f"{directory}: no conversation was recorded\n")
            continue
        write_json(directory / FILE, found)
        sys.stdout.write(f"{directory / FILE}\n")
        written += 1
    return 0 if written else 1


def _attempts(runs: Path, source: str) -> Iterator[tuple[Path, Attempt]]:
    attempt = load_attempt(Path(source))
    if attempt is not None:
        yield Path(source).resolve(), attempt
        return
    found = list(all_attempts(find_run(runs, source)))
    if not found:
        raise SettingsError(f"{source} holds no finished attempt\n  fix: name a run or an attempt's folder (p1-…)")
    yield from found


def _trajectory(directory: Path, attempt: Attempt) -> dict[str, Any] | None:
    """Return the trajectory of the newest turn that has a transcript: each holds the conversation so far."""
    for turn in reversed(attempt.turns):
        evidence = Evidence(directory / turn.directory / "evidence")
        images = dict(_images(evidence.folder, f"{turn.directory}/evidence"))
        if found := trajectory(attempt, tuple(evidence.records()), images):
            return found
    return None


def _images(folder: Path, shown: str) -> Iterator[tuple[str, str]]:
    """Yield the name of each image of the evidence and its path in the attempt's folder."""
    for path in folder.glob("inline_images/*"):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(folder).as_posix()
            yield name, f"{shown}/{name}"


__all__ = ["FILE", "add", "run"]
