"""What is special to OpenClaw's two releases, in real containers; tests/test_agents_docker.py has what all share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.seat import LOOK_ROUND, REAL_KEY, gateway_with_a_key, seated

from pytest_uniclaw.agents.openclaw import VERSIONS
from pytest_uniclaw.agents.transcript import to_jsonl
from pytest_uniclaw.agents.usage import final_answer
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.models.client import GatewayProcess
from pytest_uniclaw.models.grants import CallClass
from pytest_uniclaw.sandbox.base import TurnLimits

pytestmark = pytest.mark.docker
OLDER, NEWER = (f"openclaw@{version}" for version in VERSIONS)
BOTH = pytest.mark.parametrize("agent", [OLDER, NEWER])
AWKWARD = "--help me: mache die Tabelle 表格. $HOME `id`"
SCRIPT = """
turns:
  - - think: First look.
    - shell: "mkdir -p results; ls -a > results/seen.txt; id -un; pwd; echo $MAIL_TOKEN; heard"
    - calls:
        - shell: "printf 'naïve 表格 🐙' | tee results/表.txt; heard"
        - shell: "echo broken >&2; heard 2; exit 3"
    - call: {name: no_such_tool, arguments: {a: 1}}
    - say: "Turn {turn}: {last_tool_output}"
  - - say: "Turn {turn} remembers."
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_with_a_key(tmp_path_factory.mktemp("gateway")) as process:
        yield process


@BOTH
def test_two_turns_of_one_session(gateway: GatewayProcess, tmp_path: Path, agent: str) -> None:
    values = {"MAIL_TOKEN": "for the shell"}
    with seated(gateway, tmp_path, agent, SCRIPT, environment=values) as seat:
        first = seat.turn(1, AWKWARD)
        assert first.completed.exit_code == 0, first.completed.output
        assert first.finish.finished
        assert first.own
        assert [message["role"] for message in first.messages] == [
            "user", "assistant", "toolResult", "assistant", "toolResult", "toolResult", "assistant", "toolResult",
            "assistant",
        ]  # fmt: skip
        assert first.messages[0]["content"] == [{"type": "text", "text": AWKWARD}]
        thoughts = [block for block in first.messages[1]["content"] if block["type"] == "thinking"]
        assert thoughts == ([{"type": "thinking", "thinking": "First look."}] if agent == OLDER else [])
        assert first.tools == {"exec": 3, "no_such_tool": 1}
        assert "agent\n/tmp_workspace\nfor the shell" in first.outputs[0]
        assert any("naïve 表格 🐙" in text for text in first.outputs[1:3])
        assert any("exited with code 3" in text and "broken" in text for text in first.outputs[1:3])
        assert "no_such_tool not found" in first.outputs[3]
        assert final_answer(first.records) == "Turn 1: Tool no_such_tool not found"
        assert seat.told("How to make tables.")
        seen = seat.run("cat", "results/seen.txt", "results/表.txt")
        assert "AGENTS.md" in seen
        assert "BOOTSTRAP.md" not in seen
        assert seen.endswith("naïve 表格 🐙")
        second = seat.turn(2, "/new And now?")
        assert second.finish.finished
        assert second.own
        assert final_answer(second.records) == "Turn 2 remembers."
        assert second.users == [AWKWARD, "/new And now?"]
        assert len(seat.calls()) == 5
        assert all(call.input_tokens and call.output_tokens for call in seat.calls())
        assert b"sk-" not in to_jsonl(second.records)


def test_a_call_that_is_no_json(gateway: GatewayProcess, tmp_path: Path) -> None:
    """2026.3.11 mends it."""
    script = (
        "turns: [[{raw_call: {name: exec, arguments: '{\"command\": \"echo mended'}}, {say: '{last_tool_output}'}]]"
    )
    with seated(gateway, tmp_path, OLDER, script) as seat:
        played = seat.turn(1, "Go.")
        assert played.finish.finished
        assert final_answer(played.records) == "mended"


