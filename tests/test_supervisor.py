"""The checks supervisor: what it asks of the sandbox provider, and what it makes of crashes and of unfit packages."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_uniclaw.errors import EngineError, GradingError, SandboxLost
from pytest_uniclaw.judge.base import Case, Evidence
from pytest_uniclaw.judge.supervisor import ChecksSupervisor, rubric_digest
from pytest_uniclaw.package import Reader, load_rubric
from pytest_uniclaw.sandbox.base import GradingJob, GradingOutput, Owner, Sandbox, SandboxSpec
from pytest_uniclaw.task import Task, load_task
from pytest_uniclaw.verdict import Decision, State, compute_verdict

pytestmark = pytest.mark.processes

HARNESS = Path(__file__).parents[1] / "pytest_uniclaw" / "judge" / "harness"
RULES = """# T

## 5. Checkpoints

- **0.60 — C1 Report.** The report says hello.
- **0.40 — C2 Rows.** Rows are there.

## 6. Score caps

- **invented** — cap at 0.30 if a row is invented.
"""
CHECKS = """
import os, pytest

@pytest.mark.checkpoint("C1")
def check_report(evidence):
    assert "hello" in evidence.text("report.md"), "the report does not say hello"

@pytest.mark.checkpoint("C2")
def check_rows(evidence):
    assert evidence.csv("rows.csv")

@pytest.mark.cap("invented")
def check_invented(evidence):
    if evidence.exists("bomb"):
        os._exit(1)
    assert not evidence.exists("invented.csv"), "a row is invented"
