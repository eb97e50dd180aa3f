"""The loader: what a good package becomes, and how each kind of bad one is refused."""

from __future__ import annotations

import os
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from task_package import PUBLIC, build

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.extension import memory_bytes
from pytest_uniclaw.task import Task, load_task, public_view, resolve_variant

FULL = (
    PUBLIC.replace("references: [references/eval_rule.md]\n", "")
    + """agent_sys: NanoBot
timeout_seconds: 600
max_total_seconds: 900
references:
  - ./references/eval_rule.md
  - references/answers
sources: [numbers.csv, more/]
skills: [adding, web-search]
services:
  - {name: setup, path: install, start: bash install.sh, oneshot: true}
  - {name: tracker, start: python3 serve.py}
pre_exec: ops/populate.py
pre_exec_parallel_safe: true
codex:
  max_user_followups: 1
  supervisor: {instructions: be strict}
recording: LOW
headed: headless
uniclaw:
  memory: 2G
  cpus: 1.5
  local: true
  tags: [quickstart, images]
  services:
    tracker:
      user: service
      ready: "curl -fsS http://127.0.0.1:8310/healthz"
      export: {orders.json: python3 export.py}
"""
)
FILES = {
    "references/answers/a.json": "{}",
    "sources/numbers.csv": "1\n",
    "sources/more/x": "",
    "skills/adding/SKILL.md": "# Adding\n",
    "services/install/install.sh": "",
    "services/tracker/serve.py": "",
    "ops/populate.py": "",
    ".privacy": "# names\nAPI_TOKEN\n\nSNAPSHOT_MODE\n",
}


def load(root: Path, extra: str = "", **changes: str) -> Task:
    text = PUBLIC
    for field, line in changes.items():
        text = "\n".join(line if old.startswith(f"{field}:") else old for old in text.splitlines()) + "\n"
    return load_task(build(root, text + extra).yaml)


def refused(root: Path, extra: str = "", **changes: str) -> TaskError:
    with pytest.raises(TaskError) as caught:
        load(root, extra, **changes)
    return caught.value


def test_every_field_arrives(tmp_path: Path) -> None:
    task = load_task(build(tmp_path, FULL, FILES).yaml)
    assert (task.task_id, task.category, task.prompt) == (
        "task_101_01_sum", "101_skill_usage", "Add the numbers in numbers.csv.",
    )  # fmt: skip
    assert (task.suite, task.capability, task.language) == ("101", "skill_usage", "en")
    assert (task.agent_sys, task.agent_id, task.model, task.threshold) == ("nanobot", "main", "gpt-5.4", 0.9)
    assert (task.turn_seconds, task.total_seconds, task.followups) == (600, 900, 1)
    assert task.references == ("references/eval_rule.md", "references/answers")
    assert task.sources == ("numbers.csv", "more")
    assert task.skills == ("adding", "web-search")
    setup, tracker = task.services
    assert (setup.path, setup.oneshot, setup.user, setup.ready) == ("install", True, "root", None)
    assert (tracker.path, tracker.oneshot, tracker.user, tracker.ready_seconds) == ("tracker", False, "service", 60)
    assert tracker.export == (("orders.json", "python3 export.py"),)
    assert (task.pre_exec, task.pre_exec_parallel_safe) == (("ops/populate.py",), True)
    assert (task.supervisor.instructions, task.user_simulator.policy) == ("be strict", "")
    assert (task.recording, task.headed, task.gui) == ("low", False, False)
    assert (task.network, task.user, task.memory_bytes, task.cpus) == ("isolated", "agent", 2 << 30, 1.5)
    assert (task.local, task.tags) == (True, ("quickstart", "images"))
    assert task.privacy == ("API_TOKEN", "SNAPSHOT_MODE")


def test_a_task_without_our_mapping_runs_as_upstream_runs_it(tmp_path: Path) -> None:
    task = load(tmp_path)
    assert (task.network, task.user, task.memory, task.needs_network) == ("internet", "root", None, True)
    assert (task.turn_seconds, task.total_seconds, task.followups) == (1200, 1800, 2)
    assert load(tmp_path, "uniclaw: {}\n").network == "isolated"


