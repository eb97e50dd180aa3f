"""The documentation is right: its tables agree with the code, its links lead somewhere, its examples run.

A fenced block says what is done with it, after its language:

* ``title=PATH``: a file; the blocks of a page are written below one folder, links of ``needs=PAGE`` pages first.
* ``run``: commands (lines that begin with ``$``) that are run there without Docker; the lines below a command must
  occur in its output in that order, ``…`` stands for anything.
* ``docker``: the same with containers. ``exit=N`` is the exit status of every command of the block, else 0.
* ``repo``: run in the checkout instead of the page's folder, its run directories elsewhere.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import pytest_uniclaw.plugin as plugin
from pytest_uniclaw.extension import Extension, ServiceExtension
from pytest_uniclaw.models.script import load_script
from pytest_uniclaw.options import DEFAULT_FILES, FILES_INI, SHORT_INI
from pytest_uniclaw.optiontable import OPTIONS, Option
from pytest_uniclaw.report.upstream import upstream_status
from pytest_uniclaw.schema import CodexYaml, RoleSettings, ServiceYaml, TaskYaml
from pytest_uniclaw.settings import resolve
from pytest_uniclaw.status import INFRA_STATUSES, Outcome, PartialPolicy, Status, outcome_of
from pytest_uniclaw.task import load_task

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")])
COMMAND_SECONDS = 240
OFFLINE_PIP = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
"""Of the second pip takes the value, not the name: 0 is no isolation."""
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
NEEDS = re.compile(r"<!-- needs=(\S+) -->")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its words (``run``, ``title=x`` …), its text and its first line's number."""

    language: str
    words: tuple[str, ...]
    body: str
    line: int

    def value(self, key: str) -> str:
        return next((word.partition("=")[2] for word in self.words if word.startswith(f"{key}=")), "")

    @property
    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each command with the lines that must be in its output."""
        for piece in re.split(r"^\$ ", self.body, flags=re.MULTILINE)[1:]:
            command, *expected = piece.replace("\\\n", " ").splitlines()
            yield command, [line for line in expected if line.strip(" …")]


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        found.append(Block(language, tuple(words), match["body"], text[: match.start()].count("\n") + 1))
    return found


def files_of(page: Path) -> dict[str, str]:
    """Return the files of a page and of the pages that it builds on; of two with one name the page's own counts."""
    files: dict[str, str] = {}
    for needed in NEEDS.findall(page.read_text("utf-8")):
        files |= files_of(DOCS / needed)
    return files | {block.value("title"): block.body for block in blocks(page) if block.value("title")}


