"""Parts of the Docker sandbox that need no engine: streams, the watchdog, the disk guard, counters of the kernel."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import socket
import subprocess
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import EngineError, SandboxLost, SettingsError
from pytest_uniclaw.sandbox import cgroup, disk, docker, engine, exec, fetch, freeze, relay
from pytest_uniclaw.sandbox.base import MIB, CollectLimits, Pulse, TurnLimits
from pytest_uniclaw.sandbox.image_spec import IMAGE_LABEL
from pytest_uniclaw.sandbox.stream import HEADER, MARK_VARIABLE, Ended, Frames, HeadAndTail, switched
from pytest_uniclaw.sandbox.turn import Watchdog


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    out = []
    for size in sizes:
        out.append(data[:size])
        data = data[size:]
    return [*out, data]


SIZES = st.lists(st.integers(1, 20), max_size=60)


@given(payloads=st.lists(st.binary(max_size=30), max_size=10), sizes=SIZES)
def test_frames_are_joined_however_they_are_cut(payloads: list[bytes], sizes: list[int]) -> None:
    frames = Frames()
    data = b"".join(HEADER.pack(1 + n % 2, len(p)) + p for n, p in enumerate(payloads))
    assert b"".join(frames.feed(piece) for piece in cut(data, sizes)) == b"".join(payloads)


@given(output=st.binary(max_size=200), code=st.integers(0, 255), sizes=SIZES, after=st.binary(max_size=20))
def test_the_end_is_found_however_it_is_cut(output: bytes, code: int, sizes: list[int], after: bytes) -> None:
    ended = Ended()
    data = output + f"\n{ended.mark} {code}\n".encode() + after
    got = b""
    for piece in cut(data, sizes):
        got += ended.feed(piece) if ended.code is None else b""
    assert (got, ended.code) == (output, code)


@given(output=st.binary(max_size=200), sizes=SIZES)
def test_output_without_an_end_is_whole(output: bytes, sizes: list[int]) -> None:
    ended = Ended()
    assert b"".join(ended.feed(piece) for piece in cut(output, sizes)) + ended.rest() == output
    assert ended.code is None


@pytest.mark.parametrize(
    ("script", "output", "code"),
    [("echo a; echo b >&2; exit 7", b"a\nb\n", 7), ("kill -9 $$", b"", 137), (f"echo ${MARK_VARIABLE}", b"\n", 0)],
)
def test_a_wrapped_command_says_how_it_ended(script: str, output: bytes, code: int) -> None:
    ended = Ended()
    command = ended.wrap(["/bin/sh", "-c", script])
    environment = {MARK_VARIABLE: ended.mark, "PATH": "/bin:/usr/bin"}
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert (ended.feed(done.stdout), ended.code) == (output, code)


@pytest.mark.parametrize("number", [b"9" * 5000, b"999", b"256", b"0001", b"", b"-1", b"1e1", "٣".encode(), b"1 "])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_line_that_tells_no_exit_status_is_output(number: bytes, size: int) -> None:
    ended = Ended()
    forged = f"said\n{ended.mark} ".encode() + number + b"\nmore"
    data = forged + f"\n{ended.mark} 7\n".encode()
    output = b"".join(ended.feed(data[at:at + size]) for at in range(0, len(data), size))
    assert (output, ended.code) == (forged, 7)
    assert len(ended.held) == 0


def test_what_may_be_the_line_is_held_back_and_no_more() -> None:
    ended = Ended()
    assert ended.feed(ended.needle + b"255") == b""
    assert ended.feed(b"5" * 100_000) == ended.needle + b"255" + b"5" * 100_000
    assert (ended.held, ended.code) == (b"", None)


def test_an_accounts_environment_does_not_act_on_roots_programs() -> None:
    values = {"LD_PRELOAD": "/tmp/mine.so", "PATH": "/bin:/usr/bin", "A": "it's $HOME\n`id`", "a.b": "dotted"}
    command, variables = switched(["/usr/bin/env", "-0"], values, "1000")
    assert sorted(variables.values()) == sorted(values.values())
    assert values.keys() & variables.keys() == {"a.b"}
    assert not [word for word in command for value in values.values() if value in word]
    own = command[command.index("1000") + 1:]
    done = subprocess.run(own, capture_output=True, env=variables, check=True)
    shown = {line.partition("=")[0]: line.partition("=")[2] for line in done.stdout.decode().split("\0")}
    assert {name: shown.get(name) for name in ("LD_PRELOAD", "PATH", "A")} == {n: values[n] for n in list(values)[:3]}
    assert not [name for name in shown if name.startswith("UNICLAW_")]


class Archives:
    """An engine that answers for paths as told: a status, or the mode of what is there."""

    base_url, api_version, timeout, size = "http+docker://localhost", "1.41", 1.0, 1000

    def __init__(self, **answers: int) -> None:
        self.answers = {name.replace("__", "/"): answer for name, answer in answers.items()}

    def inspect_container(self, name: str) -> dict[str, Any]:
        return {"State": {"Running": True}}

    def request(self, method: str, url: str, params: dict[str, str], **_: Any) -> Any:
        answer, response = self.answers.get(params["path"], 404), requests.Response()
        response.status_code = 200 if answer > 1000 else answer
        described = base64.b64encode(json.dumps({"mode": answer, "size": self.size}).encode()).decode()
        response.headers["X-Docker-Container-Path-Stat"] = described
        response.raw = io.BytesIO()
        return response

    def _raise_for_status(self, response: requests.Response) -> None:
        response.raise_for_status()


FOLDER, LINK, FILE = fetch.FOLDER_BIT, fetch.SYMLINK_BIT, 0o100644


@pytest.mark.parametrize(
    ("answers", "refused"),
    [
        ({"__": FOLDER, "__w": FILE, "__w__r": 500}, ("/w", "no folder")),
        ({"__": FOLDER, "__w": 500, "__w__r": 500}, ("/w", "no folder")),
        ({"__": FOLDER, "__w": LINK, "__w__r": 500}, ("/w/r", "no folder")),
        ({"__": FOLDER, "__w": FOLDER, "__w__r": LINK, "__w__r__deep": 500}, ("/w/r", "symbolic link")),
        ({"__": FOLDER, "__w": FOLDER, "__w__r": 500, "__w__r__deep": 500}, ("/w/r", "no folder")),
        ({"__": FOLDER, "__w": FOLDER, "__w__r": FILE, "__w__r__deep": 500}, ("/w/r", "no folder")),
        ({"__": FOLDER, "__w": FOLDER}, None),
    ],
)
def test_what_stands_in_a_path_is_nothing_there(
    tmp_path: Path, answers: dict[str, int], refused: tuple[str, str] | None,
) -> None:
    container = engine.Container(Archives(**answers), "it")  # type: ignore[arg-type]
    deep = "__w__r__deep" in answers
    path, above = ("/w/r/deep", ["/w/r"]) if deep else ("/w/r", [])
    manifest = fetch.fetch(container, path, tmp_path / "out", CollectLimits(), time.monotonic() + 9, above)
    assert [(one.path, one.reason) for one in manifest.refused] == ([refused] if refused else [])
    assert manifest.refused_total == len(manifest.refused)


@pytest.mark.parametrize("answers", [{"__": 500, "__w": 500, "__w__r": 500}, {"__w": 500, "__w__r": 500}])
def test_an_engine_that_cannot_read_the_container_is_infra(tmp_path: Path, answers: dict[str, int]) -> None:
    container = engine.Container(Archives(**answers), "it")  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="could not read /w/r"):
        fetch.fetch(container, "/w/r", tmp_path / "out", CollectLimits(), time.monotonic() + 9)


def test_what_stands_behind_a_link_that_leads_nowhere_cannot_be_made() -> None:
    nowhere: Any = SimpleNamespace(api=Archives(__=FOLDER, __w=LINK), name="it")
    assert fetch.obstacle(nowhere, "/w/r") == "/w"
    somewhere: Any = SimpleNamespace(api=Archives(**{"__": FOLDER, "__w": LINK, "__w__.": FOLDER}), name="it")
    assert fetch.obstacle(somewhere, "/w/r") is None


FIFO = 1 << 25


@pytest.mark.parametrize(
    ("passwd", "group", "size", "trap"),
    [
        (FILE, FILE, 1000, None), (404, 404, 1000, None), (FILE, FIFO, 1000, "/etc/group"),
        (LINK, FILE, 1000, "/etc/passwd"), (FILE, FILE, 1 << 40, "/etc/passwd"), (FILE, 500, 1000, "/etc/group"),
    ],
)
def test_an_account_file_that_the_engine_could_not_read_is_a_trap(
    passwd: int, group: int, size: int, trap: str | None, monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Archives, "size", size)
    archives: Any = Archives(__etc__passwd=passwd, __etc__group=group)
    found = fetch.account_trap(engine.Container(archives, "it"))
    assert (found and found.path) == trap


@given(chunks=st.lists(st.binary(max_size=50), max_size=40))
def test_head_and_tail_keep_both_ends(chunks: list[bytes]) -> None:
    kept = HeadAndTail(limit=40)
    for chunk in chunks:
        kept.write(chunk)
    whole, value = b"".join(chunks), kept.value()
    assert kept.total == len(whole)
    if len(whole) <= 40:
        assert value == whole
    else:
        assert value.startswith(whole[:20])
        assert value.endswith(whole[-20:])
        assert b"[... %d bytes left out ...]" % (len(whole) - 40) in value


LIMITS = TurnLimits(seconds=100.0, silence=30.0, max_waiting=50.0)


@pytest.mark.parametrize(
    ("now", "last_output", "pulse", "ending"),
    [
        (99.0, 99.0, Pulse(), None),
        (100.0, 99.0, Pulse(), Ending.DEADLINE),
        (119.0, 118.0, Pulse(waited=27.0), None),  # 20 of the 27 seconds were waited in this turn
        (120.0, 119.0, Pulse(waited=27.0), Ending.DEADLINE),
        (149.0, 148.0, Pulse(waited=900.0), None),
        (151.0, 150.0, Pulse(waited=900.0), Ending.DEADLINE),
        (29.0, 0.0, Pulse(), None),
        (30.0, 0.0, Pulse(), Ending.SILENCE),
        (60.0, 0.0, Pulse(busy=True), None),
        (60.0, 0.0, Pulse(idle=29.0), None),
        (60.0, 0.0, Pulse(idle=30.0), Ending.SILENCE),
        (60.0, 40.0, Pulse(idle=60.0), None),
    ],
)
def test_the_watchdog(now: float, last_output: float, pulse: Pulse, ending: Ending | None) -> None:
    watchdog = Watchdog(LIMITS, lambda: pulse, lambda: None, began=0.0, waited_before=7.0)
    assert watchdog(now, last_output) is ending


class FakeEngine:
    """An engine that knows the writable layers of two containers."""

    base_url = "http+docker://localhost"

    def __init__(self, mine: int, other: int) -> None:
        self.sizes = {"mine": mine, "other": other}

    def containers(self, **_: Any) -> list[dict[str, Any]]:
        return [{"Names": [f"/{name}"], "SizeRw": size} for name, size in self.sizes.items()]


@pytest.mark.parametrize(
    ("mine", "other", "error"),
    [
        (500 * MIB, 100 * MIB, SandboxLost), (300 * MIB, 500 * MIB, SandboxLost), (100 * MIB, 500 * MIB, None),
        (0, 500 * MIB, None), (MIB, MIB, EngineError),
    ],
)
def test_the_disk_guard_blames_who_wrote(mine: int, other: int, error: type[Exception] | None) -> None:
    container: Any = SimpleNamespace(api=FakeEngine(mine, other), name="mine")
    guard = disk.DiskGuard(container, Path("/"), floor=1 << 62)
    if error is None:
        guard.check()
    else:
        with pytest.raises(error, match="MiB"):
            guard.check()
    disk.DiskGuard(container, Path("/"), floor=0).check()
    disk.DiskGuard(container, None, floor=1 << 62).check()


@pytest.mark.parametrize(
    ("line", "file", "text", "kills"),
    [
        ("5:memory:/docker/ID", "memory/docker/ID/memory.oom_control", "under_oom 0\noom_kill 3\n", 3),
        ("3:cpu,memory:/docker/ID", "memory/docker/ID/memory.oom_control", "oom_kill 0\n", 0),
        ("0::/system.slice/docker-ID.scope", "system.slice/docker-ID.scope/memory.events", "oom 9\noom_kill 2\n", 2),
        ("0::/docker/another", "docker/another/memory.events", "oom_kill 2\n", None),
        ("5:memory:/docker/ID", "elsewhere", "oom_kill 2\n", None),
    ],
)
def test_oom_kills_are_read_from_either_cgroup_version(
    line: str, file: str, text: str, kills: int | None, tmp_path: Path,
) -> None:
    (tmp_path / "proc/42").mkdir(parents=True)
    (tmp_path / "proc/42/cgroup").write_text(f"12:freezer:/docker/ID\n{line}\n")
    (tmp_path / "cg" / file).parent.mkdir(parents=True)
    (tmp_path / "cg" / file).write_text(text)
    assert cgroup.oom_kills("ID", 42, tmp_path / "cg", tmp_path / "proc") == kills
    assert cgroup.oom_kills("ID", 0, tmp_path / "cg", tmp_path / "proc") is None


def place(proc: Path, pid: int, *threads: str) -> None:
    """Write the cgroup files of a process; the first thread's number is its own."""
    for number, path in enumerate(threads, pid):
        (proc / f"{pid}/task/{number}").mkdir(parents=True)
        (proc / f"{pid}/task/{number}/cgroup").write_text(f"5:memory:{path}\n")