def test_a_task_is_frozen_and_picklable(tmp_path: Path) -> None:
    task = load_task(build(tmp_path, FULL, FILES).yaml)
    assert pickle.loads(pickle.dumps(task)) == task
    assert hash(task) == hash(load_task(task.path))
    with pytest.raises(FrozenInstanceError):
        task.threshold = 0.1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("103_long_context", ("103", "long_context", "en", 1800, 2700)),
        ("203_long_context_zh", ("203", "long_context", "zh", 1800, 2700)),
        ("205_cross_platform_zh", ("205", "cross_platform", "zh", 1200, 1800)),
        ("mail", ("", "mail", "en", 1200, 1800)),
    ],
)
def test_the_category_decides(tmp_path: Path, category: str, expected: tuple[object, ...]) -> None:
    package = build(tmp_path, PUBLIC.replace("101_skill_usage", category))
    package.folder.parent.rename(package.folder.parents[1] / category)
    task = load_task(package.yaml)
    assert (task.suite, task.capability, task.language, task.turn_seconds, task.total_seconds) == expected


def test_a_chinese_prompt_makes_the_task_chinese(tmp_path: Path) -> None:
    package = build(tmp_path, PUBLIC.replace("101_skill_usage", "sums").replace("Add the numbers in", "把数字加起来"))
    package.folder.parent.rename(package.folder.parents[1] / "sums")
    assert load_task(package.yaml).language == "zh"
    english = PUBLIC.replace("101_skill_usage", "sums").replace("Add the", "Ask 王五, then add the")
    package.yaml.write_text(english, encoding="utf-8")
    assert load_task(package.yaml).language == "en"


WRONG_VALUES = [
    ('timeout_seconds: "20m"', "timeout_seconds", "20m"),
    ("timeout_seconds: 0", "timeout_seconds", "0"),
    ("timeout_seconds: -5", "timeout_seconds", "-5"),
    ("timeout_seconds: 99999999", "timeout_seconds", "604800"),
    ("timeout_seconds:", "timeout_seconds", "nothing"),
    ("uniclaw:", "uniclaw", "nothing"),
    ("skills:", "skills", "nothing"),
    ("timeout_seconds: 1.5", "timeout_seconds", "1.5"),
    ("timeout_seconds: true", "timeout_seconds", "True"),
    ("max_total_seconds: 0", "max_total_seconds", "0"),
    ("codex: {max_user_followups: -1}", "codex.max_user_followups", "-1"),
    ("codex: []", "codex", "mapping"),
    ("codex: {supervisor: [x]}", "codex.supervisor", "mapping"),
    ("model: 5", "model", "5"),
    ('model: "  "', "model", "blank"),
    ("sources: 7", "sources", "list"),
    ("sources: [[a]]", "sources[0]", "text"),
    ("sources: [..]", "sources[0]", ".."),
    ("sources: [/etc/passwd]", "sources[0]", "/etc/passwd"),
    ("sources: ['']", "sources[0]", "''"),
    ("skills: [../x]", "skills[0]", "../x"),
    ("skills: [web-search, web-search]", "skills[1]", "twice"),
    ("skills: [unheard-of]", "skills[0]", "unheard-of"),
    ("services: [{name: a}]", "services[0].start", "required"),
    ('services: [{name: a, start: b, oneshot: "false"}]', "services[0].oneshot", "'false'"),
    ("services: [{name: a/b, start: b}]", "services[0].name", "a/b"),
    ("services: [{name: a, start: b}, {name: a, start: c}]", "services[1]", "twice"),
    ("services: [{name: a, start: b}]", "services[0].name", "does not exist"),
    ("services: [web]", "services[0]", "mapping"),
    ("pre_exec: [sources/make.py]", "pre_exec[0]", "executor"),
    ("pre_exec: [../make.py]", "pre_exec[0]", ".."),
    ("pre_exec: [ops/absent.py]", "pre_exec[0]", "does not exist"),
    ('pre_exec_parallel_safe: "no"', "pre_exec_parallel_safe", "boolean"),
    ("recording: sometimes", "recording", "sometimes"),
    ("headed: maybe", "headed", "maybe"),
    ("agent_sys: edict", "agent_sys", "openclaw_edict"),
    ("agent_sys: nanobto", "agent_sys", "did you mean nanobot?"),
    ("agent_sys: a b", "agent_sys", "a b"),
    ("task_live: x", "task_live", "task_snapshot"),
    ("privacy: [A]", "privacy", ".privacy"),
    ("uniclaw: {network: everything}", "uniclaw.network", "everything"),
    ("uniclaw: {memory: 2 pounds}", "uniclaw.memory", "512m"),
    ("uniclaw: {memory: 2}", "uniclaw.memory", "memory"),
    ("uniclaw: {cpus: 0}", "uniclaw.cpus", "0"),
    ("uniclaw: {tags: [Two Words]}", "uniclaw.tags[0]", "Two Words"),
    ("uniclaw: {services: {ghost: {user: root}}}", "uniclaw.services.ghost", "not declared"),
    ("success_treshold: 1.0", "success_treshold", "did you mean success_threshold?"),
    ("max_user_followups: 2", "max_user_followups", "belongs under `codex`"),
    ("codex: {max_user_folowups: 2}", "codex.max_user_folowups", "did you mean max_user_followups?"),
    ("uniclaw: {netwrok: isolated}", "uniclaw.netwrok", "did you mean network?"),
    ("wholly_other: 1", "wholly_other", "known here"),
]


