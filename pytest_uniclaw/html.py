"""pytest-html: columns for score, capability, turns and time, a checkpoint table and links per row.

Registered only where pytest-html is installed. Everything is escaped here: html cells and extras are raw.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pytest_uniclaw.agents.guard import ERROR_LOG
from pytest_uniclaw.judge.gate import ASKED_AGAIN
from pytest_uniclaw.options import load_settings
from pytest_uniclaw.outcome import detail_of
from pytest_uniclaw.recording import RECORDING
from pytest_uniclaw.report.record import SKIPPED, ItemRecord, TurnNote, lane_line
from pytest_uniclaw.report.stats import headline, rate_rows
from pytest_uniclaw.sandbox.services import LOGS
from pytest_uniclaw.verdict import Opinion

COLUMNS = (("score", "Score"), ("capability", "Capability"), ("turns", "Turns"), ("executor", "Executor s"))
WORDS = {ASKED_AGAIN: "asked for another message", "fallback": "a neutral line instead"}
"""The rewriter's decisions as a reader understands them."""
LINKS = (
    ("artifacts", ""), ("transcript", "transcript.jsonl"), ("record", "uniclaw.json"), ("services", LOGS),
    ("error", ERROR_LOG), ("pre_exec", "pre_exec.log"), ("recording", RECORDING),
)  # fmt: skip
"""What a row may link to, by the file's name in the attempt's folder."""
STYLE = (
    "<style>.uniclaw{border-collapse:collapse;margin:.4em 0;font-size:12px;color:#222}.uniclaw td,.uniclaw th"
    "{border:1px solid #ccc;padding:2px 8px;text-align:left;vertical-align:top}"
    ".uniclaw td{color:#222}.uniclaw td.n{text-align:right!important}"
    "pre.uniclaw-text{color:#222;white-space:pre-wrap;overflow-wrap:anywhere}.logwrapper:not(:has(.log)){display:none}"
    ".uniclaw .turn td{border-top:2px solid #999!important;font-weight:600}.uniclaw .quiet td{color:#666}"
    ".uniclaw .unsent td:last-child{background:#fde7e7}.uniclaw .sent td:last-child{background:#e6f4ea}"
    ".uniclaw .met{background:#e6f4ea}.uniclaw .partial{background:#fff4d6}.uniclaw .unmet{background:#fde7e7}</style>"
)


class HtmlHooks:
    """Hooks of pytest-html and the report extras, on the controller."""

    def __init__(self, config: pytest.Config, records: Callable[[], Sequence[ItemRecord]]) -> None:
        self._records, self._note = records, load_settings(config).note
        self._folder = Path(str(config.getoption("htmlpath", "") or ".")).resolve().parent

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Give a reported item its tables and links."""
        record = record_of(report)
        if record and report.when in {"call", "setup"}:
            report.extras = [  # type: ignore[attr-defined]
                {
                    "name": "uniclaw",
                    "format_type": "html",
                    "content": details(record),
                    "mime_type": "",
                    "extension": "",
                },
                *self._links(record),
            ]

    def pytest_html_results_table_header(self, cells: list[str]) -> None:
        """Insert our columns after the test's name."""
        for offset, (name, title) in enumerate(COLUMNS):
            cells.insert(2 + offset, f'<th class="sortable" data-column-type="{name}">{title}</th>')

    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[str]) -> None:
        """Insert our cells, empty ones for a row that is no task."""
        record = record_of(report)
        for offset, (name, _) in enumerate(COLUMNS):
            cells.insert(2 + offset, f'<td class="col-{name}">{cell(record, name)}</td>')

    def pytest_html_results_table_html(self, report: pytest.TestReport, data: list[str]) -> None:
        """Take out of a row's log what its tables say already, and the word that there is none.

        A traceback of ours or of a conftest stays.
        """
        record = record_of(report)
        if record and data and tells_all(record) and (report.longreprtext or not report.sections):
            del data[0]

    def pytest_html_results_summary(self, prefix: list[str], summary: list[str], postfix: list[str]) -> None:
        """Put the headline, the rates and the session's note above the table."""
        if records := self._records():
            prefix.append(STYLE + rates(records) + (f"<p>{escape(self._note)}</p>" if self._note else ""))

    def pytest_html_report_title(self, report: Any) -> None:
        """Name the report."""
        report.title = "pytest-uniclaw"

    def _links(self, record: ItemRecord) -> list[dict[str, str]]:
        """Link to what there is: an attempt that came to no turn has no transcript."""
        found = [(name, Path(record.directory, file)) for name, file in LINKS] if record.directory else []
        return [
            {
                "name": name, "format_type": "url", "content": quote(os.path.relpath(path, self._folder)),
                "mime_type": "", "extension": "",
            }
            for name, path in found
            if path.exists()
        ]  # fmt: skip


