"""Desktop, browser, recording and base skills as values: what is chosen for a task, what is said of a screen."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.packages import Suite

from pytest_uniclaw import desktop, recording
from pytest_uniclaw.agents.usage import tool_usage
from pytest_uniclaw.assets import BASE_SKILLS, base_skill
from pytest_uniclaw.attempt import Ending, Manifest
from pytest_uniclaw.collection import marks_of
from pytest_uniclaw.errors import EngineError, InfraError, SandboxLost
from pytest_uniclaw.lint import lint_task
from pytest_uniclaw.paths import paths_for
from pytest_uniclaw.preflight import Wanted, images_of
from pytest_uniclaw.sandbox import images_cli
from pytest_uniclaw.sandbox.base import Completed
from pytest_uniclaw.sandbox.image_spec import IMAGES, docker_root, on_desktop
from pytest_uniclaw.task import Task, load_task

FILM = b"\0\0\0\x1cftypiso5"
SKILLS = Path(desktop.__file__).with_name("skills")


def module(path: Path) -> ModuleType:
    """A script as a module. An import would leave byte code beside it, in what is built and installed."""
    made = ModuleType(path.stem)
    exec(compile(path.read_text("utf-8"), path, "exec"), vars(made))
    return made


def task(root: Path, name: str = "it", tags: Sequence[str] = (), **fields: object) -> Task:
    suite = Suite(root) if (root / "suites").exists() else Suite.make(root)
    return load_task(suite.add(name, uniclaw={"tags": list(tags)}, **fields))  # type: ignore[arg-type]


class Box:
    """A sandbox in which each command ends as told."""

    paths, user = paths_for("agent"), "agent"

    def __init__(self, *ends: Completed | Exception, files: Mapping[str, bytes] | None = None) -> None:
        self.ends, self.files, self.commands = list(ends), files or {}, list[Sequence[str]]()

    def run(self, command: Sequence[str], **_: object) -> Completed:
        self.commands.append(command)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    def collect(self, folders: Mapping[str, Path], limits: object) -> Mapping[str, Manifest]:
        for target in folders.values():
            target.mkdir(parents=True)
            for name, content in self.files.items():
                (target / name).parent.mkdir(exist_ok=True)
                (target / name).write_bytes(content)
        return dict.fromkeys(folders, Manifest())


def ended(code: int | None, output: bytes = b"", ending: Ending = Ending.EXITED) -> Completed:
    return Completed(ending, code, output, 0.1)


@pytest.mark.parametrize(
    ("fields", "tags", "gui", "browser"),
    [
        ({}, (), False, False),
        ({"headed": True}, (), True, False),
        ({"recording": "high"}, (), True, False),
        ({"recording": "low"}, (), False, False),
        ({"skills": ["desktop-control"]}, (), True, False),
        ({"skills": ["linux-gui-control"]}, (), True, False),
        ({"skills": ["linux-gui-control"], "headed": False}, (), False, False),
        ({"skills": ["agent-browser-control"]}, (), False, True),
        ({}, ("browser",), False, True),
        ({}, ("gui", "browser"), True, True),
    ],
)
def test_a_task_says_what_it_needs(
    tmp_path: Path, fields: dict[str, object], tags: Sequence[str], gui: bool, browser: bool
) -> None:
    made = task(tmp_path, tags=tags, **fields)
    assert (made.gui, made.browser) == (gui, browser)
    assert desktop.image_for("runtime", made) == ("desktop" if gui or browser else "runtime")
    variables = desktop.variables(made)
    assert ("DISPLAY" in variables) == gui
    assert variables.get("AGENT_BROWSER_HEADED") == ("true" if gui else "false" if browser else None)


@pytest.mark.parametrize(
    ("fields", "tags", "marked"),
    [
        ({"headed": False}, ("gui", "quickstart"), False),
        ({"headed": False, "recording": "high"}, (), False),
        ({}, ("gui",), True),
        ({"headed": True}, (), True),
        ({}, (), False),
    ],
)
def test_the_mark_stands_for_the_desktop_and_not_for_the_tag(
    tmp_path: Path, fields: dict[str, object], tags: Sequence[str], marked: bool
) -> None:
    names = [mark.name for mark in marks_of(task(tmp_path, tags=tags, **fields))]
    assert ("gui" in names, "quickstart" in names) == (marked, "quickstart" in tags)


@pytest.mark.parametrize(
    ("fields", "warned"),
    [
        ({"headed": False, "recording": "low"}, ["recording low films the desktop, which headed: false takes away"]),
        ({"headed": False, "recording": "high"}, ["recording high films the desktop, which headed: false takes away"]),
        ({"headed": False}, []),
        ({"recording": "low"}, []),
        ({"headed": True, "recording": "high"}, []),
    ],
)
def test_a_film_of_a_desktop_that_is_taken_away_is_warned_of(
    tmp_path: Path, fields: dict[str, object], warned: list[str]
) -> None:
    found = [finding for finding in lint_task(task(tmp_path, **fields)) if finding.message.startswith("recording")]
    assert [finding.message for finding in found] == warned
    assert all((finding.severity, finding.remedy) == ("warning", "leave out one of the two") for finding in found)


def test_every_agent_has_an_image_with_a_desktop() -> None:
    for name, spec in IMAGES.items():
        if spec.parent == "runtime" and name not in {"grader", "desktop"}:
            child = IMAGES[on_desktop(name)]
            assert (child.parent, child.folder, child.extra) == ("desktop", spec.folder, spec.extra)
            assert child.on_demand
    assert on_desktop("registry.example/mine:1") == "registry.example/mine:1"
    assert not IMAGES["desktop"].on_demand


def test_images_on_demand_are_no_part_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(images_cli, "_run", lambda options, names: asked.extend(names) or 0)
    images_cli.main(["missing", "--all"])
    assert "desktop" in asked
    assert not [name for name in asked if name.endswith("-desktop")]


def test_a_session_asks_for_desktops_only_where_nothing_does_without(tmp_path: Path) -> None:
    settings: Any = SimpleNamespace(agent_tables={})
    plain, seen = task(tmp_path, "plain"), task(tmp_path, "seen", headed=True)
    assert images_of([Wanted(plain, "oracle"), Wanted(seen, "oracle")], settings) == ["runtime", "grader"]
    alone = images_of([Wanted(seen, "oracle"), Wanted(seen, "nanobot")], settings)
    assert alone == ["desktop", "nanobot-0.1.5.post3-desktop", "grader"]
    assert images_of([Wanted(seen, None)], settings) == ["grader"]


def test_a_desktop_that_does_not_start_is_infrastructure_and_says_why() -> None:
    box = Box(ended(1), ended(0, b"not in time: xdpyinfo"))
    with pytest.raises(InfraError, match=r"did not start \(exit status 1\); its log ends:\nnot in time: xdpyinfo"):
        desktop.start_desktop(box, {})  # type: ignore[arg-type]
    with pytest.raises(InfraError, match="the sandbox died while its desktop started: gone"):
        desktop.start_desktop(Box(SandboxLost("gone", cause="killed")), {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("end", "flags"),
    [
        (ended(0), []),
        (ended(3), [desktop.DESKTOP_DIED]),
        (ended(1), [desktop.PROBE_FAILED]),
        (ended(None, ending=Ending.DEADLINE), [desktop.PROBE_FAILED]),
    ],
)
def test_what_a_look_costs(end: Completed, flags: list[str]) -> None:
    box = Box(end)
    assert desktop.look(box, pictures=False) == flags  # type: ignore[arg-type]
    assert "--pictures" not in box.commands[0]


def test_the_probe_reads_the_window_managers_rows() -> None:
    probe = module(docker_root() / "desktop" / "probe.py")
    rows = (
        "0x00400003  0 51   201  167  1040 620  register.py.Register.py  3a48cd Lost Property - market hall\n"
        "0x00600007 -1 0    -5   0    10   20   x.X                      3a48cd \n"
        "nonsense\n"
    )
    first, second = probe.windows(rows, "3a48cd")
    assert (first["title"], first["pid"], first["x"], first["height"]) == ("Lost Property - market hall", 51, 201, 620)
    assert (second["title"], second["x"]) == ("", -5)


@pytest.mark.parametrize(
    ("row", "kind", "title"),
    [
        ("chromium (/tmp/agent browser).Chromium  3a48cd about:blank", "chromium (/tmp/agent browser).Chromium",
         "about:blank"),
        ("a b.C                3a48cd on 3a48cd today", "a b.C", "on 3a48cd today"),
        ("a b.C                3a48cd N/A", "a b.C", "N/A"),
        ("a b.C                   N/A at home", "a b.C", "at home"),
        ("a b.C                3a48cd ", "a b.C", ""),
        ("a b.C                3a48cd", "a b.C", ""),
        ("a.B                  3a48cd7 two words", "a.B", "two words"),
        ("a.B                  elsewhere two words", "a.B", "two words"),
        ("a.B                  elsewhere on 3a48cd", "a.B", "on 3a48cd"),
    ],
)  # fmt: skip
def test_the_host_parts_a_windows_class_from_its_title(row: str, kind: str, title: str) -> None:
    probe = module(docker_root() / "desktop" / "probe.py")
    (window,) = probe.windows(f"0x00c00002  0 41     10   10   1050 1004 {row}\n", "3a48cd")
    assert (window["class"], window["title"], window["pid"]) == (kind, title, 41)


def test_a_recording_is_bounded() -> None:
    words = recording.arguments(recording.QUALITIES["low"], 1234.5)
    assert words[words.index("-t") + 1] == "1234"
    assert words[words.index("-fs") + 1] == str(recording.MOST_BYTES)
    assert recording.QUALITIES.keys() == {"low", "high"}


@pytest.mark.parametrize("end", [ended(1), EngineError("busy")])
def test_a_recording_that_does_not_start_is_none(end: Completed | Exception) -> None:
    box: Any = Box(end)
    assert recording.start_recording(box, recording.QUALITIES["low"], 10.0) is None


@pytest.mark.parametrize(
    ("end", "files", "flags", "kept"),
    [
        (ended(0), {"recording.mp4": FILM}, [], True),
        (ended(1), {"recording.mp4": FILM}, [recording.RECORDING_FAILED], True),
        (SandboxLost("gone", cause="killed"), {"recording.mp4": FILM}, [recording.RECORDING_FAILED], True),
        (ended(0), {"log": b"no film"}, [recording.RECORDING_FAILED], False),
        (ended(0), {"recording.mp4": b"<script>"}, [recording.RECORDING_FAILED], False),
        (ended(0), {"recording.mp4": b"", "recording-16x.mp4": FILM}, [recording.RECORDING_FAILED], False),
        (ended(0), {"recording.mp4/index.html": FILM}, [recording.RECORDING_FAILED], False),
        (ended(0), {"recording.mp4": FILM, "recording-16x.mp4/x": FILM}, [], True),
        (ended(0), {"recording.mp4": FILM, "recording-16x.mp4": b"none"}, [], True),
        (EngineError("busy"), {}, [recording.RECORDING_FAILED], False),
    ],
)
def test_the_end_of_a_recording_never_raises(
    tmp_path: Path, end: Completed | Exception, files: dict[str, bytes], flags: list[str], kept: bool
) -> None:
    box: Any = Box(end, files=files)
    assert recording.Recording(box).finish(tmp_path) == flags
    assert [path.name for path in tmp_path.iterdir()] == ["recording.mp4"] * kept


@pytest.mark.parametrize("alive", [False, True])
def test_a_recorder_that_ended_before_it_was_stopped_is_told(tmp_path: Path, alive: bool) -> None:
    with subprocess.Popen(["sleep", "60" if alive else "0"]) as other:  # who lives has the recorder's pid by chance
        if not alive:
            other.wait()
        (tmp_path / "pid").write_text(str(other.pid))
        done = subprocess.run(["bash", "-c", recording._STOP, "stop", tmp_path], capture_output=True)
        assert done.returncode == 1
        assert other.poll() == (None if alive else 0)
        other.kill()


@pytest.mark.parametrize("name", sorted(BASE_SKILLS))
def test_a_base_skill_bears_the_name_it_was_asked_for(name: str) -> None:
    text = base_skill(name)["SKILL.md"].decode()
    head = text.split("---\n")[1].splitlines()
    assert head[0] == f"name: {name}"
    assert head[1].startswith("description: ")
    assert len(head) == 2


def test_no_skill_of_ours_is_without_a_name() -> None:
    assert {path.name for path in SKILLS.iterdir() if path.is_dir()} == set(BASE_SKILLS.values())


def test_search_results_are_read_off_the_page() -> None:
    search = module(SKILLS / "duckduckgo-search" / "search.py")
    page = """
    <a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=x">An advertisement</a>
    <div><h2>
    <a rel="nofollow" class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fexample.org%2Fa%3Fb%3D1&rut=2">
    The <b>first</b> &amp; best</a></h2><a class="result__snippet" href="x">Some <b>words</b> about it.</a></div>
    <a class="result__a" href="https://example.net/">Second</a>
    """
    assert search.results(page) == [
        {"title": "The first & best", "url": "https://example.org/a?b=1", "snippet": "Some words about it."},
        {"title": "Second", "url": "https://example.net/", "snippet": ""},
    ]


@pytest.mark.parametrize(
    ("argument", "skills"),
    [
        ("cat /home/agent/skills/desktop-control/SKILL.md", ["desktop-control"]),
        ("cd ~/skills/web-search && cat SKILL.md; ls skills/", ["web-search"]),
        (["bash", "-lc", "head .codex/skills/a-b/SKILL.md skills/c"], ["a-b", "c"]),
        ("echo myskills/x my-skills/y", []),
        ("ls /home/agent/skills", []),
    ],
)
def test_the_skills_that_were_consulted_are_seen_in_tool_usage(argument: object, skills: list[str]) -> None:
    call = {"type": "toolCall", "id": "1", "name": "exec", "arguments": {"command": argument}}
    record = {"type": "message", "message": {"role": "assistant", "content": [call, call]}}
    usage = tool_usage([record])
    assert usage["skills"] == skills
    assert usage["skill_counts"] == dict.fromkeys(skills, 2)


def test_programs_of_the_desktop_begin_with_their_interpreter() -> None:
    for name in ("agent-browser", "desktop-screenshot", "desktop-tree"):
        assert (docker_root() / "desktop" / name).read_text("utf-8").startswith("#!/")
