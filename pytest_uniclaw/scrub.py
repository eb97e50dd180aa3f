"""Redaction of what was collected from a sandbox, before anybody reads it.

Evidence is redacted once, where it arrives: what is graded, stored, shown and graded again later is the same bytes,
and neither a grading container nor a judge's or a simulated user's model gets to see a declared value.
"""

from __future__ import annotations

import hashlib
import mmap
from contextlib import suppress
from pathlib import Path

from pytest_uniclaw.attempt import FileRecord, Manifest
from pytest_uniclaw.redaction import REDACTED, Redactor
from pytest_uniclaw.store import write_bytes

SECRET_IN_RESULTS = "secret_in_results"
"""Flag: a deliverable held a declared privacy value or a key; it is graded and stored without."""


def redact_file(path: Path, redactor: Redactor) -> bool:
    """Redact a regular file in place and say whether that changed it; one that cannot be rewritten is removed.

    A file that is not there is none to redact. Raises OSError.
    """
    if path.is_symlink() or not path.is_file() or not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        if not redactor.may_hold(view):
            return False
        old = view[:]
    new = redactor.data(old)
    if new == old:
        return False
    try:
        write_bytes(path, new)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    return True


def redact_folder(folder: Path, redactor: Redactor) -> None:
    """Redact a file, or every one below a folder of ours, whose names are no one else's. Raises OSError."""
    for path in (folder, *folder.rglob("*")):
        redact_file(path, redactor)


def redact_collected(folder: Path, manifest: Manifest, redactor: Redactor) -> Manifest:
    """Redact collected files and their names; return the manifest of what there is afterwards.

    A file whose path holds a secret is renamed to ``[redacted]-<n>`` at the top of the folder. Raises OSError.
    """
    files = [_redacted(folder, record, number, redactor) for number, record in enumerate(manifest.files, 1)]
    refused = [refusal.model_copy(update={"path": redactor.text(refusal.path)}) for refusal in manifest.refused]
    return manifest.model_copy(update={"files": tuple(files), "refused": tuple(refused)})


def _redacted(folder: Path, record: FileRecord, number: int, redactor: Redactor) -> FileRecord:
    path = folder / record.path
    if redact_file(path, redactor):
        data = path.read_bytes()
        record = record.model_copy(update={"size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    if redactor.text(record.path) == record.path:
        return record
    name = f"{REDACTED}-{number}"
    while (folder / name).exists():
        name += "~"
    path.rename(folder / name)
    for parent in path.relative_to(folder).parents:
        with suppress(OSError):  # others are still in it
            (folder / parent).rmdir()
    return record.model_copy(update={"path": name})
