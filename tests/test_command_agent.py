"""Agents described by tables: what is refused, what a turn runs, and what becomes of what it prints."""

from __future__ import annotations

import json
import pickle
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host_sandbox import HostSandbox
from task_package import build

from pytest_uniclaw import doctor
from pytest_uniclaw.agents import registry
from pytest_uniclaw.agents.base import ModelAccess, TurnRequest
from pytest_uniclaw.agents.command import CommandAgent
from pytest_uniclaw.agents.command_builtin import opencode, qwen_code
from pytest_uniclaw.agents.command_events import opencode_messages, stream_messages
from pytest_uniclaw.agents.command_output import find_session, last_error
from pytest_uniclaw.agents.command_session import read_session
from pytest_uniclaw.agents.command_table import AgentTable
from pytest_uniclaw.agents.command_words import fill, names_in
from pytest_uniclaw.agents.registry import agent_names, check_agent, load_agent
from pytest_uniclaw.agents.transcript import final_answer, move_images_out, records_from_messages, to_jsonl, tool_usage
from pytest_uniclaw.agents.usage import messages
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.sandbox.base import Completed, Pulse, TurnLimits
from pytest_uniclaw.sandbox.image_spec import AGENTS, IMAGES, agent_image
from pytest_uniclaw.settings import AgentTables, resolve
from pytest_uniclaw.task import load_task

ACCESS = ModelAccess("http://127.0.0.1:4010/v1", "sk-virtual", "org/model-1")
MINE = """
[agents.mine]
image = "my-agent:1"
first = ["printf", "%s", "{message}"]
"""
Json = dict[str, Any]


def tables(folder: Path, text: str) -> AgentTables:
    path = folder / "uniclaw.toml"
    path.write_text(text, "utf-8")
    return resolve({}, {}, folder, {}).agent_tables


def refused(folder: Path, text: str) -> str:
    with pytest.raises(SettingsError) as caught:
        agent_names(tables(folder, text))
    return str(caught.value)


