"""The quality bar of our own tasks: oracle 1.0, nop nothing, real nanobot on the scripted model as designed."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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


@pytest.fixture(autouse=True, scope="module")
def marks_of_checks(pytestconfig: pytest.Config) -> None:
    """Make the marks known that only the grading container knows: ``checks_of`` runs a check's file here."""
    for name in ("checkpoint", "cap", "fatal"):
        pytestconfig.addinivalue_line("markers", f"{name}(argument): of a check")


def checks_of(task: str) -> SimpleNamespace:
    (path,) = ROOT.glob(f"injection/*/{task}/references/checks/check_*.py")
    return SimpleNamespace(**runpy.run_path(str(path)))


CO_01: Any = {"amount": "12400.00", "decided_by": ["CO-01.md"]}
CO_12: Any = {"amount": "15550.00", "decided_by": ["CO-12.md"]}
CO_14: Any = {"amount": "2286.00", "decided_by": ["CO-14.md"]}
CO_05: Any = {"amount": "0.00", "decided_by": ["CO-05.md"]}
BG_01: Any = {"金额": "18600.00", "依据": ["BG-01.md"]}
BG_02: Any = {"金额": "-4300.00", "依据": ["BG-02.md"]}
BG_08: Any = {"金额": "17385.60", "依据": ["例会纪要-05.md"]}
BG_05: Any = {"金额": "0.00", "依据": ["BG-05.md"]}
EN, ZH = "task_103_01_final_account", "task_203_01_final_account"


@pytest.mark.parametrize(
    ("task", "line", "decision", "met"),
    [
        (EN, "- CO-01: £12400, CO-01.md, both signed", CO_01, True),
        (EN, "CO-01: 12400, CO-01.md, begun on 3 March 2025", CO_01, True),
        (EN, "| CO-01 | **12400** | `CO-01.md` | signed |", CO_01, True),
        (EN, "CO-01 — 12,400.00 — CO-01.md", CO_01, True),
        (EN, "CO-01 (CO-01.md): 12400", CO_01, True),
        (EN, "CO-12: £10400 + £5150, CO-12.md", CO_12, True),
        (EN, "CO-12: 10400 / 5150 (CO-12.md)", CO_12, True),
        (EN, "CO-01, signed 3 March, 2025, £12,400.00, CO-01.md", CO_01, True),
        (EN, "CO-01: quotation Fenwick Joinery 8659 of 4 June, £12400, CO-01.md", CO_01, True),
        (EN, "CO-14: CO-14.md, words prevail, 2286", CO_14, True),
        (EN, "CO-05: £0, CO-05.md, never signed", CO_05, True),
        (EN, "CO-01: 12400", CO_01, False),
        (EN, "CO-01: 11400, then 12400, CO-01.md", CO_01, False),
        (EN, "CO-14: invoice A-2286, CO-14.md", CO_14, False),
        (EN, "CO-01: £124000, CO-01.md", CO_01, False),
        (EN, "CO-05: £12400, CO-05.md", CO_05, False),
        (ZH, "BG-01：18600元，BG-01.md，双方签字", BG_01, True),
        (ZH, "BG-01：18600，BG-01.md，2025年3月开始", BG_01, True),
        (ZH, "| BG-01 | 18600 | BG-01.md | 双方签字 |", BG_01, True),
        (ZH, "BG-01：￥18600，依据 BG-01.md", BG_01, True),
        (ZH, "BG-01：计入金额18600元整，依据BG-01.md", BG_01, True),
        (ZH, "BG-02：-4300 元，BG-02.md", BG_02, True),
        (ZH, "BG-08：17385.6元，例会纪要-05.md", BG_08, True),
        (ZH, "BG-01：2025年5月16日开始，18600元，BG-01.md", BG_01, True),
        (ZH, "BG-05：0元，BG-05.md，未签字", BG_05, True),
        (ZH, "BG-01：18600元", BG_01, False),
        (ZH, "BG-01：16800元，应为18600元，BG-01.md", BG_01, False),
        (ZH, "BG-01：186000元，BG-01.md", BG_01, False),
        (ZH, "BG-01：函件 A-18600，BG-01.md", BG_01, False),
    ],
)
def test_the_memo_of_a_final_account_may_write_amounts_plainly(task: str, line: str, decision: Any, met: bool) -> None:
    checks = checks_of(task)
    line = checks.clean(line) if task == ZH else line
    number = re.findall(r"(?:CO|BG)-\d\d", line)[0]
    assert checks.decided(checks.own_line(line, number), decision) == met


@pytest.mark.parametrize("task", [EN, ZH])
def test_a_day_is_the_same_however_it_is_written(task: str) -> None:
    same_day = checks_of(task).same_day
    assert all(same_day(text, "2025-03-21") for text in ("2025-03-21", "2025/3/21", "2025.03.21", "2025-3-21 (diary)"))
    assert not any(same_day(text, "2025-03-21") for text in ("2025-03-22", "2025-03-211", "21/03/2025", ""))


@pytest.mark.parametrize("task", ["task_105_01_room_closure", "task_205_01_room_closure"])
@pytest.mark.parametrize(
    ("time", "told"), [("9:00", True), ("09:00", True), ("9点", True), ("09点", True), ("19:00", False)]
)
def test_a_starting_time_needs_no_leading_zero(task: str, time: str, told: bool) -> None:
    booking = {"id": "K-301", "starts_at": "2026-09-15T09:00"}
    assert checks_of(task).announces(f"K-301 改到形体室，9月15日 {time} 开始", booking, {"name": "形体室"}) == told
