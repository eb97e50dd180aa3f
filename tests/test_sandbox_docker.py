"""The Docker sandbox against a real engine. Containers are shared where one test cannot disturb the next."""

from __future__ import annotations

import json
import os
import pickle
import re
import socket
import socketserver
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from docker.errors import DockerException

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import EngineError, InfraError, SandboxLost, SettingsError, TaskError
from pytest_uniclaw.sandbox import disk, engine, grading
from pytest_uniclaw.sandbox.base import (
    MIB,
    CollectLimits,
    Completed,
    Entry,
    GradingJob,
    Owner,
    Pulse,
    Sandbox,
    SandboxSpec,
    TurnLimits,
)
from pytest_uniclaw.sandbox.docker import DockerProvider, DockerSandbox
from pytest_uniclaw.sandbox.image_spec import BASE_IMAGE, image_tag
from pytest_uniclaw.sandbox.reaper import remove_owned

pytestmark = pytest.mark.docker

PROVIDER = DockerProvider()
RUN = f"test-{uuid.uuid4().hex[:8]}"
OWNER = Owner(RUN, f"{RUN}/gw0", "attempt")
SPEC = SandboxSpec(OWNER, "runtime", memory=512 * MIB)
LONG = TurnLimits(seconds=60.0, silence=60.0)
SECRET = "s3cret-value-7"


class Answer(socketserver.BaseRequestHandler):
    """A model API that says one thing."""

    def handle(self) -> None:
        self.request.recv(4096)
        self.request.sendall(b"HTTP/1.0 200 OK\r\n\r\nhello from the gateway\n")


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert remove_owned(RUN).containers == 0, "every container must be gone before the module ends"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("gw")
    with socketserver.ThreadingUnixStreamServer(str(folder / "agent.sock"), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder
        server.shutdown()


@pytest.fixture(scope="module")
def agent(gateway: Path) -> Iterator[Sandbox]:
    with PROVIDER.open(replace(SPEC, gateway=gateway)) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def root() -> Iterator[Sandbox]:
    with PROVIDER.open(replace(SPEC, user="root")) as sandbox:
        yield sandbox


HEADLESS = """
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(1007,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)  # exit: ends this thread alone
"""


def turn(sandbox: Sandbox, script: str, tmp_path: Path, limits: TurnLimits = LONG, pulse: Pulse | None = None,
         **environment: str) -> Completed:
    return sandbox.turn(
        ["bash", "-c", script], environment=environment, limits=limits, pulse=lambda: pulse or Pulse(),
        log=tmp_path / "turn.log",
    )


def end_or_loss(run: Callable[[], Completed]) -> str:
    """Return the ending, or the cause of a loss; which one depends on whether this account may kill on the host."""
    try:
        return run().ending
    except SandboxLost as lost:
        return lost.cause


def name_of(sandbox: Sandbox) -> str:
    assert isinstance(sandbox, DockerSandbox)
    return sandbox.container.name


def processes(sandbox: Sandbox, user: str) -> list[str]:
    done = sandbox.run(["ps", "-u", user, "-o", "stat=,args="])
    return [line for line in done.output.decode().splitlines() if not line.startswith("Z")]


def test_provider_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(PROVIDER)) == PROVIDER
    PROVIDER.check(["runtime", "grader"])
    assert PROVIDER.digest("runtime").startswith("sha256:")
    with pytest.raises(SettingsError, match="no-such:image"):
        PROVIDER.check(["runtime", "no-such:image"])
    with pytest.raises(EngineError, match="no-such:image"):
        PROVIDER.digest("no-such:image")


def test_an_image_that_is_not_built_on_ours_is_refused_with_the_way_to_build_it() -> None:
    PROVIDER.check([image_tag("runtime")])
    with pytest.raises(SettingsError, match=r"not built on ours: debian:bookworm-slim;(.|\n)*fix: build with FROM "):
        PROVIDER.check(["runtime", BASE_IMAGE])


def test_no_engine_is_a_usage_error_in_check_and_infra_elsewhere(tmp_path: Path) -> None:
    nowhere = DockerProvider(base_url=f"unix://{tmp_path}/none.sock")
    with pytest.raises(SettingsError, match="fix:"):
        nowhere.check(["runtime"])
    with pytest.raises(EngineError), nowhere.open(SPEC):
        pass


