"""Packages of upstream's, straight from a checkout, with nanobot, a scripted model judge and a scripted user.

Weights and scores stand here as they are read in each package's ``eval_rule.md``, not as our parser finds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest
from support.sessions import Session, start
from support.upstream import FOLLOW_UPS, OWN_SCORE, PASSES, Package, Plan, checkout, write_scripts

from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.markdown import plain
from pytest_uniclaw.sandbox.image_spec import on_desktop
from pytest_uniclaw.sandbox.images import missing_images
from pytest_uniclaw.status import Status
from pytest_uniclaw.task import Task

docker = pytest.importorskip("docker")
pytestmark = pytest.mark.docker
Json = dict[str, Any]
DESKTOP_IMAGE = on_desktop(load_agent("nanobot").image)
SECONDS = 1500.0
"""Within this two workers are through with all packages on a busy machine; on an idle one it takes four minutes."""
ALL = Plan(((1.0,),))
RECOVER = Plan(((1.0, 0.0), (1.0,)))
"""The first checkpoint alone in turn 1, everything in turn 2."""
HALF = Plan(((0.5,), (0.5,), (0.5,)))
STEPS = Plan(((1.0, 0.5, 0.0),), lost=True)
"""The first checkpoint, half of the second, nothing else, and no way on."""


def capped(cap: str) -> Plan:
    """Return a plan that grants everything and triggers a cap that nothing can undo."""
    return Plan(((1.0,),), cap=cap, lost=True)


GROUND_TRUTH = "references/ground_truth.json"
FIFTHS = (0.2, 0.2, 0.6)
PACKAGES = (
    # One-shot services and skills.
    Package("101_skill_usage/task_101_06_sqlite_anomalies", RECOVER, "pass", (0.10, 1.0),
            (0.10, 0.15, 0.15, 0.15, 0.15, 0.10, 0.10, 0.10)),
    Package("101_skill_usage/task_101_25_prompt_injection_audit", STEPS, "fail", (0.15 + 0.05,),
            (0.15, 0.10, 0.30, 0.20, 0.10, 0.05, 0.05, 0.05)),
    Package("201_skill_usage_zh/task_201_31_postmortem_merge", ALL, "pass", (1.0,),
            (0.06, 0.14, 0.10, 0.05, 0.05, 0.05, 0.07, 0.10, 0.10, 0.13, 0.07, 0.08)),
    Package("101_skill_usage/task_101_36_youtube_synthesis_qa", capped("wrong-recommendation-committed"), "fail",
            (0.40,), (0.05, 0.12, 0.10, 0.08, 0.10, 0.12, 0.10, 0.10, 0.08, 0.06, 0.05, 0.04)),
    # Snapshot mode; all but the Reddit task have a pre_exec.
    Package("101_skill_usage/task_101_16_trello_triage", ALL, "pass", (1.0,),
            (0.10, 0.10, 0.13, 0.10, 0.10, 0.09, 0.07, 0.05, 0.07, 0.06, 0.05, 0.08),
            opens=("sources/trello_snapshot.json", GROUND_TRUTH)),
    Package("101_skill_usage/task_101_17_todoist_weekly_plan", STEPS, "fail", (0.10 + 0.05,),
            (0.10, 0.10, 0.05, 0.14, 0.16, 0.08, 0.10, 0.04, 0.07, 0.04, 0.02, 0.06, 0.04), opens=(GROUND_TRUTH,)),
    Package("101_skill_usage/task_101_18_reddit_synthesis", ALL, "pass", (1.0,), (0.10, 0.25, 0.20, 0.20, 0.15, 0.10)),
    Package("101_skill_usage/task_101_20_slack_channel_summary", capped("skill-not-consulted"), "fail", (0.70,),
            (0.10, 0.25, 0.25, 0.15, 0.10, 0.05, 0.10)),
    Package("201_skill_usage_zh/task_201_19_github_activity_digest", RECOVER, "pass", (0.20, 1.0),
            (0.20, 0.20, 0.10, 0.20, 0.15, 0.10, 0.05)),
    Package("201_skill_usage_zh/task_201_21_notion_consolidate", ALL, "pass", (1.0,),
            (0.10, 0.13, 0.12, 0.08, 0.13, 0.08, 0.05, 0.07, 0.04, 0.20)),
    Package("201_skill_usage_zh/task_201_22_airtable_crm", STEPS, "fail", (0.07 + 0.08,),
            (0.07, 0.16, 0.16, 0.08, 0.07, 0.07, 0.14, 0.15, 0.05, 0.05)),
    # No services.
    Package("102_exploration/task_102_13_k8s_yaml_reconciliation", HALF, "budget_exhausted", (0.5, 0.5, 0.5),
            (0.35, 0.25, 0.20, 0.10, 0.10)),
    Package("102_exploration/task_102_19_museum_exhibit_template", ALL, "pass", (1.0,), (0.35, 0.20, 0.20, 0.15, 0.10)),
    Package("202_exploration_zh/task_202_35_sudoku_9x9_easiest", RECOVER, "pass", (0.2, 1.0), FIFTHS),
    Package("102_exploration/task_102_38_gomoku_best_move", STEPS, "fail", (0.55 + 0.125,), (0.55, 0.25, 0.20)),
    Package("202_exploration_zh/task_202_39_go_9x9_best_move", STEPS, "fail", (0.10 + 0.05,), (0.10, 0.10, 0.80)),
    Package("103_long_context/task_103_24_world_bank_economic_report", ALL, "pass", (1.0,),
            (0.20, 0.25, 0.20, 0.20, 0.10, 0.05)),
    Package("203_long_context_zh/task_203_28_obfuscated_email_fraud_audit", capped("cap1"), "fail", (0.60,),
            (0.20, 0.20, 0.30, 0.15, 0.10, 0.05)),
    Package("104_multimodal/task_104_06_car_svg_reconstruction", STEPS, "fail", (0.05 + 0.05,),
            (0.05, 0.10, 0.30, 0.20, 0.20, 0.10, 0.05)),
    Package("104_multimodal/task_104_30_warranty_case_cleanup", ALL, "pass", (1.0,),
            (0.12, 0.18, 0.22, 0.22, 0.14, 0.12)),
    Package("204_multimodal_zh/task_204_28_landmark_photo_identification", capped("less-than-two-thirds-coverage"),
            "fail", (0.35,), (0.15, 0.45, 0.15, 0.10, 0.10, 0.05)),
    # A folder as a reference.
    Package("104_multimodal/task_104_20_daisy_keech_abs_workout_guide", ALL, "pass", (1.0,),
            (0.10, 0.15, 0.35, 0.15, 0.20, 0.05), opens=("references/source_frames/",)),
    # Background services and no weights: a score for the formula.
    Package("103_long_context/task_103_36_minesweeper_easy_play", Plan(holistic=(0.35,), lost=True), "fail", (0.35,)),
    Package("203_long_context_zh/task_203_39_nonogram_20x20", Plan(holistic=(0.4, 1.0)), "pass", (0.4, 1.0)),
    # A desktop task's one-shot service, which finds nothing to install.
    Package("105_cross_platform/task_105_39_nasa_audio_ffmpeg_index", ALL, "pass", (1.0,),
            (0.14, 0.22, 0.16, 0.14, 0.10, 0.10, 0.08, 0.06)),
)  # fmt: skip
SNAPSHOTS = [p for p in PACKAGES if re.match(r"task_[12]01_(16|17|19|20|21|22)_", p.task_id)]


@dataclass(frozen=True)
class Ran:
    """The session over all packages; those that need a desktop are left out where no image has one."""

    session: Session
    upstream: Path
    untouched: bool = True
    packages: tuple[Package, ...] = PACKAGES

    def folder(self, package: Package) -> Path:
        """Return the folder of a package's one attempt."""
        if package not in self.packages:
            pytest.skip(f"{package.task_id} needs a desktop: uniclaw images build {DESKTOP_IMAGE}")
        (path,) = self.session.run.glob(f"a1/*/*/{package.name}/p1-*")
        return path

    def attempt(self, package: Package) -> Attempt:
        """Return the record of a package's attempt."""
        return Attempt.model_validate_json((self.folder(package) / "uniclaw.json").read_bytes())

    def task(self, package: Package) -> Task:
        """Return a package's task as the checkout has it."""
        return package.load(self.upstream)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run every package once."""
    upstream = checkout()
    root = tmp_path_factory.mktemp("upstream")
    scripts = write_scripts(root, upstream, PACKAGES)
    before = state_of(upstream)
    with closing(docker.from_env()) as client:
        lacks_desktop = missing_images(client.api, [DESKTOP_IMAGE])
    packages = tuple(p for p in PACKAGES if not (lacks_desktop and p.load(upstream).gui))
    session = run(
        root, upstream, packages, "-n2", "--agent=nanobot", f"--model=script:{scripts['agent']}",
        f"--supervisor=script:{scripts['judge']}", f"--simulator=script:{scripts['user']}", "--uniclaw-snapshot-mode",
        "--uniclaw-network=isolated", f"--html={root / 'report.html'}",
    )  # fmt: skip
    return Ran(session, upstream, state_of(upstream) == before, packages)


def run(root: Path, upstream: Path, packages: Sequence[Package], *arguments: str) -> Session:
    """Run packages of a checkout where they are; ``root`` takes the run directory."""
    targets = [str(upstream / "tasks" / f"{package.name}.yaml") for package in packages]
    runs = f"--uniclaw-runs-dir={root / 'runs'}"
    return start(root, "-pno:cacheprovider", runs, *arguments, targets=targets).finish(SECONDS)


def state_of(upstream: Path) -> dict[Path, tuple[int, int]]:
    """Return size and time of every file of the packages in a checkout."""
    folders = [upstream / "injection" / package.name for package in PACKAGES]
    files = [path for folder in (*folders, upstream / "tasks") for path in folder.rglob("*") if path.is_file()]
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def judged(package: Package) -> Any:
    """Return a package as a parameter."""
    return pytest.param(package, id=package.task_id)


def by_package(packages: Sequence[Package]) -> pytest.MarkDecorator:
    """Run a test for each package."""
    return pytest.mark.parametrize("package", [judged(package) for package in packages])


def test_every_package_is_judged_and_none_is_changed(ran: Ran) -> None:
    count = len(ran.packages)
    assert count >= 20
    assert f"coverage {count}/{count}" in ran.session.output, ran.session.output[-5000:]
    assert ran.session.code == 1, "some fail"
    assert ran.untouched
    assert not (ran.upstream / "runs").exists()


@by_package(PACKAGES)
def test_status_and_score_are_those_computed_by_hand(ran: Ran, package: Package) -> None:
    attempt = ran.attempt(package)
    assert attempt.status.value == package.status, attempt.reason
    verdicts = [turn.verdict for turn in attempt.turns if turn.verdict]
    assert [verdict.score for verdict in verdicts] == pytest.approx(package.scores, abs=1e-9)
    assert attempt.score == pytest.approx(max(package.scores), abs=1e-9)
    assert [verdict.drift for verdict in verdicts] == pytest.approx([OWN_SCORE - s for s in package.scores], abs=1e-6)
    assert all(turn.finished for turn in attempt.turns)
    assert attempt.limits["user"] == "root"


@by_package(PACKAGES)
def test_the_record_has_the_checkpoints_of_the_rubric(ran: Ran, package: Package) -> None:
    rule = plain((ran.task(package).folder / "references" / "eval_rule.md").read_text("utf-8"))
    for turn in ran.attempt(package).turns:
        assert turn.verdict
        lines = turn.verdict.checkpoints
        assert tuple(line.weight for line in lines) == package.weights
        assert len({line.id for line in lines}) == len(lines)
        assert all(line.name and line.name.rstrip("…") in rule for line in lines)
        assert all(f" {line.id} " in rule for line in lines if re.fullmatch(r"CP?\d+", line.id))
        assert all(line.evidence[0].text == PASSES[turn.number - 1] for line in lines if line.earned)


@by_package([package for package in PACKAGES if package.plan.cap])
def test_the_cap_holds_the_score_down(ran: Ran, package: Package) -> None:
    verdict = ran.attempt(package).turns[0].verdict
    assert verdict
    (cap,) = [cap for cap in verdict.caps if cap.triggered]
    assert (cap.id, cap.value, verdict.total) == (package.plan.cap, *package.scores, 1.0)


@pytest.fixture(scope="module")
def report(ran: Ran) -> dict[str, str]:
    """Return of every task what its row of the HTML report holds, by task id."""
    page = (ran.session.root / "report.html").read_text("utf-8")
    found = re.search(r'data-jsonblob="([^"]*)"', page)
    assert found
    tests: dict[str, list[Json]] = json.loads(unescape(found[1]))["tests"]
    return {Path(name.partition("::")[0]).stem: row["extras"][0]["content"] for name, (row,) in tests.items()}


@by_package(PACKAGES)
def test_the_html_report_shows_the_checkpoints(ran: Ran, package: Package, report: dict[str, str]) -> None:
    verdict, row = ran.attempt(package).turns[-1].verdict, report[package.task_id]
    assert verdict
    for line, weight in zip(verdict.checkpoints, package.weights, strict=True):
        shown = f"<td>{escape(line.id)}</td><td>{escape(line.name)}</td>"
        points = rf"<td class=n>([\d.]+)</td><td class=n>{weight:.2f}</td><td>{line.state.value}</td>"
        found = re.search(re.escape(shown) + points, row)
        assert found
        assert float(found[1]) == pytest.approx(line.earned, abs=1e-9)
    if package.plan.cap:
        assert f"<td>{package.plan.cap}</td><td class=n>≤ {package.scores[0]:.2f}</td>" in row


def answer(ran: Ran, package: Package) -> str:
    """Return what the executor wrote in its first turn."""
    return (ran.folder(package) / "turns/1/evidence/results/answer.md").read_text("utf-8")


@by_package(PACKAGES)
def test_the_executor_finds_its_sources_skills_and_services_and_nothing_hidden(ran: Ran, package: Package) -> None:
    said, task = answer(ran, package), ran.task(package)
    sources = task.folder / "sources"
    assert all(f"source {path.relative_to(sources)}\n" in said for path in sources.rglob("*") if path.is_file())
    for skill in task.skills:
        assert f"skill /root/skills/{skill}/skill.md\n" in said.replace("SKILL.md", "skill.md")
        assert f"skill skills/{skill}/skill.md\n" in said.replace("SKILL.md", "skill.md")
    for service in task.services:
        assert f"left by a service: f clawbench/logs/{service.name}.log\n" in said
        assert (f"harness folder: {service.name} \n" in said) is not service.oneshot
    if package.plan.holistic:
        assert re.search(r"^left by a service: p results/\w+_sessions/attempt_1\.fifo$", said, re.MULTILINE)
        assert "games: 0\n" not in said
    assert "account 0 in /root" in said
    assert "hidden " not in said


@by_package(SNAPSHOTS)
def test_in_snapshot_mode_executor_judge_and_user_have_the_snapshots_prompt(ran: Ran, package: Package) -> None:
    task, attempt = ran.task(package), ran.attempt(package)
    assert "snapshot mode 1\n" in answer(ran, package)
    assert re.search(r"^source \w+_snapshot\.json$", answer(ran, package), re.MULTILINE)
    assert task.snapshot_prompt
    assert task.snapshot_prompt in attempt.turns[0].message
    assert task.snapshot_prompt in told(ran, package, "supervisor")
    if len(attempt.turns) > 1:
        assert task.snapshot_prompt in told(ran, package, "user_simulator")
    assert "exited with 0" in (ran.folder(package) / "pre_exec.log").read_text("utf-8")


def told(ran: Ran, package: Package, role: str) -> str:
    """Return the texts of all messages of a role's conversations."""
    blobs = (ran.folder(package) / "exchange" / role / "blobs").glob("*.json")
    messages = [json.loads(blob.read_bytes()) for blob in blobs]
    return "\n".join(str(message.get("content")) for message in messages if isinstance(message, dict))


