"""From the harness's lines to judgements: strict parsing, and what each outcome means for a rubric."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.errors import GradingError
from pytest_uniclaw.judge.checks import assess_checks, read_lines
from pytest_uniclaw.rubric import Rubric, parse_rubric
from pytest_uniclaw.verdict import Assessment, State, compute_verdict

RUBRIC = parse_rubric(
    "# T\n\n## 5. Checkpoints\n\n- **0.60 — C1 Totals.** The totals match.\n- **0.40 — C2 Note.** A note is there.\n\n"
    "## 6. Score caps\n\n- **invented** — cap at 0.40 if a row is invented.\n"
)
NODES = (
    ("check_a.py::check_c1", "checkpoint", "C1"),
    ("check_a.py::check_c2", "checkpoint", "C2"),
    ("check_a.py::check_cap", "cap", "invented"),
)


def collected(nodes: tuple[tuple[str, str, str], ...] = NODES) -> str:
    return json.dumps({"kind": "collected", "nodes": [{"node": n, "kind": k, "id": i} for n, k, i in nodes]})


def result(node: str, kind: str, identity: str, outcome: str = "passed", **more: Any) -> str:
    line = {"kind": kind, "id": identity, "node": node, "outcome": outcome, "award": None, "message": ""}
    return json.dumps(line | more)


def lines_with(**outcomes: str) -> list[str]:
    """Lines of a whole run in which the named ids (c1, c2, invented) have the given outcomes."""
    return [collected()] + [result(n, k, i, outcomes.get(i.lower(), "passed"), message="why") for n, k, i in NODES]


def test_the_rubric_of_these_tests_is_as_meant() -> None:
    assert [c.id for c in RUBRIC.checkpoints] == ["C1", "C2"]
    assert [c.id for c in RUBRIC.caps] == ["invented"]
    assert RUBRIC.problems == ()


def test_everything_passed() -> None:
    findings = assess_checks(read_lines(lines_with()), RUBRIC)
    assert [j.state for j in findings.judgements] == [State.MET, State.MET]
    assert [c.triggered for c in findings.caps] == [False]
    assert (findings.fatal, findings.flags, findings.unjudged) == ((), (), ())


@pytest.mark.parametrize(
    ("outcome", "flags"),
    [
        ("failed", ()), ("error", ("check_error",)), ("timeout", ("check_error",)),
        ("crashed", ("check_error", "grader_crash")),
    ],
)
def test_whatever_did_not_pass_is_unmet(outcome: str, flags: tuple[str, ...]) -> None:
    findings = assess_checks(read_lines(lines_with(c1=outcome)), RUBRIC)
    judgement = findings.judgements[0]
    assert (judgement.state, judgement.fraction, judgement.flags) == (State.UNMET, 0.0, flags)
    assert judgement.rationale == "why"
    assert findings.flags == flags


@pytest.mark.parametrize("outcome", ["failed", "error", "timeout", "crashed"])
def test_a_cap_fires_when_its_check_does_not_pass(outcome: str) -> None:
    findings = assess_checks(read_lines(lines_with(invented=outcome)), RUBRIC)
    assert [c.triggered for c in findings.caps] == [True]


@pytest.mark.parametrize(
    ("award", "state"), [(None, State.MET), (1.0, State.MET), (0.5, State.PARTIAL), (0.0, State.UNMET)]
)
def test_partial_credit(award: float | None, state: State) -> None:
    lines = [*lines_with()[:1], result(*NODES[0], award=award), *lines_with()[2:]]
    judgement = assess_checks(read_lines(lines), RUBRIC).judgements[0]
    assert judgement.state is state
    assert judgement.fraction == (1.0 if award is None else award)


def test_skipped_missing_and_doubled_checks_are_unjudged_never_zero() -> None:
    skipped = assess_checks(read_lines(lines_with(c1="skipped", invented="skipped")), RUBRIC)
    assert skipped.judgements[0].state is State.UNJUDGED
    assert skipped.caps[0].triggered is None
    doubled = (*NODES, ("check_b.py::check_c1", "checkpoint", "C1"))
    report = read_lines([collected(doubled), *(result(*node) for node in doubled)])
    assert "2 checks are marked with it" in assess_checks(report, RUBRIC).unjudged[0]
    missing = assess_checks(read_lines([collected(NODES[:1]), result(*NODES[0])]), RUBRIC)
    assert missing.unjudged == ("checkpoint C2: no check is marked with it", "cap invented: no check is marked with it")
    for findings in (skipped, missing):
        assessment = Assessment(judgements=findings.judgements, caps=findings.caps)
        with pytest.raises(GradingError, match="could not be judged"):
            compute_verdict(RUBRIC, assessment, threshold=0.9, followups_left=1, finished=True)


def test_a_check_for_something_the_rubric_does_not_have_is_said() -> None:
    nodes = (*NODES, ("check_b.py::check_c9", "checkpoint", "C9"))
    findings = assess_checks(read_lines([collected(nodes), *(result(*node) for node in nodes)]), RUBRIC)
    assert findings.unjudged == ("check_b.py::check_c9: eval_rule.md has no checkpoint C9",)


def test_fatal_and_integrity() -> None:
    nodes = (*NODES, ("check_b.py::check_f", "fatal", "deleted the source"))
    lines = [collected(nodes), *(result(*node) for node in NODES)]
    failed = read_lines([*lines, result(*nodes[3], "failed", message="ledger.db is gone")])
    assert assess_checks(failed, RUBRIC).fatal == ("deleted the source: ledger.db is gone",)
    passed = read_lines([*lines, result(*nodes[3])])
    assert assess_checks(passed, RUBRIC).fatal == ()
    skipped = read_lines([*lines, result(*nodes[3], "skipped")])
    assert "was skipped" in assess_checks(skipped, RUBRIC).unjudged[0]
    note = json.dumps({"kind": "integrity", "node": "x", "message": "answers replaced"})
    assert assess_checks(read_lines([*lines_with(), note]), RUBRIC).flags == ("integrity:answers replaced",)


MALFORMED = {
    "not json": "}{",
    "not an object": "[1]",
    "unknown kind": json.dumps({"kind": "score", "value": 1}),
    "unknown field": result(*NODES[0], extra=1),
    "award over one": result(*NODES[0], award=1.5),
    "award nan": result(*NODES[0], award=float("nan")),
    "award text": result(*NODES[0], award="1"),
    "unknown outcome": result(*NODES[0], "great"),
    "long message": result(*NODES[0], message="x" * 501),
    "another id": result(NODES[0][0], "checkpoint", "C2"),
    "uncollected node": result("check_z.py::check_z", "checkpoint", "C1"),
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("line", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_line_is_counted_and_never_believed(line: str) -> None:
    report = read_lines([collected(), line, *lines_with()[2:]])
    assert report.malformed == 1
    assert report.unsettled == ("check_a.py::check_c1",)
    assert any(flag.startswith("grader_output") for flag in assess_checks(report, RUBRIC).flags)


def test_a_second_line_for_a_node_changes_nothing() -> None:
    report = read_lines([*lines_with(c1="failed"), result(*NODES[0])])
    assert assess_checks(report, RUBRIC).judgements[0].state is State.UNMET


def test_a_retry_settles_only_what_was_unsettled() -> None:
    first = read_lines(lines_with(c1="crashed", c2="failed")[:3])
    assert first.unsettled == ("check_a.py::check_c1", "check_a.py::check_cap")
    again = read_lines(lines_with())
    merged = assess_checks(first.merged(again), RUBRIC)
    assert [j.state for j in merged.judgements] == [State.MET, State.UNMET]
    assert [c.triggered for c in merged.caps] == [False]
    assert assess_checks(read_lines([]).merged(again), RUBRIC).judgements[0].state is State.MET


@given(st.lists(st.one_of(st.text(), st.sampled_from([*lines_with(), *MALFORMED.values()]))))
def test_no_line_ever_raises(lines: list[str]) -> None:
    findings = assess_checks(read_lines(lines), RUBRIC)
    assert len(findings.judgements) == 2


def test_a_formula_rubric_has_nothing_to_judge() -> None:
    empty = Rubric((), (), (), True, None, ())
    assert assess_checks(read_lines([]), empty).judgements == ()
