"""The scripts in demo/ come to the scores that they state, without a container: tests/test_roles_docker.py has those.

What the executor's script does is run with bash in a folder of the test; supervisor and rewriter are the real ones.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_uniclaw.judge.base import Case, Evidence, Scene, Visible
from pytest_uniclaw.judge.firewall import fingerprints_of
from pytest_uniclaw.judge.gate import FollowUpText, write_follow_up
from pytest_uniclaw.judge.model import ModelSupervisor
from pytest_uniclaw.judge.person import ModelSimulator
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.models.script import Use, load_script
from pytest_uniclaw.package import Reader, load_rubric
from pytest_uniclaw.sandbox.base import Owner
from pytest_uniclaw.task import PublicView, load_task, public_view, resolve_variant
from pytest_uniclaw.verdict import Verdict, compute_verdict, handoff_of
from tests.support.judging import FakeChat, FakeProvider, FakeRoles, write_evidence
from tests.support.role_provider import message_of

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "demo"
TASK = load_task(ROOT / "suites" / "102_exploration" / "task_102_01_override_root_cause.yaml")
OWNER = Owner("run", "main", "attempt")
CHOICE = ModelChoice("script", "scripted")


@dataclass(frozen=True)
class Played:
    """The verdicts of the three turns and the two follow-ups between them."""

    verdicts: tuple[Verdict, ...]
    follow_ups: tuple[FollowUpText, ...]


def chats(name: str) -> Iterator[FakeChat]:
    """Yield a conversation per turn that says what the script has for it."""
    for turn in load_script(DEMO / name, TASK.task_id).turns:
        yield FakeChat([message_of(step, str(number)) for number, step in enumerate(turn)])


def work(folder: Path, turn: int) -> dict[str, str | bytes]:
    """Do what the executor's script does in a turn, and return its deliverables."""
    workspace = folder / "tmp_workspace"
    sources = workspace / "clawbench" / "sources"
    if turn == 1:
        shutil.copytree(TASK.folder / "sources", sources)
    for step in load_script(DEMO / "executor.yaml").turns[turn - 1]:
        for call in step.calls if isinstance(step, Use) else ():
            command = (call.shell or "").replace("/tmp_workspace", str(workspace))
            subprocess.run(["bash", "-euc", command], check=True, capture_output=True, timeout=30)
    return {path.name: path.read_bytes() for path in sorted((workspace / "results").iterdir())}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("demo")
    rubric, view, hidden = load_rubric(TASK, Reader.SUPERVISOR), view_of(), fingerprints_of(TASK)
    judge, user = ModelSupervisor(CHOICE), ModelSimulator(CHOICE)
    desks = FakeProvider(broken=frozenset({"search"}))  # the fake one has no such tool
    judging, speaking = FakeRoles(list(chats("supervisor.yaml"))), list(chats("user.yaml"))
    verdicts: list[Verdict] = []
    follow_ups: list[FollowUpText] = []
    for turn in (1, 2, 3):
        results = work(folder, turn)
        write_evidence(folder, turn, results, [("user", [{"type": "text", "text": view.prompt}])])
        evidence = Evidence(folder / "turns" / str(turn) / "evidence")
        case = Case(
            TASK, rubric, evidence, turn, tuple(verdicts), desks, OWNER, finished=True,
            followups_left=3 - turn, roles=judging,
        )  # fmt: skip
        assessment = judge.assess(case)
        verdicts.append(
            compute_verdict(rubric, assessment, threshold=TASK.threshold, followups_left=3 - turn, finished=True)
        )
        if turn < 3:
            history = tuple(text.message for text in follow_ups)
            # A conversation of its own for a second candidate: it goes on where the first one stopped.
            told = speaking[turn - 1]
            roles = FakeRoles([told, FakeChat(list(told.steps)[1:])])
            scene = Scene(
                view, Visible("It is done.", tuple(results), turn), handoff_of(verdicts[-1]), history,
                results=evidence.results, provider=desks, owner=OWNER, roles=roles,
            )  # fmt: skip
            follow_ups.append(write_follow_up(user, scene, hidden))
    return Played(tuple(verdicts), tuple(follow_ups))


def view_of() -> PublicView:
    return public_view(TASK, resolve_variant(TASK, False))


def test_the_scores_are_those_that_the_scripts_state(played: Played) -> None:
    stated = [(v.score, v.total, v.decision.value, v.drift) for v in played.verdicts]
    assert stated == [(0.45, 0.45, "continue", -0.05), (0.7, 0.7, "continue", 0.05), (1.0, 1.0, "pass", -0.05)]
    caps = [[cap.id for cap in v.caps if cap.triggered] for v in played.verdicts]
    assert caps == [["no_evidence"], [], []]


def test_every_quote_was_found_at_once(played: Played) -> None:
    assert [v.flags for v in played.verdicts] == [(), (), ()]
    lines = [line for v in played.verdicts for line in v.checkpoints]
    assert [line.flags for line in lines] == [()] * 21
    assert all(line.evidence for line in lines if line.earned)


def test_the_rewriter_drops_a_sentence_and_refuses_a_leak(played: Played) -> None:
    first, second = played.follow_ups
    assert first.decisions == ("dropped:completion", "kept:2")
    assert first.candidates[0].startswith(first.message)
    assert "asked again" in second.decisions
    assert {"dropped:score", "dropped:meta", "dropped:number"} <= set(second.decisions)
    assert (len(second.candidates), second.message) == (2, second.candidates[1])


def test_nothing_of_the_refused_message_is_sent(played: Played) -> None:
    sent = " ".join(text.message for text in played.follow_ups)
    assert [word for word in ("95", "0.70", "score", "85-bergen", "ntf-bgo-2") if word in sent] == []


def test_the_deliverables_end_as_the_answers_say(tmp_path: Path) -> None:
    for turn in (1, 2, 3):
        results = work(tmp_path, turn)
    expected = json.loads((TASK.folder / "references" / "answers.json").read_text())["finding"]
    found = json.loads(results["finding.json"])
    assert sorted(found.pop("affected_hosts")) == expected.pop("affected_hosts")
    assert {name: found[name] for name in expected} == expected
