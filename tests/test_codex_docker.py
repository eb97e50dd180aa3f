"""The real Codex CLI, both releases, in real containers, on a scripted model behind the real gateway."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from task_package import build

from pytest_uniclaw.agents.base import ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.codex import VERSIONS, CodexAgent
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
LIMITS = TurnLimits(120.0, 120.0)
REAL_KEY = "sk-real-0f3a9d71c2"
AWKWARD = "--help me: mache die Tabelle 表格. $HOME `id`"
ENVIRONMENT = {"MAIL_TOKEN": "for the shell", "http_proxy": "http://10.1.1.1:9", "HTTP_PROXY": "http://10.1.1.1:9"}
SKILL = b"---\nname: tables\ndescription: How to make tables.\n---\nUse a table.\n"

SCRIPT = """
turns:
  - - think: First look.
    - shell: "mkdir -p results; cat ~/.codex/skills/tables/SKILL.md > results/skill.txt; id -un; pwd; echo $MAIL_TOKEN"
    - calls: [{shell: "printf 'naïve 表格 🐙' | tee results/表.txt"}, {shell: "echo broken >&2; exit 3"}]
    - call: {name: no_such_tool, arguments: {a: 1}}
    - raw_call: {name: exec_command, arguments: '{"cmd": "echo oops'}
    - say: "Turn {turn}: {last_tool_output}"
  - - say: "Turn {turn} remembers."
"""


@dataclass
class Seat:
    """One agent in one sandbox, ready for turns."""

    agent: CodexAgent
    sandbox: Sandbox
    gateway: Gateway
    attempt: str
    folder: Path

    def turn(
        self, number: int, message: str, limits: TurnLimits = LIMITS, pulse: Callable[[], Pulse] = Pulse
    ) -> Completed:
        log = self.folder / f"agent{number}.log"
        request = TurnRequest(number, message, limits, pulse, log, ENVIRONMENT)
        return self.agent.turn(self.sandbox, request)

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
    gateway: GatewayProcess, tmp_path: Path, script: str, version: str = VERSIONS[0], user: Any = "agent"
) -> Iterator[Seat]:
    (tmp_path / "model.yaml").write_text(script, "utf-8")
    agent, client = CodexAgent(version=version), Gateway(gateway.address)
    attempt = f"a-{uuid.uuid4().hex[:8]}"
    grant = client.grant(
        GrantRequest(
            attempt=attempt, role="executor", model="scripted-1", provider="script", script=tmp_path / "model.yaml",
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
        agent.prepare(
            sandbox, load_task(build(tmp_path / "r").yaml),
            ModelAccess("http://127.0.0.1:4010/v1", grant.key, grant.model),
        )  # fmt: skip
        yield Seat(agent, sandbox, client, attempt, tmp_path)
    client.revoke(grant)


@pytest.mark.parametrize("version", VERSIONS)
def test_two_turns_of_one_session(gateway: GatewayProcess, tmp_path: Path, version: str) -> None:
    with seated(gateway, tmp_path, SCRIPT, version) as seat:
        first = seat.turn(1, AWKWARD)
        records = seat.records(1)
        assert first.exit_code == 0, first.output
        assert seat.agent.finish(first, records).finished
        assert [message["role"] for message in messages(records)] == [
            "user", "assistant", "toolResult", "assistant", "toolResult", "toolResult", "assistant", "toolResult",
            "assistant", "toolResult", "assistant",
        ]  # fmt: skip
        assert messages(records)[0]["content"] == [{"type": "text", "text": AWKWARD}]
        assert messages(records)[1]["content"][0] == {"type": "thinking", "thinking": "First look."}
        assert tool_usage(records)["tool_counts"] == {"exec_command": 4, "no_such_tool": 1}
        assert tool_usage(records)["exec_used"]
        outputs = {m["toolCallId"]: m for m in messages(records) if m["role"] == "toolResult"}
        texts = [output["content"][0]["text"] for output in outputs.values()]
        assert "agent\n/tmp_workspace\nfor the shell" in texts[0]
        assert {output["toolName"] for output in outputs.values()} == {"exec_command", "no_such_tool"}
        assert any("naïve 表格 🐙" in text for text in texts[1:3])
        assert any("exited with code 3" in text and "broken" in text for text in texts[1:3])
        assert "unsupported call" in texts[3]
        assert final_answer(records).startswith("Turn 1: ")
        assert any("How to make tables." in text for text in seat.requests())
        assert any("read its file before you use it: /home/agent/skills/bare/SKILL.md" in t for t in seat.requests())
        found = seat.sandbox.run(["cat", "results/skill.txt", "results/表.txt"])
        assert found.output.decode() == SKILL.decode() + "naïve 表格 🐙"
        second = seat.turn(2, "And now?")
        records = seat.records(2)
        assert seat.agent.finish(second, records).finished
        assert final_answer(records) == "Turn 2 remembers."
        assert [m["content"][0]["text"] for m in messages(records) if m["role"] == "user"][1:] == ["And now?"]
        calls = seat.gateway.calls(seat.attempt)
        assert len(calls) == 6
        assert all(call.input_tokens and call.output_tokens and call.cost_usd == 0.0 for call in calls)
        assert b"sk-" not in to_jsonl(records)


def test_long_messages_arrive_whole(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = "turns: [[{say: one}], [{say: two}], [{say: three}]]"
    with seated(gateway, tmp_path, script, user="root") as seat:
        for number, size in ((1, 100_000), (2, 1_000_000)):
            words = f"{number}" + "é" * (size // 2) + f"end{number}"
            completed = seat.turn(number, words)
            assert completed.exit_code == 0, completed.output
            assert messages(seat.records(number))[-2]["content"] == [{"type": "text", "text": words}]
            assert any(words in text for text in seat.requests())
        assert seat.turn(3, " \0\ud800").exit_code == 0


def test_no_key_of_a_provider_is_inside(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = "turns: [[{shell: 'env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr -c [:print:] _'}, {say: done}]]"
    with seated(gateway, tmp_path, script) as seat:
        seat.turn(1, "Go.")
        mode = seat.sandbox.run(["stat", "-c", "%a %U %n", "/home/agent/.codex", "/home/agent/.codex/config.toml"])
        assert mode.output == b"700 agent /home/agent/.codex\n600 agent /home/agent/.codex/config.toml\n"
        assert seat.sandbox.run(["grep", "-rqs", REAL_KEY, "/home", "/root", "/tmp", "/opt", "/run"]).exit_code == 1
        container = seat.sandbox.container  # type: ignore[attr-defined]
        (said,) = [m["content"][0]["text"] for m in messages(seat.records(1)) if m["role"] == "toolResult"]
        assert "codex" in said
        for text in (said, json.dumps(container.state())):
            assert REAL_KEY not in text
            assert "sk-" not in text, "not even the virtual key is in an environment or a command line"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failing_model_is_no_finished_turn(gateway: GatewayProcess, tmp_path: Path, version: str) -> None:
    script = """
