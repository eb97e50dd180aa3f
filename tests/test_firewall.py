"""The firewall without containers: who may read what, which types cross it, and redaction by value."""

from __future__ import annotations

import ast
import base64
import dataclasses
import hashlib
import inspect
import json
import pickle
import types
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.agents.base import TurnRequest
from pytest_uniclaw.agents.nanobot import NanobotAgent
from pytest_uniclaw.attempt import FileRecord, Manifest, Refusal
from pytest_uniclaw.errors import AccessDenied, SettingsError, TaskError
from pytest_uniclaw.executor import Executor
from pytest_uniclaw.judge.base import Case, Evidence, Scene, Simulator, Visible
from pytest_uniclaw.judge.fingerprints import HiddenFingerprints
from pytest_uniclaw.judge.rewriter import Rewritten, rewrite
from pytest_uniclaw.models.grants import GrantRequest, Provider
from pytest_uniclaw.package import HiddenFolder, Reader, has_hidden, load_rubric, open_hidden
from pytest_uniclaw.privacy import PrivacyValues
from pytest_uniclaw.progress import line_of
from pytest_uniclaw.redaction import REDACTED, Redactor
from pytest_uniclaw.report.record import clean_text
from pytest_uniclaw.rubric import Rubric
from pytest_uniclaw.scrub import redact_collected, redact_file, redact_folder
from pytest_uniclaw.settings import resolve
from pytest_uniclaw.spec import RunContext
from pytest_uniclaw.task import PublicView, Task, load_task
from pytest_uniclaw.verdict import Assessment, Handoff, Verdict
from tests.task_package import Package, build

PACKAGE = Path(__file__).parents[1] / "pytest_uniclaw"
SECRET = 'pa"ss wörd/+&canary'
PLAIN = "hunter22-canary"
KEY = "uck-" + "Aa0_-" * 6 + "zz"
HIDDEN = {folder.value for folder in HiddenFolder}


# Who may open a hidden folder


@pytest.fixture
def package(tmp_path: Path) -> Package:
    built = build(tmp_path)
    built.write("oracle/solve.sh")
    built.write("script/model.yaml")
    return built


RIGHTS = {
    HiddenFolder.REFERENCES: Reader.SUPERVISOR, HiddenFolder.ORACLE: Reader.ORACLE_AGENT,
    HiddenFolder.SCRIPT: Reader.SCRIPTED_PROVIDER,
}  # fmt: skip


@pytest.mark.parametrize("reader", Reader)
@pytest.mark.parametrize("folder", HiddenFolder)
def test_a_hidden_folder_has_exactly_one_reader(package: Package, folder: HiddenFolder, reader: Reader) -> None:
    task = load_task(package.yaml)
    if RIGHTS[folder] is reader:
        assert open_hidden(task, folder, reader) == package.folder / folder.value
    else:
        with pytest.raises(AccessDenied, match=f"{folder}/ is read by the {RIGHTS[folder]} only, not by the {reader}"):
            open_hidden(task, folder, reader)


@pytest.mark.parametrize("reader", [reader for reader in Reader if reader is not Reader.SUPERVISOR])
def test_a_stranger_is_refused_whether_or_not_there_is_something(tmp_path: Path, reader: Reader) -> None:
    task = load_task(build(tmp_path).yaml)
    with pytest.raises(AccessDenied):
        load_rubric(task, reader)
    with pytest.raises(AccessDenied):
        open_hidden(task, HiddenFolder.ORACLE, Reader.EXECUTOR)


def test_existence_is_all_that_anybody_may_ask(package: Package, tmp_path: Path) -> None:
    task = load_task(package.yaml)
    assert has_hidden(task, HiddenFolder.SCRIPT)
    assert has_hidden(task, HiddenFolder.SCRIPT, "model.yaml")
    assert not has_hidden(task, HiddenFolder.SCRIPT, "other.yaml")
    assert not has_hidden(task, HiddenFolder.REFERENCES, "checks")


SMUGGLED = {
    "skills": "skills: [../references]\n",
    "service": "services: [{name: a, path: ../oracle, start: 'true'}]\n",
    "sources": "sources: [../references/eval_rule.md]\n",
    "linked skill": "skills: [linked]\n",
    "linked source": "sources: [linked]\n",
    "link in a service": "services: [{name: a, start: 'true'}]\n",
}


