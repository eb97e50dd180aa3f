"""OpenClaw's database as an adversary writes it: refused by its structure, and read in a process that is bounded."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.agents import openclaw_database, openclaw_reader
from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.openclaw_endings import finish_of
from pytest_uniclaw.agents.openclaw_session import read_sessions
from pytest_uniclaw.agents.transcript import final_answer, was_cut
from pytest_uniclaw.agents.usage import messages
from tests.test_openclaw import TABLE, said, text, zstd

READER = Path(openclaw_reader.__file__)
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
HOURS = "instr(replace(hex(zeroblob(4000000)), '0', 'a'), replace(hex(zeroblob(2000000)), '0', 'a') || 'b')"
"""One opcode, in which SQLite neither looks at a clock nor at a signal."""
COLUMNS = "session_id TEXT, seq INTEGER, event_json TEXT, event_zstd BLOB"


def computed(column: str, expression: str) -> str:
    """A table in which one column is computed when it is read."""
    return f"CREATE TABLE transcript_events({COLUMNS.replace(column, f'{column} AS ({expression})')})"


HOSTILE = {
    "an endless opcode": computed("event_json TEXT", HOURS),
    "large ids": computed("session_id TEXT", "hex(zeroblob(7900000)) || seq"),
    "large events": computed("event_json TEXT", "hex(zeroblob(6000000))"),
    "endless sessions": f"CREATE VIEW transcript_events AS {ENDLESS} "
    "SELECT 'chat' || i || hex(zeroblob(50)) session_id, i seq, '{}' event_json, NULL event_zstd FROM n",
    "an engine of its own": f"CREATE VIRTUAL TABLE transcript_events USING fts5({COLUMNS})",
}  # fmt: skip


def message(role: str, words: str, **more: Any) -> str:
    return json.dumps(said(role, [text(words)], **more))


def database(folder: Path, rows: list[tuple[Any, ...]], schema: str = TABLE, *, index: bool = False) -> Path:
    """A database with these rows; another schema is put in behind them, past all of SQLite's checks."""
    path = folder / "0" / "openclaw-agent.sqlite"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(TABLE)
        connection.executemany("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", rows)
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ?", (schema,))
        if index:
            connection.execute("CREATE INDEX place ON transcript_events (session_id, seq)")
        connection.commit()
    return folder


def only_a_cut(records: tuple[Record, ...]) -> bool:
    return messages(records) == [] and was_cut(records)


def turn(session: str, answer: str) -> list[tuple[Any, ...]]:
    return [(session, 1, message("user", "Go."), None), (session, 2, message("assistant", answer), None)]


