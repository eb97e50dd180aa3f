"""The local sandbox: the same promises as a container, made of namespaces; nothing of it outlives its owner."""

from __future__ import annotations

import dataclasses
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from task_package import build

from pytest_uniclaw.agents.base import TurnRequest
from pytest_uniclaw.agents.oracle import OracleAgent
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import SandboxLost, SettingsError
from pytest_uniclaw.sandbox import local as module
from pytest_uniclaw.sandbox.base import CollectLimits, Entry, GradingJob, Owner, Pulse, SandboxSpec, TurnLimits
from pytest_uniclaw.sandbox.local import LocalProvider, LocalSandbox
from pytest_uniclaw.sandbox.services import export_state, start_services
from pytest_uniclaw.task import Service, load_task

pytestmark = pytest.mark.processes

OWNER = Owner("run", "main", "attempt")
LIMITS = TurnLimits(20.0, 20.0)
PROVIDER = LocalProvider()


@pytest.fixture(scope="module", autouse=True)
def needs_namespaces() -> None:
    try:
        PROVIDER.check([])
    except SettingsError as error:
        pytest.skip(f"NOT RUN: {error}")


@pytest.fixture
def sandbox() -> Iterator[LocalSandbox]:
    with PROVIDER.open(SandboxSpec(OWNER, "runtime")) as opened:
        assert isinstance(opened, LocalSandbox)
        yield opened


def shell(sandbox: Any, script: str, **options: Any) -> str:
    done = sandbox.run(["bash", "-c", script], **options)
    assert done.ending is Ending.EXITED
    return str(done.output.decode())


def turn(sandbox: LocalSandbox, script: str, tmp_path: Path, limits: TurnLimits = LIMITS, **environment: str) -> Any:
    command = ["bash", "-c", script]
    return sandbox.turn(command, environment=environment, limits=limits, pulse=Pulse, log=tmp_path / "log")


def inside(sandbox: LocalSandbox) -> list[str]:
    return [process["cmd"] for process in sandbox.holder.ask({"op": "list"})["processes"]]


def test_it_is_a_picklable_value() -> None:
    assert pickle.loads(pickle.dumps(PROVIDER)) == LocalProvider()
    assert PROVIDER.digest("runtime") == PROVIDER.digest("other")


def test_paths_accounts_and_environment(sandbox: LocalSandbox, tmp_path: Path) -> None:
    script = 'pwd; id -un; echo "$HOME $UNICLAW_RESULTS $TOKEN"; touch "$HOME/a" results/b'
    done = turn(sandbox, script, tmp_path, TOKEN="t")
    who = "agent" if sandbox.holder.mode == "root" else "root"
    assert done.output.decode().splitlines() == ["/tmp_workspace", who, "/home/agent /tmp_workspace/results t"]
    assert done.exit_code == 0
    assert (tmp_path / "log").read_bytes() == done.output


def test_the_host_is_not_there(sandbox: LocalSandbox) -> None:
    project = str(Path(__file__).parent.parent)
    assert shell(sandbox, f"ls {project} 2>&1; ls -A /tmp /srv; ls /home; cat /proc/[0-9]*/comm; true").split() == [
        "ls:", "cannot", "access", f"'{project}':", "No", "such", "file", "or", "directory",
        "/srv:", "/tmp:", "agent", "grader", *shell(sandbox, "cat /proc/1/comm").split(), "bash",
    ]  # fmt: skip
    assert "Read-only" in shell(sandbox, "touch /usr/x 2>&1; true")
    assert shell(sandbox, "cat /proc/net/dev | tail -n +3 | cut -d: -f1").split() == ["lo"]
    assert shell(sandbox, "umount /usr 2>&1 || echo refused").splitlines()[-1] == "refused"


def test_put_keeps_modes_and_owners(sandbox: LocalSandbox, tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "run.sh").write_text("echo hi")
    (tmp_path / "tree" / "deep" / "run.sh").chmod(0o755)
    sandbox.put(
        [
            Entry("/opt/uniclaw/services/x", source=tmp_path / "tree", mode=0o700),
            Entry("/home/agent/.config/a", content=b"a", mode=0o600, user="agent"),
        ]
    )
    listed = shell(sandbox, "stat -c '%a %n' /opt/uniclaw/services/x/deep/run.sh /home/agent/.config/a")
    assert listed.splitlines() == ["700 /opt/uniclaw/services/x/deep/run.sh", "600 /home/agent/.config/a"]
    if sandbox.holder.mode == "root":
        assert shell(sandbox, "cat /home/agent/.config/a; ls /opt/uniclaw/services/x || true", user="agent")[0] == "a"
        assert sandbox.run(["ls", "/opt/uniclaw/services/x"], user="agent").exit_code != 0


