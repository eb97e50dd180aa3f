"""EDICT without a container: its source, how a turn follows the board, its sessions and endings."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.agents import edict_run, edict_source
from pytest_uniclaw.agents.base import ModelAccess
from pytest_uniclaw.agents.edict import VERSION, EdictAgent, team_configuration
from pytest_uniclaw.agents.edict_run import NOTE, Place, actor_of, is_working, last_message, position_of, tasks_of
from pytest_uniclaw.agents.edict_source import COMMIT, Edict, Member, load_edict
from pytest_uniclaw.agents.openclaw import PAPER, configuration
from pytest_uniclaw.agents.openclaw_session import read_agents
from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.agents.transcript import final_answer, to_jsonl
from pytest_uniclaw.agents.usage import messages
from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.sandbox.base import Completed
from pytest_uniclaw.sandbox.image_spec import agent_image
from pytest_uniclaw.settings import edict_source as named_source

Json = dict[str, Any]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small stand-in for the user's copy, which counts as the pinned commit; no word of EDICT's own is in it."""
    root = tmp_path / "edict"
    listed = [{"id": name, "subagents": {"allowAgents": ["menxia"]}} for name in ("zhongshu", "taizi")]
    files = {
        "agents/GLOBAL.md": "for all", "agents/groups/sansheng.md": "for three", "agents/groups/liubu.md": "for six",
        "agents/taizi/SOUL.md": "the heir", "agents/zhongshu/SOUL.md": "the secretary", "scripts/board.py": "pass",
        "data/schema.json": "{}", "edict/backend/app/models/task.py": "pass",
        "docker/demo_data/openclaw.json": json.dumps({"agents": {"list": listed}}), "README.md": "more",
    }  # fmt: skip
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "scripts" / "gone.py").symlink_to("/nowhere/gone.py")
    needed = {name: text.encode() for name, text in files.items() if name != "README.md"}
    monkeypatch.setattr(edict_source, "DIGEST", edict_source.digest(needed))
    monkeypatch.setenv("UNICLAW_EDICT_SRC", str(root))
    load_edict.cache_clear()
    return root


def test_without_a_source_the_way_to_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UNICLAW_EDICT_SRC", raising=False)
    with pytest.raises(SettingsError, match=r"UNICLAW_EDICT_SRC does not say where(.|\n)*fix: scripts/fetch-edict"):
        load_agent("openclaw_edict")
    monkeypatch.setenv("UNICLAW_EDICT_SRC", str(tmp_path))
    with pytest.raises(SettingsError, match=r"agents, scripts, .* is not there(.|\n)*scripts/fetch-edict"):
        load_agent("openclaw_edict")


def test_another_commit_is_refused(source: Path) -> None:
    assert load_agent("openclaw_edict").version == VERSION
    (source / "README.md").write_text("is not needed")
    (source / "scripts" / "board.py").write_text("raise SystemExit")
    load_edict.cache_clear()
    with pytest.raises(SettingsError, match=f"is not EDICT at the commit {COMMIT[:12]}"):
        load_agent("openclaw_edict")


