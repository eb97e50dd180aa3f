"""Transcripts: one schema out of untrusted bytes; always valid UTF-8 JSON, never an exception."""

from __future__ import annotations

import base64
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.agents.cleaning import MAX_TEXT_CHARACTERS
from pytest_uniclaw.agents.images import MAX_IMAGES, NOT_KEPT
from pytest_uniclaw.agents.joining import Joined
from pytest_uniclaw.agents.rollout import read_rollouts
from pytest_uniclaw.agents.session_file import nearest
from pytest_uniclaw.agents.transcript import (
    CUT,
    MAX_BLOCKS,
    MAX_RECORDS,
    MODEL_ERROR,
    final_answer,
    move_images_out,
    normalise_nanobot,
    records_from_messages,
    to_jsonl,
    tool_usage,
    was_cut,
)
from pytest_uniclaw.agents.wire import Answer, tool_call
from pytest_uniclaw.judge.base import Evidence

PNG = base64.b64encode(b"\x89PNG pretend").decode()


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def call(name: str, arguments: Any, identity: str = "c1") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


SESSION = lines(
    {"_type": "metadata", "key": "chat", "metadata": {}},
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "make it", "timestamp": "2026-11-30T02:27:34.744631"},
    {
        "role": "assistant", "content": "", "reasoning_content": "hm",
        "tool_calls": [call("exec", '{"command": "ls"}'), call("read_file", "not json", "c2")],
        "timestamp": "2026-11-30T02:27:36",
    },
    {"role": "tool", "tool_call_id": "c1", "name": "exec", "content": "a\nb"},
    {"role": "tool", "tool_call_id": "c2", "name": "read_file", "content": ""},
    {"role": "assistant", "content": "FINAL"},
)  # fmt: skip


def test_a_session_becomes_records() -> None:
    records = normalise_nanobot(SESSION)
    roles = ["user", "assistant", "toolResult", "toolResult", "assistant"]
    assert [record["message"]["role"] for record in records] == roles
    assert [record["id"] for record in records] == [f"nanobot-{number:06d}" for number in range(5)]
    assert records[0]["timestamp"] == "2026-11-30T02:27:34.744631+00:00"
    assert records[1]["message"]["content"] == [
        {"type": "thinking", "thinking": "hm"},
        {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}},
        {"type": "toolCall", "id": "c2", "name": "read_file", "arguments": {"_raw": "not json"}},
    ]
    assert records[2]["message"]["toolCallId"] == "c1"
    assert records[2]["message"]["toolName"] == "exec"
    assert records[3]["message"]["content"] == [{"type": "text", "text": ""}], "answered with nothing, not cut off"
    assert final_answer(records) == "FINAL"


def test_broken_lines_are_counted_and_the_rest_is_kept() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    data = b"\xff\xfe\x00\n{\n[1, 2]\nnull\n" + deep + b"\n" + SESSION + b'{"role": "assistant", "content": "cut'
    records = normalise_nanobot(data)
    assert records[-1]["type"] == "notice"
    assert records[-1]["brokenLines"] == 6
    assert final_answer(records) == "FINAL"


HOSTILE = [
    b'{"role": "user", "content": "\\ud800 lone, \\u0000 nul, \\udfff"}',
    b'{"role": "user", "content": "\xff\xfe raw"}',
    b'{"role": "assistant", "content": NaN}',
    b'{"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": {"a": Infinity, "b": 1e999}}}]}',
    b'{"role": "assistant", "content": {"text": 5}, "tool_calls": {"function": 1}, "timestamp": {"a": 1}}',
    b'{"role": "assistant", "content": [1, null, [], {"type": "image_url"}]}',
    b'{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": 7}}]}',
    b'{"role": "tool", "content": "x", "name": ["a"], "tool_call_id": 9, "timestamp": -1e308}',
    b'{"role": "user", "content": ' + b"[" * 500 + b"1" + b"]" * 500 + b"}",
    b'{"role": "user", "content": ' + b"9" * 5000 + b"}",
    b'{"role": "user", "content": "' + b"y" * (2 * MAX_TEXT_CHARACTERS) + b'"}',
    b'{"role": "user", "content": "data:image/png;base64,\\ud800!!"}',
    b'{"role": ["user"], "content": "odd"}',
    b'{"role": "assistant", "tool_calls": [null, {}, {"function": null}, {"function": {"name": null}}]}',
]


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_lines_become_valid_json(line: bytes) -> None:
    records = normalise_nanobot(line)
    written = to_jsonl(records)
    read = [json.loads(text, parse_constant=pytest.fail) for text in written.decode("utf-8").splitlines()]
    assert "\ud800" not in str(read)
    assert "\0" not in str(read)
    assert len(written) < 2_500_000
    json.dumps(tool_usage(records), allow_nan=False)
    final_answer(records).encode()


