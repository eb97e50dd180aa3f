"""The shapes in which a rubric writes its weighted checkpoints and its caps (upstream-contract section 2.1).

Weights: list items (``- **0.10 — Name.** text``, ``0.20: text``, ``- **CP1 — Name (0.15).**``), table rows with a
Weight column, ``### (15%) Name`` headings. Caps: ``cap at V`` in any wording, ``condition -> V``, ``V — condition``,
``V cap — condition``, ``score 0 if condition``, ``condition should not exceed V`` and ``a score above V requires …``.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from pytest_uniclaw.markdown import Block, Chapter, blocks, plain

_NUMBER = r"(?:0?\.\d+|[01](?:\.\d+)?|\d{1,3}(?:\.\d+)?\s*%)"
_WEIGHT = r"(?:[01]?\.\d+|\d{1,3}(?:\.\d+)?\s*%)"
_DASH = r"\s*(?:[—–:]|-+)\s*"
_LEADING_WEIGHT = re.compile(rf"\**({_WEIGHT})\**(?:{_DASH}|\s+)(.*)", re.DOTALL)
_NAMED_WEIGHT = re.compile(rf"(\*\*.{{1,160}}?|[^()]{{1,160}}?)\s*\(({_WEIGHT})\)(.*)", re.DOTALL)
_HEADING_WEIGHT = re.compile(rf"(?:\d+(?:\.\d+)*\s+)?\(({_WEIGHT})\)\s*(.*)")
_CHECKPOINT_ID = re.compile(rf"\**(CP?\d+[a-z]?)\b\**[.:]?(?:{_DASH}|\s+)?(.*)", re.DOTALL)
_BOLD_NAME = re.compile(r"(?:\*\*)?(.{1,160}?)\*\*\s*(.*)", re.DOTALL)
_COLON_NAME = re.compile(r"([^:.`]{3,80}):\s+(.*)", re.DOTALL)
_WORDS = (
    r"(?:the|total|totals|score|scores|overall|final|run|result|grade|this|that|attempt|task|it|entire|whole|rubric|"
    r"answer|everything|hard|applied|ceiling|value|of|at|to|is|be)"
)
_CAP = re.compile(
    r"\bcap(?:s|ped)?\b(?:[^.;]*?\band\s+(?:the\s+)?(?:total|overall)(?:\s+score)?\s+(?:at|to)\b)?"
    rf"(?:\s+{_WORDS})*\s*[:=~]?\s*[`*~]*\s*({_NUMBER})(?![\d/]|\.\d)(?![`*]*\s+or\s+(?:lower|less|below)\b)",
    re.IGNORECASE,
)
"""A word that names what is capped stops it (``cap the picture at 0.20``), unless ``and the total at V`` follows."""
_LIMIT = re.compile(
    rf"\b(?:should|must|may|can)\s*not\s+exceed\s+[`*~]*({_NUMBER})[`*]*(?=\s*(?:[.;,)](?!\d)|$|if\b))", re.IGNORECASE
)
_REQUIRES = re.compile(
    rf"\ba\s+score\s+(?:above|over)\s+[`*]*({_NUMBER})[`*]*\s+requires?\s+(.*)", re.IGNORECASE | re.DOTALL
)
CAP_ID = re.compile(rf"\*\*([a-z][a-z0-9_]*)\*\*{_DASH}(.*)", re.DOTALL)
_ZERO = re.compile(r"\**\b(?:scores?|fails?\s+to)\s+[`*]*(0(?:\.0+)?)\b[`*]*(?!\.\d)", re.IGNORECASE)
_ARROW = re.compile(rf"(?:→|->|=>)\s*(?:score\s+)?[`*]*\s*({_NUMBER})[`*]*(?:\s+cap)?(?:\s*\([^()]*\))?\s*\.?\s*$")
_LEADING_CAP = re.compile(rf"[`*]*({_NUMBER})[`*]*(?:\s+cap)?{_DASH}(.*)", re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.;])\s+(?=[A-Z*`])|\n\s*[-*+]\s+")
_PART = re.compile(r"(?<=;)\s+")
_EDGES = " .。,;:—–->→=|"
_REFERS_BACK = re.compile(r"(?:this|that|these|those|such|without|otherwise|for an?)\b", re.IGNORECASE)
_Line = tuple[float, str, int]
"""A weighted line on its way to a checkpoint: weight, text, line number."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A weighted line of the rubric; ``weight`` is its share of the total, 0 to 1."""

    id: str
    name: str
    weight: float
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Cap:
    """A ceiling: the score is at most ``value`` where ``condition`` holds."""

    id: str
    value: float
    condition: str
    line: int


