"""Make sure that a container engine runs here: use it, start it, install it, or say what the user must do.

The decision is a pure function of facts (:func:`plan_engine`); effects happen only in :func:`ensure_engine`.
``python -m pytest_uniclaw.sandbox.engine_setup [--check]`` is the command that ``scripts/setup`` runs.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.sandbox.engine import connect, explain, failures, named_elsewhere
from pytest_uniclaw.sandbox.host import run_command

NO_ENGINE_STATUS = 3
START_SECONDS = 90.0
STEP_SECONDS = 0.2
PID_FILES = {
    "dockerd": Path("/var/run/docker.pid"),
    "containerd": Path("/var/run/docker/containerd/containerd.pid"),
}
ENGINE_LOG = Path("/var/log/uniclaw-dockerd.log")
PACKAGES = ("docker.io", "iptables", "ca-certificates", "xz-utils", "cgroupfs-mount")

Progress = Callable[[str], None]
Action = Literal["use", "start service", "start dockerd", "install", "explain"]


@dataclass(frozen=True)
class EngineFacts:
    """What decides how an engine is had.

    ``answer`` is the engine's version, "" when none answers; ``refusal`` is then what the attempt said. ``elsewhere``
    means that the engine's address is named by DOCKER_HOST or a docker context, so it is not ours to start.
    """

    answer: str
    refusal: str = ""
    elsewhere: bool = False
    linux: bool = True
    root: bool = False
    debian: bool = False
    dockerd: bool = False
    systemd: bool = False


@dataclass(frozen=True)
class EnginePlan:
    """What to do, why in one sentence, and for ``explain`` what the user can do."""

    action: Action
    reason: str
    remedy: str = ""


def plan_engine(facts: EngineFacts) -> EnginePlan:
    """Return what to do about the engine; rows are precedence, the first that holds."""
    if facts.answer:
        return EnginePlan("use", f"a container engine answers (version {facts.answer})")
    silent = f"no container engine answers ({facts.refusal})"
    if facts.elsewhere:
        where = "DOCKER_HOST or the docker context names an engine that does not answer"
        return EnginePlan("explain", f"{where} ({facts.refusal})", "start that engine, or unset DOCKER_HOST")
    if "ermission denied" in facts.refusal:
        remedy = 'sudo usermod -aG docker "$USER", log in again, and repeat the command'
        return EnginePlan("explain", "the engine's socket may not be used by this user", remedy)
    if not facts.linux:
        return EnginePlan("explain", silent, "start Docker Desktop (or colima) and repeat the command")
    if not facts.root:
        remedy = "sudo systemctl start docker" if facts.dockerd else "install Docker, or repeat the command as root"
        return EnginePlan("explain", f"{silent} and this user is not root", remedy)
    if facts.dockerd and facts.systemd:
        return EnginePlan("start service", f"{silent}, but docker is installed")
    if facts.dockerd:
        return EnginePlan("start dockerd", f"{silent}, docker is installed and no service manager runs")
    if facts.debian:
        return EnginePlan("install", f"{silent}, and this is root on Debian or Ubuntu")
    return EnginePlan("explain", f"{silent} and this is not Debian or Ubuntu", "install Docker and start it")


def gather_facts() -> EngineFacts:
    """Look at the machine; changes nothing."""
    answer, refusal = probe()
    release = Path("/etc/os-release")
    words = release.read_text(encoding="utf-8").lower() if release.is_file() else ""
    return EngineFacts(
        answer=answer,
        refusal=refusal,
        elsewhere=not answer and named_elsewhere(),
        linux=sys.platform == "linux",
        root=os.geteuid() == 0,
        debian=("debian" in words or "ubuntu" in words) and shutil.which("apt-get") is not None,
        dockerd=shutil.which("dockerd") is not None,
        systemd=Path("/run/systemd/system").is_dir(),
    )


def probe(base_url: str | None = None) -> tuple[str, str]:
    """Return (version, "") of an engine that answers, else ("", why not); None is the engine of the docker command."""
    try:
        with closing(connect(base_url)) as api:
            return str(api.version()["Version"]), ""
    except failures() as error:
        return "", explain(error)


def ensure_engine(progress: Progress) -> EnginePlan:
    """Carry out the plan and return it; after any action but ``explain`` an engine answers.

    Raise EngineError when an installation or a start fails.
    """
    plan = plan_engine(gather_facts())
    progress(f"{plan.reason}: {plan.action}")
    if plan.action == "install":
        install_engine(progress)
        return ensure_engine(progress)
    if plan.action == "start service":
        run_command(["systemctl", "start", "docker"])
        _wait_for_answer(None, time.monotonic() + START_SECONDS)
    if plan.action == "start dockerd":
        if not _cgroups_are_mounted():
            run_command(["cgroupfs-mount"])
        for name, file in PID_FILES.items():
            if remove_stale_pid(name, file):
                progress(f"removed {file}, which a killed engine left behind")
        process = start_dockerd(ENGINE_LOG)
        progress(f"started dockerd, which stays up: `kill {process.pid}` ends it; its log is {ENGINE_LOG}")
    return plan


def install_engine(progress: Progress) -> None:
    """Install Debian's engine with apt (root only); raise EngineError when that fails."""
    enabled = Path("/sys/module/apparmor/parameters/enabled")
    apparmor = ["apparmor"] if enabled.is_file() and enabled.read_text().startswith("Y") else []
    packages = [*PACKAGES, *apparmor]
    progress(f"apt-get install {' '.join(packages)}")
    run_command(["apt-get", "update", "-qq"])
    frontend = ["env", "DEBIAN_FRONTEND=noninteractive"]
    run_command([*frontend, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages])
    if not shutil.which("dockerd"):
        raise EngineError("apt-get installed docker.io but there is no dockerd on the PATH")