@pytest.mark.parametrize("kind", SMUGGLED)
def test_a_package_cannot_smuggle_a_hidden_folder_out_as_something_public(package: Package, kind: str) -> None:
    for folder in ("skills", "sources", "services/a"):
        (package.folder / folder).mkdir(parents=True)
    if kind.startswith("link"):
        where = {"linked skill": "skills/linked", "linked source": "sources/linked"}.get(kind, "services/a/linked")
        (package.folder / where).symlink_to(package.folder / "references", target_is_directory=True)
    with pytest.raises(TaskError):
        load_task(package.append(SMUGGLED[kind]).yaml)


# Where the code names what is hidden

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_docker" not in path.parts)

OPENS_HIDDEN = {
    "judge/supervisor.py": {"SUPERVISOR"}, "judge/firewall.py": {"SUPERVISOR"}, "turn.py": {"SUPERVISOR"},
    "judge/auto.py": {"SUPERVISOR"}, "judge/model.py": {"SUPERVISOR"}, "judge/desk.py": {"SUPERVISOR"},
    "regrade.py": {"SUPERVISOR"}, "lint.py": {"SUPERVISOR"}, "agents/oracle.py": {"ORACLE_AGENT"},
    "provisioning.py": {"SCRIPTED_PROVIDER"}, "soundness.py": {"SCRIPTED_PROVIDER"},
}  # fmt: skip
"""Modules that ask for a hidden folder, and as whom; ``lint`` and ``soundness`` read
for the author, and for a session before any of its agents runs."""
BUILDS_PATHS = {"package.py", "assets.py", "sandbox/grading.py", "judge/harness/evidence.py", "judge/harness/plugin.py"}
"""Where a path into a hidden folder is put together: the one door, the loader's look at what is declared, and the
grading container, in which the references lie beside the evidence."""
READS_PACKAGES = {
    "package.py", "task.py", "lint.py", "provisioning.py", "spec.py", "preexec.py", "sandbox/services.py",
    "preflight.py", "agents/oracle.py", "judge/desk.py",
}  # fmt: skip
"""Modules that use a task's folder at all (the loader's own modules get it as an argument)."""


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text("utf-8")))


def names_hidden(node: ast.AST) -> bool:
    """Say whether an operand or argument of a path is a hidden folder's name, or begins or goes on with one."""
    if isinstance(node, ast.JoinedStr):
        return any(names_hidden(part) for part in node.values)
    if isinstance(node, ast.Attribute) and node.attr in {"value", *(folder.name for folder in HiddenFolder)}:
        return "HiddenFolder" in ast.unparse(node)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(HIDDEN & set(node.value.split("/")))


TAKE_PATHS = {"Path", "PurePosixPath", "joinpath", "join", "glob", "rglob", "open", "Entry", "_need", "_find"}


def builds_hidden_path(node: ast.AST) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return names_hidden(node.left) or names_hidden(node.right)
    if isinstance(node, ast.Call):
        called = ast.unparse(node.func).rpartition(".")[2]
        return called in TAKE_PATHS and any(names_hidden(argument) for argument in node.args)
    return False


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_listed_modules_build_a_path_into_a_hidden_folder(path: Path) -> None:
    found = [node.lineno for node in nodes(path) if builds_hidden_path(node) and isinstance(node, ast.expr)]
    assert not found or name_of(path) in BUILDS_PATHS, f"{name_of(path)}: lines {found}; ask pytest_uniclaw.package"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_listed_modules_ask_for_a_hidden_folder(path: Path) -> None:
    asked = {
        node.attr for node in nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Reader"
    }  # fmt: skip
    if name_of(path) != "package.py":
        assert asked == OPENS_HIDDEN.get(name_of(path), set())


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_only_the_listed_modules_touch_a_tasks_folder(path: Path) -> None:
    used = [
        node.lineno for node in nodes(path)
        if isinstance(node, ast.Attribute) and node.attr == "folder"
        and ast.unparse(node.value).rpartition(".")[2] == "task"
    ]  # fmt: skip
    assert not used or name_of(path) in READS_PACKAGES, f"{name_of(path)}: lines {used}"


@pytest.mark.parametrize(
    "source",
    [
        'task.folder / "references"', 'task.folder / "script" / "model.yaml"', 'folder / f"{x}/oracle/solve.sh"',
        "task.folder / HiddenFolder.ORACLE.value", 'Path(folder, "references", name)', 'open(f"{folder}/script/a")',
        'os.path.join(folder, "oracle/data")', 'folder.glob("references/*.json")', 'folder.joinpath("script")',
    ],
)  # fmt: skip
def test_the_search_finds_such_paths(source: str) -> None:
    assert any(builds_hidden_path(node) for node in ast.walk(ast.parse(source)))


