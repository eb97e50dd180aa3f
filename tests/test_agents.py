"""Agents: what they put into a sandbox, how they run a turn and when a turn counts as finished."""

from __future__ import annotations

import json
import pickle
import stat
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from support.host_sandbox import HostSandbox
from task_package import build

from pytest_uniclaw.agents import registry
from pytest_uniclaw.agents.base import ModelAccess, TurnRequest
from pytest_uniclaw.agents.message import MAX_ARGUMENT_BYTES, plain_text
from pytest_uniclaw.agents.nanobot import NanobotAgent
from pytest_uniclaw.agents.nop import NopAgent
from pytest_uniclaw.agents.oracle import OracleAgent
from pytest_uniclaw.agents.registry import agent_names, check_agent, load_agent
from pytest_uniclaw.agents.transcript import MODEL_ERROR, records_from_messages
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import SettingsError, TaskUnavailable
from pytest_uniclaw.sandbox.base import Completed, Pulse, TurnLimits
from pytest_uniclaw.task import load_task

ACCESS = ModelAccess("http://127.0.0.1:4010/v1", "sk-virtual", "scripted-1")


def request(tmp_path: Path, message: str = "Go.", number: int = 1) -> TurnRequest:
    return TurnRequest(number, message, TurnLimits(20, 20), Pulse, tmp_path / "agent.log", {"TOKEN": "t"})


def ended(code: int | None = 0, ending: Ending = Ending.EXITED) -> Completed:
    return Completed(ending, code, b"last words\n", 1.0)


@pytest.mark.parametrize("agent", [OracleAgent(), NopAgent(), NanobotAgent(), NanobotAgent(version="0.3.5")])
def test_agents_are_picklable_values(agent: Any) -> None:
    assert pickle.loads(pickle.dumps(agent)) == agent
    assert check_agent(agent, "test") is agent


def test_the_oracle_runs_the_solution_in_the_workspace(tmp_path: Path) -> None:
    solution = 'cat "$(dirname "$0")/deep/answer" > here.txt; echo "$UNICLAW_TURN $TOKEN"'
    package = build(tmp_path / "r", files={"oracle/solve.sh": solution, "oracle/deep/answer": "42\n"})
    (package.folder / "oracle" / "link").symlink_to("/etc/passwd")
    sandbox, agent = HostSandbox(tmp_path / "s"), OracleAgent()
    agent.prepare(sandbox, load_task(package.yaml), None)
    completed = agent.turn(sandbox, request(tmp_path, number=2))
    assert (Path(sandbox.paths.workspace) / "here.txt").read_text() == "42\n"
    assert completed.output == b"2 t\n"
    assert agent.finish(completed, ()).finished
    assert not any(entry.path.endswith("link") for entry in sandbox.entries)
    assert agent.finish(ended(3), ()).reason == "oracle exited with 3: last words"
    assert not agent.finish(ended(None, Ending.DEADLINE), ()).finished


@pytest.mark.parametrize("files", [{}, {"oracle/notes.md": "later"}])
def test_a_task_without_solution_is_unavailable(tmp_path: Path, files: dict[str, str]) -> None:
    task = load_task(build(tmp_path / "r", files=files).yaml)
    with pytest.raises(TaskUnavailable, match="ships no oracle"):
        OracleAgent().prepare(HostSandbox(tmp_path / "s"), task, None)


def test_nop_says_so_and_finishes(tmp_path: Path) -> None:
    agent = NopAgent()
    completed = agent.turn(HostSandbox(tmp_path / "s"), request(tmp_path))
    assert completed.output == b"Nothing was done.\n"
    assert agent.finish(completed, ()).finished
    assert agent.finish(ended(1), ()).reason == "nop exited with 1: last words"


def test_nanobot_gets_a_private_configuration_and_its_skills(tmp_path: Path) -> None:
    sandbox = HostSandbox(tmp_path / "s", user="root")
    skill = Path(sandbox.paths.skills) / "tables" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("how to")
    agent = NanobotAgent()
    agent.prepare(sandbox, load_task(build(tmp_path / "r").yaml), ACCESS)
    agent.prepare(sandbox, load_task(build(tmp_path / "r2").yaml), ACCESS)
    path = Path(sandbox.paths.home) / ".nanobot" / "config.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    config = json.loads(path.read_text())
    assert config["providers"]["custom"] == {"apiKey": "sk-virtual", "apiBase": "http://127.0.0.1:4010/v1"}
    assert config["agents"]["defaults"]["model"] == "scripted-1"
    assert config["agents"]["defaults"]["workspace"] == sandbox.paths.workspace
    assert (Path(sandbox.paths.workspace) / "skills" / "tables" / "SKILL.md").read_text() == "how to"


def test_nanobot_needs_a_model(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--model="):
        NanobotAgent().prepare(HostSandbox(tmp_path / "s"), load_task(build(tmp_path / "r").yaml), None)


def echo_nanobot(sandbox: HostSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the program of a turn's command by one that prints its last argument."""
    plain = sandbox.run
    script = 'while [ $# -gt 1 ]; do shift; done; printf %s "$1"'
    monkeypatch.setattr(sandbox, "run", lambda command, **kw: plain(["bash", "-c", script, *command], **kw))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Go.", "--message=Go."),
        ("--help", "--message=--help"),
        ("a\0b", "--message=a\N{SYMBOL FOR NULL}b"),
        ("bad \ud800", "--message=bad ?"),
        ("/new start", "--message=Message: /new start"),
        (" \n", "--message=Please go on."),
    ],
)
def test_nanobot_takes_any_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, said: str) -> None:
    sandbox = HostSandbox(tmp_path / "s")
    echo_nanobot(sandbox, monkeypatch)
    assert NanobotAgent().turn(sandbox, request(tmp_path, message)).output.decode() == said