def start_dockerd(
    log: Path, command: Sequence[str] = ("dockerd",), base_url: str | None = None
) -> subprocess.Popen[bytes]:
    """Start an engine in its own session and return once it answers at ``base_url``.

    A second engine needs namespaces of its own (``unshare --net --mount dockerd …``): one with ``--bridge=none``
    deletes the bridge of the first, and a killed one leaves its mounts. Raise EngineError with the end of its log
    when it ends or stays silent for ``START_SECONDS``.
    """
    mark = log.stat().st_size if log.is_file() else 0
    with log.open("ab") as file:
        process = subprocess.Popen(
            list(command), stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    try:
        _wait_for_answer(base_url, time.monotonic() + START_SECONDS, process)
    except EngineError as error:
        process.terminate()
        tail = log.read_bytes()[mark:].decode("utf-8", "replace").splitlines()[-15:]
        raise EngineError("\n  ".join([f"{error}; the end of {log}:", *tail])) from error
    return process


def remove_stale_pid(name: str, file: Path, proc: Path = Path("/proc")) -> bool:
    """Remove a pid file whose process is not a living ``name``; say whether it was removed.

    The engine takes any process with that number, dead or not, for the one it wrote down, and does not start.
    """
    try:
        pid = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return False
    try:
        fields = (proc / pid / "stat").read_text(encoding="utf-8").split()
        if fields[1:2] == [f"({name})"] and fields[2] not in ("Z", "X"):
            return False
    except (FileNotFoundError, NotADirectoryError, IndexError):
        pass
    file.unlink(missing_ok=True)
    return True


def _cgroups_are_mounted() -> bool:
    return any(line.split()[2].startswith("cgroup") for line in Path("/proc/mounts").read_text().splitlines())


def _wait_for_answer(base_url: str | None, give_up: float, process: subprocess.Popen[bytes] | None = None) -> None:
    while True:
        answer, refusal = probe(base_url)
        if answer:
            return
        if process is not None and process.poll() is not None:
            raise EngineError(f"dockerd ended with status {process.returncode}")
        if time.monotonic() > give_up:
            raise EngineError(f"the started engine does not answer after {START_SECONDS:.0f} s ({refusal})")
        time.sleep(STEP_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Ensure an engine, or with ``--check`` only print the plan; return 0, 2 for an error, 3 for no engine."""
    parser = argparse.ArgumentParser(prog="uniclaw engine", description="Make sure that a container engine runs.")
    parser.add_argument("--check", action="store_true", help="print what would be done and do nothing")
    check = parser.parse_args(arguments).check
    try:
        plan = plan_engine(gather_facts()) if check else ensure_engine(_say)
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    if check:
        _say(f"{plan.reason}: would {plan.action}")
    if plan.action == "explain":
        sys.stderr.write(f"no engine: {plan.reason}\n  fix: {plan.remedy}\n")
        return NO_ENGINE_STATUS
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"==> engine: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
