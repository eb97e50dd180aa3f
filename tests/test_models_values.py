"""Pure parts of the model layer: classes, wire formats, redaction, the exchange log."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from pytest_uniclaw.models.chat import assemble, chunks_of, completion, token_counts
from pytest_uniclaw.models.exchange import ExchangeLog, Got, rebuild_messages
from pytest_uniclaw.models.failure import from_answer, from_event, retry_after
from pytest_uniclaw.models.grants import Call, CallClass, Failure, GrantRequest, Provider, provider_failure
from pytest_uniclaw.models.ledger import Ledger, json_line
from pytest_uniclaw.models.sse import Chunk, EventParser, encode, json_text, text_of_chunk
from pytest_uniclaw.redaction import REDACTED, Redactor


def call(kind: str, *, ttfb: float | None = None, errors: tuple[str, ...] = ()) -> Call:
    return Call(
        attempt="a", role="executor", grant="g", model="m", provider="p", n=1, started="", status=200, ttfb_ms=ttfb,
        call_class=CallClass(kind), errors=tuple(Failure(call_class=CallClass(e)) for e in errors),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], None),
        ([call("ok", ttfb=1)], None),
        ([call("ok", ttfb=1), call("rate_limit")], "rate_limit"),
        ([call("rate_limit"), call("ok", ttfb=1)], None),
        ([call("infra"), call("stream_broken", ttfb=1)], "stream_broken"),
        ([call("infra"), call("bad_request")], None),
        ([call("infra"), call("budget")], None),
        ([call("infra"), call("replay_miss")], None),
        ([call("infra"), call("cancelled")], "infra"),
        ([call("infra"), call("cancelled", ttfb=3)], None),
        ([call("ok", ttfb=1), call("cancelled", errors=("rate_limit",))], "rate_limit"),
        ([call("cancelled")], None),
        ([call("ok", ttfb=1), call("cancelled")], None),
    ],
)
def test_what_a_turn_was_ended_by(calls: list[Call], expected: str | None) -> None:
    assert getattr(provider_failure(calls), "call_class", None) == expected


@pytest.mark.parametrize(
    ("status", "error", "kind", "retry"),
    [
        (429, {"message": "slow down", "type": "rate_limit"}, "rate_limit", True),
        (429, {"message": "x", "code": "insufficient_quota"}, "quota", False),
        (402, {"message": "pay"}, "quota", False),
        (401, {"message": "Incorrect API key"}, "auth", False),
        (403, {"message": "region"}, "auth", False),
        (400, {"message": "x", "code": "context_length_exceeded"}, "context_length", False),
        (400, {"message": "This model's maximum context length is 8192 tokens"}, "context_length", False),
        (400, {"message": "x", "code": "content_filter"}, "content_filter", False),
        (400, {"message": "tools[0] is wrong"}, "bad_request", False),
        (404, {"message": "model not found"}, "infra", False),
        (500, {"message": "x"}, "infra", True),
        (529, {"message": "overloaded"}, "infra", True),
        (408, {"message": "x"}, "infra", True),
        (302, {"message": "moved"}, "infra", False),
    ],
)
def test_classification_of_answers(status: int, error: dict, kind: str, retry: bool) -> None:
    failure = from_answer(status, {"error": error}, {})
    assert (failure.call_class, failure.retry) == (kind, retry)
    assert failure.body()["error"]["message"] == error["message"]


def test_classification_does_not_read_words_of_the_conversation() -> None:
    assert from_answer(500, "<html>429 rate_limit</html>", {}).call_class is CallClass.INFRA


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "x", "code": 429}, "rate_limit"),
        ({"message": "x", "type": "rate_limit_error"}, "rate_limit"),
        ({"message": "x", "code": "context_length_exceeded"}, "context_length"),
        ("broken", "infra"),
        ({"message": "x"}, "infra"),
    ],
)
def test_classification_of_errors_inside_a_200(error: object, kind: str) -> None:
    assert from_event({"error": error}).call_class == kind


def test_retry_after_takes_seconds_milliseconds_and_dates() -> None:
    assert retry_after({"retry-after": "1.5"}) == 1.5
    assert retry_after({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 20 < (retry_after({"retry-after": date}) or 0) <= 31
    assert retry_after({"retry-after": "-3"}) == 0
    assert [retry_after({"retry-after": text}) for text in ("soon", "nan", "")] == [None, None, None]
    assert retry_after({}) is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_are_found_across_any_chunk_border(size: int) -> None:
    data = 'data: {"a":"é"}\r\n\r\n: ping\n\ndata: one\ndata: two\n\nevent: x\ndata:[DONE]\r\r'.encode()
    parser = EventParser()
    events = [event for start in range(0, len(data), size) for event in parser.feed(data[start : start + size])]
    assert [*events, *parser.close()] == ['{"a":"é"}', "one\ntwo", "[DONE]"]


def test_a_message_survives_being_cut_and_put_together() -> None:
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "exec", "arguments": json.dumps({"c": "x" * 200})}}
        for i in range(2)
    ]
    message = {"role": "assistant", "content": "words " * 40, "reasoning_content": "hm", "tool_calls": calls}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    whole = completion(message, model="m", ident="i", created=1, usage=usage, finish_reason="tool_calls")
    seen = assemble(list(chunks_of(whole)))
    assert (seen.message(), seen.finish_reason, seen.usage) == (message, "tool_calls", usage)


def test_interleaved_parallel_calls_are_told_apart() -> None:
    def part(index: int, **function: str) -> dict:
        return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": index, "function": function}]}}]}

    opening = [part(0, name="a", arguments=""), part(1, name="b", arguments="{")]
    parts = [*opening, part(0, arguments="{}"), part(1, arguments="}")]
    functions = [call["function"] for call in assemble(parts).message()["tool_calls"]]
    assert functions == [{"name": "a", "arguments": "{}"}, {"name": "b", "arguments": "{}"}]


def test_unknown_token_counts_are_none_and_never_0() -> None:
    unknown = dict.fromkeys(("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"))
    assert token_counts(None) == unknown
    assert token_counts({"prompt_tokens": "7", "completion_tokens": -1}) == unknown
    counted = {"prompt_tokens": 7, "completion_tokens": 0, "prompt_tokens_details": {"cached_tokens": 5}}
    assert token_counts(counted) == unknown | {"input_tokens": 7, "output_tokens": 0, "cache_read_tokens": 5}


def test_secrets_are_redacted_also_inside_quoted_json() -> None:
    secret = 'pä"ss\\wörd'
    redactor = Redactor([secret, "abc", ""])
    nested = json.dumps({"command": json.dumps({"password": secret})})
    value = redactor.value({"a": [secret, nested, {"k" + secret: 1}], "key": "uck-" + "x" * 32, "short": "abc"})
    text = json.dumps(value, ensure_ascii=False)
    assert "wörd" not in text
    assert "w\\u00f6rd" not in text
    assert value["key"] == REDACTED
    assert value["short"] == "abc", "values under four characters are words of ordinary text"


def row(n: int) -> dict:
    return {"grant": "g", "n": n, "class": "ok"}


def streamed(chunks: list[dict]) -> Got:
    return Got([json_text(chunk) for chunk in chunks], assemble(chunks).message())


def test_the_exchange_log_stores_each_message_once_and_rebuilds_the_conversation(tmp_path: Path) -> None:
    log = ExchangeLog(tmp_path / "log", Redactor(["hunter22"]))
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "the password is hunter22"}]
    first = {"role": "assistant", "content": "hunter22 it is"}
    whole = completion(first, model="m", ident="i", created=1, usage={}, finish_reason="stop")
    log.row(row(1), log.sent({"model": "m", "messages": chat}), streamed(list(chunks_of(whole))))
    chat += [first, {"role": "user", "content": "go on \ud800"}]
    second = whole | {"choices": [{"index": 0, "message": {"role": "assistant", "content": "end"}}]}
    log.row(row(2), log.sent({"model": "m", "messages": chat, "tools": [{"t": 1}], "top_p": 1}), Got(body=second))
    side = [{"role": "user", "content": "a title, please"}]
    log.row(row(3), log.sent({"model": "m", "messages": side}), Got(body=second))
    log.close()
    assert len(list((tmp_path / "log" / "blobs").glob("*.json"))) == 6, "5 messages and a tool list"
    stored = b"".join(path.read_bytes() for path in sorted((tmp_path / "log").rglob("*.json*")))
    assert b"hunter22" not in stored
    stored.decode("utf-8")
    rebuilt = rebuild_messages(tmp_path / "log")
    said = [message["content"] for message in rebuilt]
    assert said == ["s", f"the password is {REDACTED}", f"{REDACTED} it is", "go on \ud800", "end"]


def test_a_secret_that_runs_over_chunk_borders_is_redacted(tmp_path: Path) -> None:
    log = ExchangeLog(tmp_path, Redactor(["hunter22"]))
    pieces = [{"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("it is hun", "ter2", "2!")]
    log.row(row(1), log.sent({"messages": [{"role": "user", "content": "x"}]}), streamed(pieces))
    assert rebuild_messages(tmp_path)[-1]["content"] == f"it is {REDACTED}!"
    assert "ter2" not in (tmp_path / "exchanges.jsonl").read_text()


@pytest.mark.parametrize("text", ['{"a": "sl\\/ash"}', '{"a": "\\u0061bc"}', '{\n"a": 1}'])
def test_a_chunk_whose_text_spells_its_strings_otherwise_is_spelled_anew(text: str) -> None:
    chunk = Chunk(json.loads(text), text)
    assert chunk.text == json.dumps(json.loads(text), separators=(",", ":"))


def test_a_plain_chunk_is_passed_on_as_it_came() -> None:
    text = '{"a":  "été", "n": 1.50}'
    chunk = Chunk(json.loads(text), text)
    assert (chunk, chunk.text) == ({"a": "été", "n": 1.5}, text)
    assert encode(chunk) == b'data: {"a":  "\xc3\xa9t\xc3\xa9", "n": 1.50}\n\n'
    assert text_of_chunk({"a": "é"}) == '{"a":"\\u00e9"}'


def test_a_secret_in_a_field_of_a_chunk_that_is_no_text_is_redacted(tmp_path: Path) -> None:
    log = ExchangeLog(tmp_path, Redactor(["hunter/22"]))
    spelled = [r'{"choices": [], "provider": "hunter\/22"}', '{"choices": [], "x": {"hunter/22": 1}}']
    texts = [Chunk(json.loads(text), text).text for text in spelled]
    log.row(row(1), log.sent({"messages": [{"role": "user", "content": "x"}]}), Got(texts, {"role": "assistant"}))
    (stored,) = map(json.loads, (tmp_path / "exchanges.jsonl").read_text().splitlines())
    assert stored["chunks"] == [{"choices": [], "provider": REDACTED}, {"choices": [], "x": {REDACTED: 1}}]


def test_a_secret_in_quoted_json_is_redacted_in_every_part_of_a_row(tmp_path: Path) -> None:
    secret = 'pä"ss\\wörd'
    log = ExchangeLog(tmp_path, Redactor([secret]))
    nested = json.dumps({"command": json.dumps({"password": secret})})
    call = {"index": 0, "id": "c", "function": {"name": "exec", "arguments": nested}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}], "trace": nested}
    sent = log.sent({"messages": [{"role": "user", "content": nested}], "user": nested})
    log.row(row(1), sent, streamed([chunk]))
    log.row(row(2), sent, Got(body={"choices": [{"message": {"content": nested}}]}))
    stored = "".join(path.read_text() for path in sorted(tmp_path.rglob("*.json*")))
    assert re.search(r"w(\\+u00f6|ö)rd", stored) is None
    assert stored.count(REDACTED) >= 4


def test_a_log_that_was_cut_short_still_rebuilds(tmp_path: Path) -> None:
    assert rebuild_messages(tmp_path) == []
    log = ExchangeLog(tmp_path, Redactor([]))
    log.row(row(1), log.sent({"messages": [{"role": "user", "content": "x"}]}), Got(error={"error": {}}))
    with (tmp_path / "exchanges.jsonl").open("ab") as rows:
        rows.write(b'{"messages": ["abc')
    assert rebuild_messages(tmp_path) == [{"role": "user", "content": "x"}]


def test_a_full_disk_loses_a_record_and_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ledger.jsonl").symlink_to("/dev/full")
    ledger = Ledger(tmp_path)
    ledger.append(call("ok").model_dump(mode="json", by_alias=True))
    ledger.append(call("ok").model_dump(mode="json", by_alias=True))
    ledger.close()
    assert [Call.model_validate_json(line) for line in ledger.lines("a", "executor")] == [call("ok"), call("ok")]
    assert ledger.lines("a", "supervisor") == ledger.lines("b") == []
    assert capsys.readouterr().err.count("a record was lost") == 1


def test_lines_are_valid_utf8_whatever_the_text() -> None:
    line = json_line({"a": "\ud800é"})
    assert json.loads(line.decode("utf-8")) == {"a": "\ud800é"}


def test_keys_do_not_show_in_representations(tmp_path: Path) -> None:
    provider = Provider(name="p", base_url="https://x/v1/", api_key="sk-REAL")
    request = GrantRequest(attempt="a", role="executor", model="m", provider="p", log=tmp_path, secrets=("hunter22",))
    assert "sk-REAL" not in repr(provider)
    assert "hunter22" not in repr(request)
    assert provider.base_url == "https://x/v1"


def test_the_client_is_cheap_to_import() -> None:
    code = "import sys, pytest_uniclaw.models.client; print(sorted({'aiohttp', 'openai', 'docker'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