def test_a_table_is_an_agent_like_any_other(tmp_path: Path) -> None:
    read = tables(tmp_path, MINE + 'version = "1.2"\nmemory = "512m"\n')
    assert "mine" in agent_names(read)
    assert {"nanobot", "qwen-code", "opencode"} < set(agent_names(read))
    agent = load_agent("mine", read)
    assert check_agent(agent, "test") is agent
    assert pickle.loads(pickle.dumps(agent)) == agent
    assert (agent.name, agent.version, agent.image, agent.memory) == ("mine", "1.2", "my-agent:1", 512 << 20)
    assert agent.needs_model
    assert not agent.trusted
    assert load_agent("mine@1.2", read) == agent
    with pytest.raises(SettingsError, match=r"\[agents.mine\] describes version 1.2, not 2"):
        load_agent("mine@2", read)
    with pytest.raises(SettingsError, match="no agent is called 'mime'; did you mean 'mine'"):
        load_agent("mime", read)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[agents.a]\nfirst = ["{message}"]', ["toml:1: [agents.a] image: this key is missing", "fix: image ="]),
        (MINE + "nxt = []", ["uniclaw.toml:5: [agents.mine] nxt = []: unknown key; did you mean 'next'?"]),
        (MINE + 'memory = "lots"', [":5: [agents.mine] memory = 'lots': expected a size such as 512m or 2g"]),
        (MINE + "memory = 5", [":5: [agents.mine] memory = 5: expected a text\n", "fix: memory ="]),
        (MINE.replace("my-agent:1", "runtme"), [":3: ", "no image of ours has this name; did you mean 'runtime'?"]),
        (MINE.replace("{message}", "{mesage}"), [
            ":4: [agents.mine] first[2] = '{mesage}': unknown placeholder {mesage}; did you mean {message}?",
            "the text itself is written {{mesage}}",
        ]),
        (MINE.replace("{message}", "hello"), [":4: [agents.mine] first = ['printf', '%s', 'hello']: no {message}"]),
        (MINE + 'next = ["x"]', [":5: [agents.mine] next = ['x']: no {message}: the agent would not be told"]),
        (MINE + 'first = "x"', ["not valid TOML"]),
        (MINE.replace('["printf", "%s", "{message}"]', '"printf {message}"'), [":4: ", ": expected a list of texts\n"]),
        (MINE + 'session = "sessionID"', ["[agents.mine] next = []: no {session}, though session = 'sessionID'"]),
        (MINE.replace("%s", "{session}") + 'session = "id"\nnext = ["x", "{session}", "{message}"]',
         ["unknown placeholder {session}"]),
        (MINE + "files = { \"~/x\" = '{message}' }", [":5: [agents.mine] files.~/x = '{message}': unknown"]),
        (MINE + '[agents.mine.files]\n"x" = ""', [":6: [agents.mine] files.x = 'x': expected a path that begins"]),
        (MINE + '[agents.mine.files]\n"~/../x" = ""', [":6: ", "expected a path that begins with ~/ or /"]),
        (MINE + 'needs_model = false\nstdin = "{key}"', [":6: [agents.mine] stdin = '{key}': unknown placeholder"]),
        (MINE + 'transcript = "jsonl"', [":5: [agents.mine] transcript.format = 'jsonl': expected 'none', "]),
        (MINE + "next = [3]", [":5: [agents.mine] next.0 = 3: expected a text\n"]),
        (MINE + "files = []", [":5: [agents.mine] files = []: expected a table\n"]),
        (MINE + "environment = 1", [":5: [agents.mine] environment = 1: expected a table"]),
        (MINE + "transcript = 1", [":5: [agents.mine] transcript = 1: expected a table\n"]),
        (MINE + "needs_model = 1", [":5: [agents.mine] needs_model = 1: expected true or false"]),
        (MINE + 'version = "-"', [":5: [agents.mine] version = '-': expected letters, digits and ._+- only"]),
        ('[agents.a]\nimage = "X y:1"\nfirst = ["{message}"]', [":2: [agents.a] image = 'X y:1': no name of an image"]),
        (MINE + 'memory = "1"', [":5: [agents.mine] memory = '1': expected a size such as 512m or 2g, 64m at least"]),
        (MINE + 'environment = { "a=b" = "c" }', [":5: [agents.mine] environment = 'a=b': no name of a variable\n"]),
        (MINE + 'environment = { A = "\\u0000" }', [":5: [agents.mine] environment.A = '\\x00': a NUL character"]),
        (MINE + 'files = { "~/a\\u0000" = "x" }', [":5: [agents.mine] files.~/a\\x00 = ", "a NUL character"]),
        (MINE + 'files = { "~/a/" = "x" }', [":5: [agents.mine] files = '~/a/': a folder: expected the path"]),
        (MINE + 'files = { "~/a" = "x", "~/a/b" = "y" }', ["files = '~/a': both a file and the folder of ~/a/b\n"]),
        (MINE + 'session = ""', [":5: [agents.mine] session = '': expected a text that names a key\n"]),
        ('[agents.a]\nimage = ""', [":2: [agents.a] image = '': expected a text that is not empty\n"]),
        ('[agents.a]\nimage = "runtime"\nfirst = []', ["first = []: expected a list that is not empty\n"]),
        (MINE + 'transcript = { path = "~/x/*.jsonl" }', [":5: [agents.mine] transcript.path = ", "without a format"]),
        (MINE + 'transcript = { path = "~/*.jsonl", format = "openai-jsonl" }', ["names no folder of the agent's own"]),
        (MINE + 'transcript = { fmt = "none" }', ["transcript.fmt = 'none': unknown key", "known keys: format, path"]),
        ("[agents]\nmine = 3", ["[agents.mine] 3: expected a table", "fix: write [agents.mine] and its keys below it"]),
        ('[agents."my agent"]', ["[agents.my agent] 'my agent': not a name of an agent"]),
        ("[agents.custom]", ["'custom': not a name of an agent"]),
        (MINE.replace("mine", "nanobot"), ["[agents.nanobot]: an agent of this name is installed already"]),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_table_is_named_with_its_line_and_a_remedy(
    tmp_path: Path, text: str, words: list[str]
) -> None:
    said = refused(tmp_path, text)
    assert [word for word in words if word not in said] == [], said