def test_deadlines_kill_and_sweeps_leave_the_service_set(sandbox: LocalSandbox, tmp_path: Path) -> None:
    assert sandbox.run(["sleep", "600"], seconds=0.3).ending is Ending.DEADLINE
    sandbox.run(["sleep", "701"], detach=True)
    deadline = time.monotonic() + 10
    while "sleep 701" not in inside(sandbox) and time.monotonic() < deadline:
        time.sleep(0.02)
    sandbox.keep()
    script = "trap '' TERM; setsid sleep 702 & (setsid bash -c 'sleep 703 & wait' &); echo going; sleep 704"
    done = turn(sandbox, script, tmp_path, TurnLimits(1.0, 20.0))
    assert done.ending is Ending.DEADLINE
    assert done.output == b"going\n"
    assert inside(sandbox) == ["sleep 701"]
    assert sandbox.vitals().running


HEADLESS = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(705,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit: ends this thread alone
"""


def test_a_process_whose_first_thread_has_ended_is_swept(sandbox: LocalSandbox, tmp_path: Path) -> None:
    wait = "until grep -q '^State:.Z' /proc/$!/status; do sleep 0.02; done"
    turn(sandbox, f'setsid python3 -c "$CODE" > /dev/null 2>&1 & {wait}', tmp_path, CODE=HEADLESS)
    assert len(inside(sandbox)) == 1
    sandbox.sweep()
    assert inside(sandbox) == []


def test_silence_ends_a_turn_and_a_pulse_keeps_it(sandbox: LocalSandbox, tmp_path: Path) -> None:
    assert turn(sandbox, "sleep 600", tmp_path, TurnLimits(20.0, 0.5)).ending is Ending.SILENCE
    done = sandbox.turn(
        ["sleep", "1.2"], environment={}, limits=TurnLimits(20.0, 0.5), pulse=lambda: Pulse(busy=True),
        log=tmp_path / "log",
    )  # fmt: skip
    assert done.ending is Ending.EXITED


def test_a_daemon_that_holds_the_output_does_not_hold_the_turn(sandbox: LocalSandbox, tmp_path: Path) -> None:
    began = time.monotonic()
    done = turn(sandbox, "setsid sleep 600 & echo done; exit 3", tmp_path)
    assert (done.ending, done.exit_code, done.output) == (Ending.EXITED, 3, b"done\n")
    assert time.monotonic() - began < 15


def test_collection_takes_regular_files_of_a_still_sandbox(sandbox: LocalSandbox, tmp_path: Path) -> None:
    turn(
        sandbox,
        "cd results; mkdir d; echo x > d/file; ln -s /etc/passwd link; mkfifo pipe; echo y > $'n\\n'; "
        "setsid bash -c 'while :; do echo z >> growing; done' > /dev/null 2>&1 & "
        "until [ -s growing ]; do sleep 0.01; done",
        tmp_path,
    )
    wanted = {
        sandbox.paths.results: tmp_path / "results", "/tmp_workspace/none": tmp_path / "none",
        "/tmp_workspace/results/d/file": tmp_path / "single",
    }  # fmt: skip
    manifests = sandbox.collect(wanted, CollectLimits())
    names = {record.path for record in manifests[sandbox.paths.results].files}
    assert {"d/file", "n%0A", "growing"} == names
    reasons = {refusal.path: refusal.reason for refusal in manifests[sandbox.paths.results].refused}
    assert reasons == {"link": "symbolic link", "pipe": "FIFO"}
    assert manifests["/tmp_workspace/none"].files == ()
    assert (tmp_path / "single" / "file").read_text() == "x\n"
    sandbox.sweep()
    assert inside(sandbox) == []


def test_a_dead_sandbox_is_lost(sandbox: LocalSandbox) -> None:
    os.kill(sandbox.holder.pid, signal.SIGKILL)
    sandbox.holder.process.wait(10)
    assert not sandbox.vitals().running
    with pytest.raises(SandboxLost):
        sandbox.run(["true"])
    with pytest.raises(SandboxLost):
        sandbox.keep()


def test_a_sandbox_that_dies_under_a_command_is_lost(sandbox: LocalSandbox) -> None:
    timer = threading.Timer(0.5, os.kill, (sandbox.holder.pid, signal.SIGKILL))
    timer.start()
    with pytest.raises(SandboxLost):
        sandbox.run(["sleep", "600"])
    timer.join()


def test_the_gateway_is_on_loopback(tmp_path: Path) -> None:
    folder = Path(tempfile_short(tmp_path))
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(folder / "agent.sock"))
            (folder / "agent.sock").chmod(0o666)
            server.listen()
            server.settimeout(20)
            reply = threading.Thread(target=answer_once, args=(server,))
            reply.start()
            with PROVIDER.open(SandboxSpec(OWNER, "runtime", gateway=folder)) as sandbox:
                said = shell(sandbox, "exec 3<>/dev/tcp/127.0.0.1/4010; head -n 1 <&3", user="agent")
                sandbox.keep()
                sandbox.sweep()
                assert shell(sandbox, "(exec 3<>/dev/tcp/127.0.0.1/4010) && echo still") == "still\n"
            reply.join()
        assert said == "hello\n"
    finally:
        shutil.rmtree(folder)


def answer_once(server: socket.socket) -> None:
    with server.accept()[0] as connection:
        connection.sendall(b"hello\n")


def tempfile_short(tmp_path: Path) -> str:
    """A folder whose socket paths fit the kernel's limit, readable by every account."""
    import tempfile

    folder = tempfile.mkdtemp(prefix="ul-")
    Path(folder).chmod(0o755)
    return folder


def test_a_task_with_network_is_refused() -> None:
    with pytest.raises(SettingsError, match="no network"), PROVIDER.open(SandboxSpec(OWNER, "r", network="internet")):
        pass


def test_services_and_the_oracle_work_in_it(sandbox: LocalSandbox, tmp_path: Path) -> None:
    files = {"oracle/solve.sh": "cp $UNICLAW_WORKSPACE/seed results/", "services/tracker/data": "seed\n"}
    package = build(tmp_path / "r", files=files)
    tracker = Service(
        "tracker", "tracker", 'cp data "$UNICLAW_WORKSPACE/seed"; exec sleep 600', False, user="service",
        ready='test -e "$UNICLAW_WORKSPACE/seed"', export=(("state.txt", "cat data; id -u"),),
    )  # fmt: skip
    task = dataclasses.replace(load_task(package.yaml), services=(tracker,))
    running = start_services(sandbox, task, {}, tmp_path)
    sandbox.keep()
    agent = OracleAgent()
    agent.prepare(sandbox, task, None)
    done = agent.turn(sandbox, TurnRequest(1, "go", LIMITS, Pulse, tmp_path / "log"))
    assert agent.finish(done, ()).finished
    assert export_state(sandbox, running, tmp_path / "state") == []
    number = "999" if sandbox.holder.mode == "root" else "0"
    assert (tmp_path / "state" / "state.txt").read_text() == f"seed\n{number}\n"
    sandbox.collect({sandbox.paths.results: tmp_path / "results"}, CollectLimits())
    assert (tmp_path / "results" / "seed").read_text() == "seed\n"
    sandbox.sweep()
    assert inside(sandbox) == ["sleep 600"]


CHECK = '''
import os
import pytest

@pytest.mark.checkpoint("C1")
def check_answer(evidence):
    assert evidence.text("answer.txt") == "42"

@pytest.mark.checkpoint("C2")
def check_cannot_write(evidence):
    assert os.getuid() == 0 or not os.access(evidence.path("answer.txt"), os.W_OK)
    assert not os.path.exists(PROJECT)
'''


def test_grading_happens_in_a_second_sandbox(tmp_path: Path) -> None:
    evidence, references = tmp_path / "evidence", tmp_path / "references"
    (evidence / "results").mkdir(parents=True)
    (evidence / "results" / "answer.txt").write_text("42")
    (evidence / "transcript.jsonl").write_text("")
    (references / "checks").mkdir(parents=True)
    project = repr(str(Path(__file__).parent))
    (references / "checks" / "check_all.py").write_text(CHECK.replace("PROJECT", project))
    output = PROVIDER.grade(GradingJob(OWNER, evidence, references, seconds=60.0))
    assert output.exit_code == 0, output.log
    outcomes = [line for line in output.lines if '"checkpoint"' in line and '"outcome"' in line]
    assert len(outcomes) == 2, output
    assert all('"passed"' in line for line in outcomes), output


def test_a_grading_job_has_a_deadline(tmp_path: Path) -> None:
    for name in ("evidence/results", "references/checks"):
        (tmp_path / name).mkdir(parents=True)
    slow = "import time\nimport pytest\n@pytest.mark.checkpoint('C1')\ndef check_slow(evidence):\n    time.sleep(600)\n"
    (tmp_path / "references" / "checks" / "check_slow.py").write_text(slow)
    job = GradingJob(OWNER, tmp_path / "evidence", tmp_path / "references", seconds=3.0, check_seconds=600.0)
    assert PROVIDER.grade(job).timed_out


def test_check_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "missing_programs", lambda: ["nsenter"])
    with pytest.raises(SettingsError, match=r"needs nsenter\n  fix: install"):
        PROVIDER.check([])


