"""What a judge may answer: each fault is asked for again with its own words, and nothing is repaired in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.errors import GradingError
from pytest_uniclaw.judge.base import Assignment
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.strictjson import Rejected, last_object, parse_object
from pytest_uniclaw.judge.submission import read_submission, tool_definition
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.rubric import parse_rubric
from pytest_uniclaw.verdict import Assessment, CapJudgement, Judgement, State, compute_verdict
from tests.support.judging import FORMULA, RULES, FakeChat, make_case, quote, say, submission, submit, with_line

SCRIPTED = ModelSupervisor(ModelChoice("script", "scripted"))
WHOLE = Assignment.whole(parse_rubric(RULES))
SOUND = json.dumps(submission())


def changed(**decision: Any) -> Any:
    return submission(decision=submission()["decision"] | decision)


def fenced(text: str) -> str:
    return f"Here is my assessment.\n```json\n{text}\n```\nThat is all."


FENCES = submission()
FENCES["checkpoints"][0] = FENCES["checkpoints"][0] | {"reason": 'it has\n```json\n{"verdict": "pass"}\n``` in it'}
TWICE = submission()
TWICE["checkpoints"] = [*TWICE["checkpoints"], TWICE["checkpoints"][0]]
INVENTED = submission()
INVENTED["checkpoints"] = [*INVENTED["checkpoints"], INVENTED["checkpoints"][0] | {"id": "C9"}]

FAULTS = {
    "prose": ("The agent did well; I would pass it.", "there is no complete JSON object"),
    "silence": ("", "there is no complete JSON object"),
    "half an object": (SOUND[: len(SOUND) // 2], "a JSON object in the answer is not complete"),
    "single quotes": (SOUND.replace('"', "'"), "not valid JSON: Expecting property name enclosed in double quotes"),
    "trailing comma": (SOUND[:-1] + ",}", "not valid JSON"),
    "trailing comma in a fence": (fenced(SOUND[:-1] + ",}"), "not valid JSON"),
    "bare fences in a string": (fenced(json.dumps(FENCES).replace("\\n", "\n")), "Invalid control character"),
    "comment": (SOUND[:-1] + " // sure\n}", "not valid JSON"),
    "duplicate key": (SOUND[:-1] + ', "caps": []}', "the key 'caps' stands twice in one object"),
    "duplicate state": (SOUND.replace('"state": "met"', '"state": "unmet", "state": "met"', 1), "'state' stands twice"),
    "NaN": (SOUND.replace('"score": 0.8', '"score": NaN'), "NaN is no JSON number"),
    "Infinity": (SOUND.replace('"fraction": 0.5', '"fraction": Infinity'), "Infinity is no JSON number"),
    "overflow": (SOUND.replace('"score": 0.8', '"score": 1e999'), "1e999 is out of range"),
    "lone surrogate": (SOUND.replace("half of them", "\\ud800"), "half of a surrogate pair"),
    "nested deeply": ('{"a":' * 3000 + "1" + "}" * 3000, "nested too deeply"),
    "out of range": (changed(score=1.4), "decision.score: Input should be less than or equal to 1; it is 1.4"),
    "negative": (with_line("C2", state="partial", fraction=-0.5, reason="r"), "greater than or equal to 0; it is -0.5"),
    "percent": (changed(confidence=85), "decision.confidence: Input should be less than or equal to 1; it is 85"),
    "string score": (changed(score="0.8"), 'decision.score: Input should be a valid number; it is "0.8" (a string)'),
    "string fraction": (with_line("C2", state="partial", fraction="0.5", reason="r"), '"0.5" (a string)'),
    "boolean as number": (changed(score=True), "decision.score: Input should be a valid number; it is true"),
    "string boolean": (with_line("invented", triggered="false", reason="r"), "should be a valid boolean"),
    "unknown state": (with_line("C2", state="mostly", reason="r"), "'met', 'partial', 'unmet' or 'cannot_determine'"),
    "upper case state": (with_line("C2", state="MET", reason="r"), "'met', 'partial', 'unmet' or 'cannot_determine'"),
    "missing checkpoint": (submission(checkpoints=submission()["checkpoints"][:2]), "checkpoints: missing C3"),
    "missing checkpoints": ({k: v for k, v in submission().items() if k != "checkpoints"}, "missing C1, C2, C3"),
    "missing cap": (submission(caps=[]), "caps: missing invented"),
    "missing decision": ({k: v for k, v in submission().items() if k != "decision"}, "decision: is missing"),
    "missing reason": (with_line("C2", state="unmet"), "checkpoints[1].reason: is missing"),
    "invented checkpoint": (INVENTED, "checkpoints: 'C9' is not in the rubric; leave it out"),
    "doubled checkpoint": (TWICE, "checkpoints: C1 is judged 2 times; judge it once"),
    "invented cap": (with_line("invented", triggered=False, reason="r") | {"caps": [
        *submission()["caps"], {"id": "bonus", "triggered": False, "reason": "r"}]}, "'bonus' is not in the rubric"),
    "total": (submission(total=1.0), "total: is not asked for; leave it out"),
    "score on top": (submission(score=1.0, verdict="pass"), "score: is not asked for"),
    "weight of its own": (with_line("C1", state="unmet", weight=0.9, reason="r"), "[0].weight: is not asked"),
    "met and 0.4": (with_line("C1", state="met", fraction=0.4, evidence=[quote("a", "b")], reason="r"),
                    "met contradicts fraction 0.4; met means 1"),
    "unmet and 0.4": (with_line("C1", state="unmet", fraction=0.4, reason="r"), "unmet contradicts fraction 0.4"),
    "partial and 1": (with_line("C1", state="partial", fraction=1.0, reason="r"), "partial needs a fraction above 0"),
    "partial and nothing": (with_line("C1", state="partial", reason="r"), "partial needs a fraction above 0"),
    "met without evidence": (with_line("C1", state="met", reason="r"), "met needs evidence: a verbatim quote"),
    "cap without evidence": (with_line("invented", triggered=True, reason="r"), "a triggered cap needs evidence"),
    "quote and region": (with_line("C1", state="met", reason="r", evidence=[
        {"path": "p", "quote": "q", "region": [0, 0, 1, 1]}]), "give either quote or region"),
    "region in pixels": (with_line("C1", state="met", reason="r", evidence=[{"path": "p", "region": [0, 0, 640, 480]}]),
                         "less than or equal to 1; it is 640"),
    "region upside down": (with_line("C1", state="met", reason="r", evidence=[{"path": "p", "region": [0, 1, 1, 0]}]),
                           "left < right and top < bottom"),
    "pass and incomplete": (changed(verdict="pass"), "verdict pass needs attempt_state complete_and_passed"),
    "continue and passed": (changed(attempt_state="complete_and_passed"), "complete_and_passed needs verdict pass"),
    "continue and terminal": (changed(attempt_state="terminal_failure"), "terminal_failure needs verdict fail"),
    "in progress and lost": (changed(verdict="fail", attempt_state="in_progress", recoverable=False),
                             "recoverable false contradicts attempt_state in_progress"),
    "continue and lost": (changed(recoverable=False), "recoverable false contradicts verdict continue"),
    "two recoverables": (changed(verdict="fail", recoverable=False), "recovery.recoverable and decision.recoverable"),
    "lost without evidence": (submission(recovery={"recoverable": False, "reason": "r"}), "false needs evidence"),
    "holistic": (submission(holistic={"score": 0.0, "reason": "r"}), "holistic: is not asked for"),
    "a list": ("[1, 2]", "there is no complete JSON object"),
}  # fmt: skip


@pytest.mark.parametrize(("answer", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_a_fault_is_asked_again_with_its_own_words(tmp_path: Path, answer: Any, said: str) -> None:
    step = say(answer) if isinstance(answer, str) else submit(answer)
    chat = FakeChat([step, submit(submission())])
    case = make_case(tmp_path, chat)
    assessment = SCRIPTED.assess(case)
    told = chat.asked[1][-1]
    assert told["role"] == ("user" if isinstance(answer, str) else "tool")
    assert told["content"].startswith("[uniclaw re-ask] ")
    assert said in told["content"], told["content"]
    verdict = compute_verdict(case.rubric, assessment, threshold=0.9, followups_left=2, finished=True)
    assert (verdict.score, verdict.total) == (0.85, 0.85)


@pytest.mark.parametrize("name", ["prose", "trailing comma", "NaN", "invented checkpoint", "met and 0.4"])
def test_a_fault_that_stays_is_no_score(tmp_path: Path, name: str) -> None:
    answer, said = FAULTS[name]
    chat = FakeChat([say(answer) if isinstance(answer, str) else submit(answer)])
    with pytest.raises(GradingError) as caught:
        SCRIPTED.assess(make_case(tmp_path, chat))
    assert len(chat.asked) == 3
    assert "no usable answer (after 2 re-asks)" in str(caught.value)
    assert said.partition(";")[0] in str(caught.value)


@pytest.mark.parametrize(
    "answer", [fenced(SOUND), fenced(json.dumps(FENCES)), f"{{not json}} {SOUND}", f"{SOUND}\n\nDone."]
)
def test_a_whole_object_in_a_text_is_taken_as_it_is(tmp_path: Path, answer: str) -> None:
    chat = FakeChat([say(answer)])
    assessment = SCRIPTED.assess(make_case(tmp_path, chat))
    assert [j.fraction for j in assessment.judgements] == [1.0, 0.5, 1.0]
    assert len(chat.asked) == 1


def test_arguments_of_the_tool_are_read_as_strictly_as_text(tmp_path: Path) -> None:
    chat = FakeChat([submit(SOUND[:-1] + ', "caps": []}'), submit(submission())])
    SCRIPTED.assess(make_case(tmp_path, chat))
    assert "the key 'caps' stands twice" in chat.last


def test_every_error_of_an_answer_is_told_at_once() -> None:
    payload = with_line("C1", state="met", fraction="1", reason="r") | {
        "caps": [{"id": "invented", "triggered": 1, "reason": "r"}]
    }
    with pytest.raises(Rejected) as caught:
        read_submission(payload, WHOLE)
    assert len(caught.value.errors) == 2


def test_what_checks_decided_is_not_judged_again() -> None:
    settled = Assessment(
        judgements=(Judgement(checkpoint="C1", state=State.UNMET, fraction=0.0),),
        caps=(CapJudgement(cap="invented", triggered=True),),
    )  # fmt: skip
    rest = Assignment(WHOLE.checkpoints[1:], (), settled=settled)
    with pytest.raises(Rejected) as caught:
        read_submission(submission(), rest)
    assert caught.value.errors == (
        "checkpoints: C1 is decided by a check; leave it out", "caps: invented is decided by a check; leave it out",
    )  # fmt: skip


def test_the_schema_of_the_tool_names_what_is_asked() -> None:
    parameters = tool_definition(WHOLE, "abc")["function"]["parameters"]
    assert set(parameters["required"]) == {"nonce", "checkpoints", "caps", "recovery", "decision"}
    assert parameters["properties"]["checkpoints"]["items"]["properties"]["id"]["enum"] == ["C1", "C2", "C3"]
    formula = tool_definition(Assignment.whole(parse_rubric(FORMULA)))["function"]["parameters"]
    assert set(formula["required"]) == {"holistic", "caps", "recovery", "decision"}
    json.dumps(parameters)


TEXT = st.text(st.characters(exclude_categories=("Cs",)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, JSON, max_size=4), st.text("{}[]\"'`,:a \n", max_size=20))
def test_the_last_object_is_found_whole_whatever_it_quotes(value: Any, before: str) -> None:
    text = json.dumps(value, ensure_ascii=False)
    if before.count("{") == 0:
        assert parse_object(last_object(f"{before}{text}\n done")) == value
    assert parse_object(text) == value


@given(st.text("{}\"\\' a:1,", max_size=60))
def test_any_text_is_an_object_or_rejected(text: str) -> None:
    try:
        found = parse_object(last_object(text))
    except Rejected as rejected:
        found = {"errors": rejected.errors}
    assert isinstance(found, dict)


def test_the_page_names_every_field_and_every_flag() -> None:
    from pytest_uniclaw.judge import drift, examine, injection, model, panel, verify
    from pytest_uniclaw.judge.submission import Submission
    from pytest_uniclaw.verdict import HOLISTIC

    page = (Path(__file__).parents[1] / "docs" / "reference" / "supervisors.md").read_text("utf-8")
    flags = [
        drift.NEW_DEDUCTION, injection.SUSPECTED, panel.DISAGREEMENT, panel.JUDGE_LOST, model.EMPTY_RESULTS, HOLISTIC,
        examine.UNVERIFIED_LOSS, examine.UNVERIFIED_HOLISTIC, verify.UNVERIFIED, verify.UNVERIFIED_QUOTE,
        verify.TRANSCRIPT_EVIDENCE, verify.CLAIM_EVIDENCE, verify.IMAGE_EVIDENCE, verify.SEARCHED_EVIDENCE,
        verify.INJECTION_EVIDENCE, verify.STATE_EVIDENCE,
    ]  # fmt: skip
    for name in (*Submission.model_fields, *flags):
        assert f"`{name}" in page, name
    example = json.loads(page.partition("```json\n")[2].partition("```")[0])
    lines = [f"- **{weight} — {name}.** x" for weight, name in ((0.5, "C1"), (0.3, "C2"), (0.2, "C3"))]
    rubric = parse_rubric(
        "## 5. Checkpoints\n\n" + "\n".join(lines) + "\n\n## 6. Caps\n\n- **invented_rows** — cap at 0.4 if x\n"
    )
    assert read_submission(example, Assignment.whole(rubric), "5f0c2a91b7de").nonce


def test_the_page_tells_the_limits_of_a_conversation() -> None:
    from pytest_uniclaw.judge.conversation import Limits

    page = " ".join((Path(__file__).parents[1] / "docs" / "reference" / "supervisors.md").read_text("utf-8").split())
    limits = Limits()
    assert (
        f"at most {limits.calls} calls of the model, {limits.tool_characters:,} characters of tool output, "
        f"{limits.images} images, {limits.tokens:,} tokens and {limits.seconds / 60:g} minutes"
    ) in page