def test_the_script_refuses_a_clone_without_the_commit(tmp_path: Path) -> None:
    script = str(Path(__file__).parents[1] / "scripts" / "fetch-edict")
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "clone")], check=True)
    command = [script, "--from", str(tmp_path / "clone"), str(tmp_path / "to")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"has no commit {COMMIT}" in done.stderr
    assert not (tmp_path / "to").exists()
    assert subprocess.run([script, "--nonsense"], capture_output=True, check=False).returncode == 2
    helped = subprocess.run([script, "--help"], capture_output=True, text=True, check=True)
    assert helped.stdout.startswith("Puts EDICT")
    assert helped.stdout.rstrip().endswith("2 wrong use.")


def test_the_script_tells_a_tree_from_a_clone_and_takes_the_right_one(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    package = project / "pytest_uniclaw" / "agents"
    package.mkdir(parents=True)
    own = Path(edict_source.__file__)
    right = re.sub(r'DIGEST = "\w+"', f'DIGEST = "{edict_source.DIGEST}"', own.read_text("utf-8"))
    (package / own.name).write_text(right, "utf-8")
    shutil.copy(own.parents[1] / "errors.py", package.parent)
    (project / "scripts").mkdir()
    script = shutil.copy(own.parents[2] / "scripts" / "fetch-edict", project / "scripts")

    def fetch(*words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run([script, *map(str, words)], capture_output=True, text=True, check=False)

    line = f"export UNICLAW_EDICT_SRC={source}\n"
    for words in (("--from", source), (source,)):
        done = fetch(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, line, "")
    (tmp_path / "other").mkdir()
    done = fetch("--from", tmp_path / "other")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"error: {tmp_path}/other is no git repository" in done.stderr
    assert "there is no folder" in fetch("--from", tmp_path / "none").stderr
    monkeypatch.chdir(source.parent)
    for words in (("--from", source.name), (f"./{source.name}",)):
        assert fetch(*words).stdout == line, "a relative folder is the caller's"


def test_the_source_is_laid_out_for_the_agents(source: Path) -> None:
    edict = load_edict(str(source))
    assert [(member.id, member.may_call) for member in edict.members] == [
        ("zhongshu", ("menxia",)), ("taizi", ("menxia",)),
    ]  # fmt: skip
    assert dict(edict.members[1].files) == {"SOUL.md": b"the heir", "AGENTS.md": b"for all\n\nfor three\n\nthe heir"}
    assert set(dict(edict.board)) == {
        "scripts/board.py", "data/schema.json", "edict/backend/app/models/task.py", "data/tasks_source.json",
        "data/.refresh_watcher_pid",
    }  # fmt: skip


def test_the_agent_has_an_image_and_can_be_pickled(source: Path) -> None:
    agent = load_agent(f"openclaw_edict@{VERSION}")
    assert agent.image == agent_image("openclaw_edict", VERSION) == agent_image("openclaw", PAPER)
    assert pickle.loads(pickle.dumps(agent)) == agent
    assert named_source({}) == ""
    with pytest.raises(SettingsError, match="openclaw_edict 1 is not supported"):
        load_agent("openclaw_edict@1")


def test_the_configuration_holds_the_agents_and_a_gateway_of_its_own() -> None:
    access = ModelAccess("http://127.0.0.1:4010/v1", "uck-virtual", "m")
    edict = Edict((Member("taizi", ("zhongshu",), ()), Member("zhongshu", (), ())), ())
    config = team_configuration(configuration(access, PAPER, "/w", "/s"), edict, "/home/agent", "t0k")
    assert [(entry["id"], entry["default"]) for entry in config["agents"]["list"]] == [
        ("taizi", True), ("zhongshu", False),
    ]  # fmt: skip
    assert config["agents"]["list"][0]["subagents"] == {"allowAgents": ["zhongshu"]}
    assert config["gateway"]["bind"] == "loopback"
    assert config["gateway"]["auth"] == {"mode": "token", "token": "t0k"}
    assert config["agents"]["defaults"]["heartbeat"] == {"every": "0m"}, "no agent is woken without being asked"


@pytest.mark.parametrize(
    ("task", "actor"),
    [
        ({"state": "Zhongshu"}, "zhongshu"),
        ({"state": "Doing", "org": "工部"}, "gongbu"),
        ({"state": "Doing", "org": "六部"}, "shangshu"),
        ({"state": "Review", "org": "工部"}, "shangshu"),
        ({"state": "PendingConfirm", "pending_confirm": {"confirm_by": "menxia"}}, "menxia"),
        ({"state": "PendingConfirm", "pending_confirm": 7}, "menxia"),
        ({"state": "Done"}, ""),
        ({"state": "Blocked", "org": "工部"}, ""),
        ({"state": ["x"]}, ""),
        ({}, ""),
    ],
)
def test_who_has_to_act(task: Json, actor: str) -> None:
    assert actor_of(task) == actor


class Court:
    """A board, and agents that move a task on it as they are told; ``asked`` are those who were asked."""

    def __init__(self, folder: Path, moves: dict[str, list[Json | None]], monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = Place(folder, folder, edict_run.time.monotonic() + 60)
        self.moves, self.asked, self.texts = moves, [], []
        (folder / "data").mkdir()
        self.task: Json = {}
        monkeypatch.setattr(edict_run, "ask", self.ask)
        monkeypatch.setattr(edict_run, "QUIET_SECONDS", 0.0)

    def ask(self, place: Place, agent: str, text: str) -> int:
        self.asked.append(agent)
        self.texts.append(text)
        moves = self.moves.get(agent, [])
        move = moves.pop(0) if moves else None
        if move is not None:
            self.task = {"id": "T-1", "title": "a table"} | self.task | move
            (place.board / "data" / "tasks_source.json").write_text(json.dumps([self.task]))
        return 0


def test_a_turn_follows_the_board_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: dict[str, list[Json | None]] = {
        "taizi": [{"state": "Zhongshu"}], "zhongshu": [{"state": "Doing", "org": "户部"}],
        "hubu": [{"state": "Review", "output": "/o"}], "shangshu": [{"state": "Done"}],
    }  # fmt: skip
    court = Court(tmp_path, moves, monkeypatch)
    assert edict_run.follow(court.place, "Make a table.") == 0
    assert court.asked == ["taizi", "zhongshu", "hubu", "shangshu", "taizi"]
    assert court.texts[0] == "Make a table."
    assert all(text.startswith(NOTE) for text in court.texts[1:])
    assert "Make a table." in court.texts[2]
    assert "/o" in court.texts[4]


def test_a_turn_ends_when_nobody_moves_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    court = Court(tmp_path, {"taizi": [{"state": "Menxia"}], "menxia": [None, {"now": "still looking"}]}, monkeypatch)
    edict_run.follow(court.place, "Go.")
    assert court.asked == ["taizi", "menxia", "menxia", "taizi"]


def test_what_taizi_answers_alone_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    court = Court(tmp_path, {}, monkeypatch)
    (tmp_path / "data" / "tasks_source.json").write_text('[{"id": "old", "state": "Doing"}]')
    edict_run.follow(court.place, "How are you?")
    assert court.asked == ["taizi"]


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
TASKS = st.dictionaries(st.sampled_from(["id", "state", "org", "title", "pending_confirm", "output"]), ANY)


@given(board=st.lists(TASKS | ANY, max_size=4) | ANY)
def test_no_board_breaks_a_turn(board: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("board")
    (folder / "data").mkdir()
    (folder / "data" / "tasks_source.json").write_text(json.dumps(board))
    for task in tasks_of(folder).values():
        assert isinstance(actor_of(task), str)
        assert position_of(task)
        assert edict_run.request_text(task, "m")
        assert edict_run.report_text(task)
    (folder / "data" / "tasks_source.json").write_text("[" * 100_000)
    assert tasks_of(folder) == {}
    assert tasks_of(folder / "nothing") == {}


def test_a_board_is_told_in_what_one_argument_holds() -> None:
    long = "\U0001f600" * 200_000 + "\0\ud800"
    task = dict.fromkeys(("id", "title", "state", "org", "output"), long)
    for text in (edict_run.request_text(task, "m"), edict_run.report_text(task)):
        assert subprocess.run(["true", f"--message={text}"], check=False).returncode == 0
    pending = {"state": "PendingConfirm", "pending_confirm": {"confirm_by": long}}
    assert subprocess.run(["true", "--agent", actor_of(pending)], check=False).returncode == 0
    assert "产出：a ?b。" in edict_run.report_text({"output": "a\0\ud800b"})
    assert "产出：无。" in edict_run.report_text({"output": None})


def said(role: str, content: Any, **more: Any) -> Json:
    return {"type": "message", "message": {"role": role, "content": content} | more}


def text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


def test_a_session_works_until_its_last_message_is_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    for event, works in (
        (said("user", text("Go.")), True),
        (said("assistant", [], stopReason="toolUse"), True),
        (said("toolResult", text("x")), True),
        (said("assistant", text("Done."), stopReason="stop"), False),
        (said("assistant", [], stopReason="error"), False),
    ):
        path.write_text(json.dumps(event) + '\n{"type": "custom"}\n{"cut')
        assert is_working(path) is works
    path.write_text(json.dumps(said("user", text("Go."))))
    os.utime(path, (1, 1))
    assert not is_working(path), "a session that stands still is not waited for"
    assert not is_working(tmp_path / "nothing")
    assert last_message([b"[" * 100_000, b"\xff", b"7"]) == {}


def written(folder: Path, name: str, begun: str, *events: Json) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"type": "session", "timestamp": begun}, *events]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


def test_the_sessions_of_all_agents_are_one_transcript(tmp_path: Path) -> None:
    stamp = "[Mon 2026-11-30 12:03 UTC] "
    written(
        tmp_path / "0", "b", "2026-11-30T12:00:00Z", said("user", text(f"{stamp}Make a table.")),
        said("assistant", text("I pass it on.")), said("user", text(f"{stamp}{NOTE}report")),
        said("assistant", text("It is made."), stopReason="stop"),
    )  # fmt: skip
    written(tmp_path / "0", "a", "2026-11-30T13:00:00Z", said("user", text("Later.")), said("assistant", text("Yes.")))
    written(tmp_path / "1", "c", "2026-11-30T12:01:00Z", said("user", text(f"{NOTE}do it")), said("assistant", "Ok."))
    records = read_agents(
        [("taizi", tmp_path / "0"), ("gongbu", tmp_path / "1"), ("hubu", tmp_path / "2")], "taizi", NOTE
    )
    assert [(r.get("agentId", ""), r["message"]["content"][0]["text"]) for r in records] == [
        ("gongbu", f"{NOTE}do it"), ("gongbu", "Ok."), ("", "Make a table."), ("", "I pass it on."),
        ("", "It is made."), ("", "Later."), ("", "Yes."),
    ]  # fmt: skip
    assert final_answer(records) == "Yes."
    assert len({record["id"] for record in records}) == 7


@given(events=st.lists(st.fixed_dictionaries({"type": st.just("message"), "message": ANY}) | ANY, max_size=4))
def test_no_session_breaks_the_reader(events: list[Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("raw")
    written(folder, "x", "2026", *events)
    to_jsonl(read_agents([("taizi", folder)], "taizi", NOTE))


def test_a_turn_is_finished_by_status_and_taizi_s_answer(source: Path, tmp_path: Path) -> None:
    agent = EdictAgent()
    raw = tmp_path / "raw"
    written(raw / "0", "t", "2026", said("user", text("Go.")), said("assistant", text("Done."), stopReason="stop"))
    written(raw / "1", "z", "2026", said("user", text("Go.")))
    done = agent.read_transcript(raw)
    assert [message["role"] for message in messages(done)] == ["user", "user", "assistant"]

    def reason(code: int | None, records: Any = done, ending: Ending = Ending.EXITED, output: bytes = b"") -> str:
        return agent.finish(Completed(ending, code, output, 1.0), records).reason

    assert reason(0) == ""
    assert reason(1, output=b"a\nno gateway\n") == "EDICT exited with 1: no gateway"
    assert reason(None, ending=Ending.SILENCE) == "EDICT was stopped: silence"
    assert reason(0, ()) == "taizi stored no session"
    written(raw / "0", "t", "2026", said("user", text("Go.")), said("assistant", [], stopReason="error"))
    assert reason(0, agent.read_transcript(raw)) == "the model failed: no reason given"
