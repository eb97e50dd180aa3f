"""The quality bar of our own tasks: oracle 1.0, nop nothing, real nanobot on the scripted model as designed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.store import attempts_of

ROOT = Path(__file__).parents[1]
NOP_CEILING = 0.2

DESIGNED = {
    "task_101_01_invoice_house_numbering": ("pass", (1.0,)),
    "task_102_01_override_root_cause": ("pass", (0.55, 1.0)),
    "task_103_01_final_account": ("budget_exhausted", (0.47, 0.69, 0.78)),
    "task_104_01_meter_round": ("pass", (1.0,)),
    "task_105_01_room_closure": ("fail", (0.1,)),
    "task_201_01_invoice_house_numbering": ("pass", (1.0,)),
    "task_202_01_override_root_cause": ("pass", (0.6, 1.0)),
    "task_203_01_final_account": ("pass", (1.0,)),
    "task_204_01_meter_round": ("pass", (1.0,)),
    "task_205_01_room_closure": ("pass", (1.0,)),
}
"""Per task, how nanobot ends on its scripted model: status, and the score of each turn."""

pytestmark = pytest.mark.docker


def run_suites(runs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Tasks on the desktop need images that are built on demand: tests/test_desktop_docker.py has them.
    command = [sys.executable, "-m", "pytest", "suites", "-n", "2", "-p", "no:cacheprovider", "-m", "not gui"]
    return subprocess.run(
        [*command, f"--uniclaw-runs-dir={runs}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def attempts(runs: Path, agent: str) -> dict[tuple[str, int], tuple[Path, Attempt]]:
    found = attempts_of((runs / "latest").resolve())
    return {(a.task_id, a.number): (directory, a) for directory, a in found if a.agent == agent}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    runs = tmp_path_factory.mktemp("runs")
    done = run_suites(runs, "--agent=oracle,nop,nanobot", "--model=script")
    assert done.returncode == 1, done.stdout + done.stderr
    return runs, done.stdout


def test_the_oracle_solves_every_task(session: tuple[Path, str]) -> None:
    scores = {task: a.score for (task, _), (_, a) in attempts(session[0], "oracle").items()}
    assert scores == dict.fromkeys(DESIGNED, 1.0)


def test_doing_nothing_earns_next_to_nothing(session: tuple[Path, str]) -> None:
    found = attempts(session[0], "nop")
    assert {task for task, _ in found} == set(DESIGNED)
    assert all(a.score < NOP_CEILING and a.status != "pass" for _, a in found.values())


def test_nanobot_ends_as_designed(session: tuple[Path, str]) -> None:
    ends = {
        task: (a.status.value, tuple(round(t.verdict.score, 2) for t in a.turns if t.verdict))
        for (task, _), (_, a) in attempts(session[0], "nanobot").items()
    }
    assert ends == DESIGNED
    assert "18/30 passed, 1 partial, coverage 30/30" in session[1]


def test_nanobot_really_called_its_tools(session: tuple[Path, str]) -> None:
    for directory, attempt in attempts(session[0], "nanobot").values():
        usage = json.loads((directory / "tool_usage.json").read_text("utf-8"))
        assert usage["tool_counts"].get("exec", 0) >= 2, attempt.task_id
        assert attempt.usage[0].calls >= 3
        if attempt.task_id.endswith("meter_round"):
            assert usage["tool_counts"]["read_file"] >= 2


def test_codex_ends_as_nanobot_does(tmp_path: Path) -> None:
    done = run_suites(tmp_path, "--agent=codex", "--model=script")
    ends = {
        task: (a.status.value, tuple(round(t.verdict.score, 2) for t in a.turns if t.verdict))
        for (task, _), (_, a) in attempts(tmp_path, "codex").items()
    }
    assert ends == DESIGNED, done.stdout
    for directory, attempt in attempts(tmp_path, "codex").values():
        usage = json.loads((directory / "tool_usage.json").read_text("utf-8"))
        assert usage["tool_counts"].get("exec_command", 0) >= 2, attempt.task_id
        assert attempt.usage[0].calls >= 3


def test_nothing_passed_is_never_exit_0(tmp_path: Path) -> None:
    nop = ("--agent=nop", "--uniclaw-followups=0", "-m", "quickstart and multimodal")
    assert run_suites(tmp_path, *nop).returncode == 1
    assert run_suites(tmp_path, *nop, "--runxfail").returncode == 1


def test_two_releases_stay_apart(tmp_path: Path) -> None:
    done = run_suites(tmp_path, "--agent=nanobot,nanobot@0.3.5", "--model=script", "-k", "task_204_01")
    assert done.returncode == 0, done.stdout
    for agent in ("nanobot", "nanobot@0.3.5"):
        (key,) = attempts(tmp_path, agent)
        assert key == ("task_204_01_meter_round", 1)
    assert len(list((tmp_path / "latest").resolve().glob("a1/*/scripted/*/*/summary.json"))) == 2


def test_repeats_end_alike(tmp_path: Path) -> None:
    done = run_suites(tmp_path, "--agent=nanobot", "--model=script", "--attempts=2", "-k", "meter or 102_01 or 105_01")
    ends = {key: a.status.value for key, (_, a) in attempts(tmp_path, "nanobot").items()}
    tasks = [task for task in DESIGNED if "meter" in task or "102_01" in task or "105_01" in task]
    assert ends == {(task, k): DESIGNED[task][0] for task in tasks for k in (1, 2)}, done.stdout