def test_missing_image_names_itself() -> None:
    with pytest.raises(EngineError, match="no-such:image"), PROVIDER.open(replace(SPEC, image="no-such:image")):
        pass


def test_isolated_reaches_the_gateway_and_nothing_else(agent: Sandbox, tmp_path: Path) -> None:
    with closing(socket.create_server(("0.0.0.0", 0))) as listener:
        port = listener.getsockname()[1]
        hosts = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
        targets = [*(h for h in hosts if ":" not in h), "172.17.0.1", "1.1.1.1"]
        probes = "\n".join(f"timeout 3 bash -c '</dev/tcp/{t}/{port}' && echo REACHED {t}" for t in targets)
        done = turn(agent, f"curl -sS http://127.0.0.1:4010/v1/models; ls /sys/class/net; {probes}; exit 0", tmp_path)
    text = done.output.decode()
    assert "hello from the gateway" in text
    assert re.search(r"^lo$", text, re.M)
    assert "eth0" not in text
    assert "REACHED" not in text
    assert "Network is unreachable" in text
    refused = turn(agent, "touch /run/uniclaw/x", tmp_path)
    assert refused.exit_code != 0


def test_executor_has_no_rights(agent: Sandbox, tmp_path: Path) -> None:
    script = "grep -E '^(CapEff|CapPrm|CapAmb|CapInh|NoNewPrivs)' /proc/self/status; id -u; echo $HOME"
    done = turn(agent, script, tmp_path)
    facts = done.output.decode().split()
    assert [facts[i + 1] for i, key in enumerate(facts) if key.startswith("Cap")] == ["0" * 16] * 4
    assert facts[facts.index("NoNewPrivs:") + 1] == "1"
    assert facts[-2:] == ["1000", "/home/agent"]
    assert turn(agent, "mv /tmp_workspace/clawbench /tmp_workspace/c", tmp_path).exit_code != 0
    assert turn(agent, "rm -rf results && mkdir results && touch new && rm new", tmp_path).exit_code == 0
    assert turn(agent, "ln -sf /etc/passwd clawbench/logs/my.log; mv clawbench/logs x", tmp_path).exit_code != 0


def test_limits_reach_the_engine(agent: Sandbox) -> None:
    assert isinstance(agent, DockerSandbox)
    record = agent.container.state()
    assert record is not None
    host = record["HostConfig"]
    assert (host["Memory"], host["MemorySwap"], host["PidsLimit"]) == (512 * MIB, 512 * MIB, 1024)
    assert host["NetworkMode"] == "none"
    assert host["CapDrop"] == ["ALL"]
    assert record["Config"]["Labels"]["uniclaw.run"] == RUN
    assert float(record["Config"]["Labels"]["uniclaw.deadline"]) > time.time()


def test_a_secret_is_seen_by_the_command_only(agent: Sandbox, tmp_path: Path) -> None:
    done = turn(agent, 'test "$KEY" = ' + SECRET, tmp_path, KEY=SECRET)
    assert done.exit_code == 0
    assert agent.run(["sh", "-c", 'test "$KEY" = ' + SECRET], environment={"KEY": SECRET}).exit_code == 0
    shown = subprocess.run(["docker", "inspect", name_of(agent)], capture_output=True, text=True, check=True).stdout
    assert SECRET not in shown
    assert b"KEY" not in agent.run(["env"]).output


