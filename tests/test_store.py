"""The run directory: atomic files, links, stored attempts."""

import pytest

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import (
    all_attempts,
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
    write_bytes,
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


def test_the_newest_judged_attempt_of_an_item_stands_for_it(tmp_path):
    parent = task_directory(tmp_path, 1, "nanobot", "m", "104_multimodal", "task_1")
    digests = {"task": "a"}
    made = [
        ("p1-000000", Status.INFRA_ERROR, "2026-11-30T10:00:09+00:00"),
        ("p1-aaaaaa", Status.PASS, "2026-11-30T10:00:05+00:00"),
        ("p1-ffffff", Status.FAIL, "2026-11-30T10:00:03+00:00"),
    ]
    for name, status, ended in made:
        save_attempt(parent / name, attempt(status).model_copy(update={"digests": digests, "ended": ended}))
    found = stored_attempt(parent, digests)
    assert found is not None
    assert (found[0].name, found[1].status) == ("p1-aaaaaa", Status.PASS)
    assert [directory.name for directory, _ in attempts_of(tmp_path)] == ["p1-000000"], "the newest counts"
    assert [directory.name for directory, _ in all_attempts(tmp_path)] == [name for name, _, _ in made]


def test_a_name_of_255_bytes_can_be_written(tmp_path):
    path = tmp_path / ("x" * 255)
    write_bytes(path, b"old")
    write_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


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
