"""Agents described by tables, in real containers, on a scripted model behind the real gateway: those that we ship."""

from __future__ import annotations

import base64
import json
import tomllib
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from task_package import build
from test_docs import DOCS, files_of

from pytest_uniclaw.agents.base import ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.command import CommandAgent
from pytest_uniclaw.agents.command_builtin import opencode, qwen_code
from pytest_uniclaw.agents.command_table import AgentTable
from pytest_uniclaw.agents.transcript import final_answer, to_jsonl, tool_usage
from pytest_uniclaw.agents.usage import messages
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import CallClass, GrantRequest, Provider
from pytest_uniclaw.sandbox.base import CollectLimits, Completed, Entry, Owner, Pulse, Sandbox, SandboxSpec, TurnLimits
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.task import load_task

pytestmark = pytest.mark.docker
RUN = f"test-{uuid.uuid4().hex[:8]}"
LIMITS = TurnLimits(150.0, 150.0)
REAL_KEY = "sk-real-0f3a9d71c2"
AWKWARD = "/init --help: mache die Tabelle 表格 für bob@example.com. @/etc/hostname $HOME `id`"
ENVIRONMENT = {"MAIL_TOKEN": "for the shell"}
SKILL = b"---\nname: tables\ndescription: How to make tables.\n---\nUse a table.\n"
AGENTS = [qwen_code(), opencode()]
DOCUMENTED = tomllib.loads(files_of(DOCS / "how-to" / "add-an-agent.md")["uniclaw.toml"])
TINY = CommandAgent("tiny", AgentTable.model_validate(DOCUMENTED["agents"]["tiny"]))
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SHELL = {"qwen-code": "run_shell_command", "opencode": "bash", "tiny": "bash"}
SHOWN = {"qwen-code": f"Message: {AWKWARD}", "opencode": AWKWARD}
"""qwen-code would read a message that begins with / as a command of its own; before an @ it puts a space."""
SCRIPT = """
turns:
  - - think: First look.
    - shell: "mkdir -p results; cat SKILLS/tables/SKILL.md > results/skill.txt; id -un; pwd; echo $MAIL_TOKEN"
    - calls: [{shell: "printf 'naïve 表格 🐙' | tee results/表.txt"}, {shell: "echo broken >&2; exit 3"}]
    - call: {name: no_such_tool, arguments: {a: 1}}
    - raw_call: {name: SHELL, arguments: '{"command": "echo oops'}
    - say: "Turn {turn} is done."
  - - say: "Turn {turn} remembers."
"""


@dataclass
class Seat:
    """One agent in one sandbox, ready for turns."""

    agent: CommandAgent
    sandbox: Sandbox
    gateway: Gateway
    attempt: str
    folder: Path

    def turn(self, number: int, message: str, limits: TurnLimits = LIMITS) -> Completed:
        log = self.folder / f"agent{number}.log"
        return self.agent.turn(self.sandbox, TurnRequest(number, message, limits, Pulse, log, ENVIRONMENT))

    def records(self, number: int) -> tuple[Record, ...]:
        raw = self.folder / "raw" / str(number)
        sources = self.agent.transcript_sources(self.sandbox)
        self.sandbox.collect({source: raw / str(at) for at, source in enumerate(sources)}, CollectLimits())
        return self.agent.read_transcript(raw)

    def requests(self) -> list[str]:
        """Everything that the model was told, one JSON text a message."""
        return [path.read_text("utf-8") for path in sorted((self.folder / "exchange" / "blobs").iterdir())]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    real = Provider(name="real", base_url="http://127.0.0.1:9/v1", api_key=REAL_KEY)
    with start_gateway(tmp_path_factory.mktemp("gateway"), [real]) as process:
        yield process


