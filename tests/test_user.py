"""The template user simulator: deterministic, in the task's language, and speaking of public things only."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.errors import SimulatorError
from pytest_uniclaw.judge.base import Scene, Visible
from pytest_uniclaw.judge.fingerprints import HiddenFingerprints
from pytest_uniclaw.judge.phrases import phrases
from pytest_uniclaw.judge.rewriter import rewrite, split_sentences
from pytest_uniclaw.judge.user import TemplateSimulator, asks_something, named_deliverables
from pytest_uniclaw.task import PublicView
from pytest_uniclaw.verdict import Handoff

Language = Literal["en", "zh"]
State = Literal["in_progress", "incomplete"]
PROMPT = """Please sort my receipts in `/tmp_workspace/clawbench/sources/receipts.csv`.

I need these files in `/tmp_workspace/results/`:

  1. `summary.csv` with the columns a,b
     and nothing else, see notes.txt
  2. `note.md`: a short note

The log belongs in /tmp_workspace/results/logs/run.log. The rate is in rates.json:

- rates.json is from the bank
"""
say = TemplateSimulator().reply
NO_SECRETS = HiddenFingerprints.build([], "")


def view(language: Language = "en", task_id: str = "task_a") -> PublicView:
    return PublicView(task_id, PROMPT, language, (), ("receipts.csv", "rates.json"))


def handoff(state: State = "incomplete", score: float = 0.4) -> Handoff:
    return Handoff(verdict="continue", attempt_state=state, recoverable=True, score=score)


def reply(visible: Visible, language: Language = "en", state: State = "incomplete") -> str:
    return TemplateSimulator().reply(Scene(view(language), visible, handoff(state)))


def test_deliverables_are_what_the_request_says() -> None:
    assert named_deliverables(PROMPT) == ("logs/run.log", "summary.csv", "note.md")
    assert named_deliverables("把报告存到 /tmp_workspace/results/报告.md。") == ("报告.md",)
    assert named_deliverables("Look at IMG_1.jpg and tell me what you see.") == ()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_missing_files_are_named_only_if_the_request_names_them(language: Language) -> None:
    text = reply(Visible("I wrote it.", ("summary.csv", "extra.txt"), 1), language)
    assert "note.md" in text
    for other in ("summary.csv", "extra.txt", "rates.json", "receipts.csv", "notes.txt"):
        assert other not in text


def test_an_empty_folder_is_said() -> None:
    assert any(line in reply(Visible("", (), 1)) for line in phrases("en")["empty"])
    assert any(line in reply(Visible("", (), 1), "zh") for line in phrases("zh")["empty"])


@pytest.mark.parametrize("answer", ["Which format do you want?", "要用哪种格式？", "Shall I go on? ", "**Right?**"])
def test_a_question_gets_an_answer_that_adds_nothing(answer: str) -> None:
    assert asks_something(answer)
    text = reply(Visible(answer, ("summary.csv", "note.md", "logs/run.log"), 1))
    assert any(text.startswith(line) for line in phrases("en")["question"])


def test_no_question_no_answer() -> None:
    assert not asks_something("Is it right? I checked, yes.")
    assert not asks_something("")


def test_an_interrupted_turn_is_asked_to_go_on() -> None:
    text = reply(Visible("", ("summary.csv", "note.md", "logs/run.log"), 2), state="in_progress")
    assert text in phrases("en")["in_progress"]


def test_equal_arguments_equal_message_and_other_turns_vary() -> None:
    files = ("summary.csv", "note.md", "logs/run.log")
    first = say(Scene(view(), Visible("", files, 1), handoff()))
    assert first == say(Scene(view(), Visible("", files, 1), handoff()))
    second = say(Scene(view(), Visible("", files, 2), handoff(), (first,)))
    third = say(Scene(view(), Visible("", files, 3), handoff(), (first, second)))
    assert len({first, second, third}) == 3
    starts = {say(Scene(view(task_id=f"t{n}"), Visible("", files, 1), handoff())) for n in range(20)}
    assert len(starts) > 1


def test_the_score_does_not_change_the_message() -> None:
    said = {say(Scene(view(), Visible("", (), 1), handoff(score=s))) for s in (0.0, 0.62, 0.89)}
    assert len(said) == 1


def test_its_arguments_cannot_carry_hidden_data() -> None:
    assert list(inspect.signature(TemplateSimulator.reply).parameters) == ["self", "scene"]


def test_no_message_follows_a_final_verdict() -> None:
    final = Handoff(verdict="pass", attempt_state="complete_and_passed", recoverable=True, score=1.0)
    with pytest.raises(SimulatorError, match="no user message follows"):
        say(Scene(view(), Visible("", (), 1), final))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_sentence_passes_the_rewriter(language: Language) -> None:
    for slot, lines in phrases(language).items():
        for line in lines:
            filled = line.replace("{names}", "note.md")
            for sentence in split_sentences(filled):
                done = rewrite(sentence, hidden=NO_SECRETS, public=PROMPT, language=language, history=())
                assert (done.message, done.decisions) == (sentence, ("kept:1",)), slot


def test_both_languages_have_the_same_slots_and_enough_variants() -> None:
    assert phrases("en").keys() == phrases("zh").keys()
    for language in ("en", "zh"):
        assert all(len(set(lines)) >= 3 for slot, lines in phrases(language).items() if slot != "last_resort")


@given(
    answer=st.text(), files=st.lists(st.text(min_size=1), max_size=5), turn=st.integers(1, 9),
    language=st.sampled_from(["en", "zh"]), state=st.sampled_from(["in_progress", "incomplete"]),
)
def test_nothing_of_the_agents_words_comes_back(
    answer: str, files: list[str], turn: int, language: Language, state: State
) -> None:
    text = reply(Visible(answer, tuple(files), turn), language, state)
    names = "|".join(map(re.escape, named_deliverables(PROMPT)))
    for line in sorted((line for lines in phrases(language).values() for line in lines), key=len, reverse=True):
        text = re.sub(re.escape(line).replace(r"\{names\}", rf"(?:{names}|[,、 ])+"), "", text)
    assert text.strip() == ""


def test_it_is_a_picklable_value() -> None:
    assert pickle.loads(pickle.dumps(TemplateSimulator())) == TemplateSimulator()