def test_agents_that_are_no_tables_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "uniclaw.toml").write_text('agents = "nanobot"\n')
    with pytest.raises(SettingsError, match=r"expected tables \[agents.NAME\]\n  fix: to choose an agent"):
        resolve({}, {}, tmp_path, {})


def test_an_installed_agent_keeps_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "installed", lambda group: {"mine": EntryPoint("mine", "x:y", group)})
    with pytest.raises(SettingsError, match="installed already"):
        load_agent("mine", tables(tmp_path, MINE))


@pytest.mark.parametrize("agent", [qwen_code(), opencode()], ids=lambda agent: agent.name)
def test_ours_have_their_images_and_releases(agent: CommandAgent) -> None:
    assert load_agent(f"{agent.name}@{agent.version}") == load_agent(agent.name) == agent
    assert agent.image == agent_image(agent.name) == f"{agent.name}-{agent.version}"
    assert AGENTS[agent.name].releases == (agent.version,)
    assert agent.image in IMAGES
    with pytest.raises(SettingsError, match=f"{agent.name} 0.1 is not supported; known releases: {agent.version}"):
        load_agent(f"{agent.name}@0.1")
    (content,) = agent.table.files.values()
    values = {"model": 'm"\\', "base_url": ACCESS.base_url, "key": ACCESS.key}
    assert list(names_in(fill(content, values, quoted=True))) == []
    assert 'm"\\' in repr(json.loads(fill(content, values, quoted=True))).replace("\\\\", "\\")


def test_placeholders_leave_shells_and_json_alone() -> None:
    text = '{"a": {"b": "{model}"}} ${model} {{model}} {MODEL} {0} {message}'
    assert list(names_in(text)) == ["model", "message"]
    assert fill(text, {"model": 'x"y'}, quoted=True) == '{"a": {"b": "x\\"y"}} ${model} {model} {MODEL} {0} {message}'
    assert fill("{message}", {"message": "{key} {{key}}", "key": "k"}) == "{key} {{key}}"


def request(folder: Path, message: str = "Go.", number: int = 1) -> TurnRequest:
    return TurnRequest(number, message, TurnLimits(20, 20), Pulse, folder / f"{number}.log", {"TOKEN": "t"})


class Seat:
    """An agent of a table in a sandbox on the host."""

    def __init__(self, folder: Path, **table: Any) -> None:
        self.folder, self.sandbox = folder, HostSandbox(folder / "s", user="root")
        self.agent = CommandAgent("mine", AgentTable(image="runtime", **table))

    def prepare(self) -> Seat:
        self.agent.prepare(self.sandbox, load_task(build(self.folder / "r").yaml), ACCESS)
        return self

    def turn(self, message: str = "Go.", number: int = 1) -> str:
        return self.agent.turn(self.sandbox, request(self.folder, message, number)).output.decode()


def test_files_are_private_and_escaped_and_skills_are_linked(tmp_path: Path) -> None:
    files = {"~/.mine/config.json": '{"m": "{model}", "k": "{key}", "s": "{session}"}', "{workspace}/a.md": "{model}"}
    seat = Seat(
        tmp_path, first=("printf", "{message}"), files=files, skills="~/.mine/skills", skills_note="~/.mine/NOTE.md"
    )  # fmt: skip
    for name, text in (("tables", "---\nname: tables\n---\n"), ("bare", "Do it.")):
        path = Path(seat.sandbox.paths.skills, name, "SKILL.md")
        path.parent.mkdir(parents=True)
        path.write_text(text)
    seat.prepare()
    home = Path(seat.sandbox.paths.home)
    config = home / ".mine" / "config.json"
    assert config.stat().st_mode & 0o777 == 0o600
    read = json.loads(config.read_text())
    assert (read["m"], read["k"], len(read["s"])) == ("org/model-1", "sk-virtual", 36)
    assert Path(seat.sandbox.paths.workspace, "a.md").read_text() == "org/model-1"
    assert (home / ".mine/skills/tables/SKILL.md").is_file()
    assert not (home / ".mine/skills/bare").exists()
    assert f"before you use it: {home}/skills/bare/SKILL.md" in (home / ".mine/NOTE.md").read_text()