def test_a_long_message_travels_as_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = HostSandbox(tmp_path / "s")
    echo_nanobot(sandbox, monkeypatch)
    message = "词" * (MAX_ARGUMENT_BYTES // 3 + 1)
    completed = NanobotAgent().turn(sandbox, request(tmp_path, message))
    path = Path(sandbox.paths.workspace) / "message.md"
    assert path.read_text() == message
    assert str(path) in completed.output.decode()
    assert "passed as message.md" in (tmp_path / "agent.log").read_text()
    assert plain_text(message) == message


@pytest.mark.parametrize(
    ("version", "name"),
    [("0.1.5.post3", "raw/0/chat.jsonl"), ("0.3.5", f"raw/0/sessions/{'0a' * 16}/Y2hhdA.jsonl")],
)
def test_both_session_files_are_found(tmp_path: Path, version: str, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text('{"role": "user", "content": "hello"}\n')
    decoy = path.parent / "deeper" / "chat.jsonl"
    decoy.parent.mkdir()
    decoy.write_text('{"role": "user", "content": "decoy"}\n')
    agent = NanobotAgent(version=version)
    (record,) = agent.read_transcript(tmp_path / "raw")
    assert record["message"]["content"][0]["text"] == "hello"
    assert agent.read_transcript(tmp_path / "nothing") == ()


USER = {"role": "user", "content": "go"}
TOOL = {"id": "1", "function": {"name": "exec", "arguments": "{}"}}
CALL = {"role": "assistant", "content": "", "tool_calls": [TOOL]}


@pytest.mark.parametrize(
    ("completed", "messages", "reason"),
    [
        (ended(), [USER, {"role": "assistant", "content": "done"}], ""),
        (ended(), [], "stored no session"),
        (ended(), [USER], "stored no reply"),
        (ended(), [USER, {"role": "assistant", "content": "done"}, USER], "stored no reply"),
        (ended(), [USER, CALL], "ends in a tool call"),
        (ended(), [USER, CALL, {"role": "tool", "content": "x"}], "without an answer"),
        (ended(), [USER, {"role": "assistant", "content": MODEL_ERROR}], "the model failed"),
        (ended(), [USER, {"role": "assistant", "content": " "}], "last message is empty"),
        (ended(1), [USER, {"role": "assistant", "content": "done"}], "exited with 1"),
        (ended(None, Ending.DEADLINE), [USER, {"role": "assistant", "content": "done"}], "stopped: deadline"),
        (ended(None, Ending.LOST), [], "stopped: lost"),
    ],
)
def test_when_a_nanobot_turn_is_finished(completed: Completed, messages: list[Any], reason: str) -> None:
    finish = NanobotAgent().finish(completed, records_from_messages(messages))
    assert finish.finished == (reason == "")
    assert reason in finish.reason


@pytest.fixture
def known_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "nanobot": "pytest_uniclaw.agents.nanobot:NanobotAgent", "nop": "pytest_uniclaw.agents.nop:NopAgent",
        "gone": "pytest_uniclaw.agents.gone:Agent", "odd": "pathlib:Path",
    }  # fmt: skip
    points = [EntryPoint(name, value, registry.GROUP) for name, value in values.items()]
    monkeypatch.setattr(registry, "installed", lambda group: {point.name: point for point in points})


@pytest.mark.usefixtures("known_agents")
def test_agents_by_name() -> None:
    assert agent_names() == ("gone", "nanobot", "nop", "odd")
    assert load_agent("nop") == NopAgent()
    assert load_agent("nanobot").image == "nanobot-0.1.5.post3"
    assert load_agent("nanobot@0.3.5").image == "nanobot-0.3.5"


@pytest.mark.usefixtures("known_agents")
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("nanobt", "did you mean 'nanobot'"),
        ("zzzz", "installed agents: gone, nanobot"),
        ("", "installed agents"),
        ("nanobot@9", r"nanobot 9 is not supported; known releases: 0\.1\.5\.post3, 0\.3\.5"),
        ("nanobot@", "a version is missing"),
        ("gone", "cannot be loaded"),
        ("odd", "PosixPath, which is no agent: it lacks version"),
    ],
)
def test_wrong_agent_names_are_usage_errors(reference: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load_agent(reference)


FOREIGN = """
from pytest_uniclaw.agents.nop import NopAgent

CONSTANT = NopAgent()

def plain():
    return NopAgent()

def lost():
    NopAgent()

def crash():
    return undefined
"""


@pytest.mark.parametrize(
    ("value", "reference", "message"),
    [
        ("foreign:CONSTANT", "it", "entry point 'foreign:CONSTANT' must name a class or function that makes the agent"),
        ("foreign:lost", "it", "entry point 'foreign:lost' gives None; return an agent, such as MyAgent()"),
        ("foreign:plain", "it@2", "agent 'it' has no choice of versions (asked for '2')"),
        ("foreign:crash", "it", "agent 'it' cannot be made: NameError: name 'undefined' is not defined"),
        ("foreign_broken:x", "it", "entry point 'foreign_broken:x' cannot be loaded: ZeroDivisionError: division by"),
        ("pytest_uniclaw.agents.base:CommandLineAgent", "it", "cannot be made: TypeError: "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_foreign_entry_point_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, reference: str, message: str
) -> None:
    (tmp_path / "foreign.py").write_text(FOREIGN)
    (tmp_path / "foreign_broken.py").write_text("x = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "installed", lambda group: {"it": EntryPoint("it", value, group)})
    with pytest.raises(SettingsError) as caught:
        load_agent(reference)
    assert message in str(caught.value)