@pytest.fixture(params=[True, False], ids=["whole", "without its look at the structure"])
def bounded(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader as it is, and one that has its bounds alone: each has to be enough."""
    monkeypatch.setattr(openclaw_database, "READ_SECONDS", 2.0)
    if not request.param:
        source = READER.read_text().replace("if not is_ordinary(self._connection)", "if False")
        assert "if False" in source
        (tmp_path / "reader.py").write_text(source)
        monkeypatch.setattr(openclaw_reader, "__file__", str(tmp_path / "reader.py"))


@pytest.mark.processes
@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE)
def test_a_database_that_computes_costs_two_seconds_and_its_cut_is_told(tmp_path: Path, schema: str) -> None:
    rows = [("chat", number, "{}", None) for number in range(300)]
    started = time.monotonic()
    records = read_sessions(database(tmp_path, rows, schema))
    assert time.monotonic() - started < 20
    assert messages(records) == []
    assert was_cut(records) or records[-1]["brokenLines"]


@pytest.mark.parametrize("kind", ["VIRTUAL", "STORED"])
def test_a_table_with_any_computed_column_is_refused(tmp_path: Path, kind: str) -> None:
    schema = f"CREATE TABLE transcript_events({COLUMNS}, more AS (1) {kind})"
    assert only_a_cut(read_sessions(database(tmp_path, turn("chat", "Done."), schema)))


def test_a_table_is_what_its_name_says(tmp_path: Path) -> None:
    folder = database(tmp_path, turn("chat", "Done."), TABLE)
    with closing(sqlite3.connect(folder / "0" / "openclaw-agent.sqlite")) as connection:
        connection.execute("CREATE VIEW v AS SELECT 1")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = 'CREATE VIEW transcript_events AS SELECT 1' WHERE name = 'v'"
        )
        connection.execute(f"UPDATE sqlite_master SET sql = '{TABLE.replace('_events', '_event5')}' WHERE name <> 'v'")
        connection.commit()
    assert only_a_cut(read_sessions(folder))


def test_the_table_of_the_release_is_read(tmp_path: Path) -> None:
    schema = (
        "CREATE TABLE transcript_events (\n  session_id TEXT NOT NULL,\n  seq INTEGER NOT NULL,\n  event_json TEXT,\n"
        "  event_zstd BLOB,\n  navigation_json TEXT,\n CHECK (seq >= 0))"
    )
    records = read_sessions(database(tmp_path, turn("chat", "Done."), schema))
    assert final_answer(records) == "Done."
    assert not was_cut(records)


def test_the_users_session_is_read_before_any_number_of_others(tmp_path: Path) -> None:
    rows = [row for number in range(300) for row in turn(f"a{number:03}", "Not mine.")]
    records = read_sessions(database(tmp_path, [*rows, *turn("chat", "Mine.")]))
    assert final_answer(records) == "Mine."
    assert finish_of(records, "openclaw").finished
    assert was_cut(records)
    assert len({record.get("agentId") for record in records}) == openclaw_database.MAX_SESSIONS + 1


@pytest.mark.parametrize("session", ["", "5c0ffee5", "x" * 200])
def test_no_other_session_stands_for_the_users(tmp_path: Path, session: str) -> None:
    records = read_sessions(database(tmp_path, turn(session, "Not mine.")))
    assert [record["agentId"] for record in records] == [session[:100] or "[no id]"] * 2 or len(session) == 200
    assert all(record.get("agentId") for record in records)
    assert finish_of(records, "openclaw").reason == "openclaw stored no session"


@pytest.mark.parametrize("session", [None, 7, b"chat", b"\xff", "x" * 201])
def test_what_is_no_id_is_left_out_and_told(tmp_path: Path, session: Any) -> None:
    rows = [(session, *row[1:]) for row in turn("", "Not mine.")]
    records = read_sessions(database(tmp_path, [*rows, *turn("chat", "Mine.")], TABLE))
    assert [message["content"] for message in messages(records)] == [[text("Go.")], [text("Mine.")]] or session == 7
    assert final_answer(records) == "Mine."
    assert was_cut(records) is (session != 7), "a column of type TEXT keeps a number as text"


def test_every_byte_of_a_row_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openclaw_database, "MAX_BYTES", 100_000)
    for number, pair in enumerate((
        ("{" * 10_000, None), (message("user", "x"), b"x" * 10_000), (None, zstd.compress(b" " * 50_000)),
    )):  # fmt: skip
        (tmp_path / str(number)).mkdir()
        rows = [("chat", at, *pair) for at in range(50)] + turn("other", "Not read.")
        records = read_sessions(database(tmp_path / str(number), rows))
        assert was_cut(records)
        assert records[-1].get("brokenLines", 0) + len(messages(records)) <= 12


def test_a_value_that_fails_late_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openclaw_database, "FAILED_BYTES", openclaw_database.MAX_BYTES // 5)
    packed = bytearray(zstd.compress(b" " * 10_000, options={zstd.CompressionParameter.checksum_flag: 1}))
    packed[-1] ^= 1
    records = read_sessions(database(tmp_path, [("chat", at, None, bytes(packed)) for at in range(50)]))
    assert records[-1]["brokenLines"] == 6
    assert was_cut(records)


@pytest.mark.parametrize(("name", "index", "read"), [
    ("MAX_LINES", True, {400}), ("MAX_LINE_BYTES", True, {449, 450}), ("MAX_LINE_BYTES", False, {0}),
])  # fmt: skip
def test_rows_are_bounded_in_number_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, index: bool, read: set[int]
) -> None:
    """Without an index, which OpenClaw's own table has, SQLite meets the row that is too long when it sorts.

    Some releases of Python ask for one row ahead.
    """
    monkeypatch.setattr(openclaw_database, name, 400)
    rows = [("chat", at, message("user", f"{at}"), None) for at in range(500)]
    rows[450] = ("chat", 450, message("user", "x" * 401), None)
    records = read_sessions(database(tmp_path, rows, index=index))
    assert was_cut(records)
    assert len(messages(records)) in read


@pytest.mark.processes
@pytest.mark.parametrize(
    "end", ["time.sleep(60)", "print('0 json e30', end='')", "print('0 json !')", "print('9' * 9999)", "os.abort()"]
)
def test_what_a_reader_wrote_before_its_end_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    lines = [("name", b"chat"), ("json", message("user", "Go.").encode()), ("json", b"{}")]
    wrote = "".join(f"0 {kind} {b64encode(data).decode()}\n" for kind, data in lines)
    (tmp_path / "reader.py").write_text(f"import os, time\nprint({wrote!r}, end='', flush=True)\n{end}\n")
    monkeypatch.setattr(openclaw_reader, "__file__", str(tmp_path / "reader.py"))
    monkeypatch.setattr(openclaw_database, "READ_SECONDS", 1.0)
    records = read_sessions(database(tmp_path, []))
    assert [message["content"] for message in messages(records)] == [[text("Go.")]]
    assert was_cut(records)


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="macOS does not bound the address space")
@pytest.mark.parametrize(
    "use", ["while True: pass", "bytearray(1 << 30)", "with open(sys.argv[1], 'wb') as f: f.write(bytes(2000))"],
    ids=["time", "memory", "disk"],
)  # fmt: skip
def test_the_process_is_bounded_for_good(tmp_path: Path, use: str) -> None:
    program = f"import runpy, sys\nrunpy.run_path({str(READER)!r})['bound_process'](1, 1 << 28, 1000)\n{use}"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path / "file")], stderr=subprocess.DEVNULL, timeout=30,
        check=False,
    )  # fmt: skip
    assert done.returncode != 0
