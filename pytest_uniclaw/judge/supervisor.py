"""The checks supervisor: grades by a task's own deterministic checks, in a grading container, without a model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_uniclaw.checkfile import read_checks
from pytest_uniclaw.errors import GradingError, SandboxLost
from pytest_uniclaw.judge.base import Assignment, Case
from pytest_uniclaw.judge.checks import GRADER_CRASH, INTEGRITY, CheckReport, Findings, assess_checks, read_lines
from pytest_uniclaw.package import HiddenFolder, Reader, open_hidden
from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.sandbox.base import GradingJob
from pytest_uniclaw.verdict import Assessment, CapJudgement, Judgement, State

LOG_CHARACTERS = 400
"""How much of the harness's output an error quotes."""


@dataclass(frozen=True)
class ChecksSupervisor:
    """Runs ``references/checks/check_*.py`` over the evidence of one turn.

    ``seconds`` bounds one grading run, ``check_seconds`` each check.
    """

    name: str = "checks"
    version: str = "1"
    seconds: float = 300.0
    check_seconds: float = 20.0

    def assess(self, case: Case) -> Assessment:
        """Judge every checkpoint and cap by its check.

        Raises GradingError when the task's checks do not decide the whole rubric or cannot be collected, TaskError
        when the package has no references.
        """
        references = open_hidden(case.task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
        require_checks(references, case.rubric, case.task.task_id)
        assessment, rest = self.settle(case)
        missing = [f"checkpoint {c.id}" for c in rest.checkpoints] + [f"cap {c.id}" for c in rest.caps]
        if missing and not tampered(assessment):
            problems = "; ".join(f"{name}: no check is marked with it" for name in missing)
            raise GradingError(f"{case.task.task_id}: the checks do not decide the rubric: {problems}")
        return assessment

    def settle(self, case: Case) -> tuple[Assessment, Assignment]:
        """Judge what has a check; return that, and what is left for a judge.

        A check whose process dies, or that is lost with its container, is run once more by itself; when it dies again
        its checkpoint is unmet and flagged ``grader_crash`` (invariant 3). Raises GradingError when checks cannot be
        collected, are skipped or doubled, or name what the rubric does not have.
        """
        references = open_hidden(case.task, HiddenFolder.REFERENCES, Reader.SUPERVISOR)
        if not check_files(references):
            return Assessment(judgements=()), Assignment.whole(case.rubric)
        grader = f"{self.name}/{self.version} rubric:{rubric_digest(references)}"
        report, log = self._report(case, references)
        if report is None:
            marked = marked_lines(references)
            done, rest = _divide(case.rubric, lambda line: marked is None or line in marked)
            return nothing(done, grader), rest
        findings = assess_checks(report, case.rubric)
        _require_sound(findings, report, log, case.task.task_id)
        done, rest = _divide(case.rubric, lambda line: line not in findings.unchecked)
        checkpoints, caps = {c.id for c in done.checkpoints}, {c.id for c in done.caps}
        return Assessment(
            judgements=tuple(j for j in findings.judgements if j.checkpoint in checkpoints),
            caps=tuple(j for j in findings.caps if j.cap in caps), fatal=findings.fatal, flags=findings.flags,
            grader=grader,
        ), rest  # fmt: skip

    def _report(self, case: Case, references: Path) -> tuple[CheckReport | None, str]:
        """Run all checks, once more those that crashed; None where the container was lost both times."""
        job = GradingJob(
            owner=case.owner, evidence=case.evidence.folder, references=references, seconds=self.seconds,
            check_seconds=self.check_seconds,
        )  # fmt: skip
        report, log = _run(case, job)
        if report is None or report.nodes is None or report.unsettled:
            again, later_log = _run(case, replace(job, only=report.unsettled if report else ()))
            log = later_log or log
            report = _merge(report, again)
        return report, log


def require_checks(references: Path, rubric: Rubric, task_id: str) -> None:
    """Raise GradingError when the checks supervisor can say nothing of the task at all."""
    if not rubric.checkpoints:
        kind = "is scored by a formula" if rubric.formula_scored else "has no weighted checkpoint"
        raise GradingError(f"{task_id}: eval_rule.md {kind}; the checks supervisor needs weighted checkpoints")
    if not check_files(references):
        wanted = _listed(c.id for c in rubric.checkpoints)
        raise GradingError(
            f"{task_id}: no check for checkpoints: {wanted}; add references/checks/check_*.py, "
            "or grade with a supervisor that judges by a model"
        )


def check_files(references: Path) -> list[Path]:
    """Return the files of a task's checks, sorted."""
    return sorted((references / "checks").glob("**/check_*.py"))


def marked_lines(references: Path) -> frozenset[tuple[str, str]] | None:
    """Return the (kind, id) that checks are marked with, without running them; None where only running them tells."""
    found = set()
    for path in check_files(references):
        try:
            file = read_checks(path)
        except (SyntaxError, ValueError, RecursionError):
            return None
        if file.opaque:
            return None
        found |= {(mark.kind, mark.value or "") for check in file.checks for mark in check.marks}
    return frozenset(found)


def rubric_digest(references: Path) -> str:
    """Return 12 hex digits that change when the rubric or a check does."""
    total = hashlib.sha256()
    for path in [references / "eval_rule.md", *sorted((references / "checks").rglob("*.py"))]:
        data = path.read_bytes()
        total.update(f"{path.relative_to(references).as_posix()}\0{len(data)}\0".encode())
        total.update(data)
    return total.hexdigest()[:12]


def nothing(assignment: Assignment, grader: str) -> Assessment:
    """Everything unmet: the container was lost twice on the same evidence while the engine answered."""
    reason, flags = "the grading container died twice on this evidence", (GRADER_CRASH,)
    unmet = [
        Judgement(checkpoint=c.id, state=State.UNMET, fraction=0.0, rationale=reason, flags=flags)
        for c in assignment.checkpoints
    ]
    caps = [CapJudgement(cap=c.id, triggered=True, rationale=reason, flags=flags) for c in assignment.caps]
    return Assessment(
        judgements=tuple(unmet), caps=tuple(caps), flags=flags, grader=grader,
        holistic=0.0 if assignment.holistic else None,
    )  # fmt: skip


def tampered(assessment: Assessment) -> bool:
    """Whether a check found that the executor tampered with grading; that takes precedence over what is unjudged."""
    return any(flag.startswith(INTEGRITY) for flag in assessment.flags)


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


def _require_sound(findings: Findings, report: CheckReport, log: str, task_id: str) -> None:
    if report.nodes is None:
        said = log[-LOG_CHARACTERS:].strip() or "no output"
        reason = "; ".join(report.errors) or f"the harness reported nothing: {said}"
        raise GradingError(f"{task_id}: the checks could not be collected: {reason}")
    if findings.faults and not report.integrity:
        raise GradingError(f"{task_id}: the checks do not decide the rubric: {'; '.join(findings.unjudged)}")


def _divide(rubric: Rubric, is_done: Callable[[tuple[str, str]], bool]) -> tuple[Assignment, Assignment]:
    """Divide a rubric into what the checks decide and the rest."""
    whole = Assignment.whole(rubric)
    parts = []
    for wanted in (True, False):
        checkpoints = tuple(c for c in whole.checkpoints if is_done(("checkpoint", c.id)) is wanted)
        caps = tuple(c for c in whole.caps if is_done(("cap", c.id)) is wanted)
        parts.append(Assignment(checkpoints, caps, whole.holistic and not wanted))
    return parts[0], parts[1]


def _listed(names: Iterable[str], limit: int = 12) -> str:
    found = list(names)
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more
