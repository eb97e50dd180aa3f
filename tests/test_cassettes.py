"""Recording and replay: cassettes made of exchange logs, answered from by a gateway that has no provider."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, process_time, sleep
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_uniclaw.errors import SettingsError, UniclawError
from pytest_uniclaw.modelchoice import parse_model
from pytest_uniclaw.models import cassette
from pytest_uniclaw.models.cassette import blobs_of, lane_file, lane_name, load_cassette, make_cassette, stale, walked
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.exchange import ExchangeLog, Got, read_rows, rewritten
from pytest_uniclaw.models.grants import Call, Grant, GrantRequest, LaneReport, Provider, Tuning
from pytest_uniclaw.models.normalise import Normaliser, first_difference
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.spec import AttemptSpec
from tests.support.scripted_upstream import (
    HEAD,
    Act,
    Handler,
    Reply,
    Upstream,
    ask,
    completion,
    error,
    ok,
    piece,
    running_upstream,
    usage_chunk,
)  # fmt: skip

pytestmark = pytest.mark.processes

KEY = "sk-real-key-of-the-provider"
LANE = "nanobot/mine-m/task_1/a1/executor"
SMALL = "data:image/png;base64,AAECAwQ="
PNG = "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 8).decode()
ATTEMPTS = itertools.count(1)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with running_upstream() as server:
        yield server


@pytest.fixture(scope="module")
def recorder(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    provider = Provider(name="real", base_url=upstream.base_url, api_key=KEY)
    with start_gateway(tmp_path_factory.mktemp("recorder"), [provider], tuning=Tuning(tries=1)) as process:
        yield process


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """A gateway without any provider."""
    with start_gateway(tmp_path_factory.mktemp("player"), tuning=Tuning(idle_seconds=0.3)) as process:
        yield process
    assert "pytest_uniclaw" not in (process.directory / "gateway.log").read_text()


class Agent:
    """A grant and requests under it."""

    def __init__(self, process: GatewayProcess, log: Path, **request: Any) -> None:
        self.gateway = Gateway(process.address)
        self.attempt = request.setdefault("attempt", f"attempt-{next(ATTEMPTS)}")
        asked = {"role": "executor", "model": "m", "provider": "real", "log": log} | request
        self.grant: Grant = self.gateway.grant(GrantRequest(**asked))

    def ask(self, *messages: dict[str, Any], stream: bool = False, **more: Any) -> Reply:
        body = {"model": "m", "messages": list(messages), "stream": stream} | more
        return ask(self.gateway.address.agent_socket, self.grant.key, body)

    @property
    def report(self) -> LaneReport:
        (found,) = self.gateway.replays(self.attempt)
        return found

    @property
    def calls(self) -> list[Call]:
        return self.gateway.calls(self.attempt)


class Studio:
    """Records with one gateway and replays with the other."""

    def __init__(self, recorder: GatewayProcess, player: GatewayProcess, upstream: Upstream, folder: Path) -> None:
        self._recorder, self._player, self._upstream, self._folder = recorder, player, upstream, folder
        self.file = lane_file(folder / "cassettes", LANE)
        self._logs = (folder / f"log{n}" for n in itertools.count())

    def record(self, talk: Callable[[Agent], Any], *acts: Act, variables: Any = None, **request: Any) -> None:
        self._upstream.play(*acts)
        agent = Agent(self._recorder, log := next(self._logs), **request)
        talk(agent)
        agent.gateway.revoke(agent.grant)
        make_cassette(log, self.file, lane=LANE, metadata={"agent": "nanobot 0.1"}, variables=variables)

    def replay(self, **request: Any) -> Agent:
        return Agent(self._player, next(self._logs), cassette=self.file, **request)


@pytest.fixture
def studio(recorder: GatewayProcess, player: GatewayProcess, upstream: Upstream, tmp_path: Path) -> Studio:
    return Studio(recorder, player, upstream, tmp_path)


def wait_for(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = monotonic() + seconds
    while not condition():
        assert monotonic() < end, "the condition did not come true"
        sleep(0.005)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calls(call_id: str, arguments: str = '{"command": "ls"}') -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": "exec", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def conversation(
    *, day: str = "2026-11-30 07:28 (Monday)", call_id: str = "call_Ab3dEf9hIj2kLm", size: int = 12,
    name: str = "out.txt", port: int = 41234, pid: int = 4711, work: str = "/srv/one", tmp: str = "/tmp/pytest-1",
    took: str = "0.71 seconds",
) -> list[dict[str, Any]]:  # fmt: skip
    listing = f"-rw-r--r-- 1 root root {size} Nov {day[8:10]} 07:48 {name}"
    output = f"Wall time: {took}\npid {pid} serves http://127.0.0.1:{port} from {work} ({tmp}/cache)\n{listing}"
    return [user(f"It is {day}. Look into {work}."), calls(call_id), result(call_id, output)]


# --------------------------------------------------------------------------------------------------- strict


def test_the_same_conversation_on_another_day_and_place(studio: Studio) -> None:
    studio.record(lambda agent: agent.ask(*conversation()), ok("seen"), variables={"WORK": "/srv/one"})
    other = conversation(
        day="2027-02-03 23:59 (Wednesday)", call_id="call_Zz9yYx8wWv7uUt", port=50001, pid=99, work="/srv/two/x",
        tmp="/tmp/pytest-of-me", took="1.2 seconds",
    )  # fmt: skip
    agent = studio.replay(variables={"WORK": "/srv/two/x"})
    assert agent.ask(*other).said == "seen"
    assert agent.report == LaneReport(lane=LANE, entries=1)
    assert agent.report.exact
    (call,) = agent.calls
    assert (call.call_class, call.provider, call.input_tokens, call.cost_usd) == ("ok", "replay", 11, 0.0)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"size": 13}, "messages[2].content (text"),
        ({"name": "other.txt"}, "root root 12 <date> out.txt', now '"),
        ({"work": "/srv/else"}, "messages[0].content (text"),
    ],
)
def test_a_changed_file_is_a_miss(studio: Studio, change: Any, place: str) -> None:
    studio.record(lambda agent: agent.ask(*conversation()), ok("seen"))
    agent = studio.replay()
    reply = agent.ask(*conversation(**change))
    assert (reply.status, reply.headers["x-uniclaw-class"], reply.headers["x-should-retry"]) == (
        409,
        "replay_miss",
        "false",
    )
    message = reply.json["error"]["message"]
    assert message.startswith(
        f"cassette {LANE}: this request is not the recorded call 1 of 1; the first difference is at"
    )
    assert place in message
    assert [call.call_class for call in agent.calls] == ["replay_miss"]
    report = agent.report
    assert (report.unused, report.misses, report.exact) == ((1,), (message,), False)
    assert agent.ask(*conversation()).said == "seen", "the entry is still there"


def test_entries_are_used_once_and_in_order(studio: Studio) -> None:
    studio.record(lambda a: [a.ask(user("one")), a.ask(user("two")), a.ask(user("two"))], ok("1"), ok("2"), ok("3"))
    agent = studio.replay()
    assert agent.ask(user("two")).status == 409
    assert [agent.ask(user(text)).said for text in ("one", "two", "two")] == ["1", "2", "3"]
    refused = agent.ask(user("two"))
    assert refused.json["error"]["message"] == f"cassette {LANE}: all 3 recorded calls are used, and this is one more"
    assert agent.report.unused == ()


def test_calls_that_overlapped_come_in_any_order(studio: Studio, upstream: Upstream) -> None:
    def slow(handler: Handler) -> None:
        said = handler.server.requests[-1]["body"]["messages"][0]["content"]
        handler.server.release.wait(5)
        handler.whole(200, completion(f"re {said}"))

    def talk(agent: Agent) -> None:
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(agent.ask, user(text)) for text in ("left", "right")]
            wait_for(lambda: len(upstream.requests) == 2)
            upstream.release.set()
            assert [reply.result().status for reply in both] == [200, 200]
        agent.ask(user("last"))

    studio.record(talk, slow)
    for order in (("left", "right", "last"), ("right", "left", "last")):
        agent = studio.replay()
        assert agent.ask(user("last")).status == 409, "what began after them comes after them"
        assert [agent.ask(user(text)).said for text in order] == [f"re {text}" for text in order]


def test_parameters_and_tools_count_but_for_accidental_ones(studio: Studio) -> None:
    tool = {"type": "function", "function": {"name": "exec", "description": "Runs.", "parameters": {"type": "object"}}}
    studio.record(
        lambda a: a.ask(user("x"), tools=[tool], temperature=0.5, seed=1, user="a", metadata={"a": "b"}), ok()
    )
    changed = json.loads(json.dumps(tool))
    changed["function"]["description"] = "Runs it."
    agent = studio.replay()
    for more, place in (
        ({"tools": [changed], "temperature": 0.5}, "tools.exec.function.description (text"),
        ({"tools": [tool, {"type": "function", "function": {"name": "new"}}], "temperature": 0.5}, "tools.new (new)"),
        ({"tools": [tool], "temperature": 0.7}, "params.temperature (value): recorded 0.5, now 0.7"),
        ({"tools": [tool]}, "params.temperature (missing)"),
    ):
        assert place in agent.ask(user("x"), **more).json["error"]["message"]
    assert agent.ask(user("x"), tools=[tool], temperature=0.5, seed=2, prompt_cache_key="k", store=False).status == 200


def test_what_a_retry_of_the_attempt_begins_anew(studio: Studio) -> None:
    studio.record(lambda agent: agent.ask(user("one")), ok("1"))
    agent = studio.replay()
    assert agent.ask(user("one")).said == "1"
    again = studio.replay(attempt=agent.attempt)
    assert again.ask(user("one")).said == "1"
    assert again.report.unused == ()


def test_a_role_goes_on_in_its_lane_from_grant_to_grant(studio: Studio) -> None:
    studio.record(lambda a: [a.ask(user("turn 1")), a.ask(user("turn 2"))], ok("1"), ok("2"), role="supervisor")
    first = studio.replay(role="supervisor")
    assert first.ask(user("turn 1")).said == "1"
    first.gateway.revoke(first.grant)
    assert first.report.unused == (2,)
    second = studio.replay(role="supervisor", attempt=first.attempt, turn=2)
    assert second.ask(user("turn 2")).said == "2"
    assert second.report.exact


def test_attempts_do_not_share_their_lanes(studio: Studio) -> None:
    studio.record(lambda a: [a.ask(user(f"{n}")) for n in range(10)], *(ok(f"re {n}") for n in range(10)))
    agents = [studio.replay() for _ in range(8)]

    def talk(agent: Agent) -> list[str]:
        return [agent.ask(user(f"{n}"), stream=bool(n % 2)).said for n in range(10)]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(talk, agents)) == [[f"re {n}" for n in range(10)]] * 8
    assert all(agent.report.exact for agent in agents)


# --------------------------------------------------------------------------------------------- what is answered

CHUNKS = [piece("He"), piece("llo from /srv"), piece("/one"), piece("", "stop"), usage_chunk()]


def test_a_stream_is_replayed_chunk_by_chunk(studio: Studio) -> None:
    studio.record(lambda agent: agent.ask(user("x"), stream=True), lambda handler: handler.events(CHUNKS))
    agent = studio.replay()
    reply = agent.ask(user("x"), stream=True, stream_options={"include_usage": True})
    assert reply.events == [*CHUNKS, "[DONE]"]
    assert agent.calls[0].output_tokens == 3


def test_a_stream_as_a_whole_and_a_whole_as_a_stream(studio: Studio) -> None:
    def talk(agent: Agent) -> None:
        agent.ask(user("x"), stream=True)
        agent.ask(user("y"))

    studio.record(talk, lambda handler: handler.events(CHUNKS), ok("whole"))
    agent = studio.replay()
    whole = agent.ask(user("x")).json
    assert whole["choices"][0]["message"]["content"] == "Hello from /srv/one"
    assert (whole["usage"]["prompt_tokens"], whole["model"]) == (11, "m")
    assert agent.ask(user("y"), stream=True).said == "whole"
    assert [call.finish_reason for call in agent.calls] == ["stop", "stop"]


def test_named_variables_are_put_back_into_the_answer(studio: Studio) -> None:
    named = {"WORK": "/srv/one", "OTHER": "gone"}
    studio.record(
        lambda agent: agent.ask(user("in /srv/one"), stream=True),
        lambda handler: handler.events(CHUNKS),
        variables=named,
    )
    agent = studio.replay(variables={"WORK": "/home/me"})
    assert agent.ask(user("in /home/me"), stream=True).said == "Hello from /home/me"


def test_errors_and_broken_streams_come_again(studio: Studio) -> None:
    def talk(agent: Agent) -> None:
        agent.ask(user("a"))
        agent.ask(user("b"), stream=True)
        agent.ask(user("c"))

    broken = lambda handler: handler.events([piece("half")], done=False)  # noqa: E731
    too_long = error(400, "too many tokens", code="context_length_exceeded")
    studio.record(talk, error(429, "slow", "rate_limit_error"), broken, too_long)
    agent = studio.replay()
    slow = agent.ask(user("a"))
    assert (slow.status, slow.json["error"]["message"]) == (429, "slow")
    half = agent.ask(user("b"), stream=True)
    assert half.said == "half"
    assert "error" in half.events[-1]
    assert agent.ask(user("c")).json["error"]["code"] == "context_length_exceeded"
    assert [call.call_class for call in agent.calls] == ["rate_limit", "stream_broken", "context_length"]


def test_an_answer_that_its_client_left_keeps_this_one_waiting_too(studio: Studio, upstream: Upstream) -> None:
    def hang(handler: Handler) -> None:
        handler.events([piece("half ")], done=False)
        handler.server.release.wait(5)

    def talk(agent: Agent) -> None:
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(agent.ask, user("x"), stream=True)
            wait_for(lambda: bool(upstream.requests))
            agent.gateway.revoke(agent.grant)
            pending.exception(10)

    studio.record(talk, hang)
    agent = studio.replay()
    reply = agent.ask(user("x"), stream=True)
    assert "its client left" in (reply.events[-1] if reply.events else reply.json)["error"]["message"]
    assert agent.report.exact


def test_a_stream_that_is_done_without_a_finish_reason_is_replayed_as_complete(studio: Studio) -> None:
    chunks = [piece("all "), piece("of it")]
    studio.record(
        lambda agent: agent.ask(user("x"), stream=True),
        lambda handler: handler.events(chunks),
        variables={"WORK": "/srv/one"},
    )
    for variables in ({}, {"WORK": "/home/me"}):
        agent = studio.replay(variables=variables)
        reply = agent.ask(user("x"), stream=True)
        assert (reply.said, reply.events[-1]) == ("all of it", "[DONE]")
        assert [call.call_class for call in agent.calls] == ["ok"]
    assert studio.replay().ask(user("x")).said == "all of it"


def test_recordings_that_do_not_say_what_is_complete_are_judged_by_the_finish_reason(studio: Studio) -> None:
    studio.record(
        lambda a: [a.ask(user("x"), stream=True), a.ask(user("y"), stream=True)],
        ok("fine"), lambda handler: handler.events([piece("half")]),
    )  # fmt: skip
    text = studio.file.read_text()
    assert text.count(',"complete":true') == 2
    studio.file.write_text(text.replace(',"complete":true', ""))
    assert [entry.complete for entry in load_cassette(studio.file).entries] == [True, False]


@pytest.mark.parametrize(
    ("extra", "more"),
    [({}, {"tools": 5}), ({}, {"tools": {"a": 1}}), ({"tool_calls": 5}, {}), ({"tool_calls": {"a": 1}}, {})],
)
@pytest.mark.parametrize("lenient", [False, True])
def test_lists_that_are_none_are_a_difference_and_no_infra_error(
    studio: Studio, extra: dict[str, Any], more: dict[str, Any], lenient: bool
) -> None:
    studio.record(lambda agent: agent.ask(user("x")), ok())
    agent = studio.replay(lenient=lenient)
    agent.ask(user("x") | extra, user("y"), **more)
    assert [call.call_class for call in agent.calls] == ["replay_miss"]


def test_the_responses_wire_replays_the_same_cassette(studio: Studio) -> None:
    studio.record(lambda agent: agent.ask(user("x")), ok("fine"))
    agent = studio.replay()
    body = {"model": "m", "input": "x"}
    reply = ask(agent.gateway.address.agent_socket, agent.grant.key, body, url="/v1/responses")
    assert reply.json["output"][0]["content"][0]["text"] == "fine"


# -------------------------------------------------------------------------------------------------- lenient


def test_lenient_lists_what_it_lets_pass(studio: Studio) -> None:
    asked = [
        [user("same")],
        [user("old prompt"), calls("c"), result("c", "out")],
        [user("other"), calls("c"), result("c", "other")],
    ]
    studio.record(lambda agent: [agent.ask(*messages) for messages in asked], ok("1"), ok("2"), ok("3"))
    agent = studio.replay(lenient=True)
    assert agent.ask(user("new prompt"), calls("c"), result("c", "out")).said == "2"
    assert agent.ask(user("same")).said == "1"
    assert agent.ask(user("new"), calls("c"), result("c", "new")).said == "3"
    report = agent.report
    assert [(drift.n, drift.matched) for drift in report.drift] == [(2, "tail"), (3, "shape")]
    assert report.drift[0].difference.startswith("messages[0].content (text, at character 0): recorded 'old prompt'")
    assert (report.unused, report.misses, report.exact) == ((), (), False)
    assert agent.ask(user("more")).status == 409


def test_lenient_does_not_take_what_is_of_another_shape(studio: Studio) -> None:
    studio.record(lambda agent: agent.ask(user("x")), ok("1"))
    agent = studio.replay(lenient=True)
    assert agent.ask(user("x"), user("y")).status == 409
    assert agent.report.unused == (1,)


# ---------------------------------------------------------------------------------------------- what is stored


def test_no_secret_gets_into_a_cassette(studio: Studio) -> None:
    secret, key = "correct-horse-battery", "ghp_" + "a1B2" * 10
    words = f"password {secret}, token {key}, picture {base64.b64encode(secret.encode()).decode()}"

    def talk(agent: Agent) -> None:
        agent.ask(user(f"{words} {agent.grant.key}"))

    studio.record(talk, ok(f"you said {secret} and {key}, I know {KEY}"), secrets=(secret,))
    stored = b"".join(path.read_bytes() for path in studio.file.parent.rglob("*") if path.is_file()).decode()
    for hidden in (secret, key, KEY, base64.b64encode(secret.encode()).decode(), "uck-"):
        assert hidden not in stored
    agent = studio.replay(secrets=(secret,))
    reply = agent.ask(user(f"{words} {agent.grant.key}"))
    assert reply.said == "you said [redacted] and [redacted], I know [redacted]"


def test_pictures_and_long_texts_lie_beside_the_lane(studio: Studio) -> None:
    parts = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": PNG}}]
    messages = [user(parts), user("long " * 20_000)]
    studio.record(lambda agent: [agent.ask(*messages), agent.ask(*messages)], ok("1"), ok("2"))
    lines = studio.file.read_text().splitlines()
    assert sum(map(len, lines)) < 4000
    assert sum('"value"' in line for line in lines) == 2, "each message once"
    assert sorted(len(path.read_bytes()) for path in blobs_of(studio.file).iterdir()) == [2048, 100_000]
    agent = studio.replay()
    assert [agent.ask(*messages).said for _ in range(2)] == ["1", "2"]
    assert [m["content"] for m in load_cassette(studio.file).entries[0].request["messages"]] == [
        parts,
        messages[1]["content"],
    ]
    other = [user([parts[0], {"type": "image_url", "image_url": {"url": PNG.replace("AAEC", "AAED", 1)}}]), messages[1]]
    assert "messages[0].content[1].image_url.url" in studio.replay().ask(*other).json["error"]["message"]
    studio.record(lambda agent: agent.ask(user("short")), ok("1"))
    assert list(blobs_of(studio.file).iterdir()) == [], "nothing of a former recording stays"


TEXTS = st.text(max_size=9) | st.sampled_from([SMALL, f"{SMALL} ", "long " * 10, "data:image/png;base64,QQ", "\udfff"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["$blob", "type", "json", "x"]), inner),
    max_leaves=6,
)


@settings(max_examples=60)
@given(st.lists(JSON, min_size=1, max_size=3), JSON)
def test_what_is_recorded_is_what_was_said(contents: list[Any], answer: Any) -> None:
    with TemporaryDirectory() as folder, mock.patch.object(cassette, "LARGE", 20):
        log = ExchangeLog(Path(folder, "log"), Redactor(()))
        messages = [{"role": "user", "content": content} for content in contents]
        sent = log.sent({"model": "m", "messages": messages, "temperature": answer})
        facts = {"n": 1, "started": "2026-11-30T07:48:00.000Z", "ms": 5, "class": "ok", "status": 200}
        body = {"choices": [{"message": {"role": "assistant", "content": answer}}]}
        log.row(facts, sent, Got(body=body))
        log.close()
        assert make_cassette(Path(folder, "log"), Path(folder, "lane.jsonl"), lane=LANE, metadata={}) == 1
        (entry,) = load_cassette(Path(folder, "lane.jsonl")).entries
    assert entry.request == {"messages": messages, "temperature": answer}
    assert entry.body == body


def test_a_lane_is_named_by_what_was_run(tmp_path: Path) -> None:
    name = lane_name("nanobot@0.3.5", "mine-m/1", "task_101_报告", 2, "supervisor", "judge 1")
    assert name == "nanobot-0.3.5/mine-m-1/task_101_-/a2/supervisor-judge-1"
    assert lane_file(tmp_path, name) == tmp_path / f"{name}.jsonl"
    assert lane_name("..", "m", "../x", 1, "executor") == "-/m/-x/a1/executor"


def test_what_is_not_a_cassette_says_so(studio: Studio, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such cassette\n  fix: record it with"):
        studio.replay()
    studio.record(lambda agent: agent.ask(user([{"type": "image_url", "image_url": {"url": PNG}}])), ok())
    (blob,) = blobs_of(studio.file).iterdir()
    blob.write_bytes(b"something else")
    with pytest.raises(SettingsError, match="is not what was recorded"):
        studio.replay()
    shutil.rmtree(blob.parent)
    with pytest.raises(SettingsError, match="no sound cassette \\(FileNotFoundError"):
        studio.replay()
    for text in ("", "{}", "[]", '{"format": 9}', '{"format": 1}', "no json"):
        studio.file.write_text(text)
        with pytest.raises(SettingsError, match="no sound cassette"):
            studio.replay()


@pytest.mark.parametrize(
    ("line", "change"),
    [
        (0, {"metadata": []}), (0, {"lane": 5}), (0, {"variables": {"a": 1}}), (1, {"value": 5}),
        (-1, {"entry": "1"}), (-1, {"began": "soon"}), (-1, {"params": []}), (-1, {"chunks": [5]}), (-1, {"body": []}),
        (-1, {"messages": 5}), (-1, {"complete": "yes"}),
    ],
)  # fmt: skip
def test_values_of_wrong_types_make_no_sound_cassette(studio: Studio, line: int, change: dict[str, Any]) -> None:
    studio.record(lambda agent: agent.ask(user("x")), ok())
    load_cassette(studio.file)
    rows = [json.loads(text) for text in studio.file.read_text().splitlines()]
    rows[line] |= change
    studio.file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SettingsError, match="no sound cassette"):
        load_cassette(studio.file)


def test_endless_nesting_makes_no_sound_cassette(studio: Studio) -> None:
    studio.record(lambda agent: agent.ask(user("x")), ok())
    with studio.file.open("a") as file:
        file.write('{"message": "a", "value": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(SettingsError, match="no sound cassette \\(RecursionError"):
        load_cassette(studio.file)


@pytest.mark.parametrize(("model", "slug"), [("one/m", "one-m"), ("two/m", "two-m"), (None, "no-model")])
def test_two_models_have_lanes_of_their_own(tmp_path: Path, model: str | None, slug: str) -> None:
    spec: Any = mock.Mock()
    spec.model = parse_model(model) if model else None
    spec.reference, spec.number, spec.agent.version, spec.task.task_id = "nanobot@0.3.5", 1, "0.3.5", "task_1"
    tape = AttemptSpec.tape(spec, tmp_path)
    assert tape.file("executor") == tmp_path / f"nanobot-0.3.5/{slug}/task_1/a1/executor.jsonl"


def test_the_backend_needs_a_cassette(player: GatewayProcess, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="'replay' needs a cassette"):
        Agent(player, tmp_path / "log", provider="replay")


def test_stale_recordings_are_told(studio: Studio) -> None:
    studio.record(lambda agent: agent.ask(user("x")), ok())
    assert stale(studio.file, {"agent": "nanobot 0.1"}) == ()
    assert stale(studio.file, {"agent": "nanobot 0.2", "prompts": "ab12"}) == (
        "agent: recorded 'nanobot 0.1', now 'nanobot 0.2'",
        "prompts: recorded None, now 'ab12'",
    )


def test_calls_that_no_provider_saw_are_not_recorded(studio: Studio) -> None:
    studio.record(lambda a: [a.ask(user("1")), a.ask(user("2")), a.ask()], ok(), max_calls=1)
    assert len(load_cassette(studio.file).entries) == 1


def test_logs_that_make_no_cassette(studio: Studio, tmp_path: Path) -> None:
    file = tmp_path / "lane.jsonl"
    assert make_cassette(tmp_path / "nothing", file, lane=LANE, metadata={}) == 0
    assert not file.exists()
    studio.record(lambda agent: agent.ask(user("x")), ok())
    log = tmp_path / "log0"
    assert len(read_rows(log)) == 1
    for blob in (log / "blobs").iterdir():
        blob.unlink()
    with pytest.raises(UniclawError, match="has lost a message"):
        make_cassette(log, file, lane=LANE, metadata={})


# --------------------------------------------------------------------------------------------- normal forms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("id 01a22b6d-4d72-7a21-a2bc-94d4e97a72a7", "id 11122b6d-4d72-7a21-a2bc-94d4e97a72a8"),
        ("at 2026-11-30T07:48:00.123Z", "at 2027-01-02 23:00:59,5+01:00"),
        ("on 2026-11-30", "on 2027/1/2"),
        ("Monday, November 30, 2026", "Sunday, May 3, 2027"),
        ("Mon Nov 30 07:48:00 UTC 2026", "Tue Dec  1 00:00:01 UTC 2026"),
        ("-rw-r--r-- 1 u g 7 Nov 30 07:48 a", "-rw-r--r-- 1 u g 7 Jan  2  2025 a"),
        ("2026年11月30日 星期一", "2027年1月2日 星期六"),
        ("report_20261130.md", "report_20270102.md"),
        ("it is 07:48", "it is 11:05:59 PM"),
        ("epoch 1796024274 and 1796024274342", "epoch 1800000000.5 and 1800000000000"),
        ("took 0.71 seconds, 12ms, 1m 3s", "took 3 s, 8.5 ms, 2m 44s"),
        ("耗时 0.71 秒", "耗时 12 秒"),
        ("http://localhost:41234/v1", "http://127.0.0.1:50000/v1"),
        ("from 172.17.0.2:80 to 10.0.0.1", "from 192.168.1.9:81 to 172.31.0.7"),
        ("in /tmp/tmpab12cd9x", "in /tmp/tmpzz9_8yy1"),
        ("in /tmp/tmp.zCozcOwg3J\n", "in /tmp/tmp.JITwqABVVx\n"),
        ("in /tmp/run-1/out.txt", "in /var/tmp/x/out.txt"),
        ("commit 3f2a9c8e7d6b", "commit " + "0a" * 20),
        ("<function f at 0x7f1c2a3b4c5d>", "<function f at 0x7f0000000001>"),
        ("pid 17, PID: 9, process id=3", "pid 4, PID: 12345, process id=77"),
        ("[1] 4711", "[1] 12"),
        ("Chunk ID: 00d6e1", "Chunk ID: a84eee"),
        ("Process running with session ID 5", "Process running with session ID 41213"),
        ("serves on port 41234", "serves on port 50000"),
        ("chatcmpl-A1b2C3d4E5f6G7", "chatcmpl-Z9y8X7w6V5u4T3"),
        ("key sk-" + "a1" * 20, "key [redacted]"),
    ],
)
def test_accidents_are_equal(one: str, other: str) -> None:
    assert Normaliser({}).text(one) == Normaliser({}).text(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("out.txt", "out2.txt"),
        ("12 bytes", "13 bytes"),
        ("total 1284500", "total 1284501"),
        ("/tmp/report-a.csv", "/tmp/report-b.csv"),
        ("/tmp/x/report-a.csv", "/tmp/x/report-b.csv"),
        ("version 2026.9.6", "version 2026.9.7"),
        ("the May report", "the June report"),
        ("meet on Monday", "meet on Tuesday"),
        ("30 minutes", "40 minutes"),
        ("in 3 steps", "in 4 steps"),
        ("exit code 0", "exit code 1"),
        ("port 80", "port 81"),
        ("8.8.8.8", "8.8.4.4"),
        ("line 12 of main.py:12:5", "line 13 of main.py:13:5"),
        ("9.5 kg", "9.6 kg"),
    ],
)
def test_facts_are_not(one: str, other: str) -> None:
    assert Normaliser({}).text(one) != Normaliser({}).text(other)


def test_variables_go_first_and_the_longest_before_its_part() -> None:
    names = {"WORK": "/tmp/run-1", "HOST": "10.0.0.7", "DEEP": "/tmp/run-1/deep", "NONE": ""}
    assert Normaliser(names).text("/tmp/run-1/deep/a at 10.0.0.7, /tmp/run-1/b") == "{{DEEP}}/a at {{HOST}}, {{WORK}}/b"


def test_call_ids_by_order_of_appearance() -> None:
    one = Normaliser({}).request({"messages": conversation(call_id="x")})
    other = Normaliser({}).request({"messages": conversation(call_id="functions.exec:0")})
    assert one.full == other.full
    assert one.messages[2]["tool_call_id"] == "call-1"
    swapped = [user("a"), calls("1"), calls("2"), result("2", "ok")]
    straight = [user("a"), calls("1"), calls("2"), result("1", "ok")]
    assert Normaliser({}).request({"messages": swapped}).full != Normaliser({}).request({"messages": straight}).full


def test_what_a_provider_makes_up_and_null_do_not_count() -> None:
    plain = {"role": "assistant", "content": "x"}
    full = plain | {"refusal": None, "annotations": [], "tool_calls": None}
    normal = [Normaliser({}).request({"messages": [user("a"), message]}) for message in (plain, full)]
    assert normal[0].full == normal[1].full
    assert first_difference(*normal) == "nothing"


@given(st.text(max_size=200))
def test_normal_text_is_the_same_again_and_lines_stay(text: str) -> None:
    normaliser = Normaliser({"WORK": "/srv/one"})
    once = normaliser.text(text)
    assert once.count("\n") == text.count("\n")
    assert normaliser.text(text) == once


HOSTILE = ("10:", "Nov ", "pid ", "/tmp/a1-", "-----BEGIN PRIVATE KEY-----", "1 m ", "a1", "<date> ", "   ")


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_texts_take_linear_time(unit: str) -> None:
    def seconds(count: int) -> float:
        began = process_time()
        Normaliser({}).text("1" + unit * count)
        return process_time() - began

    assert seconds(40_000) < 50 * max(seconds(4_000), 0.01), "ten times is linear, a hundred times is not"


def test_a_change_over_the_borders_of_chunks_merges_them() -> None:
    def changed(old: str, new: str) -> Callable[[Any], Any]:
        return lambda value: walked(value, lambda text: text.replace(old, new))

    chunks = [piece("q"), piece("w")]
    assert rewritten(chunks, changed("q", "Q")) == [piece("Q"), piece("w")], "the borders stay where they can"
    (merged,) = rewritten(chunks, changed("qw", "X"))
    assert merged["choices"][0]["delta"]["content"] == "X"
    assert merged["id"] == HEAD["id"]