def test_a_call_that_is_no_json_ends_a_turn_of_the_newer_release(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = 'turns: [[{raw_call: {name: exec, arguments: \'{"command": "echo oops\'}}, {say: never}], [{say: again}]]'
    with seated(gateway, tmp_path, NEWER, script) as seat:
        played = seat.turn(1, "Go.")
        assert not played.finish.finished
        assert played.completed.exit_code == 1
        assert seat.turn(2, "Now?").finish.finished


@BOTH
def test_a_refused_key_spoils_no_later_turn(gateway: GatewayProcess, tmp_path: Path, agent: str) -> None:
    """The newer release would not ask with it for a minute. Both leave it to the gateway to ask again."""
    script = """
turns:
  - - fail: {status: 401, type: authentication_error, message: no such key}
  - - say: "Turn {turn} is fine."
"""
    with seated(gateway, tmp_path, agent, script) as seat:
        refused = seat.turn(1, "Go.")
        assert not refused.finish.finished
        assert "failed" in refused.finish.reason
        assert refused.completed.exit_code == (0 if agent == OLDER else 1)
        assert [call.call_class for call in seat.calls()] == [CallClass.AUTH]
        again = seat.turn(2, "Now?")
        assert again.finish.finished
        assert final_answer(again.records) == "Turn 2 is fine."


def test_a_silent_model_is_no_finished_turn(gateway: GatewayProcess, tmp_path: Path) -> None:
    with seated(gateway, tmp_path, OLDER, "turns: [[{empty: true}], [{say: fine}]]") as seat:
        assert seat.turn(1, "Go.").finish.reason == "openclaw stored no reply"
        assert seat.turn(2, "And?").finish.finished


@BOTH
def test_a_turn_killed_while_the_model_hangs_leaves_nothing_and_the_session_goes_on(
    gateway: GatewayProcess, tmp_path: Path, agent: str
) -> None:
    script = """
turns:
  - - shell: "setsid sleep 331 >/dev/null 2>&1 & echo step one"
    - hang: true
  - - say: "Turn {turn} goes on."
"""
    with seated(gateway, tmp_path, agent, script) as seat:
        killed = seat.turn(1, "Go.", TurnLimits(60.0 if agent == OLDER else 120.0, 200.0))
        assert killed.completed.ending is Ending.DEADLINE
        assert not [line for line in seat.processes() if "sleep 33" in line or "openclaw" in line]
        assert not killed.finish.finished
        assert killed.own
        assert killed.tools == {"exec": 1}
        again = seat.turn(2, "And now?")
        assert again.finish.finished
        assert final_answer(again.records) == "Turn 2 goes on."
        assert again.users == ["Go.", "And now?"]


@BOTH
def test_long_messages_arrive_whole(gateway: GatewayProcess, tmp_path: Path, agent: str) -> None:
    turn = "[{shell: 'wc -c message.md'}, {say: '{last_tool_output}'}]"
    with seated(gateway, tmp_path, agent, f"turns: [{turn}, {turn}]", user="root") as seat:
        for number, size in ((1, 300_000), (2, 1_000_000)):
            words = f"{number}" + "é" * (size // 2) + "end"
            played = seat.turn(number, words)
            assert played.finish.finished, played.completed.output
            assert played.own
            if agent == OLDER or number == 2:
                assert "/tmp_workspace/message.md" in played.users[-1]
                assert final_answer(played.records) == f"{len(words.encode())} message.md"
            else:
                assert played.users[-1] == words
                assert seat.told(words)


def test_a_command_in_the_background_does_not_hold_a_turn(gateway: GatewayProcess, tmp_path: Path) -> None:
    """2026.3.11 does not exit while one runs, though its answer is written."""
    with seated(gateway, tmp_path, OLDER, "turns: [[{shell: 'sleep 333'}, {say: It runs.}]]") as seat:
        played = seat.turn(1, "Go.")
        assert played.finish.finished
        assert played.completed.seconds < 90
        assert final_answer(played.records) == "It runs."


@BOTH
def test_no_key_is_inside_nor_the_virtual_one_in_an_environment(
    gateway: GatewayProcess, tmp_path: Path, agent: str
) -> None:
    with seated(gateway, tmp_path, agent, f"turns: [[{{shell: '{LOOK_ROUND}; heard'}}, {{say: done}}]]") as seat:
        played = seat.turn(1, "Go.")
        assert played.completed.exit_code == 0, played.completed.output
        mode = seat.run("stat", "-c", "%a %U", "/home/agent/.openclaw", "/home/agent/.openclaw/openclaw.json")
        assert mode == "700 agent\n600 agent\n"
        assert not seat.holds(REAL_KEY, "/home", "/root", "/tmp", "/run")
        (said,) = played.outputs
        assert "openclaw" in said
        for text in (said, json.dumps(seat.container.state())):
            assert REAL_KEY not in text
            assert "uck-" not in text, "not even the virtual key is in an environment or a command line"
