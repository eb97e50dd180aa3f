"""What a session tells people: the INFRA section, rates of a cut session, how to continue, progress, HTML and JUnit."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pytest_uniclaw.attempt import LaneUse
from pytest_uniclaw.html import cell, details
from pytest_uniclaw.outcome import detail_of
from pytest_uniclaw.progress import FOLDER, ProgressPrinter, line_of
from pytest_uniclaw.report.record import ItemRecord
from pytest_uniclaw.settings import RoleOptions, Settings
from pytest_uniclaw.terminal import header, report_lines, resume_line, set_up
from pytest_uniclaw.verdict import CapScore, CheckpointScore, State
from tests.test_plugin import LOCAL, add_task

TOLD = r"""
import pytest
from pytest_uniclaw.outcome import RECORD, raise_outcome
from pytest_uniclaw.progress import sink_of
from pytest_uniclaw.report.lines import one_line
from pytest_uniclaw.report.record import ItemRecord, skipped_record

TOLD = {
    "fail": ("fail", "failed", 0.1), "infra": ("infra_error", "infra", None), "partial": ("fail", "xfailed", 0.6),
    "pass": ("pass", "passed", 1.0),
}
MESSAGE = "service 'x' exited with 1; its log, services/x.log, ends:\nstarting\nno table\n  fix: mend it"
LONG = "no key " + "k" * 300 + "\n  fix: give one"

@pytest.fixture
def uniclaw_attempt(request, uniclaw_run):
    def run():
        item = request.node
        kind = item.task.task_id.rpartition("_")[2]
        sink = sink_of(item.config, item.nodeid)
        for turn in (1, 2):
            sink({"what": "turn", "turn": turn, "of": 2})
            sink({"what": "verdict", "turn": turn, "of": 2, "verdict": "continue", "score": 0.1})
        if kind == "stop":
            raise KeyboardInterrupt
        if kind == "crash":
            raise TypeError("bad adapter")
        if kind == "skip":
            item.stash[RECORD] = skipped_record(item.task, "nop", item.number, LONG)
            pytest.skip(LONG)
        folder = uniclaw_run.directory / kind
        folder.mkdir(exist_ok=True)
        (folder / "uniclaw.json").write_text("{}")
        if kind == "infra":
            (folder / "error.log").write_text("Traceback\n" * 20 + "ValueError: deep\n")
        status, outcome, score = TOLD[kind]
        record = ItemRecord(
            task_id=item.task.task_id, category="101_skill_usage", capability="skill_usage", language="en",
            agent="nop", number=item.number, status=status, outcome=outcome, score=score, threshold=0.9,
            reason=f"{status}: {one_line(MESSAGE)}" if kind == "infra" else f"{status}: told so",
            detail=MESSAGE if kind == "infra" else "", directory=str(folder), supervisor="checks@1",
            simulator="template@1",
        )
        item.stash[RECORD] = record
        raise_outcome(record)
    return run
