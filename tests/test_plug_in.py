"""Agents that other people write: what their adapters do wrong is said plainly, and never ends in a traceback alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.host_sandbox import HostSandbox
from test_endings import Stage, spec_of
from test_plugin import LOCAL, add_task

from pytest_uniclaw.agents.base import CommandLineAgent, Finish
from pytest_uniclaw.agents.guard import GuardedAgent
from pytest_uniclaw.attempt import Attempt, Ending
from pytest_uniclaw.errors import AgentError, EngineError
from pytest_uniclaw.loop import run_attempt
from pytest_uniclaw.privacy import PrivacyValues
from pytest_uniclaw.provisioning import provision
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.sandbox.base import Completed
from pytest_uniclaw.status import Status
from pytest_uniclaw.store import load_attempt

METHODS = ("prepare", "turn", "transcript_sources", "read_transcript", "finish")
SECRET = "s3cret-value-of-a-task"
DONE = Completed(Ending.EXITED, 0, b"done\n", 1.0)


@dataclass(frozen=True)
class FaultyAgent(CommandLineAgent):
    """Raises ``error`` in the method ``where``; without an error it returns ``result`` there."""

    name: str = "faulty"
    where: str = ""
    error: BaseException | None = None
    result: object = None

    def prepare(self, sandbox: object, task: object, access: object) -> None:
        if self.where == "prepare" and self.error:
            raise self.error

    def turn(self, sandbox: object, request: object) -> Any:
        if self.where == "turn" and self.error:
            raise self.error
        return self.result if self.where == "turn" else DONE

    def transcript_sources(self, sandbox: object) -> Any:
        if self.where == "transcript_sources" and self.error:
            raise self.error
        return self.result if self.where == "transcript_sources" else ("/home/agent/session",)

    def read_transcript(self, collected: Path) -> Any:
        if self.where == "read_transcript" and self.error:
            raise self.error
        return self.result if self.where == "read_transcript" else ()

    def finish(self, completed: Completed, records: object) -> Any:
        if self.where == "finish" and self.error:
            raise self.error
        return self.result if self.where == "finish" else Finish(True)


def line_of(method: str) -> int:
    """Return the number of the line in FaultyAgent that raises in a method."""
    lines = Path(__file__).read_text("utf-8").splitlines()
    return lines.index(f'        if self.where == "{method}" and self.error:') + 2


def run_faulty(tmp_path: Path, **faults: Any) -> tuple[Attempt, Path]:
    """Run an attempt as an item does, with one retry after infrastructure errors; return it with its folder."""
    spec = spec_of(Stage(tmp_path), retries=1)
    privacy = PrivacyValues((("TOKEN", SECRET),), "a test")
    spec = dataclasses.replace(spec, agent=FaultyAgent(**faults), run=dataclasses.replace(spec.run, privacy=privacy))
    with provision(spec) as executor:
        attempt = run_attempt(spec, executor=executor)
    assert load_attempt(spec.directory) == attempt
    return attempt, spec.directory


def guarded(tmp_path: Path, agent: Any) -> GuardedAgent:
    return GuardedAgent(agent, tmp_path, Redactor((SECRET,)))


def test_an_adapter_without_fault_passes(tmp_path: Path) -> None:
    attempt, folder = run_faulty(tmp_path)
    assert (attempt.status, attempt.flags) == (Status.PASS, ())
    assert not (folder / "error.log").exists()


READS_THE_EXECUTOR = ("read_transcript", "finish")
"""Methods that read what an executor wrote, so that it may be what breaks them."""


@pytest.mark.parametrize("method", [method for method in METHODS if method not in READS_THE_EXECUTOR])
def test_a_crash_is_recorded_with_its_place_and_not_tried_again(tmp_path: Path, method: str) -> None:
    attempt, folder = run_faulty(tmp_path, where=method, error=ValueError(f"boom\n with {SECRET}"))
    assert (attempt.status, attempt.flags, attempt.tries) == (Status.INFRA_ERROR, ("agent_error",), 1)
    place = f"test_plug_in.py:{line_of(method)} in {method}"
    said = f"ValueError: boom with [redacted] ({place}); traceback in error.log"
    assert attempt.reason == f"infra_error: {said}"
    assert [turn.reason for turn in attempt.turns] == ([] if method == "prepare" else [said])
    assert not any(turn.finished for turn in attempt.turns)
    log = (folder / "error.log").read_text("utf-8")
    assert log.startswith("Traceback (most recent call last):\n")
    assert "raise self.error" in log
    assert "guard.py" not in log
    assert SECRET not in log + (folder / "uniclaw.json").read_text("utf-8")
    assert not list(folder.rglob("raw"))
    assert not list(folder.rglob("results/*")), "evidence is collected whole or not at all"


def test_an_executor_cannot_leave_the_denominator_by_breaking_finish(tmp_path: Path) -> None:
    attempt, folder = run_faulty(tmp_path, where="finish", error=ValueError("boom"))
    assert (attempt.status, attempt.flags, attempt.tries) == (Status.EXECUTOR_INCOMPLETE, ("agent_error",), 1)
    assert f"ValueError: boom (test_plug_in.py:{line_of('finish')} in finish)" in attempt.reason
    assert (folder / "error.log").is_file()
    assert list(folder.rglob("results/*"))


def test_an_executor_cannot_leave_the_denominator_by_breaking_read_transcript(tmp_path: Path) -> None:
    attempt, folder = run_faulty(tmp_path, where="read_transcript", error=ValueError("boom"))
    assert (attempt.status, attempt.flags, attempt.tries) == (Status.PASS, ("transcript_unreadable",), 1)
    assert "boom" in (folder / "error.log").read_text("utf-8")
    assert not list(folder.rglob("raw"))


def test_a_transcript_that_was_cut_is_flagged(tmp_path: Path) -> None:
    notice = {"type": "notice", "id": "x-000000", "timestamp": "", "cut": 1}
    attempt, _ = run_faulty(tmp_path, where="read_transcript", result=(notice,))
    assert (attempt.status, attempt.flags) == (Status.PASS, ("transcript_cut",))


@pytest.mark.parametrize(
    ("method", "result", "said"),
    [
        ("turn", None, "FaultyAgent.turn returned None; return what sandbox.turn returns (a Completed)"),
        ("turn", 0, "FaultyAgent.turn returned a int; return what sandbox.turn returns (a Completed)"),
        ("transcript_sources", "/home", "returned a str; return a tuple of absolute paths, which begin with /"),
        ("transcript_sources", ("logs",), "returned a tuple of str; return a tuple of absolute paths"),
        ("transcript_sources", None, "returned None; return a tuple of absolute paths"),
    ],
)
def test_what_an_adapter_returns_is_checked(tmp_path: Path, method: str, result: object, said: str) -> None:
    attempt, _ = run_faulty(tmp_path, where=method, result=result)
    assert (attempt.status, attempt.flags, attempt.tries) == (Status.INFRA_ERROR, ("agent_error",), 1)
    assert said in attempt.reason


@pytest.mark.parametrize(
    ("method", "result", "said"),
    [
        ("finish", True, "FaultyAgent.finish returned a bool; return a Finish"),
        ("finish", None, "FaultyAgent.finish returned None; return a Finish"),
        ("read_transcript", None, "FaultyAgent.read_transcript returned None; return a tuple of records (dicts)"),
        ("read_transcript", ["x"], "returned a list of str; return a tuple of records (dicts)"),
    ],
)
def test_what_is_made_of_the_executors_words_is_checked(tmp_path: Path, method: str, result: object, said: str) -> None:
    agent = guarded(tmp_path, FaultyAgent(where=method, result=result))
    calls = {
        "finish": lambda: agent.finish(Completed(Ending.EXITED, 0, b"", 1.0), ()),
        "read_transcript": lambda: agent.read_transcript(tmp_path),
    }
    with pytest.raises(AgentError) as caught:
        calls[method]()
    assert said in str(caught.value)


def test_a_declared_error_passes_and_is_tried_again(tmp_path: Path) -> None:
    attempt, folder = run_faulty(tmp_path, where="turn", error=EngineError("no engine"))
    assert (attempt.status, attempt.flags, attempt.tries) == (Status.INFRA_ERROR, (), 2)
    assert attempt.reason == "infra_error: no engine"
    assert not (folder / "error.log").exists()


def test_an_exhausted_host_is_no_fault_of_the_adapter(tmp_path: Path) -> None:
    attempt, _ = run_faulty(tmp_path, where="turn", error=OSError(28, "No space left on device"))
    assert (attempt.status, attempt.flags, attempt.tries) == (Status.INFRA_ERROR, (), 2)
    attempt, _ = run_faulty(tmp_path / "2", where="turn", error=FileNotFoundError(2, "No such file or directory"))
    assert (attempt.status, attempt.flags, attempt.tries) == (Status.INFRA_ERROR, ("agent_error",), 1)


def test_an_interrupt_passes(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        guarded(tmp_path, FaultyAgent(where="prepare", error=KeyboardInterrupt())).prepare(Any, Any, None)


def test_an_exit_is_a_crash(tmp_path: Path) -> None:
    with pytest.raises(AgentError, match=r"^SystemExit: 3 \(test_plug_in.py:\d+ in prepare\)"):
        guarded(tmp_path, FaultyAgent(where="prepare", error=SystemExit(3))).prepare(Any, Any, None)


def test_a_long_text_leaves_room_for_the_place(tmp_path: Path) -> None:
    error = ValueError("x" * 500)
    with pytest.raises(AgentError, match=r"^ValueError: x{69}… \(test_plug_in.py:\d+ in prepare\)"):
        guarded(tmp_path, FaultyAgent(where="prepare", error=error)).prepare(Any, Any, None)
    assert "x" * 500 in (tmp_path / "error.log").read_text("utf-8")


def test_the_place_is_in_the_adapters_own_file_however_deep_the_error(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Deep(CommandLineAgent):
        name: str = "deep"

        def command(self, sandbox: object, request: object) -> Sequence[str]:
            return [Path("/no/such/file").read_text("utf-8")]

    with pytest.raises(AgentError, match=r"^FileNotFoundError: .* \(test_plug_in.py:\d+ in command\)"):
        guarded(tmp_path, Deep()).turn(Any, Any)


@pytest.mark.parametrize("words", [None, "echo x", []])
def test_a_command_is_a_list_of_words(tmp_path: Path, words: Any) -> None:
    @dataclass(frozen=True)
    class Wordless(CommandLineAgent):
        name: str = "wordless"

        def command(self, sandbox: object, request: object) -> Any:
            return words

    with pytest.raises(AgentError, match=r"^TypeError: Wordless.command returned .*; return a list of words"):
        guarded(tmp_path, Wordless()).turn(HostSandbox(tmp_path / "s"), Any)


def test_a_disk_that_refuses_the_traceback_costs_only_that(tmp_path: Path) -> None:
    (tmp_path / "error.log").mkdir()
    with pytest.raises(AgentError, match=r"^ValueError: boom"):
        guarded(tmp_path, FaultyAgent(where="prepare", error=ValueError("boom"))).prepare(Any, Any, None)


@pytest.mark.parametrize("options", [("--co",), ("-n", "1"), ("--co", "-n", "1"), ()], ids=" ".join)
def test_an_unknown_agent_of_the_command_line_is_exit_4(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    add_task(pytester.path, "task_101_01_x")
    result = pytester.runpytest_subprocess("--agent=nop,nanobott", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*no agent is called 'nanobott'; did you mean 'nanobot'? (installed agents: *nanobot, *nop, *oracle*"]
    )
    assert not (pytester.path / "runs").exists()


@pytest.mark.parametrize("value", ["", " ,"])
def test_an_empty_agent_is_exit_4_even_if_the_ini_file_names_one(pytester: pytest.Pytester, value: str) -> None:
    add_task(pytester.path, "task_101_01_x")
    pytester.makeini("[pytest]\nuniclaw_agent = nop\n")
    result = pytester.runpytest("--co", f"--agent={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*names no agent (installed agents: *nop*"])


def test_a_task_whose_agent_is_not_installed_can_be_collected(pytester: pytest.Pytester) -> None:
    add_task(pytester.path, "task_101_01_x")
    result = pytester.runpytest("--co", "-q")
    result.stdout.fnmatch_lines(["*task_101_01_x.yaml::openclaw"])
    assert result.ret == pytest.ExitCode.OK


AGENT = """
from dataclasses import dataclass