def write_files(page: Path, folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, body in files_of(page).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(body, "utf-8")


def make_environment(folder: Path) -> None:
    """Make a virtual environment for a page that installs something: it borrows what is installed here.

    A package is built and installed in it as a user would, with the build backend of this environment.
    """
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "borrowed.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    for program in ("pip", "pytest"):
        script = folder / "bin" / program
        script.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -P -m {program} "$@"\n')
        script.chmod(0o755)


def run_blocks(page: Path, word: str, folder: Path) -> None:
    """Run the commands of every block of a page that bears ``word``, in order."""
    if (folder / "pyproject.toml").is_file():
        make_environment(folder / ".venv")
    for block in blocks(page):
        if block.language == "console" and word in block.words:
            for command, expected in block.commands:
                output = run(command, folder, block)
                where = f"{page.relative_to(ROOT)}:{block.line}: $ {command}"
                assert_in_order(expected, output, where)


def run(command: str, folder: Path, block: Block) -> str:
    in_repo = "repo" in block.words
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENAI_", "UNICLAW_", "PYTEST_"))}  # noqa: TID251
    path = f"{folder / '.venv' / 'bin'}:{Path(sys.executable).parent}:{environment['PATH']}"
    environment |= {"PATH": path, "COLUMNS": "120", **OFFLINE_PIP}
    if in_repo:
        environment["PYTEST_ADDOPTS"] = f"-p no:cacheprovider --uniclaw-runs-dir={folder / 'runs'}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT if in_repo else folder, env=environment, capture_output=True, text=True,
        timeout=COMMAND_SECONDS, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    output = done.stdout + done.stderr
    assert done.returncode == int(block.value("exit") or 0), f"$ {command}\nexit {done.returncode}\n{output}"
    return output


def assert_in_order(expected: list[str], output: str, where: str) -> None:
    left = [line.strip() for line in output.splitlines()]
    for line in expected:
        pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
        while left and not re.fullmatch(pattern, left[0]):
            left.pop(0)
        assert left, f"{where}\nnot in the output: {line}\n{output}"
        left.pop(0)


def pages_with(word: str) -> list[Path]:
    return [page for page in PAGES if any(word in block.words for block in blocks(page))]


def name_of(page: object) -> str:
    return str(page.relative_to(ROOT)) if isinstance(page, Path) else str(page)


@pytest.mark.processes
@pytest.mark.parametrize("page", pages_with("run"), ids=name_of)
def test_commands_without_containers(page, tmp_path):
    write_files(page, tmp_path)
    run_blocks(page, "run", tmp_path)


@pytest.mark.docker
@pytest.mark.parametrize("page", pages_with("docker"), ids=name_of)
def test_commands_with_containers(page, tmp_path):
    write_files(page, tmp_path)
    run_blocks(page, "docker", tmp_path)


def add_declared(path: Path) -> None:
    """Make the files that an example declares and does not show."""
    data = yaml.safe_load(path.read_text("utf-8"))
    folder = path.parents[2] / "injection" / data["category"] / data["task_id"]
    names = [*data.get("references", ()), *data.get("pre_exec", ()), *(f"sources/{n}" for n in data.get("sources", ()))]
    names += [f"skills/{name}/SKILL.md" for name in data.get("skills", ())]
    names += [f"services/{service.get('path', service['name'])}/x" for service in data.get("services", ())]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_documented_tasks_and_scripts_load(page, tmp_path):
    write_files(page, tmp_path)
    for path in sorted(tmp_path.rglob("task_*.yaml")):
        add_declared(path)
        assert load_task(path).path.stem == path.stem
    for path in sorted(tmp_path.rglob("script/*.yaml")):
        assert load_script(path).turns


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_example_can_be_parsed(page):
    for block in blocks(page):
        if block.language == "python":
            compile(block.body, f"{page.name}:{block.line}", "exec")
        elif block.language == "yaml":
            yaml.safe_load(block.body)
        elif block.language == "toml":
            tomllib.loads(block.body)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_and_anchors_lead_somewhere(page):
    text = FENCE.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert anchor in {slug(title) for title in titles}, f"{page.name}: {target}"


def slug(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_option_that_is_named_exists(page):
    text = page.read_text("utf-8")
    known = {o.flag for o in OPTIONS}
    for named in re.findall(r"--uniclaw-[a-z-]*[a-z]", text):
        assert named in known, f"{page.name}: {named}"
    short = {o.short for o in OPTIONS if o.short}
    for block in blocks(page):
        for command, _ in block.commands if block.language == "console" else ():
            options = [w.partition("=")[0] for w in shlex.split(command, comments=True) if w.startswith("--")]
            strange = [o for o in options if not o.startswith("--uniclaw-") and o not in short | PYTEST_OPTIONS]
            assert not strange or "pytest" not in command, f"{page.name}:{block.line}: {strange}"


PYTEST_OPTIONS = {
    "--co", "--lf", "--html", "--self-contained-html", "--junitxml", "--runxfail", "--setup-show",
}  # fmt: skip
"""Options of pytest and its plugins that the pages use."""


def option_row(option: Option) -> str:
    names = ", ".join(f"`{name}`" for name in (option.short, option.flag) if name)
    default = f"`{option.default}`" if option.default else "–"
    choices = f": {' or '.join(f'`{choice}`' for choice in option.choices)}" if option.choices else ""
    text = option.help.replace(" (default: %(default)s)", "").replace("|", "\\|")
    return f"| {names} | `{option.dest}` | `{option.key}` | {default} | {text}{choices} |"


def status_row(number: int, status: Status) -> str:
    outcomes = [outcome_of(status, score, PartialPolicy()) for score in (0.0, 1.0)]
    shown = outcomes[0].value if outcomes[0] is outcomes[1] else f"{outcomes[1].value} or {outcomes[0].value}"
    counted = "no" if status in INFRA_STATUSES else "yes"
    return f"| {number} | [`{status.value}`](#{status.value}) | {shown} | {counted} | `{upstream_status(status)}` |"


def fixture_row(name: str, doc: str) -> str:
    return f"| `{name}` | {' '.join(doc.split())} |"


def assert_rows(page: str, rows: list[str]) -> None:
    text = (DOCS / "reference" / page).read_text("utf-8")
    missing = [row for row in rows if row not in text]
    assert not missing, f"docs/reference/{page} needs these rows:\n" + "\n".join(missing)
    places = [text.index(row) for row in rows]
    assert places == sorted(places), f"docs/reference/{page}: rows are not in the order of the code"


def test_options_page_has_every_option_with_its_default_and_ini_name():
    assert_rows("options.md", [option_row(option) for option in OPTIONS])
    text = (DOCS / "reference" / "options.md").read_text("utf-8")
    for name in (FILES_INI, SHORT_INI, *DEFAULT_FILES):
        assert f"`{name}`" in text
    named = set(re.findall(r"^\| .*?`--uniclaw-([a-z-]+)`", text, re.MULTILINE))
    assert named == {option.name for option in OPTIONS}


def test_statuses_page_has_the_rows_of_the_status_table():
    assert_rows("statuses.md", [status_row(number, status) for number, status in enumerate(Status, 1)])
    text = (DOCS / "reference" / "statuses.md").read_text("utf-8")
    for status in Status:
        assert f"\n### {status.value}\n" in text
    for outcome in Outcome:
        assert f"`{outcome.value}`" in text


def fixtures() -> dict[str, str]:
    kind = type(plugin.agent)
    return {name: str(value.__doc__) for name, value in vars(plugin).items() if isinstance(value, kind)}


def test_fixtures_page_has_every_fixture_with_its_docstring():
    found = fixtures()
    assert {"agent", "executor", "uniclaw_attempt"} <= set(found)
    text = (DOCS / "reference" / "fixtures.md").read_text("utf-8")
    for name, doc in found.items():
        row = fixture_row(name, doc)
        assert row in text, f"docs/reference/fixtures.md needs this row:\n{row}"
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(found)


@pytest.mark.parametrize("model", [TaskYaml, CodexYaml, RoleSettings, ServiceYaml, Extension, ServiceExtension])
def test_task_page_names_every_field(model):
    text = (DOCS / "reference" / "task-yaml.md").read_text("utf-8")
    missing = [name for name in model.model_fields if f"| `{name}` |" not in text]
    assert not missing, f"docs/reference/task-yaml.md has no row for {missing}"


def test_checks_page_names_all_that_evidence_offers():
    from pytest_uniclaw.judge.harness.evidence import Evidence

    text = (DOCS / "reference" / "checks.md").read_text("utf-8")
    for name in (name for name in vars(Evidence) if not name.startswith("_")):
        assert f"`evidence.{name}" in text, name


def test_script_page_names_every_step():
    from pytest_uniclaw.models import script

    text = (DOCS / "reference" / "scripted-model.md").read_text("utf-8")
    for name in (*script._STEPS, "think", "times"):
        assert f"| `{name}" in text, name


def test_example_settings_and_privacy_files_are_accepted(tmp_path):
    from pytest_uniclaw.privacy import read_values

    example = ROOT / "uniclaw.example.toml"
    settings = resolve({"uniclaw_config": str(example)}, {}, tmp_path, {"PATH": os.environ["PATH"]})  # noqa: TID251
    assert settings.providers or settings.missing_keys
    values = read_values(ROOT / "privacy.example.env")
    keys = [key for key, _ in values.pairs]
    assert keys
    assert values.problems(keys), "the example's values must be recognised as placeholders"


def test_the_gateways_limits_are_documented_with_their_defaults():
    from pytest_uniclaw.models.grants import Tuning

    page = DOCS / "reference" / "model-calls.md"
    (table,) = [block.body for block in blocks(page) if block.body.startswith("[gateway]")]
    assert tomllib.loads(table)["gateway"] == Tuning().model_dump()


def test_readme_is_short_and_says_the_two_commands_first():
    lines = (ROOT / "README.md").read_text("utf-8").splitlines()
    assert len(lines) < 150
    first_screen = "\n".join(lines[:45])
    for needed in ("make demo", "make test", "exit", "coverage"):
        assert needed in first_screen


def test_the_agent_in_a_conftest_is_short():
    source = files_of(DOCS / "how-to" / "plug-in-an-agent.md")["conftest.py"]
    assert len(source.splitlines()) < 20
