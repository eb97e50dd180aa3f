"""Whether packages can be graded and played back: every error that reading them shows, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from pytest_uniclaw.agents.registry import load_agent
from pytest_uniclaw.errors import SettingsError, TaskError
from pytest_uniclaw.lint import Finding, finding_of, lint_grading, lint_task, shorten
from pytest_uniclaw.modelchoice import parse_model
from pytest_uniclaw.models.script import load_script
from pytest_uniclaw.package import HiddenFolder, Reader, has_hidden, open_hidden
from pytest_uniclaw.preflight import Wanted
from pytest_uniclaw.rolecheck import speaks_of
from pytest_uniclaw.settings import Settings
from pytest_uniclaw.task import Task, load_task

KNOWN_SUPERVISORS = frozenset({"auto", "checks", "model", "codex"})
"""Those whose demands on a package are known here."""


def lint_file(path: Path, *, check_assets: bool) -> list[Finding]:
    """All findings on one task file and its package: what keeps it from loading, or what else is questionable."""
    try:
        task = load_task(path, check_assets=check_assets)
    except TaskError as error:
        return [finding_of(error)]
    script = own_script(task)
    return [*lint_task(task), *(lint_script(script) if script else ())]


def check_packages(wanted: Sequence[Wanted], settings: Settings) -> None:
    """Make sure that the checks and scripts that this session will use are sound.

    Raises SettingsError with every error, as ``uniclaw lint`` words it. A package with ``pre_exec`` is left alone, for
    that may rewrite both; so are the rubric and checks of tasks with a supervisor of a conftest or of another package.
    """
    findings = [*_broken_checks(wanted, settings), *_broken_scripts(wanted, settings)]
    if findings:
        lines = [f"{len(findings)} errors in the selected task packages, so nothing was started:"]
        raise SettingsError(shorten("\n".join([*lines, *map(str, findings)]), Path.cwd()))


def lint_script(path: Path) -> list[Finding]:
    """What is wrong with a script, as far as its loader says: nothing or one error."""
    try:
        load_script(path)
    except TaskError as error:
        return [finding_of(error)]
    return []


def own_script(task: Task) -> Path | None:
    """Return the script that a package ships, if it ships one."""
    if not has_hidden(task, HiddenFolder.SCRIPT, "model.yaml"):
        return None
    return open_hidden(task, HiddenFolder.SCRIPT, Reader.SCRIPTED_PROVIDER) / "model.yaml"


def _broken_checks(wanted: Iterable[Wanted], settings: Settings) -> Iterator[Finding]:
    if settings.supervisor.name not in KNOWN_SUPERVISORS:
        return
    tasks = {item.task.path: item.task for item in wanted if not item.task.pre_exec}
    for path, task in tasks.items():
        errors = lint_grading(task, settings.supervisor.name)
        if errors and not speaks_of(path, "supervisor"):
            yield from errors


def _broken_scripts(wanted: Iterable[Wanted], settings: Settings) -> Iterator[Finding]:
    """Errors of the scripts that known agents will be answered from, and unknown ones may be."""
    if settings.cassette_replay is not None:
        return
    names, tables = {item.agent for item in wanted}, settings.agent_tables
    asks = {name: name is None or load_agent(name, tables).needs_model for name in names}
    scripts: dict[Path | None, None] = {}
    for item in wanted:
        choices = [parse_model(text) for text in settings.models or (item.task.model,)]
        for choice in choices if asks[item.agent] else ():
            if choice.script is not None:
                scripts[choice.script] = None
            elif choice.scripted and not item.task.pre_exec:
                scripts[own_script(item.task)] = None
    for script in scripts:
        if script is not None and script.is_file():
            yield from lint_script(script)
