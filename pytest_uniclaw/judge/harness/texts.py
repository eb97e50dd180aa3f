"""``read_file`` and the one rendering of a file as text, in which quotes are looked for too."""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from .common import MIB, PAGE_BYTES, Answer, Arguments, ToolError
from .places import Found, Root

PAGE_CHARACTERS = 32_768
DEFAULT_CHARACTERS = 16_384
HEAD_BYTES = 8192
"""A NUL among the first so many bytes makes a file binary."""
PIECE_BYTES = MIB
DOCUMENT_BYTES = 256 * MIB
"""Largest document that is opened; plain text has no limit, it is read piece by piece."""
UNPRINTED = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f\ud800-\udfff]")
"""Characters that are rendered as U+FFFD."""

_IMAGES = {
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
}
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


@dataclass(frozen=True)
class Rendering:
    """A file as text: what kind of file it is, and its text in pieces."""

    kind: str
    pieces: Iterator[str]


def read_file(root: Root, arguments: Arguments) -> Answer:
    """Give the characters of a file from ``offset`` on, at most ``limit`` and one page of bytes."""
    found = root.file(arguments.text("path"))
    offset = arguments.whole("offset", 0, 0, 1 << 40)
    limit = arguments.whole("limit", DEFAULT_CHARACTERS, 1, PAGE_CHARACTERS)
    rendering = rendered(found)
    window, total = part_of(rendering.pieces, offset, limit)
    if offset and offset >= total:
        raise ToolError(f"{found.name}: offset {offset} is beyond its end, it has {total} characters")
    window = window.encode()[:PAGE_BYTES].decode(errors="ignore")
    end = offset + len(window)
    whole = "the whole file" if len(window) == total else f"these are {offset} to {end}"
    following = end if end < total else None
    rest = f"\n[cut here: {total - end} characters follow, go on with offset={end}]" if following else ""
    head = f"[{found.name}: {rendering.kind}, {total} characters, {whole}]"
    return Answer(f"{head}\n{window}{rest}", next_offset=following)


def part_of(pieces: Iterator[str], offset: int, limit: int) -> tuple[str, int]:
    """Return a window of a text, and the number of all its characters."""
    taken: list[str] = []
    total = 0
    for piece in pieces:
        start, end = max(offset - total, 0), max(offset + limit - total, 0)
        taken.append(piece[start:end])
        total += len(piece)
    return "".join(taken), total


def rendered(found: Found) -> Rendering:
    """Return a file as text. Raises ToolError, also later from the pieces, where it has none."""
    head = found.head(HEAD_BYTES)
    if head.startswith(b"PK\x03\x04"):
        return Rendering(*of_zip(sized(found)))
    if b"%PDF-" in head[:1024]:
        return Rendering("PDF", plain(of_pdf(sized(found))))
    refuse_binary(found, head)
    coding = coding_of(found, head)
    kind = "text" if coding in ("utf-8", "utf-8-sig") else f"text ({coding})"
    return Rendering(kind, plain(decoded(found, coding)))


def sized(found: Found) -> Found:
    """Refuse a document that is too large. Raises ToolError."""
    if found.size > DOCUMENT_BYTES:
        raise ToolError(f"{found.name}: a document of {found.size} bytes is too large to be opened")
    return found


def of_zip(found: Found) -> tuple[str, Iterator[str]]:
    """Return the kind and the text of an Office document, or the table of contents of any other archive."""
    from .office import document_text

    kind, pieces = document_text(found)
    return kind, plain(pieces)


def of_pdf(found: Found) -> Iterator[str]:
    """Yield the text of a PDF page by page, as it is laid out."""
    from .programs import run_program

    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    program = run_program(["pdftotext", "-layout", "-enc", "UTF-8", str(found.path), "-"], "read a PDF")
    page, number = "", 1
    for data in itertools.chain(program, (b"",)):
        *pages, page = (page + decoder.decode(data)).split("\f")
        for text in pages:
            yield f"[page {number}]\n{text.rstrip()}\n"
            number += 1
    if page.strip():
        yield f"[page {number}]\n{page}"


def refuse_binary(found: Found, head: bytes) -> None:
    """Raise ToolError, with the tool to use instead, for what is no text."""
    if head.startswith(b"SQLite format 3\0"):
        raise ToolError(f"{found.name}: is an SQLite database; use query_database")
    image = next((name for magic, name in _IMAGES.items() if head.startswith(magic)), None)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        image = "WebP"
    if image and (b"\0" in head or image == "JPEG"):
        raise ToolError(f"{found.name}: is an image ({image}); use view_image")
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        raise ToolError(f"{found.name}: is an old or encrypted Office file; it cannot be read")
    marked = any(head.startswith(mark) for mark, _ in _MARKS)
    if b"\0" in head and not marked:
        advice = "media_info tells about audio and video" if looks_like_media(head) else "it has no text to read"
        raise ToolError(f"{found.name}: is a binary file of {found.size} bytes; {advice}")


def looks_like_media(head: bytes) -> bool:
    """Tell whether a file begins like audio or video."""
    starts = (b"RIFF", b"OggS", b"ID3", b"fLaC", b"\x1aE\xdf\xa3", b"FLV", b"\xff\xfb", b"\xff\xf3")
    return head.startswith(starts) or head[4:8] == b"ftyp"


def coding_of(found: Found, head: bytes) -> str:
    """Return the first coding that a whole text decodes in; for none it is UTF-8 with replacements."""
    for mark, coding in _MARKS:
        if head.startswith(mark):
            return coding
    return next((coding for coding in ("utf-8", "gb18030") if decodes(found, coding)), "damaged utf-8")


def decodes(found: Found, coding: str) -> bool:
    """Tell whether a file is valid in a coding."""
    decoder = codecs.getincrementaldecoder(coding)("strict")
    try:
        with found.open() as file:
            while data := file.read(PIECE_BYTES):
                decoder.decode(data)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def decoded(found: Found, coding: str) -> Iterator[str]:
    """Yield the text of a file."""
    decoder = codecs.getincrementaldecoder(coding.removeprefix("damaged "))("replace")
    with found.open() as file:
        while data := file.read(PIECE_BYTES):
            yield decoder.decode(data)
    yield decoder.decode(b"", final=True)


def plain(pieces: Iterator[str]) -> Iterator[str]:
    """Replace what no one can see or send."""
    for piece in pieces:
        yield UNPRINTED.sub("\ufffd", piece)
