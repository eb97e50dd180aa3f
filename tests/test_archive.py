"""What goes into a sandbox: ownership, modes, parents, and the links of the host that must not be followed."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.paths import paths_for
from pytest_uniclaw.sandbox.archive import account_id, pack
from pytest_uniclaw.sandbox.base import Entry
from pytest_uniclaw.sandbox.provision import skeleton

HOMES = ("/home/agent", "/tmp_workspace")


def packed(*entries: Entry) -> dict[str, tarfile.TarInfo]:
    with (
        pack(entries, executor="agent", homes=HOMES, fixed=("/tmp_workspace/clawbench",)) as stream,
        tarfile.open(fileobj=stream, encoding="utf-8", errors="surrogateescape") as tar,
    ):
        return {member.name: member for member in tar}


def test_content_has_the_declared_owner_and_mode() -> None:
    members = packed(Entry("/etc/x", content=b"abc", mode=0o600), Entry("/home/agent/y", content=b"", user="agent"))
    assert (members["etc/x"].size, members["etc/x"].mode, members["etc/x"].uid) == (3, 0o600, 0)
    assert (members["home/agent/y"].uid, members["home/agent/y"].gid) == (1000, 1000)
    assert list(members) == ["etc/x", "home/agent/y"]


def test_parents_inside_the_executors_folders_are_its_own() -> None:
    members = packed(
        Entry("/home/agent/skills/a/SKILL.md", content=b""), Entry("/tmp_workspace/clawbench/sources/b/c", content=b""),
        Entry("/opt/uniclaw/services/s/run", content=b""),
    )
    folders = {name: (m.uid, m.mode) for name, m in members.items() if m.isdir()}
    assert folders == {
        "home/agent/skills": (1000, 0o755), "home/agent/skills/a": (1000, 0o755),
        "tmp_workspace/clawbench/sources": (1000, 0o755), "tmp_workspace/clawbench/sources/b": (1000, 0o755),
    }


def test_a_folder_keeps_executables_and_takes_search_rights(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/run.sh").touch(0o755)
    (tmp_path / "data").touch(0o666)
    shared = packed(Entry("/srv", source=tmp_path))
    assert {name: m.mode for name, m in shared.items()} == {
        "srv": 0o755, "srv/sub": 0o755, "srv/sub/run.sh": 0o755, "srv/data": 0o644,
    }
    private = packed(Entry("/srv", source=tmp_path, mode=0o600))
    assert {m.mode for m in private.values() if m.isdir()} == {0o700}
    assert (private["srv/sub/run.sh"].mode, private["srv/data"].mode) == (0o700, 0o600)


def test_a_link_inside_its_source_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/up").symlink_to("../a")
    members = packed(Entry("/srv", source=tmp_path))
    assert members["srv/d/up"].issym()
    assert members["srv/d/up"].linkname == "../a"


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside", "missing", "/proc/self/root/etc"])
def test_a_link_out_of_its_source_is_refused(target: str, tmp_path: Path) -> None:
    (tmp_path / "outside").touch()
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(target)
    with pytest.raises(TaskError, match="leaves its folder") as caught:
        packed(Entry("/srv", source=tmp_path / "in"))
    assert str(tmp_path / "in/link") in str(caught.value)


def test_special_files_and_linked_sources_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in/pipe")
    with pytest.raises(TaskError, match="special file"):
        packed(Entry("/srv", source=tmp_path / "in"))
    (tmp_path / "link").symlink_to("in")
    with pytest.raises(TaskError, match="neither"):
        packed(Entry("/srv", source=tmp_path / "link"))


def test_odd_names_survive(tmp_path: Path) -> None:
    raw = os.fsencode(tmp_path) + b"/bad\xff" + b"n" * 150
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    members = packed(Entry("/srv", source=tmp_path))
    assert any(os.fsencode(name).endswith(b"/bad\xff" + b"n" * 150) for name in members)


@pytest.mark.parametrize("path", ["relative", "/a/../b", "../a"])
def test_paths_must_be_absolute_and_plain(path: str) -> None:
    with pytest.raises(ValueError, match="absolute"):
        packed(Entry(path, content=b""))


def test_the_workspace_belongs_to_root_where_that_protects_a_path() -> None:
    members = packed(*skeleton(paths_for("agent"), "agent"))
    facts = {name.removeprefix("tmp_workspace"): (m.uid, m.mode) for name, m in members.items()}
    assert facts == {
        "": (0, 0o1777), "/clawbench": (0, 0o755), "/clawbench/logs": (0, 0o1777), "/results": (1000, 0o755),
        "/clawbench/sources": (1000, 0o755), "/clawbench/runtime": (1000, 0o755),
    }


def test_accounts_are_names_or_numbers() -> None:
    assert [account_id(user) for user in ("root", "service", "agent", "1001")] == [0, 999, 1000, 1001]
