"""What goes wrong under the models of the three roles, without a container: each fault ends in its own status.

The gateway process, the client, the supervisor, the simulator and the loop are real; sandbox and agent are stand-ins
(``support/rehearsal.py``). ``test_battery_answers.py`` has what judge and user answer,
``test_battery_roles_docker.py`` shows the same in one session with containers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_uniclaw.errors import SandboxLost
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.person import ModelSimulator
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.client import GatewayProcess
from pytest_uniclaw.models.grants import Role
from pytest_uniclaw.status import Status
from tests.support import rehearsal
from tests.support.faulty import (
    FILTERED,
    QUOTA,
    SERVER,
    TOO_LONG,
    UNKNOWN_PARAMETER,
    WRONG_KEY,
    answer,
    cut_off,
    hang,
    page,
    slow_down,
)
from tests.support.judging import FakeProvider
from tests.support.rehearsal import GOOD, KEY, PLEASE, TRIES, Json, Rehearsal, Rehearse, speak, submission
from tests.support.scripted_upstream import Act

pytestmark = pytest.mark.processes

# The fixtures of the rehearsal.
provider, gateway, impatient, rehearse = (
    rehearsal.provider, rehearsal.gateway, rehearsal.impatient, rehearsal.rehearse,
)  # fmt: skip

# What a provider does, and how the attempt ends for each role; with how often it is asked and what the reason says.
PROVIDER: dict[str, tuple[Act, str, int]] = {
    "rate_limit": (slow_down(), "rate_limit: Rate limit reached for", TRIES),
    "long_wait": (slow_down(retry_after="60"), "rate_limit: Rate limit reached for", 1),
    "quota": (QUOTA, "quota: You exceeded your current quota", 1),
    "server": (SERVER, "infra: The server had an error", TRIES),
    "html": (page(200), "bad_upstream: the provider's answer is no chat completion (text/html)", TRIES),
    "html_error": (page(503), "infra: the provider answered 503: <html>", TRIES),
    "cut_off": (cut_off, "", TRIES),
    "hang": (hang, "infra: provider faulty sent no byte for 0.4 s", 1),
    "wrong_key": (WRONG_KEY, "auth: Incorrect API key provided", 1),
}
REFUSED: dict[str, tuple[Act, str]] = {
    "context": (TOO_LONG, "context_length: maximum context length is 8192 tokens"),
    "filter": (FILTERED, "content_filter: The prompt was blocked"),
    "parameter": (UNKNOWN_PARAMETER, "bad_request: Unrecognized request argument supplied: x"),
}
LIMITED = {"rate_limit", "long_wait", "quota"}
ROLES: tuple[Role, ...] = ("executor", "supervisor", "user_simulator")


def rehearsal_of(rehearse: Rehearse, role: Role, *acts: Act, **more: Any) -> Rehearsal:
    return rehearse(**{role.removeprefix("user_"): list(acts)}, **more)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("name", PROVIDER)
def test_what_a_provider_cannot_do_is_infrastructure(
    rehearse: Rehearse, gateway: GatewayProcess, impatient: GatewayProcess, name: str, role: Role
) -> None:
    act, words, tries = PROVIDER[name]
    # An answer that is passed on whole is read before its first byte is: a cut one can be asked for again.
    process = impatient if name == "hang" else gateway
    stage = rehearsal_of(rehearse, role, act, stream=name != "cut_off", process=process)
    attempt = stage.run()
    assert attempt.status is (Status.RATE_LIMIT if name in LIMITED else Status.INFRA_ERROR), attempt.reason
    assert f"the model provider failed the {role.replace('_', ' ')}: {words}" in attempt.problem
    assert KEY not in attempt.model_dump_json()
    (call,) = stage.calls(attempt, role)
    assert call.tries == tries
    assert len(attempt.turns) == 1
    assert (attempt.turns[0].verdict is not None) == (role == "user_simulator")


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_provider_will_not_do_is_the_roles_own(rehearse: Rehearse, name: str) -> None:
    attempt = rehearse(executor=[REFUSED[name][0]]).run(followups=0)
    assert (attempt.status, attempt.unfinished_best) == (Status.EXECUTOR_INCOMPLETE, 1.0), "it is graded all the same"
    assert "score 0.00 < 0.90 after 1 turn (1.00 in an unfinished turn, which does not count)" in attempt.reason


@pytest.mark.parametrize(
    ("role", "status", "name"),
    [*(("supervisor", Status.UNJUDGED, name) for name in REFUSED),
     ("user_simulator", Status.SIMULATOR_ERROR, "parameter")],
)  # fmt: skip
def test_a_hidden_role_that_is_refused_has_no_answer(rehearse: Rehearse, name: str, role: Role, status: Status) -> None:
    act, words = REFUSED[name]
    stage = rehearsal_of(rehearse, role, act)
    attempt = stage.run()
    assert attempt.status is status
    assert f"the model provider refused the {role.replace('_', ' ')}: {words}" in attempt.problem
    assert len(stage.calls(attempt, role)) == 1, "a refusal is not asked for again"


@pytest.mark.parametrize("name", ["context", "filter"])
def test_a_user_whose_provider_refuses_what_the_agent_wrote_says_a_neutral_line(rehearse: Rehearse, name: str) -> None:
    stage = rehearse(simulator=[REFUSED[name][0]])
    attempt = stage.run()
    assert attempt.status is Status.PASS, attempt.reason
    follow_up = attempt.turns[0].follow_up
    assert follow_up is not None
    assert (follow_up.candidate, follow_up.decisions) == ("", ("fallback:refused",))
    assert attempt.turns[1].message == follow_up.message != ""
    assert len(stage.calls(attempt, "user_simulator")) == 1


def test_a_stream_that_breaks_is_infrastructure_and_not_tried_again(rehearse: Rehearse) -> None:
    stage = rehearse(executor=[cut_off])
    attempt = stage.run()
    assert attempt.status is Status.INFRA_ERROR
    assert "stream_broken: the provider's stream ended before its finish" in attempt.problem
    assert stage.calls(attempt, "executor")[0].tries == 1


@pytest.mark.parametrize("role", ROLES)
def test_a_rate_limit_that_passes_is_waited_for_and_not_billed(rehearse: Rehearse, role: Role) -> None:
    good = {"executor": answer("It is done."), "supervisor": GOOD, "user_simulator": speak(PLEASE)}[role]
    stage = rehearsal_of(rehearse, role, slow_down(retry_after_ms="300"), good)
    attempt = stage.run()
    assert attempt.status is Status.PASS, attempt.reason
    (usage,) = [usage for usage in attempt.usage if usage.role == role]
    assert usage.waited_seconds >= 0.3
    assert usage.tries == TRIES
    first = attempt.turns[0]
    assert first.waited_seconds == pytest.approx(usage.waited_seconds if role == "executor" else 0, abs=0.1)
    assert first.seconds + first.waited_seconds <= first.wall_seconds + 0.01, "waiting is nobody's executor time"


def test_a_judge_that_runs_out_of_time_while_it_must_wait_was_rate_limited(rehearse: Rehearse) -> None:
    attempt = rehearse(supervisor=[slow_down(retry_after="15")], limits={"call_seconds": 1.5}).run()
    assert attempt.status is Status.RATE_LIMIT
    assert "failed the supervisor: rate_limit: Rate limit reached" in attempt.problem


def test_a_judge_that_failed_for_its_provider_is_asked_afresh(rehearse: Rehearse) -> None:
    stage = rehearse(supervisor=[*[SERVER] * TRIES, GOOD])
    attempt = stage.run(retries=1)
    assert (attempt.status, attempt.tries, len(stage.sandboxes)) == (Status.PASS, 2, 2)


WORDS = (
    "HTTP 429 Too Many Requests: rate_limit_exceeded, insufficient_quota, You exceeded your current quota. "
    '{"error": {"code": "rate_limit_exceeded"}} infra_error: connection reset, 503 Service Unavailable'
)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(("code", "status"), [(0, Status.PASS), (1, Status.EXECUTOR_INCOMPLETE)])
def test_words_about_a_rate_limit_are_none(rehearse: Rehearse, stream: bool, code: int, status: Status) -> None:
    stage = rehearse(executor=[answer(WORDS)], supervisor=[GOOD], stream=stream, exit_code=code)
    attempt = stage.run(followups=0)
    assert attempt.status is status, attempt.reason
    assert attempt.turns[0].verdict is not None
    assert [call.call_class for call in stage.calls(attempt, "executor")] == ["ok"]


def test_a_user_whose_workspace_dies_each_time_speaks_without_one(rehearse: Rehearse) -> None:
    lost = [SandboxLost("it ran out of memory", cause="oom")] * 9
    stage = rehearse(simulator=[speak(PLEASE)], desks=FakeProvider(losses=list(lost)))
    attempt = stage.run()
    assert (attempt.status, attempt.turns[1].message) == (Status.PASS, PLEASE), attempt.reason
    assert len(stage.desks.losses) == len(lost) - 2
    (asked,) = stage.provider.asked(stage.model("user_simulator"))
    assert [tool["function"]["name"] for tool in asked["tools"]] == ["say_to_agent"]


# Steps of a judge's script, how the attempt ends, and what the reason says.
SCRIPTED: dict[str, tuple[list[Json], Status, str]] = {
    "limited": ([{"fail": {"status": 429, "message": "slow down"}}], Status.RATE_LIMIT, "rate_limit: slow down"),
    "server": ([{"fail": {"status": 503, "message": "busy"}}], Status.INFRA_ERROR, "infra: busy"),
    "hang": ([{"hang": True}], Status.INFRA_ERROR, "infra: the script sent no byte for 0.4 s"),
    "reset": ([{"reset": True}], Status.INFRA_ERROR, "infra: the model"),
    "break": ([{"break": True}], Status.INFRA_ERROR, "stream_broken: the script broke off its answer"),
    "page": ([{"body": "<html>"}], Status.INFRA_ERROR, "is no chat completion"),
    "context": ([{"fail": {"status": 400, "code": "context_length_exceeded"}}], Status.UNJUDGED, "context_length"),
    "empty": ([{"empty": True}] * 3, Status.UNJUDGED, "no usable answer (after 2 re-asks)"),
    "shell": ([{"shell": "ls"}], Status.UNJUDGED, "the script wants a shell"),
    "too_short": ([{"say": "I pass it."}], Status.UNJUDGED, "no usable answer (after 2 re-asks)"),
    "mended": ([{"empty": True}, {"raw_call": {"name": "submit_assessment", "arguments": "{'checkpoints': []}"}},
                {"call": {"name": "submit_assessment", "arguments": submission()}}], Status.PASS, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_judges_script_can_have_every_fault(
    rehearse: Rehearse, gateway: GatewayProcess, impatient: GatewayProcess, tmp_path: Path, name: str
) -> None:
    steps, status, words = SCRIPTED[name]
    script = tmp_path / "judge.yaml"
    script.write_text(yaml.safe_dump({"lanes": {"task_101_01_sum": {"turns": [steps]}}}))
    stage = rehearse(process=impatient if name == "hang" else gateway)
    attempt = stage.run(supervisor=ModelSupervisor(ModelChoice("script", "scripted-judge", script)))
    assert attempt.status is status, attempt.reason
    assert words in attempt.problem


NO_LANE = "lanes: {task_101_09_other: {turns: [[{say: hello}]]}}\n"


@pytest.mark.parametrize("kind", ["provider", "script", "lane", "broken"])
@pytest.mark.parametrize("role", ["supervisor", "simulator"])
def test_a_role_of_a_conftest_that_cannot_ask_its_model_is_not_the_packages_fault(
    rehearse: Rehearse, tmp_path: Path, kind: str, role: str
) -> None:
    script = tmp_path / "role.yaml"
    if kind != "script":
        script.write_text(NO_LANE if kind == "lane" else "turns: [[{sya: hello}]]\n")
    choice = ModelChoice("absent", "x") if kind == "provider" else ModelChoice("script", "scripted", script)
    made: Any = ModelSupervisor(choice) if role == "supervisor" else ModelSimulator(choice)
    attempt = rehearse(failing=1).run(**{role: made})
    assert attempt.status is (Status.UNJUDGED if role == "supervisor" else Status.SIMULATOR_ERROR), attempt.reason
    words = {
        "provider": "there is no model provider 'absent'", "script": "role.yaml: there is no such script",
        "lane": "no lane 'task_101_01_sum'", "broken": "role.yaml:1: turns[0][0].sya: is not known",
    }  # fmt: skip
    assert words[kind] in attempt.problem
