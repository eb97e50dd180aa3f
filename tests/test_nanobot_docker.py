"""The real nanobot, both releases, in real containers, on a scripted model behind the real gateway."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from task_package import build

from pytest_uniclaw.agents.base import ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.nanobot import VERSIONS, NanobotAgent
from pytest_uniclaw.agents.transcript import (
    complete_last_turn,
    final_answer,
    records_from_messages,
    to_jsonl,
    tool_usage,
)
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.exchange import rebuild_messages
from pytest_uniclaw.models.grants import CallClass, GrantRequest
from pytest_uniclaw.sandbox.base import CollectLimits, Completed, Entry, Owner, Pulse, Sandbox, SandboxSpec, TurnLimits
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.task import load_task

pytestmark = pytest.mark.docker
RUN = f"test-{uuid.uuid4().hex[:8]}"
LIMITS = TurnLimits(120.0, 120.0)

SCRIPT = """
turns:
  - - shell: "mkdir -p results && cat skills/tables/SKILL.md > results/skill.txt && id -un && pwd"
    - call: {name: read_file, arguments: {path: /tmp_workspace/results/skill.txt}}
    - say: "Turn {turn}: {last_tool_output}"
  - - say: "Turn {turn} remembers."
"""


@dataclass
class Seat:
    """One agent in one sandbox, ready for turns."""

    agent: NanobotAgent
    sandbox: Sandbox
    gateway: Gateway
    attempt: str
    folder: Path

    def turn(
        self, number: int, message: str, limits: TurnLimits = LIMITS, pulse: Callable[[], Pulse] = Pulse
    ) -> Completed:
        request = TurnRequest(number, message, limits, pulse, self.folder / f"agent{number}.log")
        return self.agent.turn(self.sandbox, request)

    def records(self, number: int) -> tuple[Record, ...]:
        raw = self.folder / "raw" / str(number)
        sources = self.agent.transcript_sources(self.sandbox)
        self.sandbox.collect({source: raw / str(at) for at, source in enumerate(sources)}, CollectLimits())
        return self.agent.read_transcript(raw)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path_factory.mktemp("gateway")) as process:
        yield process


@contextmanager
def seated(gateway: GatewayProcess, tmp_path: Path, script: str, version: str, user: Any = "agent") -> Iterator[Seat]:
    (tmp_path / "model.yaml").write_text(script)
    agent, client = NanobotAgent(version=version), Gateway(gateway.address)
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
        skill = f"{sandbox.paths.skills}/tables/SKILL.md"
        sandbox.put([Entry(skill, content=b"Use a table.", user=sandbox.user)])
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
        first = seat.turn(1, "--help me: make the table.")
        records = seat.records(1)
        assert first.exit_code == 0, first.output
        assert seat.agent.finish(first, records).finished
        assert "Use a table." in final_answer(records)
        assert tool_usage(records)["tool_counts"] == {"exec": 1, "read_file": 1}
        outputs = [record["message"] for record in records if record["message"]["role"] == "toolResult"]
        assert "agent\n/tmp_workspace" in outputs[0]["content"][0]["text"]
        assert outputs[0]["toolCallId"] == records[1]["message"]["content"][-1]["id"]
        second = seat.turn(2, "/new is a folder name; and now?")
        records = seat.records(2)
        assert seat.agent.finish(second, records).finished
        assert final_answer(records) == "Turn 2 remembers."
        assert sum(record["message"]["role"] == "user" for record in records) == 2
        listed = seat.sandbox.run(["stat", "-c", "%a %U", f"{seat.sandbox.paths.home}/.nanobot/config.json"])
        assert listed.output == b"600 agent\n"
        assert len(seat.gateway.calls(seat.attempt)) == 4
        assert b"sk-" not in to_jsonl(records)


def test_a_long_message_reaches_the_model_as_a_file(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = "turns: [[{shell: wc -c message.md}, {say: '{last_tool_output}'}]]"
    with seated(gateway, tmp_path, script, VERSIONS[0], user="root") as seat:
        seat.turn(1, "x" * 200_000)
        assert "200000 message.md" in final_answer(seat.records(1))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failing_model_is_no_finished_turn(gateway: GatewayProcess, tmp_path: Path, version: str) -> None:
    script = "turns: [[{fail: {status: 401, type: authentication_error, message: no such key}}]]"
    with seated(gateway, tmp_path, script, version) as seat:
        completed = seat.turn(1, "Go.")
        finish = seat.agent.finish(completed, seat.records(1))
        assert completed.exit_code == 0
        assert not finish.finished
        assert {call.call_class for call in seat.gateway.calls(seat.attempt)} == {CallClass.AUTH}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_killed_turn_is_rebuilt_and_the_session_goes_on(
    gateway: GatewayProcess, tmp_path: Path, version: str
) -> None:
    script = """
turns:
  - [{shell: "echo step one"}, {shell: "sleep 300"}]
  - [{say: "Turn {turn} goes on."}]
"""
    with seated(gateway, tmp_path, script, version) as seat:
        # Silence counts from the second answered call on, so the tool runs when the turn is ended.
        killed = seat.turn(
            1, "Go.", TurnLimits(120.0, 4.0),
            lambda: Pulse(idle=1e9, busy=len(seat.gateway.calls(seat.attempt)) < 2),
        )
        assert killed.ending is Ending.SILENCE
        records = seat.records(1)
        assert not seat.agent.finish(killed, records).finished
        rebuilt = records_from_messages(rebuild_messages(tmp_path / "exchange"))
        whole, used = complete_last_turn(records, rebuilt)
        assert used
        assert tool_usage(whole)["tool_counts"] == {"exec": 2}
        left = seat.sandbox.run(["pgrep", "-f", "^[s]leep 300"])
        assert left.exit_code == 1
        again = seat.turn(2, "And now?")
        records = seat.records(2)
        assert seat.agent.finish(again, records).finished
        assert final_answer(records) == "Turn 2 goes on."
