"""What may be done with a package's folder, and by whom."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from task_package import PUBLIC, Package, build

from pytest_uniclaw.errors import AccessDenied, TaskError
from pytest_uniclaw.lint import lint_task
from pytest_uniclaw.package import HiddenFolder, Reader, has_hidden, load_rubric, open_hidden, private_copy, unavailable
from pytest_uniclaw.privacy import PrivacyValues
from pytest_uniclaw.task import load_task, public_view, resolve_variant

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123456789\n"
NONE = PrivacyValues()
OPENERS = {
    HiddenFolder.REFERENCES: Reader.SUPERVISOR,
    HiddenFolder.ORACLE: Reader.ORACLE_AGENT,
    HiddenFolder.SCRIPT: Reader.SCRIPTED_PROVIDER,
}


@pytest.mark.parametrize(("folder", "reader"), list(itertools.product(HiddenFolder, Reader)))
def test_each_hidden_folder_has_exactly_one_reader(tmp_path: Path, folder: HiddenFolder, reader: Reader) -> None:
    package = build(tmp_path, files={"oracle/solve.sh": "", "script/model.yaml": ""})
    task = load_task(package.yaml)
    if OPENERS[folder] is reader:
        assert open_hidden(task, folder, reader) == package.folder / folder.value
    else:
        with pytest.raises(AccessDenied, match=f"{folder}/ is read by the {OPENERS[folder]} only"):
            open_hidden(task, folder, reader)


def test_an_absent_hidden_folder_names_path_and_remedy(tmp_path: Path) -> None:
    task = load_task(build(tmp_path).yaml)
    assert not has_hidden(task, HiddenFolder.SCRIPT)
    assert has_hidden(task, HiddenFolder.REFERENCES, "eval_rule.md")
    with pytest.raises(TaskError, match=r"script.*\n.*--model=script:FILE"):
        open_hidden(task, HiddenFolder.SCRIPT, Reader.SCRIPTED_PROVIDER)
    with pytest.raises(AccessDenied):
        open_hidden(task, HiddenFolder.SCRIPT, Reader.EXECUTOR)
    with pytest.raises(AccessDenied):
        load_rubric(task, Reader.REPORT)


def test_no_value_made_for_the_public_side_holds_a_hidden_word(tmp_path: Path) -> None:
    canary = "canary-9f2c"
    files = {f"{name}/{canary}.txt": canary for name in ("references", "oracle", "script")}
    task = load_task(build(tmp_path, files=files).yaml)
    assert canary not in repr(task)
    assert canary not in repr(public_view(task, resolve_variant(task, False)))


def test_a_missing_privacy_value_is_a_reason_to_skip(tmp_path: Path) -> None:
    task = load_task(build(tmp_path, files={".privacy": "TOKEN\nSNAPSHOT_MODE\n"}).yaml)
    assert "task_101_01_sum: privacy values missing: TOKEN" in str(unavailable(task, NONE, False))
    assert unavailable(task, NONE, True) is None
    assert unavailable(task, PrivacyValues((("TOKEN", "x1"),)), False) is None


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("sources/deep/big.mp4", ""),
        ("references/answer.png", ""),
        ("skills/adding/model.bin", "skills: [adding]\n"),
        ("services/setup/dump.sql", "services: [{name: setup, start: x}]\n"),
    ],
)
def test_an_unfetched_large_file_is_a_reason_to_skip(tmp_path: Path, name: str, extra: str) -> None:
    package = build(tmp_path, PUBLIC + extra, {name: POINTER, "meta/notes.png": POINTER, "skills/unused/x": POINTER})
    task = load_task(package.yaml)
    assert f"large file {name} not fetched" in str(unavailable(task, NONE, False))
    package.write(name, b"\x89PNG real")
    assert unavailable(task, NONE, False) is None


def test_a_text_that_merely_mentions_the_pointer_format_is_no_pointer(tmp_path: Path) -> None:
    package = build(tmp_path, files={"sources/a.md": b"# " + POINTER, "sources/b.md": POINTER + b"x" * 2000})
    assert unavailable(load_task(package.yaml), NONE, False) is None


def test_without_pre_exec_nothing_is_copied(tmp_path: Path) -> None:
    task = load_task(build(tmp_path).yaml)
    assert private_copy(task, tmp_path / "copy") is task
    assert not (tmp_path / "copy").exists()


def prepared(root: Path) -> Package:
    files = {"ops/make.py": "", "sources/a.csv": "1", "references/answers.json": "{}", ".privacy": "TOKEN\n"}
    return build(root, PUBLIC + "pre_exec: [ops/make.py]\n", files)


def test_the_private_copy_may_be_rewritten(tmp_path: Path) -> None:
    package = prepared(tmp_path)
    (package.folder / "ops" / "make.py").chmod(0o755)
    (package.folder / "sources" / "near.csv").symlink_to("a.csv")
    (package.folder / "sources" / "far.csv").symlink_to(package.folder / "sources" / "a.csv")
    task = load_task(package.yaml)
    copy = private_copy(task, tmp_path / "copy")
    assert copy.folder == tmp_path / "copy" / "101_skill_usage" / "task_101_01_sum"
    assert os.access(copy.folder / "ops" / "make.py", os.X_OK)
    (copy.folder / "sources" / "far.csv").write_text("rewritten", encoding="utf-8")
    (copy.folder / "references" / "answers.json").write_text("rewritten", encoding="utf-8")
    assert (copy.folder / "sources" / "near.csv").read_text(encoding="utf-8") == "rewritten"
    assert (package.folder / "sources" / "a.csv").read_text(encoding="utf-8") == "1"
    assert (package.folder / "references" / "answers.json").read_text(encoding="utf-8") == "{}"
    assert open_hidden(copy, HiddenFolder.REFERENCES, Reader.SUPERVISOR).is_relative_to(tmp_path / "copy")
    assert load_task(task.path) == task


def test_a_link_out_of_the_package_is_not_copied(tmp_path: Path) -> None:
    package = prepared(tmp_path)
    task = load_task(package.yaml)
    (package.folder / "ops" / "secret").symlink_to("/etc/hostname")
    with pytest.raises(TaskError, match="leads out of the package"):
        private_copy(task, tmp_path / "copy")


def test_a_special_file_is_not_copied(tmp_path: Path) -> None:
    package = prepared(tmp_path)
    task = load_task(package.yaml)
    os.mkfifo(package.folder / "ops" / "pipe")
    with pytest.raises(TaskError, match="neither a file, a folder nor a link"):
        private_copy(task, tmp_path / "copy")


CHECKS = """import pytest

