"""The real EDICT on the real OpenClaw in real containers: its agents play parts that a script gives them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from task_package import build

from pytest_uniclaw.agents.base import ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.edict import EdictAgent
from pytest_uniclaw.agents.edict_source import VARIABLE
from pytest_uniclaw.agents.transcript import final_answer, to_jsonl, tool_usage
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import GrantRequest
from pytest_uniclaw.sandbox.base import CollectLimits, Completed, Entry, Owner, Pulse, Sandbox, SandboxSpec, TurnLimits
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.settings import edict_source
from pytest_uniclaw.task import load_task

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not edict_source(), reason=f"NOT RUN: {VARIABLE} is not set (scripts/fetch-edict)"),
]
RUN = f"test-{uuid.uuid4().hex[:8]}"
LIMITS = TurnLimits(400.0, 400.0)
MESSAGE = "Schreibe einen Bericht über 表格 nach results."
ID = "JJC-20261130-001"
BOARD = "python3 scripts/kanban_update.py"
PARTS = f"""
state=$(grep -o '"state": *"[A-Za-z]*"' data/tasks_source.json | head -n 1 | tr -d '" :'); state=${{state#state}}
echo "$(basename $PWD) $state" >> /tmp_workspace/parts.txt
case $(basename $PWD):$state in
    workspace-taizi:) {BOARD} create {ID} "撰写关于表格的详细报告" Zhongshu 中书省 中书令 ;;
    workspace-zhongshu:Zhongshu) {BOARD} state {ID} Menxia 方案已提交 ;;
    workspace-menxia:Menxia) {BOARD} state {ID} Assigned 准奏 ;;
    workspace-shangshu:Assigned) {BOARD} state {ID} Doing 派发; {BOARD} flow {ID} 尚书省 工部 派发 ;;
    workspace-gongbu:Doing) mkdir -p /tmp_workspace/results; echo report > /tmp_workspace/results/report.md
        {BOARD} done {ID} /tmp_workspace/results/report.md 已完成 ;;
    workspace-shangshu:Review) {BOARD} state {ID} Done 可以完结 ;;
    workspace-menxia:PendingConfirm) {BOARD} confirm {ID} approve 同意 ;;
    workspace-taizi:Done) echo "The report is in results." ;;