@contextmanager
def seated(
    gateway: GatewayProcess, tmp_path: Path, script: str, agent: CommandAgent, user: Any = "agent"
) -> Iterator[Seat]:
    (tmp_path / "model.yaml").write_text(script.replace("SHELL", SHELL[agent.name]), "utf-8")
    client, attempt = Gateway(gateway.address), f"a-{uuid.uuid4().hex[:8]}"
    grant = client.grant(
        GrantRequest(
            attempt=attempt, role="executor", model="org/scripted-1", provider="script", script=tmp_path / "model.yaml",
            log=tmp_path / "exchange",
        )
    )  # fmt: skip
    spec = SandboxSpec(
        Owner(RUN, f"{RUN}/main", attempt), agent.image, user=user, memory=agent.memory,
        gateway=gateway.address.agent_socket.parent,
    )  # fmt: skip
    with DockerProvider().open(spec) as sandbox:
        skills = {"tables": SKILL, "bare": b"Use a bare table."}
        sandbox.put(
            Entry(f"{sandbox.paths.skills}/{name}/SKILL.md", content=content, user=sandbox.user)
            for name, content in skills.items()
        )
        sandbox.keep()
        access = ModelAccess("http://127.0.0.1:4010/v1", grant.key, grant.model)
        agent.prepare(sandbox, load_task(build(tmp_path / "r").yaml), access)
        yield Seat(agent, sandbox, client, attempt, tmp_path)
    client.revoke(grant)


