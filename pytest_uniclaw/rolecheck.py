"""Checks of the hidden roles' models that need no container: who will ask one, and can it be asked?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_uniclaw.budget import budget_of
from pytest_uniclaw.errors import SettingsError, TaskError
from pytest_uniclaw.extensions import asks_model, load_simulator, load_supervisor
from pytest_uniclaw.judge.base import Simulator, Supervisor
from pytest_uniclaw.modelchoice import ModelChoice, RoleChoice, choose_role
from pytest_uniclaw.models.script import load_script
from pytest_uniclaw.preflight import Wanted, require_provider
from pytest_uniclaw.settings import Settings
from pytest_uniclaw.task import Task


def supervisor_role(task: Task, settings: Settings) -> RoleChoice:
    """Return what the supervisor of a task works with."""
    chosen = settings.supervisor
    return choose_role(chosen.model, chosen.effort, task.supervisor, judges=settings.judges)


def simulator_role(task: Task, settings: Settings) -> RoleChoice:
    """Return what the user simulator of a task works with."""
    return choose_role(settings.simulator.model, settings.simulator.effort, task.user_simulator)


def supervisor_of(task: Task, settings: Settings) -> Supervisor:
    """Return the supervisor that the settings give a task. Raises SettingsError."""
    return load_supervisor(settings.supervisor.name, supervisor_role(task, settings))


def simulator_of(task: Task, settings: Settings) -> Simulator:
    """Return the user simulator that the settings give a task. Raises SettingsError."""
    return load_simulator(settings.simulator.name, simulator_role(task, settings))


def check_roles(wanted: Sequence[Wanted], settings: Settings) -> bool:
    """Make sure every hidden role that will ask a model has one; return whether any may. Raises SettingsError."""
    tasks = list({item.task.path: item.task for item in wanted}.values())
    needed = False
    for task in tasks:
        if not speaks_of(task.path, "supervisor"):
            needed |= check_supervisor(task, settings)
        asks = budget_of(task, settings).followups > 0 and asks_model(simulator_of(task, settings), task)
        if asks and not speaks_of(task.path, "simulator"):
            choice = simulator_role(task, settings).model
            _check("simulator", choice, task, settings, "--uniclaw-simulator-model")
            needed = True
    return needed or any(speaks_of(task.path, role) for task in tasks for role in ("supervisor", "simulator"))


def check_supervisor(task: Task, settings: Settings, option: str = "--uniclaw-supervisor-model") -> bool:
    """Make sure a supervisor that will ask a model has one, and return whether it will.

    ``option`` is how the remedy names a model. Raises SettingsError.
    """
    if not asks_model(supervisor_of(task, settings), task):
        return False
    _check("supervisor", supervisor_role(task, settings).model, task, settings, option)
    return True


def speaks_of(task_file: Path, fixture: str) -> bool:
    """Whether a ``conftest.py`` above a task file names a fixture: what it overrides is not known before the item."""
    files: Iterable[Path] = (folder / "conftest.py" for folder in task_file.parents)
    word = re.compile(rb"\b%s\b" % fixture.encode())
    return any(word.search(file.read_bytes()) for file in files if file.is_file())


def _check(role: str, choice: ModelChoice | None, task: Task, settings: Settings, option: str) -> None:
    if settings.cassette_replay is not None and choice is not None:
        return
    if choice is None:
        raise SettingsError(_no_model(role, task, option))
    if not choice.scripted:
        require_provider(f"the {role}", task, choice, settings)
    elif choice.script is None:
        raise SettingsError(
            f"the {role}'s model is 'script', and no task ships a script for that role\n"
            f"  fix: name a file with {option}=script:FILE"
        )
    elif not choice.script.is_file():
        raise SettingsError(
            f"the {role}'s script: no such file: {choice.script.absolute()}\n"
            f"  fix: correct the path of --{role}=script:FILE; a relative one is taken from the folder where "
            f"{'pytest' if option.startswith('--uniclaw-') else 'uniclaw'} was started"
        )
    else:
        try:
            load_script(choice.script, task.task_id)
        except TaskError as error:
            raise SettingsError(str(error)) from None


def _no_model(role: str, task: Task, option: str) -> str:
    if role == "simulator":
        return (
            f"the user simulator asks a model, and none is chosen for {task.task_id}\n"
            f"  fix: name one with {option}=PROVIDER/NAME, or run --simulator=template"
        )
    return (
        f"{task.task_id}: what has no check is judged by a model, and the supervisor has none\n"
        f"  fix: name one with {option}=PROVIDER/NAME; --supervisor=checks asks no model and leaves such tasks unjudged"
    )
