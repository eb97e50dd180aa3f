"""What is special to the Codex CLI, in real containers; tests/test_agents_docker.py has what all agents share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.seat import LOOK_ROUND, gateway_with_a_key, seated

from pytest_uniclaw.agents.codex import VERSIONS
from pytest_uniclaw.agents.usage import final_answer, tool_usage
from pytest_uniclaw.models.client import GatewayProcess
from pytest_uniclaw.models.grants import CallClass

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_with_a_key(tmp_path_factory.mktemp("gateway")) as process:
        yield process


@pytest.mark.parametrize("version", VERSIONS)
def test_its_shell_sees_a_tasks_values_and_no_key(gateway: GatewayProcess, tmp_path: Path, version: str) -> None:
    script = f"""
turns:
  - - think: First look.
    - shell: "{LOOK_ROUND}; heard"
    - calls: [{{shell: "echo one"}}, {{shell: "echo two"}}]
    - say: done
"""
    values = {"MAIL_TOKEN": "for the shell"}
    with seated(gateway, tmp_path, f"codex@{version}", script, environment=values) as seat:
        played = seat.turn(1, "Go.")
        assert played.finish.finished, played.finish
        assert played.users == ["Go."]
        assert played.messages[1]["content"][0] == {"type": "thinking", "thinking": "First look."}
        assert "MAIL_TOKEN=for the shell" in played.outputs[0]
        assert "codex" in played.outputs[0]
        assert "uck-" not in played.outputs[0], "not even the virtual key is in an environment or a command line"
        assert [text.strip().rpartition("\n")[2] for text in played.outputs[1:]] == ["one", "two"]
        assert seat.told("read its file before you use it: /home/agent/skills/bare/SKILL.md")
        mode = seat.run("stat", "-c", "%a %U %n", "/home/agent/.codex", "/home/agent/.codex/config.toml")
        assert mode == "700 agent /home/agent/.codex\n600 agent /home/agent/.codex/config.toml\n"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_goes_on_after_a_refusal_and_an_empty_answer(
    gateway: GatewayProcess, tmp_path: Path, version: str
) -> None:
    script = """
turns:
  - - fail: {status: 401, type: authentication_error, message: no such key}
  - - empty: true
  - - say: "Turn {turn} is fine."
"""
    with seated(gateway, tmp_path, f"codex@{version}", script) as seat:
        refused = seat.turn(1, "Go.")
        assert (refused.completed.exit_code, refused.finish.finished) == (1, False)
        assert "no such key" in refused.finish.reason
        assert [call.call_class for call in seat.calls()] == [CallClass.AUTH], "the gateway retries, codex does not"
        assert not seat.turn(2, "And?").finish.finished
        third = seat.turn(3, "Now?")
        assert third.finish.finished
        assert final_answer(third.records) == "Turn 3 is fine."


def test_root_may_run_it_and_odd_bytes_arrive(gateway: GatewayProcess, tmp_path: Path) -> None:
    with seated(gateway, tmp_path, "codex", "turns: [[{shell: id -un}, {say: done}]]", user="root") as seat:
        played = seat.turn(1, " \0\ud800")
        assert played.finish.finished, played.finish
        assert "root" in played.outputs[0]


def test_the_thread_of_a_sub_agent_bears_its_name(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = """
turns:
  - - call: {name: multi_agent_v1__spawn_agent, arguments: {message: Count the files., agent_type: default}}
    - shell: "sleep 3; echo counted"
    - say: Both are done.
"""
    with seated(gateway, tmp_path, "codex", script) as seat:
        played = seat.turn(1, "Go.")
        assert played.finish.finished, played.finish
        own = [record["message"] for record in played.records if "agentId" not in record]
        other = [record["message"] for record in played.records if "agentId" in record]
        # The sub-agent may end before the agent or after it; codex then asks the model once more.
        assert {"type": "text", "text": "Both are done."} in [block for m in own for block in m["content"]]
        assert [m["content"][0]["text"] for m in own if m["role"] == "user"] == ["Go."]
        assert [m["content"][0]["text"] for m in other if m["role"] == "user"] == ["Count the files."]
        assert own[1]["content"][0]["name"] == "multi_agent_v1.spawn_agent"
        assert {call["agentId"] != "" for call in tool_usage(played.records)["tool_calls"]} == {True, False}
