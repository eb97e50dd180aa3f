"""``query_database``: SQL on a copy-free, unchangeable view of an SQLite file.

The file is opened read-only and immutable. A write-ahead log or journal beside it belongs to its content, and SQLite
reads one only where it may write: such a database is copied to a scratch folder first. In both cases an authorizer
allows reading only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from .common import MIB, Answer, Arguments, TimeUp, ToolError, fill, go_on, shortened
from .places import Found, Root
from .texts import sized

ROWS = 200
CELL_CHARACTERS = 2000
VALUE_BYTES = 16 * MIB
SQL_CHARACTERS = 20_000
ALLOWED = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_RECURSIVE,
        sqlite3.SQLITE_TRANSACTION,
    }
)
PRAGMAS = frozenset(
    {
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "foreign_key_list",
        "foreign_key_check",
        "integrity_check",
        "quick_check",
        "user_version",
        "schema_version",
        "encoding",
        "page_count",
        "page_size",
        "collation_list",
        "function_list",
        "data_version",
        "freelist_count",
        "application_id",
    }
)
TAKE_ARGUMENT = frozenset(name for name in PRAGMAS if name.endswith(("_info", "_xinfo", "_list", "_check")))
REFUSED_FUNCTIONS = frozenset({"load_extension", "readfile", "writefile", "edit", "fts3_tokenizer"})


def query_database(root: Root, arguments: Arguments) -> Answer:
    """Run one SQL statement that reads, and give its rows from number ``offset`` on, 200 at a time."""
    found = root.file(arguments.text("path"))
    sql = arguments.text("sql")
    offset = arguments.whole("offset", 0, 0, 1 << 40)
    if len(sql) > SQL_CHARACTERS or "\0" in sql:
        raise ToolError(f"sql must have at most {SQL_CHARACTERS} characters and no NUL")
    if not found.head(16).startswith(b"SQLite format 3\0"):
        raise ToolError(f"{found.name}: is no SQLite database")
    lines: list[str] = []
    try:
        with opened(sized(found)) as connection:
            cursor = connection.execute(sql)
            names = [str(column[0]) for column in cursor.description or ()]
            following = fill(lines, (line_of(row) for row in cursor), offset, ROWS)
    except (sqlite3.Error, sqlite3.Warning) as error:
        if str(error) == "interrupted":  # SQLite's word for what the alarm raised inside it
            raise TimeUp from None
        raise ToolError(f"{found.name}: {error}{advice(error)}") from None
    head = f"[{len(lines)} rows from number {offset}]\n{' | '.join(names)}"
    return Answer("\n".join([head, *lines]) + go_on(following), next_offset=following)


def advice(error: Exception) -> str:
    """Return what helps against an error that the rules here cause."""
    return "; only one statement that reads is allowed" if "not authorized" in str(error) else ""


@contextlib.contextmanager
def opened(found: Found) -> Iterator[sqlite3.Connection]:
    """Yield a connection that can only read. Raises sqlite3.Error."""
    with readable(found.path) as address:
        connection = sqlite3.connect(address, uri=True, isolation_level=None)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
            connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
            connection.text_factory = lambda data: data.decode("utf-8", "replace")
            connection.set_progress_handler(lambda: 0, 10_000)  # lets the alarm interrupt a long step
            connection.set_authorizer(allowed)
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def readable(path: Path) -> Iterator[str]:
    """Yield the address to open a database at."""
    beside = [other for suffix in ("-wal", "-journal") if has_content(other := path.with_name(path.name + suffix))]
    if not beside:
        yield f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1"
        return
    with tempfile.TemporaryDirectory() as folder:
        for source in (path, *beside):
            shutil.copyfile(source, Path(folder, source.name), follow_symlinks=False)
        yield f"file:{quote(os.fsencode(Path(folder, path.name)))}?mode=rw"


def has_content(path: Path) -> bool:
    """Tell whether there is a regular file with something in it."""
    return not path.is_symlink() and path.is_file() and path.stat().st_size > 0


def allowed(action: int, first: str | None, second: str | None, database: str | None, source: str | None) -> int:
    """Decide about one thing that a statement would do."""
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_DENY if (second or "").lower() in REFUSED_FUNCTIONS else sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_PRAGMA:
        name = (first or "").lower()
        reads = name in PRAGMAS and (second is None or name in TAKE_ARGUMENT)
        return sqlite3.SQLITE_OK if reads else sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_UPDATE and first == "sqlite_master":
        return sqlite3.SQLITE_OK  # how SQLite asks to see a virtual table; the schema itself cannot be written
    return sqlite3.SQLITE_OK if action in ALLOWED else sqlite3.SQLITE_DENY


def line_of(row: tuple[object, ...]) -> str:
    """Return a row on one line; NULL and BLOBs say what they are."""
    return " | ".join(cell_of(value) for value in row)


def cell_of(value: object) -> str:
    """Return a value on one line."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"BLOB of {len(value)} bytes: {value[:32].hex()}{'…' if len(value) > 32 else ''}"
    return shortened(" ".join(str(value).split()) if isinstance(value, str) else str(value), CELL_CHARACTERS)