def peak_and_seconds(data: bytes) -> tuple[tuple[dict[str, Any], ...], int, float]:
    """Normalise and write; return the records, the peak of memory in MiB, and the seconds."""
    began = time.process_time()
    tracemalloc.start()
    try:
        records = normalise_nanobot(data)
        to_jsonl(records)
        return records, tracemalloc.get_traced_memory()[1] >> 20, time.process_time() - began
    finally:
        tracemalloc.stop()


BLOAT = {
    "numbers": b'{"role": "assistant", "content": [' + b"1," * 290_000 + b"1]}",
    "texts": b'{"role": "assistant", "content": [' + b'"a",' * 290_000 + b'"a"]}',
    "calls": b'{"role": "assistant", "tool_calls": [' + b'{"function":{}},' * 90_000 + b"{}]}",
    "arguments": b'{"role": "assistant", "tool_calls": [{"function": {"arguments": {"a": ['
    + b"1," * 290_000 + b'1]}}}]}',
    "value": b'{"role": "assistant", "content": {"a": [' + b"1," * 290_000 + b"1]}}",
}  # fmt: skip


@pytest.mark.parametrize("line", BLOAT.values(), ids=BLOAT)
def test_a_small_file_does_not_become_large_values(line: bytes) -> None:
    records, peak, seconds = peak_and_seconds(b'{"role": "user", "content": "go"}\n' + line)
    assert peak < 300
    assert seconds < 30
    written = to_jsonl(records)
    assert len(written) < 1_000_000
    assert CUT.encode() in written
    assert was_cut(records)
    assert len(records[1]["message"]["content"]) <= MAX_BLOCKS + 1


def test_cuts_are_counted_in_a_closing_notice() -> None:
    records, _, _ = peak_and_seconds(BLOAT["texts"])
    assert len(records[0]["message"]["content"]) == MAX_BLOCKS + 1
    assert records[0]["message"]["content"][-1] == {"type": "text", "text": CUT}
    assert records[1] == {"type": "notice", "id": "nanobot-000001", "timestamp": "", "cut": 1}
    assert was_cut(records)
    assert not was_cut(normalise_nanobot(SESSION + b"no json\n"))


def test_a_session_of_too_many_messages_is_cut() -> None:
    records = normalise_nanobot(b'{"role": "user", "content": "a"}\n' * (MAX_RECORDS + 5))
    assert len(records) == MAX_RECORDS + 1
    assert records[-1]["cut"] == 1


def test_texts_of_one_record_are_cut_at_four_mebibytes() -> None:
    parts = ["y" * MAX_TEXT_CHARACTERS] * 6
    (record, notice) = records_from_messages([{"role": "user", "content": parts}])
    assert [len(block["text"]) for block in record["message"]["content"]] == [MAX_TEXT_CHARACTERS] * 4 + [len(CUT)]
    assert notice["cut"] == 1


def test_a_rollout_is_bounded_too(tmp_path: Path) -> None:
    item = {"type": "message", "role": "assistant", "content": [1] * 200_000}
    rollout = tmp_path / "rollout-2026-11-30T00-00-00-01a22b6d-4d72-7a21-a2bc-94d4e97a72a7.jsonl"
    rollout.write_bytes(lines({"type": "response_item", "timestamp": "", "payload": item}))
    record, notice = read_rollouts(tmp_path)
    assert len(record["message"]["content"]) == MAX_BLOCKS + 1
    assert notice["cut"] == 1


def test_images_move_out_of_line() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{PNG}"}},
    ]
    records = records_from_messages([{"role": "user", "content": content}, {"role": "user", "content": content}])
    moved, images = move_images_out(records)
    assert set(images.values()) == {b"\x89PNG pretend"}
    assert sorted(name.rpartition(".")[2] for name in images) == ["jpg", "png"]
    texts = [block["text"] for block in moved[0]["message"]["content"]]
    assert texts[0] == "look"
    assert {text[len("[image: ") : -1] for text in texts[1:]} == set(images)
    assert PNG.encode() not in to_jsonl(records)


def test_a_record_is_one_line_to_every_reader(tmp_path: Path) -> None:
    words = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\rh"
    (record,) = records_from_messages([{"role": "user", "content": words}])
    assert [json.loads(line) for line in to_jsonl([record]).decode().splitlines()] == [record]
    (tmp_path / "transcript.jsonl").write_bytes(json.dumps(record, ensure_ascii=False).encode() + b"\n")
    assert Evidence(tmp_path).records() == [record]


def test_an_image_name_cannot_leave_its_folder() -> None:
    url = f"data:image/..%2f..+.;base64,{PNG}"
    _, images = move_images_out(records_from_messages([{"role": "user", "content": url}]))
    assert all(name.startswith("inline_images/") and ".." not in name for name in images)
    _, images = move_images_out(records_from_messages([{"role": "user", "content": f"data:image/...;base64,{PNG}"}]))
    assert [name.rpartition(".")[2] for name in images] == ["bin"]


