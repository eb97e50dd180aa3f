"""``/v1/responses`` as OpenAI's client and the real Codex meet it: a real gateway process, a chat-only provider."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from backports import zstd
from openai.types.responses import Response

from pytest_uniclaw.models.cassette import make_cassette
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.exchange import rebuild_messages
from pytest_uniclaw.models.grants import Call, Grant, GrantRequest, Provider, Tuning
from tests.support.relay import relayed
from tests.support.scripted_upstream import HEAD, Act, UnixConnection, Upstream, error, ok, piece, running_upstream
from tests.support.scripted_upstream import ask as post

pytestmark = pytest.mark.processes

EXEC: dict[str, Any] = {
    "type": "function", "name": "exec", "strict": False,
    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
}  # fmt: skip
USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": 1}}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


@pytest.fixture(scope="module")
def process(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    provider = Provider(name="real", base_url=upstream.base_url, api_key="sk-real")
    tuning = Tuning(tries=1, idle_seconds=5)
    with start_gateway(tmp_path_factory.mktemp("gateway"), [provider], tuning=tuning) as started:
        yield started
    assert "pytest_uniclaw" not in (started.directory / "gateway.log").read_text()


class Agent:
    """A grant, and OpenAI's client with its key."""

    def __init__(self, process: GatewayProcess, folder: Path, script: str = "", **request: Any) -> None:
        self.gateway = Gateway(process.address)
        self.attempt, self.log = folder.name, folder / "log"
        path = folder / "model.yaml"
        path.write_text(script)
        named = {"attempt": self.attempt, "role": "executor", "model": "m", "log": self.log} | request
        source = {"provider": "script", "script": path} if script else {"provider": "real", "upstream_model": "real-1"}
        self.grant: Grant = self.gateway.grant(GrantRequest(**named, **source))
        transport = httpx2.HTTPTransport(uds=str(process.address.agent_socket))
        http = openai.DefaultHttpxClient(transport=transport, trust_env=False)
        self.client = openai.OpenAI(api_key=self.grant.key, base_url="http://g/v1", max_retries=0, http_client=http)

    @property
    def calls(self) -> list[Call]:
        return self.gateway.calls(self.attempt)

    def create(self, given: Any = "go", **more: Any) -> Response:
        return self.client.responses.create(model="m", input=given, tools=[EXEC], **more)


@pytest.fixture
def agent(process: GatewayProcess, tmp_path: Path) -> Iterator[Agent]:
    found = Agent(process, tmp_path)
    with found.client:
        yield found


