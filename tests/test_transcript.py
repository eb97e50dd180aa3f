"""Transcripts: one schema out of untrusted bytes; always valid UTF-8 JSON, never an exception."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from pytest_uniclaw.agents.cleaning import MAX_TEXT_CHARACTERS
from pytest_uniclaw.agents.transcript import (
    MODEL_ERROR,
    complete_last_turn,
    final_answer,
    move_images_out,
    normalise_nanobot,
    records_from_messages,
    to_jsonl,
    tool_usage,
)

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
    assert [record["message"]["role"] for record in records] == ["user", "assistant", "toolResult", "assistant"]
    assert [record["id"] for record in records] == [f"nanobot-{number:06d}" for number in range(4)]
    assert records[0]["timestamp"] == "2026-11-30T02:27:34.744631+00:00"
    assert records[1]["message"]["content"] == [
        {"type": "thinking", "thinking": "hm"},
        {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {"command": "ls"}},
        {"type": "toolCall", "id": "c2", "name": "read_file", "arguments": {"_raw": "not json"}},
    ]
    assert records[2]["message"]["toolCallId"] == "c1"
    assert records[2]["message"]["toolName"] == "exec"
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


def test_an_image_name_cannot_leave_its_folder() -> None:
    url = f"data:image/..%2f..+.;base64,{PNG}"
    _, images = move_images_out(records_from_messages([{"role": "user", "content": url}]))
    assert all(name.startswith("inline_images/") and ".." not in name for name in images)
    _, images = move_images_out(records_from_messages([{"role": "user", "content": f"data:image/...;base64,{PNG}"}]))
    assert [name.rpartition(".")[2] for name in images] == ["bin"]


def test_the_final_answer_is_of_the_last_turn_and_no_stand_in() -> None:
    user, done = {"role": "user", "content": "go"}, {"role": "assistant", "content": "first"}
    assert final_answer(records_from_messages([user, done, user])) == ""
    failed = records_from_messages([user, done, user, {"role": "assistant", "content": MODEL_ERROR}])
    assert failed[-1]["message"]["stopReason"] == "error"
    assert final_answer(failed) == ""


def test_a_killed_turn_is_completed_from_the_exchange_log() -> None:
    one, two = {"role": "user", "content": "one"}, {"role": "user", "content": "two"}
    done = {"role": "assistant", "content": "done"}
    step = {"role": "assistant", "content": "", "tool_calls": [call("exec", "{}")]}
    own = records_from_messages([one, done, two], prefix="nanobot")
    rebuilt = records_from_messages([one, done, two, step])
    records, used = complete_last_turn(own, rebuilt)
    assert used
    assert records[:3] == own
    assert records[3:] == rebuilt[3:]
    assert complete_last_turn((), rebuilt) == (rebuilt, True)
    assert complete_last_turn(rebuilt, own) == (rebuilt, False)


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
