"""Against a checkout of UniClawBench that ``UNICLAW_UPSTREAM`` names: its tasks run here, its tools read our runs.

Without a checkout everything here is counted as skipped, ``NOT RUN``.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.packages import Suite
from support.sessions import Session, run

from pytest_uniclaw.attempt import Attempt, Ending, Turn, Usage
from pytest_uniclaw.report.record import ItemRecord, record_of_attempt
from pytest_uniclaw.report.stats import group_by, summarise
from pytest_uniclaw.report.upstream import write_upstream
from pytest_uniclaw.settings import environment_value
from pytest_uniclaw.status import PartialPolicy, Status
from pytest_uniclaw.store import new_attempt_directory, save_attempt, task_directory

CATEGORIES = tuple(
    f"{number}_{name}{suffix}"
    for first, suffix in ((1, ""), (2, "_zh"))
    for number, name in zip(
        range(100 * first + 1, 100 * first + 6),
        ("skill_usage", "exploration", "long_context", "multimodal", "cross_platform"), strict=True,
    )
)  # fmt: skip
COLLECT_CPU_SECONDS = 2.0
"""What collecting 400 tasks may cost over an empty start (design, performance targets)."""
SLACK = 2.0
"""A busy machine with cold caches costs CPU time too."""


@pytest.fixture(scope="module")
def checkout() -> Path:
    """The checkout; an address that names none is an error, not a reason to skip."""
    named = environment_value("UNICLAW_UPSTREAM")
    if not named:
        pytest.skip("NOT RUN: UNICLAW_UPSTREAM names no checkout of UniClawBench")
    path = Path(named).resolve()
    assert (path / "tasks").is_dir(), f"UNICLAW_UPSTREAM={named} has no folder tasks/"
    return path


def collect(folder: Path, cwd: Path) -> tuple[list[str], float]:
    """Collect a folder in a process of its own; return the node ids and the user CPU seconds that took."""
    command = [sys.executable, "-m", "pytest", str(folder), "--collect-only", "-q", "-p", "no:cacheprovider"]
    log = cwd / "collected.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    text = log.read_text("utf-8")
    assert process.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), text[-3000:]
    return [line for line in text.splitlines() if "::" in line], usage.ru_utime


def test_all_tasks_collect_within_two_cpu_seconds(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    collect(checkout / "tasks", tmp_path)  # the first reads from a cold disk
    _, empty = collect(tmp_path / "empty", tmp_path)
    ids, full = collect(checkout / "tasks", tmp_path)
    folders = Counter(next(part for part in line.split("/") if part[:3].isdigit()) for line in ids)
    assert {name: folders[name] for name in CATEGORIES} == dict.fromkeys(CATEGORIES, 40)
    assert len(ids) == 404, "400 tasks and four smoke tests"
    assert full - empty <= SLACK * COLLECT_CPU_SECONDS


def attempt(category: str, number: int, status: Status, score: float, *, turns: int = 1) -> Attempt:
    """An attempt as the loop would have recorded it."""
    stamp = "2026-03-01T10:00:00+00:00"
    played = tuple(
        Turn(
            number=n, message="Do it." if n == 1 else "Please go on.", started=stamp, seconds=2.5, wall_seconds=3.0,
            ending=Ending.EXITED, exit_code=0, finished=True, directory=f"turns/{n}",
        )
        for n in range(1, turns + 1)
    )  # fmt: skip
    return Attempt(
        attempt_id=f"t{number}", task_id=f"task_{category[:3]}_{number:02d}_sum", category=category,
        capability="skill_usage", language="en", agent="nanobot", model="gpt-5.4", number=1, status=status,
        score=score, threshold=0.9, reason="a reason", started=stamp, ended=stamp, turns=played,
        executor_seconds=2.5 * turns, wall_seconds=3.0 * turns, last_score=score,
        usage=(Usage(role="executor", calls=2, input_tokens=100 * turns, output_tokens=10),),
    )  # fmt: skip


ATTEMPTS = (
    attempt("101_skill_usage", 1, Status.PASS, 0.95),
    attempt("101_skill_usage", 2, Status.BUDGET_EXHAUSTED, 0.65, turns=3),
    attempt("101_skill_usage", 3, Status.FAIL, 0.2),
    attempt("104_multimodal", 1, Status.PASS, 1.0, turns=2),
    attempt("104_multimodal", 2, Status.GLOBAL_TIMEOUT, 0.4),
    attempt("104_multimodal", 3, Status.INTEGRITY_VIOLATION, 0.0),
)
UNCOUNTED = (
    attempt("101_skill_usage", 4, Status.INFRA_ERROR, 0.0),
    attempt("101_skill_usage", 5, Status.UNJUDGED, 0.0),
    attempt("104_multimodal", 4, Status.SIMULATOR_ERROR, 0.0),
)
INCOMPLETE = attempt("104_multimodal", 5, Status.EXECUTOR_INCOMPLETE, 0.0)


def store(run_folder: Path, attempts: tuple[Attempt, ...]) -> list[ItemRecord]:
    """Write attempts as a run does; return the records that our reports are made of."""
    records = []
    for one in attempts:
        parent = task_directory(run_folder, 1, one.agent, "openai-gpt-5-4", one.category, one.task_id)
        directory = new_attempt_directory(parent)
        for turn in one.turns:
            (directory / turn.directory / "evidence" / "results").mkdir(parents=True)
        save_attempt(directory, one)
        write_upstream(directory, one)
        records.append(record_of_attempt(one, PartialPolicy(), directory, replayed=False))
    return records


def aggregated(checkout: Path, runs: Path) -> dict[str, Any]:
    """Return what upstream's own aggregation says of a tree."""
    code = "import json; from webui.aggregate import aggregate_runs; print(json.dumps(aggregate_runs(force=True)))"
    environment = {**os.environ, "CLAWBENCH_RUNS_DIR": str(runs), "PYTHONDONTWRITEBYTECODE": "1"}  # noqa: TID251
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=checkout, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_upstreams_aggregation_gives_our_figures(checkout: Path, tmp_path: Path) -> None:
    records = store(tmp_path / "run", ATTEMPTS + UNCOUNTED)
    (backend,) = aggregated(checkout, tmp_path / "run" / "a1")["backends"]
    ours = summarise("all", records)
    assert backend["key"] == "nanobot"
    assert backend["total"]["n"] == ours.judged == len(ATTEMPTS)
    assert backend["total"]["pass_rate"] == pytest.approx(ours.pass_rate)
    assert backend["total"]["avg_score"] == pytest.approx(ours.average_score)
    for group in group_by(records, lambda record: record.category):
        theirs = backend["byCategory"][group.name]
        assert (theirs["n"], theirs["pass_rate"]) == (group.judged, pytest.approx(group.pass_rate))
        assert theirs["avg_score"] == pytest.approx(group.average_score)
    assert backend["total"]["avg_runtime_ms"] == pytest.approx(1000 * sum(r.seconds for r in records[:6]) / 6)
    assert backend["total"]["avg_input_tokens"] == pytest.approx(100 * sum(len(a.turns) for a in ATTEMPTS) / 6)