OWNED = """
import sys, threading
from pytest_uniclaw.sandbox.base import Owner, Pulse, SandboxSpec, TurnLimits
from pytest_uniclaw.sandbox.local import LocalProvider
from pathlib import Path
with LocalProvider().open(SandboxSpec(Owner("r", "w", "a"), "runtime")) as sandbox:
    sandbox.run(["setsid", "sleep", "811.5"], detach=True)
    print(sandbox.holder.pid, flush=True)
    command = ["bash", "-c", "trap '' TERM; setsid sleep 811.5 & sleep 811.5"]
    sandbox.turn(command, environment={}, limits=TurnLimits(600, 600), pulse=Pulse, log=Path(sys.argv[1]))
"""


def commands_of_the_host() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return found


def test_nothing_outlives_a_killed_owner(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNED, str(tmp_path / "log")], cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE
    )
    assert owner.stdout is not None
    assert owner.stdout.readline().strip().isdigit()
    end = time.monotonic() + 20
    while sum("sleep 811.5" in command for command in commands_of_the_host()) < 3 and time.monotonic() < end:
        time.sleep(0.05)
    owner.kill()
    owner.wait(10)
    owner.stdout.close()
    end = time.monotonic() + 10
    while any("811.5" in command for command in commands_of_the_host()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [command for command in commands_of_the_host() if "811.5" in command]
