"""From the harness's lines to judgements: what deterministic checks say of a rubric (design.md section 6)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.verdict import CapJudgement, Judgement, Quote, State

MESSAGE_CHARACTERS = 500
"""Longest message the harness writes."""
GRADER_CRASH = "grader_crash"
"""Flag: the check's process died twice on the same evidence while the engine was healthy."""
CHECK_ERROR = "check_error"
"""Flag: the check raised something other than AssertionError, or ran out of time."""
INTEGRITY = "integrity:"
"""Prefix of the flags that make an attempt an ``integrity_violation``."""

Kind = Literal["checkpoint", "cap", "fatal"]


class _Line(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Node(_Line):
    """One collected check: its pytest node id, the kind of its mark and what the mark names."""

    node: str
    kind: Kind
    id: str


class Result(Node):
    """How one check ended. ``award`` is the partial credit of a passed checkpoint, None for the whole."""

    outcome: Literal["passed", "failed", "skipped", "error", "timeout", "crashed"]
    award: float | None = Field(None, ge=0.0, le=1.0, allow_inf_nan=False)
    message: str = Field("", max_length=MESSAGE_CHARACTERS)


class _Note(_Line):
    kind: Literal["integrity", "collection_error"]
    node: str
    message: str = Field("", max_length=MESSAGE_CHARACTERS)


class _Collected(_Line):
    kind: Literal["collected"]
    nodes: list[Node]


@dataclass(frozen=True)
class CheckReport:
    """What one or more runs of the harness said.

    ``nodes`` is None where no run got as far as collecting. ``results`` maps node ids to results; ``errors`` are
    checks or files that could not be collected; ``malformed`` counts lines that are none of the harness's.
    """

    nodes: tuple[Node, ...] | None = None
    results: Mapping[str, Result] | None = None
    errors: tuple[str, ...] = ()
    integrity: tuple[str, ...] = ()
    malformed: int = 0

    @property
    def unsettled(self) -> tuple[str, ...]:
        """Node ids of collected checks that crashed or have no result."""
        found = self.results or {}
        return tuple(n.node for n in self.nodes or () if n.node not in found or found[n.node].outcome == "crashed")

    def merged(self, later: CheckReport) -> CheckReport:
        """This report, with the unsettled checks as ``later`` has them."""
        if self.nodes is None:
            return replace(later, malformed=self.malformed + later.malformed)
        retried = {node: result for node, result in (later.results or {}).items() if node in self.unsettled}
        return replace(
            self,
            results={**(self.results or {}), **retried},
            integrity=tuple(dict.fromkeys((*self.integrity, *later.integrity))),
            malformed=self.malformed + later.malformed,
        )


@dataclass(frozen=True)
class Findings:
    """What the checks say of a rubric, ready for an Assessment.

    ``unjudged`` lists, for the task's author, what no check or no usable check decides; ``faults`` is the part of it
    that is wrong with checks that are there. ``unchecked`` are the (kind, id) of what has no check at all.
    """

    judgements: tuple[Judgement, ...]
    caps: tuple[CapJudgement, ...]
    fatal: tuple[str, ...]
    flags: tuple[str, ...]
    unjudged: tuple[str, ...]
    faults: tuple[str, ...] = ()
    unchecked: frozenset[tuple[str, str]] = frozenset()


def read_lines(lines: Iterable[str]) -> CheckReport:
    """Parse the harness's output strictly; a line that is not of its making is counted, never believed."""
    nodes: tuple[Node, ...] | None = None
    results: dict[str, Result] = {}
    errors: list[str] = []
    integrity: list[str] = []
    malformed = 0
    for text in lines:
        line = _parse(text)
        if isinstance(line, _Collected) and nodes is None:
            nodes = tuple(line.nodes)
        elif isinstance(line, Result) and line.node not in results:
            results[line.node] = line
        elif isinstance(line, _Note) and line.kind == "integrity":
            integrity.append(line.message)
        elif isinstance(line, _Note):
            errors.append(f"{line.node}: {line.message}" if line.node else line.message)
        elif line is not None:
            malformed += 1
    known = {n.node: (n.kind, n.id) for n in nodes or ()}
    sound = {node: result for node, result in results.items() if known.get(node) == (result.kind, result.id)}
    malformed += len(results) - len(sound)
    return CheckReport(nodes, sound, tuple(errors), tuple(integrity), malformed)


def assess_checks(report: CheckReport, rubric: Rubric) -> Findings:
    """Judge every checkpoint and cap of ``rubric`` by the checks marked with its id.

    A check that fails, breaks, overruns or crashes leaves its checkpoint unmet, fires its cap or its fatal mark; the
    last three are flagged. A checkpoint or cap with no, several or a skipped check is unjudged.
    """
    lines: list[tuple[Kind, str]] = [("checkpoint", c.id) for c in rubric.checkpoints]
    lines += [("cap", c.id) for c in rubric.caps]
    usable = {line: _only_result(report, *line) for line in lines}
    marked = {(node.kind, node.id) for node in report.nodes or ()}
    unchecked = frozenset(line for line in lines if line not in marked)
    fatal, skipped = _fatal(report)
    faults = [*_strangers(report, rubric), *report.errors]
    missing: list[str] = []
    for (kind, identity), (result, problem) in usable.items():
        if result is None:
            (missing if (kind, identity) in unchecked else faults).append(f"{kind} {identity}: {problem}")
    faults.extend(skipped)
    return Findings(
        tuple(_judgement(identity, *usable[kind, identity]) for kind, identity in lines if kind == "checkpoint"),
        tuple(_cap_judgement(identity, *usable[kind, identity]) for kind, identity in lines if kind == "cap"),
        fatal, _flags(report), (*faults, *missing), tuple(faults), unchecked,
    )  # fmt: skip


def _parse(text: str) -> _Line | object | None:
    """Return the line as a value, None where it is ``end``, some other object where it is malformed."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError):
        return object()
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "end":
        return None
    models: dict[str, type[_Line]] = {"collected": _Collected, "integrity": _Note, "collection_error": _Note}
    model = models.get(str(kind), Result)
    try:
        return model.model_validate(data)
    except ValidationError:
        return object()


def _only_result(report: CheckReport, kind: Kind, identity: str) -> tuple[Result | None, str]:
    """Return the one usable result for a checkpoint or cap, or None and why there is none."""
    nodes = [n for n in report.nodes or () if n.kind == kind and n.id == identity]
    if not nodes:
        return None, "no check is marked with it"
    if len(nodes) > 1:
        return None, f"{len(nodes)} checks are marked with it: {', '.join(n.node for n in nodes)}"
    result = _result(report, nodes[0])
    if result.outcome == "skipped":
        return None, f"{result.node} was skipped: {result.message}"
    return result, ""


def _result(report: CheckReport, node: Node) -> Result:
    found = (report.results or {}).get(node.node)
    if found is not None:
        return found
    message = "the grading container died before the check reported"
    return Result(node=node.node, kind=node.kind, id=node.id, outcome="crashed", award=None, message=message)


def _result_flags(result: Result) -> tuple[str, ...]:
    if result.outcome == "crashed":
        return (CHECK_ERROR, GRADER_CRASH)
    return (CHECK_ERROR,) if result.outcome in {"error", "timeout"} else ()


def _judgement(identity: str, result: Result | None, problem: str) -> Judgement:
    if result is None:
        return Judgement(checkpoint=identity, state=State.UNJUDGED, fraction=0.0, rationale=problem)
    fraction = 0.0
    if result.outcome == "passed":
        fraction = 1.0 if result.award is None else result.award
    state = State.MET if fraction == 1.0 else State.UNMET if fraction == 0.0 else State.PARTIAL
    return Judgement(
        checkpoint=identity,
        state=state,
        fraction=fraction,
        rationale=result.message or _default(state, fraction),
        evidence=(Quote(path=f"references/checks/{result.node}"),),
        flags=_result_flags(result),
    )


def _default(state: State, fraction: float) -> str:
    if state is State.MET:
        return ""
    return f"the check awarded {fraction:g} of the weight" if state is State.PARTIAL else "the check awarded nothing"


def _cap_judgement(identity: str, result: Result | None, problem: str) -> CapJudgement:
    if result is None:
        return CapJudgement(cap=identity, triggered=None, rationale=problem)
    return CapJudgement(
        cap=identity, triggered=result.outcome != "passed", rationale=result.message, flags=_result_flags(result)
    )


def _fatal(report: CheckReport) -> tuple[tuple[str, ...], list[str]]:
    """Return the reasons of the fatal checks that did not pass, and the fatal checks that were skipped."""
    results = [_result(report, node) for node in report.nodes or () if node.kind == "fatal"]
    skipped = [f"fatal {r.id}: {r.node} was skipped: {r.message}" for r in results if r.outcome == "skipped"]
    fired = [f"{r.id}: {r.message}" for r in results if r.outcome not in {"passed", "skipped"}]
    return tuple(fired), skipped


def _strangers(report: CheckReport, rubric: Rubric) -> list[str]:
    known = {"checkpoint": {c.id for c in rubric.checkpoints}, "cap": {c.id for c in rubric.caps}}
    return [
        f"{n.node}: eval_rule.md has no {n.kind} {n.id}"
        for n in report.nodes or ()
        if n.kind in known and n.id not in known[n.kind]
    ]


def _flags(report: CheckReport) -> tuple[str, ...]:
    flags: dict[str, None] = {}
    for node in report.nodes or ():
        flags.update(dict.fromkeys(_result_flags(_result(report, node))))
    if report.malformed:
        flags[f"grader_output: {report.malformed} malformed lines"] = None
    flags.update(dict.fromkeys(f"{INTEGRITY}{text}" for text in report.integrity))
    return tuple(flags)
