"""What an agent's session lacks of a turn comes from the exchange log, and never from another turn."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.transcript import records_from_messages
from pytest_uniclaw.agents.turns import Turns
from pytest_uniclaw.agents.usage import final_answer, last_turn, messages, tool_usage

Messages = list[dict[str, Any]]


def turn(user: str, *calls: str, answer: str = "") -> Messages:
    """The chat messages of a turn that calls a tool for each id."""
    function = {"name": "exec", "arguments": "{}"}
    called = [{"role": "assistant", "tool_calls": [{"id": one, "function": function}]} for one in calls]
    said = [{"role": "assistant", "content": answer}] if answer else []
    return [{"role": "user", "content": user}, *called, *said]


def own(*turns: Messages) -> tuple[Record, ...]:
    """What an agent stored."""
    return records_from_messages([message for each in turns for message in each], "own")


def told(*turns: Messages) -> tuple[Record, ...]:
    """What the exchange log holds of a turn's calls: the conversation up to there."""
    return records_from_messages([message for each in turns for message in each], "told")


def users(records: tuple[Record, ...]) -> list[str]:
    return [message["content"][0]["text"] for message in messages(records) if message["role"] == "user"]


@pytest.mark.parametrize(
    ("stored", "seen", "used"),
    [
        (turn("Go.", "a"), turn("Go.", "a", "b"), True),
        (turn("Go."), turn("Go.", "a"), True),
        (turn("Go.", "a"), turn("Go.", "a"), False),
        (turn("Go.", "a", answer="Done."), turn("Go.", "a", "b"), False),
        (turn("Go.", "x"), turn("Go.", "a", "b"), False),
        (turn("Go.", "a", "b"), turn("Go.", "a"), False),
        (turn("Go."), [], False),
    ],
    ids=["running call", "user alone", "nothing missing", "has its answer", "other calls", "longer", "no call"],
)  # fmt: skip
def test_a_killed_turn_gets_the_calls_that_were_running(stored: Messages, seen: Messages, used: bool) -> None:
    mine, theirs = own(stored), told(seen)
    assert Turns().take(1, "Go.", mine, theirs) == ((mine[0], *theirs[1:]) if used else mine, used)


def test_a_turn_of_which_nothing_is_stored_is_what_the_model_was_asked() -> None:
    first, second = turn("one", "a", answer="done"), turn("two", "b")
    turns = Turns()
    turns.take(1, "one", own(first), told(first))
    records, used = turns.take(2, "two", own(first), told(first, second))
    assert used
    assert users(records) == ["one", "two"]
    assert tool_usage(records)["tool_counts"] == {"exec": 2}
    assert Turns().take(1, "two", (), told(first, second)) == (told(first, second)[3:], True), "only this turn's part"


@pytest.mark.parametrize("stores_the_user", [True, False])
def test_a_turn_without_a_call_of_the_model_is_empty(stores_the_user: bool) -> None:
    first = turn("one", "a", answer="I have made it.")
    turns = Turns()
    turns.take(1, "one", own(first), told(first))
    records, used = turns.take(2, "two", own(first, turn("two")) if stores_the_user else own(first), ())
    assert not used
    assert users(records) == ["one", "two"]
    assert last_turn(records) == []
    assert final_answer(records) == ""
    assert tool_usage(records)["tool_counts"] == {"exec": 1}


def test_what_was_mended_stays_mended() -> None:
    first, second, third = turn("one", "a", "b"), turn("two", "c", answer="done"), turn("three", answer="end")
    turns = Turns()
    turns.take(1, "one", own(turn("one", "a")), told(first))
    records, used = turns.take(2, "two", own(turn("one", "a"), second), told(second))
    assert not used
    assert tool_usage(records)["tool_counts"] == {"exec": 3}
    records, _ = turns.take(3, "three", own(turn("one", "a"), second, third), told(third))
    assert tool_usage(records)["tool_counts"] == {"exec": 3}
    assert users(records) == ["one", "two", "three"]
    assert final_answer(records) == "end"


