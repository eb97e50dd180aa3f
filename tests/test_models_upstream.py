"""Real providers, played by a server on loopback: retries, classes, streams, cancels, and where the key may go."""

from __future__ import annotations

import asyncio
import itertools
import json
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.exchange import rebuild_messages
from pytest_uniclaw.models.grants import Call, GrantRequest, Provider, Tuning, provider_failure
from pytest_uniclaw.models.provider import CoolDown
from tests.support.scripted_upstream import (
    Handler,
    Reply,
    UnixConnection,
    Upstream,
    ask,
    completion,
    error,
    ok,
    piece,
    running_upstream,
    usage_chunk,
)

pytestmark = pytest.mark.processes

COUNT = itertools.count(1)
KEY = "sk-REAL-3f9a77c1"
COOLED = tuple(f"cooled-{number}" for number in range(1, 6))
"""Providers that one test each makes cool down."""
USER = {"role": "user", "content": "hello"}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


@pytest.fixture(scope="module")
def process(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        providers = (
            Provider(name="real", base_url=upstream.base_url, api_key=KEY),
            Provider(name="plain", base_url=upstream.base_url, stream_usage=False),
            *(Provider(name=name, base_url=upstream.base_url) for name in COOLED),
            Provider(name="dead", base_url=dead, api_key=KEY),
        )
        tuning = Tuning(backoff_seconds=0.01)
        with start_gateway(tmp_path_factory.mktemp("gateway"), providers, tuning=tuning) as started:
            yield started
        assert "pytest_uniclaw" not in (started.directory / "gateway.log").read_text()


@pytest.fixture
def impatient(upstream: Upstream, tmp_path: Path) -> Iterator[Session]:
    provider = Provider(name="real", base_url=upstream.base_url)
    with start_gateway(tmp_path / "run", [provider], tuning=Tuning(idle_seconds=0.5)) as started:
        yield Session(started, tmp_path)


class Session:
    """A grant for the real provider, with a model of its own."""

    def __init__(self, process: GatewayProcess, folder: Path, provider: str = "real", **limits: object) -> None:
        self.gateway = Gateway(process.address)
        self.attempt = f"attempt-{next(COUNT)}"
        self.model = f"model-of-{self.attempt}"
        self.log = folder / "log"
        self.grant = self.gateway.grant(
            GrantRequest(
                attempt=self.attempt, role="executor", model="agent-model", provider=provider,
                upstream_model=self.model, log=self.log, **limits,
            )
        )  # fmt: skip

    def ask(self, *, stream: bool = True, **extra: object) -> Reply:
        body = {"model": "agent-model", "messages": [USER], "stream": stream} | extra
        return ask(self.gateway.address.agent_socket, self.grant.key, body)

    @property
    def call(self) -> Call:
        return self.gateway.calls(self.attempt)[-1]


@pytest.fixture
def session(process: GatewayProcess, tmp_path: Path) -> Session:
    return Session(process, tmp_path)


def test_stream_passes_through_with_the_real_key_and_model(upstream: Upstream, session: Session) -> None:
    upstream.play(ok("hello there"))
    reply = session.ask(temperature=0.5)
    assert reply.said == "hello there"
    assert reply.events[-1] == "[DONE]"
    assert all(event == "[DONE]" or event["choices"] for event in reply.events), "the client did not ask for usage"
    (sent,) = upstream.requests
    assert sent["headers"]["authorization"] == f"Bearer {KEY}"
    assert sent["path"] == "/v1/chat/completions"
    assert sent["body"]["model"] == f"model-of-{session.attempt}"
    assert sent["body"]["stream_options"] == {"include_usage": True}
    assert sent["body"]["temperature"] == 0.5
    assert session.grant.key not in json.dumps(upstream.requests)
    call = session.call
    assert (call.call_class, call.finish_reason, call.tries, call.errors) == ("ok", "stop", 1, ())
    assert (call.input_tokens, call.output_tokens, call.cache_read_tokens, call.cache_write_tokens) == (11, 3, 4, None)
    assert rebuild_messages(session.log) == [USER, {"role": "assistant", "content": "hello there"}]


def test_whole_answers_and_asked_for_usage(upstream: Upstream, session: Session) -> None:
    upstream.play(ok("whole"))
    assert session.ask(stream=False).json == completion("whole")
    assert session.call.input_tokens == 11
    upstream.play(ok())
    assert session.ask(stream_options={"include_usage": True}).events[-2] == usage_chunk()


def test_chunks_arrive_before_the_stream_ends(upstream: Upstream, session: Session) -> None:
    def act(handler: Handler) -> None:
        handler.events([piece("early")], done=False)
        upstream.release.wait(10)
        handler.wfile.write(f"data: {json.dumps(piece('late', 'stop'))}\n\n".encode())

    upstream.play(act)
    connection = UnixConnection(session.gateway.address.agent_socket)
    body = json.dumps({"model": "agent-model", "messages": [USER], "stream": True})
    connection.request("POST", "/v1/chat/completions", body, {"authorization": f"Bearer {session.grant.key}"})
    response = connection.getresponse()
    assert b"early" in response.readline()
    upstream.release.set()
    rest = response.read()
    connection.close()
    assert b"late" in rest
    assert rest.endswith(b"data: [DONE]\n\n"), "a finish reason without [DONE] is complete"
    assert session.call.call_class == "ok"


def test_a_stream_that_is_answered_whole_is_cut_into_chunks(upstream: Upstream, session: Session) -> None:
    upstream.play(lambda handler: handler.whole(200, completion("not streamed")))
    assert session.ask().said == "not streamed"
    assert session.call.input_tokens == 11


def test_rate_limit_is_waited_for_and_the_waiting_is_counted(upstream: Upstream, session: Session) -> None:
    upstream.play(error(429, "slow", "rate_limit", retry_after_ms="80"), ok("at last"))
    assert session.ask().said == "at last"
    call = session.call
    assert (call.call_class, call.tries, [failure.call_class for failure in call.errors]) == ("ok", 2, ["rate_limit"])
    assert 0.08 <= call.waited_seconds <= call.ms / 1000 + 0.001
    assert call.errors[0].retry_after == 0.08
    assert session.gateway.activity(session.attempt).waited_seconds == pytest.approx(call.waited_seconds, abs=0.05)


def test_a_cool_down_is_shared(upstream: Upstream, process: GatewayProcess, tmp_path: Path) -> None:
    session = Session(process, tmp_path, "cooled-1")
    upstream.play(error(429, "slow", "rate_limit", retry_after="1"), ok())
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(session.ask)
        wait_for(lambda: session.gateway.activity(session.attempt).waited_seconds > 0)
        others = [pool.submit(session.ask) for _ in range(3)]
        assert {future.result().said for future in (first, *others)} == {"fine"}
    calls = session.gateway.calls(session.attempt)
    assert sorted(call.tries for call in calls) == [1, 1, 1, 2], "the others did not run into the limit"
    assert sum(call.waited_seconds > 0 for call in calls) == 4
    waited = session.gateway.activity(session.attempt).waited_seconds
    assert waited < sum(call.waited_seconds for call in calls), "waiting together counts once"


def test_other_models_of_the_provider_wait_too(upstream: Upstream, process: GatewayProcess, tmp_path: Path) -> None:
    one, other = (Session(process, tmp_path / name, "cooled-4") for name in "ab")
    upstream.play(error(429, "slow down, all of you", "rate_limit", retry_after="1"), ok())
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(one.ask)
        wait_for(lambda: one.gateway.activity(one.attempt).waited_seconds > 0)
        assert other.ask().said == "fine"
        assert first.result().said == "fine"
    assert (other.call.tries, len(other.call.errors)) == (1, 0), "it did not run into the limit"
    assert other.call.waited_seconds > 0


def test_a_limit_of_one_model_does_not_stop_another(
    upstream: Upstream, process: GatewayProcess, tmp_path: Path
) -> None:
    one, other = (Session(process, tmp_path / name, "cooled-5") for name in "ab")
    said = f"Rate limit reached for {one.model} in organization org-x on tokens per min (TPM)"
    upstream.play(error(429, said, "tokens", "rate_limit_exceeded", retry_after="3600"), ok())
    assert one.ask().status == 429
    assert other.ask().said == "fine"
    assert (other.call.tries, other.call.waited_seconds) == (1, 0.0)
    assert one.ask().status == 429


def test_how_long_a_limit_holds_for_whom() -> None:
    async def left(model: str, said: str, seconds: float) -> list[float]:
        cooling = CoolDown(60.0)
        cooling.note(model, seconds, said)
        cooling.note(model, 0.1, said)
        return [round(cooling.left(name), 1) for name in ("gpt-4", "gpt-4.1", "o3")]

    assert asyncio.run(left("gpt-4", "slow down", 30)) == [30.0, 30.0, 30.0]
    assert asyncio.run(left("gpt-4", "slow down", 3600)) == [3600.0, 60.0, 60.0]
    assert asyncio.run(left("gpt-4", "slow down, gpt-4.1 is busy", 30)) == [30.0, 30.0, 30.0]
    for said in ("the limit of gpt-4.", "models/gpt-4 (TPM)", "`gpt-4`: 10 a minute"):
        quiet, *others = asyncio.run(left("gpt-4", said, 3600))
        assert quiet == 3600.0
        assert max(others) < 0, said


def test_a_long_retry_after_is_not_waited_for(upstream: Upstream, process: GatewayProcess, tmp_path: Path) -> None:
    session = Session(process, tmp_path, "cooled-2")
    upstream.play(error(429, "tomorrow", "rate_limit", retry_after="3600"), ok())
    reply = session.ask()
    assert (reply.status, reply.headers["retry-after"], reply.headers["x-should-retry"]) == (429, "3600", "false")
    assert (session.call.call_class, session.call.tries) == ("rate_limit", 1)
    assert session.ask().status == 429
    assert session.call.tries == 0, "the provider is left alone for so long"
    assert getattr(provider_failure(session.gateway.calls(session.attempt)), "call_class", None) == "rate_limit"


@pytest.mark.parametrize(
    ("act", "kind", "status", "tries"),
    [
        (error(429, "pay", "insufficient_quota", "insufficient_quota"), "quota", 429, 1),
        (error(401, f"Incorrect API key provided: {KEY}"), "auth", 401, 1),
        (error(400, "x", "invalid_request_error", "context_length_exceeded"), "context_length", 400, 1),
        (error(400, "x", "invalid_request_error", "content_filter"), "content_filter", 400, 1),
        (error(422, "unknown parameter"), "bad_request", 422, 1),
        (error(403, "this key may not use the model"), "auth", 403, 1),
        (error(404, "The model does not exist", code="model_not_found"), "infra", 502, 1),
        (error(503, "overloaded", retry_after_ms="1"), "infra", 503, 5),
        (error(500), "infra", 500, 5),
        (error(429, "slow", "rate_limit", retry_after_ms="1"), "rate_limit", 429, 5),
        (error(429, "slow", "rate_limit"), "rate_limit", 429, 5),
        (lambda handler: handler.whole(429, "<html>slow</html>", "text/html"), "rate_limit", 429, 5),
        (lambda handler: handler.whole(413, "<html>too large</html>", "text/html"), "bad_request", 413, 1),
        (lambda handler: handler.whole(502, "<html>bad gateway</html>", "text/html"), "infra", 502, 5),
        (lambda handler: handler.whole(200, "<html>hi</html>", "text/html"), "bad_upstream", 502, 5),
        (lambda handler: handler.whole(302, "", location="http://127.0.0.1:9/"), "infra", 502, 1),
        (Handler.hang_up, "infra", 502, 5),
        (lambda handler: handler.events([{"error": {"message": "busy", "code": 429}}]), "rate_limit", 429, 5),
        (lambda handler: handler.events([]), "bad_upstream", 502, 5),
    ],
    ids=[
        "quota", "auth", "context", "filter", "422", "403", "404", "503", "500", "429", "429-bare", "429-html",
        "413-html", "html502", "html200", "redirect", "closed", "event", "empty",
    ],
)  # fmt: skip
def test_failures(upstream: Upstream, session: Session, act: object, kind: str, status: int, tries: int) -> None:
    upstream.play(act)
    reply = session.ask()
    assert (reply.status, reply.headers["x-uniclaw-class"]) == (status, kind)
    assert set(reply.json["error"]) == {"message", "type", "param", "code"}
    assert KEY not in reply.text
    call = session.call
    assert (call.call_class, call.status, call.tries, len(call.errors)) == (kind, status, tries, tries)
    assert call.ttfb_ms is None
    assert ("x-should-retry" in reply.headers) is True


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_an_answer_that_is_cut_off_in_its_middle(upstream: Upstream, session: Session, stream: bool) -> None:
    def act(handler: Handler) -> None:
        data = json.dumps(piece("x") if stream else completion()).encode()
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream" if stream else "application/json")
        handler.send_header("content-length", "1000")
        handler.end_headers()
        handler.wfile.write(b"data: " + data[:20] if stream else data[:20])
        handler.hang_up()

    upstream.play(act, ok("whole again"))
    assert session.ask(stream=stream).said == "whole again", "nothing had reached the client: another try is free"
    (failure,) = session.call.errors
    assert (session.call.tries, failure.call_class) == (2, "stream_broken" if stream else "infra")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"error": {"message": "blocked", "code": "content_filter"}}, "content_filter"),
        ({"error": {"message": "This model's maximum context length is 8192 tokens"}}, "context_length"),
    ],
)
def test_what_the_request_provoked_is_its_own_in_a_stream_too(
    upstream: Upstream, session: Session, event: object, kind: str
) -> None:
    upstream.play(lambda handler: handler.events([piece("well"), event]))
    assert "error" in session.ask().events[-1]
    assert session.call.call_class == kind
    assert provider_failure([session.call]) is None


