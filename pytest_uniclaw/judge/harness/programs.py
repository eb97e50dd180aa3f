"""Programs that read what Python's libraries do not: poppler's for PDF, ffmpeg for audio and video."""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

from .common import MIB, ToolError

PROGRAM_BYTES = 64 * MIB
"""Most that is taken of a program's output."""
ERROR_BYTES = 16 * MIB
"""A program that says more of errors than this is killed."""


def run_program(command: list[str], why: str, *, merged: bool = False) -> Iterator[bytes]:
    """Yield a program's output in pieces, ``merged`` with what it says of errors; it is killed when the reader stops.

    Raises:
        ToolError: it is not installed, it failed (with its own words), or its output exceeds PROGRAM_BYTES.
    """
    path = shutil.which(command[0])
    if path is None:
        raise ToolError(f"this sandbox has no {command[0]}, which is needed to {why}")
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if merged else errors,
            preexec_fn=set_limits,
        )
        assert process.stdout is not None
        size, data = 0, b""
        try:
            while piece := process.stdout.read(65_536):
                data = piece
                size += len(data)
                if size > PROGRAM_BYTES:
                    raise ToolError(f"{command[0]} gave more than {PROGRAM_BYTES // MIB} MiB")
                yield data
            code = process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if code != 0:
            errors.seek(0)
            said = data if merged else errors.read(MIB)
            raise ToolError(f"{command[0]} could not {why}: {complaint(said, code)}")


def complaint(said: bytes, code: int) -> str:
    """Return the last thing a program complained about."""
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    if lines:
        return lines[-1].strip()[:300]
    return f"it was killed by signal {-code}" if code < 0 else f"exit status {code}"


def set_limits() -> None:
    """Lift this process's own memory limit for a program, whose threads reserve what they never use; bound its files.

    The only file that it writes is what it says of errors.
    """
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (ERROR_BYTES, ERROR_BYTES))
