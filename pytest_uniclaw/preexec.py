"""``pre_exec``: a package's own scripts, run on the host before its sandbox is made (design invariant 5).

They run with this interpreter in a private copy of the package, with a minimal environment and a deadline. Upstream's
variable names are kept, since its scripts read them (upstream-contract section 1.5).
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO

from pytest_uniclaw.errors import PreExecError
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.task import Task

PRE_EXEC_SECONDS = 600.0
_TAIL_CHARACTERS = 2000
_LOG_BYTES = 1 << 20
_LOCK_STEP_SECONDS = 0.2
_BOOTSTRAP = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Ties the script's life to its parent's (``PR_SET_PDEATHSIG``, kept by exec), then becomes the script."""


def run_pre_exec(
    task: Task, *, privacy: Mapping[str, str], environment_base: Mapping[str, str], log: Path, locks: Path,
    deadline: float = PRE_EXEC_SECONDS,
) -> None:  # fmt: skip
    """Run the task's scripts in order; ``task.folder`` is a private copy that they may rewrite.

    ``environment_base`` gives PATH and LANG, ``privacy`` the task's declared variables. ``log`` collects what the
    scripts print. One task's scripts never run twice at a time in this run, unless it says that they may (``locks`` is
    a folder shared by the run's workers); another run on this host is not waited for. ``deadline`` is in
    seconds, for each script and for the wait at the lock. Raises :class:`PreExecError` with the end of the output.
    """
    if not task.pre_exec:
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    guard = nullcontext() if task.pre_exec_parallel_safe else _only_one(locks / f"{task.task_id}.lock", deadline)
    with guard, tempfile.TemporaryDirectory(prefix="home-", dir=task.folder.parents[1]) as home:
        environment = _environment(task, privacy, environment_base, home)
        for script in task.pre_exec:
            _run(task, script, environment, log, deadline, tuple(privacy.values()))


def _environment(task: Task, privacy: Mapping[str, str], base: Mapping[str, str], home: str) -> dict[str, str]:
    root = task.folder.parents[1]
    return {
        "PATH": base.get("PATH", os.defpath), "LANG": base.get("LANG", "C.UTF-8"), "PYTHONUTF8": "1",
        **privacy,
        "HOME": home, "TMPDIR": home,
        "UNICLAW_TASK_ID": task.task_id, "UNICLAW_TASK_FOLDER": str(task.folder),
        "CLAWBENCH_ROOT": str(root.parent if root.name == "injection" else root), "CLAWBENCH_TASK_ID": task.task_id,
        "CLAWBENCH_TASK_INJECTION_ROOT": str(task.folder),
    }  # fmt: skip


def _run(
    task: Task, script: str, environment: Mapping[str, str], log: Path, deadline: float, secrets: tuple[str, ...]
) -> None:
    command = [sys.executable, "-c", _BOOTSTRAP, str(task.folder / script)]
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command, cwd=task.folder, env=dict(environment), stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise PreExecError(f"{task.task_id}: {script} could not be started: {error}") from error
        try:
            code: int | None = process.wait(timeout=deadline)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill_group(process)
        text = _read(output, secrets)
    how = f"did not end within {deadline:g} s" if code is None else f"exited with {code}"
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{text}\n[{script} {how}]\n")
    if code != 0:
        tail = text[-_TAIL_CHARACTERS:].strip() or "(it printed nothing)"
        raise PreExecError(f"{task.task_id}: pre_exec {script} {how}:\n{tail}")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill what the script left in its process group; a daemon with a session of its own is the package's doing."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(output: IO[bytes], secrets: tuple[str, ...]) -> str:
    """Return the end of what was printed, declared values blanked out."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _LOG_BYTES))
    text = output.read().decode("utf-8", "replace")
    return Redactor(secrets).text(text)


@contextmanager
def _only_one(lock: Path, deadline: float) -> Iterator[None]:
    """Hold a lock file that the kernel releases however this process ends. Raises PreExecError at the deadline."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    give_up = time.monotonic() + deadline
    with lock.open("ab") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise PreExecError(f"{lock.name}: another worker held it for {deadline:g} s") from None
                time.sleep(_LOCK_STEP_SECONDS)
        yield
