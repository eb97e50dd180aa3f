"""The run directory: ``runs/<run>/a<k>/<backend>/<model slug>/<category>/<task>/p1-…`` (design section 7).

Every file is written to a temporary name and renamed, so a reader never sees half a file. Each ``a<k>`` is a tree
that upstream's readers open (:mod:`pytest_uniclaw.report.upstream`).
"""

from __future__ import annotations

import difflib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.status import INFRA_STATUSES

Stored = tuple[Path, Attempt]
"""An attempt with its directory."""
ATTEMPT_FILE = "uniclaw.json"
"""The complete record of an attempt, in its directory."""
SHOWN_RUNS = 5
"""How many runs the message about an unknown one names."""


def new_run(*, now: datetime | None = None) -> str:
    """Return a run id that sorts by time: ``20261130-041500-3fa2``."""
    stamp = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{secrets.token_hex(2)}"


def open_run(runs: Path, run: str) -> Path:
    """Make the run's directory and point ``runs/latest`` at it."""
    directory = runs / run
    directory.mkdir(parents=True, exist_ok=True)
    link = runs / f".latest-{secrets.token_hex(4)}"
    link.symlink_to(run, target_is_directory=True)
    link.replace(runs / "latest")
    return directory


def find_run(runs: Path, reference: str) -> Path:
    """Return the directory of a run named by id, by path, or as ``latest``. Raises :class:`SettingsError`."""
    for candidate in (runs / reference, Path(reference)):
        if candidate.is_dir():
            return candidate.resolve()
    names = run_names(runs)
    near = difflib.get_close_matches(reference, ["latest", *names], 1)
    meant = f"did you mean {near[0]}? " if near else ""
    remedy = f"{meant}The newest runs: {', '.join(names[:SHOWN_RUNS])}" if names else f"make one; {runs} holds no run"
    raise SettingsError(f"no run {reference!r}: looked for {runs / reference} and {reference}\n  fix: {remedy}")


def run_names(runs: Path) -> list[str]:
    """Return the ids of the runs in a folder, the newest first; none where there is no such folder."""
    folders = [path for path in runs.iterdir() if path.is_dir() and not path.is_symlink()] if runs.is_dir() else []
    return sorted((path.name for path in folders), reverse=True)


def task_directory(run: Path, number: int, backend: str, slug: str, category: str, task_id: str) -> Path:
    """Return where the attempts of one repeat of one task by one executor are kept."""
    return run / f"a{number}" / backend / slug / category / task_id


def exchange_folder(directory: Path, role: str = "executor", tag: str = "") -> Path:
    """Return where an attempt's exchange log of one role is kept; ``tag`` tells the judges of a panel apart."""
    return directory / "exchange" / (f"{role}-{tag}" if tag else role)


def new_attempt_directory(parent: Path) -> Path:
    """Make a fresh attempt directory ``p1-<6 hex>`` below the task's directory."""
    directory = parent / f"p1-{secrets.token_hex(3)}"
    directory.mkdir(parents=True)
    return directory


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, creating its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")  # short: the file's own name may have all 255 bytes
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 text atomically; what cannot be encoded (a lone surrogate) becomes ``?``."""
    write_bytes(path, text.encode("utf-8", "replace"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON value atomically, indented, in UTF-8."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def set_aside(directory: Path, number: int) -> None:
    """Move what a try that is tried again has left to ``tries/<n>/``; a disk that refuses keeps it."""
    for name in ("turns", "exchange", "services"):
        target = directory / "tries" / str(number) / name
        with suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            (directory / name).rename(target)


def save_attempt(directory: Path, attempt: Attempt) -> None:
    """Write the complete record of an attempt."""
    write_json(directory / ATTEMPT_FILE, attempt.model_dump(mode="json"))


def load_attempt(directory: Path) -> Attempt | None:
    """Read the record of an attempt directory; None when it was not finished or cannot be read."""
    path = directory / ATTEMPT_FILE
    try:
        return Attempt.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None


def stored_attempt(task: Path, digests: dict[str, str]) -> Stored | None:
    """Return the newest judged attempt of a task's directory whose digests equal ``digests``."""
    found = [
        stored for stored in _below(task)
        if stored[1].digests == digests and stored[1].status not in INFRA_STATUSES
    ]  # fmt: skip
    return max(found, key=_age, default=None)


def all_attempts(run: Path) -> Iterator[Stored]:
    """Yield every finished attempt of a run, in path order; a run that was continued may have several of an item."""
    for task in sorted(run.glob("a*/*/*/*/*/")):
        yield from _below(task)


def attempts_of(run: Path) -> Iterator[Stored]:
    """Yield the newest finished attempt of every item of a run, in path order: the one that counts."""
    for task in sorted(run.glob("a*/*/*/*/*/")):
        if found := list(_below(task)):
            yield max(found, key=_age)


def _below(task: Path) -> Iterator[Stored]:
    for path in sorted(task.glob(f"p1-*/{ATTEMPT_FILE}")):
        attempt = load_attempt(path.parent)
        if attempt is not None:
            yield path.parent, attempt


def _age(stored: Stored) -> tuple[str, int]:
    """Return when an attempt ended; its file tells two of one second apart."""
    return stored[1].ended, (stored[0] / ATTEMPT_FILE).stat().st_mtime_ns


def append_line(path: Path, value: dict[str, Any]) -> None:
    """Append one JSON line in a single write, so that concurrent writers do not mix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
