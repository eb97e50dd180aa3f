"""What goes wrong under the models of the three roles, without a container: each fault ends in its own status.

The gateway process, the client, the supervisor, the simulator and the loop are real; sandbox and agent are stand-ins.
``test_battery_roles_docker.py`` shows the same in one session with containers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_endings import FakeSandbox, Stage, spec_of

from pytest_uniclaw.attempt import Attempt, Ending
from pytest_uniclaw.budget import Budget
from pytest_uniclaw.errors import SandboxLost
from pytest_uniclaw.judge.conversation import Limits
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.person import ModelSimulator
from pytest_uniclaw.loop import run_attempt
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.client import Gateway, GatewayProcess, start_gateway
from pytest_uniclaw.models.grants import Call, Provider, Role, Tuning
from pytest_uniclaw.sandbox.base import Completed, Workspace, WorkspaceJob
from pytest_uniclaw.status import Status
from pytest_uniclaw.verdict import Assessment, State
from tests.support.faulty import (
    FILTERED,
    QUOTA,
    SERVER,
    TOO_LONG,
    UNKNOWN_PARAMETER,
    WRONG_KEY,
    FaultyProvider,
    answer,
    cut_off,
    hang,
    page,
    slow_down,
)
from tests.support.judging import FakeProvider, calls, use
from tests.support.scripted_upstream import Act, ask, running

pytestmark = pytest.mark.processes

Json = dict[str, Any]
TRIES = 2
TUNING = Tuning(tries=TRIES, idle_seconds=30, backoff_seconds=0.01, backoff_cap_seconds=0.01, give_up_seconds=20)
IMPATIENT = TUNING.model_copy(update={"idle_seconds": 0.4})
"""For providers that hang, and for nothing else: a busy machine must not look like one."""
KEY = "sk-real-key-of-the-provider"


@dataclass
class Rehearsal(Stage):
    """An attempt whose roles ask the models of ``acts``; a role without acts is a stand-in that always passes.

    The agent asks its model once a turn and has finished when it got an answer and ``exit_code`` is 0; the judge's
    stand-in lets the first ``failing`` turns fail. Deliverable of every turn is ``half``.
    """

    process: GatewayProcess | None = None
    acts: dict[Role, list[Act]] = field(default_factory=dict)
    provider: FaultyProvider = field(default_factory=FaultyProvider)
    stream: bool = True
    failing: int = 0
    key: str = ""
    limits: Mapping[str, float] = field(default_factory=dict)
    desks: FakeProvider = field(default_factory=FakeProvider)

    @property
    def asks(self) -> bool:
        return "executor" in self.acts

    def prepare(self, sandbox: object, task: object, access: Any) -> None:
        self.key = access.key if access else ""

    def turn(self, sandbox: FakeSandbox, request: Any) -> Completed:
        began = time.monotonic()
        request.log.write_text("done")
        code = self.exit_code
        if self.key:
            assert self.process is not None
            body = {"model": self.model("executor"), "messages": [{"role": "user", "content": request.message}]}
            reply = ask(self.process.address.agent_socket, self.key, body | {"stream": self.stream})
            broken = any(isinstance(event, dict) and "error" in event for event in reply.events)
            code = code if reply.status == 200 and not broken else 1
        return Completed(Ending.EXITED, code, b"", time.monotonic() - began)

    def assess(self, case: Any) -> Assessment:
        assessment = super().assess(case)
        if case.turn > self.failing:
            return assessment
        lines = [j.model_copy(update={"state": State.UNMET, "fraction": 0.0}) for j in assessment.judgements]
        return assessment.model_copy(update={"judgements": tuple(lines)})

    def open_workspace(self, job: WorkspaceJob) -> AbstractContextManager[Workspace]:
        return self.desks.open_workspace(job)

    def model(self, role: Role) -> str:
        """The name of a role's model, its own in every test: no cool-down reaches another test."""
        return f"{role}-{self.root.name}"

    def choice(self, role: Role) -> ModelChoice:
        self.provider.lanes[self.model(role)] = self.acts[role]
        return ModelChoice("faulty", self.model(role))

    def run(self, *, followups: int = 1, retries: int = 0, **given: Any) -> Attempt:
        assert self.process is not None
        spec = spec_of(self, gateway=self.process.address, retries=retries)
        parts: Json = {"model": self.choice("executor") if self.asks else None}
        if "supervisor" in self.acts:
            parts["supervisor"] = ModelSupervisor(self.choice("supervisor"), limits=Limits(**self.limits))
        if "user_simulator" in self.acts:
            parts["simulator"] = ModelSimulator(self.choice("user_simulator"))
        directory = spec.directory.with_name(f"p1-{self.root.name}")
        directory.mkdir()
        return run_attempt(replace(spec, directory=directory, budget=Budget(followups=followups), **parts, **given))

    def calls(self, attempt: Attempt, role: Role) -> list[Call]:
        assert self.process is not None
        return Gateway(self.process.address).calls(attempt.attempt_id, role)