def test_words_of_the_model_about_errors_are_no_errors(upstream: Upstream, session: Session) -> None:
    text = 'HTTP 429: {"error": {"code": "insufficient_quota"}} rate limit, context_length_exceeded, content_filter'
    for stream in (True, False):
        upstream.play(ok(text))
        assert session.ask(stream=stream).said == text
        assert (session.call.call_class, session.call.tries) == ("ok", 1)


def test_two_failures_then_an_answer(upstream: Upstream, session: Session) -> None:
    upstream.play(error(500), Handler.hang_up, ok())
    assert session.ask(stream=False).said == "fine"
    assert session.call.tries == 3
    assert provider_failure([session.call]) is None


def test_a_stream_that_breaks_is_told_and_not_retried(upstream: Upstream, session: Session) -> None:
    upstream.play(lambda handler: handler.events([piece("half of")], done=False))
    reply = session.ask()
    assert reply.status == 200
    assert reply.said == "half of"
    assert "ended before its finish" in reply.events[-1]["error"]["message"]
    assert "[DONE]" not in reply.events
    assert (session.call.call_class, session.call.tries) == ("stream_broken", 1)
    assert rebuild_messages(session.log)[-1]["content"] == "half of"


@pytest.mark.parametrize("event", [{"error": {"message": f"oops {KEY}"}}, "no object"])
def test_a_bad_event_in_a_stream_breaks_it(upstream: Upstream, session: Session, event: object) -> None:
    upstream.play(lambda handler: handler.events([piece("x"), event]))
    reply = session.ask()
    assert "error" in reply.events[-1]
    assert KEY not in reply.text
    assert session.call.call_class == "stream_broken"