def test_two_attempts_have_two_sessions_and_the_turns_of_one_have_one(tmp_path: Path) -> None:
    word = "{session} {turn} {message}"
    told = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        seat = Seat(folder, first=("printf", "%s", word), next=("printf", "next %s", word)).prepare()
        told.append([seat.turn(), seat.turn("More.", 2)])
    (one, two), (other, _) = told
    session = one.split()[0]
    assert (one, two) == (f"{session} 1 Go.", f"next {session} 2 More.")
    assert other.split()[0] != session


def test_the_id_of_a_session_is_found_and_used(tmp_path: Path) -> None:
    script = """printf 'hello\\n{"type": "x"}\\n{"id": "--bad"}\\n{"id": "ses_1"}\\n{"id": "ses_2"}'; cat"""
    seat = Seat(
        tmp_path, first=("bash", "-c", script), next=("echo", "{session}"), stdin="{message}", session="id",
    ).prepare()  # fmt: skip
    assert seat.turn().endswith("Go.")
    assert seat.turn(number=2) == "ses_1\n"


def test_a_turn_without_a_known_session_begins_one(tmp_path: Path) -> None:
    seat = Seat(
        tmp_path, first=("echo", "first", "{message}"), next=("echo", "{session}", "{message}"), session="id"
    ).prepare()
    assert [seat.turn(), seat.turn(number=2)] == ["first Go.\n", "first Go.\n"]


def test_pointers_and_keys_find_a_session() -> None:
    output = b'[1]\n{"a": 3}\n{"a": {"b": "s1"}}\n{"b": "s2"}\n{"b": "s3", "cut'
    assert find_session(output, "/a/b") == "s1"
    assert find_session(output, "b") == "s2"
    assert find_session(output, "given") == find_session(b"", "b") == ""


def test_long_and_odd_messages_reach_the_agent(tmp_path: Path) -> None:
    long = "词" * 40_000
    by_argument = Seat(tmp_path / "a", first=("printf", "%s", "{message}"), command_marks="/!").prepare()
    assert "message.md. Read that file" in by_argument.turn(long)
    assert Path(by_argument.sandbox.paths.workspace, "message.md").read_text() == long
    assert "passed as message.md" in (tmp_path / "a" / "1.log").read_text()
    assert by_argument.turn("/new \0 --x") == "Message: /new ␀ --x"
    assert by_argument.turn(" \n") == "Please go on."
    by_stdin = Seat(tmp_path / "b", first=("cat",), stdin="<{message}>").prepare()
    assert by_stdin.turn(long) == f"<{long}>"
    by_file = Seat(tmp_path / "c", first=("cat", "{message_file}")).prepare()
    assert by_file.turn(long) == long


def test_no_shell_reads_an_argument(tmp_path: Path) -> None:
    seat = Seat(tmp_path, first=("printf", "%s", "$HOME `id` {message}"), environment={"A": "{model}"}).prepare()
    assert seat.turn('"; exit 3 #') == '$HOME `id` "; exit 3 #'
    assert seat.sandbox.environments[-1] == {"A": "org/model-1", "TOKEN": "t"}


@pytest.mark.parametrize("stdin", ["", "{message}"])
@pytest.mark.parametrize("program", ["picoo", "./bin/picoo", "--picoo"])
def test_a_program_that_is_not_there_is_said_plainly(tmp_path: Path, program: str, stdin: str) -> None:
    seat = Seat(tmp_path, first=(program, "{message}"), stdin=stdin).prepare()
    completed = seat.agent.turn(seat.sandbox, request(tmp_path, "Go."))
    assert completed.exit_code == 127
    assert seat.agent.finish(completed, ()).reason == f"mine exited with 127: {program}: not found"


def ended(code: int | None = 0, said: bytes = b"", ending: Ending = Ending.EXITED) -> Completed:
    return Completed(ending, code, said, 1.0)