def texts(records: tuple[Record, ...], role: str) -> list[str]:
    return [message["content"][0]["text"] for message in messages(records) if message["role"] == role]


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_two_turns_of_one_session(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    script = SCRIPT.replace("SKILLS", f"$HOME/{agent.table.skills[2:]}")
    with seated(gateway, tmp_path, script, agent) as seat:
        first = seat.turn(1, AWKWARD)
        records = seat.records(1)
        assert first.exit_code == 0, first.output
        assert agent.finish(first, records).finished
        assert texts(records, "user") == [SHOWN[agent.name]]
        sent = SHOWN[agent.name].replace("bob@", "bob @") if agent.name == "qwen-code" else SHOWN[agent.name]
        assert any(sent in text for text in seat.requests())
        assert messages(records)[1]["content"][0] == {"type": "thinking", "thinking": "First look."}
        usage = tool_usage(records)
        assert usage["exec_used"]
        assert usage["tool_counts"]["no_such_tool"] == 1
        results = texts(records, "toolResult")
        assert "agent\n/tmp_workspace\nfor the shell" in results[0]
        assert "naïve 表格 🐙" in results[1] + results[2]
        assert "broken" in results[1] + results[2]
        assert "no_such_tool" in results[3]
        assert {m["toolName"] for m in messages(records) if m["role"] == "toolResult"} == {
            SHELL[agent.name], "no_such_tool",
        }  # fmt: skip
        assert final_answer(records) == "Turn 1 is done."
        assert any("How to make tables." in text for text in seat.requests())
        assert any("read its file before you use it: /home/agent/skills/bare/SKILL.md" in t for t in seat.requests())
        found = seat.sandbox.run(["cat", "results/skill.txt", "results/表.txt"])
        assert found.output.decode() == SKILL.decode() + "naïve 表格 🐙"
        second = seat.turn(2, "And now?")
        records = seat.records(2)
        assert agent.finish(second, records).finished, second.output
        assert final_answer(records) == "Turn 2 remembers."
        assert texts(records, "user")[1:] == ["And now?"]
        calls = seat.gateway.calls(seat.attempt)
        assert len(calls) <= 7, "nothing is asked beside the turns"
        assert all(call.input_tokens and call.output_tokens and call.cost_usd == 0.0 for call in calls)
        assert b"sk-" not in to_jsonl(records)


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_long_messages_arrive_whole(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    script = "turns: [[{say: one}], [{say: two}]]"
    with seated(gateway, tmp_path, script, agent, user="root") as seat:
        words = "1" + "é" * 500_000 + "end"
        completed = seat.turn(1, words)
        assert completed.exit_code == 0, completed.output[-2000:]
        assert texts(seat.records(1), "user") == [words]
        assert any(words in text for text in seat.requests())
        assert seat.turn(2, " \0\ud800").exit_code == 0


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_the_model_sees_images(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    tool, argument = {"qwen-code": ("read_file", "file_path"), "opencode": ("read", "filePath")}[agent.name]
    script = f"""
turns:
  - - call: {{name: {tool}, arguments: {{{argument}: /tmp_workspace/p.png}}}}
    - say: It is one pixel.
"""
    with seated(gateway, tmp_path, script, agent) as seat:
        pixel = base64.b64decode(PIXEL)
        seat.sandbox.put([Entry("/tmp_workspace/p.png", content=pixel, user="agent")])
        completed = seat.turn(1, "What is on p.png?")
        assert final_answer(seat.records(1)) == "It is one pixel.", completed.output
        assert any("data:image/png;base64," in text for text in seat.requests())


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_no_key_of_a_provider_is_inside(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    script = "turns: [[{shell: 'env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr -c [:print:] _; "
    script += "cat /opt/uniclaw/command.json'}, {say: done}]]"
    with seated(gateway, tmp_path, script, agent) as seat:
        seat.turn(1, "Go.")
        secret = next(path for path in agent.table.files)
        mode = seat.sandbox.run(["stat", "-c", "%a %U", secret.replace("~", "/home/agent")])
        assert mode.output == b"600 agent\n"
        assert seat.sandbox.run(["grep", "-rqs", REAL_KEY, "/home", "/root", "/tmp", "/opt", "/run"]).exit_code == 1
        (said,) = texts(seat.records(1), "toolResult")
        assert "Permission denied" in said
        for text in (said, json.dumps(seat.sandbox.container.state())):  # type: ignore[attr-defined]
            assert REAL_KEY not in text
            assert "uck-" not in text, "not even the virtual key is in an environment or a command line"


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_a_failing_model_is_no_finished_turn(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    script = """
turns:
  - - fail: {status: 401, type: authentication_error, message: no such key, times: 1}
    - say: The next is fine.
  - - say: The next is fine.
"""
    with seated(gateway, tmp_path, script, agent) as seat:
        completed = seat.turn(1, "Go.")
        records = seat.records(1)
        finish = agent.finish(completed, records)
        assert completed.exit_code == 1
        assert "no such key" in finish.reason
        assert final_answer(records) == "", "what stands in for an answer is none"
        assert [call.call_class for call in seat.gateway.calls(seat.attempt)] == [CallClass.AUTH]
        again = seat.turn(2, "And?")
        records = seat.records(2)
        assert agent.finish(again, records).finished, "some agents forget the turn that failed, some do not"
        assert final_answer(records) == "The next is fine."


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_a_server_error_ends_unfinished(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    script = "turns: [[{fail: {status: 500, type: server_error, message: broken}}]]"
    with seated(gateway, tmp_path, script, agent) as seat:
        completed = seat.turn(1, "Go.", TurnLimits(20.0, 60.0))
        assert not agent.finish(completed, seat.records(1)).finished
        assert {call.call_class for call in seat.gateway.calls(seat.attempt)} == {CallClass.INFRA}


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
def test_a_killed_turn_leaves_nothing_and_the_session_goes_on(
    gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent
) -> None:
    script = """
turns:
  - - shell: "echo step one"
    - hang: true
  - - say: "Turn {turn} goes on."
"""
    with seated(gateway, tmp_path, script, agent) as seat:
        killed = seat.turn(1, "Go.", TurnLimits(30.0, 60.0))
        assert killed.ending is Ending.DEADLINE
        left = seat.sandbox.run(["ps", "-eo", "user,args"]).output.decode()
        assert agent.table.first[0] not in left
        records = seat.records(1)
        assert not agent.finish(killed, records).finished
        assert tool_usage(records)["tool_counts"][SHELL[agent.name]] == 1
        again = seat.turn(2, "And now?")
        records = seat.records(2)
        assert agent.finish(again, records).finished, again.output
        assert final_answer(records) == "Turn 2 goes on."
        assert texts(records, "user") == ["Go.", "And now?"]


def test_the_documented_agent_keeps_its_session(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = """
turns:
  - - calls: [{shell: "printf '表格' | tee results.txt"}, {shell: "echo broken >&2; exit 3"}]
    - say: "Turn {turn}: {last_tool_output}"
  - - fail: {status: 500, type: server_error, message: broken}
  - - say: "Turn {turn} remembers."
"""
    with seated(gateway, tmp_path, script, TINY) as seat:
        first = seat.turn(1, AWKWARD)
        records = seat.records(1)
        assert TINY.finish(first, records).finished, first.output
        assert texts(records, "user") == [AWKWARD]
        assert texts(records, "toolResult") == ["表格", "broken\n"]
        assert final_answer(records) == "Turn 1: broken"
        failed = seat.turn(2, "Again.")
        assert "HTTP Error 500" in TINY.finish(failed, seat.records(2)).reason
        words = "é" * 60_000
        again = seat.turn(3, words)
        records = seat.records(3)
        assert TINY.finish(again, records).finished
        assert final_answer(records) == "Turn 3 remembers."
        assert "message.md. Read that file" in texts(records, "user")[-1]
        assert seat.sandbox.run(["cat", "message.md"]).output.decode() == words