def test_the_lists_of_exceptions_hold_nothing_that_is_gone() -> None:
    names = {name_of(path) for path in MODULES}
    assert OPENS_HIDDEN.keys() <= names
    assert names >= BUILDS_PATHS
    assert names >= READS_PACKAGES
    for name in BUILDS_PATHS - {"judge/harness/evidence.py"}:
        assert any(builds_hidden_path(node) for node in nodes(PACKAGE / name)), name


# What crosses the firewall

CROSSING = {
    PublicView: {"task_id": str, "prompt": str, "language": typing.Literal["en", "zh"], "skills": tuple[str, ...],
                 "sources": tuple[str, ...]},
    Visible: {"answer": str, "files": tuple[str, ...], "turn": int},
}  # fmt: skip
"""Every field that the user simulator can see, by type; a new one needs a reason why it can hold nothing hidden."""


@pytest.mark.parametrize("kind", CROSSING, ids=lambda kind: kind.__name__)
def test_what_the_user_sees_has_these_fields_and_no_more(kind: type) -> None:
    hints = typing.get_type_hints(kind)
    assert {field.name: hints[field.name] for field in dataclasses.fields(kind)} == CROSSING[kind]
    assert kind.__dataclass_params__.frozen


def test_a_handoff_has_four_fields() -> None:
    assert list(Handoff.model_fields) == ["verdict", "attempt_state", "recoverable", "score"]
    hints = {name: field.annotation for name, field in Handoff.model_fields.items()}
    assert hints["recoverable"] is bool
    assert hints["score"] is float
    assert all(typing.get_origin(hints[name]) is typing.Literal for name in ("verdict", "attempt_state"))
    with pytest.raises(ValueError, match="Extra inputs"):
        Handoff.model_validate(
            {"verdict": "pass", "attempt_state": "incomplete", "recoverable": True, "score": 1.0, "rationale": "C1"}
        )
    with pytest.raises(ValueError, match="Input should be"):
        Handoff(verdict="it was 42", attempt_state="incomplete", recoverable=True, score=1.0)  # type: ignore[arg-type]


def test_simulator_and_rewriter_take_nothing_else() -> None:
    assert typing.get_type_hints(Simulator.reply) == {"scene": Scene, "return": str}
    rewriter = typing.get_type_hints(rewrite)
    assert rewriter == {
        "candidate": str, "hidden": HiddenFingerprints, "public": str, "language": str, "history": Sequence[str],
        "return": Rewritten,
    }  # fmt: skip
    assert set(inspect.signature(rewrite).parameters) == {"candidate", "hidden", "public", "language", "history"}


def reachable(kind: Any, seen: set[type]) -> set[type]:
    """Return every class that a value of a type can be made of."""
    if typing.get_origin(kind) is typing.Literal or kind is Ellipsis or kind in seen:
        return seen
    arguments = typing.get_args(kind)
    if arguments:
        for argument in arguments:
            reachable(argument, seen)
    elif isinstance(kind, type) and not isinstance(kind, types.GenericAlias):
        seen.add(kind)
        for hint in typing.get_type_hints(kind).values() if dataclasses.is_dataclass(kind) else ():
            reachable(hint, seen)
    return seen


@pytest.mark.parametrize("kind", [PublicView, Visible, HiddenFingerprints], ids=lambda kind: kind.__name__)
def test_no_path_task_or_rubric_is_reachable_from_what_crosses(kind: type) -> None:
    assert reachable(kind, set()) - {kind} <= {str, int, bytes}
    assert Path in reachable(Task, set()), "the walk finds what it looks for"


def test_no_hidden_value_is_reachable_from_a_scene() -> None:
    found = reachable(Scene, set())
    assert {PublicView, Visible, Handoff} <= found
    assert not found & {Task, Rubric, Case, Evidence, Assessment, Verdict, HiddenFingerprints}


SECRETS_OF_A_RUBRIC = ("Marzipan Lighthouse", "4711.25", "quokka", "绿色的鹦鹉在唱歌呢", "zanzibar_ledger.csv")


