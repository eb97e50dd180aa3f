"""The supervisor's side of the firewall: hidden files go in, fingerprints come out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from pytest_uniclaw.judge.fingerprints import HiddenFingerprints
from pytest_uniclaw.package import HiddenFolder, Reader, open_hidden
from pytest_uniclaw.task import Task

TOTAL_BYTES = 2 * 1024 * 1024
"""How much hidden text is fingerprinted; the rubric and the smallest files come first."""


@lru_cache(maxsize=8)
def fingerprints_of(task: Task) -> HiddenFingerprints:
    """Return the fingerprints of a task's references, less what its public request says. Raises TaskError."""
    references = open_hidden(task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
    public = "\n".join([task.task_id, task.category, task.prompt, task.snapshot_prompt, *task.sources, *task.skills])
    return HiddenFingerprints.build(_hidden_texts(references), public)


def _hidden_texts(references: Path) -> Iterator[str]:
    """Yield the names and the text of hidden files, binaries and links left out, up to ``TOTAL_BYTES``."""
    files = sorted(_files(references), key=lambda path: (path.name != "eval_rule.md", path.stat().st_size, path))
    yield "\n".join(path.name for path in files)
    left = TOTAL_BYTES
    for path in files:
        size = path.stat().st_size
        if size > left:
            continue
        data = path.read_bytes()
        if b"\0" not in data:
            left -= size
            yield data.decode("utf-8", "replace")


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path
