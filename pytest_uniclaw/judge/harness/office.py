"""Word, PowerPoint and Excel files as text: their XML is read as a stream, so that neither size nor nesting matters.

Elements are told apart by their local names, which Word (``w:``) and drawings (``a:``) share for what holds text. A
document type declaration, which no Office file has, is refused: that is where XML's entity tricks begin.
"""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol
from xml.parsers import expat

from .common import MIB, ToolError
from .places import Found, shown

MEMBERS = 10_000
PART_BYTES = 64 * MIB
"""Largest part that is read, unpacked."""
TOTAL_BYTES = 512 * MIB
"""Largest document, unpacked as far as it says."""
CHUNK_BYTES = 65_536
PICTURE = re.compile(r"(?:word|ppt|xl)/media/[^/]+")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)
Attributes = Mapping[str, str]


class Reader(Protocol):
    """Hears what stands in a part; names are local ones."""

    def start(self, name: str, attributes: Attributes) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends."""

    def text(self, data: str) -> None:
        """Characters."""


@dataclass(frozen=True)
class Related:
    """A relationship of a part: its id, the last word of its type, the part it leads to."""

    key: str
    kind: str
    target: str


class Parts:
    """An opened Office file. Raises ToolError when it is no sound zip or unpacks to too much."""

    def __init__(self, found: Found) -> None:
        self.label = found.name
        try:
            self.archive = zipfile.ZipFile(found.path)
        except _DAMAGE as error:
            raise self.damaged(error) from None
        members = self.archive.infolist()
        total = sum(member.file_size for member in members)
        if len(members) > MEMBERS or total > TOTAL_BYTES:
            raise ToolError(f"{self.label}: would unpack to {len(members)} files of {total} bytes; it is not opened")
        self.names = {member.filename: member for member in members}

    def damaged(self, error: Exception) -> ToolError:
        """Return the error for a file that is not what it says."""
        return ToolError(f"{self.label}: is damaged or encrypted: {str(error)[:200] or type(error).__name__}")

    def read(self, name: str) -> bytes:
        """Return a part. Raises ToolError."""
        member = self.names.get(name)
        if member is None:
            raise ToolError(f"{self.label}: is damaged: it has no part {shown(name)[:200]}")
        if member.file_size > PART_BYTES or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ToolError(f"{self.label}: its part {shown(name)[:200]} of {member.file_size} bytes is not opened")
        try:
            with self.archive.open(member) as file:
                return file.read(PART_BYTES)
        except _DAMAGE as error:
            raise self.damaged(error) from None

    def stream(self, name: str, reader: Reader) -> Iterator[None]:
        """Feed a part to a reader; yields now and then, so that what the reader has can be taken. Raises ToolError."""
        data = self.read(name)
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = lambda name, attributes: reader.start(local(name), attributes)
        parser.EndElementHandler = lambda name: reader.end(local(name))
        parser.CharacterDataHandler = reader.text
        parser.StartDoctypeDeclHandler = self.refuse
        try:
            for at in range(0, len(data), CHUNK_BYTES):
                parser.Parse(data[at : at + CHUNK_BYTES], False)
                yield
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise self.damaged(error) from None
        yield

    def refuse(self, *declaration: object) -> None:
        """Raise ToolError for a document type declaration."""
        raise ToolError(f"{self.label}: holds a document type declaration, as no Office file does; it is not opened")

    def parse(self, name: str, reader: Reader) -> None:
        """Feed a whole part to a reader. Raises ToolError."""
        for _ in self.stream(name, reader):
            pass

    def related(self, name: str) -> list[Related]:
        """Return the relationships of a part, "" for those of the whole document."""
        folder, _, file = name.rpartition("/")
        source = posixpath.join(folder, "_rels", f"{file}.rels")
        relations = Relations(folder)
        if source in self.names:
            self.parse(source, relations)
        return relations.found

    def matching(self, pattern: str) -> list[str]:
        """Return the names of parts that a regular expression matches whole, numbers in their order."""
        return sorted((name for name in self.names if re.fullmatch(pattern, name)), key=natural)


class Relations:
    """Reads a relationships part; targets are relative to ``folder``."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.found: list[Related] = []

    def start(self, name: str, attributes: Attributes) -> None:
        """Note a relationship to another part."""
        if name != "Relationship" or attributes.get("TargetMode") == "External":
            return
        target = posixpath.normpath(posixpath.join("/", self.folder, attributes.get("Target", ""))).lstrip("/")
        kind = attributes.get("Type", "").rpartition("/")[2]
        self.found.append(Related(attributes.get("Id", ""), kind, target))

    def end(self, name: str) -> None:
        """Nothing ends here."""

    def text(self, data: str) -> None:
        """There is no text."""


def local(name: str) -> str:
    """Return an element's name without its namespace."""
    return name.rpartition(" ")[2]


def attribute(attributes: Attributes, name: str) -> str:
    """Return an attribute by its local name, "" when there is none."""
    return next((value for key, value in attributes.items() if local(key) == name), "")


def reference(attributes: Attributes) -> str:
    """Return an element's ``r:id``, "" when it has none."""
    return next((value for key, value in attributes.items() if key.endswith("relationships id")), "")


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts slide2 before slide10."""
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"(\d{1,9})", name)]


def pictures_of(parts: Parts) -> list[str]:
    """Return the pictures in a document; view_image knows them by their place in this list, from 1."""
    return [name for name in parts.names if PICTURE.fullmatch(name)]


def document_text(found: Found) -> tuple[str, Iterator[str]]:
    """Return what kind of document it is and its text in pieces; for an archive of another kind, its contents."""
    from .flow import slides_text, word_text
    from .sheets import workbook_text

    parts = Parts(found)
    main = next((relation.target for relation in parts.related("") if relation.kind == "officeDocument"), "")
    kinds: dict[str, tuple[str, Callable[[Parts, str], Iterator[str]]]] = {
        "word": ("Word document", word_text),
        "ppt": ("slides", slides_text),
        "xl": ("workbook", workbook_text),
    }
    kind = kinds.get(main.partition("/")[0])
    if kind is None:
        return "archive, its contents", (f"{shown(m.filename)}  {m.file_size} bytes\n" for m in parts.names.values())
    return kind[0], closed(parts, kind[1](parts, main))


def closed(parts: Parts, pieces: Iterator[str]) -> Iterator[str]:
    """Add what every kind of document may hold: charts and pictures."""
    from .flow import chart_lines

    yield from pieces
    for name in parts.matching(r"(?:word|ppt|xl)/charts/chart[^/]*\.xml"):
        yield f"[chart {shown(name)}]\n" + "".join(f"{line}\n" for line in chart_lines(parts, name))
    for number, name in enumerate(pictures_of(parts), 1):
        yield f"[picture {number}: {shown(name)}; view_image shows it as page={number}]\n"
