"""Parts of the Docker sandbox that need no engine: streams, the watchdog, the disk guard, counters of the kernel."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import EngineError, SandboxLost, SettingsError
from pytest_uniclaw.sandbox import cgroup, disk, docker, engine, fetch
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

    base_url, api_version, timeout = "http+docker://localhost", "1.41", 1.0

    def __init__(self, **answers: int) -> None:
        self.answers = {name.replace("__", "/"): answer for name, answer in answers.items()}

    def inspect_container(self, name: str) -> dict[str, Any]:
        return {"State": {"Running": True}}

    def request(self, method: str, url: str, params: dict[str, str], **_: Any) -> Any:
        answer, response = self.answers.get(params["path"], 404), requests.Response()
        response.status_code = 200 if answer > 1000 else answer
        described = base64.b64encode(json.dumps({"mode": answer}).encode()).decode()
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
