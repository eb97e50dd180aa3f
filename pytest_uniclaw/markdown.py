"""The little Markdown a rubric is written in: sections, and in them list items, table rows, headings, paragraphs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

# `+` is no list mark here: rubrics wrap sums of weights, and a line may then begin with "+ 0.05".
_FENCE = re.compile(r"\s*(```|~~~)")
_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*\s*$")
_ITEM = re.compile(r"(\s*)(?:[-*]|\d{1,3}[.)])\s+(.*)")
_RULE = re.compile(r"\s*\|?\s*:?-{2,}[-|:\s]*$")
_PIPE = re.compile(r"(?:`[^`]*`|\\.|[^|`\\]|`)+")


@dataclass(frozen=True, slots=True)
class Chapter:
    """A level-two section: its title without number, its body with the one-based line of the title."""

    title: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of a chapter. Nested list items belong to the text of their outermost item."""

    kind: Literal["item", "row", "heading", "text"]
    text: str
    line: int
    cells: tuple[tuple[str, str], ...] = ()
    """For a table row: (lower-cased column title, cell) pairs."""


def chapters(text: str) -> Iterator[Chapter]:
    """The level-two sections of a document, fenced code ignored."""
    title, start, body, fenced = "", 0, list[str](), False
    for number, line in enumerate(text.splitlines(), start=1):
        fenced ^= bool(_FENCE.match(line))
        heading = None if fenced else _HEADING.match(line)
        if heading and len(heading[1]) <= 2:
            if start:
                yield Chapter(title, "\n".join(body), start)
            title, start, body = heading[2], number if len(heading[1]) == 2 else 0, []
        else:
            body.append(line)
    if start:
        yield Chapter(title, "\n".join(body), start)


def blocks(chapter: Chapter) -> Iterator[Block]:
    """The pieces of a chapter in order; fenced code is text."""
    lines = chapter.text.splitlines()
    position = 0
    while position < len(lines):
        end, kind = _extent(lines, position)
        number = chapter.line + 1 + position
        if kind == "table":
            yield from _rows(lines[position:end], number)
        elif kind == "heading":
            yield Block("heading", lines[position].lstrip("#").strip(), number)
        elif kind:
            first = _ITEM.match(lines[position])
            head = first[2] if first and kind == "item" else lines[position].strip()
            text = "\n".join([head, *(line.rstrip() for line in lines[position + 1 : end])]).strip()
            yield Block("item" if kind == "item" else "text", text, number)
        position = end


def plain(text: str) -> str:
    """Text without emphasis and code marks, in one line."""
    return " ".join(re.sub(r"\*\*|__|`", "", text).split())


def _extent(lines: list[str], start: int) -> tuple[int, str]:
    """Where the block that begins at ``start`` ends, and what it is; an empty kind is a blank line."""
    line = lines[start]
    if not line.strip():
        return start + 1, ""
    if _FENCE.match(line):
        end = next((i for i in range(start + 1, len(lines)) if _FENCE.match(lines[i])), len(lines) - 1)
        return end + 1, "text"
    if _HEADING.match(line):
        return start + 1, "heading"
    if line.lstrip().startswith("|"):
        end = start
        while end < len(lines) and lines[end].lstrip().startswith("|"):
            end += 1
        return end, "table"
    item = _ITEM.match(line)
    if item:
        return _item_end(lines, start, len(item[1])), "item"
    end = start + 1
    while end < len(lines) and lines[end].strip() and not _starts_block(lines[end]):
        end += 1
    return end, "text"


def _item_end(lines: list[str], start: int, indent: int) -> int:
    end = start + 1
    while end < len(lines):
        line = lines[end]
        nested = len(line) - len(line.lstrip()) > indent
        if not line.strip():
            follows = next((later for later in lines[end:] if later.strip()), "")
            if len(follows) - len(follows.lstrip()) <= indent:
                return end
        elif _starts_block(line) and not nested:
            return end
        end += 1
    return end


def _starts_block(line: str) -> bool:
    return bool(_ITEM.match(line) or _HEADING.match(line) or _FENCE.match(line) or line.lstrip().startswith("|"))


def _rows(lines: list[str], number: int) -> Iterator[Block]:
    titles: tuple[str, ...] = ()
    for offset, line in enumerate(lines):
        if _RULE.match(line):
            continue
        cells = _cells(line)
        if not titles:
            titles = tuple(plain(cell).lower() for cell in cells)
            continue
        yield Block("row", line.strip(), number + offset, tuple(zip(titles, cells, strict=False)))


def _cells(line: str) -> tuple[str, ...]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip() for cell in _PIPE.findall(inner))
