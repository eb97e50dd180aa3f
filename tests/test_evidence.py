"""The readers that checks get: every bad file is a readable AssertionError, and no link is followed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_uniclaw.judge.harness import evidence as module
from pytest_uniclaw.judge.harness.evidence import Evidence


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("evidence/results", "evidence/state", "references"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def evidence(root: Path) -> Evidence:
    return Evidence(root, award=lambda fraction: None, violation=lambda text: None)


def put(root: Path, name: str, data: bytes | str, folder: str = "evidence/results") -> None:
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())


def test_files_are_listed_and_found(root: Path, evidence: Evidence) -> None:
    put(root, "b/c.txt", "x")
    put(root, "a.txt", "x")
    (root / "evidence/results/link").symlink_to(root / "evidence/results/a.txt")
    (root / "evidence/results/away").symlink_to("/etc")
    assert evidence.files() == ["a.txt", "b/c.txt"]
    assert evidence.exists("b/c.txt")
    assert evidence.path("./b/c.txt").read_text() == "x"


@pytest.mark.parametrize(
    "name",
    ["none.txt", "", ".", "b", "../state/x.json", "/etc/x", "link", "away/hostname", "a.txt/x", "a\0b", "b/../a.txt"],
)
def test_what_is_no_regular_file_below_results_does_not_exist(root: Path, evidence: Evidence, name: str) -> None:
    put(root, "b/c.txt", "x")
    put(root, "a.txt", "x")
    put(root, "x.json", "1", "evidence/state")
    (root / "evidence/results/link").symlink_to("/etc/hostname")
    (root / "evidence/results/away").symlink_to("/etc")
    assert not evidence.exists(name)
    with pytest.raises(AssertionError, match="does not exist"):
        evidence.bytes(name)


@pytest.mark.parametrize("name", [None, 3, ["a"], {}])
def test_a_name_of_another_type_does_not_exist(evidence: Evidence, name: Any) -> None:
    assert not evidence.exists(name)


BAD_JSON = {
    "empty": b"", "text": b"hello", "nan": b'{"a": NaN}', "infinity": b"[-Infinity]", "overflow": b"[1e999]",
    "deep": b"[" * 200_000, "digits": b"1" * 10_000, "binary": b"\x89PNG\r\n\x1a\n", "two": b"{} {}",
    "utf-16": '{"a": 1}'.encode("utf-16"),
}  # fmt: skip


@pytest.mark.parametrize("data", BAD_JSON.values(), ids=BAD_JSON)
def test_malformed_json_is_a_readable_assertion(root: Path, evidence: Evidence, data: bytes) -> None:
    put(root, "a.json", data)
    with pytest.raises(AssertionError, match=r"results/a\.json is not (valid JSON|UTF-8 text)"):
        evidence.json("a.json")


def test_good_json(root: Path, evidence: Evidence) -> None:
    put(root, "a.json", b"\xef\xbb\xbf" + json.dumps({"n": 10**1000, "x": [1.5, None, "\u6c49"]}).encode())
    assert evidence.json("a.json") == {"n": 10**1000, "x": [1.5, None, "汉"]}
    put(root, "s.json", "[1]", "evidence/state")
    assert evidence.state_json("s.json") == [1]
    put(root, "r.json", "[2]", "references")
    assert evidence.reference_json("r.json") == [2]
    with pytest.raises(AssertionError, match=r"state/none\.json does not exist"):
        evidence.state("none.json")


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a,b\n1,2\n", [{"a": "1", "b": "2"}]),
        ("\ufeffa , b\r\n1,2\r\n\r\n3\r\n", [{"a": "1", "b": "2"}, {"a": "3", "b": ""}]),
        ('a,b\n"x\ny","p,q"\n', [{"a": "x\ny", "b": "p,q"}]),
        ("a,b\n", []),
    ],
)
def test_tables(root: Path, evidence: Evidence, text: str, rows: list[dict[str, str]]) -> None:
    put(root, "t.csv", text)
    assert evidence.csv("t.csv") == rows


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"), (b"\n\n", "is empty"), (b"a,a\n1,2\n", "names a column twice"),
        (b"a,b\n1,2,3\n", "row 2 has 3 cells, its header has 2"),
        (b"a,b\n\xff\xfe", "is not UTF-8 text: byte 4 is 0xff"),
        (b"a\n" + b"x" * (module.CELL_LIMIT + 1), "is not a CSV table"),
    ],
)  # fmt: skip
def test_malformed_tables_are_readable_assertions(root: Path, evidence: Evidence, data: bytes, message: str) -> None:
    put(root, "t.csv", data)
    with pytest.raises(AssertionError, match=message):
        evidence.csv("t.csv")


def test_a_file_that_is_too_large_is_not_read(root: Path, evidence: Evidence) -> None:
    with (root / "evidence/results/big.txt").open("wb") as file:
        file.truncate(module.BYTES_LIMIT + 1)
    for read in (evidence.text, evidence.bytes, evidence.json, evidence.csv):
        with pytest.raises(AssertionError, match=r"results/big\.txt has 67108865 bytes, more than"):
            read("big.txt")


def test_the_transcript_and_what_is_read_from_it(root: Path, evidence: Evidence) -> None:
    call = {"type": "toolCall", "id": "1", "name": "exec", "arguments": {"command": "ls"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "first"}, call]},
        {"role": "toolResult", "content": [{"type": "text", "text": "out"}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": " last "}]},
        {"role": "assistant", "content": [call]},
        {"role": "assistant", "content": None},
    ]
    lines = [json.dumps({"type": "message", "message": m}) for m in messages]
    lines += ["not json", "[1]", '{"type": "message", "message": 3}']
    put(root, "transcript.jsonl", "\n".join(lines), "evidence")
    assert len(evidence.transcript) == 7
    assert evidence.tool_calls == [{"name": "exec", "arguments": {"command": "ls"}}] * 2
    assert evidence.answer == "last"


def test_no_transcript_is_an_empty_one(evidence: Evidence) -> None:
    assert (evidence.transcript, evidence.tool_calls, evidence.answer, evidence.files()) == ([], [], "", [])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.one_of(st.binary(max_size=200), st.text(max_size=100).map(lambda t: t.encode("utf-8", "replace"))))
def test_no_content_raises_anything_else(root: Path, evidence: Evidence, data: bytes) -> None:
    put(root, "x", data)
    readers: list[Callable[[str], object]] = [evidence.text, evidence.json, evidence.csv, evidence.bytes]
    for read in readers:
        with contextlib.suppress(AssertionError):
            read("x")