def chunks(*deltas: dict[str, Any], finish: str = "stop", done: bool = True) -> Act:
    values = [HEAD | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = [piece("", finish), HEAD | {"choices": [], "usage": USAGE}] if done else []
    return lambda handler: handler.events([*values, *end], done=done)


def part(index: int, text: str, **head: Any) -> dict[str, Any]:
    name = {"name": head.pop("name")} if "name" in head else {}
    return {"tool_calls": [{"index": index, "function": {"arguments": text} | name} | head]}


PARALLEL = chunks(
    {"reasoning_content": "hm"}, {"content": "I "}, {"content": "look."},
    part(0, "", id="a", name="exec", extra_content={"sig": 1}), part(1, '{"comm', id="b", name="exec"),
    part(0, '{"command": "ls"}'), part(1, 'and": "id"}'),
    finish="tool_calls",
)  # fmt: skip


def test_a_whole_response(agent: Agent, upstream: Upstream) -> None:
    upstream.play(ok("fine"))
    answer = agent.create(instructions="be short", store=False, prompt_cache_key="k")
    assert (answer.status, answer.output_text, answer.model) == ("completed", "fine", "m")
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (11, 3)
    sent = upstream.requests[0]
    assert sent["path"] == "/v1/chat/completions"
    assert sent["headers"]["authorization"] == "Bearer sk-real"
    assert sent["body"]["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "go"}]
    assert (sent["body"]["model"], sent["body"]["tools"][0]["function"]["name"]) == ("real-1", "exec")
    assert "prompt_cache_key" not in sent["body"]
    (call,) = agent.calls
    assert (call.call_class, call.stream, call.input_tokens, call.finish_reason) == ("ok", False, 11, "stop")


def test_a_stream_of_parallel_calls(agent: Agent, upstream: Upstream) -> None:
    upstream.play(PARALLEL)
    events = list(agent.create(stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    output = events[-1].response.output
    assert [item.type for item in output] == ["reasoning", "message", "function_call", "function_call"]
    assert [json.loads(item.arguments) for item in output[2:]] == [{"command": "ls"}, {"command": "id"}]
    assert events[-1].response.usage.output_tokens_details.reasoning_tokens == 1
    assert upstream.requests[0]["body"]["stream_options"] == {"include_usage": True}
    (call,) = agent.calls
    assert (call.stream, call.finish_reason, call.output_tokens) == (True, "tool_calls", 3)


def test_the_stream_helper_and_the_next_request(agent: Agent, upstream: Upstream) -> None:
    upstream.play(PARALLEL, ok("done"))
    with agent.client.responses.stream(model="m", input="go", tools=[EXEC]) as stream:
        final = stream.get_final_response()
    given: list[Any] = [{"role": "user", "content": "go"}]
    given += [item.model_dump(exclude={"parsed_arguments"}, exclude_none=True) for item in final.output]
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    given += [
        {"type": "function_call_output", "call_id": "b", "output": "root"},
        {"type": "function_call_output", "call_id": "a", "output": [{"type": "input_text", "text": "x"}, image]},
    ]
    assert agent.create(given).output_text == "done"
    sent = upstream.requests[1]["body"]["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool", "user"]
    assert (sent[1]["content"], sent[1]["reasoning_content"]) == ("I look.", "hm")
    assert sent[1]["tool_calls"][0]["extra_content"] == {"sig": 1}
    assert "extra_content" not in sent[1]["tool_calls"][1]
    assert [m["content"] for m in sent[2:4]] == ["x", "root"]
    assert sent[4]["content"][1]["image_url"]["url"] == image["image_url"]


def test_extra_content_stays_with_its_grant(process: GatewayProcess, upstream: Upstream, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (Agent(process, folder) for folder in folders)
    upstream.play(PARALLEL, ok())
    with one.client, two.client:
        list(one.create(stream=True))
        call = {"type": "function_call", "call_id": "a", "name": "exec", "arguments": "{}"}
        two.create([{"role": "user", "content": "x"}, call])
    assert "extra_content" not in upstream.requests[1]["body"]["messages"][1]["tool_calls"][0]


def test_the_exchange_log_has_the_chat_form_and_the_notes(agent: Agent, upstream: Upstream) -> None:
    upstream.play(PARALLEL)
    tools: Any = [EXEC, {"type": "web_search"}]
    list(agent.client.responses.create(model="m", input="go", tools=tools, stream=True))
    assert [m["role"] for m in rebuild_messages(agent.log)] == ["user", "assistant"]
    (row,) = [json.loads(line) for line in (agent.log / "exchanges.jsonl").read_text().splitlines()]
    assert row["notes"] == ["tool web_search left out: a chat provider does not run tools"]
    assert row["chunks"][0]["choices"][0]["delta"] == {"reasoning_content": "hm"}


def test_an_answer_that_was_cut_off(agent: Agent, upstream: Upstream) -> None:
    upstream.play(chunks({"content": "half"}, finish="length"))
    events = list(agent.create(stream=True, max_output_tokens=5))
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    assert upstream.requests[0]["body"]["max_tokens"] == 5
    assert agent.calls[0].finish_reason == "length"


def test_a_stream_that_breaks_is_failed(agent: Agent, upstream: Upstream) -> None:
    upstream.play(chunks({"content": "half"}, done=False))
    events = list(agent.create(stream=True))
    assert [event.type for event in events][-1] == "response.failed"
    assert events[-1].response.error.code == "server_error"
    assert agent.calls[0].call_class == "stream_broken"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("act", "raised", "call_class"),
    [
        (error(429, "slow", "rate_limit_error"), openai.RateLimitError, "rate_limit"),
        (error(400, "too many tokens", code="context_length_exceeded"), openai.BadRequestError, "context_length"),
        (error(500), openai.InternalServerError, "infra"),
        (lambda handler: handler.whole(200, "<html>", "text/html"), openai.InternalServerError, "bad_upstream"),
    ],
    ids=["429", "context", "500", "html"],
)
def test_failures_before_the_first_byte_are_http_errors(
    agent: Agent, upstream: Upstream, act: Act, raised: type[openai.APIStatusError], call_class: str, stream: bool
) -> None:
    upstream.play(act)
    with pytest.raises(raised) as caught:
        agent.create(stream=stream)
    assert caught.value.response.headers["x-uniclaw-class"] == call_class
    assert set(caught.value.body or ()) == {"message", "type", "param", "code"}  # type: ignore[arg-type]
    assert agent.calls[0].call_class == call_class


def test_what_needs_a_memory_is_refused(agent: Agent) -> None:
    with pytest.raises(openai.BadRequestError, match="'previous_response_id' is not supported: this service stores"):
        agent.create(previous_response_id="resp_1")
    with pytest.raises(openai.NotFoundError, match="does not exist for this key"):
        agent.client.responses.create(model="other", input="x")
    with pytest.raises(openai.NotFoundError):
        agent.client.responses.retrieve("resp_1")
    assert [(call.call_class, call.tries) for call in agent.calls] == [("bad_request", 0)] * 2


@pytest.mark.parametrize("kind", [["x"], {"x": 1}, 5])
def test_a_content_part_whose_type_is_no_text_is_refused(agent: Agent, kind: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="the type of a content part must be a text") as caught:
        agent.create([{"role": "user", "content": [{"type": kind, "text": "x"}]}])
    assert set(caught.value.body or ()) == {"message", "type", "param", "code"}  # type: ignore[arg-type]
    assert [call.call_class for call in agent.calls] == ["bad_request"]


def test_an_output_limit_that_is_no_number_is_refused(agent: Agent) -> None:
    with pytest.raises(openai.BadRequestError, match="'max_output_tokens' must be a whole number"):
        agent.create("go", max_output_tokens=-5)


def test_a_client_that_leaves_frees_the_provider(agent: Agent, upstream: Upstream) -> None:
    def slow(handler: Any) -> None:
        handler.events([piece("one ")], done=False)
        handler.close_connection = False
        try:
            for _ in range(200):
                handler.wfile.write(b": wait\n\n")
                handler.wfile.flush()
                if handler.server.release.wait(0.05):
                    break
        except OSError:
            handler.server.gone.set()

    upstream.play(slow)
    stream = agent.create(stream=True)
    assert next(iter(stream)).type == "response.created"
    stream.close()
    assert upstream.gone.wait(5)
    assert agent.calls[0].call_class == "cancelled"


@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
@pytest.mark.parametrize("url", ["/v1/responses", "/v1/chat/completions"])
def test_compressed_requests(
    process: GatewayProcess, agent: Agent, upstream: Upstream, coding: str, pack: Any, url: str
) -> None:
    upstream.play(ok("fine"))
    body = {"model": "m", "input": "go", "messages": [{"role": "user", "content": "go"}]}
    connection = UnixConnection(process.address.agent_socket)
    headers = {"authorization": f"Bearer {agent.grant.key}", "content-encoding": coding}
    connection.request("POST", url, pack(json.dumps(body).encode()), headers)
    assert b"fine" in connection.getresponse().read()
    connection.request("POST", url, b"{}", headers | {"content-encoding": "br"})
    refused = connection.getresponse()
    assert (refused.status, json.loads(refused.read())["error"]["type"]) == (415, "invalid_request_error")
    connection.close()


SCRIPT = """
turns:
  - - think: I look first.
      shell: "echo hi > out.txt; cat out.txt"
    - calls: [{shell: "echo one"}, {shell: "echo two"}]
    - say: "turn {turn} printed: {last_tool_output}"
  - - say: "turn {turn}"
"""


def test_the_script_speaks_responses_too(process: GatewayProcess, tmp_path: Path) -> None:
    agent = Agent(process, tmp_path, SCRIPT)
    given: list[Any] = [
        {"role": "user", "content": "<environment_context>\n</environment_context>"},
        {"role": "user", "content": "go"},
    ]
    with agent.client:
        for expected in (["reasoning", "function_call"], ["function_call", "function_call"], ["message"]):
            answer = agent.create(given)
            assert [item.type for item in answer.output] == expected
            given += [item.model_dump(exclude_none=True) for item in answer.output]
            calls = [item for item in answer.output if item.type == "function_call"]
            given += [{"type": "function_call_output", "call_id": c.call_id, "output": c.arguments} for c in calls]
        assert answer.output_text == 'turn 1 printed: {"command": "echo two"}'
        assert agent.create([*given, {"role": "user", "content": "more"}]).output_text == "turn 2"


def test_the_events_on_the_wire_are_typed(process: GatewayProcess, agent: Agent, upstream: Upstream) -> None:
    upstream.play(ok("fine"))
    body = {"model": "m", "input": "go", "stream": True}
    reply = post(process.address.agent_socket, agent.grant.key, body, url="/v1/responses")
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in reply.text.strip().split("\n\n")]
    assert [event["event"] for event in events] == [json.loads(event["data"])["type"] for event in events]
    assert events[-1]["event"] == "response.completed"


# ------------------------------------------------------------------------------------------------- real Codex


@contextmanager
def codex(agent: Agent, folder: Path, port: int) -> Iterator[Any]:
    """Yield a function that runs one ``codex exec`` and returns its events."""
    program = shutil.which("codex")
    if program is None:
        pytest.skip("NOT RUN: there is no codex; npm install -g @openai/codex@0.171.0")
    home, work = folder / "home", folder / "work"
    for made in (home, work):
        made.mkdir()
    (home / "config.toml").write_text(
        f'model = "{agent.grant.model}"\nmodel_provider = "gateway"\n[model_providers.gateway]\nname = "gateway"\n'
        f'base_url = "http://127.0.0.1:{port}/v1"\nenv_key = "GATEWAY_KEY"\nwire_api = "responses"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
    )
    environment = os.environ | {"CODEX_HOME": str(home), "GATEWAY_KEY": agent.grant.key}  # noqa: TID251
    base = [program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]

    def run(*arguments: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [*base, "-C", str(work), *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    yield run


PATCH = "*** Begin Patch\\n*** Add File: a.txt\\n+hello\\n*** End Patch\\n"


def test_real_codex_calls_a_custom_tool(process: GatewayProcess, tmp_path: Path) -> None:
    script = f'turns: [[{{call: {{name: apply_patch, arguments: {{input: "{PATCH}"}}}}}}, {{say: done}}]]'
    agent = Agent(process, tmp_path, script, model="gpt-5.5")  # codex offers it to models that it knows
    agent.client.close()
    with relayed(process.address.agent_socket) as port, codex(agent, tmp_path, port) as run:
        events = run("Patch it")
    assert (tmp_path / "work" / "a.txt").read_text() == "hello\n"
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    assert [item["type"] for item in items] == ["file_change", "agent_message"]


def test_real_codex_is_replayed_elsewhere(tmp_path: Path) -> None:
    folders = [tmp_path / "here", tmp_path / "there" / "deeper"]
    file = tmp_path / "lane.jsonl"
    said, reports = [], []
    for folder, request in zip(folders, ({}, {"cassette": file}), strict=True):
        folder.mkdir(parents=True)
        named = {"HOME": str(folder / "home"), "WORK": str(folder / "work")}
        with start_gateway(folder / "gateway") as started:
            agent = Agent(started, folder, SCRIPT, variables=named, **request)
            agent.client.close()
            with relayed(started.address.agent_socket) as port, codex(agent, folder, port) as run:
                events = run("Make the report")
            reports += agent.gateway.replays(agent.attempt)
            calls = agent.calls
            agent.gateway.revoke(agent.grant)
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        said.append(sorted(item["aggregated_output"] for item in items if item["type"] == "command_execution"))
        assert (folder / "work" / "out.txt").read_text() == "hi\n"
        assert [call.call_class for call in calls] == ["ok"] * 3
        if not file.exists():
            make_cassette(folder / "log", file, lane="codex/task/a1/executor", metadata={}, variables=named)
    assert said[0] == said[1]
    assert [report.exact for report in reports] == [True]


def test_real_codex_on_the_script(process: GatewayProcess, tmp_path: Path) -> None:
    agent = Agent(process, tmp_path, SCRIPT)
    agent.client.close()
    with relayed(process.address.agent_socket) as port, codex(agent, tmp_path, port) as run:
        events = run("Make the report")
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        commands = [item for item in items if item["type"] == "command_execution"]
        assert sorted(c["aggregated_output"] for c in commands) == ["hi\n", "one\n", "two\n"]
        assert [c["exit_code"] for c in commands] == [0, 0, 0]
        assert items[-1]["text"].startswith("turn 1 printed: ")
        assert "two" in items[-1]["text"]
        assert events[-1]["type"] == "turn.completed"
        assert events[-1]["usage"]["input_tokens"] > 0
        later = run("resume", events[0]["thread_id"], "More")
        assert [e["item"].get("text") for e in later if e["type"] == "item.completed"][-1:] == ["turn 2"]
    assert (tmp_path / "work" / "out.txt").read_text() == "hi\n"
    assert [call.call_class for call in agent.calls] == ["ok"] * 4
    roles = [message["role"] for message in rebuild_messages(agent.log) if message["role"] in ("assistant", "tool")]
    assert roles == ["assistant", "tool", "assistant", "tool", "tool", "assistant", "assistant"]