@pytest.mark.parametrize(("line", "field", "words"), WRONG_VALUES, ids=[line for line, _, _ in WRONG_VALUES])
def test_a_wrong_value_names_file_line_field_and_remedy(tmp_path: Path, line: str, field: str, words: str) -> None:
    error = refused(tmp_path, f"{line}\n")
    assert (error.field, error.line) == (field, PUBLIC.count("\n") + 1)
    assert words in str(error)
    assert str(error).startswith(f"{tmp_path}")
    assert error.remedy


@pytest.mark.parametrize("value", ["7", "0", "-0.1", ".nan", ".inf", "'0.9'", "", "[]"])
def test_a_threshold_is_above_0_and_at_most_1(tmp_path: Path, value: str) -> None:
    error = refused(tmp_path, success_threshold=f"success_threshold: {value}")
    assert error.field == "success_threshold"
    assert load(tmp_path, success_threshold="success_threshold: 1").threshold == 1.0


@pytest.mark.parametrize("value", ["任务", ".hidden", "a/b", "''", "7", "a b", "../x", "", "x" * 200])
def test_ids_are_safe_names(tmp_path: Path, value: str) -> None:
    assert refused(tmp_path, task_id=f"task_id: {value}").field == "task_id"
    assert refused(tmp_path, category=f"category: {value}").field == "category"


@pytest.mark.parametrize("field", ["task_id", "category", "task"])
def test_required_fields(tmp_path: Path, field: str) -> None:
    text = PUBLIC.replace("task: |\n  Add", "task: Add")
    lines = [line for line in text.splitlines() if not line.startswith(f"{field}:")]
    package = build(tmp_path, "\n".join(lines))
    with pytest.raises(TaskError, match=rf"{field}: is required"):
        load_task(package.yaml)


def test_all_problems_of_a_file_are_listed(tmp_path: Path) -> None:
    error = refused(tmp_path, "timeout_seconds: soon\nskils: [a]\n")
    assert error.field == "timeout_seconds"
    assert "also: line 8: skils" in str(error)


def test_duplicate_keys_are_refused(tmp_path: Path) -> None:
    error = refused(tmp_path, "model: a\nmodel: b\n")
    assert (error.field, error.line) == ("model", PUBLIC.count("\n") + 2)
    nested = refused(tmp_path, "codex:\n  max_user_followups: 1\n  max_user_followups: 2\n")
    assert nested.line == PUBLIC.count("\n") + 3


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"task_id: a\ntask: \xff\n", 2, "0xff"),
        (b"task_id: a\ntask: b\0c\n", 2, "NUL"),
        (b'task_id: a\ntask: "b\\0c"\n', 2, "NUL"),
        (b"task_id: a\ntask: \x07\n", 2, "YAML"),
        (b"task_id: [a\n", 2, "YAML"),
        (b"a: 1\n--- \nb: 2\n", 2, "YAML"),
        (b'task: "\\uD800"\n', 1, "YAML"),
        (b"task: !!python/object:os.system x\n", 1, "YAML"),
        (b"? [a]\n: 1\n", 1, "YAML"),
        (b"- a\n", 1, "a list"),
        (b"", 1, "nothing"),
        (b"x: &x [*x]\n", 1, "task_id"),
        (b"x: " + b"[" * 5000, 1, "YAML"),
    ],
)
def test_bad_bytes_and_bad_yaml(tmp_path: Path, content: bytes, line: int, words: str) -> None:
    package = build(tmp_path)
    package.yaml.write_bytes(content)
    with pytest.raises(TaskError, match=words) as caught:
        load_task(package.yaml)
    assert caught.value.line == line


