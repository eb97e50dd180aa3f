"""What may be done with a package's folder, and by whom."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from task_package import PUBLIC, Package, build

from pytest_uniclaw.checkfile import GRADER_MODULES
from pytest_uniclaw.errors import AccessDenied, TaskError
from pytest_uniclaw.lint import lint_grading, lint_task, shorten
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
    task = load_task(build(tmp_path, files=GOOD).yaml)
    assert (lint_task(task), lint_grading(task)) == ([], [])


C2 = '@pytest.mark.checkpoint("C2")'
WRONG_CHECKS = [
    (C2, '@pytest.mark.checkpoint("C7")', "check_note: no checkpoint 'C7' in the rubric (C1, C2)", "name one of"),
    (C2, '@pytest.mark.checkpoint("C22")', "no checkpoint 'C22' in the rubric (C1, C2)", "did you mean C2?"),
    ("fabricated_rows", "fabricated", "no cap 'fabricated' in the rubric (fabricated_rows)", "did you mean fabri"),
    (C2, '@pytest.mark.checkpoint("C1")', "checkpoint C1 has 2 checks", "make one check of them"),
    (C2, '@pytest.mark.cap("fabricated_rows")', "cap fabricated_rows has 2 checks", "make one check of them"),
    (C2, "@pytest.mark.checkpoint", "the checkpoint mark needs one plain string", 'write @pytest.mark.checkpoint("…")'),
    (C2, "@pytest.mark.checkpoint(2)", "the checkpoint mark needs one plain string", "write @pytest"),
    (C2, "@pytest.mark.checkpoint(id='C2')", "the checkpoint mark needs one plain string", "write @pytest"),
    (C2, '@pytest.mark.checkpoint("C2", "C1")', "the checkpoint mark needs one plain string", "write @pytest"),
    (C2, "@pytest.mark.skip", "check_note needs exactly one of checkpoint, cap, fatal", "write one mark above it"),
    (C2, "", "check_note needs exactly one of checkpoint, cap, fatal", "name a helper otherwise"),
    (C2, f'@pytest.mark.fatal("x")\n{C2}', "check_note needs exactly one", "write one mark"),
    ("check_note", "check_totals", "check_totals is defined again on line 7, so this never runs", "another name"),
    ("def helper(", "def helper(]", "cannot be parsed: ", "correct the Python"),
    ("def helper(): ...", "x = 1\0", "cannot be parsed: ", "correct the Python"),
    ("def helper(): ...", "type X = int", "cannot be parsed: ", "Python 3.11"),
]
"""What is replaced in the good checks, by what, and words of message and remedy."""


@pytest.mark.parametrize(("old", "new", "words", "remedy"), WRONG_CHECKS)
def test_broken_checks_are_errors_with_remedies(tmp_path: Path, old: str, new: str, words: str, remedy: str) -> None:
    files = {**GOOD, "references/checks/check_sum.py": CHECKS.replace(old, new)}
    task = load_task(build(tmp_path, files=files).yaml)
    for findings in (lint_task(task), lint_grading(task)):
        (finding, *_) = [finding for finding in findings if words in finding.message]
        assert finding.severity == "error"
        assert finding.path == task.folder / "references/checks/check_sum.py"
        assert finding.line or "\0" in new
        assert remedy in finding.remedy


HIDDEN_MARKS = [
    (C2, "@pytest.mark.checkpoint(NAME)", "check_note: only running it shows what it decides"),
    (C2, "@decides('C2')", "check_note: only running it shows what it decides"),
    (f"{C2}\ndef check_note(evidence): ...", "check_note = made('C2')", "may bind a name that begins with check_"),
    (f"{C2}\ndef check_note(evidence): ...", "from helpers import *", "may bind a name that begins with check_"),
    (f"{C2}\ndef check_note(evidence): ...", "if 1:\n    def check_note(): ...", "may bind a name"),
    (f"{C2}\ndef check_note", "pytestmark = pytest.mark.checkpoint('C2')\ndef check_note", "only running it shows"),
]


@pytest.mark.parametrize(("old", "new", "words"), HIDDEN_MARKS)
def test_what_only_running_shows_is_no_error(tmp_path: Path, old: str, new: str, words: str) -> None:
    files = {**GOOD, "references/checks/check_sum.py": CHECKS.replace(old, new), "references/checks/helpers.py": ""}
    task = load_task(build(tmp_path, files=files).yaml)
    assert lint_grading(task) == []
    findings = lint_task(task)
    assert {finding.severity for finding in findings} == {"warning"}
    assert words in findings[0].message
    assert findings[-1].message.startswith("checkpoint C2 has no check")


def test_a_mark_may_be_imported_and_have_other_marks_beside_it(tmp_path: Path) -> None:
    text = CHECKS.replace("import pytest", "import pytest\nfrom pytest import mark")
    text = text.replace(C2, '@mark.checkpoint(" C2 ")\n@pytest.mark.filterwarnings("ignore")')
    assert lint_task(load_task(build(tmp_path, files={**GOOD, "references/checks/check_sum.py": text}).yaml)) == []


def test_what_has_no_check_is_an_error_where_checks_alone_grade(tmp_path: Path) -> None:
    text = CHECKS.replace(C2, '@pytest.mark.checkpoint("C1")').replace("cap(", "fatal(")
    task = load_task(build(tmp_path, files={**GOOD, "references/checks/check_sum.py": text}).yaml)
    found = [finding for finding in lint_grading(task) if "has no check" in finding.message]
    assert [(finding.message.partition(";")[0], finding.line, finding.path.name) for finding in found] == [
        ("checkpoint C2 has no check", 10, "eval_rule.md"), ("cap fabricated_rows has no check", 14, "eval_rule.md"),
    ]  # fmt: skip
    assert '@pytest.mark.cap("fabricated_rows")' in found[1].remedy
    missing = [finding for finding in lint_task(task) if "has no check" in finding.message]
    assert {finding.severity for finding in missing} == {"warning"}, "another supervisor may judge them"


def test_what_is_an_error_depends_on_who_grades(tmp_path: Path) -> None:
    broken = {"references/checks/check_sum.py": CHECKS.replace(C2, '@pytest.mark.checkpoint("C9")')}
    task = load_task(build(tmp_path, files={**GOOD, **broken}).yaml)
    path = task.folder / "references/eval_rule.md"
    path.write_text(path.read_text("utf-8").replace("0.60", "0.70"), "utf-8")
    weights, unknown = "the weights sum to 1.1, not to 1.00", "check_note: no checkpoint 'C9' in the rubric (C1, C2)"
    missing = "checkpoint C2 has no check; the supervisor `checks` cannot judge it"
    said = {name: [f.message for f in lint_grading(task, name)] for name in ("checks", "auto", "model", "codex")}
    assert said == {
        "checks": [weights, unknown, missing], "auto": [weights, unknown], "model": [weights], "codex": [weights],
    }  # fmt: skip


def test_a_task_without_checks_is_for_another_supervisor(tmp_path: Path) -> None:
    package = build(tmp_path)
    rule = (package.folder / "references" / "eval_rule.md").read_text(encoding="utf-8")
    package.write("references/eval_rule.md", rule.replace("0.60", "0.70"))
    task = load_task(package.yaml)
    assert lint_grading(task) == []
    (finding,) = lint_task(task)
    assert (finding.message, finding.line) == ("the weights sum to 1.1, not to 1.00", 9)
    package.write("references/checks/check_sum.py", CHECKS)
    assert lint_grading(task) == [finding]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("0.60", "0.61", "sum to 1.00"),
        ("C2 Note", "C1 Note", "another id"),
        ("0.60", "1.60", "above 0 and at most 1"),
        ("cap at 0.40", "cap at 1", "at least 0 and below 1"),
        ("cap at 0.40 if", "is bad if", "write `cap at 0.40 if …`"),
        ("- **0", "- **x", "write `- **0.30 — C1 Name.** text`"),
        ("Pass at >= 0.90", "Pass at >= 0.90. Or pass at >= 0.80", "success_threshold decides"),
    ],
)
def test_every_problem_of_a_rubric_has_its_remedy(tmp_path: Path, old: str, new: str, words: str) -> None:
    package = build(tmp_path, files=GOOD)
    rule = (package.folder / "references" / "eval_rule.md").read_text(encoding="utf-8")
    package.write("references/eval_rule.md", rule.replace(old, new))
    errors = [finding for finding in lint_task(load_task(package.yaml)) if finding.path.name == "eval_rule.md"]
    assert any(words in finding.remedy for finding in errors if finding.severity == "error"), errors


def test_a_task_without_references_is_one_finding(tmp_path: Path) -> None:
    package = build(tmp_path)
    (package.folder / "references" / "eval_rule.md").unlink()
    (package.folder / "references").rmdir()
    (finding,) = lint_task(load_task(package.yaml, check_assets=False))
    assert (finding.severity, finding.remedy) == ("error", "write references/eval_rule.md")


def test_softer_findings(tmp_path: Path) -> None:
    files = {"references/checks/sums.py": CHECKS.replace("cap(", "fatal("), "skills/adding/x": ""}
    text = PUBLIC.replace("0.9", "0.8") + "skills: [adding]\nmax_total_seconds: 60\n"
    package = build(tmp_path, text, files)
    rule = (package.folder / "references" / "eval_rule.md").read_text(encoding="utf-8")
    package.write("references/eval_rule.md", rule + "\nSee `references/absent.png`.\n")
    renamed = package.yaml.rename(package.yaml.with_name("other.yaml"))
    findings = lint_task(load_task(renamed))
    assert [finding.message for finding in findings] == [
        "the file is not named task_101_01_sum.yaml",
        "max_total_seconds 60 is less than timeout_seconds 1200",
        "skill adding has no SKILL.md",
        "names a pass threshold of 0.9; the task's success_threshold is 0.8",
        "cites references/absent.png, which does not exist",
        "has checks but is not named check_*.py, so they never run",
        "cap fabricated_rows has no check; the supervisor `checks` cannot judge it",
        "has checks but no oracle/solve.sh",
        "has checks but no script/model.yaml",
    ]
    assert all(finding.remedy for finding in findings)


def test_an_import_that_the_grading_image_lacks_is_a_warning(tmp_path: Path) -> None:
    lines = [
        "import json, numpy.linalg", "from PIL import Image", "import docx, yaml", "from . import near", "import near",
        "import sub.deep", "def helper():", "    import pytest_uniclaw.rubric",
    ]  # fmt: skip
    files = {
        **GOOD, "references/checks/check_sum.py": CHECKS + "\n".join(lines), "references/checks/near.py": "",
        "references/checks/sub/deep.py": "",
    }  # fmt: skip
    task = load_task(build(tmp_path, files=files).yaml)
    found = [(finding.severity, finding.line, finding.message.partition(",")[0]) for finding in lint_task(task)]
    first = CHECKS.count("\n") + 1
    assert found == [
        ("warning", first, "imports numpy"), ("warning", first + 7, "imports pytest_uniclaw"),
    ]  # fmt: skip
    assert lint_grading(task) == []


def test_the_modules_of_the_grading_image_are_those_of_its_requirements() -> None:
    docker = Path(__file__).parents[1] / "docker"
    assert "FROM ${PARENT}" in (docker / "grader" / "Dockerfile").read_text("utf-8")
    wanted = {
        line.partition("==")[0]
        for image in ("runtime", "grader")
        for line in (docker / image / "requirements.txt").read_text("utf-8").splitlines()
    }
    assert set(GRADER_MODULES.values()) == wanted


def test_paths_are_shortened_where_they_begin(tmp_path: Path) -> None:
    text = f"error: {tmp_path}/a b.py:3: see '{tmp_path}/c' and /x{tmp_path}/d in {tmp_path}"
    assert shorten(text, tmp_path) == f"error: a b.py:3: see 'c' and /x{tmp_path}/d in {tmp_path}"
