"""What the models of judge and user answer, usable or not, without a container: who is asked again, and what counts.

``test_battery_roles.py`` has what goes wrong under the models of all roles.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_uniclaw.status import Status
from tests.support import rehearsal
from tests.support.faulty import answer
from tests.support.judging import calls, use
from tests.support.rehearsal import GOOD, PLEASE, Rehearse, speak, submission, submit, with_line, written
from tests.support.scripted_upstream import Act

pytestmark = pytest.mark.processes

# The fixtures of the rehearsal.
provider, gateway, rehearse = rehearsal.provider, rehearsal.gateway, rehearsal.rehearse


def fenced(text: str) -> str:
    return f"Here is what I found.\n```json\n{text}\n```\nThat is my assessment."


FENCES_INSIDE = with_line("C1", state="met", reason="it has\n```json\n{}\n``` in it", evidence=[
    {"path": "evidence/results/half", "quote": "half"}])  # fmt: skip
DECISION = submission()["decision"]
CONTRADICTIONS = {
    "pass_but_incomplete": submission(decision=DECISION | {"attempt_state": "incomplete"}),
    "met_but_0.4": with_line("C1", state="met", fraction=0.4, reason="r", evidence=[
        {"path": "evidence/results/half", "quote": "half"}]),
    "continue_but_lost": submission(decision=DECISION | {"verdict": "continue", "attempt_state": "incomplete",
                                                         "recoverable": False}),
    "two_recoverables": submission(decision=DECISION | {"verdict": "fail", "attempt_state": "terminal_failure",
                                                        "recoverable": False}),
}  # fmt: skip
# What a judge answers, and what it is told is wrong with it.
UNUSABLE: dict[str, tuple[Act, str]] = {
    "prose": (answer("The agent did well, I would let it pass."), "there is no complete JSON object"),
    "silence": (answer(""), "there is no complete JSON object"),
    "null": (answer({"role": "assistant", "content": None}), "there is no complete JSON object"),
    "broken_fence": (written(FENCES_INSIDE, lambda text: fenced(text.replace("\\n", "\n"))), "not valid JSON"),
    "unknown_shape": (answer({"content": "It passes.", "tool_calls": [None]}), "there is no complete JSON object"),
    "single_quotes": (written(submission(), lambda text: text.replace('"', "'")), "not valid JSON"),
    "trailing_comma": (written(submission(), lambda text: text[:-1] + ",}"), "not valid JSON"),
    "duplicate_keys": (written(submission(), lambda text: text[:-1] + ', "caps": []}'), "'caps' stands twice"),
    "out_of_range": (submit(submission(decision=DECISION | {"score": 1.2})), "decision.score"),
    "percent": (submit(submission(decision=DECISION | {"confidence": 90})), "decision.confidence"),
    "NaN": (written(submission(), lambda text: text.replace("1.0", "NaN")), "NaN is no JSON number"),
    "string_score": (submit(submission(decision=DECISION | {"score": "1.0"})), "(a string)"),
    "missing_checkpoint": (submit(submission(checkpoints=submission()["checkpoints"][:1])), "missing C2"),
    "invented_checkpoint": (submit(submission(checkpoints=[
        *submission()["checkpoints"], submission()["checkpoints"][0] | {"id": "C3"}])), "'C3' is not in the rubric"),
    "half_a_call": (answer(calls(use("submit_assessment", '{"checkpoints": [{"id": "C1", '))), "not valid JSON"),
    "NaN_in_a_call": (answer(calls(use("submit_assessment", '{"checkpoints": [], "score": NaN}'))), "NaN is no JSON"),
    **{name: (submit(payload), "contradict" if "pass" not in name else "verdict pass needs")
       for name, payload in CONTRADICTIONS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_judgement_is_asked_for_again(rehearse: Rehearse, name: str) -> None:
    bad, words = UNUSABLE[name]
    stage = rehearse(supervisor=[bad, bad, GOOD])
    attempt = stage.run()
    assert (attempt.status, attempt.score) == (Status.PASS, 1.0), attempt.reason
    asked = stage.provider.asked(stage.model("supervisor"))
    assert len(asked) == 3
    told = asked[-1]["messages"][-1]
    assert told["role"] == ("tool" if asked[-1]["messages"][-2].get("tool_calls") else "user")
    assert told["content"].startswith("[uniclaw re-ask] ")
    assert words in told["content"]


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_judgement_that_stays_unusable_is_none(rehearse: Rehearse, name: str) -> None:
    bad, words = UNUSABLE[name]
    stage = rehearse(supervisor=[bad])
    attempt = stage.run()
    assert attempt.status is Status.UNJUDGED
    assert "the model gave no usable answer (after 2 re-asks)" in attempt.problem
    assert words in attempt.problem
    assert len(stage.calls(attempt, "supervisor")) == 3
    assert attempt.turns[0].verdict is None
    assert attempt.last_score is None


@pytest.mark.parametrize("make", [lambda text: text, fenced], ids=["bare", "fences_inside"])
def test_a_whole_object_in_a_text_is_an_answer(rehearse: Rehearse, make: Callable[[str], str]) -> None:
    stage = rehearse(supervisor=[written(FENCES_INSIDE, make)])
    attempt = stage.run()
    assert attempt.status is Status.PASS, attempt.reason
    assert len(stage.calls(attempt, "supervisor")) == 1


def test_what_a_judge_cannot_determine_is_unjudged(rehearse: Rehearse) -> None:
    stage = rehearse(supervisor=[submit(with_line("C2", state="cannot_determine", reason="the file is encrypted"))])
    attempt = stage.run()
    assert attempt.status is Status.UNJUDGED
    assert attempt.problem == "checkpoint C2 could not be judged: the file is encrypted"
    assert len(stage.calls(attempt, "supervisor")) == 1, "that is an answer"


INVENTED = submit(with_line("C2", state="met", reason="seen", evidence=[
    {"path": "evidence/results/half", "quote": "the total is 412.50"}]))  # fmt: skip


def test_a_quote_that_stands_nowhere_is_asked_for_once_more_and_gives_no_point(rehearse: Rehearse) -> None:
    stage = rehearse(supervisor=[INVENTED])
    attempt = stage.run()
    assert attempt.status is Status.UNJUDGED
    assert "checkpoint C2 could not be judged: no evidence for 'met' could be verified" in attempt.problem
    assert len(stage.calls(attempt, "supervisor")) == 2


def test_a_quote_may_be_mended(rehearse: Rehearse) -> None:
    stage = rehearse(supervisor=[INVENTED, GOOD])
    assert stage.run().status is Status.PASS


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (answer("Could you please have another look?"), "no complete JSON object"),
        (answer(""), "no complete JSON object"),
        (speak(""), "message: must hold words"),
        (speak("…!?"), "message: must hold words"),
        (speak("a " * 1000), "must have at most 1200 characters"),
        (speak("Please go on.", "shout"), "mode: Input should be 'silent', 'nudge' or 'instruction'"),
        (answer(calls(use("say_to_agent", "{'mode': 'nudge'}"))), "not valid JSON"),
    ],
    ids=["prose", "silence", "empty", "no_words", "long", "mode", "single_quotes"],
)
def test_a_user_who_says_nothing_usable_is_asked_again(rehearse: Rehearse, act: Act, words: str) -> None:
    stage = rehearse(simulator=[act, act, speak(PLEASE)])
    attempt = stage.run()
    assert (attempt.status, attempt.turns[1].message) == (Status.PASS, PLEASE)
    asked = stage.provider.asked(stage.model("user_simulator"))
    assert len(asked) == 3
    assert words in asked[-1]["messages"][-1]["content"]


def test_a_user_who_never_says_anything_is_a_simulator_error(rehearse: Rehearse) -> None:
    stage = rehearse(simulator=[answer("Could you please have another look?")])
    attempt = stage.run()
    assert attempt.status is Status.SIMULATOR_ERROR
    assert "the simulated user did not answer: the model gave no usable answer (after 2 re-asks)" in attempt.problem
    assert len(stage.calls(attempt, "user_simulator")) == 3
    assert attempt.turns[0].verdict is not None, "the turn was judged"


LEAK = "Your score is 0.40, the rubric wants a note."


def test_a_user_who_leaks_is_asked_to_write_again(rehearse: Rehearse) -> None:
    stage = rehearse(simulator=[speak(LEAK), speak(PLEASE)])
    attempt = stage.run()
    assert (attempt.status, attempt.turns[1].message) == (Status.PASS, PLEASE)
    follow_up = attempt.turns[0].follow_up
    assert follow_up is not None
    assert (follow_up.candidate, follow_up.revised) == (LEAK, PLEASE)
    assert "asked again" in follow_up.decisions
    told = stage.provider.asked(stage.model("user_simulator"))[-1]["messages"][-1]["content"]
    assert "0.40" not in told, "kinds, never values"


def test_a_user_who_leaks_again_says_a_neutral_line(rehearse: Rehearse) -> None:
    stage = rehearse(simulator=[speak(LEAK)])
    attempt = stage.run()
    assert attempt.status is Status.PASS
    assert "score" not in attempt.turns[1].message
    assert attempt.turns[0].follow_up is not None
    assert attempt.turns[0].follow_up.decisions[-1] == "fallback"
    assert len(stage.calls(attempt, "user_simulator")) == 2
