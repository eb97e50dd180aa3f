"""The gateway as agents and the harness meet it: a real process, real sockets, the scripted provider."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import itertools
import json
import pickle
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from textwrap import dedent

import pytest
from aiohttp.test_utils import TestClient, TestServer

from pytest_uniclaw.errors import InfraError, SettingsError, TaskError
from pytest_uniclaw.models.client import Gateway, GatewayAddress, GatewayProcess, start_gateway
from pytest_uniclaw.models.exchange import rebuild_messages
from pytest_uniclaw.models.gateway import AgentApp
from pytest_uniclaw.models.grants import Call, Grant, GrantRequest, Tuning
from pytest_uniclaw.models.ledger import Ledger
from pytest_uniclaw.models.registry import Registry
from tests.support.scripted_upstream import Reply, UnixConnection, ask

pytestmark = pytest.mark.processes

COUNT = itertools.count(1)
EXEC = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
SHELL = {"type": "function", "function": {"name": "exec", "parameters": EXEC}}
USER = {"role": "user", "content": "Make the report"}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path_factory.mktemp("gateway")) as started:
        yield started
    assert "pytest_uniclaw" not in (started.directory / "gateway.log").read_text()


@pytest.fixture
def gateway(process: GatewayProcess) -> Gateway:
    address: GatewayAddress = pickle.loads(pickle.dumps(process.address))
    return Gateway(address)


def tool(name: str, argument: str, kind: str) -> dict:
    return {"name": name, "parameters": {"properties": {argument: {"type": kind}}, "required": [argument]}}


def wish(**extra: object) -> dict:
    return {"model": "agent-model", "messages": [USER]} | extra


class Session:
    """One grant and the conversation of an agent that uses it."""

    def __init__(self, gateway: Gateway, folder: Path, steps: str, **limits: object) -> None:
        script = folder / "model.yaml"
        script.write_text("turns:\n  - " + dedent(steps).strip().replace("\n", "\n    ") + "\n", encoding="utf-8")
        self.gateway = gateway
        self.attempt = f"attempt-{next(COUNT)}"
        self.log = folder / "log"
        asked = {"attempt": self.attempt, "role": "executor", "model": "agent-model", "provider": "script"}
        self.grant: Grant = gateway.grant(GrantRequest(**asked, script=script, log=self.log, **limits))
        self.messages: list[dict] = [USER]

    def ask(self, *, stream: bool = True, **extra: object) -> Reply:
        body = {"model": "agent-model", "messages": self.messages, "stream": stream, "tools": [SHELL]} | extra
        return ask(self.gateway.address.agent_socket, self.grant.key, body)

    @property
    def calls(self) -> list[Call]:
        return self.gateway.calls(self.attempt)


def test_a_whole_turn_streamed(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, """
        - shell: "echo hi > out"
        - think: hm
          say: "turn {turn} printed: {last_tool_output}"
    """)  # fmt: skip
    first = session.ask(stream_options={"include_usage": True})
    assert first.headers["content-type"].startswith("text/event-stream")
    assert first.events[-1] == "[DONE]"
    assert first.events[-2]["choices"] == []
    assert first.events[-2]["usage"]["prompt_tokens"] > 0
    rebuilt = rebuild_messages(session.log)[-1]
    (called,) = rebuilt["tool_calls"]
    assert called["function"]["name"] == "exec"
    assert json.loads(called["function"]["arguments"]) == {"command": "echo hi > out"}
    assert first.events[-3]["choices"][0]["finish_reason"] == "tool_calls"
    session.messages += [rebuilt, {"role": "tool", "tool_call_id": called["id"], "content": "hi {turn}"}]
    second = session.ask()
    assert second.said == "turn 1 printed: hi {turn}"
    assert all(event.get("choices") for event in second.events if event != "[DONE]"), "usage was not asked for"
    one, two = session.calls
    assert [(c.n, c.call_class, c.status, c.stream, c.tries) for c in (one, two)] == [
        (1, "ok", 200, True, 1),
        (2, "ok", 200, True, 1),
    ]
    assert (one.attempt, one.role, one.provider, one.grant) == (session.attempt, "executor", "script", session.grant.id)
    assert two.finish_reason == "stop"
    assert two.input_tokens
    assert two.output_tokens
    assert (two.cost_usd, two.cache_read_tokens) == (0.0, None), "the script is free, and says nothing of caches"
    assert [m["role"] for m in rebuild_messages(session.log)] == ["user", "assistant", "tool", "assistant"]


def test_a_turn_without_streaming(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- calls: [{shell: ls}, {name: view, arguments: {path: a}}]\n- say: done")
    reply = session.ask(stream=False).json
    calls = reply["choices"][0]["message"]["tool_calls"]
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == [
        ("exec", {"command": "ls"}),
        ("view", {"path": "a"}),
    ]
    assert len({c["id"] for c in calls}) == 2
    assert reply["usage"]["total_tokens"] == reply["usage"]["prompt_tokens"] + reply["usage"]["completion_tokens"]
    results = [{"role": "tool", "tool_call_id": c["id"], "content": "ok"} for c in calls]
    session.messages += [reply["choices"][0]["message"], *results]
    assert session.ask(stream=False).said == "done"


def test_images_and_openclaws_own_user_messages(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- call: {name: read, arguments: {path: r.png}}\n- say: seen")
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 3_000_000}}
    internal = {"role": "user", "content": "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nx"}
    assert session.ask().events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    session.messages += [
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "read"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "(see attached image)"},
        {"role": "user", "content": [{"type": "text", "text": "Attached image(s) from tool result:"}, picture]},
        internal,
    ]
    assert session.ask().said == "seen"
    assert session.calls[-1].input_tokens in range(700, 2000), "an image costs a flat figure, not its base64"


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (tool("exec_command", "cmd", "string"), {"cmd": "ls"}),
        (tool("shell", "command", "array"), {"command": ["bash", "-lc", "ls"]}),
        (tool("bash", "line", "string"), {"line": "ls"}),
        ({"name": "terminal"}, {"command": "ls"}),
        ({"name": "terminal", "parameters": {"properties": [], "required": [["x"]]}}, {"command": "ls"}),
    ],
)
def test_shell_takes_the_agents_own_tool(gateway: Gateway, tmp_path: Path, schema: dict, expected: dict) -> None:
    session = Session(gateway, tmp_path, "- shell: ls")
    reply = session.ask(stream=False, tools=[{"type": "function", "function": schema}]).json
    (called,) = reply["choices"][0]["message"]["tool_calls"]
    assert called["function"]["name"] == schema["name"]
    assert json.loads(called["function"]["arguments"]) == expected


def test_a_script_that_needs_a_shell_the_agent_lacks_is_a_replay_miss(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- shell: ls")
    reply = session.ask(tools=[{"type": "function", "function": {"name": "view"}}])
    assert (reply.status, session.calls[0].call_class) == (409, "replay_miss")
    assert "tools: view" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("step", "status", "kind", "header"),
    [
        ("fail: {status: 429, type: rate_limit, message: slow, retry_after: 2}", 429, "rate_limit", "2"),
        ("fail: {status: 429, code: insufficient_quota, message: broke}", 429, "quota", None),
        ("fail: {status: 401}", 401, "auth", None),
        ("fail: {status: 500}", 500, "infra", None),
        ("fail: {status: 400, code: context_length_exceeded}", 400, "context_length", None),
        ("fail: {status: 400, code: content_filter}", 400, "content_filter", None),
        ("fail: {status: 422, message: bad}", 422, "bad_request", None),
    ],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_scripted_failures_reach_the_agent_and_are_classified(
    gateway: Gateway, tmp_path: Path, step: str, status: int, kind: str, header: str | None, stream: bool
) -> None:
    session = Session(gateway, tmp_path, f"- {step}")
    reply = session.ask(stream=stream)
    assert (reply.status, reply.headers["x-uniclaw-class"], reply.headers.get("retry-after")) == (status, kind, header)
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert "x-should-retry" not in reply.headers, "the agent's own retries are what is tested"
    (call,) = session.calls
    tokens = 0 if kind in {"rate_limit", "quota", "auth"} else None
    assert (call.call_class, call.status, call.tries, call.input_tokens) == (kind, status, 1, tokens)
    assert call.errors[-1].call_class == kind


def test_a_scripted_hang_ends_at_the_idle_limit(tmp_path: Path) -> None:
    with start_gateway(tmp_path / "run", tuning=Tuning(idle_seconds=0.2)) as impatient:
        session = Session(Gateway(impatient.address), tmp_path, "- hang: true")
        reply = session.ask()
        assert (reply.status, reply.json["error"]["message"]) == (504, "the script sent no byte for 0.2 s")
        assert session.calls[0].call_class == "infra"


def test_a_scripted_failure_with_times_passes(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- fail: {status: 500, times: 2}\n- say: at last")
    assert [session.ask().status for _ in range(2)] == [500, 500]
    assert session.ask().said == "at last"


def test_a_scripted_reset_gives_no_reply(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- reset: true")
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        session.ask()
    assert session.calls[0].call_class == "infra"


def test_a_scripted_body_is_passed_as_it_is(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- body: '<html>busy</html>'")
    reply = session.ask()
    assert (reply.status, reply.text) == (200, "<html>busy</html>")
    assert session.calls[0].call_class == "bad_upstream"


def test_a_scripted_break_ends_the_stream_with_an_error_event(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- break: true")
    reply = session.ask()
    assert reply.said
    assert "broke off" in reply.events[-1]["error"]["message"]
    assert session.calls[0].call_class == "stream_broken"
    assert rebuild_messages(session.log)[-1]["content"] == reply.said, "what came is kept"


def test_empty_and_malformed_answers(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, '- raw_call: {name: exec, arguments: \'{"command": "ec\'}\n- empty: true')
    reply = session.ask(stream=False).json["choices"][0]["message"]
    assert reply["tool_calls"][0]["function"]["arguments"] == '{"command": "ec'
    session.messages += [reply, {"role": "tool", "tool_call_id": "c", "content": "bad"}]
    assert session.ask().said == ""
    assert session.calls[-1].call_class == "ok"


def test_only_the_key_decides(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- say: x")
    socket_path = gateway.address.agent_socket
    for key in ("uck-unknown", "", "sk-REAL"):
        reply = ask(socket_path, key, {"model": "agent-model", "messages": [USER]})
        assert (reply.status, reply.json["error"]["code"]) == (401, "invalid_api_key")
    listed = ask(socket_path, session.grant.key, None, method="GET", url="/v1/models")
    assert [model["id"] for model in listed.json["data"]] == ["agent-model"]
    for method, url in (("GET", "/grants"), ("POST", "/v1/embeddings"), ("GET", "/v1/chat/completions")):
        reply = ask(socket_path, session.grant.key, None, method=method, url=url)
        assert reply.status in (404, 405)
        assert "message" in reply.json["error"]
    assert session.calls == []


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "not a JSON object"),
        (b"\xff\xfe", 400, "not JSON"),
        ({"model": "gpt-5", "messages": [USER]}, 404, "it may use 'agent-model'"),
        ({"model": "agent-model", "messages": []}, 400, "messages"),
        ({"model": "agent-model", "messages": [{"role": "boss"}]}, 400, "messages[0]"),
        ({"model": "agent-model", "messages": [USER], "stream": "yes"}, 400, "stream"),
        (wish(max_tokens=1.5), 400, "'max_tokens' must be a whole number"),
        (wish(max_tokens=-1), 400, "'max_tokens' must be a whole number"),
        (wish(max_tokens=True), 400, "'max_tokens' must be a whole number"),
        (wish(max_tokens=2**31), 400, "'max_tokens' must be a whole number"),
        (wish(max_tokens=int("9" * 4000)), 400, "'max_tokens' must be a whole number"),
        (wish(max_tokens=5, max_completion_tokens=1e9), 400, "'max_completion_tokens' must be a whole number"),
        (wish(n=2), 400, "'n' must be 1"),
        (wish(n=1.0), 400, "'n' must be 1"),
        (wish(metadata=[1] * 200_000), 400, "more than 200000 values"),
        (wish(metadata=[""] * 500_000), 400, "more than 200000 values"),
        (wish(metadata=[{"a": [[]]}] * 70_000), 400, "more than 200000 values"),
    ],
)
def test_bad_requests_are_the_agents_own(
    gateway: Gateway, tmp_path: Path, body: object, status: int, words: str
) -> None:
    session = Session(gateway, tmp_path, "- say: x")
    reply = ask(gateway.address.agent_socket, session.grant.key, body)
    assert reply.status == status
    assert words in reply.json["error"]["message"]
    assert [call.call_class for call in session.calls] == ["bad_request"]


@pytest.mark.parametrize(
    "extra",
    [
        {"messages": [{"role": ["user"]}]},
        {"messages": [{"role": "user", "content": {"text": "x"}}]},
        {"messages": [{"role": "tool", "content": [1, None, {"text": 5}]}, {"role": "assistant", "tool_calls": 3}]},
        {"tools": [{"function": {"name": ["exec"]}}, 5, {"function": "x"}]},
        {"tools": "exec", "stream_options": [1]},
        {"metadata": json.loads("[" * 600 + "]" * 600)},
        {"metadata": "\ud800", "messages": [{"role": "user", "content": "\udfff"}]},
    ],
)
def test_no_request_of_an_agent_makes_an_infra_error(gateway: Gateway, tmp_path: Path, extra: dict) -> None:
    session = Session(gateway, tmp_path, "- shell: ls")
    session.ask(**extra)
    assert session.calls[0].call_class in ("ok", "bad_request", "replay_miss")


def test_one_answer_and_a_stated_limit_are_fine(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- say: x")
    assert session.ask(n=1, max_tokens=2**31 - 1, max_completion_tokens=None).status == 200


@pytest.mark.parametrize("url", ["/v1/responses", "/v1/chat/completions"])
@pytest.mark.parametrize("value", [b"1", b'{"type":"text"}'])
def test_millions_of_values_do_not_hold_up_other_calls(
    gateway: Gateway, tmp_path: Path, url: str, value: bytes
) -> None:
    session = Session(gateway, tmp_path, "- say: x")
    head = b'[{"role":"user","content":['
    items = head + b",".join([value] * (60_000_000 // (len(value) + 1))) + b"]}]"
    body = gzip.compress(b'{"model":"agent-model","input":%b}' % items if "responses" in url else
                         b'{"model":"agent-model","messages":%b}' % items, 1)  # fmt: skip
    headers = {"authorization": f"Bearer {session.grant.key}", "content-encoding": "gzip"}
    with closing(UnixConnection(gateway.address.agent_socket)) as connection:
        began = time.monotonic()
        connection.request("POST", url, body, headers)
        gateway.activity(session.attempt)
        heard = time.monotonic() - began
        response = connection.getresponse()
        assert (response.status, time.monotonic() - began < 20, heard < 10) == (400, True, True)
        assert "more than 200000 values" in json.loads(response.read())["error"]["message"]
    assert [call.call_class for call in session.calls] == ["bad_request"]


def test_much_text_is_no_crowd(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- say: x")
    text = 'a,"b" [c] {d} \\ ' * 100_000
    assert session.ask(messages=[{"role": "user", "content": text}]).status == 200


def test_an_error_of_the_gateway_itself_has_openais_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise TypeError("oops")

    async def answers() -> list[tuple[int, dict]]:
        registry, ledger = Registry({}), Ledger(tmp_path)
        request = GrantRequest(attempt="a", role="executor", model="m", provider="script", log=tmp_path / "log")
        key, found = registry.issue(request, None).key, []
        async with TestClient(TestServer(AgentApp(registry, ledger, {}, {}).application())) as client:
            headers = {"authorization": f"Bearer {key}"}
            body = {"model": "m", "messages": [USER]}
            response = await client.post("/v1/chat/completions", json=body, headers=headers)
            found.append((response.status, await response.json()))
            monkeypatch.setattr("pytest_uniclaw.models.gateway._wire", broken)
            response = await client.post("/v1/chat/completions", json=body, headers=headers)
            found.append((response.status, await response.json()))
            monkeypatch.setattr(registry, "find", broken)
            response = await client.get("/v1/models", headers=headers)
            return [*found, (response.status, await response.json())]

    inside, before, outside = asyncio.run(answers())
    assert [inside[0], before[0], outside[0]] == [500, 400, 500]
    assert inside[1]["error"]["message"] == "the gateway cannot handle this request: KeyError"
    assert before[1]["error"] == {
        "message": "the gateway cannot handle this request: TypeError", "type": "invalid_request_error",
        "param": None, "code": None,
    }  # fmt: skip
    assert "oops" in capsys.readouterr().err


def test_a_body_that_does_not_decompress_is_the_agents_own(tmp_path: Path) -> None:
    with start_gateway(tmp_path / "run") as started:
        session = Session(Gateway(started.address), tmp_path, "- say: x")
        connection = UnixConnection(started.address.agent_socket)
        headers = {"authorization": f"Bearer {session.grant.key}", "content-encoding": "gzip"}
        connection.request("POST", "/v1/chat/completions", b"not gzip at all", headers)
        assert connection.getresponse().status == 400
        connection.close()
        assert [call.call_class for call in session.calls] == ["bad_request"]


def test_revoked_and_expired_keys_are_refused(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- say: x")
    assert session.ask().status == 200
    gateway.revoke(session.grant)
    gateway.revoke(session.grant)
    assert session.ask().status == 401
    assert len(session.calls) == 1
    expired = Session(gateway, tmp_path, "- say: x", expires_seconds=1e-9)
    assert expired.ask().status == 401


def test_revoking_cancels_what_is_in_flight(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- hang: true")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(session.ask)
        wait_for(lambda: gateway.activity(session.attempt).calls_in_flight == 1)
        gateway.revoke(session.grant)
        assert [call.call_class for call in session.calls] == ["cancelled"]
        assert gateway.activity(session.attempt).calls_in_flight == 0
        with pytest.raises((OSError, http.client.HTTPException)):
            answer.result(10)


def test_budgets(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- say: x", max_calls=2)
    assert [session.ask().status for _ in range(3)] == [200, 200, 403]
    refused = session.calls[-1]
    assert (refused.call_class, refused.tries, refused.status) == ("budget", 0, 403)
    assert session.ask().json["error"]["type"] == "budget_exceeded"


def test_roles_of_an_attempt_are_kept_apart(gateway: Gateway, tmp_path: Path) -> None:
    executor = Session(gateway, tmp_path, "- say: x")
    request = GrantRequest(
        attempt=executor.attempt, role="supervisor", model="judge", provider="script", log=tmp_path / "judge",
        script=tmp_path / "model.yaml",
    )  # fmt: skip
    judge = gateway.grant(request)
    executor.ask()
    assert ask(gateway.address.agent_socket, judge.key, {"model": "judge", "messages": [USER]}).said == "x"
    assert [call.role for call in gateway.calls(executor.attempt)] == ["executor", "supervisor"]
    assert [call.model for call in gateway.calls(executor.attempt, "supervisor")] == ["judge"]
    assert gateway.calls("another") == []
    assert gateway.activity("another").last_event is None


def test_activity_ages_and_counts(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- say: x")
    fresh = gateway.activity(session.attempt)
    assert (fresh.calls_in_flight, fresh.waited_seconds) == (0, 0.0)
    wait_for(lambda: (gateway.activity(session.attempt).last_event or 0) > 0.05)
    session.ask()
    assert 0 <= (gateway.activity(session.attempt, "executor").last_event or 0) < 5


def test_twenty_streams_at_once(gateway: Gateway, tmp_path: Path) -> None:
    folders = [tmp_path / str(index) for index in range(20)]
    for folder in folders:
        folder.mkdir()
    sessions = [Session(gateway, folder, f"- say: '{'word ' * 400}{folder.name}'") for folder in folders]
    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(Session.ask, sessions))
    assert [reply.said.split()[-1] for reply in replies] == [folder.name for folder in folders]
    assert all([call.call_class for call in session.calls] == ["ok"] for session in sessions)


def test_the_ledger_on_disk_has_the_same_rows(gateway: Gateway, process: GatewayProcess, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- say: x")
    session.ask()
    written = process.directory / "ledger.jsonl"
    rows = [row for line in written.read_text().splitlines() if (row := json.loads(line))["attempt"] == session.attempt]
    assert [Call.model_validate(row) for row in rows] == session.calls
    assert (rows[0]["class"], rows[0]["cost_usd"]) == ("ok", 0.0)
    assert session.grant.key not in written.read_text()


def test_secrets_do_not_reach_the_exchange_log(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- say: 'you wrote {last_tool_output}'", secrets=("hunter22",))
    session.messages.append({"role": "tool", "tool_call_id": "x", "content": f"hunter22 and {session.grant.key}"})
    assert session.ask().said.startswith("you wrote hunter22"), "the agent's own traffic is not touched"
    stored = "".join(path.read_text() for path in sorted(session.log.rglob("*.json*")))
    assert "hunter22" not in stored
    assert session.grant.key not in stored
    assert "[redacted] and [redacted]" in stored


def test_a_grant_reports_what_is_wrong_with_it(gateway: Gateway, tmp_path: Path) -> None:
    bad = tmp_path / "model.yaml"
    bad.write_text("turns:\n  - - sya: x\n")
    asked = GrantRequest(attempt="a", role="executor", model="m", provider="script", script=bad, log=tmp_path / "log")
    with pytest.raises(TaskError, match="did you mean say") as caught:
        gateway.grant(asked)
    assert (caught.value.path, caught.value.line, caught.value.field) == (bad, 2, "turns[0][0].sya")
    for change, words in (
        ({"script": tmp_path / "none.yaml"}, "none.yaml: there is no such script"),
        ({"script": None}, "needs a script"),
        ({"provider": "scirpt"}, "did you mean script"),
    ):
        with pytest.raises(SettingsError, match=words):
            gateway.grant(asked.model_copy(update=change))


def test_sockets_are_open_to_agents_and_shut_to_others(gateway: Gateway) -> None:
    address = gateway.address
    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for socket_path in (address.agent_socket, address.admin_socket)
        for path in (socket_path, socket_path.parent)
    ]
    assert modes == [0o666, 0o755, 0o600, 0o700]
    assert [path.name for path in address.agent_socket.parent.iterdir()] == ["agent.sock"]
    assert len(str(address.agent_socket)) < 100


def test_a_client_that_leaves_is_recorded(gateway: Gateway, tmp_path: Path) -> None:
    session = Session(gateway, tmp_path, "- hang: true")
    connection = UnixConnection(gateway.address.agent_socket)
    body = json.dumps({"model": "agent-model", "messages": [USER], "stream": True})
    connection.request("POST", "/v1/chat/completions", body, {"authorization": f"Bearer {session.grant.key}"})
    wait_for(lambda: gateway.activity(session.attempt).calls_in_flight == 1)
    connection.close()
    wait_for(lambda: bool(session.calls))
    assert [(call.call_class, call.status) for call in session.calls] == [("cancelled", 499)]


def test_a_gateway_that_is_gone_is_an_infra_error(tmp_path: Path) -> None:
    nowhere = GatewayAddress(tmp_path / "agent.sock", tmp_path / "admin.sock")
    with pytest.raises(InfraError, match="does not answer"):
        Gateway(nowhere).calls("a")


def wait_for(condition: object, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.005)
