"""The hidden ``eval_rule.md`` as a value: sections, weighted checkpoints, score caps.

The file is written for a person or a model to read; only the numbers that code computes with are taken out of it, and
everything that does not add up is listed in ``problems`` instead of being guessed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pytest_uniclaw.markdown import Chapter, blocks, chapters
from pytest_uniclaw.rubric_lines import CAP_ID, Cap, Checkpoint, caps_of, identify, number, unique, weighted

_KINDS = (
    ("rubric", r"checkpoint|rubric"),
    ("caps", r"\bcaps?\b|scoring"),
    ("philosophy", r"philosophy"),
    ("contract", r"contract"),
    ("continue", r"continue|fail guidance"),
    ("truth", r"ground.truth|anchors"),
    ("selection", r"source|target|resolution"),
    ("assets", r"hidden|asset"),
    ("dynamic", r"dynamic"),
)
_PASS = re.compile(
    r"\bpass(?:es)?\b[^.;]{0,60}?(?:>=|≥|at least|threshold(?: is| of)?:?)\s*[`*]*\s*(0?\.\d+)", re.IGNORECASE
)
_FORMULA = re.compile(r"\b(?:final|base|task|total)?_?score\b\s*(?:=|:=)|score component|/ ?\d+\b", re.IGNORECASE)
__all__ = ["Cap", "Checkpoint", "Rubric", "Section", "parse_rubric"]
WEIGHT_TOLERANCE = 0.0005
"""How far from 1 the weights may sum before it is a problem."""


@dataclass(frozen=True, slots=True)
class Section:
    """One level-two section; ``kind`` is what it is for, ``other`` where the title does not say."""

    title: str
    kind: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Rubric:
    """A whole ``eval_rule.md``."""

    sections: tuple[Section, ...]
    checkpoints: tuple[Checkpoint, ...]
    caps: tuple[Cap, ...]
    formula_scored: bool
    """True where the score is a formula over a game's outcome and no weights are given."""
    pass_line: float | None
    """The pass threshold that the rubric names, if it names one."""
    problems: tuple[str, ...]
    """What does not add up, each with its line."""

    @property
    def weight_sum(self) -> float:
        """Sum of the weights, rounded to 6 decimals."""
        return round(math.fsum(checkpoint.weight for checkpoint in self.checkpoints), 6)


def parse_rubric(text: str) -> Rubric:
    """Read an ``eval_rule.md``. Never raises: what is wrong with it is listed in ``problems``."""
    parts = tuple(chapters(text))
    kinds = {part.line: _kind(part.title) for part in parts}
    checkpoints, home = _choose_checkpoints(parts, kinds)
    caps = _find_caps(parts, kinds, home)
    lines = _pass_lines(parts, kinds)
    formula = not checkpoints and any(_FORMULA.search(p.text) for p in parts if kinds[p.line] in ("rubric", "caps"))
    sections = tuple(Section(part.title, kinds[part.line], part.text.rstrip(), part.line) for part in parts)
    rubric = Rubric(sections, checkpoints, caps, formula, lines[0] if lines else None, ())
    return replace(rubric, problems=tuple(_problems(rubric, lines)))


def _kind(title: str) -> str:
    return next((kind for kind, pattern in _KINDS if re.search(pattern, title, re.IGNORECASE)), "other")


def _choose_checkpoints(parts: tuple[Chapter, ...], kinds: dict[int, str]) -> tuple[tuple[Checkpoint, ...], int]:
    """The weighted list of the section titled as the rubric, else of the one whose weights come nearest to 1."""
    best: tuple[tuple[float, int], tuple[Checkpoint, ...], int] | None = None
    for part in parts:
        found = tuple(identify(weighted(part)))
        if not found or kinds[part.line] in ("caps", "continue"):
            continue
        gap = abs(1 - math.fsum(checkpoint.weight for checkpoint in found))
        rank = (round(gap, 4) + (0 if kinds[part.line] == "rubric" else 0.5), part.line)
        if (kinds[part.line] == "rubric" or gap < WEIGHT_TOLERANCE) and (best is None or rank < best[0]):
            best = (rank, found, part.line)
    return (best[1], best[2]) if best else ((), 0)


def _find_caps(parts: tuple[Chapter, ...], kinds: dict[int, str], home: int) -> tuple[Cap, ...]:
    """Caps of the sections meant for them; only a rubric without any is searched for caps among its other lines."""
    found = [cap for part in parts if kinds[part.line] == "caps" for cap in caps_of(part, strict=False)]
    if not found:
        others = [part for part in parts if kinds[part.line] in ("rubric", "continue", "other") or part.line == home]
        found = [cap for part in others for cap in caps_of(part, strict=True)]
    taken: set[str] = set()
    return tuple(replace(cap, id=unique(cap.id or f"cap{n}", taken)) for n, cap in enumerate(found, start=1))


def _pass_lines(parts: tuple[Chapter, ...], kinds: dict[int, str]) -> list[float]:
    """Every pass threshold that is stated, the guidance section's first."""
    order = ("continue", "caps", "rubric", "philosophy", "contract")
    relevant = sorted((part for part in parts if kinds[part.line] in order), key=lambda p: order.index(kinds[p.line]))
    return [number(match[1]) for part in relevant for match in _PASS.finditer(part.text)]


def _problems(rubric: Rubric, lines: list[float]) -> Iterator[str]:
    titled = [section for section in rubric.sections if section.kind == "rubric"]
    line = titled[0].line if titled else 1
    if not rubric.checkpoints and not rubric.formula_scored:
        yield f"line {line}: no weighted checkpoint found"
    if rubric.checkpoints and abs(rubric.weight_sum - 1) > WEIGHT_TOLERANCE:
        yield f"line {rubric.checkpoints[0].line}: the weights sum to {rubric.weight_sum:g}, not to 1.00"
    for checkpoint in rubric.checkpoints:
        if not 0 < checkpoint.weight <= 1:
            yield f"line {checkpoint.line}: weight {checkpoint.weight:g} of {checkpoint.id} is not within 0 and 1"
        if re.fullmatch(r"CP?\d+[a-z]?-\d+", checkpoint.id):
            yield f"line {checkpoint.line}: checkpoint id {checkpoint.id.rsplit('-', 1)[0]} is used twice"
    for cap in rubric.caps:
        if re.fullmatch(r"[a-z0-9_]+_[a-z0-9_]+-\d+", cap.id):
            yield f"line {cap.line}: cap id {cap.id.rsplit('-', 1)[0]} is used twice"
        if not 0 <= cap.value < 1:
            yield f"line {cap.line}: cap {cap.id} at {cap.value:g} is not within 0 and 1"
    yield from _valueless(rubric)
    different = sorted(set(lines))
    if len(different) > 1:
        yield f"line {line}: several pass thresholds are named: {', '.join(f'{value:g}' for value in different)}"


def _valueless(rubric: Rubric) -> Iterator[str]:
    """Cap lines with an id of their own that state no value."""
    known = {cap.line for cap in rubric.caps}
    for section in rubric.sections:
        for block in blocks(Chapter(section.title, section.text, section.line)) if section.kind == "caps" else ():
            named = CAP_ID.match(block.text) if block.kind == "item" else None
            if named and block.line not in known:
                yield f"line {block.line}: cap {named[1]} states no value; write `cap at 0.40 if …`"
