"""The real OpenClaw, both releases, in real containers, on a scripted model behind the real gateway."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from task_package import build

from pytest_uniclaw.agents.base import ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.openclaw import PAPER, VERSIONS, OpenClawAgent
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
LIMITS = TurnLimits(240.0, 240.0)
REAL_KEY = "sk-real-0f3a9d71c2"
AWKWARD = "--help me: mache die Tabelle 表格. $HOME `id`"
ENVIRONMENT = {"MAIL_TOKEN": "for the shell"}
SKILL = b"---\nname: tables\ndescription: How to make tables.\n---\nUse a table.\n"

SCRIPT = """
turns:
  - - think: First look.
    - shell: "mkdir -p results; ls -a > results/seen.txt; id -un; pwd; echo $MAIL_TOKEN"
    - calls: [{shell: "printf 'naïve 表格 🐙' | tee results/表.txt"}, {shell: "echo broken >&2; exit 3"}]
    - call: {name: no_such_tool, arguments: {a: 1}}
    - say: "Turn {turn}: {last_tool_output}"
  - - say: "Turn {turn} remembers."
"""


@dataclass
class Seat:
    """One agent in one sandbox, ready for turns."""

    agent: OpenClawAgent
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
    gateway: GatewayProcess, tmp_path: Path, script: str, version: str = PAPER, user: Any = "agent"
) -> Iterator[Seat]:
    (tmp_path / "model.yaml").write_text(script, "utf-8")
    agent, client = OpenClawAgent(version=version), Gateway(gateway.address)
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
        sandbox.put([Entry(f"{sandbox.paths.skills}/tables/SKILL.md", content=SKILL, user=sandbox.user)])
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
            "assistant",
        ]  # fmt: skip
        assert messages(records)[0]["content"] == [{"type": "text", "text": AWKWARD}]
        thoughts = [block for block in messages(records)[1]["content"] if block["type"] == "thinking"]
        assert thoughts == ([{"type": "thinking", "thinking": "First look."}] if version == PAPER else [])
        assert tool_usage(records)["tool_counts"] == {"exec": 3, "no_such_tool": 1}
        texts = [m["content"][0]["text"] for m in messages(records) if m["role"] == "toolResult"]
        assert "agent\n/tmp_workspace\nfor the shell" in texts[0]
        assert any("naïve 表格 🐙" in text for text in texts[1:3])
        assert any("exited with code 3" in text and "broken" in text for text in texts[1:3])
        assert "no_such_tool not found" in texts[3]
        assert final_answer(records) == "Turn 1: Tool no_such_tool not found"
        assert any("How to make tables." in text for text in seat.requests())
        seen = seat.sandbox.run(["cat", "results/seen.txt", "results/表.txt"]).output.decode()
        assert "AGENTS.md" in seen
        assert "BOOTSTRAP.md" not in seen
        assert seen.endswith("naïve 表格 🐙")
        second = seat.turn(2, "/new And now?")
        records = seat.records(2)
        assert seat.agent.finish(second, records).finished
        assert final_answer(records) == "Turn 2 remembers."
        users = [m["content"][0]["text"] for m in messages(records) if m["role"] == "user"]
        assert users == [AWKWARD, "/new And now?"]
        calls = seat.gateway.calls(seat.attempt)
        assert len(calls) == 5
        assert all(call.input_tokens and call.output_tokens for call in calls)
        assert b"sk-" not in to_jsonl(records)


def test_a_call_that_is_no_json(gateway: GatewayProcess, tmp_path: Path) -> None:
    """2026.3.11 mends it."""
    script = (
        "turns: [[{raw_call: {name: exec, arguments: '{\"command\": \"echo mended'}}, {say: '{last_tool_output}'}]]"
    )
    with seated(gateway, tmp_path, script) as seat:
        completed = seat.turn(1, "Go.")
        records = seat.records(1)
        assert seat.agent.finish(completed, records).finished
        assert final_answer(records) == "mended"


def test_a_call_that_is_no_json_ends_a_turn_of_the_newer_release(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = 'turns: [[{raw_call: {name: exec, arguments: \'{"command": "echo oops\'}}, {say: never}], [{say: again}]]'
    with seated(gateway, tmp_path, script, VERSIONS[1]) as seat:
        completed = seat.turn(1, "Go.")
        finish = seat.agent.finish(completed, seat.records(1))
        assert not finish.finished
        assert completed.exit_code == 1
        assert seat.agent.finish(seat.turn(2, "Now?"), seat.records(2)).finished


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refused_key_spoils_no_later_turn(gateway: GatewayProcess, tmp_path: Path, version: str) -> None:
    """The newer release would not ask with it for a minute. Both leave it to the gateway to ask again."""
    script = """
turns:
  - - fail: {status: 401, type: authentication_error, message: no such key}
  - - say: "Turn {turn} is fine."
