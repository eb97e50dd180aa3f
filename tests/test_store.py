"""The run directory: atomic files, links, stored attempts."""

import pytest

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.store import (
    attempts_of,
    find_run,
    load_attempt,
    new_attempt_directory,
    new_run,
    open_run,
    save_attempt,
    set_aside,
    stored_attempt,
    task_directory,
    write_text,
)
from tests.test_report import attempt


def test_latest_follows_the_newest_run(tmp_path):
    first, second = open_run(tmp_path, "one"), open_run(tmp_path, "two")
    assert (tmp_path / "latest").resolve() == second
    assert find_run(tmp_path, "latest") == second
    assert find_run(tmp_path, "one") == first
    with pytest.raises(SettingsError, match="no run 'three'"):
        find_run(tmp_path, "three")


def test_an_unknown_run_is_told_with_the_newest_five(tmp_path):
    with pytest.raises(SettingsError, match=r"no run 'latset': .*\n  fix: make one; .* holds no run"):
        find_run(tmp_path / "absent", "latset")
    for number in range(7):
        open_run(tmp_path, f"2026113{number}-041500-3fa2")
    with pytest.raises(SettingsError) as caught:
        find_run(tmp_path, "latset")
    newest = ", ".join(f"2026113{number}-041500-3fa2" for number in (6, 5, 4, 3, 2))
    assert str(caught.value).endswith(f"\n  fix: did you mean latest? The newest runs: {newest}")


def test_run_ids_sort_by_time_and_differ():
    assert len({new_run() for _ in range(50)}) > 1


def test_a_stored_attempt_is_found_by_equal_digests_only(tmp_path):
    parent = task_directory(tmp_path, 1, "nanobot", "m", "104_multimodal", "task_1")
    directory = new_attempt_directory(parent)
    stored = attempt().model_copy(update={"digests": {"task": "a", "image": "b"}})
    save_attempt(directory, stored)
    assert stored_attempt(parent, {"task": "a", "image": "b"}) == (directory, stored)
    assert stored_attempt(parent, {"task": "a", "image": "c"}) is None
    assert [found for _, found in attempts_of(tmp_path)] == [stored]


def test_half_a_record_is_no_attempt(tmp_path):
    directory = new_attempt_directory(tmp_path)
    (directory / "uniclaw.json").write_text('{"attempt_id": "x"')
    assert load_attempt(directory) is None


def test_lone_surrogates_do_not_stop_a_write(tmp_path):
    write_text(tmp_path / "deep" / "x.txt", "a\ud800b")
    assert (tmp_path / "deep" / "x.txt").read_bytes() == b"a?b"
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["x.txt"]


def test_a_try_that_is_tried_again_is_kept(tmp_path):
    for name in ("turns", "services"):
        (tmp_path / name / "1").mkdir(parents=True)
    set_aside(tmp_path, 1)
    assert (tmp_path / "tries" / "1" / "turns" / "1").is_dir()
    assert (tmp_path / "tries" / "1" / "services" / "1").is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["tries"]
