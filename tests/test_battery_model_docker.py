"""A failing model and hostile text in one session of real nanobot on the scripted model (design.md section 5).

What the provider did is infrastructure, what the executor did with it is not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.packages import DONE, Suite
from support.sessions import Session, run

docker = pytest.importorskip("docker")
pytestmark = pytest.mark.docker

PREPARE = f"mkdir -p /tmp_workspace/results; {DONE}"
SAY = {"say": "done.txt is written."}
BINARY = PREPARE + r"printf 'tool \377\376 \000 \033[31m \355\240\200 end'"
LINES = r"""
\377\000 {[[
"text"
{"role": 7, "content": {"a": [null]}, "tool_calls": "x"}
{"role": "assistant", "content": "lone \\ud800 surrogate \\u0000 NUL", "timestamp": 1e999}
{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!"}}]}
"""
SPOIL = f"""{PREPARE}
printf '{LINES}' >> /tmp_workspace/sessions/chat.jsonl
python3 -c 'print(chr(91) * 200_000)' >> /tmp_workspace/sessions/chat.jsonl
kill -9 -1
"""
SCRIPTS: dict[str, list[list[dict[str, Any]]]] = {
    "rate_limit": [[{"fail": {"status": 429, "type": "rate_limit"}}]],
    "quota": [[{"fail": {"status": 429, "code": "insufficient_quota"}}]],
    "auth": [[{"fail": {"status": 401}}]],
    "server": [[{"shell": PREPARE}, {"fail": {"status": 500}}]],
    "cut": [[{"reset": True}]],
    "context": [[{"fail": {"status": 400, "code": "context_length_exceeded", "message": "maximum context length"}}]],
    "recovers": [[{"fail": {"status": 429, "times": 1, "retry_after": 1}}, {"shell": PREPARE}, SAY]],
    "binary": [[{"shell": BINARY}, {"say": "it said {last_tool_output} \x1b[31m"}]],
    "suicide": [[{"shell": f"{PREPARE}kill -9 -1"}, SAY]],
    "spoiled": [[{"shell": SPOIL}, SAY]],
}  # fmt: skip
INFRA = {
    "rate_limit": "rate_limit", "quota": "rate_limit", "auth": "infra_error", "server": "infra_error",
    "cut": "infra_error",
}  # fmt: skip


@pytest.fixture(scope="module")
def battery(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The session, run to its end."""
    suite = Suite.make(tmp_path_factory.mktemp("battery"))
    for name, script in SCRIPTS.items():
        suite.add(name, script=script, agent_sys="nanobot")
    return run(suite.root, "-n", "2", "--model=script", "--uniclaw-infra-retries=0", "--html=report.html")


def transcript(session: Session, name: str) -> list[dict[str, Any]]:
    path: Path = session.attempt(name)["folder"] / "turns" / "1" / "evidence" / "transcript.jsonl"
    return [json.loads(line) for line in path.read_bytes().decode("utf-8").splitlines()]


def test_the_session_ends_as_a_whole(battery: Session) -> None:
    assert battery.code == pytest.ExitCode.TESTS_FAILED, battery.output
    assert "INTERNALERROR" not in battery.output
    assert "node down" not in battery.output
    assert "2/10 passed, 5 infra, coverage 5/10" in battery.output, battery.output
    assert "\x1b[31m" not in battery.output
    for name in SCRIPTS:
        assert f"task_101_{name}" in (battery.root / "report.html").read_text("utf-8")


@pytest.mark.parametrize("name", INFRA)
def test_a_failing_provider_is_infrastructure(battery: Session, name: str) -> None:
    attempt = battery.attempt(name)
    assert (battery.cases[name].outcome, attempt["status"]) == ("error", INFRA[name]), attempt["reason"]
    (turn,) = attempt["turns"]
    assert not turn["finished"]
    assert transcript(battery, name)[0]["message"]["role"] == "user"


def test_a_context_that_is_too_long_is_the_executors_own(battery: Session) -> None:
    assert (battery.cases["context"].outcome, battery.cases["context"].status) == ("failure", "executor_incomplete")


@pytest.mark.parametrize("name", ["recovers", "binary"])
def test_what_passes_in_spite_of_it(battery: Session, name: str) -> None:
    assert (battery.cases[name].outcome, battery.cases[name].status) == ("passed", "pass"), battery.cases[name].message


def test_bytes_that_are_no_text_leave_a_clean_transcript(battery: Session) -> None:
    texts = json.dumps(transcript(battery, "binary"), ensure_ascii=False)
    assert "it said tool \ufffd\ufffd" in texts
    texts.encode("utf-8")


@pytest.mark.parametrize("name", ["suicide", "spoiled"])
def test_an_agent_that_kills_itself_keeps_its_conversation(battery: Session, name: str) -> None:
    attempt = battery.attempt(name)
    assert (battery.cases[name].outcome, attempt["status"]) == ("failure", "executor_incomplete"), attempt["reason"]
    assert attempt["unfinished_best"] == 1.0
    blocks = [block for record in transcript(battery, name) for block in record.get("message", {}).get("content", ())]
    assert name == "spoiled" or any(block.get("type") == "toolCall" for block in blocks)