esac 2>&1 | tail -n 1
"""
TURNS = ", ".join(["[{shell: 'sh /tmp_workspace/parts.sh'}, {say: '{last_tool_output}'}]"] * 3)


@dataclass
class Seat:
    agent: EdictAgent
    sandbox: Sandbox
    folder: Path

    def turn(self, number: int, message: str, limits: TurnLimits = LIMITS) -> Completed:
        log = self.folder / f"agent{number}.log"
        return self.agent.turn(self.sandbox, TurnRequest(number, message, limits, Pulse, log, {}))

    def records(self, number: int) -> tuple[Record, ...]:
        raw = self.folder / "raw" / str(number)
        sources = self.agent.transcript_sources(self.sandbox)
        self.sandbox.collect({source: raw / str(at) for at, source in enumerate(sources)}, CollectLimits())
        return self.agent.read_transcript(raw)

    def processes(self) -> str:
        return self.sandbox.run(["ps", "-eo", "user,args"]).output.decode()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path_factory.mktemp("gateway"), []) as process:
        yield process


@contextmanager
def seated(gateway: GatewayProcess, tmp_path: Path, script: str) -> Iterator[Seat]:
    (tmp_path / "model.yaml").write_text(script, "utf-8")
    agent, client = EdictAgent(), Gateway(gateway.address)
    attempt = f"a-{uuid.uuid4().hex[:8]}"
    grant = client.grant(
        GrantRequest(
            attempt=attempt, role="executor", model="scripted-1", provider="script", script=tmp_path / "model.yaml",
            log=tmp_path / "exchange",
        )
    )  # fmt: skip
    spec = SandboxSpec(
        Owner(RUN, f"{RUN}/main", attempt), agent.image, memory=agent.memory,
        gateway=gateway.address.agent_socket.parent,
    )  # fmt: skip
    with DockerProvider().open(spec) as sandbox:
        sandbox.put([Entry(f"{sandbox.paths.workspace}/parts.sh", content=PARTS.encode(), user=sandbox.user)])
        sandbox.keep()
        access = ModelAccess("http://127.0.0.1:4010/v1", grant.key, grant.model)
        agent.prepare(sandbox, load_task(build(tmp_path / "r").yaml), access)
        yield Seat(agent, sandbox, tmp_path)
    client.revoke(grant)


def test_a_task_goes_from_the_first_to_the_last_office(gateway: GatewayProcess, tmp_path: Path) -> None:
    with seated(gateway, tmp_path, f"turns: [{TURNS}]") as seat:
        completed = seat.turn(1, MESSAGE)
        records = seat.records(1)
        assert completed.exit_code == 0, completed.output
        assert seat.agent.finish(completed, records).finished
        assert seat.sandbox.run(["cat", "parts.txt"]).output.decode().splitlines() == [
            "workspace-taizi ", "workspace-zhongshu Zhongshu", "workspace-menxia Menxia", "workspace-shangshu Assigned",
            "workspace-gongbu Doing", "workspace-shangshu Review", "workspace-menxia PendingConfirm",
            "workspace-taizi Done",
        ]  # fmt: skip
        assert final_answer(records) == "The report is in results."
        own = [record["message"] for record in records if "agentId" not in record]
        assert [m["content"][0]["text"] for m in own if m["role"] == "user"] == [MESSAGE]
        assert {record.get("agentId") for record in records} == {None, "zhongshu", "menxia", "shangshu", "gongbu"}
        assert {call["agentId"] for call in tool_usage(records)["tool_calls"]} >= {"", "gongbu"}
        assert b"uck-" not in to_jsonl(records)
        assert seat.sandbox.run(["cat", "results/report.md"]).output == b"report\n"
        assert "openclaw" not in seat.processes(), "the gateway has ended with the turn"
        print(f"{completed.seconds:.0f} s")


def test_taizi_answers_alone_and_remembers(gateway: GatewayProcess, tmp_path: Path) -> None:
    with seated(gateway, tmp_path, "turns: [[{say: '十二'}], [{say: 'It was twelve.'}]]") as seat:
        for number, answer in ((1, "十二"), (2, "It was twelve.")):
            completed = seat.turn(number, f"/new {number}?")
            records = seat.records(number)
            assert seat.agent.finish(completed, records).finished, completed.output
            assert final_answer(records) == answer
        own = [record["message"]["content"][0]["text"] for record in records]
        assert own == ["Message: /new 1?", "十二", "Message: /new 2?", "It was twelve."]


def test_a_killed_turn_leaves_nothing(gateway: GatewayProcess, tmp_path: Path) -> None:
    with seated(gateway, tmp_path, "turns: [[{shell: 'echo one'}, {hang: true}], [{say: 'Back.'}]]") as seat:
        killed = seat.turn(1, "Go.", TurnLimits(45.0, 200.0))
        assert killed.ending is Ending.DEADLINE
        assert "openclaw" not in seat.processes()
        assert "edict_run" not in seat.processes()
        records = seat.records(1)
        assert not seat.agent.finish(killed, records).finished
        assert tool_usage(records)["tool_counts"] == {"exec": 1}
        again = seat.turn(2, "And now?")
        assert seat.agent.finish(again, seat.records(2)).finished, again.output


def test_a_failing_model_is_no_finished_turn(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = "turns: [[{fail: {status: 401, type: authentication_error, message: no such key}}]]"
    with seated(gateway, tmp_path, script) as seat:
        completed = seat.turn(1, "Go.")
        assert "401 no such key" in seat.agent.finish(completed, seat.records(1)).reason
