"""The pytest layer: collection, marks, options, outcomes, exit statuses and reports, without any container.

The attempts are told by an overridden ``uniclaw_attempt`` fixture, so that every outcome can be had at once; the
sessions around them (options, workers, reports, gate) are real.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_uniclaw.report.gate import GATE_FAILED
from tests.task_package import build

TOLD = """
import pytest
from pytest_uniclaw.outcome import RECORD, raise_outcome
from pytest_uniclaw.report.record import ItemRecord

TOLD = {
    "pass": ("pass", "passed", 1.0),
    "fail": ("fail", "failed", 0.1),
    "partial": ("budget_exhausted", "xfailed", 0.65),
    "infra": ("infra_error", "infra", None),
}

@pytest.fixture
def uniclaw_attempt(request):
    def run():
        status, outcome, score = TOLD[request.node.task.task_id.rpartition("_")[2]]
        record = ItemRecord(
            task_id=request.node.task.task_id, category="101_skill_usage", capability="skill_usage", language="en",
            agent="nop", status=status, outcome=outcome, score=score, threshold=0.9,
            reason=f"{status}: told \\ud800 so",
        )
        request.node.stash[RECORD] = record
        raise_outcome(record)
    return run
"""
LOCAL = ("--sandbox=local", "--agent=nop", "--supervisor=checks")


@pytest.fixture
def suite(pytester):
    """Four tasks that end in the four outcomes, and one of an unknown kind beside them: a plain test."""
    for kind in ("pass", "fail", "partial", "infra"):
        add_task(pytester.path, f"task_101_01_{kind}")
    pytester.makeconftest(TOLD)
    return pytester


def add_task(root: Path, task_id: str, extra: str = "", category: str = "101_skill_usage") -> Path:
    package = build(root)
    yaml = root / "suites" / category / f"{task_id}.yaml"
    yaml.parent.mkdir(parents=True, exist_ok=True)
    text = package.yaml.read_text("utf-8").replace("task_101_01_sum", task_id).replace("101_skill_usage", category)
    yaml.write_text(text + "uniclaw: {local: true}\n" + extra, "utf-8")
    folder = root / "injection" / category / task_id
    folder.parent.mkdir(parents=True, exist_ok=True)
    package.folder.rename(folder)
    package.yaml.unlink()
    return yaml


def test_ids_marks_and_selection(pytester):
    add_task(pytester.path, "task_101_01_x")
    add_task(pytester.path, "task_204_01_y", category="204_multimodal_zh")
    result = pytester.runpytest("--co", "-q")
    result.stdout.fnmatch_lines(["suites/101_skill_usage/task_101_01_x.yaml::openclaw"])
    for expression in ("multimodal and zh", "capability(name='multimodal')", "suite(id='204')", "language(code='zh')"):
        result = pytester.runpytest("--co", "-q", "--agent=nop", "-m", expression)
        result.stdout.fnmatch_lines(["suites/204_multimodal_zh/task_204_01_y.yaml::nop"])
        result.stdout.no_fnmatch_line("*task_101_01_x*")


def test_repeats_and_models_are_in_the_id(pytester):
    add_task(pytester.path, "task_101_01_x")
    result = pytester.runpytest("--co", "-q", "--agent=nanobot", "--attempts=2", "--model=a/one,b/two")
    result.stdout.fnmatch_lines(
        ["*::nanobot-one[[]1]", "*::nanobot-one[[]2]", "*::nanobot-two[[]1]", "*::nanobot-two[[]2]"]
    )


def test_an_agent_without_model_is_run_once_however_many_models_there_are(pytester):
    add_task(pytester.path, "task_101_01_x")
    result = pytester.runpytest("--co", "-q", "--agent=nop,nanobot", "--model=a/one,b/two")
    result.stdout.fnmatch_lines(["*::nop", "*::nanobot-one", "*::nanobot-two", "", "3 tests collected*"])


def test_a_broken_package_is_an_error_that_names_file_line_and_remedy(pytester):
    path = add_task(pytester.path, "task_101_01_x")
    path.write_text(path.read_text().replace("success_threshold: 0.9", "success_threshold: 7"))
    result = pytester.runpytest("--agent=nop")
    result.stdout.fnmatch_lines(["*task_101_01_x.yaml:*success_threshold*7*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["inline", "workers"])
def test_outcomes_categories_and_exit_status(suite, workers):
    result = suite.runpytest_subprocess(*LOCAL, *workers, "--junitxml=j.xml", "--html=h.html", "-ra")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "FAILED 0.10 task_101_01_fail nop: fail: told *so",
            "1/4 passed, 1 partial, 1 infra, coverage 3/4",
            "*1 failed, 1 passed, 1 xfailed, 1 infra*",
        ],
        consecutive=False,
    )
    cases = {case.get("classname").rpartition("_")[2]: case for case in ElementTree.parse("j.xml").iter("testcase")}
    assert cases["infra.yaml"].find("error") is not None
    assert cases["fail.yaml"].find("failure").get("message").startswith("TaskFailed: fail: score 0.10 < 0.90")
    assert cases["partial.yaml"].find("skipped").get("type") == "pytest.xfail"
    properties = {p.get("name"): p.get("value") for p in cases["pass.yaml"].iter("property")}
    assert (properties["score"], properties["status"], properties["agent"]) == ("1.0", "pass", "nop")
    html = Path("h.html").read_text("utf-8")
    assert "1/4 passed, 1 partial, 1 infra, coverage 3/4" in html


def test_a_partial_is_a_failure_under_runxfail_and_nothing_passed_is_never_zero(suite):
    only_partial = (*LOCAL, "-k", "partial")
    result = suite.runpytest_subprocess(*only_partial)
    result.assert_outcomes(xfailed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result = suite.runpytest_subprocess(*only_partial, "--runxfail")
    result.assert_outcomes(failed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_last_failed_reruns_what_did_not_pass(suite):
    suite.runpytest_subprocess(*LOCAL)
    result = suite.runpytest_subprocess(*LOCAL, "--lf", "--co", "-q")
    result.stdout.fnmatch_lines(["*task_101_01_fail.yaml::nop", "*task_101_01_infra.yaml::nop"])
    result.stdout.no_fnmatch_line("*task_101_01_pass*")


def test_the_local_sandbox_gates_nothing(suite):
    result = suite.runpytest(*LOCAL, "--gate", "pr>=0.1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gate with --sandbox=local*"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--agent=nanobott",), "*did you mean 'nanobot'*"),
        (("--agent=nanobot",), "*needs a model*OPENAI_API_KEY*--model=script*"),
        (("--agent=nanobot", "--model=script"), "*ships no script*model.yaml*"),
        (("--agent=nanobot", "--model=script:absent.yaml"), "*absent.yaml: no such file*"),
        (("--agent=nop", "--supervisor=chekcs"), "*did you mean 'checks'*"),
        (("--agent=nop", "--gate=prr>=1"), "*cannot read 'prr>=1'*"),
        (("--agent=nop", "--attempts=none"), "*--uniclaw-attempts=none: expected a whole number*"),
        (("--agent=nop", "--uniclaw-resume=gone"), "*--uniclaw-resume: no run 'gone'*"),
    ],
)
def test_wrong_usage_is_exit_4_before_any_container(pytester, monkeypatch, options, words):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    add_task(pytester.path, "task_101_01_x")
    result = pytester.runpytest(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = " ".join(result.stderr.lines + result.stdout.lines)
    pytest.LineMatcher([text]).fnmatch_lines([words])
    assert not (pytester.path / "runs").exists()


def test_wrong_usage_is_exit_4_with_workers_too(pytester, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    add_task(pytester.path, "task_101_01_x")
    result = pytester.runpytest_subprocess("--agent=nanobot", "-n", "1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert not (pytester.path / "runs").exists()


def test_a_real_agent_in_the_local_sandbox_must_be_asked_for(pytester):
    add_task(pytester.path, "task_101_01_x")
    (pytester.path / "uniclaw.toml").write_text('sandbox = "local"\n')
    (pytester.path / "s.yaml").write_text("turns: [[{say: done}]]\n")
    script = f"--model=script:{pytester.path / 's.yaml'}"
    result = pytester.runpytest("--agent=nanobot", script, "--supervisor=checks")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*only trusted agents*--sandbox=local*"])


def test_a_missing_privacy_value_skips_that_task_by_name(pytester):
    add_task(pytester.path, "task_101_01_pass")
    add_task(pytester.path, "task_101_02_pass")
    (pytester.path / "injection/101_skill_usage/task_101_02_pass/.privacy").write_text("TRELLO_TOKEN\n")
    pytester.makeconftest(TOLD.replace("uniclaw_attempt(request)", "uniclaw_attempt(request, attempt_spec)"))
    result = pytester.runpytest_subprocess(*LOCAL, "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*task_101_02_pass*TRELLO_TOKEN*", "1/2 passed, 1 skipped, coverage 1/2"])


def test_short_options_can_be_given_up(pytester):
    add_task(pytester.path, "task_101_01_x")
    pytester.makeini("[pytest]\nuniclaw_short_options = false\nuniclaw_agent = nop\n")
    assert pytester.runpytest("--co", "--agent=x").ret == pytest.ExitCode.USAGE_ERROR
    result = pytester.runpytest("--co", "-q", "--uniclaw-attempts=2")
    result.stdout.fnmatch_lines(["*::nop[[]2]"])


def test_a_session_without_tasks_is_left_alone(pytester):
    pytester.makepyfile("def test_one(): pass")
    result = pytester.runpytest_subprocess("-n", "1")
    result.assert_outcomes(passed=1)
    assert not (pytester.path / "runs").exists()
    result.stdout.no_fnmatch_line("*coverage*")


def test_help_teaches_and_setup_show_names_the_fixtures(suite):
    suite.runpytest("--help").stdout.fnmatch_lines(["*--gate=RULES*", "*exit 9 unless these hold*"])
    result = suite.runpytest(*LOCAL, "--setup-show", "-k", "pass")
    result.stdout.fnmatch_lines(["*SETUP*F uniclaw_attempt*"])


def test_every_fixture_says_when_to_override_it(pytester):
    result = pytester.runpytest("--fixtures", "-q")
    text = "\n".join(result.stdout.lines)
    for name in ("agent", "executor", "services", "supervisor", "simulator", "budget", "artifacts", "task"):
        start = text.index(f"\n{name} -- ")
        assert "Override" in text[start : start + 400], name


def test_an_override_that_is_no_agent_names_the_conftest(pytester):
    add_task(pytester.path, "task_101_01_x")
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef agent():\n    return 'nanobot'\n")
    result = pytester.runpytest(*LOCAL)
    result.stdout.fnmatch_lines(["*fixture `agent`*gives a str, which is no agent: it lacks name*"])


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["inline", "workers"])
def test_a_suite_outside_the_root_directory_runs(suite, tmp_path, workers):
    root = tmp_path / "elsewhere"
    root.mkdir()
    place = suite.path / "suites"
    result = suite.runpytest_subprocess(*LOCAL, *workers, f"--rootdir={root}", str(place), f"--confcutdir={suite.path}")
    result.stdout.fnmatch_lines(["1/4 passed, 1 partial, 1 infra, coverage 3/4"])


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["inline", "workers"])
@pytest.mark.parametrize("named", ["files", "folders"])
def test_tasks_outside_the_root_directory_are_told_apart(pytester, tmp_path, workers, named):
    files = [add_task(pytester.path / place, "task_101_01_pass") for place in ("a", "b")]
    pytester.makeconftest(TOLD)
    root = tmp_path / "elsewhere"
    root.mkdir()
    places = [str(path if named == "files" else path.parents[1]) for path in files]
    result = pytester.runpytest_subprocess(
        *LOCAL, *workers, f"--rootdir={root}", *places, f"--confcutdir={pytester.path}", "-rA"
    )
    result.stdout.fnmatch_lines_random(["2/2 passed, coverage 2/2", "PASSED *a/suites/*", "PASSED *b/suites/*"])


@pytest.mark.docker
def test_a_gate_excuses_failed_tasks_only(suite):
    suite.makepyfile("def test_plain(): assert False")
    docker = ("--agent=nop", "--uniclaw-sandbox=docker", "--supervisor=checks")
    gate = (*docker, "--gate=pr>=0.3")
    names = "pass or fail or partial"
    assert suite.runpytest_subprocess(*gate, "-k", f"({names}) and not plain").ret == pytest.ExitCode.OK
    assert suite.runpytest_subprocess(*gate, "-k", f"{names} or plain").ret == pytest.ExitCode.TESTS_FAILED
    assert suite.runpytest_subprocess(*gate, "-k", f"{names} or infra").ret == pytest.ExitCode.TESTS_FAILED
    assert suite.runpytest_subprocess(*docker, "--gate=pr>=0.9", "-k", names).ret == GATE_FAILED


@pytest.mark.docker
def test_a_gate_does_not_excuse_a_pass_that_was_to_fail(suite):
    suite.makeconftest(
        TOLD + """