def test_done_without_a_finish_reason_is_complete(upstream: Upstream, session: Session) -> None:
    upstream.play(lambda handler: handler.events([piece("x")]))
    assert session.ask().events[-1] == "[DONE]"
    assert session.call.call_class == "ok"
    assert session.call.input_tokens is None


@pytest.mark.parametrize(
    ("events", "tail", "kind", "tokens"),
    [
        ([piece("all of it")], json.dumps(piece("", "stop")) + "\n", "ok", None),
        ([piece("all of it", "stop")], json.dumps(usage_chunk()) + "\n", "ok", 11),
        ([piece("all of it", "stop")], json.dumps(usage_chunk()), "ok", 11),
        ([piece("all of it", "stop")], json.dumps(usage_chunk())[:40], "ok", None),
        ([piece("all of it")], "[DONE]", "ok", None),
        ([piece("all of it")], json.dumps(piece("", "stop"))[:-1], "stream_broken", None),
        ([piece("all of it")], json.dumps({"error": {"message": "blocked", "code": "content_filter"}}),
         "content_filter", None),
    ],
    ids=["finish", "usage", "no-newline", "usage-cut", "done", "finish-cut", "error"],
)  # fmt: skip
def test_the_last_event_counts_without_its_blank_line(
    upstream: Upstream, session: Session, events: list[object], tail: str, kind: str, tokens: int | None
) -> None:
    def act(handler: Handler) -> None:
        handler.events(events, done=False)
        handler.wfile.write(f"data: {tail}".encode())

    upstream.play(act)
    assert session.ask().said == "all of it"
    assert (session.call.call_class, session.call.input_tokens) == (kind, tokens)


