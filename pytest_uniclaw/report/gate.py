"""The gate: rules over a session's figures that decide its exit status (first cut)."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.report.stats import Summary

GATE_FAILED = 9
"""Exit status of a session whose gate does not hold."""

FIGURES = ("pr", "as", "coverage")
OPERATORS = {">=": operator.ge, ">": operator.gt}


@dataclass(frozen=True)
class Rule:
    """One rule such as ``pr>=0.4``; ``limit`` is within 0 and 1."""

    figure: str
    sign: str
    limit: float

    def __str__(self) -> str:
        return f"{self.figure}{self.sign}{self.limit:g}"


@dataclass(frozen=True)
class GateResult:
    """Whether all rules hold, and one line per rule."""

    holds: bool
    lines: tuple[str, ...]


def parse_gate(text: str) -> tuple[Rule, ...]:
    """Read rules separated by commas. Raises :class:`SettingsError` naming the rule."""
    return tuple(_parse_rule(part.strip(), text) for part in text.split(",") if part.strip())


def evaluate_gate(rules: tuple[Rule, ...], summary: Summary) -> GateResult:
    """Hold every rule against the figures; a figure that nothing gives (no judged item) holds no rule."""
    figures = {"pr": summary.pass_rate, "as": summary.average_score, "coverage": summary.coverage}
    lines, holds = [], True
    for rule in rules:
        value = figures[rule.figure]
        good = value is not None and bool(OPERATORS[rule.sign](value, rule.limit))
        holds = holds and good
        shown = "none" if value is None else f"{value:.3f}"
        lines.append(f"gate {rule}: {rule.figure} is {shown}: {'holds' if good else 'FAILS'}")
    return GateResult(holds, tuple(lines))


def _parse_rule(rule: str, text: str) -> Rule:
    match = re.fullmatch(r"(\w+)\s*(>=|>)\s*(\d+(?:\.\d+)?%?)", rule)
    if not match or match[1].lower() not in FIGURES:
        raise SettingsError(
            f"--gate={text}: cannot read {rule!r}; write FIGURE>=LIMIT with FIGURE one of {', '.join(FIGURES)}, "
            "e.g. --gate 'pr>=0.4, coverage>=0.95'"
        )
    limit = float(match[3].rstrip("%")) / (100 if match[3].endswith("%") else 1)
    if limit > 1:
        raise SettingsError(f"--gate={text}: the limit of {rule!r} is not within 0 and 1 (or write 40%)")
    return Rule(match[1].lower(), match[2], limit)
