"""Against a checkout of UniClawBench that ``UNICLAW_UPSTREAM`` names: its tasks are collected, its tools read our runs.

Without a checkout everything here is counted as skipped, ``NOT RUN``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.upstream import checkout as find_checkout

from pytest_uniclaw.attempt import Attempt, Ending, Turn, Usage
from pytest_uniclaw.report.record import ItemRecord, record_of_attempt
from pytest_uniclaw.report.stats import group_by, summarise
from pytest_uniclaw.report.upstream import PROBE, probe_record, write_upstream
from pytest_uniclaw.status import PartialPolicy, Status
from pytest_uniclaw.store import new_attempt_directory, save_attempt, task_directory

CATEGORIES = tuple(
    f"{number}_{name}{suffix}"
    for first, suffix in ((1, ""), (2, "_zh"))
    for number, name in zip(
        range(100 * first + 1, 100 * first + 6),
        ("skill_usage", "exploration", "long_context", "multimodal", "cross_platform"), strict=True,
    )
)  # fmt: skip
COLLECT_CPU_SECONDS = 2.0
"""What collecting 400 tasks may cost over an empty start (design, performance targets)."""
SLACK = 2.0
"""A busy machine with cold caches costs CPU time too."""


@pytest.fixture(scope="module")
def checkout() -> Path:
    """The checkout."""
    return find_checkout()


def collect(folder: Path, cwd: Path) -> tuple[list[str], float]:
    """Collect a folder in a process of its own; return the node ids and the user CPU seconds that took."""
    command = [sys.executable, "-m", "pytest", str(folder), "--collect-only", "-q", "-p", "no:cacheprovider"]
    log = cwd / "collected.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text("utf-8")
    assert process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), text[-3000:]
    return [line for line in text.splitlines() if "::" in line], usage.ru_utime


def test_all_tasks_collect_within_two_cpu_seconds(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    collect(checkout / "tasks", tmp_path)  # the first reads from a cold disk
    _, empty = collect(tmp_path / "empty", tmp_path)
    ids, full = collect(checkout / "tasks", tmp_path)
    folders = Counter(next(part for part in line.split("/") if part[:3].isdigit()) for line in ids)
    assert {name: folders[name] for name in CATEGORIES} == dict.fromkeys(CATEGORIES, 40)
    assert len(ids) == 404, "400 tasks and four smoke tests"
    assert full - empty <= SLACK * COLLECT_CPU_SECONDS


def attempt(category: str, number: int, status: Status, score: float, *, turns: int = 1) -> Attempt:
    """An attempt as the loop would have recorded it."""
    stamp = "2026-03-01T10:00:00+00:00"
    played = tuple(
        Turn(
            number=n, message="Do it." if n == 1 else "Please go on.", started=stamp, seconds=2.5, wall_seconds=3.0,
            ending=Ending.EXITED, exit_code=0, finished=True, directory=f"turns/{n}",
        )
        for n in range(1, turns + 1)
    )  # fmt: skip
    return Attempt(
        attempt_id=f"t{number}", task_id=f"task_{category[:3]}_{number:02d}_sum", category=category,
        capability="skill_usage", language="en", agent="nanobot", model="gpt-5.4", number=1, status=status,
        score=score, threshold=0.9, reason="a reason", started=stamp, ended=stamp, turns=played,
        executor_seconds=2.5 * turns, wall_seconds=3.0 * turns, last_score=score,
        usage=(Usage(role="executor", calls=2, input_tokens=100 * turns, output_tokens=10),),
    )  # fmt: skip


ATTEMPTS = (
    attempt("101_skill_usage", 1, Status.PASS, 0.95),
    attempt("101_skill_usage", 2, Status.BUDGET_EXHAUSTED, 0.65, turns=3),
    attempt("101_skill_usage", 3, Status.FAIL, 0.2),
    attempt("104_multimodal", 1, Status.PASS, 1.0, turns=2),
    attempt("104_multimodal", 2, Status.GLOBAL_TIMEOUT, 0.4),
    attempt("104_multimodal", 3, Status.INTEGRITY_VIOLATION, 0.0),
)
UNCOUNTED = (
    attempt("101_skill_usage", 4, Status.INFRA_ERROR, 0.0),
    attempt("101_skill_usage", 5, Status.UNJUDGED, 0.0),
    attempt("104_multimodal", 4, Status.SIMULATOR_ERROR, 0.0),
)
INCOMPLETE = attempt("104_multimodal", 5, Status.EXECUTOR_INCOMPLETE, 0.0)


def store(run_folder: Path, attempts: tuple[Attempt, ...]) -> list[ItemRecord]:
    """Write attempts as a run does; return the records that our reports are made of."""
    records = []
    for one in attempts:
        parent = task_directory(run_folder, 1, one.agent, "openai-gpt-5-4", one.category, one.task_id)
        directory = new_attempt_directory(parent)
        for turn in one.turns:
            (directory / turn.directory / "evidence" / "results").mkdir(parents=True)
        save_attempt(directory, one)
        write_upstream(directory, one)
        records.append(record_of_attempt(one, PartialPolicy(), directory, replayed=False))
    return records


def aggregated(checkout: Path, runs: Path) -> dict[str, Any]:
    """Return what upstream's own aggregation says of a tree."""
    code = "import json; from webui.aggregate import aggregate_runs; print(json.dumps(aggregate_runs(force=True)))"
    environment = {**os.environ, "CLAWBENCH_RUNS_DIR": str(runs), "PYTHONDONTWRITEBYTECODE": "1"}  # noqa: TID251
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_upstreams_aggregation_gives_our_figures(checkout: Path, tmp_path: Path) -> None:
    records = store(tmp_path / "run", ATTEMPTS + UNCOUNTED)
    (backend,) = aggregated(checkout, tmp_path / "run" / "a1")["backends"]
    ours = summarise("all", records)
    assert backend["key"] == "nanobot"
    assert backend["total"]["n"] == ours.judged == len(ATTEMPTS)
    assert backend["total"]["pass_rate"] == pytest.approx(ours.pass_rate)
    assert backend["total"]["avg_score"] == pytest.approx(ours.average_score)
    for group in group_by(records, lambda record: record.category):
        theirs = backend["byCategory"][group.name]
        assert (theirs["n"], theirs["pass_rate"]) == (group.judged, pytest.approx(group.pass_rate))
        assert theirs["avg_score"] == pytest.approx(group.average_score)
    assert backend["total"]["avg_runtime_ms"] == pytest.approx(1000 * sum(r.seconds for r in records[:6]) / 6)
    assert backend["total"]["avg_input_tokens"] == pytest.approx(100 * sum(len(a.turns) for a in ATTEMPTS) / 6)