COLON = "the line has no colon behind its field's name"
TAB = "the line is indented with a tab"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("task_id: x\ncategory 301\nagent_sys: n\n", 2, COLON),
        ("task_id: x\ncategory:301\nagent_sys: n\n", 2, COLON),
        ("task_id x\ncategory: y\n", 1, COLON),
        ("# first\n\ntask_id x\ncategory y\nagent_sys: z\n", 3, COLON),
        ("task_id: x\nagent_sys nanobot\n", 2, COLON),
        ("codex:  # hidden\n  max_user_followups 2\n  supervisor: {}\n", 2, COLON),
        ("codex:\n  supervisor: {}\n  max_user_followups 2\nuniclaw: {}\n", 3, COLON),
        ("references\n  - a\nsources: []\n", 1, COLON),
        ("task_id: x\ntask |\n  Do this: that.\ncategory: y\n", 2, COLON),
        ("task: Do this: now\n", 1, "mapping values"),
        ("task: Do this\n  and that\n  also: now\n", 3, "mapping values"),
        ("task_id: x\n  category: y\n", 2, "mapping values"),
        ("codex:\n\tmax_user_followups: 2\n", 2, TAB),
        ("codex:\n  supervisor: {}\n  \tmax_user_followups: 2\n", 3, TAB),
        ("references:\n  - a\n\t- b\n", 3, TAB),
        ("task: |\n\tHello\n", 2, TAB),
        ("task_id: 'x\ncategory: y\n", 1, "a quote is opened and not closed"),
    ],
)
def test_a_syntax_error_names_the_line_that_is_at_fault(tmp_path: Path, text: str, line: int, words: str) -> None:
    package = build(tmp_path, text)
    with pytest.raises(TaskError) as caught:
        load_task(package.yaml)
    assert (caught.value.line, words in caught.value.message) == (line, True), caught.value
    assert ("spaces" in caught.value.remedy) == (words == TAB)


def test_an_unreadable_file_is_a_task_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(tmp_path / "absent.yaml")
    with pytest.raises(TaskError, match="cannot be read"):
        load_task(tmp_path)


def test_eval_rule_must_be_declared_and_exist(tmp_path: Path) -> None:
    assert "must include references/eval_rule.md" in str(refused(tmp_path, references="references: []"))
    outside = "references: [references/eval_rule.md, sources/a]"
    assert "not below references/" in str(refused(tmp_path, references=outside))
    package = build(tmp_path)
    (package.folder / "references" / "eval_rule.md").unlink()
    with pytest.raises(TaskError, match="does not exist"):
        load_task(package.yaml)
    assert load_task(package.yaml, check_assets=False).references == ("references/eval_rule.md",)


@pytest.mark.parametrize(
    ("link", "target", "line"),
    [
        ("sources/secret", "/etc/hostname", "sources: [secret]\n"),
        ("sources/secret", "../references/eval_rule.md", "sources: [secret]\n"),
        ("sources/secret", "../references/eval_rule.md", ""),
        ("skills/adding/more", "../../oracle", "skills: [adding]\n"),
        ("services/setup/all", "../..", "services: [{name: setup, start: x}]\n"),
        ("ops/make.py", "/etc/hostname", "pre_exec: [ops/make.py]\n"),
        ("references/loop", "loop", ""),
    ],
)
def test_links_that_lead_out_are_refused(tmp_path: Path, link: str, target: str, line: str) -> None:
    package = build(tmp_path, PUBLIC + line, {"skills/adding/SKILL.md": "", "services/setup/x": "", "oracle/o": ""})
    path = package.folder / link
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    with pytest.raises(TaskError, match="link that leads out"):
        load_task(package.yaml)


def test_links_that_stay_inside_are_fine(tmp_path: Path) -> None:
    package = build(tmp_path, PUBLIC + "sources: [b.csv]\n", {"sources/a.csv": "1"})
    (package.folder / "sources" / "b.csv").symlink_to("a.csv")
    assert load_task(package.yaml).sources == ("b.csv",)


def test_ready_is_for_background_services(tmp_path: Path) -> None:
    extra = "services: [{name: s, start: x, oneshot: true}]\nuniclaw: {services: {s: {ready: 'true'}}}\n"
    build(tmp_path, PUBLIC, {"services/s/x": ""})
    assert "background services only" in str(refused(tmp_path, extra))


def test_the_nearest_injection_folder_with_the_task_is_taken(tmp_path: Path) -> None:
    package = build(tmp_path)
    (package.yaml.parent / "injection").mkdir()
    assert load_task(package.yaml).folder == package.folder