def test_fingerprints_hold_no_plaintext() -> None:
    text = " and ".join(f'"{secret}"' for secret in SECRETS_OF_A_RUBRIC) + " as the hidden ledger says in many words."
    hidden = HiddenFingerprints.build([text, json.dumps({"word": "quokka"})], "Add the numbers.")
    assert hidden.kinds_in("Is it zanzibar_ledger.csv?")
    for shown in (repr(hidden).encode(), str(hidden).encode(), pickle.dumps(hidden), pickle.dumps(hidden, 0)):
        for secret in (*SECRETS_OF_A_RUBRIC, "hidden ledger", "marzipan"):
            assert secret.encode() not in shown
            assert secret.encode("utf-16-le") not in shown
            assert secret.lower().encode() not in shown
    assert str(hidden.salt) not in repr(hidden)


# Redaction by value


def encodings(secret: str) -> dict[str, str]:
    data = secret.encode()
    return {
        "plain": f"a {secret} b", "json": json.dumps({"k": secret}),
        "json utf-8": json.dumps(secret, ensure_ascii=False),
        "json in json": json.dumps({"k": json.dumps([secret])}), "url": f"https://x/?t={quote(secret)}&b=1",
        "url all": quote(secret, safe=""), "form": quote_plus(secret), "hex": data.hex(), "HEX": data.hex().upper(),
        **{f"base64 {n}": base64.b64encode(b"x" * n + data + b"tail").decode() for n in range(4)},
        **{f"base64url {n}": base64.urlsafe_b64encode(b"?" * n + data).decode() for n in range(3)},
    }  # fmt: skip


@pytest.mark.parametrize("form", encodings(SECRET))
@pytest.mark.parametrize("secret", [SECRET, PLAIN])
def test_every_simple_form_is_blanked_in_text_and_bytes(secret: str, form: str) -> None:
    redactor, text = Redactor([secret]), encodings(secret)[form]
    assert REDACTED in redactor.text(text)
    assert secret[:8] not in redactor.text(text)
    assert redactor.data(text.encode()) == redactor.text(text).encode()
    assert redactor.value({text: [text, {"n": (text, 1, None)}]}).popitem()[0] == redactor.text(text)


@given(st.text(min_size=8, max_size=40), st.binary(max_size=7), st.binary(max_size=7))
def test_base64_is_found_at_every_offset(secret: str, before: bytes, after: bytes) -> None:
    encoded = base64.b64encode(before + secret.encode("utf-8", "replace") + after)
    cleaned = Redactor([secret]).data(encoded)
    if secret.casefold() not in {"true", "false", "null", "none"}:
        assert REDACTED.encode() in cleaned


@given(st.text(), st.binary())
def test_without_secrets_nothing_changes(text: str, data: bytes) -> None:
    assert Redactor(()).text(text) == text
    assert Redactor(()).data(data) == data


def test_bytes_that_are_no_text_keep_their_length() -> None:
    redactor = Redactor([PLAIN])
    data = b"\0\1" + PLAIN.encode() + b"\xff" + PLAIN.encode("utf-16-le") + PLAIN.encode("utf-16-be")
    assert redactor.data(data) == b"\0\1" + b"*" * len(PLAIN) + b"\xff" + b"*" * 4 * len(PLAIN)


def test_words_and_lookalikes_are_left_alone() -> None:
    redactor = Redactor(["1", "abc", "true", "None", ""])
    text = '{"abc": true, "n": None, "m": 1} duck-typing-is-a-nice-thing-to-have-in-python uck-short'
    assert redactor.text(text) == text
    assert redactor.data(text.encode()) == text.encode()


def test_virtual_keys_are_blanked_without_being_named() -> None:
    assert len(KEY) == 36
    assert Redactor(()).text(f'{{"apiKey": "{KEY}"}}') == '{"apiKey": "[redacted]"}'
    assert Redactor(()).data(f"Bearer {KEY}\n".encode()) == b"Bearer [redacted]\n"


def test_the_longer_of_two_overlapping_secrets_wins() -> None:
    assert Redactor(["hunter22", "hunter22-more"]).text("hunter22-more hunter22") == "[redacted] [redacted]"


# Redaction of what was collected


def collected(folder: Path, files: dict[str, bytes]) -> Manifest:
    records = []
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
        records.append(FileRecord(path=name, size=len(data), sha256=hashlib.sha256(data).hexdigest()))
    return Manifest(files=tuple(records), refused=(Refusal(path=f"ln-{PLAIN}", reason="link"),), refused_total=1)


