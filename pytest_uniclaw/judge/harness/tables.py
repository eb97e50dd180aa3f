"""``read_table``: rows of an Excel sheet or of delimited text."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from .common import MIB, PAGE_BYTES, Answer, Arguments, ToolError, go_on, shortened
from .office import Parts
from .places import Found, Root
from .searching import lines_of
from .sheets import CELL_CHARACTERS, COLUMNS, Book
from .texts import rendered, sized

ROWS, MOST_ROWS = 100, 1000
DELIMITERS = ",;\t|"
Rows = Iterator[tuple[int, list[str]]]


def read_table(root: Root, arguments: Arguments) -> Answer:
    """Give rows from ``first_row`` on, counted from 1, each as ``number: cell | cell``."""
    found = root.file(arguments.text("path"))
    first = arguments.whole("first_row", 1, 1, 1 << 40)
    most = arguments.whole("rows", ROWS, 1, MOST_ROWS)
    label, rows = rows_of(found, str(arguments.values.get("sheet") or ""))
    lines: list[str] = []
    numbers: list[int] = []
    following, size = None, 0
    for number, cells in rows:
        if number < first:
            continue
        line = f"{number}: {' | '.join(cells)}"
        size += len(line.encode(errors="replace")) + 1
        if len(lines) == most or (lines and size > PAGE_BYTES):
            following = number
            break
        lines.append(line)
        numbers.append(number)
    these = f"rows {numbers[0]} to {numbers[-1]}" if numbers else f"no row from {first} on"
    head = f"[{found.name}: {label}, {these}]"
    return Answer("\n".join([head, *lines]) + go_on(following, "first_row"), next_offset=following)


def rows_of(found: Found, sheet: str) -> tuple[str, Rows]:
    """Return what the table is and its rows with their numbers. Raises ToolError."""
    if found.head(4) == b"PK\x03\x04":
        return sheet_rows(sized(found), sheet)
    if sheet:
        raise ToolError(f"{found.name}: is no workbook; leave sheet out")
    lines = lines_of(rendered(found).pieces)
    first = next(lines, "")
    delimiter = "\t" if found.name.lower().endswith(".tsv") else max(DELIMITERS, key=first.count)
    return f"delimited by {delimiter!r}", delimited([first], lines, delimiter, found.name)


def sheet_rows(found: Found, wanted: str) -> tuple[str, Rows]:
    """Return the rows of a sheet, by its name or number, the first one by default."""
    parts = Parts(found)
    main = next((relation.target for relation in parts.related("") if relation.kind == "officeDocument"), "")
    if not main.startswith("xl/"):
        raise ToolError(f"{found.name}: is no workbook; use read_file")
    book = Book(parts, main)
    sheet = book.sheet(wanted)
    names = ", ".join(f"{other.name}{other.note}" for other in book.sheets)
    return f"sheet {sheet.name!r}{sheet.note} of: {shortened(names, 500)}", book.rows(sheet)


def delimited(first: list[str], rest: Iterator[str], delimiter: str, name: str) -> Rows:
    """Yield the rows of delimited text; a quoted cell may hold line ends. Raises ToolError."""
    csv.field_size_limit(4 * MIB)
    reader = csv.reader(with_ends(first, rest), delimiter=delimiter)
    number = 0
    try:
        for number, row in enumerate(reader, 1):
            cells = [shortened(" ".join(cell.split()), CELL_CHARACTERS) for cell in row[:COLUMNS]]
            yield number, cells + [f"[{len(row) - COLUMNS} more cells]"] * (len(row) > COLUMNS)
    except csv.Error as error:
        raise ToolError(f"{name}: is no table after row {number}: {error}; use read_file") from None


def with_ends(*parts: Iterable[str]) -> Iterator[str]:
    """Yield lines with the ends that were taken off them."""
    for part in parts:
        for line in part:
            yield f"{line}\n"
