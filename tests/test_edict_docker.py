"""The real EDICT on the real OpenClaw in real containers: its agents play parts that a script gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.seat import gateway_with_a_key, seated, text_of

from pytest_uniclaw.agents.edict_source import VARIABLE
from pytest_uniclaw.agents.transcript import to_jsonl
from pytest_uniclaw.agents.usage import final_answer, tool_usage
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.models.client import GatewayProcess
from pytest_uniclaw.sandbox.base import TurnLimits
from pytest_uniclaw.settings import edict_source

pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not edict_source(), reason=f"NOT RUN: {VARIABLE} is not set (scripts/fetch-edict)"),
]
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
TURNS = ", ".join(["[{shell: 'sh /tmp_workspace/parts.sh; heard'}, {say: '{last_tool_output}'}]"] * 3)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_with_a_key(tmp_path_factory.mktemp("gateway")) as process:
        yield process


def test_a_task_goes_from_the_first_to_the_last_office(gateway: GatewayProcess, tmp_path: Path) -> None:
    with seated(gateway, tmp_path, "openclaw_edict", f"turns: [{TURNS}]") as seat:
        seat.put("parts.sh", PARTS.encode())
        played = seat.turn(1, MESSAGE, TurnLimits(400.0, 400.0))
        records = played.records
        assert played.completed.exit_code == 0, played.completed.output
        assert played.finish.finished
        assert played.own
        assert seat.run("cat", "parts.txt").splitlines() == [
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
        assert seat.run("cat", "results/report.md") == "report\n"
        assert not [line for line in seat.processes() if "openclaw" in line], "the gateway has ended with the turn"
        print(f"{played.completed.seconds:.0f} s")


def test_taizi_answers_alone_and_remembers(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = "turns: [[{say: '十二'}], [{say: 'It was twelve.'}]]"
    with seated(gateway, tmp_path, "openclaw_edict", script) as seat:
        for number, answer in ((1, "十二"), (2, "It was twelve.")):
            played = seat.turn(number, f"/new {number}?")
            assert played.finish.finished, played.completed.output
            assert played.own
            assert final_answer(played.records) == answer
        texts = [text_of(message) for message in played.messages]
        assert texts == ["Message: /new 1?", "十二", "Message: /new 2?", "It was twelve."]


def test_a_turn_killed_while_the_model_hangs_leaves_nothing(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = "turns: [[{shell: 'echo one'}, {hang: true}], [{say: 'Back.'}]]"
    with seated(gateway, tmp_path, "openclaw_edict", script) as seat:
        killed = seat.turn(1, "Go.", TurnLimits(90.0, 200.0))
        assert killed.completed.ending is Ending.DEADLINE
        assert not [line for line in seat.processes() if "openclaw" in line or "edict_run" in line]
        assert not killed.finish.finished
        assert killed.own
        assert killed.tools == {"exec": 1}
        again = seat.turn(2, "And now?")
        assert again.finish.finished, again.completed.output


def test_a_failing_model_is_no_finished_turn(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = "turns: [[{fail: {status: 401, type: authentication_error, message: no such key}}]]"
    with seated(gateway, tmp_path, "openclaw_edict", script) as seat:
        assert "401 no such key" in seat.turn(1, "Go.").finish.reason
