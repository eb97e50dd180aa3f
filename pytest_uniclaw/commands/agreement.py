"""``uniclaw agreement``: how far gradings of the same attempts agree (paper section 4.2)."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

from pytest_uniclaw.commands.runs import add_runs_dir, runs_dir
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.report.agreement import CONFIDENCE, Agreement, Grading, compare, spread
from pytest_uniclaw.report.gradings import gradings_of
from pytest_uniclaw.store import find_run

SHOWN = 20
"""How many disagreements are named."""


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "agreement",
        help="compare gradings of the same attempts: pass and fail, kappa, alpha, correlations, error",
        description="Compare two or more gradings of the same attempts. A grading is a run (by id, path or latest; "
        "`uniclaw regrade` makes another of the same attempts) or a CSV table with the columns task_id, passed and, "
        "where there are more of them, score, agent, model and attempt. Intervals draw tasks, not attempts.",
    )
    parser.add_argument("gradings", nargs="+", metavar="RUN|TABLE.csv", help="two or more gradings")
    add_runs_dir(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print every pair's agreement and, for more than two, their spread. Raises SettingsError."""
    if len(options.gradings) < 2:
        raise SettingsError("agreement needs two gradings")
    runs = runs_dir(options)
    sources = [_source(runs, name) for name in options.gradings]
    found = gradings_of(sources)
    pairs = list(combinations(zip(options.gradings, found, strict=True), 2))
    compared = [(a, b, _compared(a, first, b, second)) for (a, first), (b, second) in pairs]
    lines = [json.dumps(_as_json(compared, found), indent=1)] if options.json else _as_text(compared, found)
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


def _source(runs: Path, name: str) -> Path:
    path = Path(name)
    return path if path.is_file() else find_run(runs, name)


def _compared(first_name: str, first: Grading, second_name: str, second: Grading) -> Agreement:
    try:
        return compare(first, second)
    except ValueError as error:
        raise SettingsError(f"{first_name} and {second_name}: {error}") from None


def _as_text(compared: list[tuple[str, str, Agreement]], found: list[Grading]) -> list[str]:
    lines: list[str] = []
    for first, second, agreement in compared:
        extent = f"{_counted(agreement.attempts, 'attempt')} of {_counted(agreement.tasks, 'task')}"
        lines += [f"{first} and {second}: {extent}"]
        alone = [(first, agreement.only_first), (second, agreement.only_second)]
        lines += [f"  {_counted(count, 'attempt')} only in {name}" for name, count in alone if count]
        for figure in agreement.figures:
            value = "      -" if figure.value is None else f"{figure.value:7.3f}"
            bounds = "" if figure.low is None else f"  {CONFIDENCE:.0%} [{figure.low:.3f}, {figure.high:.3f}]"
            lines.append(f"  {figure.name:28}{value}{bounds}")
        lines += [f"  other verdict: {' '.join(filter(None, key))}" for key in agreement.disagreements[:SHOWN]]
        if (more := len(agreement.disagreements) - SHOWN) > 0:
            lines.append(f"  and {more} more")
    if len(found) > 2:
        whole = spread(found)
        ranged = "-" if whole.score_range is None else f"{whole.score_range:.3f}"
        alpha = "-" if whole.alpha is None else f"{whole.alpha:.3f}"
        lines.append(
            f"all {whole.gradings} over {whole.attempts} attempts: mean score range {ranged}, "
            f"verdict not unanimous {whole.flipped:.1%}, alpha {alpha}"
        )
    return lines


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _as_json(compared: list[tuple[str, str, Agreement]], found: list[Grading]) -> dict[str, Any]:
    pairs = [{"first": a, "second": b} | dataclasses.asdict(agreement) for a, b, agreement in compared]
    return {"pairs": pairs} | ({"spread": dataclasses.asdict(spread(found))} if len(found) > 2 else {})