def test_the_judge_sees_what_pre_exec_made_for_this_attempt(ran: Ran) -> None:
    (package,) = [package for package in PACKAGES if package.task_id == "task_101_16_trello_triage"]
    day = ran.attempt(package).started[:10]
    stored = (ran.task(package).folder / "sources" / "trello_snapshot.json").read_text("utf-8")
    assert f"{day}T10:00:00" not in stored
    assert f"{day}T10:00:00" in told(ran, package, "supervisor")


def test_the_judge_sees_into_a_folder_that_is_a_reference(ran: Ran) -> None:
    (package,) = [package for package in PACKAGES if "references/source_frames/" in package.opens]
    frames = sorted(path.name for path in (ran.task(package).folder / "references/source_frames").iterdir())
    seen = told(ran, package, "supervisor")
    assert frames
    assert all(name in seen for name in frames)


@by_package([package for package in PACKAGES if len(package.scores) > 1])
def test_the_users_words_reach_the_executor_in_the_tasks_language(ran: Ran, package: Package) -> None:
    messages = [turn.message for turn in ran.attempt(package).turns[1:]]
    assert tuple(messages) == FOLLOW_UPS[ran.task(package).language][: len(messages)]


PLAIN = [package for package in PACKAGES if package.task_id == "task_102_13_k8s_yaml_reconciliation"]


def test_without_a_model_nobody_can_judge(tmp_path: Path) -> None:
    upstream = checkout()
    session = run(tmp_path, upstream, PLAIN, "--agent=nop", "--supervisor=checks", "--uniclaw-network=isolated")
    attempt = Ran(session, upstream).attempt(PLAIN[0])
    assert session.code == 1
    assert (attempt.status, attempt.turns[0].finished) == (Status.UNJUDGED, True)
    assert "coverage 0/1" in session.output


def test_a_task_has_the_internet_unless_the_session_says_otherwise(tmp_path: Path) -> None:
    upstream = checkout()
    session = run(tmp_path, upstream, PLAIN, "--agent=nop", "--supervisor=checks")
    assert Ran(session, upstream).attempt(PLAIN[0]).limits["network"] == "internet"