def record_of(report: pytest.TestReport) -> ItemRecord | None:
    """Return the record of a task's report."""
    data = getattr(report, "uniclaw", None)
    return ItemRecord.model_validate(data) if data else None


def cell(record: ItemRecord | None, name: str) -> str:
    """Return the content of one cell; the table sorts by it as text, so a number has a hidden key of fixed width."""
    if record is None:
        return ""
    texts = {
        "score": "-" if record.score is None else f"{record.score:.2f}", "capability": escape(record.capability),
        "turns": _sortable(len(record.turns), "d"), "executor": _sortable(record.seconds, ".1f"),
    }  # fmt: skip
    return texts[name]


def _sortable(value: float, form: str) -> str:
    return f"<span hidden>{value:012.3f}</span>{value:{form}}"


def rates(records: Sequence[ItemRecord]) -> str:
    """Return the headline and the table of PR, AS and coverage per executor and capability."""
    groups = rate_rows(records, " · ")
    rows = "".join(
        f"<tr><td>{escape(g.name)}</td><td class=n>{_rate(g.pass_rate)}</td><td class=n>{_rate(g.average_score)}</td>"
        f"<td class=n>{g.judged}/{g.selected}</td></tr>"
        for g in groups
    )
    head = "<tr><th>executor · capability</th><th>PR</th><th>AS</th><th>judged</th></tr>"
    return f"<h2>{escape(headline(groups[-1]))}</h2><table class=uniclaw>{head}{rows}</table>"


def tells_all(record: ItemRecord) -> bool:
    """Say whether a record has all that is known of its item: without an attempt, a traceback may say more."""
    return bool(record.directory) or record.status == SKIPPED


def details(record: ItemRecord) -> str:
    """Return reason, checkpoints, caps, turns, model use, flags and differing cassettes; of infra the whole message."""
    note = " (replayed from the run directory)" if record.replayed else ""
    parts = [f"<p>{escape(record.reason)}{note}</p>"] if record.judged else []
    if not record.judged and tells_all(record):
        parts.append(f"<pre class=uniclaw-text>{escape(detail_of(record))}</pre>")
    if record.checkpoints or record.fatal or any(cap.triggered for cap in record.caps):
        parts.append(_checkpoints(record))
    if record.turns:
        parts.append(_turns(record))
    if record.usage:
        parts.append(_usage(record))
    if record.flags:
        parts.append(f"<p>flags: {escape(', '.join(record.flags))}</p>")
    parts += [f"<p>{escape(lane_line(lane))}</p>" for lane in record.cassettes]
    return STYLE + "".join(parts)


def _checkpoints(record: ItemRecord) -> str:
    rows = "".join(
        f"<tr class={c.state.value}><td>{escape(c.id)}</td><td>{escape(c.name)}</td>"
        f"<td class=n>{_points(c.earned)}</td><td class=n>{_points(c.weight)}</td>"
        f"<td>{c.state.value}</td><td>{escape(c.rationale)}</td></tr>"
        for c in record.checkpoints
    )
    rows += "".join(
        f"<tr class=unmet><td>cap</td><td>{escape(c.id)}</td><td class=n>≤ {c.value:.2f}</td><td></td>"
        f"<td>triggered</td><td>{escape(c.rationale)}</td></tr>"
        for c in record.caps
        if c.triggered
    )
    rows += "".join(f"<tr class=unmet><td>fatal</td><td colspan=5>{escape(f)}</td></tr>" for f in record.fatal)
    head = "<tr><th>id</th><th>checkpoint</th><th>earned</th><th>weight</th><th>state</th><th>rationale</th></tr>"
    return f"<table class=uniclaw>{head}{rows}</table>"