def image_block(data: bytes, kind: str = "png") -> dict[str, Any]:
    return {"type": "image", "mimeType": f"image/{kind}", "data": base64.b64encode(data).decode()}


def with_images(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"type": "message", "id": "m", "message": {"role": "user", "content": list(blocks)}}


def test_a_transcript_keeps_five_hundred_images() -> None:
    blocks = [image_block(str(number).encode()) for number in (*range(MAX_IMAGES + 2), 0)]
    (record, notice), images = move_images_out([with_images(*blocks)])
    texts = [block["text"] for block in record["message"]["content"]]
    assert len(images) == MAX_IMAGES
    assert texts[-3:] == [NOT_KEPT, NOT_KEPT, texts[0]], "one that is kept already is no further image"
    assert (notice["type"], notice["cut"]) == ("notice", 2)
    assert was_cut((record, notice))


def test_images_of_a_transcript_are_bounded_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_uniclaw.agents.images.MAX_IMAGE_BYTES", 10)
    first, second = with_images(image_block(b"123456"), image_block(b"abcde")), with_images(image_block(b"last"))
    (_, kept, notice), images = move_images_out([first, second])
    assert list(images.values()) == [b"123456", b"last"]
    assert kept["message"]["content"][0]["text"].startswith("[image: inline_images/")
    assert notice["cut"] == 1


@pytest.mark.parametrize(
    ("kind", "extension"), [("jpeg", "jpg"), ("jpg", "jpg"), ("webp", "webp"), ("html", "bin"), ("svg+xml", "bin")]
)
def test_only_four_kinds_of_images_get_a_name_that_is_opened(kind: str, extension: str) -> None:
    _, images = move_images_out([with_images(image_block(b"data", kind))])
    assert [name.rpartition(".")[2] for name in images] == [extension]


def test_the_final_answer_is_of_the_last_turn_and_no_stand_in() -> None:
    user, done = {"role": "user", "content": "go"}, {"role": "assistant", "content": "first"}
    assert final_answer(records_from_messages([user, done, user])) == ""
    failed = records_from_messages([user, done, user, {"role": "assistant", "content": MODEL_ERROR}])
    assert failed[-1]["message"]["stopReason"] == "error"
    assert final_answer(failed) == ""


def test_tool_usage_counts_tools_and_browser_actions() -> None:
    shell = "cd x && agent-browser --session s1 open https://a.b; agent-browser click @e1 | cat; /x/agent-browser no"
    records = records_from_messages(
        [
            {"role": "assistant", "tool_calls": [call("exec", {"command": shell}), call("read_file", "{}")]},
            {"role": "assistant", "tool_calls": [call("exec", {"command": "ls"})]},
        ]
    )
    usage = tool_usage(records)
    assert usage["tool_counts"] == {"exec": 2, "read_file": 1}
    assert usage["browser_action_counts"] == {"click": 1, "open": 1}
    assert usage["browser_used"]
    assert usage["exec_used"]
    assert usage["tool_calls"][2] == {"agentId": "", "name": "exec", "arguments": {"command": "ls"}, "timestamp": ""}


def test_the_file_nearest_to_the_top_is_read(tmp_path: Path) -> None:
    for name in ("a/b/one.jsonl", "z/one.jsonl", "y/two.jsonl", "x/other.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "two.jsonl").mkdir()
    assert nearest(tmp_path, "one.jsonl", "two.jsonl") == tmp_path / "y/two.jsonl"
    assert nearest(tmp_path, "none.jsonl") is None


def test_an_answer_keeps_one_part_more_than_a_record_may_have() -> None:
    answer = Answer()
    for number in range(MAX_BLOCKS + 5):
        assert answer.call(tool_call(str(number), "exec", {})) == (number <= MAX_BLOCKS)
        answer.think(["hm"])
    answer.say([{"type": "text", "text": "a"}] * (MAX_BLOCKS + 5))
    message = answer.message()
    assert [len(message[key]) for key in ("content", "tool_calls")] == [MAX_BLOCKS + 1] * 2
    assert message["reasoning_content"].count("hm") == MAX_BLOCKS + 1


def test_sessions_are_joined_with_the_users_own_last() -> None:
    joined = Joined()
    joined.add(records_from_messages([{"role": "user", "content": "mine"}]), "", broken=1, cut=False)
    joined.add(records_from_messages([{"role": "user", "content": "theirs"}]), "helper", broken=2, cut=True)
    first, last, notice = joined.records("p")
    assert (first["agentId"], last["message"]["content"][0]["text"]) == ("helper", "mine")
    assert notice == {"type": "notice", "id": "p-000002", "timestamp": "", "brokenLines": 3, "cut": 1}
