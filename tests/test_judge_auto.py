"""Checks for what has them, a model for the rest; and panels of judges."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.errors import GradingError, InfraError, SandboxLost
from pytest_uniclaw.judge.auto import AutoSupervisor, static_needs_model
from pytest_uniclaw.judge.base import Case
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.panel import PanelSupervisor, panel_of
from pytest_uniclaw.modelchoice import RoleChoice
from pytest_uniclaw.sandbox.base import GradingJob, GradingOutput
from pytest_uniclaw.verdict import Assessment, Decision, State, Verdict, compute_verdict
from tests.support.judging import (
    CHOICE,
    FORMULA,
    FakeChat,
    FakeProvider,
    make_case,
    quote,
    submission,
    with_line,
    with_nonce,
)  # fmt: skip
from tests.test_supervisor import HostProvider

AUTO = AutoSupervisor(model=ModelSupervisor(CHOICE))
C1 = """
import os, pytest

@pytest.mark.checkpoint("C1")
def check_report(evidence):
    assert "412.50" in evidence.text("report.md"), "the total is missing"
"""
C2 = """
@pytest.mark.checkpoint("C2")
def check_rows(evidence):
    evidence.award(0.5, "half of the rows")
"""
C3 = """
@pytest.mark.checkpoint("C3")
def check_sources(evidence):
    pass
"""
CAP = """
@pytest.mark.cap("invented")
def check_invented(evidence):
    assert not evidence.exists("invented.csv"), "a row is invented"
"""
FATAL = """
@pytest.mark.fatal("the report was published")
def check_published(evidence):
    assert not evidence.exists("published"), "it is out"