def test_a_provider_that_says_nothing_after_the_finish_has_answered(upstream: Upstream, impatient: Session) -> None:
    def act(handler: Handler) -> None:
        handler.events([piece("all of it", "stop"), usage_chunk()], done=False)
        upstream.release.wait(10)

    upstream.play(act)
    reply = impatient.ask()
    upstream.release.set()
    assert (reply.said, reply.events[-1]) == ("all of it", "[DONE]")
    assert (impatient.call.call_class, impatient.call.input_tokens) == ("ok", 11)


def test_a_provider_that_refuses_stream_options_is_not_sent_them(
    upstream: Upstream, process: GatewayProcess, tmp_path: Path
) -> None:
    upstream.play(ok())
    session = Session(process, tmp_path, "plain")
    assert session.ask().said == "fine"
    (sent,) = upstream.requests
    assert "stream_options" not in sent["body"]
    assert "authorization" not in {name.lower() for name in sent["headers"]}


def test_silence_before_the_first_byte_is_infra_and_tried_once(upstream: Upstream, impatient: Session) -> None:
    upstream.play(lambda handler: upstream.release.wait(10))
    reply = impatient.ask()
    upstream.release.set()
    assert (reply.status, impatient.call.call_class, impatient.call.tries) == (504, "infra", 1)
    assert "sent no byte for 0.5 s" in reply.json["error"]["message"]


