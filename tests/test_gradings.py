"""Gradings from runs and tables, their comparison on the command line, and cost estimates from earlier runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pytest_uniclaw.attempt import Attempt, Usage
from pytest_uniclaw.cli import main
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.report.agreement import Grade
from pytest_uniclaw.report.estimate import Planned, estimate_cost
from pytest_uniclaw.report.gradings import gradings_of
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import save_attempt


def store(
    run: Path, task: str, score: float, *, agent: str = "nanobot", number: int = 1, usd: float | None = 0.5
) -> None:
    status = Status.PASS if score >= 0.9 else Status.BUDGET_EXHAUSTED
    attempt = Attempt(
        attempt_id=f"{task}-{number}", task_id=task, category="101_skill_usage", capability="skill_usage",
        language="en",
        agent=agent, model="m", number=number, status=status, score=score, threshold=0.9, reason="r", started="s",
        ended="e", usage=(Usage(role="executor", calls=1, cost_usd=usd),),
    )  # fmt: skip
    save_attempt(run / f"a{number}" / agent / "m" / "101_skill_usage" / task / "p1-aaaaaa", attempt)


def test_two_runs_are_keyed_by_all_that_tells_attempts_apart(tmp_path: Path) -> None:
    for name, scores in (("r1", (1.0, 0.4)), ("r2", (0.8, 0.5))):
        for number, score in enumerate(scores, start=1):
            store(tmp_path / name, "task_1", score, number=number)
    first, second = gradings_of([tmp_path / "r1", tmp_path / "r2"])
    assert first == {
        ("task_1", "nanobot", "m", "1"): Grade(True, 1.0), ("task_1", "nanobot", "m", "2"): Grade(False, 0.4)
    }  # fmt: skip
    assert second["task_1", "nanobot", "m", "1"] == Grade(False, 0.8)


def test_a_human_table_with_task_ids_alone(tmp_path: Path) -> None:
    store(tmp_path / "run", "task_1", 1.0)
    table = tmp_path / "human.csv"
    table.write_text("\ufefftask_id,passed,score\ntask_1,PASS,0.95\n", encoding="utf-8")
    assert gradings_of([tmp_path / "run", table]) == [{("task_1",): Grade(True, 1.0)}, {("task_1",): Grade(True, 0.95)}]
    store(tmp_path / "run", "task_1", 0.5, number=2)
    with pytest.raises(
        SettingsError, match="several attempts are task_1\n  fix: add the columns agent, model, attempt"
    ):
        gradings_of([tmp_path / "run", table])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task,passed\nx,1\n", "expected a CSV table with the columns task_id and passed"),
        ("task_id,passed\nx,maybe\n", "human.csv:2: passed: 'maybe' is neither pass nor fail"),
        ("task_id,passed,score\nx,1,1.5\n", "human.csv:2: score: '1.5' is no number from 0 to 1"),
        ("task_id,passed\nx,1\nx,0\n", "human.csv:3: x is graded twice"),
        ("", "expected a CSV table"),
    ],
)
def test_what_is_wrong_in_a_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "human.csv"
    table.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        gradings_of([table])
    assert message in str(caught.value)


def test_a_row_with_more_fields_than_columns_is_read_and_other_bytes_are_told(tmp_path: Path) -> None:
    table = tmp_path / "human.csv"
    table.write_text("task_id,passed\ntask_1,pass,0.9,a note\n")
    (grading,) = gradings_of([table])
    assert grading == {("task_1",): Grade(True, None)}
    table.write_bytes("task_id,passed\ntäsk,pass\n".encode("latin-1"))
    with pytest.raises(SettingsError, match=r"human.csv: is no CSV table in UTF-8"):
        gradings_of([table])


def test_the_command_prints_figures_disagreements_and_spread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, shift in (("r1", 0.0), ("r2", -0.2), ("r3", 0.0)):
        for task, score in (("task_1", 1.0), ("task_2", 0.5), ("task_3", 0.6)):
            store(tmp_path / name, task, score + shift)
    assert main(["agreement", "r1", "r2", "r3", f"--runs-dir={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert "r1 and r2: 3 attempts of 3 tasks" in said
    assert "  same verdict                  0.667" in said
    assert "  mean absolute error           0.200" in said
    assert "  other verdict: task_1 nanobot m 1" in said
    assert "all 3 over 3 attempts: mean score range 0.200, verdict not unanimous 33.3%" in said
    assert main(["agreement", "r1", "r3", f"--runs-dir={tmp_path}", "--json"]) == 0
    (pair,) = json.loads(capsys.readouterr().out)["pairs"]
    assert pair["figures"][0] == {"name": "same verdict", "value": 1.0, "low": None, "high": None}


def test_runs_are_looked_for_where_the_settings_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "uniclaw.toml").write_text('runs_dir = "stored"\n')
    for name in ("r1", "r2"):
        store(tmp_path / "stored" / name, "task_1", 1.0)
    assert main(["report", "r1"]) == 0
    assert f"run directory: {tmp_path / 'stored' / 'r1'}" in capsys.readouterr().out
    assert main(["agreement", "r1", "r2"]) == 0
    assert main(["export", "r1"]) == 1
    assert f"{tmp_path / 'stored' / 'r1'}/" in capsys.readouterr().out
    assert main(["report", "r1", "--runs-dir=elsewhere"]) == 2


def test_a_lone_grading_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path / "r1", "task_1", 1.0)
    assert main(["agreement", "r1", f"--runs-dir={tmp_path}"]) == 2
    assert "agreement needs two gradings" in capsys.readouterr().out


def test_an_estimate_prefers_the_same_task_and_counts_what_it_does_not_know(tmp_path: Path) -> None:
    store(tmp_path / "r1", "task_1", 1.0, usd=0.2)
    store(tmp_path / "r2", "task_1", 1.0, usd=0.4)
    store(tmp_path / "r2", "task_2", 1.0, usd=1.2)
    store(tmp_path / "r2", "task_3", 1.0, usd=None)
    planned = [Planned("task_1", "nanobot", "m"), Planned("task_9", "nanobot", "m"), Planned("task_1", "other", "m")]
    found = estimate_cost(tmp_path, planned)
    assert found is not None
    assert (round(found.usd, 6), found.known, found.planned) == (0.9, 2, 3)  # 0.3 of task_1, 0.6 of any task
    assert str(found) == "about 0.90 USD for 2 of 3 attempts, by earlier runs; 1 without precedent not counted"
    assert estimate_cost(tmp_path / "nowhere", planned) is None
