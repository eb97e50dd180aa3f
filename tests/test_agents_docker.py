"""What every adapter must do, for real agents in real containers on the scripted model (docs/reference/conformance.md).

Each test is a row of the table that ``benchmarks/agents.py`` makes of a run's results. An agent whose image is not
built is NOT RUN.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.seat import LIMITS, REAL_KEY, Played, Seat, gateway_with_a_key, seated

from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.agents.transcript import to_jsonl
from pytest_uniclaw.agents.usage import final_answer
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import SandboxLost, SettingsError
from pytest_uniclaw.models.client import GatewayProcess
from pytest_uniclaw.models.grants import Call, CallClass, provider_failure
from pytest_uniclaw.sandbox.base import TurnLimits
from pytest_uniclaw.sandbox.docker import DockerProvider

SHELLS = {
    "nanobot": "exec", "nanobot@0.3.5": "exec",
    "openclaw": "exec", "openclaw@2026.9.6": "exec",
    "openclaw_edict": "exec",
    "codex": "exec_command", "codex@0.120.0": "exec_command",
    "qwen-code": "run_shell_command", "opencode": "bash",
}  # fmt: skip
"""The agents, and the name that each gives its shell."""
pytestmark = [pytest.mark.docker, pytest.mark.agents]

FIRST, SECOND = "--help me: mache die Tabelle 表格. $HOME `id`", "/new is a folder; and now?"
MADE, RESULTS = "naïve 表格 🐙", "/tmp_workspace/results"
TALK = f"""
turns:
  - - think: First look.
    - shell: "cat ~/skills/tables/SKILL.md; id -un; heard"
    - shell: "mkdir -p {RESULTS}; printf '{MADE}' | tee {RESULTS}/表.txt; heard"
    - shell: "echo broken >&2; heard 2; exit 3"
    - call: {{name: no_such_tool, arguments: {{a: 1}}}}
    - say: "Turn {{turn}}: done."
  - - say: "Turn {{turn}} remembers."
  - - say: "Turn {{turn}} has read it."
  - - say: "Turn {{turn}} has read it all."
"""
LONG, LONGER = (f"Sum {size}. " + "é表 x" * (size // 7) + f" End {size}." for size in (100_000, 1_000_000))
DEADLINES = {"openclaw": 60.0, "openclaw@2026.9.6": 120.0, "openclaw_edict": 90.0, "opencode": 60.0}
"""Seconds for a turn that is to be ended while the agent works, where 30 are too few for its start."""


@dataclass
class Talk:
    """Four turns of one session, and what each cost."""

    seat: Seat
    turns: list[Played] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """What ``message.md`` held after each turn."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway_with_a_key(tmp_path_factory.mktemp("gateway")) as process:
        yield process


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in SHELLS])
def agent(request: pytest.FixtureRequest) -> str:
    """The agent as ``--agent`` names it."""
    name: str = request.param
    try:
        DockerProvider().check([load_agent(name).image])
    except SettingsError as error:
        pytest.skip(f"NOT RUN: {str(error).splitlines()[0]}")
    return name


@pytest.fixture(scope="module")
def talk(agent: str, gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Talk]:
    with seated(gateway, tmp_path_factory.mktemp("talk"), agent, TALK) as seat:
        talk = Talk(seat)
        before = seat.cpu_seconds()
        for number, message in enumerate((FIRST, SECOND, LONG, LONGER), 1):
            talk.turns.append(seat.turn(number, message))
            after = seat.cpu_seconds()
            talk.cpu.append(after - before)
            talk.calls.append(len(seat.calls()))
            talk.files.append(seat.run("bash", "-c", "cat /tmp_workspace/message.md 2>/dev/null"))
            before = after
        yield talk


def note_costs(request: pytest.FixtureRequest, talk: Talk, turn: int) -> None:
    """Leave the costs of a turn for the table."""
    wall = talk.turns[turn].completed.seconds
    request.node.user_properties += [("cpu_seconds", f"{talk.cpu[turn]:.1f}"), ("wall_seconds", f"{wall:.1f}")]


def test_a_turn_with_tools_is_finished_and_recorded(talk: Talk, request: pytest.FixtureRequest) -> None:
    first = talk.turns[0]
    note_costs(request, talk, 0)
    assert first.finish.finished, (first.finish, first.completed.output[-2000:])
    assert final_answer(first.records) == "Turn 1: done."
    assert [m["role"] for m in first.messages] == ["user"] + ["assistant", "toolResult"] * 4 + ["assistant"]
    assert FIRST in first.users[0]
    calls = [b["id"] for m in first.messages for b in m["content"] if b["type"] == "toolCall"]
    assert calls == [m["toolCallId"] for m in first.messages if m["role"] == "toolResult"]


