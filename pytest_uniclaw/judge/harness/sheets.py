"""Excel workbooks as rows of text, read as a stream: a cell gives its stored value, and its formula beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from .common import ToolError, shortened
from .office import Attributes, Parts, reference

COLUMNS = 256
CELL_CHARACTERS = 2000
DATE_FORMATS = frozenset({*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)})
"""Number formats that come with Excel and show dates or times."""
_NOT_A_PATTERN = re.compile(r'"[^"]*"|\\.|_.|\*.|\[[^\]]*\]')
_CELL = re.compile(r"([A-Z]{1,3})\d{1,7}")


@dataclass(frozen=True)
class Sheet:
    """A sheet of a workbook: its name, its part, and ``, hidden`` where it is."""

    name: str
    part: str
    note: str = ""


class Book:
    """Reads a workbook's main part, its shared strings and its styles."""

    def __init__(self, parts: Parts, main: str) -> None:
        self.parts = parts
        self.keys: list[tuple[str, str, str]] = []
        self.epoch_1904 = False
        self.strings = Strings()
        self.styles = NumberStyles()
        parts.parse(main, self)
        relations = parts.related(main)
        for relation in relations:
            if relation.kind == "sharedStrings" and relation.target in parts.names:
                parts.parse(relation.target, self.strings)
            if relation.kind == "styles" and relation.target in parts.names:
                parts.parse(relation.target, self.styles)
        targets = {relation.key: relation.target for relation in relations}
        self.sheets = [Sheet(name, targets.get(key, ""), note) for name, key, note in self.keys]

    def start(self, name: str, attributes: Attributes) -> None:
        """Note a sheet, or where dates begin."""
        if name == "sheet":
            note = "" if attributes.get("state", "visible") == "visible" else ", hidden"
            self.keys.append((attributes.get("name", ""), reference(attributes), note))
        elif name == "workbookPr":
            self.epoch_1904 = attributes.get("date1904") in ("1", "true")

    def end(self, name: str) -> None:
        """Nothing ends here."""

    def text(self, data: str) -> None:
        """There is no text."""

    def rows(self, sheet: Sheet) -> Iterator[tuple[int, list[str]]]:
        """Yield the rows that a sheet stores, with their numbers. Raises ToolError."""
        cells = Cells(self)
        for _ in self.parts.stream(sheet.part, cells):
            yield from cells.rows
            cells.rows.clear()

    def sheet(self, wanted: str) -> Sheet:
        """Return a sheet by its name or its number from 1, the first one for "". Raises ToolError."""
        for sheet in self.sheets:
            if wanted in ("", sheet.name):
                return sheet
        if wanted.isdecimal() and 1 <= int(wanted) <= len(self.sheets):
            return self.sheets[int(wanted) - 1]
        names = ", ".join(sheet.name for sheet in self.sheets)
        raise ToolError(f"{self.parts.label}: has no sheet {wanted!r}; its sheets are {names[:1000]}")