def test_upstream_drops_what_no_turn_was_finished_in_and_we_show_both_rates(checkout: Path, tmp_path: Path) -> None:
    records = store(tmp_path / "run", (*ATTEMPTS, INCOMPLETE))
    (backend,) = aggregated(checkout, tmp_path / "run" / "a1")["backends"]
    ours = summarise("all", records)
    assert backend["total"]["pass_rate"] == pytest.approx(ours.upstream_pass_rate)
    assert ours.pass_rate is not None
    assert ours.pass_rate < backend["total"]["pass_rate"]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no json", b"[]", b"{}", b'{"processes": 1, "windows": []}', b"\xff\xfe", b"[" * 200_000,
        b'{"processes": [{"pid": "x", "command": []}], "windows": []}',
        b'{"processes": [], "windows": [{"id": "\\ud800", "pid": 1, "title": "t"}]}',
    ],
    ids=["empty", "words", "list", "lacking", "wrong", "bytes", "deep", "fields", "surrogate"],
)  # fmt: skip
def test_a_probe_that_an_executor_replaced_costs_the_probe_alone(tmp_path: Path, content: bytes) -> None:
    turn = Turn(
        number=1, message="Go.", started="2026-11-30T10:00:00+00:00", seconds=1, wall_seconds=1,
        ending=Ending.EXITED, exit_code=0, finished=True, directory="turns/1",
    )  # fmt: skip
    assert probe_record(tmp_path, turn) is None
    (tmp_path / PROBE).parent.mkdir(parents=True)
    (tmp_path / PROBE).write_bytes(content)
    assert probe_record(tmp_path, turn) is None
    (tmp_path / PROBE).write_text('{"processes": [{"pid": 7, "command": "nanobot x"}], "windows": [], "screen": null}')
    found = probe_record(tmp_path, turn)
    assert found is not None
    assert found["processes"]["nanobot"] == ["7 nanobot x"]
