"""What is special to nanobot, in real containers; tests/test_agents_docker.py has what all agents share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.seat import gateway_with_a_key, seated

from pytest_uniclaw.agents.nanobot import VERSIONS
from pytest_uniclaw.agents.usage import final_answer
from pytest_uniclaw.models.client import GatewayProcess

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_with_a_key(tmp_path_factory.mktemp("gateway")) as process:
        yield process


@pytest.mark.parametrize("version", VERSIONS)
def test_skills_are_in_the_workspace_and_the_key_is_private(
    gateway: GatewayProcess, tmp_path: Path, version: str
) -> None:
    script = """
turns:
  - - call: {name: read_file, arguments: {path: skills/tables/SKILL.md}}
    - say: "It says: {last_tool_output}"
"""
    with seated(gateway, tmp_path, f"nanobot@{version}", script) as seat:
        played = seat.turn(1, "Go.")
        assert played.finish.finished, played.finish
        assert "Use a table." in final_answer(played.records)
        assert played.tools == {"read_file": 1}
        assert seat.run("stat", "-c", "%a %U", "/home/agent/.nanobot/config.json") == "600 agent\n"


def test_root_finds_a_long_message_in_a_file(gateway: GatewayProcess, tmp_path: Path) -> None:
    script = "turns: [[{shell: wc -c message.md}, {say: '{last_tool_output}'}]]"
    with seated(gateway, tmp_path, "nanobot", script, user="root") as seat:
        assert "200000 message.md" in final_answer(seat.turn(1, "x" * 200_000).records)