def test_a_turn_is_finished_by_status_and_by_the_answer_that_is_told(tmp_path: Path) -> None:
    plain = CommandAgent("mine", AgentTable(image="runtime", first=("x", "{message}")))
    assert plain.finish(ended(), ()).finished
    assert plain.finish(ended(2, b"usage: x\n"), ()).reason == "mine exited with 2: usage: x"
    assert plain.finish(ended(None, ending=Ending.SILENCE), ()).reason == "mine was stopped: silence"
    telling = CommandAgent(
        "mine", AgentTable(image="runtime", first=("x", "{message}"), transcript={"format": "openai-jsonl"})
    )  # fmt: skip
    call = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "bash", "arguments": "{}"}}]}
    for said, reason in (
        ([], "mine told no reply"),
        ([{"role": "assistant", "content": "ok"}], ""),
        ([call], "ended without an answer"),
        ([call, {"role": "tool", "content": "x", "tool_call_id": "1"}], "ended without an answer"),
        ([{"role": "assistant", "content": [{"type": "text", "text": " "}]}], "last message is empty"),
    ):
        finish = telling.finish(ended(), outputs(tmp_path, "openai-jsonl", said))
        assert finish.finished == (reason == "")
        assert reason in finish.reason
    assert telling.finish(ended(), ()).reason == "mine told nothing"


def test_a_first_turn_that_tells_no_session_is_unfinished() -> None:
    table = AgentTable(image="runtime", first=("x", "{message}"), next=("x", "{session}", "{message}"), session="id")
    agent, go, done = (
        CommandAgent("mine", table),
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "ok"},
    )
    for output, session, reason in (
        (b'{"id": "s1"}', [go, done], ""),
        (b'{"session": "s1"}', [go, done], "mine printed no session id: no line of its output has 'id'"),
        (b"", [go, done, go, done], ""),
    ):
        assert agent.finish(ended(0, output), records_from_messages(session)).reason == reason


def test_the_last_error_is_an_event_s_or_the_last_plain_line() -> None:
    assert last_error(b'{"type":"error","error":{"name":"E","data":{"message":"no  key"}}}\n') == "no key"
    assert last_error(b'{"type":"result","is_error":true,"error":{"message":"late"}}\nBye\n') == "late"
    assert last_error(b'{"type":"result","error":"short"}') == "short"
    assert last_error(b'{"type":"text"}\n\nError: gone\n{"type":"err') == "Error: gone"
    assert last_error(b"") == ""


def outputs(folder: Path, kind: str, *turns: list[Any]) -> tuple[Json, ...]:
    raw = folder / "raw" / "0"
    raw.mkdir(parents=True, exist_ok=True)
    for number, events in enumerate(turns, 1):
        (raw / f"{number:04}.message").write_text(f"Message {number}.")
        lines = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
        (raw / f"{number:04}.output").write_text("".join(line + "\n" for line in lines))
    return read_session(folder / "raw", kind, "", "mine")


def said(*blocks: Json, role: str = "assistant", parent: str | None = None, **more: Any) -> Json:
    return {"type": role, "parent_tool_use_id": parent, "message": {"role": role, "content": list(blocks)}, **more}


def text(words: str) -> Json:
    return {"type": "text", "text": words}


STREAM: list[Any] = [
    "Warning: {not an event}",
    {"type": "system", "subtype": "init", "session_id": "s"},
    said({"type": "thinking", "thinking": "First look."}),
    said({"type": "tool_use", "id": "c1", "name": "run_shell_command", "input": {"command": "ls"}}, text("I look.")),
    said({"type": "tool_use", "id": "c9", "name": "ls", "input": {}}, parent="c2"),
    said({"type": "tool_result", "tool_use_id": "c1", "content": "naïve 表格"}, role="user"),
    said({"type": "tool_result", "tool_use_id": "c9", "content": [text("inner")]}, role="user", parent="c2"),
    said(text("Counted."), parent="c2"),
    said({"type": "tool_use", "id": "c3", "name": "read", "input": {"path": "x.png"}}),
    said({"type": "tool_result", "tool_use_id": "c3", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}]}, role="user"),
    said(text("Done.")),
    {"type": "result", "subtype": "success", "is_error": False, "result": "Done."},
    '{"cut',
]  # fmt: skip


