"""The loader and the rubric parser on files that nobody here wrote."""

from __future__ import annotations

import csv
import os
import re
import time
from pathlib import Path

import pytest

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.lint import lint_task
from pytest_uniclaw.package import Reader, load_rubric, unavailable
from pytest_uniclaw.privacy import PrivacyValues
from pytest_uniclaw.task import Task, load_task, resolve_variant

ROOT = Path(__file__).parents[1]
SUITES = {f"{language}0{number}" for language in "12" for number in range(1, 6)}


def corpus() -> Path:
    path = Path(os.environ.get("UNICLAW_CORPUS") or ROOT.parent / "shared" / "corpus")  # noqa: TID251
    if not (path / "expected.csv").is_file():
        pytest.skip(f"NOT RUN: no corpus slice at {path}; set UNICLAW_CORPUS")
    return path


def upstream() -> Path:
    path = os.environ.get("UNICLAW_UPSTREAM")  # noqa: TID251
    if not path:
        pytest.skip("NOT RUN: UNICLAW_UPSTREAM does not name a checkout of UniClawBench")
    return Path(path)


def load_all(root: Path, *, check_assets: bool) -> list[Task]:
    files = sorted(path for path in (root / "tasks").rglob("*.yaml") if path.parent.name[:3] in SUITES)
    return [load_task(path, check_assets=check_assets) for path in files]


def test_the_slice_parses_as_an_independent_parser_read_it() -> None:
    root = corpus()
    tasks = {task.task_id: task for task in load_all(root, check_assets=False)}
    with (root / "expected.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["task_id"] for row in rows} == set(tasks)
    for row in rows:
        rubric = load_rubric(tasks[row["task_id"]], Reader.SUPERVISOR)
        found = (len(rubric.checkpoints), rubric.weight_sum, rubric.formula_scored, len(rubric.sections))
        expected = (
            int(row["checkpoints"]), float(row["weight_sum"]), row["formula_scored"] == "1", int(row["sections"]),
        )  # fmt: skip
        assert (row["task_id"], *found) == (row["task_id"], *expected)


def test_every_rubric_of_the_slice_has_caps_and_adds_up() -> None:
    for task in load_all(corpus(), check_assets=False):
        rubric = load_rubric(task, Reader.SUPERVISOR)
        assert (task.task_id, rubric.problems) == (task.task_id, ())
        assert rubric.caps, task.task_id
        assert all(0 <= cap.value < 1 and cap.condition for cap in rubric.caps), task.task_id
        ids = [checkpoint.id for checkpoint in rubric.checkpoints]
        assert len(set(ids)) == len(ids), task.task_id


NAMED_CAP = re.compile(
    r"\bcap(?:s|ped)?(?: (?:the|total|score|overall|it|this|hard))* (?:at )?[`*]*(0\.\d+)|(0\.\d+)[`*]* cap\b",
    re.IGNORECASE,
)


def test_no_cap_that_a_rubric_of_the_slice_names_is_lost() -> None:
    named = 0
    for task in load_all(corpus(), check_assets=False):
        rubric = load_rubric(task, Reader.SUPERVISOR)
        text = " ".join(" ".join(section.text.split()) for section in rubric.sections if section.kind == "caps")
        values = {float(before or after) for after, before in NAMED_CAP.findall(text)}
        assert values <= {cap.value for cap in rubric.caps}, task.task_id
        named += len(values)
    assert named > 1000


def test_the_slice_has_the_properties_that_are_known_of_it() -> None:
    tasks = load_all(corpus(), check_assets=False)
    assert {task.suite for task in tasks} == SUITES
    assert {task.capability for task in tasks} == {
        "skill_usage", "exploration", "long_context", "multimodal", "cross_platform",
    }  # fmt: skip
    for task in tasks:
        long = task.capability == "long_context"
        assert (task.turn_seconds, task.total_seconds) == ((1800, 2700) if long else (1200, 1800)), task.task_id
        assert task.language == ("zh" if task.suite.startswith("2") else "en")
        assert (task.network, task.user, task.threshold, task.followups) == ("internet", "root", 0.9, 2)


def test_mirrors_have_the_same_rubric() -> None:
    tasks = {task.task_id: task for task in load_all(corpus(), check_assets=False)}
    pairs = [(task, tasks.get(name.replace("task_1", "task_2", 1))) for name, task in tasks.items() if "task_1" in name]
    compared = 0
    for english, chinese in pairs:
        if chinese is not None:
            ours, theirs = (load_rubric(task, Reader.SUPERVISOR) for task in (english, chinese))
            assert [c.id for c in ours.checkpoints] == [c.id for c in theirs.checkpoints]
            compared += 1
    assert compared > 50


def test_a_load_of_the_slice_that_checks_assets_says_what_is_missing() -> None:
    root = corpus()
    task = next(task for task in load_all(root, check_assets=False) if task.sources)
    with pytest.raises(TaskError, match="does not exist"):
        load_task(task.path)


def test_all_400_upstream_packages_load() -> None:
    started = time.process_time()
    tasks = load_all(upstream(), check_assets=True)
    spent = time.process_time() - started
    assert len(tasks) == 400
    assert len({task.task_id for task in tasks}) == 400
    assert spent < 1.0, f"{spent:.2f} s of CPU"


def test_upstream_tasks_that_cannot_run_here_say_why() -> None:
    tasks = load_all(upstream(), check_assets=True)
    nothing = PrivacyValues()
    reasons = {task.task_id: unavailable(task, nothing, False) for task in tasks}
    keyless = {task.task_id for task in tasks if resolve_variant(task, False).privacy_keys}
    assert {name for name, reason in reasons.items() if reason and "privacy values" in reason} == keyless
    # Two more declare SNAPSHOT_MODE alone; this project sets it itself, so they need nothing.
    assert len(keyless) == 42
    assert sum(bool(resolve_variant(task, True).privacy_keys) for task in tasks) == 30
    assert all(name in reason for name, reason in reasons.items() if reason)


def test_every_upstream_rubric_parses() -> None:
    tasks = load_all(upstream(), check_assets=True)
    rubrics = [load_rubric(task, Reader.SUPERVISOR) for task in tasks]
    assert sum(rubric.formula_scored for rubric in rubrics) == 10
    assert sum(rubric.weight_sum == 1.0 for rubric in rubrics) == 390
    assert all(rubric.caps and not rubric.problems for rubric in rubrics)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "suites").rglob("*.yaml")), ids=lambda path: path.stem if isinstance(path, Path) else path
)
def test_our_own_tasks_have_no_findings(path: Path) -> None:
    assert lint_task(load_task(path)) == []