turns:
  - - fail: {status: 401, type: authentication_error, message: no such key}
  - - empty: true
  - - say: "Turn {turn} is fine."
"""
    with seated(gateway, tmp_path, script, version) as seat:
        completed = seat.turn(1, "Go.")
        finish = seat.agent.finish(completed, seat.records(1))
        assert completed.exit_code == 1
        assert not finish.finished
        assert "no such key" in finish.reason
        assert {call.call_class for call in seat.gateway.calls(seat.attempt)} == {CallClass.AUTH}
        assert len(seat.gateway.calls(seat.attempt)) == 1, "the gateway retries, codex does not"
        silent = seat.turn(2, "And?")
        assert not seat.agent.finish(silent, seat.records(2)).finished
        again = seat.turn(3, "Now?")
        records = seat.records(3)
        assert seat.agent.finish(again, records).finished
        assert final_answer(records) == "Turn 3 is fine."


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_turn_leaves_nothing_and_the_session_goes_on(
    gateway: GatewayProcess, tmp_path: Path, version: str
) -> None:
    script = """
turns:
  - - shell: "echo step one"
    - shell: "setsid sleep 331 & trap '' TERM; sleep 332"
    - hang: true
  - - say: "Turn {turn} goes on."
"""
    with seated(gateway, tmp_path, script, version) as seat:
        killed = seat.turn(1, "Go.", TurnLimits(15.0, 60.0))
        assert killed.ending is Ending.DEADLINE
        left = seat.sandbox.run(["ps", "-eo", "user,args"]).output.decode()
        assert "sleep 33" not in left
        assert "codex" not in left
        records = seat.records(1)
        assert not seat.agent.finish(killed, records).finished
        assert tool_usage(records)["tool_counts"]["exec_command"] == 2
        again = seat.turn(2, "And now?")
        records = seat.records(2)
        assert seat.agent.finish(again, records).finished
        assert final_answer(records) == "Turn 2 goes on."
        users = [m["content"][0]["text"] for m in messages(records) if m["role"] == "user"]
        assert users == ["Go.", "And now?"]


def test_the_thread_of_a_sub_agent_bears_its_name(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = """
turns:
  - - call: {name: multi_agent_v1__spawn_agent, arguments: {message: Count the files., agent_type: default}}
    - shell: "sleep 3; echo counted"
    - say: Both are done.
"""
    with seated(gateway, tmp_path, script) as seat:
        completed = seat.turn(1, "Go.")
        records = seat.records(1)
        assert seat.agent.finish(completed, records).finished
        assert final_answer(records) == "Both are done."
        own = [record["message"] for record in records if "agentId" not in record]
        other = [record["message"] for record in records if "agentId" in record]
        assert [m["content"][0]["text"] for m in own if m["role"] == "user"] == ["Go."]
        assert [m["content"][0]["text"] for m in other if m["role"] == "user"] == ["Count the files."]
        assert own[1]["content"][0]["name"] == "multi_agent_v1.spawn_agent"
        assert {call["agentId"] != "" for call in tool_usage(records)["tool_calls"]} == {True, False}