def test_stream_events_become_records_of_one_schema(tmp_path: Path) -> None:
    records = outputs(tmp_path, "stream-json", STREAM, [said(text("Again."))])
    assert [(r.get("agentId", ""), r["message"]["role"]) for r in records] == [
        ("c2", "assistant"), ("c2", "toolResult"), ("c2", "assistant"), ("", "user"), ("", "assistant"),
        ("", "toolResult"), ("", "assistant"), ("", "toolResult"), ("", "assistant"), ("", "user"), ("", "assistant"),
    ]  # fmt: skip
    assert messages(records)[4]["content"] == [
        {"type": "thinking", "thinking": "First look."}, text("I look."),
        {"type": "toolCall", "id": "c1", "name": "run_shell_command", "arguments": {"command": "ls"}},
    ]  # fmt: skip
    assert messages(records)[5]["toolName"] == "run_shell_command"
    assert messages(records)[5]["content"] == [text("naïve 表格")]
    assert list(move_images_out(records)[1].values()) == [b"hi"]
    assert [m["content"][0]["text"] for m in messages(records) if m["role"] == "user"] == ["Message 1.", "Message 2."]
    assert final_answer(records) == "Again."
    assert tool_usage(records)["exec_used"]
    assert len({record["id"] for record in records}) == len(records)


def test_what_stands_in_for_an_answer_is_none(tmp_path: Path) -> None:
    told = "[API Error: 401 no such key]"
    failed = {"type": "result", "subtype": "error_during_execution", "is_error": True, "error": {"message": told}}
    assert final_answer(outputs(tmp_path / "a", "stream-json", [said(text(told)), failed])) == ""
    assert final_answer(outputs(tmp_path / "b", "stream-json", [said(text("Half."), text(told)), failed])) != ""
    assert final_answer(outputs(tmp_path / "c", "stream-json", [said(text(told))])) == told


def part(kind: str, message: str, **more: Any) -> Json:
    return {"type": kind, "timestamp": 1796038120774, "sessionID": "ses_1", "part": {"messageID": message, **more}}


def tool(name: str, ident: str, **state: Any) -> Json:
    return part("tool_use", "m1", tool=name, callID=ident, state=state)


def test_opencode_events_become_records_of_one_schema(tmp_path: Path) -> None:
    events = [
        part("step_start", "m1"), part("reasoning", "m1", text="First look."), part("text", "m1", text="I look."),
        tool("bash", "c1", input={"command": "ls"}, output="a b", status="completed"),
        tool("invalid", "c2", input={"tool": "no_such", "error": "unavailable"}, output="The tool is unavailable."),
        tool("read", "c3", input={"p": 1}, status="error", error="refused"),
        tool("read", "c4", input={}, output="shown", attachments=[{"url": "data:image/png;base64,aGk="}]),
        part("step_finish", "m1"), part("text", "m2", text="Done."),
        {"type": "error", "error": {"data": {"message": "x"}}}, {"type": "text", "part": 7},
    ]  # fmt: skip
    records = outputs(tmp_path, "opencode-json", events)
    assert [message["role"] for message in messages(records)] == ["user", "assistant", *4 * ["toolResult"], "assistant"]
    first = messages(records)[1]
    assert first["timestamp"] == "2026-11-30T11:28:40.774000+00:00"
    assert [block.get("name") for block in first["content"]] == [None, None, "bash", "no_such", "read", "read"]
    results = [message["content"][0]["text"] for message in messages(records) if message["role"] == "toolResult"]
    assert results == ["a b", "The tool is unavailable.", "refused", "shown"]
    assert messages(records)[3]["toolName"] == "no_such"
    assert list(move_images_out(records)[1].values()) == [b"hi"]
    assert final_answer(records) == "Done."