def test_run_reports_output_status_and_deadline(agent: Sandbox) -> None:
    done = agent.run(["sh", "-c", "printf 'a\\377b'; echo err >&2; exit 3"], user="service")
    assert (done.ending, done.exit_code) == (Ending.EXITED, 3)
    assert b"a\xffb" in done.output
    assert b"err" in done.output
    late = agent.run(["sh", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done"], seconds=0.5)
    assert late.ending is Ending.DEADLINE
    assert late.output == b"begun\n"
    assert processes(agent, "root") == [p for p in processes(agent, "root") if "trap" not in p]
    assert agent.run(["false"]).exit_code == 1
    assert agent.run(["no-such-command"]).exit_code == 127
    assert agent.run(["sh", "-c", "exit 124"]).ending is Ending.EXITED


def test_an_executor_cannot_forge_the_end_of_its_turn(agent: Sandbox, tmp_path: Path) -> None:
    script = """
        grep -alE 'UNICLAW_(MARK|VALUE)' /proc/[0-9]*/environ 2> /dev/null | grep -v /proc/$$/
        cat /proc/$PPID/environ > /dev/null 2>&1 && echo readable
        cat /proc/$PPID/mem > /dev/null 2>&1 && echo readable; kill -9 $PPID 2> /dev/null && echo killed
        echo "$LD_LIBRARY_PATH"; echo said > /dev/stdout; exit 5
    """
    done = turn(agent, script, tmp_path, LD_LIBRARY_PATH="/home/agent/lib")
    assert (done.output, done.exit_code) == (b"/home/agent/lib\nsaid\n", 5)
    assert turn(agent, "kill -9 $$", tmp_path).exit_code == 137


def test_output_is_bounded(agent: Sandbox, tmp_path: Path) -> None:
    done = agent.run(["sh", "-c", "echo first; head -c 5000000 /dev/zero; echo; echo last"])
    assert len(done.output) < 1.1 * MIB
    assert done.output.startswith(b"first\n")
    assert done.output.endswith(b"last\n")
    assert b"bytes left out" in done.output
    big = turn(agent, "head -c 70000000 /dev/zero", tmp_path)
    assert big.exit_code == 0
    assert 64 * MIB < (tmp_path / "turn.log").stat().st_size < 65 * MIB


def test_files_go_in_and_come_out(agent: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "in"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "tool.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "deep" / "tool.sh").chmod(0o755)
    (source / "link").symlink_to("deep/tool.sh")
    (source / ("x" * 200)).write_bytes(b"long")
    (source / "名前.txt").write_text("unicode")
    private = agent.paths.service("tracker")
    agent.put([
        Entry(f"{agent.paths.sources}/tree", source=source, user="agent"),
        Entry(f"{private}/key", content=b"hidden", mode=0o600), Entry(private, mode=0o700),
        Entry(f"{agent.paths.skills}/s/SKILL.md", content=b"skill", user="agent"),
    ])
    script = """
        cat /opt/uniclaw/services/tracker/key && exit 9
        ./clawbench/sources/tree/deep/tool.sh && ./clawbench/sources/tree/link || exit 8
        touch ~/skills/s/mine ~/skills/other clawbench/sources/tree/mine || exit 7
        mkdir -p results && cd results && rm -rf -- * && cp -r ../clawbench/sources/tree .
        printf x > "$(printf 'bad\\377name')"; printf y > $'new\\nline'; printf z > Case; printf z > case
        ln -s /etc/shadow absolute; ln -s ../../.. up; mkfifo pipe; ln Case hard
        python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
        truncate -s 100M huge; mkdir empty
    """
    done = turn(agent, script, tmp_path)
    assert done.exit_code == 0
    assert done.output == b"cat: /opt/uniclaw/services/tracker/key: Permission denied\nran\nran\n"
    out = tmp_path / "out"
    manifest = agent.collect({agent.paths.results: out}, CollectLimits(file_bytes=10 * MIB))[agent.paths.results]
    kept = {record.path: record.size for record in manifest.files}
    assert kept == {
        "Case": 1, "case": 1, "bad%FFname": 1, "new%0Aline": 1, "tree/deep/tool.sh": 19, "tree/mine": 0,
        f"tree/{'x' * 200}": 4, "tree/名前.txt": 7,
    }
    reasons = {refusal.path: refusal.reason for refusal in manifest.refused}
    assert reasons.pop("huge").startswith("too large: 104857600 bytes")
    assert reasons == {
        "absolute": "symbolic link", "up": "symbolic link", "pipe": "FIFO", "hard": "hard link",
        "tree/link": "symbolic link",
    }
    assert all(p.is_file() or p.is_dir() for p in out.rglob("*"))
    assert not any(p.is_symlink() for p in out.rglob("*"))


def test_links_out_of_a_source_are_refused(agent: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "link").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="link"):
        agent.put([Entry("/tmp/x", source=tmp_path / "in")])


def test_a_folder_replaced_by_a_link_is_empty_evidence(agent: Sandbox, tmp_path: Path) -> None:
    turn(agent, "rm -rf results; ln -s /etc results; rm -rf ~/.agent; ln -s /etc ~/.agent", tmp_path)
    deep = f"{agent.paths.home}/.agent/ssl"
    wanted = {agent.paths.results: tmp_path / "r", deep: tmp_path / "d", "/nowhere": tmp_path / "n"}
    manifests = agent.collect(wanted, CollectLimits())
    assert [r.reason for r in manifests[agent.paths.results].refused] == ["symbolic link"]
    assert [(r.path, r.reason) for r in manifests[deep].refused] == [(f"{agent.paths.home}/.agent", "symbolic link")]
    assert manifests["/nowhere"].refused_total == 0
    assert not any(m.files for m in manifests.values())
    turn(agent, "rm results; mkdir results", tmp_path)


def test_what_is_no_folder_is_empty_evidence(agent: Sandbox, tmp_path: Path) -> None:
    home, limits = agent.paths.home, CollectLimits()
    turn(agent, "cd; rm -rf .agent; mkfifo .agent; touch .file; ln -s .loop .loop", tmp_path)
    wanted = {f"{home}/{name}/deep/er": tmp_path / name for name in (".agent", ".file", ".loop")}
    for path, manifest in agent.collect(wanted, limits).items():
        assert [r.path for r in manifest.refused] == [path.removesuffix("/deep/er")]
    with PROVIDER.open(replace(SPEC, user="root")) as sandbox:
        results = sandbox.paths.results
        for place in ("touch", "ln -s /tmp_workspace", "mkfifo", "ln -s /etc/passwd"):
            sandbox.run(["sh", "-c", f"rm -rf /tmp_workspace; {place} /tmp_workspace"], cwd="/")
            manifest = sandbox.collect({results: tmp_path / place}, limits)[results]
            assert [r.reason for r in manifest.refused] == ["no folder"], place


def test_full_run_directory_disk_is_infra(agent: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn(agent, "echo x > results/x", tmp_path)
    full = Path("/dev/full")
    monkeypatch.setattr(os, "fchmod", lambda descriptor, mode: os.dup2(os.open(full, os.O_WRONLY), descriptor))
    with pytest.raises(InfraError, match="No space left"):
        agent.collect({agent.paths.results: tmp_path / "out"}, CollectLimits())
    monkeypatch.undo()
    assert agent.run(["true"]).exit_code == 0


def test_a_hundred_thousand_files(agent: Sandbox, tmp_path: Path) -> None:
    turn(agent, "cd results && rm -f -- * && seq -f 'f%06.0f' 100000 | xargs touch", tmp_path)
    began = time.monotonic()
    manifest = agent.collect({agent.paths.results: tmp_path / "out"}, CollectLimits())[agent.paths.results]
    assert time.monotonic() - began < 60
    assert len(manifest.files) == 10_000
    assert manifest.refused_total == 90_000
    assert len(manifest.refused) == 1000
    turn(agent, "rm -rf results; mkdir results", tmp_path)


def test_deadline_kills_everything_but_the_services(agent: Sandbox, tmp_path: Path) -> None:
    agent.run(["sh", "-c", "exec sleep 4321"], user="service", detach=True)
    agent.run(["sh", "-c", "exec sleep 4322"], user="agent", detach=True)
    wait_for(lambda: "sleep 4322" in " ".join(processes(agent, "agent")))
    agent.keep()
    script = "trap '' TERM INT HUP; setsid sh -c \"trap '' TERM; while :; do sleep 9; done\" & (sleep 8 &); sleep 60"
    done = turn(agent, script, tmp_path, TurnLimits(seconds=1.0, silence=30.0))
    assert (done.ending, done.exit_code) == (Ending.DEADLINE, None)
    assert 1.0 <= done.seconds < 30.0
    assert [p.split(maxsplit=1)[1] for p in processes(agent, "agent")] == ["sleep 4322"]
    assert "sleep 4321" in " ".join(processes(agent, "service"))
    assert agent.vitals().running


def test_children_of_a_finished_turn_live_on(agent: Sandbox, tmp_path: Path) -> None:
    done = turn(agent, "setsid sleep 4323 & echo said", tmp_path)
    assert (done.ending, done.exit_code, done.output) == (Ending.EXITED, 0, b"said\n")
    agent.collect({agent.paths.results: tmp_path / "o"}, CollectLimits())
    assert "sleep 4323" in " ".join(processes(agent, "agent"))
    agent.sweep()
    assert "sleep 4323" not in " ".join(processes(agent, "agent"))


def test_silence_ends_a_turn_unless_a_model_call_is_in_flight(agent: Sandbox, tmp_path: Path) -> None:
    limits = TurnLimits(seconds=30.0, silence=1.0)
    assert turn(agent, "echo x; sleep 20", tmp_path, limits).ending is Ending.SILENCE
    assert turn(agent, "sleep 2", tmp_path, limits, Pulse(busy=True)).ending is Ending.EXITED
    assert turn(agent, "sleep 2", tmp_path, limits, Pulse(idle=0.2)).ending is Ending.EXITED
    assert turn(agent, "sleep 20", tmp_path, limits, Pulse(idle=5.0)).ending is Ending.SILENCE


def test_waiting_for_the_provider_extends_the_deadline(agent: Sandbox, tmp_path: Path) -> None:
    began = time.monotonic()

    def pulse() -> Pulse:
        return Pulse(busy=True, waited=100.0 + (time.monotonic() - began))

    limits = TurnLimits(seconds=1.0, silence=30.0, max_waiting=1.0)
    done = agent.turn(["sleep", "30"], environment={}, limits=limits, pulse=pulse, log=tmp_path / "log")
    assert done.ending is Ending.DEADLINE
    assert 2.0 <= done.seconds < 20.0


@pytest.mark.parametrize("user", ["agent", "root"])
def test_killing_everything_leaves_a_usable_container(
    user: str, request: pytest.FixtureRequest, tmp_path: Path,
) -> None:
    sandbox: Sandbox = request.getfixturevalue(user)
    done = turn(sandbox, "kill -9 1; kill -TERM 1; kill -9 -1; sleep 1", tmp_path, TurnLimits(20.0, 20.0))
    assert done.ending in (Ending.EXITED, Ending.DEADLINE)
    assert sandbox.run(["echo", "alive"]).output == b"alive\n"
    assert sandbox.vitals().running


def test_root_cannot_fool_the_sweep(tmp_path: Path) -> None:
    with PROVIDER.open(replace(SPEC, user="root")) as sandbox:
        script = "cp /bin/true /usr/bin/python3; cp /bin/true /opt/uniclaw/sweep.py; setsid sleep 77 & sleep 60"
        ended = end_or_loss(lambda: turn(sandbox, script, tmp_path, TurnLimits(1.0, 30.0)))
        assert ended in (Ending.DEADLINE, "killed")
        if ended is Ending.DEADLINE:
            top = subprocess.run(["docker", "top", name_of(sandbox)], capture_output=True, text=True, check=True).stdout
            assert "sleep" not in top


def test_a_process_without_its_first_thread_is_seen_and_killed_from_the_host(tmp_path: Path) -> None:
    with PROVIDER.open(SPEC) as sandbox:
        assert isinstance(sandbox, DockerSandbox)
        sweeper = sandbox._sweeper
        sandbox.put([Entry("/tmp/headless.py", content=HEADLESS.encode())])
        wait = "until grep -q '^State:.Z' /proc/$!/status; do sleep 0.02; done"
        assert turn(sandbox, f"setsid python3 /tmp/headless.py & {wait}", tmp_path).exit_code == 0
        assert [process.state[0] for process in sweeper.leftovers()] == ["Z"]
        with suppress(SandboxLost):  # this account may not kill on the host: the container goes instead
            sweeper.force()
            assert sweeper.leftovers() == []
            assert sandbox.run(["echo", "alive"]).output == b"alive\n"


def test_a_fork_bomb_is_ended(tmp_path: Path) -> None:
    with PROVIDER.open(replace(SPEC, pids=64)) as sandbox:
        bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass\n"
        sandbox.put([Entry("/tmp/bomb.py", content=bomb.encode(), mode=0o644)])
        ended = end_or_loss(lambda: turn(sandbox, "python3 /tmp/bomb.py", tmp_path, TurnLimits(2.0, 30.0)))
        assert ended in (Ending.DEADLINE, "killed")
        if ended is Ending.DEADLINE:
            assert processes(sandbox, "agent") == []


def test_memory_is_reported(tmp_path: Path) -> None:
    with PROVIDER.open(replace(SPEC, memory=64 * MIB)) as sandbox:
        assert not sandbox.vitals().out_of_memory
        ended = end_or_loss(lambda: turn(sandbox, "python3 -c 'x = bytearray(300 << 20)'", tmp_path))
        assert ended in (Ending.EXITED, "oom")
        assert sandbox.vitals().out_of_memory


def test_a_container_killed_mid_turn_is_lost(tmp_path: Path) -> None:
    with PROVIDER.open(SPEC) as sandbox:
        threading.Timer(0.7, subprocess.run, [["docker", "kill", name_of(sandbox)]], {"capture_output": True}).start()
        with pytest.raises(SandboxLost) as caught:
            turn(sandbox, "echo partial > results/x; sleep 30", tmp_path)
        assert caught.value.cause == "killed"
        assert not sandbox.vitals().running
        with pytest.raises(SandboxLost):
            sandbox.run(["true"])
        manifest = sandbox.collect({sandbox.paths.results: tmp_path / "out"}, CollectLimits())[sandbox.paths.results]
        assert [record.path for record in manifest.files] == ["x"]


def test_a_container_that_was_removed_is_no_doing_of_the_executors(tmp_path: Path) -> None:
    owner = replace(OWNER, worker=f"{RUN}/removed")
    with PROVIDER.open(replace(SPEC, owner=owner)) as sandbox:
        sandbox.run(["true"])
        threading.Timer(0.5, remove_owned, [RUN, owner.worker]).start()
        with pytest.raises(EngineError, match="removed from outside"):
            turn(sandbox, "sleep 30", tmp_path)
        wait_for(lambda: isinstance(sandbox, DockerSandbox) and sandbox.container.state() is None)
        with pytest.raises(EngineError, match="removed from outside"):
            sandbox.collect({sandbox.paths.results: tmp_path / "out"}, CollectLimits())


def test_filling_the_disk_ends_the_attempt(tmp_path: Path) -> None:
    guarded = DockerProvider(disk_floor=1 << 60)
    with guarded.open(SPEC) as sandbox:
        script = "head -c 300M /dev/zero > results/big; sleep 30"
        with pytest.raises(SandboxLost) as caught:
            turn(sandbox, f"{script}", tmp_path)
        assert caught.value.cause == "disk"


def broken(*_: object, **__: object) -> None:
    raise DockerException("no space left on device")


def test_a_disk_that_fills_after_the_turn_is_the_executors_failure(
    agent: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(agent, DockerSandbox)
    turn(agent, "true", tmp_path)
    guard, api, wanted = agent._disk, agent.container.api, {agent.paths.results: tmp_path / "out"}
    wrote = {name_of(agent): 500 * MIB}
    monkeypatch.setattr(disk, "written_bytes", lambda container: wrote)
    with monkeypatch.context() as while_collecting:
        fill = lambda *_: monkeypatch.setattr(guard, "floor", 1 << 62)  # noqa: E731
        while_collecting.setattr("pytest_uniclaw.sandbox.docker.fetch", fill)
        with pytest.raises(SandboxLost, match="filled the disk"):
            agent.collect(wanted, CollectLimits())
    for call in (lambda: agent.collect(wanted, CollectLimits()), lambda: turn(agent, "true", tmp_path)):
        with pytest.raises(SandboxLost, match="filled the disk"):
            call()
    agent.put([Entry("/tmp/x", content=b"x")])
    assert agent.run(["cat", "/tmp/x"]).output == b"x"
    monkeypatch.setattr(api, "put_archive", broken)
    monkeypatch.setattr(api, "exec_create", broken)
    for call in (lambda: agent.put([Entry("/tmp/x", content=b"x")]), lambda: agent.run(["true"])):
        wrote.pop("another", None)
        with pytest.raises(SandboxLost, match="filled the disk"):
            call()
        wrote["another"] = 5000 * MIB
        with pytest.raises(EngineError, match="no space left"):
            call()


@pytest.mark.parametrize("place", ["touch", "mkfifo", "ln -s /nowhere", "ln -s /etc/passwd", "ln -s /opt/uniclaw"])
def test_a_folder_that_root_made_impassable_is_its_own_failure(place: str, tmp_path: Path) -> None:
    with PROVIDER.open(replace(SPEC, user="root")) as sandbox:
        message = Entry(f"{sandbox.paths.private}/message.txt", content=b"hello")
        script = f"rm -rf /opt/uniclaw; {place} /opt/uniclaw"
        sandbox.run(["sh", "-c", f"cp -r /opt/uniclaw /kept; {script}"])
        with pytest.raises(EngineError, match="could not write files"):  # no turn has begun: it is not the executor's
            sandbox.put([message])
        sandbox.run(["sh", "-c", "rm -rf /opt/uniclaw; mv /kept /opt/uniclaw"])
        assert turn(sandbox, f"echo done > results/x; {script}", tmp_path).exit_code == 0
        with pytest.raises(SandboxLost, match=r"/opt/uniclaw.* was made impassable") as caught:
            sandbox.put([message])
        assert caught.value.cause == "killed"
        wait_for(lambda: not sandbox.vitals().running)
        manifest = sandbox.collect({sandbox.paths.results: tmp_path / "out"}, CollectLimits())[sandbox.paths.results]
        assert [record.path for record in manifest.files] == ["x"]


@pytest.mark.parametrize("trap", ["mkfifo {}", "mkfifo /trap; ln -s /trap {}", "truncate -s 1T {}"])
@pytest.mark.parametrize("file", ["/etc/passwd", "/etc/group"])
def test_root_that_sets_the_engine_a_trap_costs_itself_its_sandbox(file: str, trap: str, tmp_path: Path) -> None:
    with PROVIDER.open(replace(SPEC, user="root")) as sandbox:
        assert turn(sandbox, f"echo x > results/x; rm {file}; {trap.format(file)}", tmp_path).exit_code == 0
        wanted = {sandbox.paths.results: tmp_path / "out"}
        (manifest,) = sandbox.collect(wanted, CollectLimits()).values()
        assert ([refusal.path for refusal in manifest.refused], manifest.files) == ([file], ())
        for call in (lambda: turn(sandbox, "true", tmp_path), lambda: sandbox.run(["true"])):
            with pytest.raises(SandboxLost, match=f"{file} is no small regular file any more") as caught:
                call()
            assert caught.value.cause == "killed"
        wait_for(lambda: not sandbox.vitals().running)
        assert sandbox.collect(wanted, CollectLimits()) == {sandbox.paths.results: manifest}


def test_internet_sandboxes_cannot_reach_each_other(tmp_path: Path) -> None:
    owner = replace(OWNER, run=f"{RUN}-net")
    spec = replace(SPEC, owner=owner, network="internet", environment={"http_proxy": "http://host.docker.internal:9"})
    with PROVIDER.open(spec) as one, PROVIDER.open(spec) as two:
        one.run(["python3", "-m", "http.server", "8000"], detach=True)
        wait_for(lambda: one.run(["curl", "-sf", "--noproxy", "*", "http://127.0.0.1:8000/"]).exit_code == 0)
        address = one.run(["hostname", "-I"]).output.decode().split()[0]
        done = two.run(["curl", "-sS", "--noproxy", "*", "--max-time", "3", f"http://{address}:8000/"])
        assert done.exit_code == 28
        hosts = two.run(["getent", "hosts", "host.docker.internal", "match-stream.local"]).output.decode()
        assert len(hosts.splitlines()) == 2
        assert b"http_proxy=http://host.docker.internal:9" in two.run(["env"]).output
    assert remove_owned(owner.run).networks == 1


class Proxy:
    """A TCP relay in front of the engine's socket that can be cut, or made to swallow what it gets."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        self.stalled = False
        self.url = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            upstream = socket.socket(socket.AF_UNIX)
            upstream.connect("/var/run/docker.sock")
            self.connections += [client, upstream]
            for source, target in ((client, upstream), (upstream, client)):
                threading.Thread(target=self.relay, args=(source, target), daemon=True).start()

    def relay(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                if not self.stalled:
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def cut(self) -> None:
        for connection in (self.listener, *self.connections):
            with closing(connection), suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


PROXIED = replace(OWNER, worker=f"{RUN}/proxied")


@contextmanager
def through_a_proxy() -> Iterator[tuple[DockerProvider, Proxy]]:
    """Yield a provider behind a proxy that is cut at the end; what was made through it is removed past it."""
    proxy = Proxy()
    try:
        yield DockerProvider(base_url=proxy.url), proxy
    finally:
        proxy.cut()
        remove_owned(RUN, PROXIED.worker)


def test_an_engine_lost_mid_turn_is_infra(tmp_path: Path) -> None:
    with through_a_proxy() as (provider, proxy), provider.open(replace(SPEC, owner=PROXIED)) as sandbox:
        sandbox.run(["true"])
        threading.Timer(1.0, proxy.cut).start()
        with pytest.raises(EngineError):
            turn(sandbox, "sleep 30", tmp_path)
        calls = (sandbox.vitals, sandbox.sweep, sandbox.keep, lambda: sandbox.run(["true"]), lambda: sandbox.put([]))
        for call in calls:
            with pytest.raises(EngineError):
                call()
        with pytest.raises(EngineError):
            sandbox.collect({sandbox.paths.results: tmp_path / "x"}, CollectLimits())


def test_an_engine_that_stops_answering_is_infra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr("pytest_uniclaw.sandbox.exec.HEARTBEAT_SECONDS", 1.0)
    spec = replace(SPEC, owner=PROXIED)
    with through_a_proxy() as (provider, proxy), provider.open(spec) as sandbox:
        sandbox.run(["true"])
        threading.Timer(0.5, setattr, [proxy, "stalled", True]).start()
        began = time.monotonic()
        with pytest.raises(EngineError):
            turn(sandbox, "sleep 50", tmp_path)
        assert time.monotonic() - began < 30


HARNESS = """
import json, os, pathlib, sys, time
root = pathlib.Path("/grading")
job = json.loads((root / "job.json").read_text())
mode = job["only"][0]
if mode == "hang":
    print("hanging", flush=True)
    (root / "out/judgements.jsonl").write_text('{"early": 1}\\n')
    time.sleep(600)
if mode == "eat":
    x = bytearray(400 << 20)
facts = {
    "uid": os.getuid(), "evidence": (root / "evidence/results/a.txt").read_text(),
    "reference": (root / "references/r.txt").read_text(), "seconds": job["check_seconds"],
    "caps": [l for l in open("/proc/self/status") if l.startswith("CapEff")][0].split()[1],
    "net": sorted(os.listdir("/sys/class/net")),
    "writable": [p for p in ("evidence/results", "references", "harness", "") if os.access(root / p, os.W_OK)],
}
(root / "out/judgements.jsonl").write_text(json.dumps(facts) + "\\n" + "x" * 100000 + "\\n")
print("graded")
sys.exit(4)
"""


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GradingJob:
    """A job graded by a small harness of this test."""
    for name in ("harness", "evidence/results", "references"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "harness" / "run_checks.py").write_text(HARNESS)
    (tmp_path / "evidence" / "results" / "a.txt").write_text("deliverable")
    (tmp_path / "references" / "r.txt").write_text("answer")
    monkeypatch.setattr(grading, "HARNESS", tmp_path / "harness")
    return GradingJob(
        OWNER, tmp_path / "evidence", tmp_path / "references", only=("facts",), check_seconds=7.0, memory=128 * MIB,
    )


def test_grading_sees_evidence_and_nothing_else(job: GradingJob) -> None:
    output = PROVIDER.grade(job)
    assert (output.exit_code, output.timed_out) == (4, False)
    assert "graded" in output.log
    assert json.loads(output.lines[0]) == {
        "uid": 1001, "evidence": "deliverable", "reference": "answer", "seconds": 7.0, "caps": "0" * 16, "net": ["lo"],
        "writable": [],
    }
    assert len(output.lines[1]) == grading.LINE_CHARACTERS


def test_grading_that_hangs_or_eats_memory_is_reported(job: GradingJob) -> None:
    hung = PROVIDER.grade(replace(job, only=("hang",), seconds=2.0))
    assert hung.timed_out
    assert hung.exit_code is None
    assert hung.lines == ('{"early": 1}',)
    assert "hanging" in hung.log
    fat = PROVIDER.grade(replace(job, only=("eat",)))
    assert (fat.exit_code, fat.timed_out, fat.lines) == (137, False, ())
    assert "ran out of its 128 MiB" in fat.log


def test_grading_with_a_lost_engine_is_infra(job: GradingJob) -> None:
    with through_a_proxy() as (provider, proxy):
        threading.Timer(1.5, proxy.cut).start()
        with pytest.raises(EngineError):
            provider.grade(replace(job, owner=PROXIED, only=("hang",), seconds=60.0))


def test_a_container_is_removed_when_its_creation_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    from docker import APIClient

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(APIClient, "start", interrupted)
    owner = replace(OWNER, worker=f"{RUN}/interrupted")
    with pytest.raises(KeyboardInterrupt), PROVIDER.open(replace(SPEC, owner=owner)):
        pass
    monkeypatch.undo()
    assert remove_owned(RUN, owner.worker).containers == 0


def wait_for(condition: object, seconds: float = 10.0) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.05)


def test_names_are_unique_and_safe() -> None:
    assert engine.new_name("r/../x y") != engine.new_name("r/../x y")
    assert re.fullmatch(r"uniclaw-r\.\.xy-[0-9a-f]{12}", engine.new_name("r/../x y"))
