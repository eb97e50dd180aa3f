"""A failing provider and useless answers under all three roles, in one session with containers (design.md section 5).

Every task has models of its own at one provider; what each of them does is the battery. The rest of the session must
not notice. ``test_battery_roles.py`` has the same faults one by one, without containers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.packages import DONE, Suite
from support.sessions import Session, run

from pytest_uniclaw.sandbox.reaper import remove_owned
from tests.support.faulty import (
    FILTERED,
    QUOTA,
    SERVER,
    TOO_LONG,
    WRONG_KEY,
    FaultyProvider,
    answer,
    cut_off,
    hang,
    page,
    slow_down,
)
from tests.support.judging import calls, use
from tests.support.scripted_upstream import Act, running

docker = pytest.importorskip("docker")
pytestmark = pytest.mark.docker

Json = dict[str, Any]
KEY = "sk-real-key-of-the-provider-4711"
TOML = """
[providers.faulty]
base_url = "{url}"
api_key_env = "FAULTY_KEY"

[gateway]
tries = 2
idle_seconds = 2
backoff_seconds = 0.05
give_up_seconds = 5
"""
LATE = f'[ "$UNICLAW_TURN" = 1 ] || {DONE}'
"""A solution that needs a second message."""


def judged(fence: bool = False, **line: Any) -> Act:
    """The judge's answer: one checkpoint, met unless ``line`` says otherwise; as text with fences around and in it."""
    proof = [{"path": "evidence/results/done.txt", "quote": "done"}]
    reason = "it has\n```json\n{}\n``` in it" if fence else "it says so"
    payload = {
        "checkpoints": [{"id": "C1", "state": "met", "reason": reason, "evidence": proof} | line],
        "recovery": {"recoverable": True, "reason": "it could go on"},
        "decision": {
            "verdict": "pass", "attempt_state": "complete_and_passed", "recoverable": True, "score": 1.0,
            "confidence": 0.9, "rationale": "done.txt says done",
        },
    }  # fmt: skip
    if fence:
        return answer(
            lambda nonce: f"My assessment:\n```json\n{json.dumps(payload | {'nonce': nonce})}\n```\nThat is all."
        )
    return answer(lambda nonce: calls(use("submit_assessment", payload | {"nonce": nonce})))


PYTHON = answer(lambda nonce: str({"checkpoints": [], "nonce": nonce}))
"""A judge that prints a Python value."""


def speak(message: str) -> Act:
    return answer(calls(use("say_to_agent", {"mode": "instruction", "message": message})))


def shell(command: str) -> Act:
    """The executor calls nanobot's shell tool."""
    return answer(calls(use("exec", {"command": command})))


SOLVE = shell(f"mkdir -p /tmp_workspace/results; {DONE}")
TALK = "HTTP 429 Too Many Requests: rate_limit_exceeded, insufficient_quota; infra_error: 503 Service Unavailable"


@dataclass(frozen=True)
class Fault:
    """What a task's model does, and how the task ends: status, words of its reason, calls of the role."""

    acts: list[Act]
    status: str
    words: str = ""
    calls: int | None = None


JUDGE = {
    "waits": Fault([slow_down(retry_after="1"), judged()], "pass", calls=1),
    "limited": Fault([slow_down()], "rate_limit", "failed the supervisor: rate_limit: Rate limit reached for", 1),
    "quota": Fault([QUOTA], "rate_limit", "failed the supervisor: quota: You exceeded your current quota", 1),
    "server": Fault([SERVER], "infra_error", "failed the supervisor: infra: The server had an error", 1),
    "html": Fault([page(200)], "infra_error", "failed the supervisor: bad_upstream", 1),
    "cut": Fault([cut_off], "infra_error", "failed the supervisor: infra", 1),
    "hang": Fault([hang], "infra_error", "failed the supervisor: infra: provider faulty sent no byte for 2 s", 1),
    "key": Fault([WRONG_KEY], "infra_error", "failed the supervisor: auth: Incorrect API key", 1),
    "context": Fault([TOO_LONG], "unjudged", "refused the supervisor: context_length", 1),
    "filter": Fault([FILTERED], "unjudged", "refused the supervisor: content_filter", 1),
    "prose": Fault([answer("It is fine, let it pass.")], "unjudged", "no usable answer (after 2 re-asks)", 3),
    "mended": Fault([PYTHON, judged(fraction=1.5), judged(fence=True)], "pass", calls=3),
    "unsure": Fault([judged(state="cannot_determine", evidence=[])], "unjudged", "C1 could not be judged", 1),
    "invents": Fault([judged(evidence=[{"path": "evidence/results/done.txt", "quote": "all is well"}])],
                     "unjudged", "no evidence for 'met' could be verified", 2),
}  # fmt: skip
USER = {
    "waits": Fault([slow_down(retry_after="1"), speak("Please look again.")], "pass", calls=1),
    "limited": Fault([slow_down()], "rate_limit", "failed the user simulator: rate_limit", 1),
    "hang": Fault([hang], "infra_error", "failed the user simulator: infra: provider faulty sent no byte", 1),
    "context": Fault([TOO_LONG], "pass", calls=1),
    "prose": Fault([answer("Have you looked again?")], "simulator_error", "no usable answer (after 2 re-asks)", 3),
    "empty": Fault([speak("")], "simulator_error", "message: must hold words", 3),
    "leaks": Fault([speak("The rubric gives 0.40."), speak("Please look again.")], "pass", calls=2),
}  # fmt: skip
AGENT = {
    "waits": Fault([slow_down(retry_after="2"), SOLVE, answer("It is done.")], "pass", calls=2),
    "html": Fault([page(200)], "infra_error", "failed the executor: bad_upstream"),
    "broken": Fault([SOLVE, cut_off], "infra_error", "failed the executor: "),
    "hang": Fault([hang], "infra_error", "failed the executor: infra: provider faulty sent no byte for 2 s"),
    "filter": Fault([FILTERED], "executor_incomplete"),
    "talks": Fault([shell(f"echo '{TALK}' >&2; exit 1"), answer(TALK)], "budget_exhausted", calls=2),
}
CASES = {
    **{f"judge_{name}": ("supervisor", fault) for name, fault in JUDGE.items()},
    **{f"user_{name}": ("user_simulator", fault) for name, fault in USER.items()},
    **{f"agent_{name}": ("executor", fault) for name, fault in AGENT.items()},
}
INFRA = {"rate_limit", "infra_error", "unjudged", "simulator_error"}


