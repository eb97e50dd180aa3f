"""OpenClaw without a container: its sessions in both forms, its configuration, its endings."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.host_sandbox import HostSandbox

from pytest_uniclaw.agents.base import ModelAccess, TurnRequest
from pytest_uniclaw.agents.openclaw import (
    MEMORY,
    PAPER,
    VERSIONS,
    OpenClawAgent,
    configuration,
    seconds,
)
from pytest_uniclaw.agents.openclaw_endings import error_of, last_object
from pytest_uniclaw.agents.openclaw_session import messages_of, read_sessions
from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.agents.transcript import final_answer, move_images_out, to_jsonl, tool_usage, was_cut
from pytest_uniclaw.agents.usage import messages
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.sandbox.base import Completed, Pulse, TurnLimits
from pytest_uniclaw.sandbox.image_spec import AGENTS, IMAGES, agent_image, context_files

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCESS = ModelAccess("http://127.0.0.1:4010/v1", "uck-virtual", "scripted-1")
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
TABLE = "CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT, event_zstd BLOB)"
Json = dict[str, Any]


def said(role: str, content: Any, **more: Any) -> Json:
    return {
        "type": "message",
        "timestamp": "2026-11-30T11:29:51.503Z",
        "message": {"role": role, "content": content} | more,
    }


def call(name: str, identity: str, **arguments: Any) -> Json:
    return {"type": "toolCall", "id": identity, "name": name, "arguments": arguments}


def result(name: str, identity: str, *parts: Json) -> Json:
    return said("toolResult", list(parts), toolCallId=identity, toolName=name, isError=False)


def text(words: str) -> Json:
    return {"type": "text", "text": words}


TURN = [
    {"type": "session", "version": 3, "id": "chat"},
    {"type": "model_change", "provider": "gateway", "modelId": "scripted-1"},
    {"type": "custom_message", "content": "written by a plug-in", "message": None},
    said("user", "Make the table."),
    said(
        "assistant",
        [
            {"type": "thinking", "thinking": "First look."},
            text("I look."),
            call("exec", "c1", command="ls"),
            call("read", "c2", path="p.png"),
        ],
        stopReason="toolUse",
    ),
    result("exec", "c1", text("naïve 表格")),
    result("read", "c2", {"type": "image", "mimeType": "image/png", "data": PIXEL}),
    said("user", "System: exec finished", provenance={"kind": "internal_system"}),
    said("user", [text("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nfacts")]),
    said("custom", [text("context")]),
    said("assistant", [text("The table is made.")], stopReason="stop"),
]
OTHER = [said("user", "Count.", provenance={"kind": "inter_session"}), said("assistant", [text("Counted.")])]


def in_files(folder: Path, sessions: dict[str, list[Json]]) -> Path:
    for name, events in sessions.items():
        path = folder / "0" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events), "utf-8")
    return folder


def in_database(folder: Path, sessions: dict[str, list[Json]]) -> Path:
    """A database as a paused container leaves it: what was written last is in its journal alone."""
    work = folder / "work.sqlite"
    folder.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(work)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(TABLE)
        for name, events in sessions.items():
            for number, event in enumerate(events):
                data = json.dumps(event, ensure_ascii=False)
                packed = (None, zstd.compress(data.encode())) if number % 2 else (data, None)
                connection.execute("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", (name, number, *packed))
        connection.commit()
        for number, end in enumerate(("", "-wal")):
            path = folder / str(number) / f"openclaw-agent.sqlite{end}"
            path.parent.mkdir()
            path.write_bytes(Path(f"{work}{end}").read_bytes())
    return folder


@pytest.mark.parametrize("write", [in_files, in_database])
def test_a_session_becomes_records_of_one_schema(tmp_path: Path, write: Any) -> None:
    records = read_sessions(write(tmp_path, {"chat": TURN, "5c0ffee5": OTHER}))
    assert [(r.get("agentId", ""), r["message"]["role"]) for r in records] == [
        ("5c0ffee5", "user"), ("5c0ffee5", "assistant"), ("", "user"), ("", "assistant"), ("", "toolResult"),
        ("", "toolResult"), ("", "assistant"),
    ]  # fmt: skip
    own = messages(records)[2:]
    assert own[1]["content"] == [
        {"type": "thinking", "thinking": "First look."}, text("I look."), call("exec", "c1", command="ls"),
        call("read", "c2", path="p.png"),
    ]  # fmt: skip
    assert own[1]["stopReason"] == "toolUse"
    assert own[0]["timestamp"] == "2026-11-30T11:29:51.503000+00:00"
    assert (own[2]["toolCallId"], own[2]["toolName"], own[2]["content"]) == ("c1", "exec", [text("naïve 表格")])
    assert [name.rpartition(".")[2] for name in move_images_out(records)[1]] == ["png"]
    assert final_answer(records) == "The table is made."
    assert tool_usage(records)["exec_used"]
    assert len({record["id"] for record in records}) == 7


def test_a_result_whose_call_was_not_kept_is_a_call(tmp_path: Path) -> None:
    events = [said("user", "Go."), result("no_such_tool", "c9", text("not found")), said("assistant", [text("Done.")])]
    records = read_sessions(in_files(tmp_path, {"chat": events}))
    assert messages(records)[1]["content"] == [call("no_such_tool", "c9")]
    assert [message["role"] for message in messages(records)] == ["user", "assistant", "toolResult", "assistant"]


def test_what_is_broken_is_counted_and_harms_nothing(tmp_path: Path) -> None:
    path = in_files(tmp_path, {"chat": [said("user", "Go."), said("assistant", [text("Done.")])]}) / "0" / "chat.jsonl"
    path.write_bytes(b'{"cut\n[1]\n\xff\xfe\n\n' + path.read_bytes())
    records = read_sessions(tmp_path)
    assert final_answer(records) == "Done."
    assert records[-1] == {"type": "notice", "id": "openclaw-000002", "timestamp": "", "brokenLines": 3}
    assert read_sessions(tmp_path / "nothing") == ()


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        ("CREATE TABLE transcript_events (session_id, seq, event_json, event_zstd)",
         [(7, 1, "{}", None), ("chat", 1, 5, None), ("chat", 2, b"\xff", b"x"), ("chat", 3, None, None),
          ("chat", 4, '{"type": "message", "message": {"role": "assistant", "content": "Done."}}', None)]),
        ("CREATE TABLE transcript_events (session_id)", [("chat",)]),
        ("CREATE TABLE other (session_id)", []),
    ],
)  # fmt: skip
def test_no_row_breaks_the_reader(tmp_path: Path, schema: str, rows: list[Any]) -> None:
    with closing(sqlite3.connect(tmp_path / "openclaw-agent.sqlite")) as connection:
        connection.execute(schema)
        if rows:
            places = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT INTO transcript_events VALUES ({places})", rows)
        connection.commit()
    records = read_sessions(tmp_path)
    assert records[-1]["type"] == "notice"
    assert final_answer(records) == ("Done." if len(rows) > 1 else "")


@settings(max_examples=30)
@given(data=st.binary(max_size=300), at=st.integers(0, 12_000))
def test_no_damage_breaks_the_reader(data: bytes, at: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("raw")
    in_database(folder, {"chat": TURN})
    for path in (folder / "0" / "openclaw-agent.sqlite", folder / "1" / "openclaw-agent.sqlite-wal"):
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + data + whole[at + len(data) :])
    for line in to_jsonl(read_sessions(folder)).splitlines():
        json.loads(line)
    (folder / "1" / "openclaw-agent.sqlite-wal").unlink()
    (folder / "0" / "openclaw-agent.sqlite").write_bytes(b"x" + data)
    assert was_cut(read_sessions(folder))


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
BLOCKS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "thinking", "toolCall", "image"]) | ANY},
    optional=dict.fromkeys(("text", "thinking", "id", "name", "arguments", "data", "mimeType"), ANY),
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "toolResult"]) | ANY, "content": st.lists(BLOCKS, max_size=3) | ANY},
    optional=dict.fromkeys(("stopReason", "errorMessage", "provenance", "toolCallId", "toolName"), ANY),
)


@given(st.lists(st.fixed_dictionaries({"type": st.just("message"), "message": MESSAGES | ANY, "timestamp": ANY})))
def test_no_event_breaks_the_reader(events: list[Json]) -> None:
    list(messages_of(events))


@given(found=st.lists(MESSAGES, max_size=4))
def test_whatever_a_session_holds_can_be_written_as_a_transcript(
    found: list[Json], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("raw")
    (folder / "chat.jsonl").write_text("".join(json.dumps({"type": "message", "message": m}) + "\n" for m in found))
    for line in to_jsonl(read_sessions(folder)).splitlines():
        json.loads(line)


def ended(code: int | None, output: bytes = b"", ending: Ending = Ending.EXITED) -> Completed:
    return Completed(ending, code, output, 1.0)


def test_a_turn_is_finished_by_status_and_answer_not_by_words(tmp_path: Path) -> None:
    agent = OpenClawAgent()
    done = read_sessions(in_files(tmp_path, {"chat": TURN}))
    assert agent.finish(ended(0), done).finished
    failed = b'[agent] retry {\n{\n  "ok": false,\n  "error": {"message": "the key\\n was refused"}\n}\n'
    assert agent.finish(ended(1, failed), done).reason == "openclaw exited with 1: the key was refused"
    assert agent.finish(ended(0, b'{"meta": {"aborted": true}}'), done).reason == "openclaw broke its run off"
    assert agent.finish(ended(None, b"", Ending.DEADLINE), done).reason == "openclaw was stopped: deadline"
    assert agent.finish(ended(0), ()).reason == "openclaw stored no session"
    go = said("user", "Go.")
    for answer, reason in (
        ([], "openclaw stored no reply"),
        ([said("assistant", [], stopReason="stop")], "openclaw stored no reply"),
        ([said("assistant", [], stopReason="error", errorMessage="401 no key")], "the model failed: 401 no key"),
        ([said("assistant", [text("half")], stopReason="aborted")], "openclaw broke its run off"),
        ([said("assistant", [text("half")], stopReason="length")],
         "openclaw's last message was cut at the model's limit"),
        ([said("assistant", [text("x"), call("exec", "c")])], "openclaw's session ends in a tool call"),
        ([said("assistant", [call("exec", "c")]), result("exec", "c", text("x"))],
         "openclaw's session ends without an answer"),
        ([said("assistant", [{"type": "thinking", "thinking": "hm"}])], "openclaw's last message is empty"),
    ):  # fmt: skip
        in_files(tmp_path, {"chat": [go, *answer]})
        assert agent.finish(ended(0), read_sessions(tmp_path)).reason == reason


def test_the_answer_is_the_last_object_that_begins_a_line() -> None:
    assert last_object(b'log {"a": 1}\n{\n "b": {\n"c": 2}}\nmore') == {"b": {"c": 2}}
    assert last_object(b'{"a": 1}') == {"a": 1}
    for output in (b"", b"plain", b"{\n broken", b"[1]\n{", b"\xff\n{" * 1000, b"{" * 100_000):
        assert last_object(output) == {}
    assert error_of({"error": {"message": "a  b"}}) == "a b"
    assert error_of({"error": "a"}) == error_of({}) == ""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("end", "code"), [("exit 1", 1), ("exit 0", 0), ("", 0), ("exec 1>&-; sleep 0.5; exit 3", 3)],
    ids=["failed", "done", "end", "closed"],
)  # fmt: skip
def test_no_line_of_the_log_stands_inside_the_answer(tmp_path: Path, end: str, code: int) -> None:
    program = tmp_path / "openclaw"
    program.write_text(
        "#!/bin/bash\necho started\necho '{'\necho ' \"error\": {\"message\": \"refused\"}'\n"
        f"echo '[log] failed' >&2\necho '}}'\necho '[log] closed' >&2\n{end}\n"
    )
    program.chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.defpath}"}
    request = TurnRequest(1, "Go.", TurnLimits(60.0, 60.0), Pulse, tmp_path / "log", path)
    completed = OpenClawAgent().turn(HostSandbox(tmp_path / "box"), request)
    assert error_of(last_object(completed.output)) == "refused"
    assert sorted(completed.output.decode().splitlines()) == sorted(
        ["started", "{", ' "error": {"message": "refused"}', "}", "[log] failed", "[log] closed"]
    )
    assert completed.exit_code == code


@pytest.mark.parametrize("version", VERSIONS)
def test_the_configuration_names_the_gateway_alone(version: str) -> None:
    odd = ModelAccess(ACCESS.base_url, 'k"\\\n', "ünï/模型")
    config = configuration(odd, version, "/w", "/home/agent/skills")
    (provider,) = config["models"]["providers"].values()
    assert (provider["baseUrl"], provider["apiKey"]) == (ACCESS.base_url, 'k"\\\n')
    assert config["agents"]["defaults"]["model"]["primary"] == "gateway/ünï/模型"
    assert config["skills"]["load"]["extraDirs"] == ["/home/agent/skills"]
    assert config["update"] == {"checkOnStart": False}
    assert ("telemetry" in config) == (version != PAPER), "older releases refuse keys that they do not know"


def test_the_inner_deadline_is_not_before_the_outer() -> None:
    assert seconds(TurnLimits(10.2, 5.0, 30.0)) == 41
    assert seconds(TurnLimits(0.0, 5.0)) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_release_has_its_agent_image_and_memory(version: str) -> None:
    agent = load_agent(f"openclaw@{version}")
    assert agent.image == agent_image("openclaw", version) == f"openclaw-{version}"
    assert agent.memory == MEMORY[version]
    lock = json.loads(context_files(IMAGES[agent.image])["package-lock.json"])
    assert lock["packages"]["node_modules/openclaw"]["version"] == version
    for name, entry in lock["packages"].items():
        assert "resolved" not in entry or name == "node_modules/libsignal", "no registry's host is in a lock file"
        assert not name or "integrity" in entry or entry.get("inBundle") or "libsignal" in name


def test_the_release_of_the_paper_is_the_default() -> None:
    assert load_agent("openclaw").version == PAPER
    assert AGENTS["openclaw"].releases == VERSIONS
    with pytest.raises(SettingsError, match=r"openclaw 1\.0 is not supported; known releases: 2026\.3\.11, 2026\.9\.6"):
        load_agent("openclaw@1.0")