def test_turns_that_are_absent_keep_their_places() -> None:
    first, second, third, fourth = turn("one", "a"), turn("two", "b"), turn("three", "c"), turn("four", answer="end")
    turns = Turns()
    turns.take(1, "one", (), told(first))
    turns.take(2, "two", own(second), told(second))
    turns.take(3, "three", own(second), told(third))
    records, _ = turns.take(4, "four", own(second, fourth), ())
    assert users(records) == ["one", "two", "three", "four"]
    assert final_answer(records) == "end"


def test_what_the_agent_stores_later_of_a_killed_turn_counts_once() -> None:
    turns = Turns()
    turns.take(1, "one", own(turn("one", "a")), told(turn("one", "a", "b")))
    records, _ = turns.take(2, "two", own(turn("one", "a", "b"), turn("two", answer="end")), ())
    assert tool_usage(records)["tool_counts"] == {"exec": 2}


def test_what_the_agent_made_of_a_killed_turn_does_not_hide_its_calls() -> None:
    """nanobot restores the interrupted call alone."""
    first, second = turn("one", "a", "b"), turn("two", answer="end")
    turns = Turns()
    turns.take(1, "one", own(turn("one")), told(first))
    records, _ = turns.take(2, "two", own(turn("one", "b", answer="interrupted"), second), ())
    assert tool_usage(records)["tool_counts"] == {"exec": 2}
    assert users(records) == ["one", "two"]


def test_a_turn_that_is_stored_afterwards_stands_once() -> None:
    first, second = turn("one", "a", "b"), turn("two", answer="end")
    turns = Turns()
    turns.take(1, "one", (), told(first))
    records, _ = turns.take(2, "two", own(turn("one", "b", answer="interrupted"), second), ())
    assert users(records) == ["one", "two"]
    assert tool_usage(records)["tool_counts"] == {"exec": 2}
    assert final_answer(records) == "end"


def test_a_session_that_the_agent_made_shorter_ends_with_its_last_turn() -> None:
    turns = Turns()
    turns.take(1, "one", (), told(turn("one", "a")))
    two, three = turn("two", answer="two"), turn("three", answer="three")
    turns.take(2, "two", own(two), ())
    turns.take(3, "three", own(two, three), ())
    turns.take(4, "four", own(two, three), told(turn("four", "b")))
    records, _ = turns.take(5, "five", own(turn("five", answer="end")), ())
    assert users(records) == ["one", "four", "five"]
    assert final_answer(records) == "end"


def test_a_lost_sandbox_leaves_what_was_read_before() -> None:
    first, second = turn("one", "a", answer="done"), turn("two", "b")
    turns = Turns()
    whole, _ = turns.take(1, "one", own(first), told(first))
    records, used = turns.take(2, "two", (), told(first, second))
    assert used
    assert records == (*whole, *told(first, second)[3:])
    assert turns.take(2, "two", (), told(first, second)) == (records, used), "taken again, it stands once"


def test_a_call_that_was_not_answered_rebuilds_nothing() -> None:
    asked = told(turn("one"))
    assert Turns().take(1, "one", (), asked) == (asked, False)


def test_an_agent_that_tells_nothing_has_an_empty_transcript() -> None:
    turns = Turns()
    assert turns.take(1, "one", (), ()) == ((), False)
    assert turns.take(2, "two", (), ()) == ((), False)


def test_sub_agents_stand_first_and_notices_last() -> None:
    helper = {**own(turn("sub", "s"))[1], "agentId": "helper"}
    notice = {"type": "notice", "id": "n", "timestamp": "", "cut": 1}
    records, _ = Turns().take(1, "one", (helper, *own(turn("one")), notice), told(turn("one", "a")))
    assert [record.get("agentId") for record in records] == ["helper", None, None, None]
    assert records[-1] == notice
    assert last_turn(records)
    assert last_turn((helper,)) == [], "a sub-agent's words are no answer"