def pytest_collection_modifyitems(items):
    for item in items:
        if "01_pass" in item.nodeid:
            item.add_marker(pytest.mark.xfail(strict=True))
"""
    )
    options = ("--agent=nop", "--uniclaw-sandbox=docker", "--supervisor=checks", "--gate=pr>=0.3", "-k", "pass or 02")
    add_task(suite.path, "task_101_02_pass")
    result = suite.runpytest_subprocess(*options)
    result.assert_outcomes(failed=1, passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["inline", "workers"])
def test_a_session_that_can_judge_no_more_stops_before_an_item_and_not_after_the_last(suite, workers):
    enough = "\nfrom pytest_uniclaw import plugin\nplugin.stop_reason = lambda config: 'that was enough'\n"
    suite.makeconftest(TOLD + enough)
    result = suite.runpytest_subprocess(*LOCAL, *workers, "-k", "pass")
    assert result.ret == pytest.ExitCode.OK
    result = suite.runpytest_subprocess(*LOCAL, *workers)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*NOT RUN: 3 of 4*", "*that was enough*"])


def test_the_user_is_told_of_code_on_the_host(suite):
    path = suite.path / "suites/101_skill_usage/task_101_01_pass.yaml"
    path.write_text(path.read_text() + "pre_exec: [ops/populate.py]\n")
    script = suite.path / "injection/101_skill_usage/task_101_01_pass/ops/populate.py"
    script.parent.mkdir()
    script.write_text("")
    result = suite.runpytest_subprocess(*LOCAL)
    result.stdout.fnmatch_lines(["pre_exec: scripts of these packages run on this host: task_101_01_pass"])


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["inline", "workers"])
def test_models_of_one_name_have_ids_and_rows_of_their_own(pytester, workers):
    add_task(pytester.path, "task_101_01_pass")
    pytester.makeconftest(TOLD.replace('agent="nop"', 'agent="nanobot", model=request.node.model.label'))
    (pytester.path / "uniclaw.toml").write_text(
        '[providers.loc]\nbase_url = "http://127.0.0.1:9/v1"\n[providers.loc2]\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    options = ("--sandbox=local", "--agent=nanobot", "--supervisor=checks", "--model=loc/m,loc2/m")
    result = pytester.runpytest_subprocess(*options, *workers)
    result.stdout.fnmatch_lines(["nanobot loc-m *1/1", "nanobot loc2-m *1/1", "2/2 passed, coverage 2/2"])