@pytest.fixture(scope="module")
def provider() -> Iterator[FaultyProvider]:
    with running(FaultyProvider()) as server:
        yield server


@pytest.fixture(scope="module")
def gateway(provider: FaultyProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    known = Provider(name="faulty", base_url=provider.base_url, api_key=KEY)
    with start_gateway(tmp_path_factory.mktemp("gateway"), [known], tuning=TUNING) as process:
        yield process


@pytest.fixture(scope="module")
def impatient(provider: FaultyProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    known = Provider(name="faulty", base_url=provider.base_url)
    with start_gateway(tmp_path_factory.mktemp("impatient"), [known], tuning=IMPATIENT) as process:
        yield process


Rehearse = Callable[..., Rehearsal]


@pytest.fixture
def rehearse(provider: FaultyProvider, gateway: GatewayProcess, tmp_path: Path) -> Rehearse:
    """Make a rehearsal from the acts of its roles: ``rehearse(supervisor=[…])``."""

    def make(
        executor: list[Act] | None = None, supervisor: list[Act] | None = None, simulator: list[Act] | None = None,
        **more: Any,
    ) -> Rehearsal:  # fmt: skip
        given: dict[Role, list[Act] | None] = {
            "executor": executor, "supervisor": supervisor, "user_simulator": simulator,
        }  # fmt: skip
        acts = {role: list(played) for role, played in given.items() if played}
        failing = more.pop("failing", 1 if simulator else 0)
        return Rehearsal(tmp_path, provider=provider, acts=acts, failing=failing, **{"process": gateway, **more})

    return make


def submission(**changes: Any) -> Json:
    """A sound submission that earns everything."""
    proof = {"reason": "it is there", "evidence": [{"path": "evidence/results/half", "quote": "half"}]}
    return {
        "checkpoints": [{"id": name, "state": "met"} | proof for name in ("C1", "C2")],
        "caps": [{"id": "fabricated_rows", "triggered": False, "reason": "none is made up"}],
        "recovery": {"recoverable": True, "reason": "it could go on"},
        "decision": {
            "verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": True, "score": 1.0,
            "confidence": 0.9, "rationale": "all is there",
        },
    } | changes  # fmt: skip


def with_line(name: str, **line: Any) -> Json:
    """The sound submission with another answer for one checkpoint."""
    payload = submission()
    payload["checkpoints"] = [{"id": name} | line if x["id"] == name else x for x in payload["checkpoints"]]
    return payload


def submit(payload: Json) -> Act:
    """The judge calls its final tool."""
    return answer(lambda nonce: calls(use("submit_assessment", payload | {"nonce": nonce})))


def written(payload: Json, change: Callable[[str], str] = lambda text: text) -> Act:
    """The judge answers in text; ``change`` makes something else of the JSON."""
    return answer(lambda nonce: change(json.dumps(payload | {"nonce": nonce}, ensure_ascii=False)))


def speak(message: str, mode: str = "instruction") -> Act:
    """The user simulator calls its final tool."""
    return answer(calls(use("say_to_agent", {"mode": mode, "message": message})))


GOOD = submit(submission())
PLEASE = "Please compare both files once more."

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


def fenced(text: str) -> str:
    return f"Here is what I found.\n```json\n{text}\n```\nThat is my assessment."


FENCES_INSIDE = with_line("C1", state="met", reason="it has\n```json\n{}\n``` in it", evidence=[
    {"path": "evidence/results/half", "quote": "half"}])  # fmt: skip
DECISION = submission()["decision"]
CONTRADICTIONS = {
    "pass_but_incomplete": submission(decision=DECISION | {"attempt_state": "incomplete"}),
    "met_but_0.4": with_line("C1", state="met", fraction=0.4, reason="r", evidence=[
        {"path": "evidence/results/half", "quote": "half"}]),
    "continue_but_lost": submission(decision=DECISION | {"verdict": "continue", "attempt_state": "incomplete",
                                                         "recoverable": False}),
    "two_recoverables": submission(decision=DECISION | {"verdict": "fail", "attempt_state": "terminal_failure",
                                                        "recoverable": False}),
}  # fmt: skip
# What a judge answers, and what it is told is wrong with it.
UNUSABLE: dict[str, tuple[Act, str]] = {
    "prose": (answer("The agent did well, I would let it pass."), "there is no complete JSON object"),
    "silence": (answer(""), "there is no complete JSON object"),
    "null": (answer({"role": "assistant", "content": None}), "there is no complete JSON object"),
    "broken_fence": (written(FENCES_INSIDE, lambda text: fenced(text.replace("\\n", "\n"))), "not valid JSON"),
    "unknown_shape": (answer({"content": "It passes.", "tool_calls": [None]}), "there is no complete JSON object"),
    "single_quotes": (written(submission(), lambda text: text.replace('"', "'")), "not valid JSON"),
    "trailing_comma": (written(submission(), lambda text: text[:-1] + ",}"), "not valid JSON"),
    "duplicate_keys": (written(submission(), lambda text: text[:-1] + ', "caps": []}'), "'caps' stands twice"),
    "out_of_range": (submit(submission(decision=DECISION | {"score": 1.2})), "decision.score"),
    "percent": (submit(submission(decision=DECISION | {"confidence": 90})), "decision.confidence"),
    "NaN": (written(submission(), lambda text: text.replace("1.0", "NaN")), "NaN is no JSON number"),
    "string_score": (submit(submission(decision=DECISION | {"score": "1.0"})), "(a string)"),
    "missing_checkpoint": (submit(submission(checkpoints=submission()["checkpoints"][:1])), "missing C2"),
    "invented_checkpoint": (submit(submission(checkpoints=[
        *submission()["checkpoints"], submission()["checkpoints"][0] | {"id": "C3"}])), "'C3' is not in the rubric"),
    "half_a_call": (answer(calls(use("submit_assessment", '{"checkpoints": [{"id": "C1", '))), "not valid JSON"),
    "NaN_in_a_call": (answer(calls(use("submit_assessment", '{"checkpoints": [], "score": NaN}'))), "NaN is no JSON"),
    **{name: (submit(payload), "contradict" if "pass" not in name else "verdict pass needs")
       for name, payload in CONTRADICTIONS.items()},
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_judgement_is_asked_for_again(rehearse: Rehearse, name: str) -> None:
    bad, words = UNUSABLE[name]
    stage = rehearse(supervisor=[bad, bad, GOOD])
    attempt = stage.run()
    assert (attempt.status, attempt.score) == (Status.PASS, 1.0), attempt.reason
    asked = stage.provider.asked(stage.model("supervisor"))
    assert len(asked) == 3
    told = asked[-1]["messages"][-1]
    assert told["role"] == ("tool" if asked[-1]["messages"][-2].get("tool_calls") else "user")
    assert told["content"].startswith("[uniclaw re-ask] ")
    assert words in told["content"]


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_judgement_that_stays_unusable_is_none(rehearse: Rehearse, name: str) -> None:
    bad, words = UNUSABLE[name]
    stage = rehearse(supervisor=[bad])
    attempt = stage.run()
    assert attempt.status is Status.UNJUDGED
    assert "the model gave no usable answer (after 2 re-asks)" in attempt.problem
    assert words in attempt.problem
    assert len(stage.calls(attempt, "supervisor")) == 3
    assert attempt.turns[0].verdict is None
    assert attempt.last_score is None


@pytest.mark.parametrize("make", [lambda text: text, fenced], ids=["bare", "fences_inside"])
def test_a_whole_object_in_a_text_is_an_answer(rehearse: Rehearse, make: Callable[[str], str]) -> None:
    stage = rehearse(supervisor=[written(FENCES_INSIDE, make)])
    attempt = stage.run()
    assert attempt.status is Status.PASS, attempt.reason
    assert len(stage.calls(attempt, "supervisor")) == 1


def test_what_a_judge_cannot_determine_is_unjudged(rehearse: Rehearse) -> None:
    stage = rehearse(supervisor=[submit(with_line("C2", state="cannot_determine", reason="the file is encrypted"))])
    attempt = stage.run()
    assert attempt.status is Status.UNJUDGED
    assert attempt.problem == "checkpoint C2 could not be judged: the file is encrypted"
    assert len(stage.calls(attempt, "supervisor")) == 1, "that is an answer"


INVENTED = submit(with_line("C2", state="met", reason="seen", evidence=[
    {"path": "evidence/results/half", "quote": "the total is 412.50"}]))  # fmt: skip


def test_a_quote_that_stands_nowhere_is_asked_for_once_more_and_gives_no_point(rehearse: Rehearse) -> None:
    stage = rehearse(supervisor=[INVENTED])
    attempt = stage.run()
    assert attempt.status is Status.UNJUDGED
    assert "checkpoint C2 could not be judged: no evidence for 'met' could be verified" in attempt.problem
    assert len(stage.calls(attempt, "supervisor")) == 2


def test_a_quote_may_be_mended(rehearse: Rehearse) -> None:
    stage = rehearse(supervisor=[INVENTED, GOOD])
    assert stage.run().status is Status.PASS


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (answer("Could you please have another look?"), "no complete JSON object"),
        (answer(""), "no complete JSON object"),
        (speak(""), "message: must hold words"),
        (speak("…!?"), "message: must hold words"),
        (speak("a " * 1000), "must have at most 1200 characters"),
        (speak("Please go on.", "shout"), "mode: Input should be 'silent', 'nudge' or 'instruction'"),
        (answer(calls(use("say_to_agent", "{'mode': 'nudge'}"))), "not valid JSON"),
    ],
    ids=["prose", "silence", "empty", "no_words", "long", "mode", "single_quotes"],
)
def test_a_user_who_says_nothing_usable_is_asked_again(rehearse: Rehearse, act: Act, words: str) -> None:
    stage = rehearse(simulator=[act, act, speak(PLEASE)])
    attempt = stage.run()
    assert (attempt.status, attempt.turns[1].message) == (Status.PASS, PLEASE)
    asked = stage.provider.asked(stage.model("user_simulator"))
    assert len(asked) == 3
    assert words in asked[-1]["messages"][-1]["content"]


def test_a_user_who_never_says_anything_is_a_simulator_error(rehearse: Rehearse) -> None:
    stage = rehearse(simulator=[answer("Could you please have another look?")])
    attempt = stage.run()
    assert attempt.status is Status.SIMULATOR_ERROR
    assert "the simulated user did not answer: the model gave no usable answer (after 2 re-asks)" in attempt.problem
    assert len(stage.calls(attempt, "user_simulator")) == 3
    assert attempt.turns[0].verdict is not None, "the turn was judged"


LEAK = "Your score is 0.40, the rubric wants a note."


def test_a_user_who_leaks_is_asked_to_write_again(rehearse: Rehearse) -> None:
    stage = rehearse(simulator=[speak(LEAK), speak(PLEASE)])
    attempt = stage.run()
    assert (attempt.status, attempt.turns[1].message) == (Status.PASS, PLEASE)
    follow_up = attempt.turns[0].follow_up
    assert follow_up is not None
    assert (follow_up.candidate, follow_up.revised) == (LEAK, PLEASE)
    assert "asked again" in follow_up.decisions
    told = stage.provider.asked(stage.model("user_simulator"))[-1]["messages"][-1]["content"]
    assert "0.40" not in told, "kinds, never values"


def test_a_user_who_leaks_again_says_a_neutral_line(rehearse: Rehearse) -> None:
    stage = rehearse(simulator=[speak(LEAK)])
    attempt = stage.run()
    assert attempt.status is Status.PASS
    assert "score" not in attempt.turns[1].message
    assert attempt.turns[0].follow_up is not None
    assert attempt.turns[0].follow_up.decisions[-1] == "fallback"
    assert len(stage.calls(attempt, "user_simulator")) == 2


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
