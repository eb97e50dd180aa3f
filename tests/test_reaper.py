"""However the owner dies, what it made in the engine is gone within seconds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_uniclaw.paths import scratch_prefix
from pytest_uniclaw.sandbox import reaper

ROOT = str(Path(reaper.__file__).resolve().parents[2])
OWNER = f"""
import sys, time
sys.path.insert(0, {ROOT!r})
from pytest_uniclaw.sandbox.base import MIB, Owner, SandboxSpec
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.sandbox.reaper import start_reaper
run = sys.argv[1]
watcher = start_reaper(run)
print(watcher.process.pid, flush=True)
spec = SandboxSpec(Owner(run, run + "/gw0", "a"), "runtime", memory=256 * MIB, network="internet")
with DockerProvider().open(spec) as sandbox:
    sandbox.run(["true"])
    print("ready", flush=True)
    time.sleep(120)
"""


@pytest.mark.parametrize(
    ("labels", "is_expired"),
    [
        ({"uniclaw.deadline": "1000"}, True), ({"uniclaw.deadline": str(time.time() + 1000)}, False), ({}, False),
        ({"uniclaw.deadline": "soon"}, False), ({"uniclaw.deadline": "nan"}, False),
    ],
)
def test_only_a_past_deadline_is_expired(labels: dict[str, str], is_expired: bool) -> None:
    assert reaper.expired(labels) is is_expired


def test_starting_costs_no_docker_import_and_signals_do_not_end_it() -> None:
    code = "import sys, pytest_uniclaw.sandbox.reaper; print('docker' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    watcher = reaper.start_reaper(f"test-{uuid.uuid4().hex}", base_url="unix:///nonexistent/engine.sock")
    try:
        wait_for(lambda: ignores(watcher.process.pid, signal.SIGHUP))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            watcher.process.send_signal(number)
        assert os.getpgid(watcher.process.pid) != os.getpgid(0)
        assert watcher.process.poll() is None
    finally:
        watcher.process.kill()
        watcher.close()


def ignores(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(mask >> (number - 1) & 1)


def listed(kind: str, run: str) -> list[str]:
    command = ["docker", kind, "ls", "-q", "--filter", f"label=uniclaw.run={run}"]
    command += ["-a"] if kind == "container" else []
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.05)


@pytest.mark.docker
def test_a_killed_owner_leaves_nothing() -> None:
    run = f"test-{uuid.uuid4().hex[:8]}"
    with subprocess.Popen([sys.executable, "-c", OWNER, run], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        watcher = int(owner.stdout.readline())
        assert owner.stdout.readline() == "ready\n"
        assert len(listed("container", run)) == 1
        assert len(listed("network", run)) == 1
        owner.kill()
        owner.wait()
    wait_for(lambda: not listed("container", run) and not listed("network", run))
    wait_for(lambda: not Path(f"/proc/{watcher}/cmdline").exists() or not Path(f"/proc/{watcher}/cmdline").read_bytes())


@pytest.mark.docker
def test_removal_by_worker_by_run_and_by_deadline() -> None:
    run = f"test-{uuid.uuid4().hex[:8]}"

    def make(worker: str, deadline: int) -> None:
        labels = {"uniclaw": "1", "uniclaw.run": run, "uniclaw.worker": worker, "uniclaw.deadline": str(deadline)}
        options = [f"--label={key}={value}" for key, value in labels.items()]
        image = subprocess.run(["docker", "images", "-q"], capture_output=True, text=True, check=True).stdout.split()[0]
        subprocess.run(["docker", "create", *options, image, "true"], capture_output=True, check=True)

    later = int(time.time()) + 3600
    for worker, deadline in (("gw0", later), ("gw1", later), ("gw2", 1000)):
        make(worker, deadline)
    subprocess.run(["docker", "volume", "create", f"--label=uniclaw.run={run}", "--label=uniclaw=1"], check=True)
    assert reaper.sweep_expired().containers >= 1
    assert len(listed("container", run)) == 2
    assert reaper.remove_owned(run, "gw0").containers == 1
    assert len(listed("container", run)) == 1
    found = reaper.remove_owned(run)
    assert (found.containers, found.volumes, found.failed) == (1, 1, 0)
    assert reaper.remove_owned(run).total == 0


def test_the_folders_of_a_continued_run_are_not_those_of_the_run() -> None:
    assert not scratch_prefix("20261130-041500-3fa2-0c1d2e").startswith(scratch_prefix("20261130-041500-3fa2"))


@pytest.mark.docker
def test_an_orderly_end_is_quick() -> None:
    watcher = reaper.start_reaper(f"test-{uuid.uuid4().hex[:8]}")
    began = time.monotonic()
    watcher.close()
    assert watcher.process.returncode == 0
    assert time.monotonic() - began < reaper.REAP_SECONDS
