"""Commands of the host that set up an engine or a base image."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from pytest_uniclaw.errors import EngineError

HOST_SECONDS = 1800.0
LAST_LINES = 15


def run_command(command: Sequence[str]) -> None:
    """Run a command without input; raise EngineError with its last lines when it fails or takes too long."""
    words = " ".join(command)
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HOST_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(f"`{words}` did not run to its end: {error}") from error
    if done.returncode:
        tail = (done.stdout + done.stderr).splitlines()[-LAST_LINES:]
        raise EngineError("\n  ".join([f"`{words}` failed with status {done.returncode}:", *tail]))