def test_collected_files_and_names_are_redacted_and_the_manifest_agrees(tmp_path: Path) -> None:
    clean = b"nothing \xff\x00 here"
    files = {
        "clean.bin": clean, "a/env.txt": f"T={PLAIN}".encode(), f"d-{PLAIN}/x.txt": b"x", f"d-{PLAIN}/y.txt": b"y",
        f"{PLAIN}.txt": PLAIN.encode(), "[redacted]-3": b"a name that is taken", "empty": b"",
    }  # fmt: skip
    manifest = redact_collected(tmp_path, collected(tmp_path, files), Redactor([PLAIN]))
    there = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert there == {
        "clean.bin": clean, "a/env.txt": b"T=[redacted]", "[redacted]-3~": b"x", "[redacted]-4": b"y",
        "[redacted]-5": b"[redacted]", "[redacted]-3": b"a name that is taken", "empty": b"",
    }  # fmt: skip
    assert {f.path: (f.size, f.sha256) for f in manifest.files} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in there.items()
    }
    assert [refusal.path for refusal in manifest.refused] == ["ln-[redacted]"]
    assert not any(PLAIN in str(path) for path in tmp_path.rglob("*"))


def test_nothing_is_rewritten_without_a_secret(tmp_path: Path) -> None:
    manifest = Manifest(files=collected(tmp_path, {"a": b"abc", "b/c": b"x" * 10_000}).files)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert redact_collected(tmp_path, manifest, Redactor([PLAIN])) == manifest
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_file_that_cannot_be_rewritten_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pytest_uniclaw.scrub.write_bytes", full)
    (tmp_path / "agent.log").write_text(PLAIN)
    with pytest.raises(OSError, match="No space"):
        redact_file(tmp_path / "agent.log", Redactor([PLAIN]))
    assert list(tmp_path.iterdir()) == []


def test_links_and_missing_files_are_none_to_redact(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text(PLAIN)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(outside)
    redact_folder(tmp_path / "folder", Redactor([PLAIN]))
    redact_folder(tmp_path / "missing", Redactor([PLAIN]))
    assert not redact_file(tmp_path / "missing.log", Redactor([PLAIN]))
    assert outside.read_text() == PLAIN


# Secrets in the harness's own words


def test_no_representation_shows_a_secret(tmp_path: Path) -> None:
    context = RunContext("r", tmp_path, privacy=PrivacyValues((("T", PLAIN),)), keys=("sk-canary-key",))
    request = TurnRequest(1, "m", None, None, tmp_path, {"T": PLAIN})  # type: ignore[arg-type]
    executor = Executor(None, None, None, None, (), environment={"T": PLAIN})  # type: ignore[arg-type]
    grant = GrantRequest(attempt="a", role="executor", model="m", provider="p", log=tmp_path, secrets=(PLAIN,))
    provider = Provider(name="p", base_url="http://x", api_key="sk-canary-key")
    for value in (context, request, executor, grant, provider):
        assert "canary" not in f"{value!r} {value} {[value]}"
    assert set(context.secrets()) == {PLAIN, "sk-canary-key"}


def test_a_key_written_into_the_settings_file_is_refused_unseen(tmp_path: Path) -> None:
    (tmp_path / "uniclaw.toml").write_text('[providers.mine]\nbase_url = "http://x"\napi_key = "sk-canary-key"\n')
    with pytest.raises(SettingsError, match=r"takes base_url, .* and stream_usage, got base_url, api_key$"):
        resolve({}, {}, tmp_path, {})


def test_nanobots_shell_gets_what_the_task_declares_and_no_key(tmp_path: Path) -> None:
    access = types.SimpleNamespace(key=KEY, base_url="http://127.0.0.1:4010/v1", model="m")
    shell = NanobotAgent().configuration(access, "/w", ("GITHUB_TOKEN",))["tools"]["exec"]  # type: ignore[arg-type]
    assert "GITHUB_TOKEN" in shell["allowedEnvKeys"]
    assert not [name for name in shell["allowedEnvKeys"] if "KEY" in name]


LEAKY = '''
import logging
import pytest
from pytest_uniclaw.session import run_info

@pytest.fixture
def attempt_spec(request, uniclaw_run):
    environment = dict(uniclaw_run.context.privacy.pairs)
    print("printed", environment)
    logging.getLogger("x").warning("logged %s", environment)
    raise ValueError(f"it broke with {environment}")
'''


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["inline", "workers"])
def test_a_traceback_with_locals_shows_no_secret(pytester: pytest.Pytester, workers: tuple[str, ...]) -> None:
    build(pytester.path).append("uniclaw: {local: true}\n")
    pytester.makeconftest(LEAKY)
    (pytester.path / "values.env").write_text(f"TOKEN={PLAIN}\n")
    result = pytester.runpytest_subprocess(
        "--sandbox=local", "--agent=nop", "--supervisor=checks", "--showlocals", "-rA",
        "--uniclaw-privacy-file=values.env", "--html=h.html", "--junitxml=j.xml", "--self-contained-html", *workers,
    )  # fmt: skip
    result.stdout.fnmatch_lines(["*it broke with*redacted*"])
    texts = [path.read_text() for path in (pytester.path / "j.xml", pytester.path / "h.html")]
    files = [path for path in (pytester.path / "runs").rglob("*") if path.is_file()]
    assert files
    for text in (*texts, result.stdout.str(), result.stderr.str(), *(path.read_text() for path in files)):
        assert PLAIN not in text


