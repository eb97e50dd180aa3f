"""`uniclaw regrade` without containers: what it refuses before it judges, what it prints, what it leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from task_package import build
from test_report import attempt

from pytest_uniclaw.attempt import Ending, Turn, Usage
from pytest_uniclaw.cli import main
from pytest_uniclaw.errors import InfraError
from pytest_uniclaw.judge.supervisor import ChecksSupervisor
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import attempts_of, save_attempt

TASK = "task_101_01_sum"
ACME = '[providers.acme]\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "ACME_KEY"\n'
NO_MODEL = f"{TASK}: what has no check is judged by a model, and the supervisor has none"
# Options of the command, and what it says.
REFUSED = {
    "none": ((), f"error: {NO_MODEL}\n  fix: name one with --supervisor-model=PROVIDER/NAME; --supervisor=checks"),
    "no_key": (("--supervisor-model=acme/x",), f"has no key for 'x' (task {TASK}).\n  fix: set ACME_KEY"),
    "no_provider": (("--supervisor-model=other/x",), "no provider 'other' is configured for 'x'"),
    "no_file": (("--supervisor-model=script",), "fix: name a file with --supervisor-model=script:FILE"),
    "absent": (
        ("--supervisor=script:absent.yaml",),
        "no such file: {folder}/absent.yaml\n  fix: correct the path of --supervisor=script:FILE; a relative one is "
        "taken from the folder where uniclaw was started",
    ),
    "sandbox": (("--supervisor=checks", "--sandbox=lokal"), "--sandbox=lokal: unknown; did you mean 'local'?"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the current folder one with a task that has no checks and a run with one attempt at it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACME_KEY", raising=False)
    build(tmp_path)
    (tmp_path / "uniclaw.toml").write_text(ACME)
    stored = tmp_path / "runs" / "one" / "a1" / "nanobot" / "m" / "101_skill_usage" / TASK / "p1-abc"
    (stored / "turns" / "1" / "evidence" / "results").mkdir(parents=True)
    save_attempt(stored, attempt(Status.BUDGET_EXHAUSTED).model_copy(update={"task_id": TASK}))
    return tmp_path


def runs(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "runs").iterdir())


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_judged_is_refused_before_a_run_is_made(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert main(["regrade", "one", *options]) == 2
    said = capsys.readouterr().out
    assert words.format(folder=folder) in said
    assert "--uniclaw-" not in said
    assert runs(folder) == ["one"]


def test_what_is_not_judged_has_no_score(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["regrade", "one", "--supervisor=checks", "--sandbox=local"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"[1/1] {TASK} nanobot: 0.50 budget_exhausted -> - unjudged"
    assert len(runs(folder)) == 2


def test_a_failure_before_the_first_attempt_leaves_no_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise InfraError("the engine is gone")

    monkeypatch.setattr("pytest_uniclaw.commands.regrade.regrade_attempt", fail)
    assert main(["regrade", "one", "--supervisor=checks", "--sandbox=local"]) == 2
    assert capsys.readouterr().out == "error: the engine is gone\n"
    assert runs(folder) == ["one"]


def test_a_failure_at_one_attempt_is_infrastructure_and_the_others_are_judged(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name, score in ((1, "p1-abc", 0.5), (2, "p1-def", 0.6)):
        stored = folder / "runs" / "one" / f"a{number}" / "nanobot" / "m" / "101_skill_usage" / TASK
        kept = attempt(Status.BUDGET_EXHAUSTED).model_copy(update={"score": score})
        used = (Usage(role="executor", calls=3), Usage(role="supervisor", calls=9))
        turn = Turn(
            number=1, message="Go.", started="2026-11-30T10:00:00+00:00", seconds=1, wall_seconds=1,
            ending=Ending.EXITED, exit_code=0, finished=True, directory="turns/1",
        )  # fmt: skip
        kept = kept.model_copy(update={"task_id": TASK, "attempt_id": name, "usage": used, "turns": (turn,)})
        save_attempt(stored / name, kept)
    original = ChecksSupervisor.assess

    def assess(supervisor: ChecksSupervisor, case: Any) -> Any:
        if case.owner.attempt == "p1-abc":
            raise InfraError("the engine is gone", kind="rate_limit")
        return original(supervisor, case)

    monkeypatch.setattr(ChecksSupervisor, "assess", assess)
    assert main(["regrade", "one", "--supervisor=checks", "--sandbox=local"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        f"[1/2] {TASK} nanobot: 0.50 budget_exhausted -> - rate_limit",
        f"[2/2] {TASK} nanobot: 0.60 budget_exhausted -> - unjudged",
    ]
    (new,) = [name for name in runs(folder) if name != "one"]
    found = [one for _, one in attempts_of(folder / "runs" / new)]
    assert [one.status for one in found] == [Status.RATE_LIMIT, Status.UNJUDGED]
    assert [[used.role for used in one.usage] for one in found] == [["executor"], ["executor"]], "another judge's use"


def test_what_was_broken_off_is_judged_by_nobody_and_the_runs_flags_stay(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / "runs" / "one" / "a1" / "nanobot" / "m" / "101_skill_usage" / TASK / "p1-abc"
    lost = attempt(Status.EXECUTOR_INCOMPLETE)
    turn = lost.turns[0].model_copy(update={"ending": Ending.LOST, "finished": False})
    flags = ("sandbox_lost:killed", "out_of_memory", "integrity:old")
    save_attempt(place, lost.model_copy(update={"task_id": TASK, "turns": (turn,), "flags": flags}))
    monkeypatch.setattr(ChecksSupervisor, "assess", lambda *_: pytest.fail("nothing is there to judge"))
    assert main(["regrade", "one", "--supervisor=checks", "--sandbox=local"]) == 0
    (new,) = [name for name in runs(folder) if name != "one"]
    ((_, found),) = attempts_of(folder / "runs" / new)
    assert (found.status, found.flags) == (Status.EXECUTOR_INCOMPLETE, ("sandbox_lost:killed", "out_of_memory"))


def test_evidence_that_cannot_be_read_costs_its_attempt_only(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> Any:
        raise FileNotFoundError(2, "No such file or directory", "evidence")

    monkeypatch.setattr(ChecksSupervisor, "assess", gone)
    assert main(["regrade", "one", "--supervisor=checks", "--sandbox=local"]) == 1
    assert "-> - infra_error" in capsys.readouterr().out