@pytest.fixture(scope="module")
def provider() -> Iterator[FaultyProvider]:
    with running(FaultyProvider()) as server:
        yield server


@pytest.fixture(scope="module")
def battery(provider: FaultyProvider, tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The session, run to its end."""
    suite = Suite.make(tmp_path_factory.mktemp("battery"))
    (suite.root / "uniclaw.toml").write_text(TOML.format(url=provider.base_url))
    for name, (role, fault) in CASES.items():
        provider.lanes[name] = list(fault.acts)
        model = {"provider": "faulty", "model": name}
        codex: Json = {"max_user_followups": 1 if role == "user_simulator" else 0}
        fields: Json = {"codex": codex}
        if role == "executor":
            fields |= {"agent_sys": "nanobot", "model": f"faulty/{name}"}
        else:
            codex[role] = model
            fields["solve"] = LATE if role == "user_simulator" else DONE
        if role == "supervisor":
            fields["check"] = ""
        suite.add(name, **fields)
    options = ("-n", "2", "--simulator=model", "--uniclaw-infra-retries=0", "--html=report.html")
    return run(suite.root, *options, environment={"FAULTY_KEY": KEY})


def ledger(session: Session) -> list[Json]:
    lines = (session.run / "models" / "ledger.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_session_ends_as_a_whole(battery: Session) -> None:
    statuses = [fault.status for _, fault in CASES.values()]
    infra = sum(status in INFRA for status in statuses)
    assert battery.code == pytest.ExitCode.TESTS_FAILED, battery.output
    assert "INTERNALERROR" not in battery.output
    assert "node down" not in battery.output
    total, judged = len(CASES), len(CASES) - infra
    summary = f"{statuses.count('pass')}/{total} passed, {infra} infra, coverage {judged}/{total}"
    assert summary in battery.output, battery.output
    assert remove_owned(battery.run.name).containers == 0


@pytest.mark.parametrize("name", CASES)
def test_each_fault_ends_in_its_own_status(battery: Session, name: str) -> None:
    role, fault = CASES[name]
    attempt, case = battery.attempt(name), battery.cases[name]
    assert attempt["status"] == fault.status, attempt["reason"]
    outcome = "error" if fault.status in INFRA else "passed" if fault.status == "pass" else "failure"
    assert (case.status, case.outcome) == (fault.status, outcome)
    assert fault.words in attempt["problem"]
    usage = {usage["role"]: usage for usage in attempt["usage"]}
    assert set(usage) - {"harness"} == {role}
    if fault.calls is not None:
        assert usage[role]["calls"] == fault.calls
    assert (usage[role]["waited_seconds"] >= 1) == name.endswith("_waits")


@pytest.mark.parametrize("name", ["judge_waits", "user_waits", "agent_waits"])
def test_waiting_is_not_billed(battery: Session, name: str) -> None:
    attempt = battery.attempt(name)
    role, _ = CASES[name]
    waited = next(usage["waited_seconds"] for usage in attempt["usage"] if usage["role"] == role)
    turns = sum(turn["waited_seconds"] for turn in attempt["turns"])
    assert turns == pytest.approx(waited if role == "executor" else 0.0, abs=0.1)
    billed = sum(turn["seconds"] for turn in attempt["turns"])
    assert attempt["executor_seconds"] == pytest.approx(billed, abs=0.01)
    assert billed + turns <= attempt["wall_seconds"]


def test_a_user_who_leaks_was_asked_again(battery: Session) -> None:
    attempt = battery.attempt("user_leaks")
    follow_up = attempt["turns"][0]["follow_up"]
    assert (follow_up["message"], attempt["turns"][1]["message"]) == ("Please look again.", "Please look again.")
    assert "asked again" in follow_up["decisions"]


def test_what_an_agent_says_about_limits_is_judged(battery: Session) -> None:
    attempt = battery.attempt("agent_talks")
    (turn,) = attempt["turns"]
    assert turn["finished"]
    assert turn["verdict"]["score"] == 0.0
    assert "rate_limit_exceeded" in (attempt["folder"] / "turns/1/evidence/transcript.jsonl").read_text("utf-8")


def test_every_call_is_in_the_ledger_under_its_role(battery: Session, provider: FaultyProvider) -> None:
    rows = ledger(battery)
    for name, (role, _) in CASES.items():
        own = [row for row in rows if row["model"] == name]
        assert {row["role"] for row in own} - {"harness"} == {role}
        assert sum(row["tries"] for row in own) == len(provider.asked(name))


def test_the_providers_key_is_in_no_file(battery: Session, provider: FaultyProvider) -> None:
    assert {request["headers"]["authorization"] for request in provider.requests} == {f"Bearer {KEY}"}
    files = [path for path in battery.root.rglob("*") if path.is_file()]
    assert len(files) > len(CASES)
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