def test_upstream_drops_what_no_turn_was_finished_in_and_we_show_both_rates(checkout: Path, tmp_path: Path) -> None:
    records = store(tmp_path / "run", (*ATTEMPTS, INCOMPLETE))
    (backend,) = aggregated(checkout, tmp_path / "run" / "a1")["backends"]
    ours = summarise("all", records)
    assert backend["total"]["pass_rate"] == pytest.approx(ours.upstream_pass_rate)
    assert ours.pass_rate is not None
    assert ours.pass_rate < backend["total"]["pass_rate"]


ONE_SHOT = "101_skill_usage/task_101_06_sqlite_anomalies"
BACKGROUND = "103_long_context/task_103_36_minesweeper_easy_play"
PLAIN = "102_exploration/task_102_13_k8s_yaml_reconciliation"
PACKAGES = (ONE_SHOT, BACKGROUND, PLAIN)
LOOK = r"""
for _ in $(seq 300); do
    [ -d /tmp_workspace/results/minesweeper_sessions ] || break
    [ -s /tmp_workspace/results/minesweeper_service.log ] && break
    sleep 0.1
done
echo "account $(id -u) in $HOME, harness folder: $(ls -A /opt/uniclaw/services 2>/dev/null | tr '\n' ' ')"
find /tmp_workspace/clawbench "$HOME/skills" /tmp_workspace/results ! -type d -printf '%y %p\n'
find -L /tmp_workspace/skills -name SKILL.md 2>/dev/null
tail -n 1 /tmp_workspace/clawbench/logs/*.log 2>/dev/null
echo "games: $(pgrep -c -x -f 'python3 .*/minesweeper[.]py')"
tail -n 20 /tmp_workspace/results/minesweeper_sessions/attempt_1_board.txt 2>/dev/null
"""
"""What the scripted model runs; its output is in the transcript."""