import pytest
from pytest_uniclaw.agents.base import CommandLineAgent

@dataclass(frozen=True)
class Mine(CommandLineAgent):
    name: str = "mine"
    trusted: bool = True
    needs_model: bool = {needs_model}
    image: str = {image!r}

    def command(self, sandbox, request):
        token = request.environment.get("TRELLO_TOKEN", "")
        raise ValueError("boom " + token)

@pytest.fixture
def agent():
    return Mine()
"""


def add_conftest(root: Path, *, needs_model: bool = False, image: str = "runtime") -> None:
    (root / "suites" / "conftest.py").write_text(AGENT.format(needs_model=needs_model, image=image), "utf-8")


def test_a_crash_in_a_conftest_shows_its_line_and_no_secret(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_task(pytester.path, "task_101_01_x")
    add_conftest(pytester.path)
    (pytester.path / "injection/101_skill_usage/task_101_01_x/.privacy").write_text("TRELLO_TOKEN\n")
    monkeypatch.setenv("UNICLAW_PRIVACY_TRELLO_TOKEN", SECRET)
    result = pytester.runpytest_subprocess("--sandbox=local", "--supervisor=checks", "-l", "-rA", "--junitxml=j.xml")
    line = AGENT.splitlines().index('        raise ValueError("boom " + token)') + 1
    said = f"ValueError: boom [[]redacted] (conftest.py:{line} in command); traceback in error.log"
    result.stdout.fnmatch_lines([f"*{said}*", f"*INFRA*task_101_01_x*mine*infra_error: {said}*"])
    text = "\n".join(result.outlines + result.errlines)
    assert SECRET not in text + (pytester.path / "j.xml").read_text("utf-8")
    assert "token      =" not in text, "--showlocals shows nothing of an adapter"
    (record,) = (pytester.path / "runs/latest").resolve().glob("a1/mine/*/*/*/p1-*/uniclaw.json")
    assert SECRET not in record.read_text("utf-8")
    assert SECRET not in (record.parent / "error.log").read_text("utf-8")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_model_that_a_conftests_agent_has_not_is_said_of_its_item(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    add_task(pytester.path, "task_101_01_x")
    add_conftest(pytester.path, needs_model=True)
    assert pytester.runpytest_subprocess("--co", "--supervisor=checks", "--sandbox=local").ret == pytest.ExitCode.OK
    result = pytester.runpytest_subprocess("--sandbox=local", "--supervisor=checks")
    said = "the agent mine of suites/conftest.py cannot run: agent mine needs a model, and the provider 'openai'*"
    result.stdout.fnmatch_lines([said, f"INFRA*task_101_01_x*mine*{said}"])
    result.stdout.no_fnmatch_line("*fixtures.py*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.docker
def test_an_image_that_a_conftests_agent_has_not_is_said_of_its_item(pytester: pytest.Pytester) -> None:
    add_task(pytester.path, "task_101_01_x")
    add_conftest(pytester.path, image="no-such-agent:1")
    result = pytester.runpytest_subprocess("--sandbox=docker", "--supervisor=checks")
    result.stdout.fnmatch_lines(["the agent mine of suites/conftest.py cannot run: missing image(s): no-such-agent:1"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    ("fixture", "value", "said"),
    [
        ("agent", "'nanobot'", "the fixture `agent` of suites/conftest.py gives a str, which is no agent: it lacks*"),
        ("agent", "None", "the fixture `agent` of suites/conftest.py gives None; return an agent, such as MyAgent()"),
        ("agent", "dict", "the fixture `agent` of suites/conftest.py gives the class dict; return an agent*"),
        ("budget", "60", "the fixture `budget` of suites/conftest.py gives a int, which lacks turn_seconds*"),
        ("simulator", "None", "the fixture `simulator` of suites/conftest.py gives None, which lacks name*"),
    ],
)  # fmt: skip
def test_an_override_that_lacks_something_names_its_file(
    pytester: pytest.Pytester, fixture: str, value: str, said: str
) -> None:
    add_task(pytester.path, "task_101_01_x")
    pytester.makeconftest("import pytest\n\n@pytest.fixture\ndef services():\n    return ()\n")
    source = f"import pytest\n\n@pytest.fixture\ndef {fixture}():\n    return {value}\n"
    (pytester.path / "suites" / "conftest.py").write_text(source)
    result = pytester.runpytest(*LOCAL)
    result.stdout.fnmatch_lines([said])
    result.stdout.no_fnmatch_line("*fixtures.py*")
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_conftests_agent_is_custom_in_ids_and_itself_in_tables(pytester: pytest.Pytester) -> None:
    add_task(pytester.path, "task_101_01_x", extra="services: []\n")
    add_conftest(pytester.path)
    (pytester.path / "injection/101_skill_usage/task_101_01_x/.privacy").write_text("TRELLO_TOKEN\n")
    result = pytester.runpytest_subprocess("--sandbox=local", "--supervisor=checks", "-v")
    result.stdout.fnmatch_lines(["*task_101_01_x.yaml::custom SKIPPED*", "SKIPPED*task_101_01_x*mine*TRELLO_TOKEN*"])