def test_a_missing_package_names_what_was_looked_for_and_where(tmp_path: Path) -> None:
    package = build(tmp_path)
    package.folder.rename(package.folder.with_name("other"))
    with pytest.raises(TaskError) as caught:
        load_task(package.yaml)
    assert "injection/101_skill_usage/task_101_01_sum" in str(caught.value)
    assert str(package.yaml.parent) in str(caught.value)
    assert (caught.value.field, caught.value.line) == ("task_id", 1)


def test_a_wrong_category_is_told_at_its_line(tmp_path: Path) -> None:
    error = refused(tmp_path, category="category: 101_skil_usage")
    assert (error.field, error.line) == ("category", 2)
    assert f"write `category: 101_skill_usage`, or move {tmp_path}/injection/101_skill_usage" in error.remedy
    both = "\n".join(PUBLIC.replace("101_skill_usage", "101_other").replace("01_sum", "01_total").splitlines())
    (tmp_path / "suites/101_skill_usage/task_101_01_sum.yaml").write_text(both, encoding="utf-8")
    with pytest.raises(TaskError, match="no folder injection/101_other/task_101_01_total") as caught:
        load_task(tmp_path / "suites/101_skill_usage/task_101_01_sum.yaml")
    assert (caught.value.field, caught.value.line) == ("category", 2)


def test_the_injection_folder_can_be_given(tmp_path: Path) -> None:
    package = build(tmp_path / "a")
    elsewhere = tmp_path / "b" / "packages"
    elsewhere.parent.mkdir()
    package.folder.parents[1].rename(elsewhere)
    assert load_task(package.yaml, injection=elsewhere).folder.is_relative_to(elsewhere)
    with pytest.raises(TaskError, match="no folder"):
        load_task(package.yaml, injection=tmp_path)


def test_a_relative_path_gives_absolute_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = build(tmp_path)
    monkeypatch.chdir(package.yaml.parent)
    task = load_task(Path(package.yaml.name))
    assert task.path == package.yaml
    assert task.folder == package.folder


SNAPSHOT = "task_snapshot: Use the snapshot.\nsources: [a.csv, x_snapshot.json]\n"


def test_snapshot_mode_changes_prompt_keys_and_sources(tmp_path: Path) -> None:
    files = {".privacy": "TOKEN\nSNAPSHOT_MODE\n", "sources/a.csv": "", "sources/x_snapshot.json": "{}"}
    task = load_task(build(tmp_path, PUBLIC + SNAPSHOT, files).yaml)
    live, snapshot = resolve_variant(task, False), resolve_variant(task, True)
    assert (live.prompt, live.privacy_keys, live.excluded_sources) == (task.prompt, ("TOKEN",), ("x_snapshot.json",))
    assert live.environment == (("SNAPSHOT_MODE", "0"),)
    assert (snapshot.prompt, snapshot.privacy_keys, snapshot.excluded_sources) == ("Use the snapshot.", (), ())
    assert snapshot.environment == (("SNAPSHOT_MODE", "1"),)
    assert public_view(task, live).sources == ("a.csv",)
    assert public_view(task, snapshot).prompt == "Use the snapshot."


def test_snapshot_mode_means_nothing_to_other_tasks(tmp_path: Path) -> None:
    files = {".privacy": "TOKEN\n", "sources/a.csv": "", "sources/x_snapshot.json": "{}"}
    task = load_task(build(tmp_path, PUBLIC + SNAPSHOT, files).yaml)
    for mode in (False, True):
        variant = resolve_variant(task, mode)
        assert (variant.prompt, variant.privacy_keys, variant.excluded_sources) == (task.prompt, ("TOKEN",), ())


def test_the_public_view_has_no_room_for_hidden_data(tmp_path: Path) -> None:
    task = load_task(build(tmp_path, FULL, FILES).yaml)
    view = public_view(task, resolve_variant(task, False))
    assert set(type(view).__slots__) == {"task_id", "prompt", "language", "skills", "sources"}
    assert os.fspath(task.folder) not in repr(view)


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 512 << 20), ("2g", 2 << 30), ("1.5GB", 3 << 29), ("65536k", 64 << 20)]
)
def test_memory_sizes(text: str, size: int) -> None:
    assert memory_bytes(text) == size


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("", False),
        ("headed: true\n", True),
        ("headed: auto\nrecording: high\n", True),
        ("headed: false\nrecording: high\n", False),
        ("uniclaw: {tags: [gui]}\n", True),
        ("skills: [linux-gui-control]\n", True),
    ],
)
def test_who_gets_a_desktop(tmp_path: Path, lines: str, expected: bool) -> None:
    assert load(tmp_path, lines).gui is expected