@pytest.mark.checkpoint("C1")
def check_totals(evidence): ...

@pytest.mark.checkpoint("C2")
def check_note(evidence): ...

@pytest.mark.cap("fabricated_rows")
def check_rows(evidence): ...

def helper(): ...
"""
GOOD = {"references/checks/check_sum.py": CHECKS, "oracle/solve.sh": "", "script/model.yaml": ""}


def test_a_good_package_has_no_findings(tmp_path: Path) -> None:
    assert lint_task(load_task(build(tmp_path, files=GOOD).yaml)) == []


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('checkpoint("C1")', 'checkpoint("C7")', "no checkpoint 'C7' in the rubric (C1, C2)"),
        ('cap("fabricated_rows")', 'cap("fabricated")', "no cap 'fabricated' in the rubric (fabricated_rows)"),
        ('checkpoint("C2")', 'checkpoint("C1")', "checkpoint C1 has 2 checks"),
        ('checkpoint("C2")', "checkpoint(NAME)", "needs one plain string"),
        ('checkpoint("C2")', "skip", "needs exactly one of checkpoint, cap, fatal"),
        ('@pytest.mark.checkpoint("C2")', '@pytest.mark.fatal("x")\n@pytest.mark.checkpoint("C2")', "exactly one"),
        ("def helper(", "def helper(]", "cannot be parsed"),
    ],
)
def test_checks_that_name_nothing_are_found(tmp_path: Path, old: str, new: str, words: str) -> None:
    files = {**GOOD, "references/checks/check_sum.py": CHECKS.replace(old, new)}
    findings = lint_task(load_task(build(tmp_path, files=files).yaml))
    assert any(words in finding.message and finding.severity == "error" and finding.line for finding in findings)


def test_softer_findings(tmp_path: Path) -> None:
    files = {"references/checks/sums.py": CHECKS.replace("cap(", "fatal("), "skills/adding/x": ""}
    text = PUBLIC.replace("0.9", "0.8") + "skills: [adding]\nmax_total_seconds: 60\n"
    package = build(tmp_path, text, files)
    rule = (package.folder / "references" / "eval_rule.md").read_text(encoding="utf-8")
    package.write("references/eval_rule.md", rule + "\nSee `references/absent.png`.\n")
    renamed = package.yaml.rename(package.yaml.with_name("other.yaml"))
    messages = [finding.message for finding in lint_task(load_task(renamed))]
    assert messages == [
        "the file is not named task_101_01_sum.yaml",
        "max_total_seconds 60 is less than timeout_seconds 1200",
        "skill adding has no SKILL.md",
        "names a pass threshold of 0.9; the task's success_threshold is 0.8",
        "cites references/absent.png, which does not exist",
        "has checks but is not named check_*.py, so they never run",
        "cap fabricated_rows (eval_rule.md line 14) has no check",
        "has checks but no oracle/solve.sh",
        "has checks but no script/model.yaml",
    ]
