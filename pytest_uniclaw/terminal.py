"""What the terminal says: the header, one line per non-pass, PR and AS per capability, and the last line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_uniclaw.report.gate import GateResult
from pytest_uniclaw.report.record import ItemRecord
from pytest_uniclaw.report.stats import Summary, group_by, headline
from pytest_uniclaw.settings import Settings


def header(settings: Settings) -> str:
    """Return the header line that shows what will run."""
    model = ", ".join(settings.models) or "each task's model"
    parts = [
        f"agent {', '.join(settings.agents) or 'of each task'}", f"model {model}", f"supervisor {settings.supervisor}",
        f"simulator {settings.simulator}", f"sandbox {settings.sandbox}", f"attempts {settings.attempts}",
    ]  # fmt: skip
    return "uniclaw: " + ", ".join(parts)


def write_summary(
    reporter: pytest.TerminalReporter,
    records: Sequence[ItemRecord],
    total: Summary,
    gate: GateResult | None,
    place: str,
) -> None:
    """Write the uniclaw section."""
    reporter.section("uniclaw")
    for record in records:
        if record.outcome != "passed":
            reporter.line(non_pass_line(record))
    groups = group_by(records, lambda r: f"{r.agent} {r.model}".strip() + f"  {r.capability}")
    width = max([len(g.name) for g in groups] + [len(total.name)])
    reporter.line(f"{'':{width}}     PR     AS  judged")
    for group in [*groups, total]:
        reporter.line(figures_line(group, width))
    if total.pass_rate != total.upstream_pass_rate and total.upstream_pass_rate is not None:
        reporter.line(f"PR without executor_incomplete (upstream's denominator): {total.upstream_pass_rate:.3f}")
    for line in gate.lines if gate else ():
        reporter.line(line, red=not gate.holds if gate else False)
    if replayed := sum(record.replayed for record in records):
        reporter.line(f"replayed from the run directory: {replayed} of {len(records)}")
    reporter.line(f"run directory: {place}")
    reporter.line(headline(total), bold=True)


def non_pass_line(record: ItemRecord) -> str:
    """Return ``FAILED 0.40 task_x [nanobot]: why``."""
    number = f"[{record.number}]" if record.number > 1 else ""
    return f"{record.outcome.upper()} {record.score:.2f} {record.task_id} {record.agent}{number}: {record.reason}"


def figures_line(summary: Summary, width: int) -> str:
    """Return one row of the table of rates; a rate without any judged item is a dash."""
    rate = "     -" if summary.pass_rate is None else f"{summary.pass_rate:6.3f}"
    score = "     -" if summary.average_score is None else f"{summary.average_score:6.3f}"
    return f"{summary.name:{width}} {rate} {score}  {summary.judged}/{summary.selected}"
