"""The arithmetic of verdict.py: totals, caps, thresholds, decisions, and what it refuses to compute."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_uniclaw.errors import GradingError
from pytest_uniclaw.rubric import Cap, Checkpoint, Rubric, parse_rubric
from pytest_uniclaw.verdict import (
    Assessment,
    AttemptState,
    CapJudgement,
    Decision,
    Handoff,
    Judgement,
    Opinion,
    State,
    Verdict,
    Votes,
    compute_verdict,
    handoff_of,
)  # fmt: skip


def make_rubric(weights: list[float], caps: list[float]) -> Rubric:
    checkpoints = tuple(Checkpoint(f"C{n}", f"name {n}", w, "", n) for n, w in enumerate(weights, 1))
    return Rubric((), checkpoints, tuple(Cap(f"cap{n}", v, "", n) for n, v in enumerate(caps, 1)), False, None, ())


def make_judgement(checkpoint: str, fraction: float) -> Judgement:
    state = State.MET if fraction == 1 else State.UNMET if fraction == 0 else State.PARTIAL
    return Judgement(checkpoint=checkpoint, state=state, fraction=fraction)


@st.composite
def graded(draw: st.DrawFn) -> tuple[Rubric, Assessment]:
    """A rubric in hundredths that sums to one, and a full assessment of it."""
    cuts = sorted(draw(st.sets(st.integers(1, 99), max_size=9)))
    weights = [(b - a) / 100 for a, b in zip([0, *cuts], [*cuts, 100], strict=True)]
    caps = draw(st.lists(st.integers(0, 99).map(lambda n: n / 100), max_size=4))
    rubric = make_rubric(weights, caps)
    fractions = st.one_of(st.sampled_from([0.0, 1.0, 0.5]), st.floats(0, 1, allow_subnormal=False))
    judgements = tuple(make_judgement(c.id, draw(fractions)) for c in rubric.checkpoints)
    triggered = tuple(CapJudgement(cap=c.id, triggered=draw(st.booleans())) for c in rubric.caps)
    return rubric, Assessment(judgements=judgements, caps=triggered)


def compute(rubric: Rubric, assessment: Assessment, **options: Any) -> Any:
    return compute_verdict(rubric, assessment, **({"threshold": 0.9, "followups_left": 2, "finished": True} | options))


@given(graded())
def test_the_score_is_bounded_by_total_caps_and_one(case: tuple[Rubric, Assessment]) -> None:
    rubric, assessment = case
    verdict = compute(rubric, assessment)
    assert 0.0 <= verdict.score <= verdict.total <= 1.0
    expected = math.fsum(c.weight * j.fraction for c, j in zip(rubric.checkpoints, assessment.judgements, strict=True))
    assert verdict.total == pytest.approx(expected, abs=1e-5)
    ceilings = [c.value for c, j in zip(rubric.caps, assessment.caps, strict=True) if j.triggered]
    assert verdict.score == min([verdict.total, *ceilings])


@given(graded())
def test_all_met_and_no_cap_is_exactly_one(case: tuple[Rubric, Assessment]) -> None:
    rubric, assessment = case
    met = Assessment(judgements=tuple(make_judgement(j.checkpoint, 1.0) for j in assessment.judgements))
    verdict = compute(rubric, met, threshold=1.0)
    assert (verdict.score, verdict.decision, verdict.first_miss) == (1.0, Decision.PASS, None)


@given(graded(), st.integers(0, 8))
def test_meeting_one_more_checkpoint_never_lowers_the_score(case: tuple[Rubric, Assessment], index: int) -> None:
    rubric, assessment = case
    assume(index < len(assessment.judgements))
    better = list(assessment.judgements)
    better[index] = make_judgement(better[index].checkpoint, 1.0)
    after = compute(rubric, assessment.model_copy(update={"judgements": tuple(better)}))
    assert after.score >= compute(rubric, assessment).score


@given(graded(), st.randoms())
def test_the_order_of_judgements_does_not_matter(case: tuple[Rubric, Assessment], random: Any) -> None:
    rubric, assessment = case
    shuffled = random.sample(assessment.judgements, len(assessment.judgements))
    assert compute(rubric, assessment.model_copy(update={"judgements": tuple(shuffled)})) == compute(rubric, assessment)


@given(graded(), st.floats(0.01, 1), st.integers(0, 3), st.booleans(), st.booleans())
def test_the_decision_follows_from_score_fatal_and_finish(
    case: tuple[Rubric, Assessment], threshold: float, left: int, finished: bool, fatal: bool
) -> None:
    rubric, assessment = case
    assessment = assessment.model_copy(update={"fatal": ("gone",) if fatal else ()})
    verdict = compute(rubric, assessment, threshold=threshold, followups_left=left, finished=finished)
    if fatal:
        expected = (Decision.FAIL, AttemptState.TERMINAL_FAILURE, False)
    elif not finished:
        expected = (Decision.CONTINUE, AttemptState.IN_PROGRESS, left > 0)
    elif verdict.score >= threshold:
        expected = (Decision.PASS, AttemptState.COMPLETE_AND_PASSED, True)
    else:
        expected = (Decision.CONTINUE, AttemptState.INCOMPLETE, left > 0)
    assert (verdict.decision, verdict.attempt_state, verdict.recoverable) == expected
    handoff = handoff_of(verdict)
    assert handoff.model_dump() == {
        "verdict": verdict.decision.value, "attempt_state": verdict.attempt_state.value,
        "recoverable": verdict.recoverable, "score": verdict.score,
    }


def test_ten_tenths_are_one() -> None:
    rubric = make_rubric([0.1] * 10, [])
    met = Assessment(judgements=tuple(make_judgement(c.id, 1.0) for c in rubric.checkpoints))
    assert compute(rubric, met, threshold=1.0).decision is Decision.PASS


RUBRIC = make_rubric([0.5, 0.5], [0.4])
GOOD = (make_judgement("C1", 1.0), make_judgement("C2", 0.0))


@pytest.mark.parametrize(
    ("judgements", "message"),
    [
        (GOOD[:1], "not judged: C2"),
        ((*GOOD, GOOD[0]), "judged twice: C1"),
        ((*GOOD, make_judgement("C3", 1.0)), "unknown to the rubric: C3"),
        ((GOOD[0], Judgement(checkpoint="C2", state=State.UNJUDGED, fraction=0.0)), "C2 could not be judged"),
        ((GOOD[0], Judgement(checkpoint="C2", state=State.MET, fraction=1.2)), "not within 0 and 1"),
        ((GOOD[0], Judgement(checkpoint="C2", state=State.UNMET, fraction=-0.1)), "not within 0 and 1"),
        ((GOOD[0], Judgement(checkpoint="C2", state=State.PARTIAL, fraction=math.nan)), "not within 0 and 1"),
        ((GOOD[0], Judgement(checkpoint="C2", state=State.PARTIAL, fraction=math.inf)), "not within 0 and 1"),
        ((GOOD[0], Judgement(checkpoint="C2", state=State.MET, fraction=0.5)), "contradicts"),
        ((GOOD[0], Judgement(checkpoint="C2", state=State.UNMET, fraction=0.5)), "contradicts"),
        ((GOOD[0], Judgement(checkpoint="C2", state=State.PARTIAL, fraction=1.0)), "contradicts"),
    ],
)  # fmt: skip
def test_contradictory_judgements_are_refused_never_clamped(judgements: tuple[Judgement, ...], message: str) -> None:
    with pytest.raises(GradingError, match=message):
        compute(RUBRIC, Assessment(judgements=judgements))


def test_caps_are_checked_too() -> None:
    with pytest.raises(GradingError, match="caps unknown to the rubric: other"):
        compute(RUBRIC, Assessment(judgements=GOOD, caps=(CapJudgement(cap="other", triggered=True),)))
    twice = (CapJudgement(cap="cap1", triggered=True), CapJudgement(cap="cap1", triggered=False))
    with pytest.raises(GradingError, match="caps judged twice: cap1"):
        compute(RUBRIC, Assessment(judgements=GOOD, caps=twice))
    with pytest.raises(GradingError, match="cap1 could not be judged"):
        compute(RUBRIC, Assessment(judgements=GOOD, caps=(CapJudgement(cap="cap1", triggered=None),)))


def test_a_handoff_has_four_fields_and_takes_no_other() -> None:
    with pytest.raises(ValidationError):
        Handoff.model_validate(
            {"verdict": "continue", "attempt_state": "incomplete", "recoverable": True, "score": 0.1, "rationale": "x"}
        )


@pytest.mark.parametrize("weights", [(0.9, 0.3), (0.6, 0.3), (0.4,), ()])
def test_weights_that_do_not_sum_to_1_give_no_score(weights: tuple[float, ...]) -> None:
    text = "\n".join(f"- **{weight:.2f} — C{n} Name.** text" for n, weight in enumerate(weights, start=1))
    rubric = parse_rubric(f"# Rule\n\n## 5. Checkpoints\n\n{text}\n")
    judged = tuple(Judgement(checkpoint=c.id, state=State.MET, fraction=1.0) for c in rubric.checkpoints)
    with pytest.raises(GradingError, match="the weights sum to"):
        compute_verdict(rubric, Assessment(judgements=judged), threshold=0.9, followups_left=0, finished=True)


OPINION = Opinion(
    verdict="pass", attempt_state="complete_and_passed", recoverable=True, score=1.0, confidence=0.9, rationale="fine"
)


@given(graded(), st.floats(0, 1), st.sampled_from(["pass", "fail", "continue"]))
def test_a_judges_own_decision_moves_no_number(case: tuple[Rubric, Assessment], score: float, said: Any) -> None:
    rubric, assessment = case
    opinion = OPINION.model_copy(update={"verdict": said, "score": score})
    plain, opined = compute(rubric, assessment), compute(rubric, assessment.model_copy(update={"opinion": opinion}))
    assert (plain.score, plain.total, plain.decision) == (opined.score, opined.total, opined.decision)
    assert (plain.drift, opined.opinion) == (None, opinion)
    assert opined.drift == pytest.approx(score - plain.score, abs=1e-6)


@pytest.mark.parametrize(
    ("fraction", "finished", "decision", "state"),
    [
        (0.5, True, Decision.FAIL, AttemptState.TERMINAL_FAILURE),
        (0.5, False, Decision.FAIL, AttemptState.TERMINAL_FAILURE),
        (1.0, True, Decision.PASS, AttemptState.COMPLETE_AND_PASSED),
        (1.0, False, Decision.CONTINUE, AttemptState.IN_PROGRESS),
    ],
)
def test_what_cannot_be_recovered_fails_below_the_threshold(
    fraction: float, finished: bool, decision: Decision, state: AttemptState
) -> None:
    judgements = (make_judgement("C1", fraction), make_judgement("C2", 1.0))
    assessment = Assessment(judgements=judgements, recoverable=False, loss="the source is gone")
    verdict = compute(RUBRIC, assessment, finished=finished)
    assert (verdict.decision, verdict.attempt_state) == (decision, state)
    assert verdict.fatal == (("the source is gone",) if decision is Decision.FAIL else ())


@pytest.mark.parametrize(("said", "state"), [("in_progress", "in_progress"), ("complete_but_failed", "incomplete")])
def test_the_state_of_a_turn_that_goes_on_is_the_judges(said: Any, state: str) -> None:
    opinion = OPINION.model_copy(update={"verdict": "continue", "attempt_state": said})
    judgements = (make_judgement("C1", 0.5), make_judgement("C2", 1.0))
    verdict = compute(RUBRIC, Assessment(judgements=judgements, opinion=opinion))
    assert handoff_of(verdict).attempt_state == state


FORMULA = Rubric((), (), (Cap("cap1", 0.3, "", 1),), True, None, ())


def test_a_formula_is_scored_by_the_judge_and_capped_by_code() -> None:
    caps = (CapJudgement(cap="cap1", triggered=True),)
    verdict = compute(FORMULA, Assessment(judgements=(), holistic=0.7, caps=caps, flags=("x",)))
    assert (verdict.total, verdict.score, verdict.flags) == (0.7, 0.3, ("x", "holistic_score"))


@pytest.mark.parametrize(
    ("rubric", "holistic", "message"),
    [
        (FORMULA, None, "gave no holistic score"),
        (FORMULA, 1.2, "not within 0 and 1"),
        (FORMULA, math.nan, "not within 0 and 1"),
    ],
)
def test_a_formula_without_a_sound_score_gives_none(rubric: Rubric, holistic: float | None, message: str) -> None:
    with pytest.raises(GradingError, match=message):
        compute(rubric, Assessment(judgements=(), holistic=holistic))


def test_weights_and_a_holistic_score_exclude_each_other() -> None:
    with pytest.raises(GradingError, match="for a rubric with weighted checkpoints"):
        compute(RUBRIC, Assessment(judgements=GOOD, holistic=1.0))


def test_a_verdict_with_opinion_and_votes_survives_storage() -> None:
    votes = (Votes(kind="checkpoint", id="C1", votes=(1.0, None, 0.5)),)
    verdict = compute(RUBRIC, Assessment(judgements=GOOD, opinion=OPINION, judges=votes))
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
    assert not verdict.judges[0].unanimous
