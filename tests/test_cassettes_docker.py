"""Nanobot recorded against a provider, and replayed in another container on another gateway with no provider at all."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from task_package import build

from pytest_uniclaw.agents.base import ModelAccess, Record, TurnRequest
from pytest_uniclaw.agents.nanobot import VERSIONS, NanobotAgent
from pytest_uniclaw.agents.transcript import final_answer, tool_usage
from pytest_uniclaw.models.cassette import lane_file, lane_name, load_cassette, make_cassette
from pytest_uniclaw.models.chat import assemble
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import GrantRequest, LaneReport, Provider
from pytest_uniclaw.sandbox.base import CollectLimits, Entry, Owner, Pulse, SandboxSpec, TurnLimits
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.task import load_task
from tests.support.scripted_upstream import HEAD, Act, Handler, piece, running_upstream, usage_chunk

pytestmark = pytest.mark.docker
RUN = f"test-{uuid.uuid4().hex[:8]}"
LIMITS = TurnLimits(120.0, 120.0)
KEY = "sk-real-key-of-the-provider"
MESSAGES = ("Make the table.", "And now?")


def tool_call(command: str) -> Act:
    def act(handler: Handler) -> None:
        call = {"index": 0, "id": f"call_{uuid.uuid4().hex}", "type": "function"}
        opening = call | {"function": {"name": "exec", "arguments": ""}}
        text = json.dumps({"command": command})
        pieces = [{"index": 0, "function": {"arguments": part}} for part in (text[:9], text[9:])]
        deltas = [{"content": "I look."}, *({"tool_calls": [part]} for part in (opening, *pieces))]
        chunks = [HEAD | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
        answer(handler, [*chunks, piece("", "tool_calls"), usage_chunk()])

    return act


def say(text: str) -> Act:
    return lambda handler: answer(handler, [piece(text[:4]), piece(text[4:]), piece("", "stop"), usage_chunk()])


def answer(handler: Handler, chunks: list[dict[str, Any]]) -> None:
    """A stream, or the same in one piece: releases of nanobot differ in what they ask for."""
    if handler.server.requests[-1]["body"].get("stream"):
        handler.events(chunks)
        return
    found = assemble(chunks)
    choice = {"index": 0, "message": found.message(), "finish_reason": found.finish_reason}
    handler.whole(200, HEAD | {"object": "chat.completion", "choices": [choice], "usage": found.usage})


@contextmanager
def grant_of(process: GatewayProcess, attempt: str, log: Path, **request: Any) -> Iterator[Any]:
    client = Gateway(process.address)
    asked = {"attempt": attempt, "role": "executor", "model": "m-1", "provider": "real", "log": log} | request
    grant = client.grant(GrantRequest(**asked))
    yield grant
    client.revoke(grant)


def talk(process: GatewayProcess, folder: Path, version: str, attempt: str, grant: Any) -> tuple[Record, ...]:
    """Two turns of one session in a fresh container; the records after them."""
    agent = NanobotAgent(version=version)
    spec = SandboxSpec(
        Owner(RUN, f"{RUN}/main", attempt), agent.image, user="agent", memory=agent.memory,
        gateway=process.address.agent_socket.parent,
    )  # fmt: skip
    with DockerProvider().open(spec) as sandbox:
        sandbox.put([Entry(f"{sandbox.paths.workspace}/sources/a.csv", content=b"a,b\n1,2\n", user=sandbox.user)])
        sandbox.keep()
        access = ModelAccess("http://127.0.0.1:4010/v1", grant.key, grant.model)
        agent.prepare(sandbox, load_task(build(folder / "task").yaml), access)
        for number, message in enumerate(MESSAGES, 1):
            done = agent.turn(sandbox, TurnRequest(number, message, LIMITS, Pulse, folder / f"agent{number}.log"))
            assert done.exit_code == 0, done.output
        raw = folder / "raw"
        sources = agent.transcript_sources(sandbox)
        sandbox.collect({source: raw / str(at) for at, source in enumerate(sources)}, CollectLimits())
        return agent.read_transcript(raw)


@pytest.mark.parametrize("version", VERSIONS)
def test_nanobot_is_replayed_with_the_provider_gone(tmp_path: Path, version: str) -> None:
    folders = {name: tmp_path / name for name in ("recorded", "replayed")}
    lane = lane_name(f"nanobot-{version}", "script", "task_1", 1, "executor")
    file = lane_file(tmp_path / "cassettes", lane)
    look = "date; pwd; ls -la --time-style=full-iso sources; mktemp -d; cat sources/a.csv > results/copy.csv"
    for folder in folders.values():
        folder.mkdir()

    with running_upstream() as upstream:
        provider = Provider(name="real", base_url=upstream.base_url, api_key=KEY)
        with start_gateway(tmp_path / "one", [provider]) as process:
            upstream.play(tool_call("mkdir -p results"), tool_call(look), say("It is made."), say("Nothing."))
            with grant_of(process, "first", tmp_path / "log1") as grant:
                recorded = talk(process, folders["recorded"], version, "first", grant)
    asked = len(upstream.requests)
    assert make_cassette(tmp_path / "log1", file, lane=lane, metadata={"agent": version}) == asked

    with start_gateway(tmp_path / "two") as process:
        client = Gateway(process.address)
        with grant_of(process, "second-9f2", tmp_path / "log2", cassette=file) as grant:
            replayed = talk(process, folders["replayed"], version, "second-9f2", grant)
        calls = client.calls("second-9f2")
        assert [(call.call_class, call.provider) for call in calls] == [("ok", "replay")] * asked
        assert client.replays("second-9f2") == [LaneReport(lane=lane, entries=asked)]

    assert final_answer(replayed) == final_answer(recorded) == "Nothing."
    assert tool_usage(replayed)["tool_counts"] == tool_usage(recorded)["tool_counts"] == {"exec": 2}
    stored = file.read_text()
    assert KEY not in stored
    assert "uck-" not in stored
    assert len(load_cassette(file).entries) == asked
