"""What the terminal says: the header, infra in full, one line per non-pass, PR and AS per capability, the last line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_uniclaw.collection import needs_model
from pytest_uniclaw.modelchoice import parse_model
from pytest_uniclaw.report.gate import GateResult
from pytest_uniclaw.report.lines import CUT
from pytest_uniclaw.report.record import NOT_RUN, SKIPPED, ItemRecord, lane_line
from pytest_uniclaw.report.stats import Summary, headline, names_of, rate_rows
from pytest_uniclaw.settings import RoleOptions, Settings

RESUME = "--uniclaw-resume"
MODELLESS = frozenset({"checks", "template"})
"""The supervisor and the simulator that ask no model, whatever model is named for them."""


def set_up(settings: Settings) -> dict[str, str]:
    """Return what will run: agent, model, supervisor, simulator, sandbox and attempts, in words.

    A role's model is named where the session chose one, the protocol where it is not the default, and cassettes where
    there are any.
    """
    needless = bool(settings.agents) and not any(needs_model(agent, settings) for agent in settings.agents)
    shown = {
        "agent": ", ".join(settings.agents) or "of each task",
        "model": "none needed" if needless else ", ".join(settings.models) or "each task's model",
        "supervisor": _role(settings.supervisor), "simulator": _role(settings.simulator), "sandbox": settings.sandbox,
        "attempts": str(settings.attempts),
    }  # fmt: skip
    if settings.protocol != "strict":
        shown["protocol"] = settings.protocol
    if cassettes := " and ".join(_cassettes(settings)):
        shown["cassette"] = cassettes
    return shown


def _role(role: RoleOptions) -> str:
    """Return ``auto (openai/gpt-5.4)``, or the name alone where the session names no model or none is asked."""
    if not role.model or role.name in MODELLESS:
        return role.name
    choice = parse_model(role.model)
    return f"{role.name} ({role.model if choice.scripted else f'{choice.provider}/{choice.name}'})"


def _cassettes(settings: Settings) -> Iterator[str]:
    for verb, path in (("replay", settings.cassette_replay), ("record", settings.cassette_record)):
        if path is not None:
            yield f"{verb} {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}"


def header(settings: Settings) -> str:
    """Return the header line that shows what will run."""
    return "uniclaw: " + ", ".join(f"{name} {value}" for name, value in set_up(settings).items())


def write_details(reporter: pytest.TerminalReporter, config: pytest.Config, records: Sequence[ItemRecord]) -> None:
    """Write what pytest has no section for: infra as it shows failures, and skips whose line leaves something out."""
    infra = reporter.stats.get("infra", [])
    if config.option.tbstyle != "no" and infra:
        reporter.write_sep("=", "INFRA")
        for report in infra:
            reporter.write_sep("_", report.head_line or report.nodeid, red=True, bold=True)
            _write_report(reporter, report, config.option.showcapture)
    skipped = [record for record in records if record.status == SKIPPED and CUT in record.reason]
    if skipped:
        reporter.write_sep("=", "SKIPPED")
        for record, name in zip(skipped, names_of(skipped), strict=True):
            reporter.write_sep("_", f"{record.task_id} [{name}]", yellow=True)
            reporter.line(record.detail)


def write_summary(
    reporter: pytest.TerminalReporter, records: Sequence[ItemRecord], gate: GateResult | None, place: str,
    settings: Settings,
) -> None:  # fmt: skip
    """Write the uniclaw section; ``place`` is the run directory."""
    reporter.section("uniclaw")
    *lines, last = report_lines(records, repeated=settings.attempts > 1)
    for line in lines:
        reporter.line(line)
    for line in gate.lines if gate else ():
        reporter.line(line, red=not gate.holds if gate else False)
    reporter.line(f"run directory: {place}")
    if settings.note:
        reporter.line(f"note: {settings.note}")
    reporter.line(last, bold=True)


def report_lines(records: Sequence[ItemRecord], *, repeated: bool = False) -> list[str]:
    """Return a line per non-pass, the table of rates, and the headline at the end: of a session or a stored run."""
    named = zip(records, names_of(records, repeated=repeated), strict=True)
    lines = [non_pass_line(record, name) for record, name in named if record.outcome not in {"passed", NOT_RUN}]
    lines += [lane_line(lane) for record in records for lane in record.cassettes]
    rows = rate_rows(records, "  ")
    total, width = rows[-1], max(len(row.name) for row in rows)
    if total.not_run:
        lines.append(f"NOT RUN: {total.not_run} of {total.selected}; they count as selected, not as judged")
    lines += [f"{'':{width}}     PR     AS  judged", *(figures_line(row, width) for row in rows)]
    if total.pass_rate != total.upstream_pass_rate and total.upstream_pass_rate is not None:
        lines.append(f"PR without executor_incomplete (upstream's denominator): {total.upstream_pass_rate:.3f}")
    if (protocols := {record.protocol for record in records}) - {"strict"}:
        lines.append(f"protocol: {', '.join(sorted(protocols))}")
    if replayed := sum(record.replayed for record in records):
        lines.append(f"replayed from the run directory: {replayed} of {len(records)}")
    return [*lines, headline(total)]


def non_pass_line(record: ItemRecord, name: str) -> str:
    """Return ``FAILED 0.40 task_x nanobot: why``; ``name`` is the executor's, as in the item's id."""
    score = "-" if record.score is None else f"{record.score:.2f}"
    return f"{record.outcome.upper()} {score} {record.task_id} {name}: {record.reason}"


def figures_line(summary: Summary, width: int) -> str:
    """Return one row of the table of rates; a rate without any judged item is a dash."""
    rate = "     -" if summary.pass_rate is None else f"{summary.pass_rate:6.3f}"
    score = "     -" if summary.average_score is None else f"{summary.average_score:6.3f}"
    return f"{summary.name:{width}} {rate} {score}  {summary.judged}/{summary.selected}"


def resume_line(arguments: Sequence[str], run: str) -> str:
    """Return the command that continues a run (its id, its path or ``latest``), from the session's own arguments."""
    kept, given = [], iter(arguments)
    for argument in given:
        if argument == RESUME:
            next(given, None)
        elif not argument.startswith(f"{RESUME}="):
            kept.append(argument)
    return "continue with: " + shlex.join(["pytest", *kept, f"{RESUME}={run}"])


def _write_report(reporter: pytest.TerminalReporter, report: pytest.TestReport, capture: str) -> None:
    """Write what a report says and what was captured, as pytest does for a failure."""
    for line in str(report.longrepr).splitlines():
        reporter.line(line)
    for title, text in report.sections:
        if capture == "all" or (capture != "no" and capture in title):
            reporter.write_sep("-", title)
            reporter.line(text.removesuffix("\n"))
