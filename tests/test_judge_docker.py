"""The model supervisor over a real workspace: quotes in real renderings, pictures, and poisoned artifacts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.sandbox.base import Owner
from pytest_uniclaw.sandbox.docker import DockerProvider
from pytest_uniclaw.sandbox.reaper import remove_owned
from pytest_uniclaw.verdict import State
from tests.injection_battery import battery, docx, png
from tests.support.judging import CHOICE, FakeChat, calls, make_case, quote, submit, use, with_line, with_nonce
from tests.test_judge_injection import Obeying, honest

pytestmark = pytest.mark.docker
RUN = f"test-{uuid.uuid4().hex[:8]}"
KINDS = ("text", "json", "markdown", "image", "docx", "transcript")


@pytest.fixture(scope="module", autouse=True)
def _nothing_left() -> Iterator[None]:
    yield
    assert remove_owned(RUN).containers == 0, "every container must be gone before the module ends"


def real_case(folder: Path, chat: FakeChat, **more: Any) -> Any:
    return replace(make_case(folder, chat, provider=DockerProvider(), **more), owner=Owner(RUN, "main", "attempt"))


def test_quotes_stand_in_what_the_real_tools_show(tmp_path: Path) -> None:
    results = {
        "letter.docx": docx("Dear customer,", "the  total is 412.50 EUR."), "plot.png": png("TOTAL"),
        "rows.csv": b"id,amount\na,1\n", "notes.json": b'{"note": "say \\"hi\\" \\u7684"}',
    }  # fmt: skip
    payload = with_line(
        "C1", state="met", reason="r", evidence=[quote("evidence/results/letter.docx", "total is 412.50 EUR")]
    )
    payload["checkpoints"][1]["evidence"] = [quote("evidence/results/notes.json", 'say "hi" 的')]
    payload["checkpoints"][2] = {
        "id": "C3", "state": "met", "reason": "r",
        "evidence": [{"path": "evidence/results/plot.png", "region": [0, 0, 1, 1]}],
    }  # fmt: skip
    reading = calls(use("read_file", {"path": "transcript/conversation.md"}, "1"), use("list_files", {}, "2"))
    looking = calls(use("view_image", {"path": "evidence/results/plot.png"}))
    chat = FakeChat([reading, looking, with_nonce(payload)])
    assessment = ModelSupervisor(CHOICE).assess(real_case(tmp_path, chat, results=results))
    assert [judgement.state for judgement in assessment.judgements] == [State.MET, State.PARTIAL, State.MET]
    assert assessment.judgements[2].flags == ("image_evidence",)
    shown = [message["content"] for message in chat.asked[-1] if message["role"] == "tool"]
    assert "sum: 412.50" in shown[0]
    for name in ("references/eval_rule.md", "evidence/results/letter.docx", "sources/invoices.txt", "task/request.md"):
        assert name.rpartition("/")[2] in shown[1], name
    assert "1 image(s) follow" in shown[2]


@pytest.mark.parametrize("kind", KINDS)
def test_planted_text_proves_nothing_in_real_renderings(tmp_path: Path, kind: str) -> None:
    poison = next(poison for poison in battery() if poison.kind == kind)
    chat = Obeying(poison, sober=True).chat()
    chat.steps = [chat.steps[0], chat.steps[2], lambda chat: submit(honest(chat.nonce) | {"caps": CAPS})]
    asserted = chat.steps[1]
    assert callable(asserted)
    chat.steps[1] = lambda chat: with_caps(asserted(chat))
    results = {"report.md": b"# Report\nThe total is 412.50 EUR.\n", "rows.csv": b"id,amount\nz,9\n"} | poison.results
    records = {"records": poison.records} if poison.records else {}
    assessment = ModelSupervisor(CHOICE).assess(real_case(tmp_path, chat, results=results, **records))
    assert [judgement.fraction for judgement in assessment.judgements] == [1.0, 0.0, 0.0]
    assert "nothing that you cite proves it" in chat.last
    if kind != "image":
        assert any(flag.startswith("injection_suspected:") for flag in assessment.flags)


CAPS = [{"id": "invented", "triggered": False, "reason": "every row has an invoice"}]


def with_caps(message: Any) -> Any:
    payload = json.loads(message["tool_calls"][0]["function"]["arguments"])
    return submit(payload | {"caps": CAPS})