def test_session_files_are_chosen_by_their_pattern(tmp_path: Path) -> None:
    table = {"image": "runtime", "first": ("x", "{message}")}
    path = "~/.mine/sessions/*/{session}.jsonl"
    agent = CommandAgent("mine", AgentTable(**table, transcript={"path": path, "format": "openai-jsonl"}))
    sandbox = HostSandbox(tmp_path / "s")
    assert agent.transcript_sources(sandbox) == (f"{sandbox.paths.home}/.mine/sessions",)
    raw = tmp_path / "raw"
    for name in ("0/day/s.jsonl", "0/day/deep/er.jsonl", "0/top.jsonl", "0/day/notes.txt"):
        (raw / name).parent.mkdir(parents=True, exist_ok=True)
        lines: list[Any] = [{"role": "user", "content": name}, {"message": {"role": "assistant", "content": "ok"}}]
        (raw / name).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"cut')
    records = agent.read_transcript(raw)
    assert [message["content"][0]["text"] for message in messages(records)] == ["0/day/s.jsonl", "ok"]
    assert records[-1]["brokenLines"] == 1
    (notice,) = agent.read_transcript(tmp_path / "nothing")
    assert notice["missing"] == "*/*.jsonl"
    assert agent.finish(ended(), (notice,)).reason == f"mine told nothing: no file is {path}"
    fixed = CommandAgent("mine", AgentTable(**table, transcript={"path": "~/.m/log.jsonl", "format": "openai-jsonl"}))
    assert fixed.transcript_sources(sandbox) == (f"{sandbox.paths.home}/.m",)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
BLOCKS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image"]) | ANY},
        optional=dict.fromkeys(("text", "thinking", "id", "name", "input", "tool_use_id", "content", "source"), ANY),
    ) | ANY,
    max_size=4,
)  # fmt: skip
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["assistant", "user", "result", "text", "reasoning", "tool_use", "error"]) | ANY},
        optional={
            "message": st.fixed_dictionaries({}, optional={"content": BLOCKS | ANY, "role": ANY}) | ANY,
            "part": st.fixed_dictionaries({}, optional=dict.fromkeys(("text", "tool", "callID", "state"), ANY)) | ANY,
            "parent_tool_use_id": ANY, "timestamp": ANY, "error": ANY, "is_error": ANY,
        },
    ),
    max_size=6,
)  # fmt: skip


@given(EVENTS)
def test_no_events_break_their_readers(events: list[Json]) -> None:
    list(stream_messages(events))
    list(opencode_messages(events))


@given(events=EVENTS, kind=st.sampled_from(["stream-json", "opencode-json", "openai-jsonl"]))
def test_whatever_was_printed_can_be_written_as_a_transcript(
    events: list[Json], kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for line in to_jsonl(outputs(tmp_path_factory.mktemp("x"), kind, events)).splitlines():
        json.loads(line)


class Images:
    """A provider that has some images."""

    def check(self, images: tuple[str, ...]) -> None:
        if "my-agent:1" in images:
            raise SettingsError("missing image(s): my-agent:1\n  fix: build it, or pull it")


def test_the_doctor_looks_at_described_agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "load_provider", lambda name: Images())

    def found(text: str) -> list[tuple[str, str]]:
        settings = resolve({}, {}, tmp_path, {}) if tables(tmp_path, text) else None
        assert settings is not None
        return [(f.kind, f"{f.text} | {f.remedy}") for f in doctor.examine(settings) if f.subject == "agent"]

    other = MINE.replace("mine", "other").replace("my-agent:1", "runtime")
    assert found(MINE + other) == [
        ("MISS", "mine: missing image(s): my-agent:1 | build it, or pull it"), ("ok", "other 1 in runtime | "),
    ]  # fmt: skip
    ((kind, said_of_it),) = found(MINE + "x = 1")
    assert kind == "MISS"
    assert "unknown key" in said_of_it


def test_our_definitions_are_tables_as_users_write_them() -> None:
    folder = Path(registry.__file__).parent / "definitions"
    for path in folder.glob("*.toml"):
        assert AgentTable.model_validate(tomllib.loads(path.read_text("utf-8"))).version in path.read_text("utf-8")
