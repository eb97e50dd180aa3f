"""``search`` for a pattern, and ``find_quotes``, by which code verifies what a judge quotes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from .common import MIB, Answer, Arguments, TimeUp, ToolError, fill, go_on
from .places import Found, Root
from .texts import UNPRINTED, rendered

PATTERN_CHARACTERS = 2000
PAGE_MATCHES = 100
FILES = 100_000
AROUND = 120
"""Characters of a line that are shown on each side of a match."""
LINE_CHARACTERS = 4 * MIB
QUOTE_CHARACTERS = 64 * MIB
"""Longest text that quotes are looked for in."""
QUOTES = 1000
ZERO_WIDTH = re.compile(
    "[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff]"
)
_JSON_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_JSON_CHARACTERS = {"b": " ", "f": " ", "n": "\n", "r": "\n", "t": "\t"}


def search(root: Root, arguments: Arguments) -> Answer:
    """List the matches of a regular expression, line by line, below a folder or in one file, 100 at a time."""
    pattern = compiled(arguments.text("pattern"))
    path = root.find(arguments.text("path", "."))
    offset = arguments.whole("offset", 0, 0, 1 << 40)
    if path.is_dir():
        files = [Found(e.path, e.name, e.size) for e in root.walk(path, FILES) if e.kind == "file"]
    else:
        files = [root.file(arguments.text("path"))]
    notes: list[str] = []
    lines: list[str] = []
    following = None
    try:
        following = fill(lines, matches(files[:FILES], pattern, notes), offset, PAGE_MATCHES)
    except TimeUp:
        notes.append("the time was over before everything was searched; search one file, or a simpler pattern")
    if len(files) > FILES:
        notes.append(f"only the first {FILES} files were searched")
    head = f"[{len(lines)} matches from number {offset}]" if lines else f"[no match from number {offset} on]"
    said = "".join(f"\n[{note}]" for note in notes)
    return Answer("\n".join([head, *lines]) + go_on(following) + said, next_offset=following)


def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern ready for use. Raises ToolError."""
    if not pattern or len(pattern) > PATTERN_CHARACTERS:
        raise ToolError(f"pattern must have 1 to {PATTERN_CHARACTERS} characters")
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ToolError(f"pattern is not a regular expression of Python's re module: {error}") from None


def matches(files: list[Found], pattern: re.Pattern[str], notes: list[str]) -> Iterator[str]:
    """Yield ``file:line: text`` for each match; say in the notes at the end what could not be searched."""
    unread: list[str] = []
    for found in files:
        try:
            yield from matches_in(found, pattern)
        except (ToolError, OSError) as error:
            unread.append(str(error))
    if unread:
        notes.append(f"not searched: {unread[0]}" + (f", and {len(unread) - 1} more" if len(unread) > 1 else ""))


def matches_in(found: Found, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield the matches of one file; lines are counted from 1 in its text as read_file gives it."""
    for number, line in enumerate(lines_of(rendered(found).pieces), 1):
        for match in pattern.finditer(line):
            if match.end() > match.start():
                yield f"{found.name}:{number}: {snippet(line, match)}"


def lines_of(pieces: Iterator[str]) -> Iterator[str]:
    """Yield lines; one that is longer than LINE_CHARACTERS comes in parts."""
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        yield from lines
        if len(rest) > LINE_CHARACTERS:
            yield rest
            rest = ""
    if rest:
        yield rest


def snippet(line: str, match: re.Match[str]) -> str:
    """Return what is around a match."""
    start, end = max(match.start() - AROUND, 0), min(match.end(), match.start() + AROUND) + AROUND
    return ("…" if start else "") + line[start:end].strip() + ("…" if end < len(line) else "")


def find_quotes(root: Root, arguments: Arguments) -> Answer:
    """Say of each quote whether it stands in its file; ``text`` holds a line for each file that cannot be read."""
    quotes = arguments.values.get("quotes")
    if not isinstance(quotes, list) or len(quotes) > QUOTES:
        raise ToolError(f"quotes must be a list of at most {QUOTES} objects with path and text")
    wanted = [quote_of(quote) for quote in quotes]
    texts: dict[str, tuple[str, ...]] = {}
    unread: list[str] = []
    for path in dict.fromkeys(path for path, _ in wanted):
        try:
            texts[path] = readings(root.file(path))
        except (ToolError, OSError) as error:
            unread.append(str(error))
    found = [bool(text) and any(text in reading for reading in texts.get(path, ())) for path, text in wanted]
    return Answer("\n".join(unread), found=found)


def quote_of(quote: Any) -> tuple[str, str]:
    """Return the path and the folded text of a quote. Raises ToolError."""
    if not isinstance(quote, Mapping) or not all(isinstance(quote.get(key), str) for key in ("path", "text")):
        raise ToolError("a quote is an object with path and text, both strings")
    return quote["path"], folded(quote["text"])


def readings(found: Found) -> tuple[str, ...]:
    """Return all of a file's text, folded: as it is and, where it has any, with JSON's escapes resolved.

    A judge that reads ``{"text": "say \\"hi\\""}`` may quote it as ``say "hi"``. Of a longer text the first
    QUOTE_CHARACTERS are looked through. Raises ToolError when it has no text.
    """
    parts: list[str] = []
    left = QUOTE_CHARACTERS
    for piece in rendered(found).pieces:
        parts.append(piece[:left])
        left -= len(parts[-1])
        if not left:
            break
    text = "".join(parts)
    return (folded(text), folded(_JSON_ESCAPE.sub(unescaped, text))) if "\\" in text else (folded(text),)


def unescaped(match: re.Match[str]) -> str:
    """Return the character of one JSON escape."""
    return chr(int(match[1], 16)) if match[1] else _JSON_CHARACTERS.get(match[2], match[2])


def folded(text: str) -> str:
    """Return a text in NFKC, runs of white space as one space, without zero-width characters and outer space."""
    normal = unicodedata.normalize("NFKC", ZERO_WIDTH.sub("", UNPRINTED.sub("\ufffd", text)))
    return " ".join(normal.split())
