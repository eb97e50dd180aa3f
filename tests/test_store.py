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
    (tmp_path / "turns" / "1").mkdir(parents=True)
    set_aside(tmp_path, 1)
    assert (tmp_path / "tries" / "1" / "turns" / "1").is_dir()
    assert not (tmp_path / "turns").exists()
