"""Broken packages are told before anything runs: by `uniclaw lint`, and by a session before its first container."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.packages import CHECK, RULE, Suite

from pytest_uniclaw.cli import main

WRONG_CHECK = CHECK.replace('checkpoint("C1")', 'checkpoint("C2")')
SCRIPT = [[{"say": "done"}]]
BROKEN_SCRIPT = "turns:\n  - - say: hello\n    - shel: ls\n"
WITHOUT_RUNNING = """
import pytest

@pytest.fixture
def uniclaw_attempt():
    '''Let every item pass without an executor.'''
    return lambda: None
"""
HERE = ("--agent=nop", "--sandbox=local", "--supervisor=checks")
WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["inline", "workers"])


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Suite:
    """An empty suite in the current folder."""
    return Suite.make(pytester.path, conftest=WITHOUT_RUNNING)


def local(suite: Suite, name: str, **parts: object) -> None:
    suite.add(name, uniclaw={"local": True}, **parts)  # type: ignore[arg-type]


def refused(pytester: pytest.Pytester, *options: str) -> str:
    """Run a session that must end with exit status 4 before anything is started; return what it said."""
    run = pytester.runpytest_subprocess if "-n" in options else pytester.runpytest
    result = run(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR, result.stdout.str()
    assert not (pytester.path / "runs").exists()
    return "\n".join([*result.stdout.lines, *result.stderr.lines])


@WORKERS
def test_all_broken_checks_of_a_session_are_told_before_it_starts(
    pytester: pytest.Pytester, suite: Suite, workers: tuple[str, ...]
) -> None:
    local(suite, "sound")
    local(suite, "unknown", check=WRONG_CHECK)
    local(suite, "syntax", check="def check_it(:\n")
    local(suite, "weights", files={"references/eval_rule.md": RULE.replace("1.00", "0.90")})
    said = refused(pytester, *HERE, *workers)
    place, silent = "injection/101_skill_usage/task_101", "the supervisor `checks` cannot judge it"
    expected = [
        "ERROR: 4 errors in the selected task packages, so nothing was started:",
        f"{place}_syntax/references/checks/check_it.py:1: cannot be parsed: invalid syntax",
        "  fix: correct the Python; checks run with Python 3.11",
        f"{place}_unknown/references/checks/check_it.py:5: check_done: no checkpoint 'C2' in the rubric (C1)",
        "  fix: name one of the rubric's, or add the checkpoint to eval_rule.md",
        f"{place}_unknown/references/eval_rule.md:5: checkpoint C1 has no check; {silent}",
        '  fix: add a check to references/checks that is marked @pytest.mark.checkpoint("C1")',
        f"{place}_weights/references/eval_rule.md:5: the weights sum to 0.9, not to 1.00",
        "  fix: correct the weights, so that they sum to 1.00",
    ]
    assert "\n".join(expected) in said
    assert "Traceback" not in said


@WORKERS
def test_the_default_supervisor_refuses_broken_packages_too(
    pytester: pytest.Pytester, suite: Suite, workers: tuple[str, ...]
) -> None:
    local(suite, "unknown", check=WRONG_CHECK)
    local(suite, "syntax", check="def check_it(:\n")
    local(suite, "weights", files={"references/eval_rule.md": RULE.replace("1.00", "0.90")})
    said = refused(pytester, "--agent=nop", "--sandbox=local", *workers)
    place = "injection/101_skill_usage/task_101"
    expected = [
        "ERROR: 3 errors in the selected task packages, so nothing was started:",
        f"{place}_syntax/references/checks/check_it.py:1: cannot be parsed: invalid syntax",
        "  fix: correct the Python; checks run with Python 3.11",
        f"{place}_unknown/references/checks/check_it.py:5: check_done: no checkpoint 'C2' in the rubric (C1)",
        "  fix: name one of the rubric's, or add the checkpoint to eval_rule.md",
        f"{place}_weights/references/eval_rule.md:5: the weights sum to 0.9, not to 1.00",
        "  fix: correct the weights, so that they sum to 1.00",
    ]
    assert "\n".join(expected) in said
    assert "is judged by a model" not in said


def test_only_what_is_selected_and_will_run_is_looked_at(pytester: pytest.Pytester, suite: Suite) -> None:
    local(suite, "sound")
    local(suite, "unknown", check=WRONG_CHECK)
    assert pytester.runpytest(*HERE, "--co").ret == pytest.ExitCode.OK
    pytester.runpytest(*HERE, "-k", "sound").assert_outcomes(passed=1)


@WORKERS
def test_a_supervisor_of_a_conftest_grades_by_its_own_rules(
    pytester: pytest.Pytester, suite: Suite, workers: tuple[str, ...]
) -> None:
    local(suite, "unknown", check=WRONG_CHECK)
    conftest = suite.root / "suites" / "conftest.py"
    conftest.write_text(f"{WITHOUT_RUNNING}\n@pytest.fixture\ndef supervisor():\n    return object()\n")
    pytester.runpytest_subprocess(*HERE, *workers).assert_outcomes(passed=1)


def test_what_only_running_shows_is_left_to_the_run(pytester: pytest.Pytester, suite: Suite) -> None:
    local(suite, "hidden", check="import pytest\nNAME = 'C9'\n@pytest.mark.checkpoint(NAME)\ndef check_it(): ...\n")
    local(suite, "rewritten", check=WRONG_CHECK, pre_exec=["make.py"], files={"make.py": ""})
    local(suite, "other", files={"references/eval_rule.md": RULE.replace("1.00", "0.90")})
    (suite.folder("other") / "references/checks/check_it.py").unlink()
    (suite.folder("other") / "references/checks").rmdir()
    pytester.runpytest(*HERE).assert_outcomes(passed=3)


@WORKERS
def test_all_broken_scripts_of_a_session_are_told_before_it_starts(
    pytester: pytest.Pytester, suite: Suite, workers: tuple[str, ...]
) -> None:
    for name in ("one", "two"):
        suite.add(name, agent_sys="nanobot", files={"script/model.yaml": BROKEN_SCRIPT})
    said = refused(pytester, "--model=script", "--attempts=2", *workers)
    for name in ("one", "two"):
        where = f"injection/101_skill_usage/task_101_{name}/script/model.yaml:3"
        assert f"{where}: turns[0][1].shel: is not known\n  fix: did you mean shell?" in said
    assert "ERROR: 2 errors" in said


def test_the_script_of_the_command_line_is_looked_at_once(pytester: pytest.Pytester, suite: Suite) -> None:
    for name in ("one", "two"):
        suite.add(name, agent_sys="nanobot", script=SCRIPT)
    (suite.root / "own.yaml").write_text("turn: []\n")
    said = refused(pytester, "--model=script:own.yaml")
    assert "ERROR: 1 errors" in said
    assert "own.yaml:1: turn: is not known\n  fix: did you mean turns?" in said


def test_a_script_that_nobody_plays_back_stops_nothing(pytester: pytest.Pytester, suite: Suite) -> None:
    local(suite, "one", files={"script/model.yaml": BROKEN_SCRIPT})
    pytester.runpytest(*HERE, "--model=script").assert_outcomes(passed=1)


def test_an_agent_of_a_conftest_may_play_back_the_script(pytester: pytest.Pytester, suite: Suite) -> None:
    local(suite, "one", files={"script/model.yaml": BROKEN_SCRIPT})
    conftest = suite.root / "suites" / "conftest.py"
    conftest.write_text(f"{WITHOUT_RUNNING}\n@pytest.fixture\ndef agent():\n    return object()\n")
    assert "model.yaml:3: turns[0][1].shel" in refused(pytester, "--sandbox=local", "--model=script")
    (suite.folder("one") / "script/model.yaml").unlink()
    pytester.runpytest("--sandbox=local", "--model=script").assert_outcomes(passed=1)


ONE_OF_A_KIND = ("--model=scrpt", "--model=script:nope.yaml", "--uniclaw-resume=latset")
MISSPELT = (
    (
        "--model=scrpt",
        "did you mean script?\n  fix: write --model=script, or --model=PROVIDER/scrpt for a model of",
    ),
    ("--model=Scripts:own.yaml", "did you mean script:own.yaml?"),
    ("--model=deepseak/v9", "(task task_101_one).\n  fix: did you mean deepseek/v9? Else add "),
    ("--model=deepseak", "(task task_101_one).\n  fix: did you mean deepseek/MODEL? Else set "),
    ("--model=script:nope.yaml", "--model=script:nope.yaml: no such file: {folder}/nope.yaml\n  fix: correct"),
    (
        "--uniclaw-resume=latset",
        "no run 'latset': looked for {folder}/stored/latset and latset\n"
        "  fix: did you mean latest? The newest runs: 20261130-041500-3fa2",
    ),
)
INLINE = [(option, expected, ()) for option, expected in MISSPELT]
IN_WORKERS = [(option, expected, ("-n", "2")) for option, expected in MISSPELT if option in ONE_OF_A_KIND]


@pytest.mark.parametrize(("option", "expected", "workers"), [*INLINE, *IN_WORKERS])
def test_a_misspelt_option_is_told_once_and_with_its_remedy(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, option: str, expected: str, workers: tuple[str, ...]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    suite = Suite.make(pytester.path)
    (suite.root / "stored" / "20261130-041500-3fa2").mkdir(parents=True)
    (suite.root / "uniclaw.toml").write_text('[providers.deepseek]\nbase_url = "http://127.0.0.1:9/v1"\n')
    for name in ("one", "two"):
        suite.add(name, agent_sys="nanobot", script=SCRIPT)
    said = refused(pytester, "--uniclaw-runs-dir=stored", option, *workers)
    assert said.count("ERROR: ") == 1
    assert expected.format(folder=pytester.path) in said


def test_a_model_with_a_provider_may_have_any_name(pytester: pytest.Pytester, suite: Suite) -> None:
    local(suite, "one")
    pytester.runpytest(*HERE, "--model=openai/scrpt").assert_outcomes(passed=1)


def lint(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    code = main(["lint", *arguments])
    return code, capsys.readouterr().out.splitlines()


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """An empty suite in the current folder."""
    monkeypatch.chdir(tmp_path)
    return Suite.make(tmp_path)


def test_lint_says_where_and_what_to_do(packages: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    packages.add("one", check=WRONG_CHECK, files={"script/model.yaml": BROKEN_SCRIPT})
    packages.add("two", script=SCRIPT, timeout_seconds="20m")
    packages.add("three", script=SCRIPT).write_text("task_id: x\ncategory 101\ntask: y\n")
    packages.add("four", script=SCRIPT)
    packages.folder("four").rename(packages.folder("four").with_name("elsewhere"))
    code, lines = lint(capsys, "suites")
    place, injection = "suites/101_skill_usage/task_101", "injection/101_skill_usage/task_101"
    assert (code, lines) == (1, [
        f"error: {place}_four.yaml:1: task_id: no folder injection/101_skill_usage/task_101_four in "
        "suites/101_skill_usage or any folder above it",
        f"  fix: make {injection}_four, or correct `category` and `task_id`",
        f"error: {injection}_one/references/checks/check_it.py:5: check_done: no checkpoint 'C2' in the rubric (C1)",
        "  fix: name one of the rubric's, or add the checkpoint to eval_rule.md",
        f"warning: {injection}_one/references/eval_rule.md:5: checkpoint C1 has no check; the supervisor `checks` "
        "cannot judge it",
        '  fix: add a check to references/checks that is marked @pytest.mark.checkpoint("C1")',
        f"error: {injection}_one/script/model.yaml:3: turns[0][1].shel: is not known",
        "  fix: did you mean shell?",
        f"error: {place}_three.yaml:2: is not valid YAML: the line has no colon behind its field's name",
        "  fix: write `field: value`, with a space behind the colon; indent the lines of a longer text below "
        "`field: |`",
        f"error: {place}_two.yaml:6: timeout_seconds: must be a whole number; the file says '20m'",
        "  fix: write digits only, such as 1200, without quotes or a unit",
        "4 task files, 5 errors",
    ])  # fmt: skip


def test_lint_prints_no_line_where_none_is_known(packages: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    packages.add("one")
    code, lines = lint(capsys, str(packages.root / "suites"))
    assert (code, lines) == (0, [
        "warning: injection/101_skill_usage/task_101_one: has checks but no script/model.yaml",
        "  fix: write it, to show without a model that an agent can do the task",
        "1 task files, 0 errors",
    ])  # fmt: skip


def test_lint_of_nothing_says_how_task_files_are_named(packages: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    packages.add("one", script=SCRIPT).rename(packages.root / "suites" / "101_skill_usage" / "one.yaml")
    names = "; the name of a task file must match task_*.yaml or task_*.yml"
    assert lint(capsys, "suites") == (1, [f"0 task files, 0 errors{names}"])
    assert lint(capsys, "suites", "absent/task_9.yaml") == (1, [
        "error: absent/task_9.yaml: there is no such file or folder",
        f"  fix: correct the path; a relative one is taken from {packages.root}",
        f"0 task files, 1 errors{names}",
    ])  # fmt: skip


def test_lint_takes_both_endings_as_pytest_does(packages: Suite, capsys: pytest.CaptureFixture[str]) -> None:
    path = packages.add("one", script=SCRIPT)
    path.rename(path.with_suffix(".yml"))
    packages.add("two", script=SCRIPT)
    assert lint(capsys, "suites", "absent") == (1, [
        "error: absent: there is no such file or folder",
        f"  fix: correct the path; a relative one is taken from {packages.root}",
        "2 task files, 1 errors",
    ])  # fmt: skip
