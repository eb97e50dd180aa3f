"""Responses requests as chat requests, and chat answers as responses: values only, no gateway."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import suppress
from typing import Any

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response as SdkResponse
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from pytest_uniclaw.models.bridge import ORPHAN, PICTURES, Extras, translate
from pytest_uniclaw.models.chat import Assembled, chunks_of
from pytest_uniclaw.models.encoding import decoded
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import CallClass
from pytest_uniclaw.models.player import locate
from pytest_uniclaw.models.responses import Response, custom_input, responses_usage
from pytest_uniclaw.models.toolbox import Tool, Toolbox, flat_name

EXEC = {"type": "function", "name": "exec", "parameters": {"type": "object", "properties": {"cmd": {}}}}
PATCH = {
    "type": "custom", "name": "apply_patch", "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: x"},
}  # fmt: skip
AGENTS = {
    "type": "namespace", "name": "agents", "description": "Sub-agents.",
    "tools": [{"type": "function", "name": "spawn", "description": "Begins one."}, {"type": "custom", "name": "tell"}],
}  # fmt: skip
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "original"}
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def called(call_id: str, name: str = "exec", arguments: str = "{}", **more: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments} | more


def result(call_id: str, output: Any = "ok") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def chat(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return translate({"model": "m", "input": list(items)} | more, Extras()).body


def messages(*items: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = chat(*items, **more)["messages"]
    return found


# ------------------------------------------------------------------------------------------------ the way in


def test_a_text_is_one_user_message() -> None:
    body = translate({"model": "m", "input": "hello", "stream": True, "store": True}, Extras()).body
    assert body == {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


def test_instructions_and_leading_developer_messages_are_one_system_message() -> None:
    developer = {"role": "developer", "content": "second"}
    found = messages(developer, user("hi"), said("yes"), {"role": "developer", "content": "late"}, instructions="first")
    assert found == [
        {"role": "system", "content": "first\n\nsecond"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yes"},
        {"role": "system", "content": "late"},
    ]


def test_reasoning_text_and_calls_of_one_answer_are_one_message() -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    found = messages(user("go"), thought, said("I look."), called("a"), called("b"), result("b", "2"), result("a", "1"))
    assert [m["role"] for m in found] == ["user", "assistant", "tool", "tool"]
    assert (found[1]["content"], found[1]["reasoning_content"]) == ("I look.", "hm")
    assert [call["id"] for call in found[1]["tool_calls"]] == ["a", "b"]
    assert [(m["tool_call_id"], m["content"]) for m in found[2:]] == [("a", "1"), ("b", "2")]


def test_answers_apart_stay_apart() -> None:
    found = messages(user("go"), called("a"), result("a"), called("b"), result("b"), said("done"))
    assert [m["role"] for m in found] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert locate(found).said == 3


def test_a_summary_stands_in_for_reasoning_and_encrypted_reasoning_is_nothing() -> None:
    summary = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "content": None}
    closed = {"type": "reasoning", "summary": [], "encrypted_content": "xx"}
    assert messages(user("go"), summary, said("a"))[1]["reasoning_content"] == "short"
    assert messages(user("go"), closed) == [{"role": "user", "content": "go"}]


def test_pictures_of_results_follow_in_one_user_message() -> None:
    output = [{"type": "input_text", "text": "see"}, PICTURE]
    found = messages(user("go"), called("a"), called("b"), result("a", output), result("b", [PICTURE]), user("next"))
    assert [m["role"] for m in found] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert [m["content"] for m in found[2:4]] == ["see", "(see the attached image)"]
    url = {"type": "image_url", "image_url": {"url": PICTURE["image_url"]}}
    assert found[4]["content"] == [{"type": "text", "text": PICTURES}, url, url]
    assert locate(found).turn == 2, "the message with the pictures is not the user's"


def test_results_without_a_call_and_calls_without_a_result() -> None:
    found = messages(result("gone", "42"), user("go"), called("a"), user("stop"), said("stopped"))
    assert found[0] == {"role": "user", "content": f"{ORPHAN}\n42"}
    assert [m["role"] for m in found] == ["user", "user", "assistant", "tool", "user", "assistant"]
    assert (found[3]["tool_call_id"], found[3]["content"]) == ("a", "(no result: the call was interrupted)")
    assert locate(found).turn == 2


def test_a_late_result_stands_behind_its_call() -> None:
    found = messages(user("go"), called("a"), user("wait"), result("a", "late"), result("a", "twice"))
    assert [m["role"] for m in found] == ["user", "assistant", "tool", "user", "user"]
    assert found[2]["content"] == "late"
    assert found[4]["content"] == f"{ORPHAN}\ntwice"


def test_call_ids_that_come_again_belong_to_the_latest_call() -> None:
    found = messages(user("go"), called("0"), result("0", "one"), called("0"), result("0", "two"))
    assert [m["content"] for m in found if m["role"] == "tool"] == ["one", "two"]


def test_custom_and_namespaced_calls_go_by_their_functions_names() -> None:
    custom = {"type": "custom_tool_call", "call_id": "p", "name": "apply_patch", "input": 'a "b"'}
    output = {"type": "custom_tool_call_output", "call_id": "p", "output": "patched"}
    found = messages(user("go"), custom, called("s", "spawn", namespace="agents"), output, tools=[PATCH, AGENTS])
    first, second = found[1]["tool_calls"]
    assert (first["function"]["name"], json.loads(first["function"]["arguments"])) == (
        "apply_patch",
        {"input": 'a "b"'},
    )
    assert second["function"]["name"] == "agents__spawn"
    assert found[2]["content"] == "patched"
    old = messages(user("go"), called("s", "spawn", namespace="agents"))
    assert old[1]["tool_calls"][0]["function"]["name"] == "agents__spawn", "also when it is no longer offered"


def test_other_contents() -> None:
    file = {"type": "input_file", "file_data": "data:x", "filename": "f"}
    parts = [{"type": "input_text", "text": "a"}, PICTURE, file]
    whole = translate({"model": "m", "input": [{"role": "user", "content": [*parts, {"type": "video"}, 5]}]}, Extras())
    content = whole.body["messages"][0]["content"]
    assert [part["type"] for part in content] == ["text", "image_url", "file"]
    assert content[2]["file"] == {"file_data": "data:x", "filename": "f"}
    assert [note.split(" left out")[0] for note in whole.notes] == ["content video", "content int"]
    assert messages(user("go"), called("a"), result("a", {"ok": True}))[2]["content"] == '{"ok": true}'


def test_parameters_get_their_chat_names() -> None:
    schema = {"type": "json_schema", "name": "verdict", "strict": True, "schema": {"type": "object"}}
    body = chat(
        user("go"), tools=[EXEC], max_output_tokens=50, temperature=0.5, reasoning={"effort": "high", "summary": "x"},
        text={"format": schema, "verbosity": "low"}, parallel_tool_calls=False, prompt_cache_key="k", include=["x"],
        metadata={"a": "b"},
    )  # fmt: skip
    assert {key: value for key, value in body.items() if key not in ("messages", "tools")} == {
        "model": "m",
        "max_tokens": 50,
        "temperature": 0.5,
        "reasoning_effort": "high",
        "verbosity": "low",
        "parallel_tool_calls": False,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "verdict", "strict": True, "schema": {"type": "object"}},
        },
    }
    assert "max_tokens" not in chat(user("go")), "nothing cuts an answer that the agent did not ask to be cut"


def test_unknown_parameters_and_items_are_noted() -> None:
    body = {"model": "m", "input": [user("go"), {"type": "web_search_call"}], "service_tier": "flex"}
    assert translate(body, Extras()).notes == (
        "item web_search_call left out: the chat wire has none of its kind",
        "parameter service_tier left out",
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": "x", "previous_response_id": "resp_1"}, "'previous_response_id' is not supported"),
        ({"input": "x", "conversation": "c"}, "'conversation' is not supported"),
        ({"input": "x", "background": True}, "'background' is not supported"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "refers to a stored item"),
        ({}, "'input' must be"),
        ({"input": []}, "'input' must be"),
        ({"input": [5]}, "'input[0]' must be an object"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "'input[0]' must have the role"),
        ({"input": [{"type": "function_call"}]}, "'input[0]' must have a name"),
        ({"input": "x", "tools": {}}, "'tools' must be a list"),
        ({"input": "x", "tools": [{"type": "function"}]}, "'tools[0]' must have a name"),
        ({"input": "x", "tools": ["exec"]}, "'tools[0]' must be an object"),
        ({"input": "x", "tools": [{"type": "namespace", "name": "n", "tools": [AGENTS]}]}, "not inside another"),
        ({"input": "x", "tools": [EXEC], "tool_choice": {"type": "function", "name": "other"}}, "does not offer"),
        ({"input": "x", "tool_choice": "required"}, "does not offer"),
    ],
)
def test_what_no_provider_can_answer_is_refused(body: dict[str, Any], words: str) -> None:
    with pytest.raises(CallFailed) as caught:
        translate({"model": "m"} | body, Extras())
    assert (caught.value.call_class, caught.value.status) == (CallClass.BAD_REQUEST, 400)
    assert words in caught.value.message


# ------------------------------------------------------------------------------------------------------ tools


def test_tools_become_functions() -> None:
    box = Toolbox([EXEC, PATCH, AGENTS, {"type": "web_search"}])
    functions = {tool["function"]["name"]: tool["function"] for tool in box.functions}
    assert list(functions) == ["exec", "apply_patch", "agents__spawn", "agents__tell"]
    assert functions["apply_patch"]["parameters"]["required"] == ["input"]
    words = functions["apply_patch"]["description"]
    assert words == "Edits files.\n\nThe input must follow this lark grammar:\nstart: x"
    assert functions["agents__spawn"] == {
        "name": "agents__spawn",
        "description": "Sub-agents.\n\nBegins one.",
        "parameters": {"type": "object", "properties": {}},
    }
    assert box.find("agents__tell") == Tool("tell", "agents", custom=True)
    assert box.find("never_offered") == Tool("never_offered")
    assert box.notes == ["tool web_search left out: a chat provider does not run tools"]


def test_names_that_would_meet_are_kept_apart() -> None:
    one = {"type": "function", "name": "agents__spawn"}
    box = Toolbox([one, AGENTS, EXEC, EXEC | {"type": "custom"}])
    names = [tool["function"]["name"] for tool in box.functions]
    assert len(set(names)) == 5
    assert box.find(box.flat("spawn", "agents")) == Tool("spawn", "agents")
    assert box.find(box.flat("agents__spawn")) == Tool("agents__spawn")


@given(st.text(min_size=1, max_size=200), st.none() | st.text(min_size=1, max_size=100))
def test_every_name_fits_and_comes_back(name: str, namespace: str | None) -> None:
    flat = flat_name(name, namespace)
    assert 0 < len(flat) <= 64
    assert flat.isascii()
    assert flat.replace("_", "").replace("-", "").isalnum() or not flat.strip("_-")
    tool = {"type": "function", "name": name}
    box = Toolbox([{"type": "namespace", "name": namespace, "tools": [tool]}] if namespace else [tool])
    assert box.find(flat) == Tool(name, namespace)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("required", "required"),
        ({"type": "function", "name": "exec"}, {"type": "function", "function": {"name": "exec"}}),
        ({"type": "custom", "name": "apply_patch"}, {"type": "function", "function": {"name": "apply_patch"}}),
        (
            {"type": "function", "name": "spawn", "namespace": "agents"},
            {"type": "function", "function": {"name": "agents__spawn"}},
        ),
        ({"type": "web_search_preview"}, None),
    ],
)
def test_tool_choice(choice: Any, expected: Any) -> None:
    assert chat(user("go"), tools=[EXEC, PATCH, AGENTS], tool_choice=choice).get("tool_choice") == expected


def test_allowed_tools_takes_the_others_away() -> None:
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "exec"}]}
    body = chat(user("go"), tools=[EXEC, PATCH], tool_choice=choice)
    assert ([tool["function"]["name"] for tool in body["tools"]], body["tool_choice"]) == (["exec"], "required")


def test_without_tools_there_is_nothing_to_choose() -> None:
    body = chat(user("go"), tools=[{"type": "web_search"}], tool_choice="auto", parallel_tool_calls=True)
    assert set(body) == {"model", "messages"}


# ------------------------------------------------------------------------------------------------ the way out


def response(**request: Any) -> Response:
    body = {"model": "m", "input": "x", "tools": [EXEC, PATCH, AGENTS]} | request
    return Response(body, Toolbox(body["tools"]), Extras(), stem="g1-7", created=1_800_000_000)


def events_of(
    found: Response, *deltas: dict[str, Any], finish: str = "stop", usage: Any = None
) -> list[dict[str, Any]]:
    events = found.begin()
    for delta in deltas:
        events += found.chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    events += found.chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    events += found.chunk({"choices": [], "usage": usage}) if usage else []
    return [*events, *found.end()]


def arguments(index: int, text: str, **head: Any) -> dict[str, Any]:
    name = {"name": head.pop("name")} if "name" in head else {}
    return {"tool_calls": [{"index": index, "function": {"arguments": text} | name} | head]}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def test_the_events_of_a_text() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}
    usage = {"prompt_tokens": 9, "completion_tokens": 3} | details
    opening = {"role": "assistant", "content": ""}
    events = events_of(response(), opening, {"content": "He"}, {"content": "y"}, usage=usage)
    assert kinds(events) == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[6]["text"] == "Hey"
    last = events[-1]["response"]
    assert (last["id"], last["status"], last["output"][0]["content"][0]["text"]) == ("resp_g1-7", "completed", "Hey")
    assert last["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 12,
    }


def test_interleaved_parallel_calls() -> None:
    events = events_of(
        response(),
        {"reasoning_content": "hm"}, {"content": "I look."},
        arguments(0, "", id="a", name="exec"), arguments(1, '{"q"', id="b", name="agents__spawn"),
        arguments(0, '{"cmd":'), arguments(1, ": 1}"), arguments(0, ' "ls"}'),
        finish="tool_calls",
    )  # fmt: skip
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert events[-1]["type"] == "response.completed", "calls make an answer complete, not incomplete"
    by_id = {item["call_id"]: item for item in output[2:]}
    assert by_id["a"] | {"id": 0} == {
        "id": 0, "type": "function_call", "status": "completed", "call_id": "a", "name": "exec",
        "arguments": '{"cmd": "ls"}',
    }  # fmt: skip
    assert (by_id["b"]["name"], by_id["b"]["namespace"], by_id["b"]["arguments"]) == ("spawn", "agents", '{"q": 1}')
    deltas = [e for e in events if e["type"] == "response.function_call_arguments.delta"]
    joined = {item["id"]: "".join(e["delta"] for e in deltas if e["item_id"] == item["id"]) for item in output[2:]}
    assert joined == {item["id"]: item["arguments"] for item in output[2:]}
    assert len({item["id"] for item in output}) == 4


def test_a_custom_call() -> None:
    piece = json.dumps({"input": "*** Begin\n"})
    events = events_of(response(), arguments(0, piece[:9], id="p", name="apply_patch"), arguments(0, piece[9:]))
    assert kinds(events)[2:] == [
        "output_item.added", "custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    (item,) = events[-1]["response"]["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", "*** Begin\n")


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [('{"input": "a"}', "a"), ("plain", "plain"), ('"quoted"', "quoted"), ('{"x": 1}', '{"x": 1}'), ("[1]", "[1]")],
)
def test_custom_input_of_a_model_that_does_not_follow(given_text: str, expected: str) -> None:
    assert custom_input(given_text) == expected


def test_text_after_calls_is_an_item_of_its_own() -> None:
    events = events_of(response(), {"content": "a"}, arguments(0, "{}", id="x", name="exec"), {"content": "b"})
    output = events[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["message", "function_call", "message"]
    assert [event["output_index"] for event in events if event["type"] == "response.output_item.added"] == [0, 1, 2]


def test_an_answer_that_was_cut_off_is_incomplete() -> None:
    events = events_of(response(), {"content": "half"}, finish="length")
    last = events[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert last["response"]["output"][0]["status"] == "incomplete"
    filtered = events_of(response(), {"content": "half"}, finish="content_filter")[-1]
    assert filtered["response"]["incomplete_details"] == {"reason": "content_filter"}


def test_a_call_that_was_cut_off_is_never_done() -> None:
    whole, half = arguments(0, "{}", id="a", name="exec"), arguments(1, '{"cmd": "rm -r', id="b", name="exec")
    events = events_of(response(), whole, half, finish="length")
    done = [event["item"]["call_id"] for event in events if event["type"] == "response.output_item.done"]
    assert done == ["a"]
    assert [item["status"] for item in events[-1]["response"]["output"]] == ["completed", "incomplete"]


def test_empty_answers_and_calls_without_arguments_or_id() -> None:
    events = events_of(response())
    assert (kinds(events), events[-1]["response"]["output"]) == (["created", "in_progress", "completed"], [])
    assert events[-1]["response"]["usage"] is None, "unknown is not 0"
    (item,) = events_of(response(), arguments(0, "", name="exec"))[-1]["response"]["output"]
    assert (item["arguments"], item["call_id"]) == ("{}", "call_g1-7_0")


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (CallFailed(CallClass.STREAM_BROKEN, 502, "broke"), "server_error"),
        (CallFailed(CallClass.CONTEXT_LENGTH, 400, "long"), "context_length_exceeded"),
        (CallFailed(CallClass.RATE_LIMIT, 429, "slow"), "rate_limit_exceeded"),
        (CallFailed(CallClass.QUOTA, 429, "broke"), "insufficient_quota"),
    ],
)
def test_a_broken_answer_is_failed(failure: CallFailed, code: str) -> None:
    found = response()
    begun = [*found.begin(), *found.chunk({"choices": [{"delta": {"content": "ha"}}]})]
    (event,) = found.failed(failure)
    assert (event["type"], event["sequence_number"]) == ("response.failed", len(begun))
    assert event["response"]["error"] == {"code": code, "message": failure.message}
    assert event["response"]["status"] == "failed"
    assert event["response"]["output"][0]["status"] == "incomplete"


MESSAGE = {
    "role": "assistant",
    "content": "Look: " * 30,
    "reasoning_content": "because",
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "exec", "arguments": '{"cmd": "ls"}'}},
        {"id": "p", "type": "function", "function": {"name": "apply_patch", "arguments": '{"input": "x"}'}},
        {"id": "s", "type": "function", "function": {"name": "agents__spawn", "arguments": "{}"}},
    ],
}
WHOLE = {
    "id": "c",
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 3},
}


def test_a_whole_answer_is_the_last_event_of_the_stream() -> None:
    streamed = response()
    events = streamed.begin()
    for chunk in chunks_of(WHOLE):
        events += streamed.chunk(chunk)
    events += streamed.end()
    assert response().whole(WHOLE) == events[-1]["response"]
    for event in events:
        EVENT.validate_python(event, strict=False)
    SdkResponse.model_validate(events[-1]["response"])


def test_an_answer_comes_back_as_the_message_it_was() -> None:
    output = response().whole(WHOLE)["output"]
    outputs = [{"type": f"{item['type']}_output", "call_id": item["call_id"], "output": "ok"} for item in output[2:]]
    found = messages(user("go"), *output, *outputs, tools=[EXEC, PATCH, AGENTS])
    assert found[1] == MESSAGE


def test_extra_content_comes_back_with_its_call() -> None:
    extras = Extras()
    body = {"model": "m", "input": "x", "tools": [EXEC]}
    found = Response(body, Toolbox([EXEC]), extras, stem="s", created=1)
    signed = {"google": {"thought_signature": "sig"}}
    events_of(found, arguments(0, "{}", id="a", name="exec", extra_content=signed))
    again = translate({"model": "m", "input": [user("x"), called("a"), called("b")], "tools": [EXEC]}, extras)
    first, second = again.body["messages"][1]["tool_calls"]
    assert first["extra_content"] == signed
    assert "extra_content" not in second


def test_extra_content_is_bounded() -> None:
    extras = Extras(limit=2)
    for number in range(3):
        extras.keep(str(number), number)
    assert [extras.of(str(number)) for number in range(3)] == [{}, {"extra_content": 1}, {"extra_content": 2}]


@pytest.mark.parametrize("usage", [None, {}, [], {"prompt_tokens": 1}, {"prompt_tokens": "1", "completion_tokens": 2}])
def test_unknown_usage_stays_unknown(usage: Any) -> None:
    assert responses_usage(usage) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
NAMES = st.sampled_from(["content", "reasoning_content", "tool_calls", "index", "id", "function", "name", "arguments"])


DELTAS = st.dictionaries(NAMES, JSON | st.lists(st.dictionaries(NAMES, JSON), max_size=2), max_size=3)


@given(st.lists(DELTAS, max_size=4))
def test_no_provider_breaks_the_order_of_events(deltas: list[dict[str, Any]]) -> None:
    seen, found = Assembled(), response()
    for delta in deltas:
        seen.add({"choices": [{"delta": delta}]})
    events = events_of(found, *deltas)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    open_items: set[int] = set()
    for event in events[2:-1]:
        if event["type"] == "response.output_item.added":
            assert event["output_index"] not in open_items
            open_items.add(event["output_index"])
        assert event["output_index"] in open_items
    texts = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(texts) == seen.text


FIELDS = ("type", "role", "content", "call_id", "name", "arguments", "output", "summary", "input", "namespace")
ITEMS = st.dictionaries(
    st.sampled_from(FIELDS),
    JSON | st.sampled_from(["message", "user", "assistant", "reasoning", "function_call", "function_call_output", "a"]),
    max_size=6,
)


@given(st.lists(ITEMS, max_size=5), JSON, JSON)
def test_any_request_is_translated_or_refused(items: list[Any], tools: Any, choice: Any) -> None:
    body = {"model": "m", "input": items, "tools": tools, "tool_choice": choice}
    with suppress(CallFailed):
        assert_answerable(translate(body, Extras()).body["messages"])


def assert_answerable(found: list[dict[str, Any]]) -> None:
    waiting: list[str] = []
    for message in found:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0), "results stand behind their calls, in order"
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting


# --------------------------------------------------------------------------------------------- content codings


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("", b"body"),
        ("identity", b"body"),
        ("gzip", gzip.compress(b"bo") + gzip.compress(b"dy")),
        ("deflate", zlib.compress(b"body")),
        (" ZSTD", zstd.compress(b"bo") + zstd.compress(b"dy")),
    ],
    ids=["none", "identity", "gzip", "deflate", "zstd"],
)
def test_compressed_bodies(coding: str, data: bytes) -> None:
    assert decoded(data, coding, 100) == b"body"


@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress], ids=["gzip", "zstd"])
def test_bodies_that_do_not_decompress_or_grow_too_much(pack: Any) -> None:
    coding = "gzip" if pack is gzip.compress else "zstd"
    data = pack(b"x" * 50_000_000)
    for body, limit, status in ((data, 1 << 20, 413), (data[:-5], 1 << 30, 400), (b"not at all", 10, 400)):
        with pytest.raises(CallFailed) as caught:
            decoded(body, coding, limit)
        assert (caught.value.status, caught.value.call_class) == (status, CallClass.BAD_REQUEST)


def test_unknown_codings_are_named() -> None:
    with pytest.raises(CallFailed, match="'br' is not known") as caught:
        decoded(b"x", "br", 10)
    assert caught.value.status == 415