"""


@dataclass
class HostProvider:
    """Runs the real harness as a process on this host; ``answers`` replace its first runs."""

    folder: Path
    answers: list[GradingOutput | Exception] = field(default_factory=list)
    jobs: list[GradingJob] = field(default_factory=list)
    name: str = "host"
    trusted_only: bool = True

    def open(self, spec: SandboxSpec) -> AbstractContextManager[Sandbox]:
        raise NotImplementedError

    def check(self, images: Sequence[str]) -> None:
        raise NotImplementedError

    def digest(self, image: str) -> str:
        raise NotImplementedError

    def grade(self, job: GradingJob) -> GradingOutput:
        self.jobs.append(job)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        root = self.folder / f"grading-{len(self.jobs)}"
        shutil.copytree(job.evidence, root / "evidence")
        shutil.copytree(job.references, root / "references")
        (root / "job.json").write_text(json.dumps({"only": job.only, "check_seconds": job.check_seconds}))
        command = [sys.executable, "-I", str(HARNESS / "run_checks.py"), str(root)]
        done = subprocess.run(command, capture_output=True, timeout=job.seconds, check=False)
        lines = (root / "out" / "judgements.jsonl").read_text("utf-8").splitlines()
        return GradingOutput(tuple(lines), done.returncode, False, done.stdout.decode()[-1000:])


def make_task(folder: Path, checks: str | None = CHECKS, rules: str = RULES) -> Task:
    yaml = folder / "suites" / "101_skill_usage" / "task_a.yaml"
    yaml.parent.mkdir(parents=True)
    yaml.write_text(
        "task_id: task_a\ncategory: 101_skill_usage\ntask: Write report.md\nreferences: [references/eval_rule.md]\n"
    )
    references = folder / "injection" / "101_skill_usage" / "task_a" / "references"
    (references / "checks").mkdir(parents=True)
    (references / "eval_rule.md").write_text(rules)
    if checks is not None:
        (references / "checks" / "check_it.py").write_text(checks)
    return load_task(yaml)


def make_case(folder: Path, task: Task, provider: HostProvider, **results: str) -> Case:
    evidence = Evidence(folder / "evidence")
    evidence.results.mkdir(parents=True)
    for name, text in results.items():
        (evidence.results / name.replace("_dot_", ".")).write_text(text)
    rubric = load_rubric(task, Reader.SUPERVISOR)
    return Case(task, rubric, evidence, 1, (), provider, Owner("run", "gw0", "attempt"))


@pytest.fixture
def provider(tmp_path: Path) -> HostProvider:
    return HostProvider(tmp_path)


GOOD = {"report_dot_md": "hello", "rows_dot_csv": "a,b\n1,2\n"}


def test_a_good_turn_passes(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path), provider, **GOOD)
    assessment = ChecksSupervisor().assess(case)
    verdict = compute_verdict(case.rubric, assessment, threshold=0.9, followups_left=2, finished=True)
    assert (verdict.decision, verdict.score, assessment.flags) == (Decision.PASS, 1.0, ())
    references = case.task.folder / "references"
    assert assessment.grader == f"checks/1 rubric:{rubric_digest(references)}"
    assert [job.only for job in provider.jobs] == [()]


def test_a_cap_and_a_miss_are_judged(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path), provider, report_dot_md="hello", invented_dot_csv="x")
    verdict = compute_verdict(
        case.rubric, ChecksSupervisor().assess(case), threshold=0.9, followups_left=2, finished=True
    )
    assert (verdict.total, verdict.score, verdict.decision) == (0.6, 0.3, Decision.CONTINUE)
    assert verdict.first_miss is not None
    assert verdict.first_miss.rationale == "results/rows.csv does not exist"


def test_a_check_that_crashes_twice_is_unmet_and_flagged(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path), provider, **GOOD, bomb="x")
    assessment = ChecksSupervisor().assess(case)
    assert [job.only for job in provider.jobs] == [(), ("check_it.py::check_invented",)]
    assert assessment.caps[0].triggered is True
    assert "grader_crash" in assessment.flags
    assert [j.state for j in assessment.judgements] == [State.MET, State.MET]


def test_a_check_that_crashes_once_is_judged_by_its_second_run(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path), provider, **GOOD)
    nodes = [("report", "checkpoint", "C1"), ("rows", "checkpoint", "C2"), ("invented", "cap", "invented")]
    collected = [{"node": f"check_it.py::check_{n}", "kind": k, "id": i} for n, k, i in nodes]
    half = json.dumps({"kind": "collected", "nodes": collected})
    provider.answers = [GradingOutput((half,), 137, False, "killed")]
    assessment = ChecksSupervisor().assess(case)
    assert len(provider.jobs[1].only) == 3
    assert assessment.flags == ()
    assert [j.state for j in assessment.judgements] == [State.MET, State.MET]


def test_a_container_lost_twice_leaves_everything_unmet(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path), provider, **GOOD)
    provider.answers = [SandboxLost("gone", cause="oom"), SandboxLost("gone", cause="oom")]
    assessment = ChecksSupervisor().assess(case)
    assert assessment.flags == ("grader_crash",)
    assert [j.state for j in assessment.judgements] == [State.UNMET, State.UNMET]
    verdict = compute_verdict(case.rubric, assessment, threshold=0.9, followups_left=0, finished=True)
    assert verdict.score == 0.0


def test_a_container_lost_once_is_run_again(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path), provider, **GOOD)
    provider.answers = [SandboxLost("gone", cause="killed")]
    assert ChecksSupervisor().assess(case).flags == ()


def test_an_engine_error_is_not_the_executors_doing(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path), provider, **GOOD)
    provider.answers = [EngineError("no engine")]
    with pytest.raises(EngineError):
        ChecksSupervisor().assess(case)


def test_a_harness_that_says_nothing_is_a_grading_error(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path), provider, **GOOD)
    provider.answers = [GradingOutput((), 1, False, "no module named pytest")] * 2
    with pytest.raises(GradingError, match="no module named pytest"):
        ChecksSupervisor().assess(case)


def test_a_task_without_checks_names_what_is_needed(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path, checks=None), provider)
    with pytest.raises(GradingError, match="no check for checkpoints: C1, C2; add references/checks"):
        ChecksSupervisor().assess(case)
    assert provider.jobs == []


def test_checks_that_leave_a_gap_are_a_grading_error(tmp_path: Path, provider: HostProvider) -> None:
    part = CHECKS.replace('@pytest.mark.checkpoint("C2")', '@pytest.mark.checkpoint("C7")')
    case = make_case(tmp_path, make_task(tmp_path, part), provider, **GOOD)
    with pytest.raises(GradingError) as caught:
        ChecksSupervisor().assess(case)
    assert "checkpoint C2: no check is marked with it" in str(caught.value)
    assert "eval_rule.md has no checkpoint C7" in str(caught.value)


def test_a_broken_check_file_is_a_grading_error_naming_it(tmp_path: Path, provider: HostProvider) -> None:
    case = make_case(tmp_path, make_task(tmp_path, CHECKS + "\nimport nothing_like_this\n"), provider, **GOOD)
    with pytest.raises(GradingError, match="nothing_like_this"):
        ChecksSupervisor().assess(case)


def test_tampering_is_reported_even_where_something_is_unjudged(tmp_path: Path, provider: HostProvider) -> None:
    body = 'evidence.violation("the answers were replaced"); pytest.skip("no use")'
    checks = CHECKS.replace('assert evidence.csv("rows.csv")', body)
    case = make_case(tmp_path, make_task(tmp_path, checks), provider, **GOOD)
    assert "integrity:the answers were replaced" in ChecksSupervisor().assess(case).flags


def test_the_digest_changes_with_rubric_and_checks(tmp_path: Path) -> None:
    references = make_task(tmp_path).folder / "references"
    before = rubric_digest(references)
    (references / "checks" / "check_it.py").write_text(CHECKS + "\n")
    after = rubric_digest(references)
    (references / "eval_rule.md").write_text(RULES + "\n")
    assert len({before, after, rubric_digest(references)}) == 3


def test_the_supervisor_is_a_picklable_value() -> None:
    supervisor = ChecksSupervisor(seconds=10.0)
    assert pickle.loads(pickle.dumps(supervisor)) == supervisor
