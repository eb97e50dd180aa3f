"""Records, rates, the gate, and upstream's files."""

import json

import pytest

from pytest_uniclaw.attempt import Attempt, Turn
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.report.gate import evaluate_gate, parse_gate
from pytest_uniclaw.report.record import ItemRecord, clean, clean_text
from pytest_uniclaw.report.stats import group_by, headline, summarise
from pytest_uniclaw.report.upstream import upstream_status, write_upstream
from pytest_uniclaw.status import Status


def record(status, score=0.0, outcome="failed", capability="multimodal"):
    return ItemRecord(
        task_id="t", category="104_multimodal", capability=capability, language="en", agent="nanobot", status=status,
        outcome=outcome, score=score,
    )  # fmt: skip


RECORDS = [
    record("pass", 1.0, "passed"),
    record("budget_exhausted", 0.6, "xfailed"),
    record("executor_incomplete", 0.0),
    record("infra_error", 0.0, "infra"),
    record("skipped", 0.0, "skipped", "exploration"),
]


def test_infra_and_skips_leave_the_denominator_but_not_the_coverage():
    summary = summarise("all", RECORDS)
    assert (summary.selected, summary.judged, summary.passed, summary.partial, summary.infra) == (5, 3, 1, 1, 1)
    assert summary.pass_rate == pytest.approx(1 / 3)
    assert summary.average_score == pytest.approx(1.6 / 3)
    assert summary.upstream_pass_rate == pytest.approx(1 / 2)
    assert summary.coverage == pytest.approx(3 / 5)
    assert headline(summary) == "1/5 passed, 1 partial, 1 infra, 1 skipped, coverage 3/5"


def test_what_was_selected_and_never_reported_counts():
    assert summarise("all", RECORDS[:1], selected=10).coverage == pytest.approx(0.1)


def test_groups_have_their_own_denominators():
    groups = {g.name: g for g in group_by(RECORDS, lambda r: r.capability)}
    assert groups["exploration"].pass_rate is None
    assert groups["multimodal"].judged == 3


def test_gate_holds_and_fails():
    summary = summarise("all", RECORDS)
    assert evaluate_gate(parse_gate("pr>=0.3, as>=50%"), summary).holds
    result = evaluate_gate(parse_gate("pr>=0.3, coverage>=0.95"), summary)
    assert not result.holds
    assert result.lines[1] == "gate coverage>=0.95: coverage is 0.600: FAILS"


def test_a_gate_over_nothing_fails():
    assert not evaluate_gate(parse_gate("pr>=0"), summarise("all", RECORDS[3:])).holds


@pytest.mark.parametrize("text", ["pr>0.4x", "passrate>=0.4", "pr=0.4", "pr>=1.4", "pr"])
def test_a_bad_gate_says_how_to_write_one(text):
    with pytest.raises(SettingsError, match="--gate"):
        parse_gate(text)


def test_the_choke_point_makes_valid_utf8_and_xml():
    dirty = {"a": ["x\ud800y", {"b\x00": "tab\tline\n\x1b[31m"}], "n": 0.5, "none": None}
    cleaned = clean(dirty)
    assert cleaned == {"a": ["x\ufffdy", {"b\ufffd": "tab\tline\n\ufffd[31m"}], "n": 0.5, "none": None}
    json.dumps(cleaned).encode("utf-8")
    assert clean_text("汉字 ok") == "汉字 ok"


def attempt(status=Status.PASS):
    turn = Turn(
        number=1, message="do it", started="2026-01-01T00:00:00+00:00", seconds=2.0, wall_seconds=3.0, ending="exited",
        exit_code=0, finished=True, directory="turns/1",
    )  # fmt: skip
    return Attempt(
        attempt_id="x", task_id="task_1", category="104_multimodal", capability="multimodal", language="en",
        agent="nanobot", model="m", number=1, status=status, score=0.5, threshold=0.9, reason="why",
        started="2026-01-01T00:00:00+00:00", ended="2026-01-01T00:01:00+00:00", turns=(turn,),
    )  # fmt: skip


@pytest.mark.parametrize("status", list(Status))
def test_upstream_knows_every_status_that_is_written(status):
    known = {
        "pass", "budget_exhausted", "fail", "global_timeout", "executor_incomplete", "rate_limit", "infra_error",
        "pre_exec_failed",
    }  # fmt: skip
    assert upstream_status(status) in known


def test_upstream_files(tmp_path):
    directory = tmp_path / "a1" / "nanobot" / "m" / "104_multimodal" / "task_1" / "p1-abc"
    evidence = directory / "turns" / "1" / "evidence"
    (evidence / "results").mkdir(parents=True)
    (evidence / "results" / "out.txt").write_text("x")
    (evidence / "transcript.jsonl").write_text("{}\n")
    write_upstream(directory, attempt(Status.UNJUDGED))
    summary = json.loads((directory.parent / "summary.json").read_text())
    assert (summary["finalStatus"], summary["uniclaw"]["status"]) == ("infra_error", "unjudged")
    assert summary["attempts"][0]["outDir"] == "p1-abc"
    assert (directory / "result" / "out.txt").read_text() == "x"
    assert json.loads((directory / "score.json").read_text())["overall_score"] == 0.5
    assert (directory / "prompt.md").read_text() == "do it\n"