@pytest.fixture(scope="module")
def upstream_suite(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Suite:
    """The three packages, copied byte for byte so that no run can touch the checkout."""
    suite = Suite.make(tmp_path_factory.mktemp("upstream") / "project")
    for name in PACKAGES:
        yaml = suite.root / "suites" / f"{name}.yaml"
        yaml.parent.mkdir(exist_ok=True)
        shutil.copyfile(checkout / "tasks" / f"{name}.yaml", yaml)
        shutil.copytree(checkout / "injection" / name, suite.root / "injection" / name, symlinks=True)
    return suite


def stored(session: Session) -> Iterator[tuple[str, Path, Attempt]]:
    """Yield the packages a session ran, with the attempt's folder and record."""
    for name in PACKAGES:
        (path,) = session.run.glob(f"a1/*/*/{name}/p1-*/uniclaw.json")
        yield name, path.parent, Attempt.model_validate_json(path.read_bytes())


def tool_output(directory: Path) -> str:
    """Return what the tools of the first turn answered."""
    lines = (directory / "turns" / "1" / "evidence" / "transcript.jsonl").read_text("utf-8").splitlines()
    messages = [json.loads(line).get("message", {}) for line in lines]
    blocks = [block for m in messages if m.get("role") == "toolResult" for block in m["content"]]
    return "\n".join(block.get("text", "") for block in blocks)


def assert_ended_unjudged(session: Session) -> None:
    """Upstream's packages have no checks: the executor is run to the end of its turn, then nobody can judge it."""
    assert session.code == 1, session.output
    for name, _, record in stored(session):
        assert record.status is Status.UNJUDGED, f"{name}: {record.reason}"
        assert record.turns[0].finished, f"{name}: {record.turns[0].reason}"
        assert record.limits["user"] == "root"


@pytest.mark.docker
def test_upstream_packages_run_with_nop_to_a_terminal_status(upstream_suite: Suite) -> None:
    session = run(upstream_suite.root, "--agent=nop", "--uniclaw-network=isolated")
    assert_ended_unjudged(session)
    assert "coverage 0/3" in session.output


@pytest.fixture(scope="module")
def looked(upstream_suite: Suite) -> Session:
    """A session of real nanobot whose model looks around; isolated, so that no installer waits for a network."""
    script = upstream_suite.root / "look.yaml"
    script.write_text(json.dumps({"turns": [[{"shell": LOOK}, {"say": "I have looked."}]]}))
    return run(upstream_suite.root, "--agent=nanobot", f"--model=script:{script}", "--uniclaw-network=isolated")


@pytest.mark.docker
def test_upstream_packages_run_with_nanobot_to_a_terminal_status(looked: Session) -> None:
    assert_ended_unjudged(looked)


@pytest.mark.docker
def test_upstream_packages_find_their_sources_skills_and_services(looked: Session, upstream_suite: Suite) -> None:
    for name, directory, _ in stored(looked):
        said = tool_output(directory)
        assert "account 0 in /root" in said
        sources = upstream_suite.root / "injection" / name / "sources"
        for source in (path.relative_to(sources) for path in sources.rglob("*") if path.is_file()):
            assert f"f /tmp_workspace/clawbench/sources/{source}" in said
        assert "eval_rule" not in said
        if name == ONE_SHOT:
            assert "[task-setup] done" in said, "the one-shot service ran to its end without a network"
            assert "harness folder: \n" in said, "and its files are gone"
            for skill in ("sql-toolkit", "database-operations"):
                assert f"f /root/skills/{skill}/SKILL.md" in said
                assert f"/tmp_workspace/skills/{skill}/SKILL.md" in said
        if name == BACKGROUND:
            assert "p /tmp_workspace/results/minesweeper_sessions/attempt_1.fifo" in said
            assert "games: 3\n" in said


@pytest.mark.docker
def test_upstream_tasks_have_the_internet_unless_the_session_says_otherwise(upstream_suite: Suite) -> None:
    session = run(upstream_suite.root, "--agent=nop", "-k", "task_102_13")
    (path,) = session.run.glob(f"a1/*/*/{PLAIN}/p1-*/uniclaw.json")
    assert Attempt.model_validate_json(path.read_bytes()).limits["network"] == "internet"
