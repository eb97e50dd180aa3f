"""The host's side of a local sandbox: starts PID 1 in fresh namespaces, asks it, and enters its namespaces."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_uniclaw.errors import EngineError, SandboxLost
from pytest_uniclaw.paths import USER_IDS

PROGRAMS = ("bash", "env", "nsenter", "pivot_root", "setpriv", "tar", "unshare")
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PATH = f"{SEARCH_PATH}:/opt/uniclaw/bin"
"""Of commands in the sandbox; the last folder is empty unless the host's own Python has to be offered."""
ANSWER_SECONDS = 30.0
SIZE_BYTES = 2 << 30
_NAMESPACES = ("--mount", "--pid", "--net", "--ipc", "--uts")
_CAPABILITIES = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+net_bind_service,+setgid,+setuid"
_START = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from pytest_uniclaw.sandbox.local_init import main
main()
"""
Rights = Literal["root", "user"]


def rights() -> Rights:
    """Return whose rights namespaces are made with: real root's, or a user namespace of this account."""
    return "root" if os.geteuid() == 0 else "user"


def missing_programs() -> list[str]:
    """Return the programs that a local sandbox needs and this machine lacks."""
    return [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]


def python_binds() -> list[tuple[str, str]]:
    """Return the host folders that this interpreter and its packages live in, apart from the system's."""
    folders = {sys.prefix, sys.base_prefix, *(path for path in sys.path if path.endswith("site-packages"))}
    outside = sorted(path for path in folders if not Path(path).is_relative_to("/usr") and Path(path).is_dir())
    tops = [path for path in outside if not any(path != top and Path(path).is_relative_to(top) for top in outside)]
    return [(path, path) for path in tops]


def plan(gateway: Path | None, binds: Sequence[tuple[str, str]], mode: Rights) -> dict[str, Any]:
    """Return what PID 1 is told."""
    numbers = {**USER_IDS, "grader": 1001}
    homes = {"root": "/root", "agent": "/home/agent", "service": "/nonexistent", "grader": "/home/grader"}
    accounts = [[name, number if mode == "root" else 0, homes[name]] for name, number in numbers.items()]
    shown = list(binds)
    python = ""
    if shutil.which("python3", path=SEARCH_PATH) is None:
        python = str(Path(sys.executable).resolve())
        shown += [pair for pair in python_binds() if pair not in shown]
    if gateway is not None:
        shown.append((str(gateway), "/run/uniclaw"))
    return {
        "size": SIZE_BYTES, "accounts": accounts, "binds": shown, "python": python, "gateway": gateway is not None,
    }  # fmt: skip


@dataclass
class Holder:
    """A running PID 1. ``pid`` is its number on the host, ``mode`` whose rights it has."""

    process: subprocess.Popen[bytes]
    mode: Rights
    pid: int = 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send one request and return the answer. Raises SandboxLost when PID 1 is gone, EngineError when mute."""
        if self.process.stdin is None or not self.alive():
            raise self.lost()
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.lost() from None
        return self.read_answer()

    def read_answer(self) -> dict[str, Any]:
        """Read one line from PID 1."""
        assert self.process.stdout is not None
        line, end = b"", time.monotonic() + ANSWER_SECONDS
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], max(end - time.monotonic(), 0.0))[0]:
                raise EngineError(f"the local sandbox did not answer within {ANSWER_SECONDS:g} s")
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                raise self.lost()
            line += data
        found: dict[str, Any] = json.loads(line)
        return found

    def alive(self) -> bool:
        """Whether PID 1 runs."""
        return self.process.poll() is None

    def lost(self) -> SandboxLost:
        """Return the error for a sandbox whose PID 1 is gone."""
        return SandboxLost(f"the local sandbox ended (status {self.process.poll()})", cause="killed")

    def command(self, command: Sequence[str], user: int, cwd: str) -> list[str]:
        """Return the host's command line that runs ``command`` inside, as the account of that number."""
        enter = ["nsenter", f"--target={self.pid}", *_NAMESPACES]
        if self.mode == "user":
            enter += ["--user", "--preserve-credentials"]
        drop = ["setpriv", "--no-new-privs", "--inh-caps=-all"]
        if user == 0 or self.mode == "user":
            drop.append(f"--bounding-set={_CAPABILITIES}")
        else:
            drop += ["--bounding-set=-all", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        return [*enter, "--", *drop, "env", f"--chdir={cwd}", *command]


@contextmanager
def held(gateway: Path | None = None, binds: Sequence[tuple[str, str]] = ()) -> Iterator[Holder]:
    """Start a sandbox's PID 1; at the end it is gone with everything in it.

    PID 1 lives as long as the pipe to it: should this process die in whatever way, the kernel closes that pipe.

    Raises:
        EngineError: the kernel or the machine refused; the text says what.
    """
    mode = rights()
    mapped = ["--user", "--map-root-user"] if mode == "user" else []
    package = str(Path(__file__).resolve().parents[2])
    command = ["unshare", *mapped, *_NAMESPACES, "--fork", "--kill-child", "--propagation=private", "--"]
    try:
        process = subprocess.Popen(
            [*command, sys.executable, "-I", "-c", _START, package], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True, env={"PATH": SEARCH_PATH, "LANG": "C.UTF-8"},
        )  # fmt: skip
    except OSError as error:
        raise EngineError(f"the local sandbox needs unshare (util-linux): {error}") from error
    holder = Holder(process, mode)
    try:
        start(holder, plan(gateway, binds, mode))
        yield holder
    finally:
        stop(process)


def start(holder: Holder, wanted: dict[str, Any]) -> None:
    """Hand over the plan and wait until the root is built. Raises EngineError."""
    try:
        answer = holder.ask(wanted)
    except SandboxLost as error:
        assert holder.process.stderr is not None
        said = os.read(holder.process.stderr.fileno(), 4096).decode("utf-8", "replace").strip()
        raise EngineError(f"the local sandbox could not be made: {said or error}") from error
    if "ready" not in answer:
        raise EngineError(f"the local sandbox could not be made: {answer.get('error')}")
    holder.pid = int(answer["ready"])


def stop(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe that PID 1 lives by; should it not go, kill its starter, which takes it along."""
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