def _points(value: float) -> str:
    """Return a weight or what it earned with two decimals, or with as many as it has, so that the column adds up."""
    return f"{value:.2f}" if round(value, 2) == value else f"{value:g}"


def _turns(record: ItemRecord) -> str:
    rows = "".join(_turn_row(turn) + "".join(map(_told_row, _told(turn))) for turn in record.turns)
    names = "<th>verdict</th><th>attempt state</th><th>recoverable</th><th>score</th>"
    head = (
        "<tr><th rowspan=2>turn</th><th rowspan=2>executor</th><th rowspan=2>score</th>"
        f"<th colspan=4>handoff to the user simulator</th></tr><tr>{names}</tr>"
    )
    return f"<table class=uniclaw>{head}{rows}</table>"


def _turn_row(turn: TurnNote) -> str:
    cells, left = "<td></td>" * 4, turn.handoff
    if left is not None:
        cells = f"<td>{left.verdict}</td><td>{left.attempt_state.replace('_', ' ')}</td>"
        cells += f"<td>{'yes' if left.recoverable else 'no'}</td><td class=n>{left.score:.2f}</td>"
    return (
        f"<tr class=turn><td class=n>{turn.number}</td><td class=n>{turn.seconds:.1f} s</td>"
        f"<td class=n>{_rate(turn.score)}</td>{cells}</tr>"
    )


def _told(turn: TurnNote) -> Iterator[tuple[str, str, str]]:
    """Yield what was said after a turn, in its order: a class, who says it, and the text."""
    if turn.opinion is not None:
        yield "quiet", "judge's own word", _opinion(turn.opinion, turn.drift or 0.0)
    if (sent := turn.follow_up) is None:
        return
    candidate, decisions = sent.candidate, sent.decisions
    if ASKED_AGAIN in decisions:
        again = decisions.index(ASKED_AGAIN) + 1
        yield "unsent", "user simulator", candidate
        yield "quiet", "rewriter", _decided(decisions[:again])
        candidate, decisions = sent.revised, decisions[again:]
    if candidate and candidate != sent.message:
        yield "unsent", "user simulator", candidate
    if candidate != sent.message:
        yield "quiet", "rewriter", _decided(decisions)
    yield "sent", "next user message", sent.message


def _decided(decisions: Sequence[str]) -> str:
    """Return the rewriter's decisions in words; the kinds of what it dropped stand together, each once."""
    kinds = dict.fromkeys(d.removeprefix("dropped:") for d in decisions if d.startswith("dropped:"))
    rest = [d.replace("kept:", "sentences kept: ") for d in decisions if not d.startswith("dropped:")]
    dropped = [f"dropped: {', '.join(kinds)}"] if kinds else []
    return "; ".join([*dropped, *(WORDS.get(d, d) for d in rest)])


def _told_row(told: tuple[str, str, str]) -> str:
    kind, who, text = told
    return f"<tr class={kind}><td colspan=3>{escape(who)}</td><td colspan=4>{escape(text)}</td></tr>"


def _opinion(opinion: Opinion, drift: float) -> str:
    state = opinion.attempt_state.replace("_", " ")
    figures = f"score {opinion.score:.2f} (drift {drift:+.2f}), confidence {opinion.confidence:.2f}"
    return f"{opinion.verdict}, {state}, {figures}: {opinion.rationale}"


def _usage(record: ItemRecord) -> str:
    rows = "".join(
        f"<tr><td>{escape(u.role.replace('_', ' '))}</td><td class=n>{u.calls}</td><td class=n>{u.tries}</td>"
        f"<td class=n>{_count(u.input_tokens)}</td><td class=n>{_count(u.output_tokens)}</td>"
        f"<td class=n>{_cost(u.cost_usd)}</td></tr>"
        for u in record.usage
    )
    head = "<tr><th>model calls</th><th>calls</th><th>tries</th><th>tokens in</th><th>tokens out</th><th>cost</th></tr>"
    return f"<table class=uniclaw>{head}{rows}</table>"


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _cost(usd: float | None) -> str:
    """Return an amount to the millionth; what is unknown is never 0."""
    return "unknown" if usd is None else f"{usd:.6f}".rstrip("0").rstrip(".") + " USD"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
