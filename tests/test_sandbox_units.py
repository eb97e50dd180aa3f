"""Parts of the Docker sandbox that need no engine: streams, the watchdog, the disk guard, counters of the kernel."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import EngineError, SandboxLost
from pytest_uniclaw.sandbox import cgroup, disk
from pytest_uniclaw.sandbox.base import MIB, Pulse, TurnLimits
from pytest_uniclaw.sandbox.stream import HEADER, MARK_VARIABLE, Ended, Frames, HeadAndTail
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
