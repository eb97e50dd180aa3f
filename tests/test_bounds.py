"""What is short on disk must not become long in memory: the number of values that are read is bounded."""

from __future__ import annotations

import gc
import json
import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.agents import cleaning, joining, session_file
from pytest_uniclaw.agents.cleaning import MAX_LINE_MARKS, marks_of, parse_line
from pytest_uniclaw.agents.command_events import opencode_messages, stream_messages
from pytest_uniclaw.agents.joining import Joined
from pytest_uniclaw.agents.session_file import Lines
from pytest_uniclaw.agents.transcript import CUT, normalise_nanobot, records_from_messages
from pytest_uniclaw.agents.wire import slim, tool_call, tool_result

TEXTS = st.text('a"\\,[{}]:\n密', max_size=6)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS | st.sampled_from(["text", "content", "refusal"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def marks_in(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return 1 + max(len(inner) - 1, 0) + sum(map(marks_in, inner))


@given(VALUES)
def test_marks_within_strings_are_none(value: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "_FEW_MARKS", -1)
        assert marks_of(json.dumps(value, ensure_ascii=False).encode()) == marks_in(value)


@pytest.mark.parametrize(
    "inner",
    [b'{"":0},' * 2_000_000, b'{"":' * 3_000_000, b"[]," * 5_000_000, b'"",' * 5_000_000, b"1," * 8_000_000],
    ids=["objects", "nested", "lists", "strings", "numbers"],
)
def test_a_line_of_millions_of_values_is_broken_and_takes_little(inner: bytes) -> None:
    line = b'{"role": "user", "content": [' + inner + b"0]}\n"
    began = time.process_time()
    assert normalise_nanobot(line)[-1]["brokenLines"] == 1
    assert time.process_time() - began < 4


def test_a_line_of_long_texts_and_images_is_read() -> None:
    words, picture = 'a,[{"' * 300_000, "data:image/png;base64," + "A" * (8 << 20)
    line = json.dumps({"role": "user", "content": [words, words, {"type": "image_url", "image_url": picture}]})
    (record,) = normalise_nanobot(line.encode())
    assert [block["type"] for block in record["message"]["content"]] == ["text", "text", "image"]


def test_a_line_may_have_three_hundred_thousand_values() -> None:
    numbers = b"[" + b"1," * (MAX_LINE_MARKS - 1) + b"1]"
    assert len(parse_line(numbers)) == MAX_LINE_MARKS
    with pytest.raises(ValueError, match="too many values"):
        parse_line(b"[" + numbers + b"]")


def test_the_collection_goes_on_after_a_broken_line() -> None:
    assert normalise_nanobot(b"{\n")[-1]["brokenLines"] == 1
    assert gc.isenabled()


def test_a_session_of_too_many_values_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "MAX_MARKS", 25)
    lines = Lines(b'{"a": [1, 2, 3]}\n' * 8)
    assert (len(list(lines)), lines.cut, lines.broken) == (6, True, 0)


def test_no_further_session_is_read_after_heavy_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "MAX_WEIGHT", 1)
    joined = Joined(room=1_000)
    joined.add(records_from_messages([{"role": "user", "content": "short"}]), "", broken=0, cut=False)
    assert not joined.is_full()
    joined.add(records_from_messages([{"role": "user", "content": "y" * 1_000}]), "other", broken=0, cut=False)
    assert joined.is_full()


@given(st.lists(VALUES, max_size=5))
def test_what_is_kept_of_a_part_is_what_a_record_shows(parts: list[Any]) -> None:
    whole = records_from_messages([{"role": "user", "content": parts}])
    assert records_from_messages([{"role": "user", "content": [slim(part) for part in parts]}]) == whole


@given(VALUES)
def test_what_is_kept_of_a_call_is_what_a_record_shows(arguments: Any) -> None:
    call = {"id": "a", "function": {"name": "exec", "arguments": arguments}}
    whole, kept = (
        records_from_messages([{"role": "assistant", "tool_calls": [one]}])
        for one in (call, tool_call("a", "exec", arguments))
    )
    if not isinstance(arguments, list):
        assert kept == whole
    else:
        assert kept[0]["message"]["content"][0]["arguments"]["_raw"] == json.dumps(arguments, ensure_ascii=False)


def test_of_what_is_too_large_for_a_record_only_the_cut_is_kept() -> None:
    large = {"a": [{"b": 0}] * 140_000}
    assert tool_call("a", "exec", large)["function"]["arguments"] == CUT
    assert slim(large) == {"type": "text", "text": CUT}
    assert tool_result("a", "exec", large)["content"] == {"type": "text", "text": CUT}
    assert slim({"type": "text", "text": "x", "more": large}) == {"type": "text", "text": "x"}


def events(kind: str) -> bytes:
    more = b"[" + b'{"":0},' * 20_000 + b"0]"
    if kind == "stream":
        return b'{"type":"assistant","message":{"content":[{"type":"text","text":"x","more":' + more + b"}]}}\n"
    return b'{"type":"text","part":{"messageID":"m","text":' + more + b"}}\n"


@pytest.mark.parametrize(("kind", "read"), [("stream", stream_messages), ("opencode", opencode_messages)])
def test_an_answer_of_many_events_holds_no_parsed_values(kind: str, read: Any) -> None:
    data = events(kind) * 4
    tracemalloc.start()
    try:
        found = list(read(Lines(data)))
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(found[-1]["content"]) == 4
    assert held < 3 << 20
