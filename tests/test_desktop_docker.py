"""The desktop in real containers: it starts, outlives turns and sweeps, is looked at and recorded, and fails gently.

One session runs a suite of small tasks, each with its own trouble; the project's own tasks for screen and browser are
run by every role of their quality bar.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.packages import Suite
from support.sessions import Session, run

docker = pytest.importorskip("docker")

from pytest_uniclaw.agents.registry import load_agent  # noqa: E402
from pytest_uniclaw.desktop import DESKTOP_DIED, PROBE_FAILED  # noqa: E402
from pytest_uniclaw.recording import FAST, RECORDING, RECORDING_FAILED, RECORDING_WITHHELD  # noqa: E402
from pytest_uniclaw.sandbox.image_spec import on_desktop  # noqa: E402
from pytest_uniclaw.sandbox.images import missing_images  # noqa: E402

pytestmark = pytest.mark.docker

ROOT = Path(__file__).parents[1]
OURS = (
    "suites/102_exploration/task_102_02_ferry_crossing.yaml",
    "suites/105_cross_platform/task_105_02_lost_property.yaml",
)
DONE = "echo done > /tmp_workspace/results/done.txt\n"
WAIT = 'within() { timeout 20 bash -c "until $1; do sleep 0.1; done"; }\n'
EDITOR = WAIT + r"""
setsid -f mousepad /tmp/note.txt > /dev/null 2>&1 < /dev/null
within "wmctrl -l | grep -q note.txt"
within "desktop-tree mousepad | grep -q \"text ''.*focused\""
xdotool type --delay 10 "typed by xdotool"
"""
SCENES: dict[str, tuple[str, dict[str, Any]]] = {
    "note": (
        'if [ "$UNICLAW_TURN" = 2 ]; then wmctrl -a note.txt; xdotool key ctrl+s; sleep 0.5\n'
        'test "$(cat /tmp/note.txt)" = "typed by xdotool"; id -u > /tmp_workspace/results/uid.txt\n'
        f"desktop-screenshot /tmp_workspace/results/screen.png; {DONE} exit; fi\n{EDITOR}",
        {"recording": "high", "codex": {"max_user_followups": 1}},
    ),
    "sweep": (
        f'if [ "$UNICLAW_TURN" = 2 ]; then wmctrl -m | grep -q Openbox; {DONE} exit; fi\n'
        "(setsid sleep 900 &); sleep 900",
        {"recording": "low", "codex": {"max_user_followups": 1}, "timeout_seconds": 8},
    ),
    "root": (f"{EDITOR} xdotool key ctrl+s; sleep 0.5; grep -q typed /tmp/note.txt; {DONE}", {"user": "root"}),
    "killed": (f"pkill -9 Xvfb; {DONE}", {"recording": "low"}),
    "stopped": (f"pkill -STOP Xvfb; {DONE}", {"recording": "low"}),
    "replaced": (
        'cd /opt/uniclaw/recording; kill -9 "$(cat pid)"; rm recording.mp4; mkdir recording.mp4\n'
        f"echo '<script>' > recording.mp4/index.html; {DONE}",
        {"recording": "low", "user": "root"},
    ),
    "headless": (
        'test -z "${DISPLAY:-}"; test "$AGENT_BROWSER_HEADED" = false\n'
        "echo '<title>Alone</title><p>hello</p>' > /tmp/page.html; cd /tmp\n"
        "(setsid python3 -m http.server 8123 &) 2> /dev/null\n"
        'timeout 10 bash -c "until curl -fs 127.0.0.1:8123 > /dev/null; do sleep 0.1; done"\n'
        f"agent-browser open http://127.0.0.1:8123/page.html; agent-browser get title | grep -q Alone; {DONE}",
        {"headed": False, "recording": "low", "skills": ["agent-browser-control"]},
    ),
    "skills": (
        'for one in apt-package-manager linux-gui-control web-search duckduckgo-search; do\n'
        'grep -q "^name: $one$" "$HOME/skills/$one/SKILL.md"; done\n'
        "! apt-get update -qq 2> /dev/null || ! apt-get install -y tree\n"
        '! bash "$HOME/skills/apt-package-manager/unpack.sh" tree\n'
        f'r=0; python3 "$HOME/skills/duckduckgo-search/search.py" words || r=$?; test $r = 2; {DONE}',
        {"skills": ["apt-package-manager", "linux-gui-control", "web-search", "duckduckgo-search"]},
    ),
}  # fmt: skip
"""Name -> what the executor does, and further fields of the YAML; ``user`` goes below ``uniclaw``."""


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    client = docker.from_env()
    if missing_images(client.api, ["desktop"]):
        pytest.skip("the image `desktop` is not built: uniclaw images build desktop")
    yield client
    client.close()


@pytest.fixture(scope="module")
def session(engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Session:
    suite = Suite.make(tmp_path_factory.mktemp("desktop"))
    for name, (solve, fields) in SCENES.items():
        given = dict(fields)
        user = given.pop("user", "agent")
        suite.add(name, solve, uniclaw={"network": "isolated", "user": user}, **{"headed": True, **given})
    return run(suite.root, "--agent=oracle", "-n", "2", "--html=report.html")


def evidence(attempt: dict[str, Any], turn: int = 1) -> Path:
    return Path(attempt["folder"], "turns", str(turn), "evidence")


def probe(attempt: dict[str, Any], turn: int = 1) -> dict[str, Any]:
    seen: dict[str, Any] = json.loads((evidence(attempt, turn) / "state/desktop/probe.json").read_text("utf-8"))
    return seen


def size_of(picture: Path) -> tuple[int, ...]:
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return struct.unpack(">II", head[16:24])


@pytest.mark.parametrize("name", [name for name in SCENES if name != "stopped"])
def test_the_executor_can_do_its_work(session: Session, name: str) -> None:
    assert session.cases[name].outcome == "passed", session.cases[name].message


def test_windows_and_their_text_live_on_in_the_next_turn(session: Session) -> None:
    attempt = session.attempt("note")
    assert len(attempt["turns"]) == 2
    for turn in (1, 2):
        seen = probe(attempt, turn)
        assert seen["screen"] == [1440, 900]
        assert [window["title"].lstrip("*") for window in seen["windows"]] == ["/tmp/note.txt - Mousepad"]
        assert size_of(evidence(attempt, turn) / "state/desktop/screenshot.png") == (1440, 900)
    assert size_of(evidence(attempt, 2) / "results/screen.png") == (1440, 900)
    assert (evidence(attempt, 2) / "results/uid.txt").read_text().strip() == "1000"


def test_the_desktop_is_the_executors_and_the_recorder_nobodys(session: Session) -> None:
    owners = {row["command"].split()[0]: row["uid"] for row in probe(session.attempt("note"))["processes"]}
    assert owners["Xvfb"] == owners["openbox"] == 1000
    assert owners["ffmpeg"] == 65534


def test_upstreams_page_finds_the_screen(session: Session) -> None:
    folder = Path(session.attempt("note")["folder"])
    seen = json.loads((folder / "runtime_probe.json").read_text("utf-8"))
    assert [line.endswith("/tmp/note.txt - Mousepad") for line in seen["windows"]] == [True]
    assert "done.txt" in seen["result_files"]
    assert size_of(folder / "runtime_probe_desktop.png") == (1440, 900)


def test_a_sweep_takes_the_executors_processes_and_leaves_the_desktop(session: Session) -> None:
    attempt = session.attempt("sweep")
    assert attempt["turns"][0]["ending"] == "deadline"
    commands = [row["command"] for row in probe(attempt)["processes"]]
    assert not [command for command in commands if "sleep 900" in command]
    assert [command for command in commands if command.startswith("Xvfb")]


@pytest.mark.parametrize("name", ["note", "sweep"])
def test_the_recording_is_whole(session: Session, name: str) -> None:
    folder = Path(session.attempt(name)["folder"])
    data = (folder / RECORDING).read_bytes()
    assert data[4:8] == b"ftyp"
    assert data.count(b"moof") >= 2
    assert (folder / FAST).read_bytes()[4:8] == b"ftyp"
    assert session.attempt(name)["flags"] == []
    assert not (folder / ".recording").exists()


def test_the_html_report_links_the_recording(session: Session) -> None:
    page = (session.root / "report.html").read_text("utf-8")
    attempts = [Path(session.attempt(name)["folder"]).name for name in ("note", "headless")]
    assert [f"{attempt}/{RECORDING}" in page for attempt in attempts] == [True, False]


def test_a_dead_screen_costs_a_flag_and_nothing_else(session: Session) -> None:
    attempt = session.attempt("killed")
    assert attempt["score"] == 1.0
    assert {DESKTOP_DIED, RECORDING_FAILED} <= set(attempt["flags"])
    assert probe(attempt)["windows"] == []


def test_what_root_puts_in_the_films_place_is_not_kept(session: Session) -> None:
    attempt = session.attempt("replaced")
    assert (attempt["score"], attempt["flags"]) == (1.0, [RECORDING_FAILED])
    assert not (Path(attempt["folder"]) / RECORDING).exists()


def test_a_hung_screen_costs_flags_and_little_time(session: Session) -> None:
    attempt = session.attempt("stopped")
    assert attempt["score"] == 1.0, session.cases["stopped"].message
    assert sorted(attempt["flags"]) == [PROBE_FAILED, RECORDING_FAILED]
    assert attempt["wall_seconds"] < 90


def test_a_headless_browser_needs_no_desktop(session: Session) -> None:
    attempt = session.attempt("headless")
    assert attempt["flags"] == [RECORDING_WITHHELD]
    assert not (evidence(attempt) / "state/desktop").exists()


def test_the_executor_is_told_of_screen_and_skills(session: Session) -> None:
    prompt = Path(session.attempt("skills")["folder"], "prompt.md").read_text("utf-8")
    assert "1440 x 900" in prompt
    assert "/home/agent/skills/linux-gui-control/SKILL.md" in prompt
    assert "1440 x 900" not in Path(session.attempt("headless")["folder"], "prompt.md").read_text("utf-8")


def test_a_task_without_its_image_is_skipped_and_alone_refused(engine: Any, tmp_path: Path) -> None:
    suite = Suite.make(
        tmp_path, "from pytest_uniclaw import desktop\ndesktop.on_desktop = lambda image: f'nowhere/{image}:1'\n"
    )
    suite.add("plain", uniclaw={"user": "agent", "network": "isolated"})
    suite.add("seen", uniclaw={"user": "agent", "network": "isolated"}, headed=True)
    session = run(suite.root, "--agent=oracle")
    assert session.cases["plain"].outcome == "passed"
    assert session.cases["seen"].outcome == "skipped"
    assert "needs a desktop: missing image(s): nowhere/runtime:1" in session.cases["seen"].message
    assert "1/2 passed, 1 skipped, coverage 1/2" in session.output
    alone = run(suite.root, "--agent=oracle", "-k", "seen")
    assert alone.code == 4
    assert "missing image(s): nowhere/runtime:1" in alone.output


def test_secrets_on_a_screen_are_not_pictured(engine: Any, tmp_path: Path) -> None:
    suite = Suite.make(tmp_path)
    uniclaw = {"network": "isolated", "user": "agent"}
    suite.add("secret", DONE, uniclaw=uniclaw, headed=True, recording="low", files={".privacy": "DOOR_CODE\n"})
    session = run(suite.root, "--agent=oracle", environment={"UNICLAW_PRIVACY_DOOR_CODE": "hidden-4711"})
    attempt = session.attempt("secret")
    assert attempt["flags"] == [RECORDING_WITHHELD]
    assert probe(attempt)["screen"] == [1440, 900]
    assert not (evidence(attempt) / "state/desktop/screenshot.png").exists()
    assert not (Path(attempt["folder"]) / RECORDING).exists()


@pytest.mark.parametrize("agent", ["oracle", "nop", "nanobot", "codex"])
def test_our_tasks_for_screen_and_browser_hold_their_bar(engine: Any, tmp_path: Path, agent: str) -> None:
    image = on_desktop(load_agent(agent).image)
    if missing_images(engine.api, [image]):
        pytest.skip(f"the image is built on demand: uniclaw images build {image}")
    for folder in ("suites", "injection"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    turns = ["--uniclaw-followups=0"] * (agent == "nop")
    run(tmp_path, f"--agent={agent}", "--model=script", "-n", "2", *turns, targets=OURS)
    paths = (tmp_path / "runs/latest").resolve().glob("a1/*/*/*/*/p1-*/uniclaw.json")
    found = {path.parts[-3]: json.loads(path.read_bytes()) | {"folder": path.parent} for path in paths}
    assert len(found) == 2
    scores = {name: record["score"] for name, record in found.items()}
    if agent == "nop":
        assert all(score < 0.2 for score in scores.values()), scores
    else:
        assert set(scores.values()) == {1.0}, {name: record["reason"] for name, record in found.items()}
    if agent in {"nanobot", "codex"}:
        usages = [json.loads(Path(record["folder"], "tool_usage.json").read_bytes()) for record in found.values()]
        assert sorted(skill for usage in usages for skill in usage["skills"]) == ["agent-browser", "desktop-control"]