def test_silence_in_a_stream_is_infra(upstream: Upstream, impatient: Session) -> None:
    def act(handler: Handler) -> None:
        handler.events([piece("then nothing")], done=False)
        upstream.release.wait(10)

    upstream.play(act)
    reply = impatient.ask()
    upstream.release.set()
    assert "stood still" in reply.events[-1]["error"]["message"]
    assert impatient.call.call_class == "infra"


def test_nobody_listens(process: GatewayProcess, tmp_path: Path) -> None:
    session = Session(process, tmp_path, "dead")
    assert session.ask().status == 502
    assert (session.call.call_class, session.call.tries) == ("infra", 5)


def test_a_client_that_leaves_closes_the_upstream_call(upstream: Upstream, session: Session) -> None:
    def act(handler: Handler) -> None:
        handler.events([], done=False)
        end = time.monotonic() + 10
        try:
            while time.monotonic() < end:
                handler.wfile.write(f"data: {json.dumps(piece('more '))}\n\n".encode())
                upstream.release.wait(0.005)
        except OSError:
            upstream.gone.set()

    upstream.play(act)
    connection = UnixConnection(session.gateway.address.agent_socket)
    body = json.dumps({"model": "agent-model", "messages": [USER], "stream": True})
    connection.request("POST", "/v1/chat/completions", body, {"authorization": f"Bearer {session.grant.key}"})
    response = connection.getresponse()
    assert b"more" in response.readline()
    response.close()
    connection.close()
    assert upstream.gone.wait(5)
    wait_for(lambda: bool(session.gateway.calls(session.attempt)))
    assert (session.call.call_class, session.call.status) == ("cancelled", 499)
    assert session.call.ttfb_ms is not None
    assert rebuild_messages(session.log)[-1]["content"].startswith("more ")