class Strings:
    """Reads the shared strings; phonetic guides are left out."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.pieces: list[str] = []
        self.reading = False
        self.phonetic = 0

    def start(self, name: str, attributes: Attributes) -> None:
        """Open a string or a run of one."""
        if name == "si":
            self.pieces = []
        self.phonetic += name == "rPh"
        self.reading = name == "t" and not self.phonetic

    def end(self, name: str) -> None:
        """Close a string."""
        self.reading = False
        self.phonetic -= name == "rPh"
        if name == "si":
            self.items.append("".join(self.pieces))

    def text(self, data: str) -> None:
        """Take characters of a string."""
        if self.reading:
            self.pieces.append(data)


class NumberStyles:
    """Reads which cell styles show a date or a time."""

    def __init__(self) -> None:
        self.dates: set[str] = {str(number) for number in DATE_FORMATS}
        self.formats: list[str] = []
        self.in_cells = False

    def start(self, name: str, attributes: Attributes) -> None:
        """Note a number format or a cell style."""
        if name == "numFmt" and shows_date(attributes.get("formatCode", "")):
            self.dates.add(attributes.get("numFmtId", ""))
        elif name == "cellXfs":
            self.in_cells = True
        elif name == "xf" and self.in_cells:
            self.formats.append(attributes.get("numFmtId", ""))

    def end(self, name: str) -> None:
        """Leave the cell styles."""
        if name == "cellXfs":
            self.in_cells = False

    def text(self, data: str) -> None:
        """There is no text."""

    def is_date(self, style: str) -> bool:
        """Tell whether a cell style shows a date or a time."""
        return style.isdecimal() and int(style) < len(self.formats) and self.formats[int(style)] in self.dates


class Cells:
    """Reads the rows of one sheet into ``rows``."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.rows: list[tuple[int, list[str]]] = []
        self.number = 0
        self.cells: dict[int, str] = {}
        self.beyond = 0
        self.column = 0
        self.kind = self.style = self.reading = ""
        self.value: list[str] = []
        self.formula: list[str] | None = None
        self.phonetic = 0

    def start(self, name: str, attributes: Attributes) -> None:
        """Open a row, a cell, or what it holds."""
        if name == "row":
            number = attributes.get("r", "")
            self.number = int(number) if number.isdecimal() else self.number + 1
            self.cells, self.beyond, self.column = {}, 0, 0
        elif name == "c":
            self.column = column_of(attributes.get("r", "")) or self.column + 1
            self.kind, self.style = attributes.get("t", "n"), attributes.get("s", "")
            self.value, self.formula = [], None
        elif name == "f":
            self.formula, self.reading = [], "f"
        elif name == "v" or (name == "t" and not self.phonetic):
            self.reading = "v"
        self.phonetic += name == "rPh"

    def text(self, data: str) -> None:
        """Take characters of a value or a formula."""
        if self.reading == "v":
            self.value.append(data)
        elif self.reading == "f" and self.formula is not None:
            self.formula.append(data)

    def end(self, name: str) -> None:
        """Close a cell or a row."""
        self.phonetic -= name == "rPh"
        if name in ("f", "v", "t"):
            self.reading = ""
        elif name == "c":
            self.put(self.shown())
        elif name == "row" and self.cells:
            row = [self.cells.get(column, "") for column in range(1, max(self.cells) + 1)]
            self.rows.append((self.number, [*row, f"[{self.beyond} more cells]"] if self.beyond else row))

    def put(self, text: str) -> None:
        """Keep a cell that has something in it."""
        if text and self.column <= COLUMNS:
            self.cells[self.column] = text
        elif text:
            self.beyond += 1

    def shown(self) -> str:
        """Return a cell as text on one line."""
        value = self.read_value("".join(self.value))
        if self.formula is not None:
            value = f"{value} (={''.join(self.formula) or 'shared formula'})".lstrip()
        return shortened(" ".join(value.split()), CELL_CHARACTERS)

    def read_value(self, raw: str) -> str:
        """Return what a stored value means."""
        if self.kind == "s":
            items = self.book.strings.items
            return items[int(raw)] if raw.isdecimal() and int(raw) < len(items) else raw
        if self.kind == "b":
            return "TRUE" if raw == "1" else "FALSE"
        if self.kind != "n" or not raw:
            return raw
        try:
            number = float(raw)
        except ValueError:
            return raw
        if self.book.styles.is_date(self.style):
            return moment(number, self.book.epoch_1904) or raw
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)


def column_of(place: str) -> int:
    """Return the number of a cell's column, from 1; 0 when the place is not one."""
    match = _CELL.fullmatch(place)
    number = 0
    for letter in match[1] if match else "":
        number = 26 * number + ord(letter) - 64
    return number


def shows_date(pattern: str) -> bool:
    """Tell whether a number format shows a date or a time of day; elapsed time stays a number of days."""
    elapsed = re.search(r"\[[hms]+\]", pattern, re.IGNORECASE)
    return not elapsed and bool(re.search("[dmyhs]", _NOT_A_PATTERN.sub("", pattern), re.IGNORECASE))


def moment(days: float, epoch_1904: bool) -> str:
    """Return a day number as ISO date, time or both; "" when it is none.

    Excel takes 1900 for a leap year, so its days before March 1900 are one further on.
    """
    start = datetime(1904, 1, 1) if epoch_1904 else datetime(1899, 12, 31 if days < 60 else 30)  # noqa: DTZ001
    try:
        when = start + timedelta(seconds=round(days * 86400))
    except (OverflowError, ValueError):
        return ""
    if 0 <= days < 1:
        return when.time().isoformat()
    return when.date().isoformat() if when.time() == datetime.min.time() else when.isoformat(" ")


def workbook_text(parts: Parts, main: str) -> Iterator[str]:
    """Yield a workbook sheet by sheet, each row as ``number: cell | cell``."""
    book = Book(parts, main)
    for sheet in book.sheets:
        yield f"[sheet {sheet.name}{sheet.note}]\n"
        if "/worksheets/" not in f"/{sheet.part}":
            yield "(a sheet without cells)\n"
            continue
        for number, cells in book.rows(sheet):
            yield f"{number}: {' | '.join(cells)}\n"
