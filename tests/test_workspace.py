"""What a workspace believes of its tools' output, what may go into it, and the local one, made of namespaces."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.errors import SandboxLost, SettingsError
from pytest_uniclaw.sandbox import workspace
from pytest_uniclaw.sandbox.base import Owner, Workspace, WorkspaceJob
from pytest_uniclaw.sandbox.local import LocalProvider
from pytest_uniclaw.sandbox.local_workspace import LocalWorkspace
from pytest_uniclaw.sandbox.stream import HeadAndTail

pytestmark = pytest.mark.processes

OWNER = Owner("run", "main", "attempt")
SOUND = {"text": "t", "images": [{"mime": "image/png", "data": "AA=="}], "next_offset": 7, "error": None}


def read(value: Any, code: int | None = 0) -> dict[str, Any]:
    output = HeadAndTail(workspace.OUTPUT_BYTES)
    output.write(value if isinstance(value, bytes) else json.dumps(value).encode())
    return workspace.read_answer(output, code)


def test_a_sound_answer_is_passed_on_without_what_is_not_known() -> None:
    assert read({**SOUND, "extra": 1}) == SOUND
    found = {"text": "", "images": [], "next_offset": None, "error": "e", "found": [True, False]}
    assert read(found) == found


@pytest.mark.parametrize(
    "value",
    [
        [], {}, 1, b"", b"{", b"\xff", {**SOUND, "text": None}, {**SOUND, "images": None}, {**SOUND, "images": [1]},
        {**SOUND, "images": [{"mime": "x"}]}, {**SOUND, "images": [{"mime": "x", "data": 1}]},
        {**SOUND, "next_offset": "1"}, {**SOUND, "next_offset": True}, {**SOUND, "error": 5}, {**SOUND, "found": [1]},
        {**SOUND, "found": "x"},
    ],
)  # fmt: skip
def test_nonsense_becomes_an_error(value: Any) -> None:
    answer = read(value)
    assert answer == {
        "text": "", "images": [], "next_offset": None, "error": "the tool gave no usable answer (exit status 0)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text"), [(None, "not end in time"), (124, "not end in time"), (137, "was killed"), (1, "status 1")]
)
def test_how_a_tool_failed_is_told(code: int | None, text: str) -> None:
    assert text in read(SOUND, code)["error"]


@pytest.mark.parametrize("name", ["", "/", ".", "..", "a/../b", "/abs", "a\0"])
def test_a_name_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a name in a workspace"):
        workspace.payload(WorkspaceJob(OWNER, {name: tmp_path}))


def test_everything_that_goes_in_is_roots_and_read_only(tmp_path: Path) -> None:
    entries = workspace.payload(WorkspaceJob(OWNER, {"evidence/results": tmp_path, "./task": tmp_path}))
    assert {entry.user for entry in entries} == {"root"}
    assert all(entry.mode & 0o022 == 0 for entry in entries)
    paths = [entry.path for entry in entries]
    assert {"/workspace/evidence/results", "/workspace/task", "/opt/uniclaw/harness/tools.py"} <= set(paths)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    provider = LocalProvider()
    try:
        provider.check([])
    except SettingsError as error:
        pytest.skip(f"NOT RUN: {error}")
    folder = tmp_path_factory.mktemp("evidence")
    (folder / "a.txt").write_text("hello there")
    (folder / "b.txt").write_text("a" * 5000 + "b")
    with provider.open_workspace(WorkspaceJob(OWNER, {"evidence": folder})) as opened:
        yield opened


def test_the_local_workspace_reads(space: Workspace) -> None:
    answer = space.call("read_file", {"path": "evidence/a.txt"})
    assert answer == {
        "text": "[evidence/a.txt: text, 11 characters, the whole file]\nhello there", "images": [], "next_offset": None,
        "error": None,
    }  # fmt: skip
    quotes = [{"path": "evidence/a.txt", "text": "hello  there"}]
    assert space.call("find_quotes", {"quotes": quotes})["found"] == [True]
    assert "no such file" in space.call("read_file", {"path": "evidence/c.txt"})["error"]


def test_the_local_workspace_ends_what_hangs(space: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    order = b'{"tool": "search", "arguments": {"pattern": "(a+)+$"}, "root": "/workspace", "seconds": 600}\n'
    monkeypatch.setattr("pytest_uniclaw.sandbox.local_workspace.order_line", lambda *arguments: order)
    began = time.monotonic()
    assert "did not end in time" in space.call("search", {}, seconds=0.5)["error"]
    assert time.monotonic() - began < 10


def test_a_local_workspace_that_is_gone_is_lost(space: Workspace, tmp_path: Path) -> None:
    with LocalProvider().open_workspace(WorkspaceJob(OWNER, {"evidence": tmp_path})) as doomed:
        assert isinstance(doomed, LocalWorkspace)
        os.kill(doomed.holder.process.pid, signal.SIGKILL)
        doomed.holder.process.wait()
        with pytest.raises(SandboxLost):
            doomed.call("list_files", {})
