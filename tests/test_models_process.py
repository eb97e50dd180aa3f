"""The life of the gateway process: how it starts, what ends it, what it leaves."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from pytest_uniclaw.errors import InfraError
from pytest_uniclaw.models.client import Gateway, start_gateway
from pytest_uniclaw.models.grants import GrantRequest
from tests.support.scripted_upstream import ask

pytestmark = pytest.mark.processes

PARENT = """
import sys
from pathlib import Path
from pytest_uniclaw.models.client import start_gateway
process = start_gateway(Path(sys.argv[1]))
print(process.pid, process.address.agent_socket.parents[1], flush=True)
sys.stdin.read()
"""


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody reaps does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition: object, seconds: float = 10.0) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() < began + seconds, "the condition did not come true"
        time.sleep(0.01)
    return time.monotonic() - began


def test_a_call_in_flight_is_recorded_when_the_gateway_ends(tmp_path: Path) -> None:
    script = tmp_path / "model.yaml"
    script.write_text("turns:\n  - - hang: true\n")
    process = start_gateway(tmp_path / "run")
    gateway = Gateway(process.address)
    asked = {"attempt": "a", "role": "executor", "model": "m", "provider": "script"}
    grant = gateway.grant(GrantRequest(**asked, script=script, log=tmp_path / "log"))
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "stream": True}
    failed = threading.Event()

    def agent() -> None:
        try:
            ask(process.address.agent_socket, grant.key, body)
        except (OSError, http.client.HTTPException):
            failed.set()

    caller = threading.Thread(target=agent)
    caller.start()
    wait_for(lambda: gateway.activity("a").calls_in_flight == 1)
    began = time.monotonic()
    process.close()
    process.close()
    assert time.monotonic() - began < 5
    caller.join(5)
    assert failed.is_set()
    (row,) = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert row["class"] == "cancelled"
    assert not process.address.agent_socket.parents[1].exists()
    assert (tmp_path / "run" / "gateway.log").read_bytes() == b""


def test_ctrl_c_is_ignored_and_sigterm_ends_it(tmp_path: Path) -> None:
    with start_gateway(tmp_path) as process:
        os.kill(process.pid, signal.SIGINT)
        assert Gateway(process.address).calls("a") == []
        os.kill(process.pid, signal.SIGTERM)
        wait_for(lambda: not alive(process.pid))
        assert not process.address.admin_socket.exists()


def test_a_killed_parent_leaves_no_gateway_and_no_socket(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        assert alive(int(pid))
        parent.kill()
        parent.wait(5)
        assert wait_for(lambda: not alive(int(pid))) < 5
        wait_for(lambda: not Path(folder).exists())


def test_a_bad_first_line_says_what_is_wrong() -> None:
    line = json.dumps({"directory": "/x", "agent_socket": "/x/a", "providers": {"p": {"api_key": "sk-REAL"}}})
    command = [sys.executable, "-m", "pytest_uniclaw.models"]
    done = subprocess.run(command, input=line + "\n", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "admin_socket: Field required" in done.stderr
    assert "sk-REAL" not in done.stderr


def test_a_gateway_that_cannot_start_is_an_infra_error_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").mkdir()
    with pytest.raises(InfraError, match=r"ended while starting(?s:.*)ledger\.jsonl"):
        start_gateway(tmp_path)


def test_a_gateway_that_is_not_ready_in_time_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(InfraError, match=r"not ready after 0\.001 s"):
        start_gateway(tmp_path, deadline=0.001)


def test_a_long_temporary_folder_is_not_used_for_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with start_gateway(tmp_path) as process:
        assert len(str(process.address.agent_socket)) < 100
        assert Gateway(process.address).calls("a") == []
    assert list(long.iterdir()) == []
