"""Records, rates, the gate, and upstream's files."""

import json
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from pytest_uniclaw.attempt import Attempt, Turn
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.report.gate import evaluate_gate, parse_gate
from pytest_uniclaw.report.lines import one_line, score_line
from pytest_uniclaw.report.record import NOT_RUN, ItemRecord, clean, clean_text, record_of_attempt, skipped_record
from pytest_uniclaw.report.stats import group_by, headline, names_of, rate_rows, summarise
from pytest_uniclaw.report.upstream import score_record, upstream_status, write_upstream
from pytest_uniclaw.status import PartialPolicy, Status
from pytest_uniclaw.verdict import AttemptState, Decision


def record(status, score=None, outcome="failed", capability="multimodal", **fields):
    values = {"agent": "nanobot", **fields}
    return ItemRecord(
        task_id="t", category="104_multimodal", capability=capability, language="en", status=status, outcome=outcome,
        score=score, **values,
    )  # fmt: skip


RECORDS = [
    record("pass", 1.0, "passed"),
    record("budget_exhausted", 0.6, "xfailed"),
    record("executor_incomplete", 0.0),
    record("infra_error", None, "infra"),
    record("skipped", None, "skipped", "exploration"),
]


def test_infra_and_skips_leave_the_denominator_but_not_the_coverage():
    summary = summarise("all", RECORDS)
    assert (summary.selected, summary.judged, summary.passed, summary.partial, summary.infra) == (5, 3, 1, 1, 1)
    assert summary.pass_rate == pytest.approx(1 / 3)
    assert summary.average_score == pytest.approx(1.6 / 3)
    assert summary.upstream_pass_rate == pytest.approx(1 / 2)
    assert summary.coverage == pytest.approx(3 / 5)
    assert headline(summary) == "1/5 passed, 1 partial, 1 infra, 1 skipped, coverage 3/5"


def test_what_was_selected_and_never_run_counts_in_its_row_too():
    rows = rate_rows([*RECORDS[:2], *[record(NOT_RUN, None, NOT_RUN, "exploration")] * 3], "  ")
    assert [(row.name, row.judged, row.selected) for row in rows] == [
        ("nanobot  exploration", 0, 3), ("nanobot  multimodal", 2, 2), ("all", 2, 5),
    ]  # fmt: skip
    assert headline(rows[-1]) == "1/5 passed, 1 partial, 3 not run, coverage 2/5"


@pytest.mark.parametrize(("status", "score"), [("infra_error", 0.0), ("skipped", 0.0), (NOT_RUN, 0.0), ("fail", None)])
def test_a_record_has_a_score_exactly_where_it_is_judged(status, score):
    with pytest.raises(ValidationError, match=f"status {status} with score"):
        record(status, score)


def test_executors_are_named_as_in_item_ids():
    def names(*rows, **keywords):
        records = [record("fail", 0.0, agent=a, model=m, number=k) for a, m, k in rows]
        return names_of(records, **keywords)

    assert names(("oracle", "", 1), ("nanobot", "script", 1)) == ["oracle", "nanobot"]
    assert names(("oracle", "", 1), ("oracle", "", 2)) == ["oracle[1]", "oracle[2]"]
    assert names(("nanobot", "one", 1), ("nanobot", "two", 1)) == ["nanobot-one", "nanobot-two"]
    assert names(("oracle", "", 1), repeated=True) == ["oracle[1]"]


def test_a_message_is_folded_with_its_remedy():
    assert one_line("no model\n  fix: set KEY,\n  or use script") == "no model; fix: set KEY, or use script"
    assert one_line("no model.\n  fix: set KEY") == "no model; fix: set KEY"
    assert one_line("one\n\n  two\n") == "one two"
    assert one_line("x exited with 1:\nstarting\nhalf way\nbad table") == "x exited with 1: … bad table"
    assert one_line("x exited with 1:\nbad table") == "x exited with 1: bad table"


def test_of_a_long_message_the_remedy_stays():
    folded = one_line("a" * 300 + "\n  fix: set KEY", 40)
    assert folded == "a" * 25 + "…; fix: set KEY"
    assert len(folded) == 40
    assert one_line("b" * 50, 10) == "b" * 9 + "…"
    both = one_line("a" * 300 + "\n  fix: " + "b" * 300, 40)
    assert both == "a" * 17 + "…; fix: " + "b" * 14 + "…"
    assert len(both) == 40


def test_a_score_in_words():
    assert score_line("fail", 0.1, 0.9, 1) == "fail: score 0.10 < 0.90 after 1 turn"
    assert score_line("integrity_violation", 0.95, 0.9, 3) == "integrity_violation: score 0.95 after 3 turns"
    assert score_line("executor_incomplete", 0.0, 0.0, 0) == "executor_incomplete: score 0.00"


@pytest.mark.parametrize(("status", "score"), [(Status.FAIL, 0.5), (Status.UNJUDGED, None), (Status.RATE_LIMIT, None)])
def test_the_record_of_an_attempt_says_who_judged_and_scores_what_was_judged(tmp_path, status, score):
    made = attempt(status).model_copy(
        update={"problem": "one\ntwo", "digests": {"supervisor": "checks@1", "simulator": "template@2"}}
    )
    found = record_of_attempt(made, PartialPolicy(), tmp_path, replayed=False)
    assert (found.score, found.supervisor, found.simulator) == (score, "checks@1", "template@2")
    assert (found.reason, found.detail, found.dump()["score"]) == ("why", "one\ntwo", score)


def test_what_did_not_run_keeps_its_whole_message():
    task = SimpleNamespace(
        task_id="t", category="104_multimodal", capability="multimodal", language="en", threshold=0.9
    )
    found = skipped_record(task, "nanobot", 2, "no key\n  fix: give one", model="m")
    assert (found.reason, found.detail) == ("no key; fix: give one", "no key\n  fix: give one")
    assert (found.agent, found.model, found.number, found.score) == ("nanobot", "m", 2, None)


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


@pytest.mark.parametrize(("protocol", "score"), [("strict", 0.3), ("paper", 0.95)])
def test_the_best_verdict_is_of_the_turns_that_count(protocol, score):
    (turn,), judged = attempt().turns, [(0.3, True), (0.95, False)]
    turns = [
        turn.model_copy(update={"verdict": SimpleNamespace(score=of_turn), "finished": finished})
        for of_turn, finished in judged
    ]
    best = attempt().model_copy(update={"turns": tuple(turns), "protocol": protocol}).best_verdict
    assert best.score == score


@pytest.mark.parametrize("status", list(Status))
def test_upstream_knows_every_status_that_is_written(status):
    known = {
        "pass", "budget_exhausted", "fail", "global_timeout", "executor_incomplete", "rate_limit", "infra_error",
        "pre_exec_failed",
    }  # fmt: skip
    assert upstream_status(status) in known


def test_upstream_is_told_no_pass_of_an_attempt_that_tampered():
    passed = SimpleNamespace(
        decision=Decision.PASS, attempt_state=AttemptState.COMPLETE_AND_PASSED, recoverable=True, caps=(),
        checkpoints=(), opinion=None, score=1.0, drift=None, flags=(),
    )  # fmt: skip
    (turn,) = attempt().turns
    turns = (turn.model_copy(update={"verdict": passed}),)
    tampered = attempt(Status.INTEGRITY_VIOLATION).model_copy(update={"turns": turns, "score": 0.0})
    found = score_record(tampered)
    assert (found["verdict"], found["attempt_state"], found["recoverable"]) == ("fail", "terminal_failure", False)


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