def test_the_session_remembers(talk: Talk, request: pytest.FixtureRequest) -> None:
    second = talk.turns[1]
    note_costs(request, talk, 1)
    assert second.finish.finished, second.finish
    assert final_answer(second.records) == "Turn 2 remembers.", "the script counts the user messages of the request"
    assert len(second.users) == 2
    assert SECOND in second.users[1]


def test_files_and_unicode(talk: Talk) -> None:
    assert talk.seat.run("cat", f"{RESULTS}/表.txt") == MADE
    assert MADE in talk.turns[0].outputs[1]
    assert talk.seat.told(FIRST)


def test_tools_that_fail_or_do_not_exist(talk: Talk, agent: str) -> None:
    outputs = talk.turns[0].outputs
    assert "broken" in outputs[2]
    assert talk.turns[0].tools == {SHELLS[agent]: 3, "no_such_tool": 1}
    assert outputs[3], "the model was told that there is no such tool"


def test_skills_are_offered_and_consulted(talk: Talk) -> None:
    assert talk.seat.told("How to make tables."), "the skill's description is in the prompt"
    assert any(re.search(r"\bbare\b", request) for request in talk.seat.requests()), "the other by its name"
    assert "Use a table." in talk.turns[0].outputs[0]


@pytest.mark.parametrize("at", [2, 3], ids=["100 kB", "1 MB"])
def test_long_messages_arrive_whole(talk: Talk, at: int) -> None:
    message = (LONG, LONGER)[at - 2]
    assert talk.turns[at].finish.finished, (talk.turns[at].finish, talk.turns[at].completed.output[-1000:])
    assert talk.seat.told(message) or talk.files[at] == message
    assert talk.calls[at] > talk.calls[at - 1]


def test_it_runs_without_rights(talk: Talk) -> None:
    assert "\nagent" in talk.turns[0].outputs[0]
    status = talk.seat.run("cat", "/proc/self/status")
    assert "NoNewPrivs:\t1" in status


def test_usage_is_counted(talk: Talk) -> None:
    calls = talk.seat.calls()
    assert talk.calls[0] >= 5
    assert all(call.call_class is CallClass.OK for call in calls)
    assert all(call.input_tokens and call.output_tokens and call.cost_usd == 0.0 for call in calls)


def test_no_key_of_a_provider_is_inside(talk: Talk) -> None:
    folders = "/home /root /tmp /opt/uniclaw /run /tmp_workspace"
    assert talk.seat.run("bash", "-c", f"grep -rqs {REAL_KEY} {folders} && echo found") == ""
    assert REAL_KEY not in str(talk.seat.container.state())
    assert b"uck-" not in to_jsonl(talk.turns[-1].records), "nor the virtual key in the transcript"


def test_a_second_attempt_knows_nothing_of_the_first(
    talk: Talk, gateway: GatewayProcess, tmp_path: Path, agent: str
) -> None:
    """The first attempt's container still runs beside it."""
    script = f"turns: [[{{shell: 'ls -a {RESULTS}; heard'}}, {{say: 'Turn {{turn}}, anew.'}}]]"
    with seated(gateway, tmp_path, agent, script) as seat:
        played = seat.turn(1, "Begin.")
        assert played.finish.finished, (played.finish, played.completed.output[-1000:])
        assert final_answer(played.records) == "Turn 1, anew."
        assert [user for user in played.users if "Begin." in user] == played.users
        assert "表.txt" in talk.seat.run("ls", RESULTS)
        assert ".." in played.outputs[0]
        assert "表.txt" not in played.outputs[0]
        assert not seat.told(SECOND)


def test_malformed_arguments_of_a_tool(gateway: GatewayProcess, tmp_path: Path, agent: str) -> None:
    shell = SHELLS[agent]
    script = f"""
turns:
  - - raw_call: {{name: {shell}, arguments: '{{"command": "echo oops'}}
    - say: "Turn {{turn}} goes on."
"""
    with seated(gateway, tmp_path, agent, script) as seat:
        played = seat.turn(1, "Go.")
        calls = seat.calls()
        assert all(call.call_class is CallClass.OK for call in calls), "what the agent sends stays well formed"
        if played.finish.finished:
            assert final_answer(played.records) == "Turn 1 goes on."
        assert provider_failure(calls) is None


def test_an_empty_answer_is_no_answer(gateway: GatewayProcess, tmp_path: Path, agent: str) -> None:
    """The turn is unfinished, unless the agent tells the user something itself."""
    with seated(gateway, tmp_path, agent, "turns: [[{empty: true}]]") as seat:
        played = seat.turn(1, "Go.", TurnLimits(90.0, 90.0))
        assert played.finish.finished == bool(final_answer(played.records).strip())
        assert provider_failure(seat.calls()) is None


