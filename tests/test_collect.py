"""Untrusted tar streams: what comes out, what is refused, and that nothing is ever written elsewhere."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_uniclaw.attempt import Manifest
from pytest_uniclaw.sandbox.base import CollectLimits
from pytest_uniclaw.sandbox.collect import LISTED, extract
from pytest_uniclaw.sandbox.names import safe_component, safe_parts

KINDS = [
    tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE,
    tarfile.FIFOTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, b"Z",
]


Member = tuple[tarfile.TarInfo, bytes]
NO_LIMITS = CollectLimits()


def entry(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.size = kind, link, 0o4777, len(content)
    return info, content


def pack(entries: Iterable[Member], form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def pieces(data: bytes, size: int = 700) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start:start + size]


def unpack(tmp_path: Path, *entries: Member, limits: CollectLimits = NO_LIMITS) -> Manifest:
    return extract(pieces(pack(entries)), tmp_path / "out", limits)


def test_files_come_out_with_digest_and_plain_modes(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        manifest = unpack(
            tmp_path, entry("results", kind=tarfile.DIRTYPE), entry("results/a/b.txt", b"hello"), entry("results/c"),
            entry("results/empty", kind=tarfile.DIRTYPE),
        )
    finally:
        os.umask(before)
    assert [(f.path, f.size) for f in manifest.files] == [("a/b.txt", 5), ("c", 0)]
    assert manifest.files[0].sha256 == hashlib.sha256(b"hello").hexdigest()
    assert (tmp_path / "out/a/b.txt").read_bytes() == b"hello"
    assert stat.S_IMODE((tmp_path / "out/a/b.txt").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "out/a").stat().st_mode) == 0o755
    assert not (tmp_path / "out/empty").exists()


def test_a_file_that_was_asked_for_itself_keeps_its_name(tmp_path: Path) -> None:
    assert [f.path for f in unpack(tmp_path, entry("answer.txt", b"x")).files] == ["answer.txt"]


def test_a_link_in_place_of_the_folder_is_the_only_refusal(tmp_path: Path) -> None:
    manifest = unpack(tmp_path, entry("results", kind=tarfile.SYMTYPE, link="/etc"))
    assert [(r.path, r.reason) for r in manifest.refused] == [("results", "symbolic link")]
    assert manifest.files == ()


@pytest.mark.parametrize("kind", [k for k in KINDS if k not in (tarfile.REGTYPE, tarfile.DIRTYPE)])
def test_only_regular_files_are_kept(kind: bytes, tmp_path: Path) -> None:
    manifest = unpack(tmp_path, entry("r/bad", kind=kind, link="r/good"), entry("r/good", b"ok"))
    assert [f.path for f in manifest.files] in ([], ["good"])  # a crafted sparse header may end the archive
    assert manifest.refused_total == 1
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out/bad").exists()


@pytest.mark.parametrize("name", ["r/../../evil", "r/a/../../../evil", "r//x", "r/./x", "//abs", "r/..", "../evil"])
def test_unsafe_paths_are_refused(name: str, tmp_path: Path) -> None:
    manifest = unpack(tmp_path, entry(name, b"x"))
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == [tmp_path / "out" / f.path for f in manifest.files]
    assert all(".." not in f.path for f in manifest.files)
    assert manifest.refused_total + len(manifest.files) == 1


def test_a_symlink_and_a_file_through_it_write_nothing_outside(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    manifest = unpack(
        tmp_path, entry("r/d", kind=tarfile.SYMTYPE, link=str(tmp_path / "target")), entry("r/d/x", b"x"),
    )
    assert [f.path for f in manifest.files] == ["d/x"]
    assert list((tmp_path / "target").iterdir()) == []
    assert not (tmp_path / "out/d").is_symlink()


def test_a_file_where_a_folder_is_needed_is_refused(tmp_path: Path) -> None:
    manifest = unpack(tmp_path, entry("r/a", b"1"), entry("r/a/b", b"2"), entry("r/c", b"3"))
    assert [f.path for f in manifest.files] == ["a", "c"]
    assert manifest.refused_total == 1


def test_equal_names_are_both_kept(tmp_path: Path) -> None:
    manifest = unpack(tmp_path, *(entry("r/x", bytes([n])) for n in range(12)))
    assert [f.path for f in manifest.files] == ["x", *(f"x~{n}" for n in range(2, 10))]
    assert manifest.refused_total == 3


def test_names_that_are_no_text_are_escaped(tmp_path: Path) -> None:
    names = ["r/\udcff\udcfe", "r/tab\tnew\nline", "r/100%", "r/50%\udcff", "r/\u202ecod", "r/名前"]
    manifest = unpack(tmp_path, *(entry(name) for name in names))
    expected = ["%FF%FE", "tab%09new%0Aline", "100%", "50%25%FF", "%E2%80%AEcod", "名前"]
    assert [f.path for f in manifest.files] == expected
    manifest.model_dump_json()


def test_a_name_that_grows_too_long_is_shortened_and_stays_unique(tmp_path: Path) -> None:
    names = ["r/" + "\udcff" * 250 + tail for tail in ("a", "b")]
    manifest = unpack(tmp_path, *(entry(name) for name in names))
    assert len({f.path for f in manifest.files}) == 2
    assert all(len(f.path.encode()) <= 255 for f in manifest.files)


def test_deep_and_long_paths_are_refused(tmp_path: Path) -> None:
    manifest = unpack(tmp_path, entry("r/" + "d/" * 80 + "x"), entry("r/" + ("y" * 200 + "/") * 8 + "x"), entry("r/ok"))
    assert [f.path for f in manifest.files] == ["ok"]
    assert manifest.refused_total == 2


def test_caps_by_file_total_and_count(tmp_path: Path) -> None:
    limits = CollectLimits(file_bytes=100, total_bytes=250, files=4)
    manifest = unpack(
        tmp_path, entry("r/big", bytes(101)), entry("r/1", bytes(100)), entry("r/2", bytes(100)),
        entry("r/over", bytes(60)), entry("r/3", bytes(50)), entry("r/4"), entry("r/5"), entry("r/6"), limits=limits,
    )
    assert [f.path for f in manifest.files] == ["1", "2", "3", "4"]
    assert [r.path for r in manifest.refused] == ["big", "over", "5", "6"]
    assert sum(f.size for f in manifest.files) <= 250


def test_refusals_are_counted_beyond_the_list(tmp_path: Path) -> None:
    manifest = unpack(tmp_path, *(entry(f"r/{n}") for n in range(LISTED + 200)), limits=CollectLimits(files=1))
    assert len(manifest.files) == 1
    assert len(manifest.refused) == LISTED
    assert manifest.refused_total == LISTED + 199


def test_folders_are_capped_too(tmp_path: Path) -> None:
    manifest = unpack(tmp_path, *(entry(f"r/{n}/a/b/c/x") for n in range(10)), limits=CollectLimits(files=10))
    assert sum(p.is_dir() for p in (tmp_path / "out").rglob("*")) <= 10
    assert 0 < len(manifest.files) < 10


def test_the_time_cap_keeps_what_was_there(tmp_path: Path) -> None:
    data = pack([entry(f"r/{n}", bytes(50_000)) for n in range(20)])
    ticks = iter(range(10_000))
    limits = CollectLimits(seconds=25)
    manifest = extract(pieces(data, 20_000), tmp_path / "out", limits, clock=lambda: float(next(ticks)))
    assert 0 < len(manifest.files) < 20
    assert "time" in manifest.refused[-1].reason
    assert all((tmp_path / "out" / f.path).stat().st_size == f.size for f in manifest.files)


def test_a_declared_size_without_content_is_no_file(tmp_path: Path) -> None:
    whole = pack([entry("r/a", b"fine"), entry("r/bomb", bytes(4000))])
    manifest = extract([whole[:2048]], tmp_path / "out", CollectLimits())
    assert [f.path for f in manifest.files] == ["a"]
    assert not (tmp_path / "out/bomb").exists()
    assert manifest.refused_total == 1


def test_a_stream_of_refused_content_is_left(tmp_path: Path) -> None:
    seen = 0

    def chunks() -> Iterator[bytes]:
        nonlocal seen
        for chunk in pieces(pack([entry(f"r/{n}", bytes(2000)) for n in range(100)]), 1000):
            seen += 1
            yield chunk

    manifest = extract(chunks(), tmp_path / "out", CollectLimits(file_bytes=100, total_bytes=1000))
    assert manifest.files == ()
    assert seen < 200


def test_evidence_needs_a_fresh_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/old").touch()
    with pytest.raises(FileExistsError):
        unpack(tmp_path, entry("r/a"))


NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
RAW = st.binary(min_size=1, max_size=40).map(lambda b: b.replace(b"\0", b"/").decode("utf-8", "surrogateescape"))
ODD = st.sampled_from(["..", ".", "", "a", "A", "é", "e\u0301"])
PARTS = st.lists(st.one_of(ODD, NAMES, RAW), min_size=1, max_size=4)
ENTRIES = st.lists(st.tuples(PARTS.map("/".join), st.binary(max_size=600), st.sampled_from(KINDS)), max_size=12)


def check_outcome(base: Path, manifest: Manifest) -> None:
    """Whatever came in: everything written is listed, regular, inside, and the record can be stored."""
    assert [p.name for p in base.iterdir()] == ["out"]
    listed = {base / "out" / record.path: record for record in manifest.files}
    found = [p for p in (base / "out").rglob("*") if not (p.is_dir() and not p.is_symlink())]
    assert set(found) == set(listed)
    for path, record in listed.items():
        assert stat.S_ISREG(path.lstat().st_mode)
        assert hashlib.sha256(path.read_bytes()).hexdigest() == record.sha256
    Manifest.model_validate_json(manifest.model_dump_json())


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(entries=ENTRIES, form=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]), size=st.integers(1, 3000))
def test_any_archive_is_harmless(
    entries: list[tuple[str, bytes, bytes]], form: int, size: int, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    base = tmp_path_factory.mktemp("any")
    try:
        data = pack([entry(name, content, kind, "/etc/passwd") for name, content, kind in entries], form)
    except (ValueError, UnicodeError):  # a name that the format cannot hold
        return
    manifest = extract(pieces(data, size), base / "out", CollectLimits(file_bytes=500, total_bytes=2000, files=6))
    check_outcome(base, manifest)


@settings(max_examples=150)
@given(flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=30), cut=st.integers(0, 12_000))
def test_damaged_archives_are_harmless(
    flips: list[tuple[int, int]], cut: int, tmp_path_factory: pytest.TempPathFactory,
) -> None:
    base = tmp_path_factory.mktemp("damaged")
    members = [entry("r/" + "n" * 150, b"x" * 900), entry("r/s", kind=tarfile.SYMTYPE, link="/"), entry("r/z")]
    data = bytearray(pack(members))
    for at, value in flips:
        if at < len(data):
            data[at] = value
    check_outcome(base, extract(pieces(bytes(data[:cut])), base / "out", CollectLimits()))


@given(raw=st.binary(max_size=300))
def test_garbage_is_harmless(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("raw")
    check_outcome(base, extract([raw], base / "out", CollectLimits()))


@given(name=st.one_of(NAMES, RAW, st.text(min_size=1)))
def test_safe_components_are_printable_utf8_that_fits(name: str) -> None:
    safe = safe_component(name)
    assert len(safe.encode()) <= 255
    assert not any(ord(c) < 32 or ord(c) == 127 for c in safe)
    parts = safe_parts(name)
    assert isinstance(parts, str) or all(part not in ("", ".", "..") and "/" not in part for part in parts)