def number(text: str) -> float:
    """``0.1`` or ``10%`` as 0.1."""
    digits = text.strip()
    return round(float(digits[:-1]) / 100, 6) if digits.endswith("%") else float(digits)


def weighted(part: Chapter) -> list[_Line]:
    """The weighted lines of a section, of the one shape (headings, table, list) whose weights come nearest to 1."""
    pieces = list(blocks(part))
    shapes = [
        [line for index in range(len(pieces)) for line in _weighted_heading(pieces, index)],
        [line for block in pieces if block.kind == "row" for line in _weighted_row(block)],
        [line for block in pieces if block.kind == "item" for line in _weighted_item(block)],
    ]
    return min(shapes, key=lambda lines: (not lines, abs(1 - math.fsum(line[0] for line in lines))))


def _weighted_heading(pieces: list[Block], index: int) -> Iterator[_Line]:
    block = pieces[index]
    heading = _HEADING_WEIGHT.match(block.text) if block.kind == "heading" else None
    if heading:
        following = itertools.takewhile(lambda later: later.kind != "heading", pieces[index + 1 :])
        body = "\n".join(later.text for later in following)
        yield number(heading[1]), f"**{heading[2]}** {body}", block.line


def _weighted_row(block: Block) -> Iterator[_Line]:
    weight = next((cell for title, cell in block.cells if "weight" in title), "")
    share = re.fullmatch(rf"[`*]*({_NUMBER})[`*]*", weight)
    rest = [cell for title, cell in block.cells if "weight" not in title]
    if share and rest:
        rest = rest[1:] if len(rest) > 1 and re.fullmatch(r"\d{1,2}", rest[0]) else rest
        yield number(share[1]), " ".join(rest), block.line


def _weighted_item(block: Block) -> Iterator[_Line]:
    leading = _LEADING_WEIGHT.match(block.text)
    if leading:
        bold = block.text.startswith("**") and not block.text.startswith(f"**{leading[1]}**")
        yield number(leading[1]), ("**" if bold else "") + leading[2], block.line
        return
    named = _NAMED_WEIGHT.match(block.text)
    if named and (named[1].startswith("**") or _CHECKPOINT_ID.match(named[1])):
        yield number(named[2]), named[1] + named[3], block.line


def identify(lines: Iterable[_Line]) -> Iterator[Checkpoint]:
    """Checkpoints with ids: the one written (``C1``, ``CP2``), else a slug of the bold name, else ``cp<ordinal>``."""
    taken: set[str] = set()
    for ordinal, (weight, text, line) in enumerate(lines, start=1):
        head = re.sub(r"^\*\*\s*", "**", text.strip())
        given = _CHECKPOINT_ID.match(head)
        identity = given[1] if given else ""
        rest = given[2] if given else head
        name, body = _name(rest)
        identity = unique(identity or slug(name) or f"cp{ordinal}", taken)
        yield Checkpoint(identity, name or _summary(body), weight, plain(body), line)