"""
WORKERS = pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["inline", "workers"])


def suite_of(pytester: pytest.Pytester, *kinds: str) -> pytest.Pytester:
    for kind in kinds:
        add_task(pytester.path, f"task_101_01_{kind}")
    pytester.makeconftest(TOLD)
    return pytester


@WORKERS
def test_infra_has_a_section_with_the_whole_message_said_once(pytester, workers):
    suite = suite_of(pytester, "crash", "infra", "pass", "skip")
    result = suite.runpytest_subprocess(*LOCAL, *workers)
    result.stdout.fnmatch_lines(
        [
            "*= INFRA =*",
            "*_ task_101_01_crash [[]nop] _*",
            "*TypeError: bad adapter",
            "*_ task_101_01_infra [[]nop] _*",
            "infra_error: service 'x' exited with 1; its log, services/x.log, ends:",
            "starting",
            "no table",
            "  fix: mend it",
            "  see */runs/*/infra",
            "  error.log ends:",
            "    Traceback",
            "    ValueError: deep",
            "*= SKIPPED =*",
            "*_ task_101_01_skip [[]nop] _*",
            f"no key {'k' * 300}",
            "  fix: give one",
            "*= uniclaw =*",
            "INFRA - task_101_01_crash nop: TypeError: bad adapter",
            "INFRA - task_101_01_infra nop: infra_error: service 'x' exited *, ends: … no table; fix: mend it",
            "SKIPPED - task_101_01_skip nop: no key kkk*…; fix: give one",
        ]
    )
    text = str(result.stdout)
    assert (text.count("starting\n"), text.count("ValueError: deep"), text.count("    Traceback\n")) == (1, 1, 14)
    assert text.count("SKIPPED") == 2
    without = suite.runpytest_subprocess(*LOCAL, *workers, "--tb=no")
    without.stdout.no_fnmatch_line("*= INFRA =*")


@WORKERS
def test_rates_of_a_cut_session_count_what_was_not_run(pytester, workers):
    suite = suite_of(pytester, "fail", "infra", "partial", "pass")
    result = suite.runpytest_subprocess(*LOCAL, *workers, "-x", "--html=h.html")
    rows = re.findall(r"^(nop  skill_usage|all) .*  (\d)/(\d)$", str(result.stdout), re.MULTILINE)
    judged = rows[0][1]
    assert rows == [("nop  skill_usage", judged, "4"), ("all", judged, "4")]
    (left,) = re.findall(r"^NOT RUN: (\d) of 4;", str(result.stdout), re.MULTILINE)
    assert int(left) in ({3} if not workers else {1, 2, 3})
    result.stdout.fnmatch_lines([f"0/4 passed, *{left} not run, coverage {judged}/4"])
    result.stdout.no_fnmatch_line("continue with:*")
    html = (pytester.path / "h.html").read_text("utf-8")
    assert len(re.findall(rf"<td class=n>{judged}/4</td>", html)) == 2


def test_an_interrupted_session_says_how_to_continue(pytester):
    suite = suite_of(pytester, "infra", "pass", "stop")
    options = (*LOCAL, "--uniclaw-followups=1", "-k", "pass or stop")
    result = suite.runpytest_subprocess(*options)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "1/2 passed, 1 not run, coverage 1/2",
            f"continue with: pytest * {' '.join(LOCAL)} --uniclaw-followups=1 -k 'pass or stop' "
            "--uniclaw-resume=latest",
            "*KeyboardInterrupt*",
        ]
    )
    again = suite.runpytest_subprocess(*options, "--uniclaw-resume=latest")
    (line,) = [line for line in again.outlines if line.startswith("continue with:")]
    assert line.count("--uniclaw-resume") == 1
    elsewhere = suite.runpytest_subprocess(*options, "--uniclaw-runs-dir=other", f"--uniclaw-resume={runs(suite)}")
    elsewhere.stdout.fnmatch_lines([f"continue with: * --uniclaw-resume={runs(suite)}"])


def runs(pytester: pytest.Pytester) -> Path:
    return (pytester.path / "runs" / "latest").resolve()


def test_an_interruption_before_the_first_result_is_told_too(pytester):
    result = suite_of(pytester, "stop").runpytest_subprocess(*LOCAL)
    result.stdout.fnmatch_lines(["NOT RUN: 1 of 1;*", "0/1 passed, 1 not run, coverage 0/1", "continue with: pytest *"])


def test_the_command_to_continue_replaces_the_run(pytester):
    given = ["suites", "-k", "a b", "--uniclaw-resume", "old", "--uniclaw-resume=older", "-n2"]
    assert resume_line(given, "latest") == "continue with: pytest suites -k 'a b' -n2 --uniclaw-resume=latest"


def test_wrong_usage_writes_no_summary(pytester):
    result = suite_of(pytester, "pass").runpytest_subprocess(*LOCAL, "--uniclaw-resume=gone")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.no_fnmatch_line("*coverage*")


@WORKERS
@pytest.mark.parametrize("verbose", [(), ("-v",)], ids=["dots", "words"])
def test_progress_and_results_share_no_line(pytester, workers, verbose):
    suite = suite_of(pytester, "fail", "infra", "pass")
    result = suite.runpytest_subprocess(*LOCAL, *workers, *verbose)
    progress = [line for line in result.outlines if "turn " in line and "task_101_01_" in line]
    expected = ["turn 1/2", "turn 1/2: 0.10, continue", "turn 2/2", "turn 2/2: 0.10 (no follow-up left)"]
    assert progress == [
        f"  task_101_01_{kind}.yaml::nop: {line}" for kind in ("fail", "infra", "pass") for line in expected
    ]
    if not verbose:
        results = [line for line in result.outlines if re.match(r"[.FI]+( |$)", line)]
        assert "".join(line.partition(" ")[0] for line in results) == "FI."


def test_an_event_that_was_cut_short_is_passed_over(tmp_path, capfd, request):
    printer = ProgressPrinter(tmp_path, request.config.pluginmanager.get_plugin("terminalreporter"))
    whole = json.dumps({"item": "task_x.yaml::nop", "turn": 1, "of": 3, "what": "judging"})
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "gw0.jsonl").write_text(f'{whole[:20]}{whole}\n{{"what": "verdict"}}\n{whole}\n')
    printer.start()
    printer.close()
    assert capfd.readouterr().out.split("\n") == ["  task_x.yaml::nop: turn 1/3: judging", ""]


def test_progress_lines():
    event = {"item": "suites/task_x.yaml::nop", "turn": 3, "of": 3}
    assert line_of({**event, "what": "turn"}) == "task_x.yaml::nop: turn 3/3"
    assert line_of({**event, "what": "judging"}) == "task_x.yaml::nop: turn 3/3: judging"
    judged = {**event, "what": "verdict", "score": 0.78}
    assert line_of({**judged, "verdict": "continue"}) == "task_x.yaml::nop: turn 3/3: 0.78 (no follow-up left)"
    assert line_of({**judged, "verdict": "continue", "turn": 2}) == "task_x.yaml::nop: turn 2/3: 0.78, continue"
    assert line_of({**judged, "verdict": "fail"}) == "task_x.yaml::nop: turn 3/3: 0.78, fail"
    retry = {"item": "task_x.yaml::nop", "what": "retry", "why": "no engine\n  fix: start it"}
    assert line_of(retry) == "task_x.yaml::nop: trying again after: no engine; fix: start it"


def test_the_header_says_who_judges_and_speaks_and_that_a_cassette_answers(tmp_path, monkeypatch):
    def shown(**settings):
        found = set_up(Settings(**settings))
        return found["supervisor"], found["simulator"], found.get("cassette")

    assert shown() == ("auto", "template", None)
    assert shown(supervisor=RoleOptions("auto", "gpt-5.4")) == ("auto (openai/gpt-5.4)", "template", None)
    assert shown(supervisor=RoleOptions("model", "script:judge.yaml"))[0] == "model (script:judge.yaml)"
    assert shown(supervisor=RoleOptions("checks", "gpt-5.4"))[0] == "checks"
    assert shown(simulator=RoleOptions("model", "acme/user"))[1] == "model (acme/user)"
    monkeypatch.chdir(tmp_path)
    assert shown(cassette_replay=tmp_path / "tapes")[2] == "replay tapes"
    both = {"cassette_replay": Path("/tapes"), "cassette_record": tmp_path / "new"}
    assert shown(**both)[2] == "replay /tapes and record new"
    assert header(Settings(**both)).endswith(", attempts 1, cassette replay /tapes and record new")


def test_lanes_that_were_not_exact_are_told_in_a_line_each():
    lanes = (
        LaneUse(lane="nanobot/t/a1/executor", entries=4, unused=(4,), drift=("1 by 1: x", "2 by 2: <y>")),
        LaneUse(lane="nanobot/t/a1/supervisor", entries=1, drift=("1 by 1: x",), misses=("one", "two")),
        LaneUse(lane="nanobot/t/a1/simulator", entries=1, outdated=("agent", "task")),
    )
    record = ItemRecord(
        task_id="t", category="c", capability="x", language="en", agent="nanobot", status="pass", outcome="passed",
        score=1.0, cassettes=lanes,
    )  # fmt: skip
    expected = [
        "cassette differs: nanobot/t/a1/executor: 2 drifts, 1 unused",
        "cassette differs: nanobot/t/a1/supervisor: 1 drift, 2 misses",
        "cassette differs: nanobot/t/a1/simulator: outdated: agent, task",
    ]
    record = ItemRecord.model_validate(record.dump())
    assert report_lines([record])[:3] == expected
    assert [line for line in expected if f"<p>{line}</p>" in details(record)] == expected


def test_the_header_names_no_model_that_nobody_needs():
    assert ", model none needed, supervisor " in header(Settings(agents=("oracle", "nop"), models=("script",)))
    assert ", model script, " in header(Settings(agents=("oracle", "nanobot"), models=("script",)))
    assert ", model each task's model, " in header(Settings(agents=("nanobot",)))
    assert "agent of each task, model each task's model" in header(Settings())


def test_repeats_are_numbered_from_the_first(pytester):
    result = suite_of(pytester, "fail").runpytest_subprocess(*LOCAL, "--attempts=2")
    result.stdout.fnmatch_lines(
        ["FAILED 0.10 task_101_01_fail nop[[]1]: *", "FAILED 0.10 task_101_01_fail nop[[]2]: *"]
    )
    first = pytester.runpytest_subprocess(*LOCAL, "--attempts=2", "-k", "nop[1]")
    first.stdout.fnmatch_lines(["FAILED 0.10 task_101_01_fail nop[[]1]: *", "0/1 passed, coverage 1/1"])


def test_junit_has_the_one_line_reason_and_no_score_of_what_was_not_judged(pytester):
    suite_of(pytester, "fail", "infra", "skip").runpytest_subprocess(*LOCAL, "--junitxml=j.xml")
    cases = {case.get("classname").rpartition("_")[2]: case for case in ElementTree.parse("j.xml").iter("testcase")}
    properties = {kind: {p.get("name"): p.get("value") for p in case.iter("property")} for kind, case in cases.items()}
    assert properties["fail.yaml"]["score"] == "0.1"
    assert {"score"} & (set(properties["infra.yaml"]) | set(properties["skip.yaml"])) == set()
    assert properties["infra.yaml"]["supervisor"] == "checks@1"
    assert properties["infra.yaml"]["simulator"] == "template@1"
    error = cases["infra.yaml"].find("error")
    assert "infra_error: service 'x' exited with 1" in error.get("message")
    assert "starting" not in error.get("message")
    assert "starting\nno table\n" in error.text
    assert cases["fail.yaml"].find("failure").get("message") == "fail: told so"
    assert (
        cases["skip.yaml"].find("skipped").text.startswith(f"{pytester.path}/suites/101_skill_usage/task_101_01_skip")
    )


@WORKERS
def test_html_says_once_what_there_is_and_links_to_what_there_is(pytester, workers):
    suite = suite_of(pytester, "crash", "fail", "infra", "pass", "skip")
    note = "--uniclaw-note=designed <so>"
    result = suite.runpytest_subprocess(*LOCAL, *workers, note, "--html=h.html", "--self-contained-html")
    result.stdout.fnmatch_lines(["note: designed <so>", "1/5 passed, *"])
    page = (pytester.path / "h.html").read_text("utf-8")
    assert "<p>designed &lt;so&gt;</p>" in page
    data = json.loads(unescape(re.search('data-jsonblob="([^"]*)"', page)[1]))
    shown = data["environment"]
    assert (shown["uniclaw model"], shown["uniclaw supervisor"], shown["uniclaw simulator"]) == (
        "none needed", "checks", "template",
    )  # fmt: skip
    rows = {nodeid.partition(".")[0].rpartition("_")[2]: row for nodeid, (row,) in data["tests"].items()}
    scores = {kind: row["score"] for kind, row in rows.items()}
    assert scores == {"crash": "-", "fail": "0.10", "infra": "-", "pass": "1.00", "skip": "-"}
    links = {kind: [extra["name"] for extra in row["extras"][1:]] for kind, row in rows.items()}
    assert links["infra"] == ["artifacts", "record", "error"]
    assert links["pass"] == ["artifacts", "record"]
    assert links["crash"] == links["skip"] == []
    told = {kind: row["extras"][0]["content"] + row["log"] for kind, row in rows.items()}
    assert (told["infra"].count("no table"), told["infra"].count("ValueError: deep")) == (1, 1)
    assert (told["fail"].count("told so"), told["skip"].count("fix: give one")) == (1, 1)
    assert "TypeError: bad adapter" in rows["crash"]["log"]


def test_numbers_in_html_are_sorted_as_numbers():
    def seconds(value):
        record = ItemRecord(
            task_id="t", category="c", capability="x", language="en", agent="a", status="fail", outcome="failed",
            score=0.0, seconds=value,
        )  # fmt: skip
        return cell(record, "executor")

    assert seconds(2.04).endswith(">2.0")
    assert sorted([seconds(10.0), seconds(2.0), seconds(300.0)]) == [seconds(2.0), seconds(10.0), seconds(300.0)]


def test_points_in_html_have_the_decimals_that_they_need():
    lines = tuple(
        CheckpointScore(id=name, name=name, weight=weight, earned=weight / 2, state=State.PARTIAL)
        for name, weight in (("C1", 0.125), ("C2", 0.875))
    )
    shown = details(row_of(checkpoints=lines))
    assert "<td class=n>0.0625</td><td class=n>0.125</td>" in shown
    assert "<td class=n>0.4375</td><td class=n>0.875</td>" in shown


def test_html_shows_the_cap_of_a_rubric_without_weights():
    caps = (CapScore(id="cap1", value=0.25, triggered=True, rationale="the log is gone"),)
    shown = details(row_of(caps=caps))
    assert "<td>cap1</td><td class=n>≤ 0.25</td><td></td><td>triggered</td><td>the log is gone</td>" in shown
    assert "checkpoint" not in details(row_of())


def row_of(**fields):
    return ItemRecord(
        task_id="t", category="c", capability="x", language="en", agent="a", status="fail", outcome="failed",
        score=0.25, **fields,
    )  # fmt: skip


def test_the_detail_of_a_failure_says_nothing_twice(tmp_path):
    lost = "a booking was deleted"
    record = ItemRecord(
        task_id="t", category="c", capability="x", language="en", agent="a", status="fail", outcome="failed", score=0.1,
        threshold=0.9, reason=f"fail: score 0.10 < 0.90; fatal: {lost}", fatal=(lost,), detail="out of memory",
        checkpoints=(
            CheckpointScore(id="C1", name="Moved", weight=0.5, earned=0.1, state=State.PARTIAL, rationale="1 of 5"),
            CheckpointScore(id="C2", name="Told", weight=0.5, earned=0.5, state=State.MET),
        ),
        caps=(CapScore(id="harm", value=0.1, triggered=True, rationale="B-1 is gone"),), directory=str(tmp_path),
    )  # fmt: skip
    assert detail_of(record).splitlines() == [
        "fail: score 0.10 < 0.90",
        "  out of memory",
        "  C1 Moved: 0.10 of 0.50  1 of 5",
        "  cap harm at 0.10: B-1 is gone",
        f"  fatal: {lost}",
        f"  see {tmp_path}",
    ]


def test_the_table_of_a_stored_run_is_that_of_a_session():
    values = {"task_id": "t", "category": "104_multimodal", "capability": "multimodal", "language": "en", "agent": "a"}
    passed = ItemRecord(**values, status="pass", outcome="passed", score=1.0)
    infra = ItemRecord(**values, status="infra_error", outcome="infra", reason="infra_error: no engine", number=2)
    assert report_lines([passed, infra]) == [
        "INFRA - t a[2]: infra_error: no engine",
        "                  PR     AS  judged",
        "a  multimodal  1.000  1.000  1/2",
        "all            1.000  1.000  1/2",
        "1/2 passed, 1 infra, coverage 1/2",
    ]


def test_another_protocol_than_the_default_is_named():
    values = {"task_id": "t", "category": "104_multimodal", "capability": "multimodal", "language": "en", "agent": "a"}
    strict = ItemRecord(**values, status="pass", outcome="passed", score=1.0)
    paper = ItemRecord(**values, status="pass", outcome="passed", score=1.0, protocol="paper", number=2)
    assert not any(line.startswith("protocol") for line in report_lines([strict]))
    assert "protocol: paper" in report_lines([paper])
    assert "protocol: paper, strict" in report_lines([strict, paper])
