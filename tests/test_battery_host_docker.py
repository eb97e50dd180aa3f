"""What breaks on the host while a session runs: the engine, the model gateway, the run directory's disk."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.engine_proxy import EngineProxy
from support.packages import DONE, Suite
from support.sessions import Session, process_tree, start, wait_until

docker = pytest.importorskip("docker")
pytestmark = pytest.mark.docker

WAIT_FOR_FILE = """
import time
from pathlib import Path

import pytest

@pytest.fixture(autouse=True)
def wait_for_file(request):
    '''Hold the second task back until the test has mended what it broke.'''
    end = time.monotonic() + 120
    while "02_later" in request.node.nodeid and not Path("mended").exists() and time.monotonic() < end:
        time.sleep(0.05)
"""
SLEEP = f"{DONE}exec sleep 300\n"
LONG = {"timeout_seconds": 300, "max_total_seconds": 300}
DISK_BYTES = 2 << 20


def ended(session: Session, name: str) -> bool:
    return any(session.run.glob(f"a1/*/*/*/task_101_{name}/p1-*/uniclaw.json"))


def called(session: Session) -> bool:
    return any(session.run.glob("a1/*/*/*/*/p1-*/exchange/executor/blobs/*"))


def owned(session: Session) -> list[object]:
    with docker.APIClient() as client:
        listed: list[object] = client.containers(all=True, filters={"label": f"uniclaw.run={session.run.name}"})
    return listed


def test_a_lost_engine_is_infrastructure_and_its_return_ends_that(tmp_path: Path) -> None:
    suite = Suite.make(tmp_path / "suite", conftest=WAIT_FOR_FILE)
    suite.add("01_cut", SLEEP, **LONG)
    suite.add("02_later")
    with EngineProxy() as proxy:
        session = start(suite.root, "--uniclaw-infra-retries=0", environment=proxy.environment)
        session.wait_for_turns("01_cut")
        assert owned(session)
        proxy.cut()
        wait_until(lambda: ended(session, "01_cut"), 60, "the attempt whose engine is gone has ended")
        proxy.mend()
        (suite.root / "mended").touch()
        session.finish()
    assert session.code == pytest.ExitCode.TESTS_FAILED, session.output
    assert (session.cases["01_cut"].outcome, session.cases["01_cut"].status) == ("error", "infra_error")
    assert "engine" in session.cases["01_cut"].message
    attempt = session.attempt("01_cut")
    assert [turn["ending"] for turn in attempt["turns"]] == ["lost"]
    assert attempt["flags"] == ["digests_unknown"]
    assert (session.cases["02_later"].outcome, session.cases["02_later"].status) == ("passed", "pass")
    assert "1/2 passed, 1 infra, coverage 1/2" in session.output
    assert owned(session) == []


def test_a_lost_gateway_is_infrastructure(tmp_path: Path) -> None:
    suite = Suite.make(tmp_path / "suite")
    suite.add("01_hangs", script=[[{"hang": True}]], agent_sys="nanobot", **LONG)
    suite.add("02_later")
    session = start(suite.root, "--model=script", "--uniclaw-infra-retries=0")
    session.wait_for_turns("01_hangs")
    wait_until(lambda: called(session), 60, "the agent has asked its model")
    tree = process_tree(session.process.pid)
    (gateway,) = (pid for (pid, _), command in tree.items() if "pytest_uniclaw.models" in command)
    os.kill(gateway, signal.SIGKILL)
    session.finish()
    assert session.code == pytest.ExitCode.INTERRUPTED, session.output
    assert f"continue with --uniclaw-resume={session.run.name}" in session.output
    assert (session.cases["01_hangs"].outcome, session.cases["01_hangs"].status) == ("error", "infra_error")
    assert "gateway" in session.cases["01_hangs"].message
    attempt = session.attempt("01_hangs")
    assert len(attempt["turns"]) == 1
    assert attempt["flags"] == ["usage_unknown"]
    assert "02_later" not in session.cases
    assert owned(session) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two mebibytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("NOT RUN: a file system cannot be mounted here (needs root)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_run_directory_is_infrastructure_and_loses_no_report(tmp_path: Path, small_disk: Path) -> None:
    suite = Suite.make(tmp_path / "suite")
    suite.add("01_first")
    suite.add("02_parts", f"for n in 1 2 3 4 5 6; do head -c 600K /dev/zero > /tmp_workspace/results/$n; done\n{DONE}")
    suite.add("03_prints", f"head -c 6M /dev/zero\n{DONE}")
    suite.add("04_last")
    session = start(suite.root, f"--uniclaw-runs-dir={small_disk}", "--uniclaw-infra-retries=0").finish()
    assert session.code == pytest.ExitCode.TESTS_FAILED, session.output
    assert "INTERNALERROR" not in session.output
    outcomes = {name: (case.outcome, case.status) for name, case in session.cases.items()}
    assert outcomes == {
        "01_first": ("passed", "pass"), "02_parts": ("error", "infra_error"), "03_prints": ("error", "infra_error"),
        "04_last": ("passed", "pass"),
    }, session.output  # fmt: skip
    for name in ("02_parts", "03_prints"):
        assert "No space left" in session.cases[name].message
        assert len(session.attempt(name)["turns"]) == 1
    assert "2/4 passed, 2 infra, coverage 2/4" in session.output


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_run_directory_that_cannot_be_made_stops_the_session_at_once(
    tmp_path: Path, small_disk: Path, workers: str
) -> None:
    suite = Suite.make(tmp_path / "suite")
    suite.add("01_first")
    (small_disk / "ballast").write_bytes(b"x" * (DISK_BYTES - shutil.disk_usage(small_disk).used))
    session = start(suite.root, f"--uniclaw-runs-dir={small_disk}", "-n", workers).finish()
    assert session.code == pytest.ExitCode.USAGE_ERROR, session.output
    assert "No space left" in session.output
    assert "Traceback" not in session.output