# Words of an agent on a terminal


@pytest.mark.parametrize("character", "\x00\x07\x1b\x7f\x85\x9b\u2028\u2029\u202a\u202e\u2066\u2069\ud800\ufffe\r")
def test_what_moves_a_cursor_or_turns_the_writing_is_replaced(character: str) -> None:
    assert clean_text(f"a{character}b") == "a\ufffdb"


def test_ordinary_writing_is_kept() -> None:
    text = "naïve 中文，标点 שלום 👩‍💻\tx\ny"
    assert clean_text(text) == text


def test_a_progress_line_is_one_short_harmless_line() -> None:
    why = "\x1b[2J\x1b]0;owned\x07" + "PASSED\n" * 3 + "x" * 1_000_000
    line = line_of({"item": "suites/a/task_1.yaml::nanobot", "what": "retry", "why": why})
    assert len(line) <= 300
    assert line.startswith("task_1.yaml::nanobot: trying again after: \ufffd[2J\ufffd]0;owned\ufffdPASSED PASSED")
    assert "\n" not in line


@pytest.mark.parametrize(("candidate", "language"), [("0. 65", "zh"), ("再试试0. 65", "zh"), ("the 6\n/ 10", "en")])
def test_harmless_pieces_do_not_join_to_a_score(candidate: str, language: str) -> None:
    hidden = HiddenFingerprints.build([], "")
    done = rewrite(candidate, hidden=hidden, public="", language=language, history=[])
    assert done.decisions[-1] == "fallback"
    assert "dropped:score" in done.decisions
    assert "65" not in done.message


HIDDEN_ZH = (
    '{"file": "zanzibar_ledger.csv", "total": "4711.25", "word": "quokka", "id": "ab_12"}',
    "答案在付款汇总.xlsx里，合计8842。正确的是找Marzipan Lighthouse问，见https://secret.example/x 。",
)
IN_CHINESE = {
    "score": ("目前是0.65左右，请继续", "目前6/10，请继续", "你达到65%了", "现在.65"),
    "meta": ("按rubric要求再改", "supervisor说不行", "checkpoint二没过", "还差一个Check-point"),
    "secret": ("密钥sk-abcdefgh12345678请使用",),
    "file": ("看看zanzibar_ledger.csv里面", "打开付款汇总.xlsx看看"),
    "name": ("应该是quokka吧", "请找Marzipan Lighthouse问"),
    "identifier": ("用ab_12这个",), "number": ("总数应为4711.25元", "合计8842个"),
    "address": ("参考https://secret.example/x吧",),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in IN_CHINESE.items() for text in texts])
def test_latin_words_and_numbers_are_recognised_inside_chinese_text(kind: str, text: str) -> None:
    hidden = HiddenFingerprints.build(HIDDEN_ZH, "请汇总本月付款。")
    done = rewrite(text, hidden=hidden, public="请汇总本月付款。", language="zh", history=[])
    assert f"dropped:{kind}" in done.decisions
    assert done.decisions[-1] == "fallback"


@pytest.mark.parametrize(
    "text", ["再看一遍README.md里的要求", "请在2026年3月5日前给出3份PDF", "表格Excel里第12行漏了", "请继续完成第2步"]
)
def test_what_a_chinese_user_says_of_files_and_dates_is_kept(text: str) -> None:
    hidden = HiddenFingerprints.build(HIDDEN_ZH, "请汇总本月付款。")
    assert rewrite(text, hidden=hidden, public="请汇总本月付款。", language="zh", history=[]).message == text
