"""Agents described by tables, in real containers: what tests/test_agents_docker.py does not have of all agents."""

from __future__ import annotations

import base64
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.seat import LOOK_ROUND, REAL_KEY, SKILLS, gateway_with_a_key, seated
from test_docs import DOCS, files_of

from pytest_uniclaw.agents.command import CommandAgent
from pytest_uniclaw.agents.command_builtin import opencode, qwen_code
from pytest_uniclaw.agents.command_table import AgentTable
from pytest_uniclaw.agents.transcript import to_jsonl
from pytest_uniclaw.agents.usage import final_answer, last_turn, tool_usage
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.models.client import GatewayProcess
from pytest_uniclaw.models.grants import CallClass
from pytest_uniclaw.sandbox.base import TurnLimits

pytestmark = pytest.mark.docker
EACH = pytest.mark.parametrize("agent", [qwen_code(), opencode()], ids=lambda agent: agent.name)
DOCUMENTED = tomllib.loads(files_of(DOCS / "how-to" / "add-an-agent.md")["uniclaw.toml"])
TINY = CommandAgent("tiny", AgentTable.model_validate(DOCUMENTED["agents"]["tiny"]))
MODEL = "org/scripted-1"
"""The slash of a name must not end it in an agent's configuration."""
AWKWARD = "/init --help: mache die Tabelle 表格 für bob@example.com. @/etc/hostname $HOME `id`"
SHOWN = {"qwen-code": f"Message: {AWKWARD}", "opencode": AWKWARD}
"""qwen-code would read a message that begins with / as a command of its own; before an @ it puts a space."""
SHELL = {"qwen-code": "run_shell_command", "opencode": "bash"}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
SCRIPT = """
turns:
  - - think: First look.
    - shell: "mkdir -p results; cat SKILLS/tables/SKILL.md > results/skill.txt; id -un; pwd; echo $MAIL_TOKEN; heard"
    - calls:
        - shell: "printf 'naïve 表格 🐙' | tee results/表.txt; heard"
        - shell: "echo broken >&2; heard 2; exit 3"
    - call: {name: no_such_tool, arguments: {a: 1}}
    - raw_call: {name: SHELL, arguments: '{"command": "echo oops'}
    - say: "Turn {turn} is done."
  - - say: "Turn {turn} remembers."
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_with_a_key(tmp_path_factory.mktemp("gateway")) as process:
        yield process


@EACH
def test_two_turns_of_one_session(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    script = SCRIPT.replace("SKILLS", f"$HOME/{agent.table.skills[2:]}").replace("SHELL", SHELL[agent.name])
    values = {"MAIL_TOKEN": "for the shell"}
    with seated(gateway, tmp_path, agent, script, model=MODEL, environment=values) as seat:
        first = seat.turn(1, AWKWARD)
        assert first.completed.exit_code == 0, first.completed.output
        assert first.finish.finished
        assert first.own
        shown = SHOWN[agent.name]
        assert first.users == [shown]
        assert seat.told(shown.replace("bob@", "bob @") if agent.name == "qwen-code" else shown)
        assert first.messages[1]["content"][0] == {"type": "thinking", "thinking": "First look."}
        assert tool_usage(first.records)["exec_used"]
        assert first.tools["no_such_tool"] == 1
        assert "agent\n/tmp_workspace\nfor the shell" in first.outputs[0]
        assert "naïve 表格 🐙" in first.outputs[1] + first.outputs[2]
        assert "broken" in first.outputs[1] + first.outputs[2]
        assert "no_such_tool" in first.outputs[3]
        assert {m["toolName"] for m in first.messages if m["role"] == "toolResult"} == {
            SHELL[agent.name], "no_such_tool",
        }  # fmt: skip
        assert final_answer(first.records) == "Turn 1 is done."
        assert seat.told("How to make tables.")
        assert seat.told("read its file before you use it: /home/agent/skills/bare/SKILL.md")
        found = seat.run("cat", "results/skill.txt", "results/表.txt")
        assert found == SKILLS["skills/tables/SKILL.md"] + "naïve 表格 🐙"
        second = seat.turn(2, "And now?")
        assert second.finish.finished, second.completed.output
        assert second.own
        assert final_answer(second.records) == "Turn 2 remembers."
        assert second.users[1:] == ["And now?"]
        calls = seat.calls()
        assert len(calls) <= 7, "nothing is asked beside the turns"
        assert all(call.input_tokens and call.output_tokens and call.cost_usd == 0.0 for call in calls)
        assert b"sk-" not in to_jsonl(second.records)


@EACH
def test_root_may_run_it_and_long_and_odd_messages_arrive(
    gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent
) -> None:
    with seated(gateway, tmp_path, agent, "turns: [[{say: one}], [{say: two}]]", user="root") as seat:
        words = "1" + "é" * 500_000 + "end"
        played = seat.turn(1, words)
        assert played.completed.exit_code == 0, played.completed.output[-2000:]
        assert played.own
        assert played.users == [words]
        assert seat.told(words)
        assert seat.turn(2, " \0\ud800").completed.exit_code == 0


@EACH
def test_the_model_sees_images(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    tool, argument = {"qwen-code": ("read_file", "file_path"), "opencode": ("read", "filePath")}[agent.name]
    script = f"""
