"""Codex CLI without a container: its rollout files, its configuration, its endings, its tools on the chat wire."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.agents.base import ModelAccess
from pytest_uniclaw.agents.codex import (
    VERSIONS,
    CodexAgent,
    configuration,
    last_error,
    reasoning,
)
from pytest_uniclaw.agents.message import plain_text
from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.agents.rollout import messages_of, read_rollouts
from pytest_uniclaw.agents.transcript import final_answer, move_images_out, to_jsonl, tool_usage
from pytest_uniclaw.agents.usage import messages
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.models.bridge import Extras, translate
from pytest_uniclaw.sandbox.base import Completed
from pytest_uniclaw.sandbox.image_spec import AGENTS, IMAGES, agent_image, context_files

ACCESS = ModelAccess("http://127.0.0.1:4010/v1", "sk-virtual", "scripted-1")
THREAD = "rollout-2026-11-30T08-14-27-01a22b85-0516-79c0-85df-8db757f4578c.jsonl"
OTHER = "rollout-2026-11-30T08-14-29-01a22b85-1516-79c0-85df-8db757f45000.jsonl"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
Json = dict[str, Any]


def text(role: str, words: str) -> Json:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}]}


def call(name: str, call_id: str, **more: Any) -> Json:
    return {"type": "function_call", "name": name, "call_id": call_id, "arguments": '{"cmd": "ls"}'} | more


def output(call_id: str, said: Any, kind: str = "function_call_output") -> Json:
    return {"type": kind, "call_id": call_id, "output": said}


TURN = [
    {"type": "session_meta", "payload": {"id": "01a22b85", "source": "exec", "cli_version": "0.171.0"}},
    text("developer", "<skills_instructions>…"),
    text("user", "<environment_context>\n  <cwd>/tmp_workspace</cwd>\n</environment_context>"),
    text("user", "Make the table."),
    {"type": "event_msg", "payload": {"type": "user_message", "message": "Make the table."}},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "First look."}]},
    text("assistant", "I look."),
    call("exec_command", "c1"),
    call("spawn_agent", "c2", namespace="multi_agent_v1", arguments='{"message": "count"}'),
    {"type": "event_msg", "payload": {"type": "token_count"}},
    output("c1", "Process exited with code 3\nOutput:\nnaïve 表格"),
    output("c2", '{"agent_id": "x"}'),
    {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c3", "input": "*** Begin Patch"},
    output("c3", [{"type": "input_text", "text": "Done."}], "custom_tool_call_output"),
    call("view_image", "c4", arguments='{"path": "/p.png"'),
    output("c4", [{"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}", "detail": "high"}]),
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Now say it."}], "content": None},
    text("assistant", "The table is made."),
    text("user", "<subagent_notification>\n{}\n</subagent_notification>"),
]


def written(folder: Path, items: list[Any], name: str = THREAD) -> Path:
    """A rollout file; what is no line of its own kind is wrapped as a response item."""
    path = folder / "0" / "2026" / "11" / "30" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = ("session_meta", "event_msg", "compacted")
    lines = [
        item if item.get("type") in kinds else {"type": "response_item", "payload": item} for item in items
    ]  # fmt: skip
    stamped = [{"timestamp": f"2026-11-30T08:14:{n:02}.000Z"} | line for n, line in enumerate(lines)]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in stamped), "utf-8")
    return path


def test_a_thread_becomes_records_of_one_schema(tmp_path: Path) -> None:
    written(tmp_path, TURN)
    records = read_rollouts(tmp_path)
    assert [message["role"] for message in messages(records)] == [
        "user", "assistant", "toolResult", "toolResult", "assistant", "toolResult", "assistant", "toolResult",
        "assistant",
    ]  # fmt: skip
    assert [record["id"] for record in records[:2]] == ["codex-000000", "codex-000001"]
    first = messages(records)[1]
    assert first["content"] == [
        {"type": "thinking", "thinking": "First look."},
        {"type": "text", "text": "I look."},
        {"type": "toolCall", "id": "c1", "name": "exec_command", "arguments": {"cmd": "ls"}},
        {"type": "toolCall", "id": "c2", "name": "multi_agent_v1.spawn_agent", "arguments": {"message": "count"}},
    ]
    assert first["timestamp"] == "2026-11-30T08:14:05+00:00"
    results = [message for message in messages(records) if message["role"] == "toolResult"]
    assert [(r["toolCallId"], r["toolName"]) for r in results] == [
        ("c1", "exec_command"), ("c2", "multi_agent_v1.spawn_agent"), ("c3", "apply_patch"), ("c4", "view_image"),
    ]  # fmt: skip
    assert results[0]["content"] == [{"type": "text", "text": "Process exited with code 3\nOutput:\nnaïve 表格"}]
    assert messages(records)[4]["content"][0]["arguments"] == {"input": "*** Begin Patch"}
    assert messages(records)[6]["content"][0]["arguments"] == {"_raw": '{"path": "/p.png"'}
    _, images = move_images_out(records)
    assert [name.rpartition(".")[2] for name in images] == ["png"]
    assert messages(records)[8]["content"][0] == {"type": "thinking", "thinking": "Now say it."}
    assert final_answer(records) == "The table is made."
    assert tool_usage(records)["exec_used"]


def test_threads_of_sub_agents_stand_before_the_session(tmp_path: Path) -> None:
    written(tmp_path, [text("user", "Go."), text("assistant", "Done.")])
    written(tmp_path, [text("user", "Count."), call("exec_command", "c1"), text("assistant", "Counted.")], OTHER)
    records = read_rollouts(tmp_path)
    assert [(r.get("agentId", ""), r["message"]["role"]) for r in records] == [
        ("01a22b85-1516-79c0-85df-8db757f45000", "user"), ("01a22b85-1516-79c0-85df-8db757f45000", "assistant"),
        ("", "user"), ("", "assistant"),
    ]  # fmt: skip
    assert final_answer(records) == "Done."
    assert len({record["id"] for record in records}) == 4
    assert tool_usage(records)["tool_calls"][0]["agentId"] == "01a22b85-1516-79c0-85df-8db757f45000"


def test_what_is_broken_is_counted_and_harms_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, [text("user", "Go."), text("assistant", "Done.")])
    path.write_bytes(b'{"cut\n[1]\n\xff\xfe\n\n' + path.read_bytes() + b'{"type": "response_item", "payload": 7}\n')
    records = read_rollouts(tmp_path)
    assert final_answer(records) == "Done."
    assert records[-1] == {"type": "notice", "id": "codex-000002", "timestamp": "", "brokenLines": 3}
    assert read_rollouts(tmp_path / "nothing") == ()


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
KINDS = st.sampled_from(
    ["message", "reasoning", "function_call", "function_call_output", "local_shell_call", "x_output"]
)
FIELDS = ("role", "content", "summary", "name", "namespace", "arguments", "call_id", "output", "input", "action")


@given(st.lists(st.fixed_dictionaries({"type": KINDS | ANY}, optional=dict.fromkeys(FIELDS, ANY)), max_size=6))
def test_no_rollout_breaks_the_reader(items: list[Json]) -> None:
    list(messages_of([(None, item) for item in items]))


@given(items=st.lists(st.fixed_dictionaries({"type": KINDS}, optional=dict.fromkeys(FIELDS, ANY)), max_size=4))
def test_whatever_a_rollout_holds_can_be_written_as_a_transcript(
    items: list[Json], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("raw")
    (folder / THREAD).write_text("".join(json.dumps({"type": "response_item", "payload": i}) + "\n" for i in items))
    for line in to_jsonl(read_rollouts(folder)).splitlines():
        json.loads(line)


def test_the_configuration_is_toml_that_names_the_gateway_alone() -> None:
    odd = ModelAccess(ACCESS.base_url, 'k"\\\n', "ünï-模型")
    parsed = tomllib.loads(configuration(odd, settings=reasoning("high"), features={"use_legacy_landlock": True}))
    assert parsed["model"] == "ünï-模型"
    assert parsed["model_reasoning_effort"] == "high"
    assert parsed["sandbox_mode"] == "danger-full-access"
    provider = parsed["model_providers"][parsed["model_provider"]]
    assert provider["base_url"] == ACCESS.base_url
    assert provider["experimental_bearer_token"] == 'k"\\\n'
    assert (provider["request_max_retries"], provider["stream_max_retries"]) == (0, 0)
    assert parsed["analytics"] == {"enabled": False}
    assert parsed["features"] == {"plugins": False, "apps": False, "use_legacy_landlock": True}
    assert "model_reasoning_effort" not in tomllib.loads(configuration(ACCESS))


@pytest.mark.parametrize(
    ("given_text", "expected"),
    [("Go.", "Go."), (" \n", "Please go on."), ("a\0b", "a␀b"), ("x\ud800y", "x?y"), ("--help", "--help")],
)
def test_every_message_can_be_standard_input(given_text: str, expected: str) -> None:
    assert plain_text(given_text) == expected


def ended(code: int | None, said: bytes = b"", ending: Ending = Ending.EXITED) -> Completed:
    return Completed(ending, code, said, 1.0)


def test_a_turn_is_finished_by_status_and_answer_not_by_words(tmp_path: Path) -> None:
    agent = CodexAgent()
    written(tmp_path, TURN)
    done = read_rollouts(tmp_path)
    assert agent.finish(ended(0), done).finished
    failed = b'{"type":"turn.started"}\n{"type":"turn.failed","error":{"message":"unexpected status 401:\\n no key"}}\n'
    assert agent.finish(ended(1, failed), done).reason == "codex exited with 1: unexpected status 401: no key"
    assert agent.finish(ended(None, b"", Ending.DEADLINE), done).reason == "codex was stopped: deadline"
    assert agent.finish(ended(0), ()).reason == "codex stored no session"
    for items, reason in (
        ([text("user", "Go.")], "codex stored no reply"),
        ([text("user", "Go."), call("exec_command", "c")], "codex's session ends without an answer"),
        ([text("user", "Go."), call("exec_command", "c"), output("c", "x")], "codex's session ends without an answer"),
        ([text("user", "Go."), {"type": "reasoning", "content": [{"text": "hm"}]}], "codex's last message is empty"),
    ):
        written(tmp_path, items)
        assert agent.finish(ended(0), read_rollouts(tmp_path)).reason == reason


def test_the_last_error_is_an_event_s_or_the_last_plain_line() -> None:
    assert last_error(b'{"type":"error","message":"a"}\n{"type":"item.completed"}\n{"type":"err') == "a"
    assert last_error(b'plain error: "turn.failed"\n{"type":"turn.failed","error":null}') == ""
    assert last_error(b'{"type":"thread.started"}\nError: too  large\n\n') == "Error: too large"
    assert last_error(b'{"type":"thread.started"}\n') == last_error(b"") == ""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_has_its_agent_and_image(version: str) -> None:
    agent = load_agent(f"codex@{version}")
    assert agent.image == agent_image("codex", version) == f"codex-{version}"
    lock = json.loads(context_files(IMAGES[agent.image])["package-lock.json"])
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert {entry["version"].partition("-linux")[0] for entry in packages.values()} == {version}


def test_the_newest_release_is_the_default() -> None:
    assert load_agent("codex").version == VERSIONS[0]
    assert AGENTS["codex"].releases == VERSIONS
    with pytest.raises(SettingsError, match=r"codex 0\.1 is not supported; known releases: 0\.171\.0, 0\.120\.0"):
        load_agent("codex@0.1")


def added(*tools: Json) -> Json:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def test_tools_that_the_input_adds_are_offered() -> None:
    """For the models that it knows codex puts its tools into the input, under namespaces."""
    shell = {"type": "custom", "name": "exec", "description": "Run code."}
    sleep = {"type": "function", "name": "sleep", "parameters": {"type": "object", "properties": {}}}
    body = {
        "model": "m", "tools": [sleep],
        "input": [
            added({"type": "namespace", "name": "functions", "tools": [shell]}), text("user", "Go."),
            added(sleep | {"description": "newer"}),
        ],
    }  # fmt: skip
    found = translate(body, Extras())
    offered = {tool["function"]["name"]: tool["function"] for tool in found.body["tools"]}
    assert set(offered) == {"sleep", "functions__exec"}
    assert offered["sleep"]["description"] == "newer"
    assert found.toolbox.find("functions__exec").namespace == "functions"
    assert found.toolbox.find("functions__exec").custom
    assert found.body["messages"] == [{"role": "user", "content": "Go."}]
    assert found.notes == ()
