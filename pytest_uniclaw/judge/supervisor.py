"""The checks supervisor: grades by a task's own deterministic checks, in a grading container, without a model."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_uniclaw.errors import GradingError, SandboxLost
from pytest_uniclaw.judge.base import Case
from pytest_uniclaw.judge.checks import GRADER_CRASH, CheckReport, Findings, assess_checks, read_lines
from pytest_uniclaw.package import HiddenFolder, Reader, open_hidden
from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.sandbox.base import GradingJob
from pytest_uniclaw.verdict import Assessment, CapJudgement, Judgement, State

LOG_CHARACTERS = 400
"""How much of the harness's output an error quotes."""


@dataclass(frozen=True)
class ChecksSupervisor:
    """Runs ``references/checks/check_*.py`` over the evidence of one turn.

    ``seconds`` bounds one grading run, ``check_seconds`` each check. It needs a check for every checkpoint and every
    cap of the rubric.
    """

    name: str = "checks"
    version: str = "1"
    seconds: float = 300.0
    check_seconds: float = 20.0

    def assess(self, case: Case) -> Assessment:
        """Judge every checkpoint and cap by its check.

        A check whose process dies, or that is lost with its container, is run once more by itself; when it dies again
        its checkpoint is unmet and flagged ``grader_crash`` (invariant 3). Raises GradingError when the task's checks
        do not decide the whole rubric or cannot be collected, TaskError when the package has no references.
        """
        references = open_hidden(case.task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
        require_checks(references, case.rubric, case.task.task_id)
        grader = f"{self.name}/{self.version} rubric:{rubric_digest(references)}"
        job = GradingJob(
            owner=case.owner, evidence=case.evidence.folder, references=references, seconds=self.seconds,
            check_seconds=self.check_seconds,
        )
        report, log = _run(case, job)
        if report is None or report.nodes is None or report.unsettled:
            again, later_log = _run(case, replace(job, only=report.unsettled if report else ()))
            log = later_log or log
            report = _merge(report, again)
        if report is None:
            return _nothing(case.rubric, grader)
        findings = assess_checks(report, case.rubric)
        _require_all_judged(findings, report, log, case.task.task_id)
        return Assessment(
            judgements=findings.judgements, caps=findings.caps, fatal=findings.fatal, flags=findings.flags,
            grader=grader,
        )


def require_checks(references: Path, rubric: Rubric, task_id: str) -> None:
    """Raise GradingError when this supervisor can say nothing of the task at all."""
    if not rubric.checkpoints:
        kind = "is scored by a formula" if rubric.formula_scored else "has no weighted checkpoint"
        raise GradingError(f"{task_id}: eval_rule.md {kind}; the checks supervisor needs weighted checkpoints")
    if not any((references / "checks").glob("**/check_*.py")):
        wanted = _listed(c.id for c in rubric.checkpoints)
        raise GradingError(
            f"{task_id}: no check for checkpoints: {wanted}; add references/checks/check_*.py, "
            "or grade with a supervisor that judges by a model"
        )


def rubric_digest(references: Path) -> str:
    """Return 12 hex digits that change when the rubric or a check does."""
    total = hashlib.sha256()
    for path in [references / "eval_rule.md", *sorted((references / "checks").rglob("*.py"))]:
        data = path.read_bytes()
        total.update(f"{path.relative_to(references).as_posix()}\0{len(data)}\0".encode())
        total.update(data)
    return total.hexdigest()[:12]


def _run(case: Case, job: GradingJob) -> tuple[CheckReport | None, str]:
    """Run the harness once; None where the container was lost with everything it wrote."""
    try:
        output = case.provider.grade(job)
    except SandboxLost as error:
        return None, str(error)
    return read_lines(output.lines), output.log


def _merge(first: CheckReport | None, second: CheckReport | None) -> CheckReport | None:
    if first is None or second is None:
        return first or second
    return first.merged(second)


def _require_all_judged(findings: Findings, report: CheckReport, log: str, task_id: str) -> None:
    if report.nodes is None:
        said = log[-LOG_CHARACTERS:].strip() or "no output"
        reason = "; ".join(report.errors) or f"the harness reported nothing: {said}"
        raise GradingError(f"{task_id}: the checks could not be collected: {reason}")
    if findings.unjudged and not report.integrity:  # tampering takes precedence over what it left unjudged
        raise GradingError(f"{task_id}: the checks do not decide the rubric: {'; '.join(findings.unjudged)}")


def _nothing(rubric: Rubric, grader: str) -> Assessment:
    """Every checkpoint unmet: the container was lost twice on the same evidence while the engine answered."""
    reason = "the grading container died twice on this evidence"
    flags = (GRADER_CRASH,)
    return Assessment(
        judgements=tuple(
            Judgement(checkpoint=c.id, state=State.UNMET, fraction=0.0, rationale=reason, flags=flags)
            for c in rubric.checkpoints
        ),
        caps=tuple(CapJudgement(cap=c.id, triggered=True, rationale=reason, flags=flags) for c in rubric.caps),
        flags=flags, grader=grader,
    )


def _listed(names: Iterable[str], limit: int = 12) -> str:
    found = list(names)
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more