def test_a_process_is_in_a_container_while_one_thread_is(tmp_path: Path) -> None:
    place(tmp_path, 11, "/", "/docker/ID")
    place(tmp_path, 12, "/docker/another")
    assert cgroup.holds("ID", 11, tmp_path)
    assert not cgroup.holds("ID", 12, tmp_path)
    assert not cgroup.holds("ID", 13, tmp_path)


@pytest.mark.parametrize(
    ("here", "dying", "killed"),
    [(True, ("/docker/ID",), [21]), (True, ("/",), []), (True, (), []), (False, ("/docker/ID",), None)],
)
def test_a_process_that_ends_by_itself_costs_no_sandbox(
    here: bool, dying: tuple[str, ...], killed: list[int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    place(tmp_path, 20, "/docker/ID" if here else "/")
    place(tmp_path, 21, *dying)
    guardian, child = (freeze.HostProcess(pid, 1, 20, 0, "S", "Mon") for pid in (20, 21))
    lists = iter([[guardian, child], [guardian]])
    record = {"Id": "ID", "State": {"Pid": 20}, "HostConfig": {"PidsLimit": 512}}
    api = SimpleNamespace(inspect_container=lambda name: record, kill=lambda name, signal: None)
    container: Any = SimpleNamespace(api=api, name="it", calls=lambda what: nullcontext())
    done: list[int] = []
    monkeypatch.setattr(freeze, "host_processes", lambda _: next(lists))
    monkeypatch.setattr(freeze.cgroup, "holds", partial(cgroup.holds, processes=tmp_path))
    monkeypatch.setattr(freeze.os, "kill", lambda pid, signal: done.append(pid))
    sweeper = freeze.Sweeper(container, None, run=lambda *_: pytest.fail("nothing is run inside"))
    monkeypatch.setattr(sweeper, "limit_processes", lambda number: None)
    if killed is None:
        with pytest.raises(SandboxLost, match="could not be stopped"):
            sweeper.force()
        assert done == []
    else:
        sweeper.force()
        assert done == killed


@pytest.mark.parametrize(("state", "lives"), [("Ss", True), ("Zl", True), ("Z", False), ("Z+", False), ("X", False)])
def test_a_zombie_lives_while_it_has_other_threads(state: str, lives: bool) -> None:
    assert freeze.HostProcess(7, 1, 7, 0, state, "Mon").lives() == lives


@pytest.mark.parametrize("runs", [True, False])
def test_a_stream_that_breaks_under_a_living_command_is_infra(runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exec, "SETTLE_SECONDS", 0.0)
    api = SimpleNamespace(exec_inspect=lambda _: {"Running": runs, "ExitCode": None})
    container: Any = SimpleNamespace(api=api, calls=lambda what: nullcontext(), death=lambda: None)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        running = exec.Running(exec.Command(container, "id", Ended()), ours, b"")
        theirs.close()
        assert exec.follow(running, lambda data: None, lambda now, last: None, 60.0) is Ending.EXITED
        if not runs:
            assert running.exit_code() is None
            return
        with pytest.raises(EngineError, match="broke while it ran"):
            running.exit_code()


def test_an_image_built_on_ours_is_known_by_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    records: dict[str, Any] = {
        "mine:1": {"Config": {"Labels": {IMAGE_LABEL: "runtime", "x": "y"}}},
        "bare:1": {"Config": {"Labels": None}},
        "imported:1": {"Config": None},
    }
    engine = SimpleNamespace(info=lambda: {"CgroupDriver": "systemd"})
    monkeypatch.setattr(docker, "connected", lambda _: nullcontext(engine))
    monkeypatch.setattr(docker, "image_record", lambda _, reference: records[reference])
    provider = docker.DockerProvider()
    provider.check(["mine:1"])
    with pytest.raises(SettingsError, match="not built on ours: bare:1, imported:1;"):
        provider.check(["mine:1", "bare:1", "imported:1"])


def test_an_engine_that_cannot_freeze_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SimpleNamespace(info=lambda: {"CgroupDriver": "none"})
    monkeypatch.setattr(docker, "connected", lambda _: nullcontext(engine))
    with pytest.raises(SettingsError, match=r"this engine has no cgroups.*\n  fix: boot with cgroup v2"):
        docker.DockerProvider().check([])


@pytest.mark.parametrize(
    ("platform", "base_url", "system", "needed"),
    [
        ("linux", "http+docker://localhost", "Debian GNU/Linux 12", False),
        ("linux", "http+docker://localhost", "Docker Desktop", True),
        ("linux", "http+docker://ssh", "Debian GNU/Linux 12", True),
        ("linux", "https://engine.example:2376", "Debian GNU/Linux 12", True),
        ("darwin", "http+docker://localhost", "Ubuntu 24.04 LTS", True),
    ],
)
def test_a_relay_is_needed_where_sockets_of_this_host_cannot_be_mounted(
    platform: str, base_url: str, system: str, needed: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = SimpleNamespace(base_url=base_url, info=lambda: {"OperatingSystem": system})
    monkeypatch.setattr(relay, "connected", lambda _: nullcontext(client))
    monkeypatch.setattr(relay.sys, "platform", platform)
    assert relay.needs_relay() == needed


@pytest.fixture
def contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker configuration with the contexts ``plain`` (the current one) and ``secure`` (with TLS)."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"currentContext": "plain"}))
    for name in ("plain", "secure"):
        number = hashlib.sha256(name.encode()).hexdigest()
        meta = tmp_path / "contexts" / "meta" / number
        meta.mkdir(parents=True)
        host = {"Host": f"tcp://{name}.example:2376", "SkipTLSVerify": False}
        meta.joinpath("meta.json").write_text(json.dumps({"Name": name, "Metadata": {}, "Endpoints": {"docker": host}}))
    tls = tmp_path / "contexts" / "tls" / number / "docker"
    tls.mkdir(parents=True)
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tls / name).touch()
    return tls


@pytest.mark.parametrize(
    ("variables", "base_url", "secured", "elsewhere"),
    [
        ({}, "tcp://plain.example:2376", False, True),
        ({"DOCKER_CONTEXT": "secure"}, "tcp://secure.example:2376", True, True),
        ({"DOCKER_CONTEXT": "default"}, "unix:///var/run/docker.sock", False, False),
        ({"DOCKER_CONTEXT": "secure", "DOCKER_HOST": "tcp://host.example:1"}, "tcp://host.example:1", False, True),
    ],
)
def test_the_engine_is_the_docker_commands(
    variables: dict[str, str], base_url: str, secured: bool, elsewhere: bool, contexts: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    asked: list[dict[str, Any]] = []
    client = SimpleNamespace(api_version="1.41")
    monkeypatch.setattr(engine, "_VERSIONS", {})
    monkeypatch.setattr(engine, "knock", lambda address: None)
    monkeypatch.setattr("docker.APIClient", lambda **settings: asked.append(settings) or client)
    engine.connect(None)
    assert asked[0]["base_url"] == base_url
    assert ("tls" in asked[0] and asked[0]["tls"].ca_cert == str(contexts / "ca.pem")) == secured
    assert engine.named_elsewhere() == elsewhere


def test_a_context_that_is_not_there_is_no_engine(contexts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with pytest.raises(EngineError, match="context 'gone' not found"), engine.connected(None):
        pass
    assert engine.named_elsewhere()