def _name(text: str) -> tuple[str, str]:
    """(name or "", rest) of a checkpoint's text: a bold lead, or a few words before a colon."""
    bold = _BOLD_NAME.match(text) if text.startswith("**") or text.count("**") % 2 else None
    if bold and not re.search(r"[.:] ", plain(bold[1])):
        return plain(bold[1]).rstrip(" .:"), bold[2].lstrip(" .:—–-")
    colon = _COLON_NAME.match(text)
    if colon:
        return plain(colon[1]), colon[2]
    return "", text


def _summary(text: str, limit: int = 80) -> str:
    first = re.split(r"(?<=[.;])\s", plain(text), maxsplit=1)[0]
    first = first.rstrip(" ;")
    return first if len(first) <= limit else first[: limit - 1].rsplit(" ", 1)[0] + "…"


def slug(text: str, limit: int = 40) -> str:
    """``Output shape (strict)`` as ``output-shape-strict``; empty when no ASCII letters are left."""
    words = re.sub(r"[^a-z0-9]+", "-", plain(text).lower()).strip("-")
    return words if len(words) <= limit else words[: limit + 1].rsplit("-", 1)[0][:limit]


def unique(wanted: str, taken: set[str]) -> str:
    """``wanted``, or ``wanted-2`` and so on when it is taken; the answer is then taken too."""
    name, count = wanted, 1
    while name in taken:
        count += 1
        name = f"{wanted}-{count}"
    taken.add(name)
    return name


def caps_of(part: Chapter, *, strict: bool) -> Iterator[Cap]:
    """The caps of a section, ids possibly empty. ``strict`` takes the word "cap" only, and no weighted line."""
    for block in blocks(part):
        if block.kind == "heading" or (strict and _LEADING_WEIGHT.match(block.text)):
            continue
        named = CAP_ID.match(block.text)
        before = ""
        for clause in _clauses(named[2] if named else block.text, block):
            cap = _cap(clause, block, strict=strict)
            if cap is not None:
                if before and _REFERS_BACK.match(cap.condition):
                    cap = replace(cap, condition=f"{before}; {cap.condition}")
                before = cap.condition
                yield replace(cap, id=named[1] if named else cap.id)


def _clauses(text: str, block: Block) -> list[str]:
    """The parts of a block that hold at most one cap each; an item with one cap is not parted."""
    if block.kind != "text" and len(_stated(text)) < 2:
        return [text]
    return [clause for sentence in _SENTENCE.split(text) for clause in _parted(sentence)]


def _parted(sentence: str) -> list[str]:
    """A sentence with several caps, parted at its semicolons so that each part has one."""
    if len(_stated(sentence)) < 2:
        return [sentence]
    parts = [""]
    for piece in _PART.split(sentence):
        if _stated(parts[-1]):
            parts.append("")
        parts[-1] = f"{parts[-1]} {piece}".strip()
    return parts


def _stated(text: str) -> list[str]:
    """Every value that a text states as a cap by the word or as a limit."""
    return [match[1] for pattern in (_CAP, _LIMIT) for match in pattern.finditer(text)]


def _cap(clause: str, block: Block, *, strict: bool) -> Cap | None:
    match = _CAP.search(clause)
    if match is None and not strict:
        match = _LIMIT.search(clause) or _REQUIRES.search(clause)
        if match is None and block.kind != "text":
            match = _ZERO.search(clause) or _ARROW.search(clause) or _LEADING_CAP.match(clause)
    if match is None:
        return None
    whole = match.re in (_LEADING_CAP, _REQUIRES)
    rest = match[2] if whole else clause[: match.start()] + " " + clause[match.end() :]
    condition = re.sub(r"^(?:instead\s+)?if\s+", "", plain(rest).strip(_EDGES), flags=re.IGNORECASE)
    if match.re is _REQUIRES:
        condition = f"this is not so: {condition}"
    title = re.match(rf"\*\*[^*]*?{_NUMBER}[`]?(?:\s+cap)?{_DASH}([^*]+?)\.?\*\*", clause)
    return Cap(slug(title[1]) if title else "", number(match[1]), condition, block.line)