def test_a_client_that_leaves_while_the_provider_makes_it_wait(
    upstream: Upstream, process: GatewayProcess, tmp_path: Path
) -> None:
    session = Session(process, tmp_path, "cooled-3")
    upstream.play(error(429, "slow", "rate_limit", retry_after="30"))
    connection = UnixConnection(session.gateway.address.agent_socket)
    body = json.dumps({"model": "agent-model", "messages": [USER]})
    connection.request("POST", "/v1/chat/completions", body, {"authorization": f"Bearer {session.grant.key}"})
    wait_for(lambda: session.gateway.activity(session.attempt).waited_seconds > 0)
    connection.close()
    wait_for(lambda: bool(session.gateway.calls(session.attempt)))
    assert session.call.call_class == "cancelled"
    assert getattr(provider_failure([session.call]), "call_class", None) == "rate_limit"


def test_the_openai_client_works_through_a_forwarder(upstream: Upstream, session: Session) -> None:
    openai = pytest.importorskip("openai")
    upstream.play(ok("hello there"))
    with forwarder(session.gateway.address.agent_socket) as port:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=session.grant.key, max_retries=0)
        with client:
            messages = [{"role": "user", "content": "hello"}]
            whole = client.chat.completions.create(model="agent-model", messages=messages)
            assert whole.choices[0].message.content == "hello there"
            with client.chat.completions.create(model="agent-model", messages=messages, stream=True) as stream:
                assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "hello there"
            assert [model.id for model in client.models.list()] == ["agent-model"]
            upstream.play(lambda handler: handler.events([piece("half of")], done=False))
            stream = client.chat.completions.create(model="agent-model", messages=messages, stream=True)
            with stream, pytest.raises(openai.APIError, match="ended before its finish"):
                list(stream)


def test_the_key_is_in_no_file_and_on_no_command_line(
    upstream: Upstream, process: GatewayProcess, session: Session
) -> None:
    upstream.play(error(401, f"Incorrect API key provided: {KEY}", kind=KEY, code=KEY))
    session.ask()
    upstream.play(lambda handler: handler.whole(200, completion(f"the key is {KEY}")))
    session.ask(stream=False)
    folders = (process.directory, session.log)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert {"ledger.jsonl", "gateway.log", "exchanges.jsonl"} <= {path.name for path in files}
    assert [path.name for path in files if KEY.encode() in path.read_bytes()] == []
    for name in ("cmdline", "environ"):
        assert KEY.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()


@contextmanager
def forwarder(path: Path) -> Iterator[int]:
    """A loopback TCP port that leads to a Unix socket, as in the containers."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(8) as pool:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    pool.submit(carry, server.accept()[0], path)

        pool.submit(accept)
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)


def carry(inside: socket.socket, path: Path) -> None:
    with inside, socket.socket(socket.AF_UNIX) as outside, suppress(OSError):
        outside.connect(str(path))
        other = {inside: outside, outside: inside}
        while True:
            for source in select.select([inside, outside], [], [], 20)[0]:
                data = source.recv(65536)
                if not data:
                    return
                other[source].sendall(data)


def wait_for(condition: object, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.005)