turns:
  - - call: {{name: {tool}, arguments: {{{argument}: /tmp_workspace/p.png}}}}
    - say: It is one pixel.
"""
    with seated(gateway, tmp_path, agent, script, model=MODEL) as seat:
        seat.put("p.png", base64.b64decode(PIXEL))
        played = seat.turn(1, "What is on p.png?")
        assert final_answer(played.records) == "It is one pixel.", played.completed.output
        assert seat.told("data:image/png;base64,")


@EACH
def test_no_key_is_inside_nor_the_virtual_one_in_an_environment(
    gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent
) -> None:
    script = f"turns: [[{{shell: '{LOOK_ROUND}; heard'}}, {{say: done}}]]"
    with seated(gateway, tmp_path, agent, script) as seat:
        played = seat.turn(1, "Go.")
        secret = next(path for path in agent.table.files)
        assert seat.run("stat", "-c", "%a %U", secret.replace("~", "/home/agent")) == "600 agent\n"
        assert not seat.holds(REAL_KEY, "/home", "/root", "/tmp", "/opt", "/run")
        (said,) = played.outputs
        assert "PATH=" in said
        for text in (said, json.dumps(seat.container.state())):
            assert REAL_KEY not in text
            assert "uck-" not in text, "not even the virtual key is in an environment or a command line"


@EACH
def test_a_failing_model_is_no_finished_turn(gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent) -> None:
    script = """
turns:
  - - fail: {status: 401, type: authentication_error, message: no such key, times: 1}
    - say: The next is fine.
  - - say: The next is fine.
"""
    with seated(gateway, tmp_path, agent, script) as seat:
        refused = seat.turn(1, "Go.")
        assert refused.completed.exit_code == 1
        assert "no such key" in refused.finish.reason
        assert final_answer(refused.records) == "", "what stands in for an answer is none"
        assert [call.call_class for call in seat.calls()] == [CallClass.AUTH]
        again = seat.turn(2, "And?")
        assert again.finish.finished, "some agents forget the turn that failed, some do not"
        assert final_answer(again.records) == "The next is fine."


@EACH
def test_a_turn_killed_while_the_model_hangs_leaves_nothing_and_the_session_goes_on(
    gateway: GatewayProcess, tmp_path: Path, agent: CommandAgent
) -> None:
    script = """
turns:
  - - shell: "echo step one"
    - hang: true
  - - say: "Turn {turn} goes on."
"""
    with seated(gateway, tmp_path, agent, script) as seat:
        killed = seat.turn(1, "Go.", TurnLimits(60.0, 90.0))
        assert killed.completed.ending is Ending.DEADLINE
        assert not [line for line in seat.processes() if agent.table.first[0] in line]
        assert not killed.finish.finished
        assert killed.own
        assert killed.tools[SHELL[agent.name]] == 1
        again = seat.turn(2, "And now?")
        assert again.finish.finished, again.completed.output
        assert final_answer(again.records) == "Turn 2 goes on."
        assert again.users == ["Go.", "And now?"]


def test_the_documented_agent_keeps_its_session(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = """
turns:
  - - calls: [{shell: "printf '表格' | tee results.txt; heard"}, {shell: "echo broken >&2; heard 2; exit 3"}]
    - say: "Turn {turn}: {last_tool_output}"
  - - fail: {status: 500, type: server_error, message: broken}
  - - say: "Turn {turn} remembers."
"""
    with seated(gateway, tmp_path, TINY, script, model=MODEL) as seat:
        first = seat.turn(1, AWKWARD)
        assert first.finish.finished, first.completed.output
        assert first.own
        assert first.users == [AWKWARD]
        assert first.outputs == ["表格", "broken\n"]
        assert final_answer(first.records) == "Turn 1: broken"
        assert "HTTP Error 500" in seat.turn(2, "Again.").finish.reason
        words = "é" * 60_000
        again = seat.turn(3, words)
        assert again.finish.finished
        assert final_answer(again.records) == "Turn 3 remembers."
        assert "message.md. Read that file" in again.users[-1]
        assert seat.run("cat", "message.md") == words


def test_a_turn_that_does_nothing_is_told_empty(gateway: GatewayProcess, tmp_path: Path) -> None:
    """What turn 1 did is never turn 2's, whether the agent is silent, fails or is not found."""
    for name, program, code in (("silent", "true", 0), ("failing", "false", 1), ("gone", "no-such-program", 127)):
        agent = CommandAgent(name, TINY.table.model_copy(update={"next": (program, "{session}", "{message}")}))
        script = "turns: [[{shell: 'echo made'}, {say: 'I have made it.'}]]"
        with seated(gateway, tmp_path / name, agent, script) as seat:
            assert seat.turn(1, "Go.").finish.finished
            played = seat.turn(2, "And now?")
            assert played.completed.exit_code == code
            assert not played.finish.finished
            assert played.users == ["Go.", "And now?"]
            assert last_turn(played.records) == []
            assert played.tools == {"bash": 1}
            assert played.own