FAULTS: dict[str, tuple[str, CallClass]] = {
    "401": ("fail: {status: 401, type: authentication_error, message: no such key}", CallClass.AUTH),
    "429": ("fail: {status: 429, type: rate_limit_error, message: slow down}", CallClass.RATE_LIMIT),
    "500": ("fail: {status: 500, type: server_error, message: broken}", CallClass.INFRA),
    "reset": ("reset: true", CallClass.INFRA),
    "broken stream": ("break: true", CallClass.STREAM_BROKEN),
    "context": ("fail: {status: 400, code: context_length_exceeded, message: too long}", CallClass.CONTEXT_LENGTH),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failing_model_is_told_by_the_ledger(
    gateway: GatewayProcess, tmp_path: Path, agent: str, fault: str
) -> None:
    step, expected = FAULTS[fault]
    with seated(gateway, tmp_path, agent, f"turns: [[{{{step}}}]]") as seat:
        played = seat.turn(1, "Go.", TurnLimits(90.0, 90.0))
        assert not played.finish.finished
        calls = seat.calls()
        assert calls[-1].call_class in {expected, CallClass.CANCELLED}
        assert expected in {call.call_class for call in calls}
        failure = provider_failure(calls)
        assert (failure.call_class if failure else None) == (None if fault == "context" else expected)
        assert len(calls) <= 12, "the gateway retries; the agent adds little to that"


def test_a_model_that_hangs_is_ended_by_the_deadline(gateway: GatewayProcess, tmp_path: Path, agent: str) -> None:
    with seated(gateway, tmp_path, agent, "turns: [[{hang: true}]]") as seat:
        played = seat.turn(1, "Go.", TurnLimits(DEADLINES.get(agent, 30.0), 600.0))
        assert played.completed.ending is Ending.DEADLINE
        assert not played.finish.finished
        assert seat.calls()[-1].call_class is CallClass.CANCELLED


KILLED = """
turns:
  - - shell: "echo step one"
    - shell: "setsid tail -f /etc/hostname & trap '' TERM; tail -f /etc/hosts"
    - hang: true
  - - say: "Turn {turn} goes on."
"""


def test_a_killed_turn_leaves_nothing_running_and_is_recorded_whole(
    gateway: GatewayProcess, tmp_path: Path, agent: str
) -> None:
    with seated(gateway, tmp_path, agent, KILLED) as seat:
        killed = seat.turn(1, "Go.", TurnLimits(DEADLINES.get(agent, 30.0), 600.0))
        assert killed.completed.ending is Ending.DEADLINE
        assert not killed.finish.finished
        assert not [line for line in seat.processes() if line.startswith("agent ")]
        assert killed.tools == {SHELLS[agent]: 2}
        assert len(seat.calls()) >= 2
        again = seat.turn(2, "And now?")
        assert again.finish.finished, (again.finish, again.completed.output[-1000:])
        assert final_answer(again.records) == "Turn 2 goes on."
        assert again.tools == {SHELLS[agent]: 2}, "the turn before is still told"


def test_silence_ends_a_turn(gateway: GatewayProcess, tmp_path: Path, agent: str) -> None:
    """No output and no model call for 8 s: less than codex waits for a tool before it asks the model again."""
    with seated(gateway, tmp_path, agent, "turns: [[{shell: 'tail -f /dev/null'}, {say: never}]]") as seat:
        played = seat.turn(1, "Go.", TurnLimits(300.0, 8.0))
        assert played.completed.ending is Ending.SILENCE
        assert not played.finish.finished
        assert not [line for line in seat.processes() if line.startswith("agent ")]


def test_a_container_that_is_killed_is_told_and_salvaged(gateway: GatewayProcess, tmp_path: Path, agent: str) -> None:
    script = "turns: [[{shell: 'echo step one'}, {shell: 'tail -f /dev/null'}, {say: never}]]"
    with seated(gateway, tmp_path, agent, script) as seat:
        killer = threading.Thread(target=kill_after, args=(seat, 2))
        killer.start()
        with pytest.raises(SandboxLost) as lost:
            seat.executor.turn(1, "Go.", LIMITS)
        killer.join()
        assert lost.value.cause == "killed"
        roles = [record["message"]["role"] for record in seat.executor.salvage(1).records]
        assert roles[0] == "user"
        assert roles[-3:] == ["assistant", "toolResult", "assistant"], "from what the gateway saw"


def kill_after(seat: Seat, calls: int) -> None:
    """Kill the container once that many model calls were answered."""
    give_up = time.monotonic() + 120
    while len(answered(seat)) < calls and time.monotonic() < give_up:
        time.sleep(0.1)
    seat.container.api.kill(seat.container.name)


def answered(seat: Seat) -> list[Call]:
    gateway = seat.executor.gateway
    assert gateway is not None
    return [call for call in gateway.calls(seat.executor.spec.attempt_id) if call.call_class is CallClass.OK]