"""
    with seated(gateway, tmp_path, script, version) as seat:
        completed = seat.turn(1, "Go.")
        finish = seat.agent.finish(completed, seat.records(1))
        assert not finish.finished
        assert "failed" in finish.reason
        assert completed.exit_code == (0 if version == PAPER else 1)
        (call,) = seat.gateway.calls(seat.attempt)
        assert call.call_class is CallClass.AUTH
        again = seat.turn(2, "Now?")
        records = seat.records(2)
        assert seat.agent.finish(again, records).finished
        assert final_answer(records) == "Turn 2 is fine."


def test_a_silent_model_is_no_finished_turn(gateway: GatewayProcess, tmp_path: Path) -> None:
    with seated(gateway, tmp_path, "turns: [[{empty: true}], [{say: fine}]]") as seat:
        silent = seat.turn(1, "Go.")
        assert seat.agent.finish(silent, seat.records(1)).reason == "openclaw stored no reply"
        assert seat.agent.finish(seat.turn(2, "And?"), seat.records(2)).finished


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_turn_leaves_nothing_and_the_session_goes_on(
    gateway: GatewayProcess, tmp_path: Path, version: str
) -> None:
    script = """
turns:
  - - shell: "setsid sleep 331 >/dev/null 2>&1 & echo step one"
    - hang: true
  - - say: "Turn {turn} goes on."
"""
    with seated(gateway, tmp_path, script, version) as seat:
        killed = seat.turn(1, "Go.", TurnLimits(20.0 if version == PAPER else 75.0, 200.0))
        assert killed.ending is Ending.DEADLINE
        left = seat.sandbox.run(["ps", "-eo", "user,args"]).output.decode()
        assert "sleep 33" not in left
        assert "openclaw" not in left
        records = seat.records(1)
        assert not seat.agent.finish(killed, records).finished
        assert tool_usage(records)["tool_counts"] == {"exec": 1}
        again = seat.turn(2, "And now?")
        records = seat.records(2)
        assert seat.agent.finish(again, records).finished
        assert final_answer(records) == "Turn 2 goes on."
        assert [m["content"][0]["text"] for m in messages(records) if m["role"] == "user"] == ["Go.", "And now?"]


@pytest.mark.parametrize("version", VERSIONS)
def test_long_messages_arrive_whole(gateway: GatewayProcess, tmp_path: Path, version: str) -> None:
    turn = "[{shell: 'wc -c message.md'}, {say: '{last_tool_output}'}]"
    with seated(gateway, tmp_path, f"turns: [{turn}, {turn}]", version, user="root") as seat:
        for number, size in ((1, 300_000), (2, 1_000_000)):
            words = f"{number}" + "é" * (size // 2) + "end"
            completed = seat.turn(number, words)
            records = seat.records(number)
            assert seat.agent.finish(completed, records).finished, completed.output
            user = [m["content"][0]["text"] for m in messages(records) if m["role"] == "user"][-1]
            if version == PAPER or number == 2:
                assert "/tmp_workspace/message.md" in user
                assert final_answer(records) == f"{len(words.encode())} message.md"
            else:
                assert user == words
                assert any(words in text for text in seat.requests())


def test_a_command_in_the_background_does_not_hold_a_turn(gateway: GatewayProcess, tmp_path: Path) -> None:
    """2026.3.11 does not exit while one runs, though its answer is written."""
    script = "turns: [[{shell: 'sleep 333'}, {say: It runs.}]]"
    with seated(gateway, tmp_path, script) as seat:
        completed = seat.turn(1, "Go.")
        records = seat.records(1)
        assert seat.agent.finish(completed, records).finished
        assert completed.seconds < 90
        assert final_answer(records) == "It runs."


@pytest.mark.parametrize("version", VERSIONS)
def test_no_key_of_a_provider_is_inside(gateway: GatewayProcess, tmp_path: Path, version: str) -> None:
    script = "turns: [[{shell: 'env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr -c [:print:] _'}, {say: done}]]"
    with seated(gateway, tmp_path, script, version) as seat:
        completed = seat.turn(1, "Go.")
        assert completed.exit_code == 0, completed.output
        files = ["/home/agent/.openclaw", "/home/agent/.openclaw/openclaw.json"]
        mode = seat.sandbox.run(["stat", "-c", "%a %U", *files])
        assert mode.output == b"700 agent\n600 agent\n"
        assert seat.sandbox.run(["grep", "-rqs", REAL_KEY, "/home", "/root", "/tmp", "/run"]).exit_code == 1
        container = seat.sandbox.container  # type: ignore[attr-defined]
        (said,) = [m["content"][0]["text"] for m in messages(seat.records(1)) if m["role"] == "toolResult"]
        assert "openclaw" in said
        for text in (said, json.dumps(container.state())):
            assert REAL_KEY not in text
            assert "uck-" not in text, "not even the virtual key is in an environment or a command line"
