"""What the HTML report shows of the turns of an attempt and of its model calls."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.attempt import Attempt, FollowUp, Turn, Usage
from pytest_uniclaw.html import details
from pytest_uniclaw.judge.gate import ASKED_AGAIN
from pytest_uniclaw.outcome import properties_of
from pytest_uniclaw.report.record import ItemRecord, record_of_attempt
from pytest_uniclaw.status import PartialPolicy, Status
from pytest_uniclaw.verdict import AttemptState, Decision, Opinion, Verdict, handoff_of

OPINION = Opinion(
    verdict="continue", attempt_state="complete_but_failed", recoverable=True, score=0.5, confidence=0.9,
    rationale="half of <it>",
)  # fmt: skip


def verdict(**fields: Any) -> Verdict:
    given = {"opinion": OPINION, "drift": 0.05} | fields
    return Verdict(
        decision=Decision.CONTINUE, attempt_state=AttemptState.INCOMPLETE, recoverable=True, score=0.45, total=0.45,
        threshold=0.9, checkpoints=(), **given,
    )  # fmt: skip


def turn(**fields: Any) -> Turn:
    judged = fields.get("verdict")
    return Turn(
        number=1, message="m", started="2026-01-01T00:00:00+00:00", seconds=2.0, wall_seconds=3.0, ending="exited",
        exit_code=0, finished=True, handoff=handoff_of(judged) if judged else None, **fields,
    )  # fmt: skip


def record(*turns: Turn, usage: tuple[Usage, ...] = ()) -> ItemRecord:
    attempt = Attempt(
        attempt_id="x", task_id="task_1", category="104_multimodal", capability="multimodal", language="en",
        agent="nanobot", model="m", number=1, status=Status.BUDGET_EXHAUSTED, score=0.45, threshold=0.9, reason="why",
        started="2026-01-01T00:00:00+00:00", ended="2026-01-01T00:01:00+00:00", turns=turns, usage=usage,
    )  # fmt: skip
    return record_of_attempt(attempt, PartialPolicy(), Path(), replayed=False)


def rows(shown: ItemRecord) -> list[list[str]]:
    """The cells of every row, as a reader sees them."""
    found = re.findall(r"<tr[^>]*>(.*?)</tr>", details(shown))
    return [[unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in found]


def told(follow_up: FollowUp) -> list[list[str]]:
    """The rows that stand below a turn."""
    return rows(record(turn(verdict=verdict(opinion=None, drift=None), follow_up=follow_up)))[3:]


def test_a_turn_has_its_score_the_four_fields_and_the_judges_own_word() -> None:
    head, names, *shown = rows(record(turn(verdict=verdict())))
    assert head == ["turn", "executor", "score", "handoff to the user simulator"]
    assert names == ["verdict", "attempt state", "recoverable", "score"]
    own = "continue, complete but failed, score 0.50 (drift +0.05), confidence 0.90: half of <it>"
    assert shown == [["1", "2.0 s", "0.45", "continue", "incomplete", "yes", "0.45"], ["judge's own word", own]]


def test_a_turn_that_was_not_judged_hands_nothing_over() -> None:
    assert rows(record(turn()))[2:] == [["1", "2.0 s", "–", "", "", "", ""]]


@pytest.mark.parametrize(
    ("follow_up", "expected"),
    [
        (FollowUp(candidate="Go on.", message="Go on.", decisions=("kept:1",)), [["next user message", "Go on."]]),
        (
            FollowUp(candidate="Go on. It is done.", message="Go on.", decisions=("dropped:completion", "kept:1")),
            [
                ["user simulator", "Go on. It is done."],
                ["rewriter", "dropped: completion; sentences kept: 1"],
                ["next user message", "Go on."],
            ],
        ),
        (
            FollowUp(
                candidate="0.45 <b>", revised="Go on.", message="Go on.",
                decisions=("dropped:score", "dropped:meta", "dropped:score", ASKED_AGAIN, "kept:1"),
            ),
            [
                ["user simulator", "0.45 <b>"],
                ["rewriter", "dropped: score, meta; asked for another message"],
                ["next user message", "Go on."],
            ],
        ),
        (
            FollowUp(
                candidate="0.45", revised="0.5", message="Please continue.",
                decisions=("dropped:score", ASKED_AGAIN, "dropped:score", "fallback"),
            ),
            [
                ["user simulator", "0.45"],
                ["rewriter", "dropped: score; asked for another message"],
                ["user simulator", "0.5"],
                ["rewriter", "dropped: score; a neutral line instead"],
                ["next user message", "Please continue."],
            ],
        ),
        (
            FollowUp(
                candidate="0.45", message="Please continue.",
                decisions=("dropped:score", ASKED_AGAIN, "no second answer", "fallback"),
            ),
            [
                ["user simulator", "0.45"],
                ["rewriter", "dropped: score; asked for another message"],
                ["rewriter", "no second answer; a neutral line instead"],
                ["next user message", "Please continue."],
            ],
        ),
        (
            FollowUp(candidate="...", revised="Go on.", message="Go on.", decisions=(ASKED_AGAIN, "kept:1")),
            [
                ["user simulator", "..."],
                ["rewriter", "asked for another message"],
                ["next user message", "Go on."],
            ],
        ),
    ],
    ids=["as it is", "shortened", "asked again", "leaks twice", "no second answer", "no words"],
)  # fmt: skip
def test_a_follow_up_is_shown_before_and_after_the_rewriter(follow_up: FollowUp, expected: list[list[str]]) -> None:
    assert told(follow_up) == expected


def test_model_calls_have_a_cost_or_say_that_it_is_unknown() -> None:
    usage = (
        Usage(role="executor", calls=10, input_tokens=91245, output_tokens=1470, cost_usd=0.12345, tries=11),
        Usage(role="user_simulator", calls=1, tries=1),
    )
    shown = record(turn(), usage=usage)
    assert rows(shown)[-3:] == [
        ["model calls", "calls", "tries", "tokens in", "tokens out", "cost"],
        ["executor", "10", "11", "91,245", "1,470", "0.12345 USD"],
        ["user simulator", "1", "1", "unknown", "unknown", "unknown"],
    ]
    assert "model calls" not in details(record(turn()))
    tokens = {name: value for name, value in properties_of(shown) if name.startswith("tokens.")}
    assert tokens == {"tokens.executor.input_tokens": 91245, "tokens.executor.output_tokens": 1470}


def test_nothing_of_a_turn_is_markup() -> None:
    evil = "<script>alert(1)</script>"
    sent = FollowUp(candidate=evil, revised=evil, message=evil, decisions=(f"dropped:{evil}", ASKED_AGAIN, "kept:1"))
    shown = details(
        record(turn(verdict=verdict(opinion=OPINION.model_copy(update={"rationale": evil})), follow_up=sent))
    )
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;alert(1)") == 4