"""


def case_with(folder: Path, checks: str, *chats: FakeChat, **more: Any) -> Case:
    provider = FakeProvider(grading=HostProvider(folder).grade)
    return make_case(folder, *chats, checks=checks, provider=provider, **more)


def verdict_of(case: Case, assessment: Assessment) -> Verdict:
    return compute_verdict(case.rubric, assessment, threshold=0.9, followups_left=2, finished=True)


def rest_of(*identities: str, caps: bool = True) -> Any:
    """The sound submission, reduced to what is left to a judge."""
    payload = submission()
    payload["checkpoints"] = [line for line in payload["checkpoints"] if line["id"] in identities]
    return payload if caps else {k: v for k, v in payload.items() if k != "caps"}


def test_a_task_that_checks_decide_wholly_opens_no_model(tmp_path: Path) -> None:
    case = case_with(tmp_path, C1 + C2 + C3 + CAP, FakeChat([InfraError("no model may be asked")]))
    assessment = AUTO.assess(case)
    assert verdict_of(case, assessment).score == 0.85
    assert case.roles.opened == []  # type: ignore[union-attr]
    assert case.provider.opened == []  # type: ignore[attr-defined]
    assert assessment.grader.startswith("checks/1 rubric:")
    assert assessment.opinion is None


def test_the_model_judges_what_has_no_check_and_is_told_the_facts(tmp_path: Path) -> None:
    chat = FakeChat([with_nonce(rest_of("C2", "C3"))])
    case = case_with(tmp_path, C1, chat)
    assessment = AUTO.assess(case)
    assert [(j.checkpoint, j.fraction) for j in assessment.judgements] == [("C1", 1.0), ("C2", 0.5), ("C3", 1.0)]
    assert assessment.judgements[0].evidence[0].path == "references/checks/check_it.py::check_report"
    assert [cap.cap for cap in assessment.caps] == ["invented"]
    assert verdict_of(case, assessment).score == 0.85
    assert "- checkpoint `C1`: met (1 of its weight)" in chat.first
    assert "`C1` (weight" not in chat.first
    assert assessment.grader.count("rubric:") == 2
    assert " + model/1 acme/judge-1" in assessment.grader


def test_a_cap_without_check_goes_to_the_model(tmp_path: Path) -> None:
    cap = {
        "id": "invented",
        "triggered": True,
        "reason": "made up",
        "evidence": [quote("evidence/results/rows.csv", "a,1")],
    }
    payload = {k: v for k, v in submission(caps=[cap]).items() if k != "checkpoints"}
    case = case_with(tmp_path, C1 + C2 + C3, FakeChat([with_nonce(payload)]))
    assert verdict_of(case, AUTO.assess(case)).score == 0.4


def test_a_check_cannot_be_overridden(tmp_path: Path) -> None:
    chat = FakeChat([with_nonce(submission()), with_nonce(rest_of("C2", "C3", caps=False))])
    case = case_with(
        tmp_path, C1 + CAP, chat, results={"report.md": "The total is 1", "rows.csv": "a,1", "invented.csv": "x"}
    )
    verdict = verdict_of(case, AUTO.assess(case))
    assert "C1 is decided by a check; leave it out" in chat.last
    assert (verdict.total, verdict.score) == (0.35, 0.35)
    assert verdict.caps[0].triggered
    assert "a row is invented" in chat.first


def test_a_fatal_check_is_final_whatever_the_model_says(tmp_path: Path) -> None:
    results = {"report.md": "412.50", "rows.csv": "a,1", "published": "x"}
    case = case_with(tmp_path, C1 + FATAL, FakeChat([with_nonce(rest_of("C2", "C3"))]), results=results)
    verdict = verdict_of(case, AUTO.assess(case))
    assert (verdict.decision, verdict.fatal) == (Decision.FAIL, ("the report was published: it is out",))


def test_after_tampering_no_model_is_asked(tmp_path: Path) -> None:
    tampers = C1.replace("    assert", "    evidence.violation('the answers were replaced')\n    assert")
    case = case_with(tmp_path, tampers, FakeChat([GradingError("no model may be asked")]))
    assessment = AUTO.assess(case)
    assert assessment.flags == ("integrity:the answers were replaced",)
    assert case.roles.opened == []  # type: ignore[union-attr]


def test_a_skipped_check_is_the_authors_fault_and_not_the_models_to_judge(tmp_path: Path) -> None:
    skipped = C1.replace("    assert", "    pytest.skip('no engine')\n    assert")
    with pytest.raises(GradingError, match="was skipped: no engine"):
        AUTO.assess(case_with(tmp_path, skipped, FakeChat([with_nonce(rest_of("C2", "C3"))])))


def test_a_grading_container_lost_twice_leaves_the_checked_lines_unmet(tmp_path: Path) -> None:
    def lost(job: GradingJob) -> GradingOutput:
        raise SandboxLost("gone", cause="oom")

    provider = FakeProvider(grading=lost)
    case = make_case(tmp_path, FakeChat([with_nonce(rest_of("C2", "C3"))]), checks=C1, provider=provider)
    assessment = AUTO.assess(case)
    assert [j.state for j in assessment.judgements] == [State.UNMET, State.PARTIAL, State.MET]
    assert assessment.flags == ("grader_crash",)


def test_a_task_without_checks_is_judged_by_the_model_alone(tmp_path: Path) -> None:
    case = make_case(tmp_path, FakeChat([with_nonce(submission())]))
    assert verdict_of(case, AUTO.assess(case)).score == 0.85


def test_without_a_model_it_says_what_is_left(tmp_path: Path) -> None:
    case = case_with(tmp_path, C1 + CAP)
    with pytest.raises(GradingError, match="a model must judge C2, C3, and none can be asked"):
        AutoSupervisor().assess(case)


@pytest.mark.parametrize(
    ("checks", "needed"),
    [
        ("", True),
        (C1 + C2 + C3 + CAP, False),
        (C1 + C2 + C3, True),
        (C1 + CAP, True),
        ("import pytest\nfor n in (1, 2):\n    globals()[f'check_{n}'] = print\n", False),
    ],
)
def test_whether_a_task_needs_a_model_is_read_off_its_files(tmp_path: Path, checks: str, needed: bool) -> None:
    assert static_needs_model(make_case(tmp_path, checks=checks).task) is needed


def test_a_formula_needs_a_model(tmp_path: Path) -> None:
    assert static_needs_model(make_case(tmp_path, rules=FORMULA, checks=CAP).task)


def test_it_takes_the_model_of_the_role(tmp_path: Path) -> None:
    chosen = AutoSupervisor().configured(RoleChoice(CHOICE, "low", "", "3"))
    assert chosen.model == PanelSupervisor(ModelSupervisor(CHOICE, "low"), 3)
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    assert chosen.version == f"1+{chosen.model.version}"
    assert AutoSupervisor().version != chosen.version


# Panels


def voting(*payloads: Any) -> tuple[FakeChat, ...]:
    return tuple(FakeChat([with_nonce(payload)]) for payload in payloads)


HALF = submission()
NONE = with_line("C2", state="unmet", reason="no rows")
FULL = with_line("C2", state="met", evidence=[quote("evidence/results/rows.csv", "a,1")], reason="all rows")
UNSURE = with_line("C2", state="cannot_determine", reason="it is in code")
TRIGGERED = with_line(
    "invented", triggered=True, evidence=[quote("evidence/results/rows.csv", "a,1")], reason="made up"
)


@pytest.mark.parametrize(
    ("payloads", "fraction", "score"),
    [
        ((NONE, HALF, FULL), 0.5, 0.85),
        ((FULL, NONE, FULL), 1.0, 1.0),
        ((NONE, FULL, NONE), 0.0, 0.7),
        ((UNSURE, FULL, HALF), 0.5, 0.85),
        ((HALF, TRIGGERED, TRIGGERED), 0.5, 0.4),
        ((HALF, TRIGGERED, HALF), 0.5, 0.85),
    ],
)
def test_a_panel_takes_median_and_majority(tmp_path: Path, payloads: Any, fraction: float, score: float) -> None:
    case = make_case(tmp_path, *voting(*payloads))
    assessment = PanelSupervisor(ModelSupervisor(CHOICE)).assess(case)
    assert [tag for *_, tag in case.roles.opened] == ["j1", "j2", "j3"]  # type: ignore[union-attr]
    assert assessment.judgements[1].fraction == fraction
    assert verdict_of(case, assessment).score == score


def test_a_panel_stores_its_votes_and_flags_disagreement(tmp_path: Path) -> None:
    case = make_case(tmp_path, *voting(UNSURE, FULL, TRIGGERED))
    verdict = verdict_of(case, PanelSupervisor(ModelSupervisor(CHOICE)).assess(case))
    votes = {vote.id or vote.kind: vote.votes for vote in verdict.judges}
    assert votes == {
        "C1": (1.0, 1.0, 1.0), "C2": (None, 1.0, 0.5), "C3": (1.0, 1.0, 1.0), "invented": (0.0, 0.0, 1.0),
        "recoverable": (1.0, 1.0, 1.0),
    }  # fmt: skip
    assert verdict.flags == ("disagreement:C2", "disagreement:invented")
    assert verdict.grader.endswith(" judges:3")
    assert verdict.opinion is not None


def test_a_panel_most_of_which_cannot_tell_cannot_either(tmp_path: Path) -> None:
    case = make_case(tmp_path, *voting(UNSURE, UNSURE, FULL))
    with pytest.raises(GradingError, match="C2 could not be judged: it is in code"):
        verdict_of(case, PanelSupervisor(ModelSupervisor(CHOICE)).assess(case))


def test_one_judge_without_an_answer_is_outvoted_and_two_are_not(tmp_path: Path) -> None:
    broken = FakeChat([{"role": "assistant", "content": "no"}])
    case = make_case(tmp_path / "a", broken, *voting(HALF, HALF))
    assessment = PanelSupervisor(ModelSupervisor(CHOICE)).assess(case)
    assert verdict_of(case, assessment).score == 0.85
    assert "judge_lost:j1" in assessment.flags
    with pytest.raises(GradingError, match="no usable answer"):
        PanelSupervisor(ModelSupervisor(CHOICE)).assess(make_case(tmp_path / "b", broken, broken, *voting(HALF)))


def test_giving_up_needs_a_majority(tmp_path: Path) -> None:
    decision = submission()["decision"] | {"verdict": "fail", "attempt_state": "terminal_failure", "recoverable": False}
    recovery = {"recoverable": False, "reason": "gone", "evidence": [quote("evidence/results/rows.csv", "a,1")]}
    lost = submission(decision=decision, recovery=recovery)
    one = make_case(tmp_path / "a", *voting(lost, HALF, HALF))
    two = make_case(tmp_path / "b", *voting(lost, HALF, lost))
    panel = PanelSupervisor(ModelSupervisor(CHOICE))
    assert verdict_of(one, panel.assess(one)).decision is Decision.CONTINUE
    verdict = verdict_of(two, panel.assess(two))
    assert (verdict.decision, verdict.fatal) == (Decision.FAIL, ("gone",))


@pytest.mark.parametrize(
    ("first", "judges"),
    [(NONE, 1), (HALF, 3), (UNSURE, 3), (FULL, 1)],
    ids=["far below", "near", "cannot determine", "far above"],
)
def test_a_doubtful_judgement_is_escalated(tmp_path: Path, first: Any, judges: int) -> None:
    case = make_case(tmp_path, *voting(first, HALF, HALF))
    assessment = PanelSupervisor(ModelSupervisor(CHOICE), escalate=True).assess(case)
    assert len(case.roles.opened) == judges  # type: ignore[union-attr]
    assert bool(assessment.judges) is (judges == 3)


def test_escalation_counts_what_checks_have_settled(tmp_path: Path) -> None:
    """C1 fails by its check: 0.35 in all is far from the threshold, and one judge is enough."""
    case = case_with(tmp_path, C1, *voting(rest_of("C2", "C3")), results={"report.md": "no", "rows.csv": "a,1"})
    auto = AutoSupervisor(model=PanelSupervisor(ModelSupervisor(CHOICE), escalate=True))
    assert verdict_of(case, auto.assess(case)).score == 0.35
    assert len(case.roles.opened) == 1  # type: ignore[union-attr]


def test_an_infrastructure_error_of_one_judge_is_the_panels(tmp_path: Path) -> None:
    case = make_case(tmp_path, *voting(HALF), FakeChat([InfraError("429", kind="rate_limit")]))
    with pytest.raises(InfraError):
        PanelSupervisor(ModelSupervisor(CHOICE)).assess(case)


def test_panels_are_odd_and_named_by_the_option() -> None:
    model = ModelSupervisor(CHOICE)
    assert panel_of(model, "1") == model
    assert panel_of(model, "5") == PanelSupervisor(model, 5)
    assert panel_of(model, "auto") == PanelSupervisor(model, 3, escalate=True)
    assert len({panel_of(model, n).version for n in ("1", "3", "5", "auto")}) == 4
    with pytest.raises(ValueError, match="odd"):
        PanelSupervisor(model, 2)
