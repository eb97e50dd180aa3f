"""Collect task files: a file is a module, an item is one task run once by one executor and model."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pytest_uniclaw.agents.registry import agent_names, load_agent
from pytest_uniclaw.errors import SettingsError, TaskError
from pytest_uniclaw.modelchoice import ModelChoice, parse_models
from pytest_uniclaw.options import FILES_INI, load_settings
from pytest_uniclaw.settings import Settings
from pytest_uniclaw.task import Task, load_task

PLAIN_MARKS = (
    "quickstart", "gui", "services", "needs_network", "local", "en", "zh",
    "skill_usage", "exploration", "long_context", "multimodal", "cross_platform",
)  # fmt: skip
"""Marks without arguments that an item may bear; free words of a task never become marks."""

MARKER_LINES = (
    "capability(name): the capability of a task's suite, e.g. -m \"capability(name='multimodal')\"",
    "language(code): the language of a task, en or zh",
    "suite(id): the number of a task's suite, e.g. -m \"suite(id='104')\"",
    *(f"{name}: a uniclaw task with this property" for name in PLAIN_MARKS),
)


CUSTOM = "custom"
"""The agent's name in an id when a conftest overrides the ``agent`` fixture: ids are made before fixtures."""


class TaskFile(pytest.Module):
    """One task YAML; collects its task once per model and repeat."""

    def _getobj(self) -> ModuleType:
        return sys.modules[__name__]

    def collect(self) -> Iterator[TaskItem]:
        """Load the task and yield its items; a bad package is a collection error that shows its message alone."""
        settings = load_settings(self.config)
        try:
            task = load_task(self.path)
        except TaskError as error:
            raise self.CollectError(str(error)) from None
        agents = (CUSTOM,) if overriding_file(self, "agent") else settings.agents or (task.agent_sys,)
        models = models_of(settings, task)
        for agent in agents:
            chosen = models if needs_model(agent, settings) else models[:1]
            for choice in chosen:
                for number in range(1, settings.attempts + 1):
                    name = item_name(agent, choice, several=len(chosen) > 1, number=number, attempts=settings.attempts)
                    yield TaskItem.from_parent(
                        self, name=name, callobj=run_task, task=task, agent_name=agent, model=choice, number=number
                    )


class TaskItem(pytest.Function):
    """One attempt of one task. ``model`` is what the executor gets if its agent needs one.

    ``agent_name`` is the agent's in the id. ``shown_agent`` is its name in records and tables: the same, until the
    fixture of a conftest has made the agent and told its own.
    """

    def __init__(self, *, task: Task, agent_name: str, model: ModelChoice, number: int, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.task, self.agent_name, self.model, self.number = task, agent_name, model, number
        self.shown_agent = agent_name
        for mark in marks_of(task):
            self.add_marker(mark)
        self.extra_keyword_matches.update(task.skills, task.tags)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Locate the item at its YAML; the title is what heads a failure."""
        return self.path, 0, f"{self.task.task_id} [{self.name}]"


def run_task(uniclaw_attempt: Callable[[], None]) -> None:
    """Every item's test function: run the attempt and raise its outcome."""
    uniclaw_attempt()


def task_file(parent: pytest.Collector, path: Path) -> TaskFile:
    """Return the collector of a task file; the id of one outside the root directory is its whole path.

    pytest takes an id relative to what the command line names: files that it names itself would all have the same one.
    """
    outside: Any = {} if path.is_relative_to(parent.config.rootpath) else {"nodeid": path.as_posix()}
    made: TaskFile = TaskFile.from_parent(parent, path=path, **outside)
    return made


def is_task_file(path: Path, config: pytest.Config) -> bool:
    """Decide by name, before anything is opened. ``000_…`` folders are upstream's templates."""
    patterns = config.getini(FILES_INI)
    return any(fnmatch(path.name, pattern) for pattern in patterns) and not path.parent.name.startswith("000_")


def overriding_file(node: pytest.Item | pytest.Collector, fixture: str) -> str:
    """Return the file that overrides one of our fixtures for a node, relative to the root if it can be; else nothing.

    pytest has no public way to ask.
    """
    definitions = node.session._fixturemanager.getfixturedefs(fixture, node) or ()
    function = inspect.unwrap(definitions[-1].func) if definitions else None
    if function is None or function.__module__ == "pytest_uniclaw.fixtures":
        return ""
    path, root = Path(inspect.getfile(function)), node.config.rootpath
    return str(path.relative_to(root) if path.is_relative_to(root) else path)


def refuse_unknown_agents(config: pytest.Config) -> None:
    """Make sure that every agent which an option names can be had. Raises :class:`pytest.UsageError`.

    An ``agent_sys`` of a task is looked at when the task is to run, so that foreign suites can be collected.
    """
    given, settings = config.getoption("uniclaw_agent", None), load_settings(config)
    try:
        names = agent_names(settings.agent_tables)
        if given is not None and not given.strip(", "):
            raise SettingsError(f"--agent={given} names no agent (installed agents: {', '.join(names)})")
        for name in settings.agents:
            load_agent(name, settings.agent_tables)
    except SettingsError as error:
        raise pytest.UsageError(str(error)) from None


def models_of(settings: Settings, task: Task) -> tuple[ModelChoice, ...]:
    """Return the models to run a task with: the session's, else the task's own."""
    return parse_models(settings.models or (task.model,))


def needs_model(agent: str, settings: Settings) -> bool:
    """Say whether an agent asks a model; one that is not installed may."""
    try:
        return load_agent(agent, settings.agent_tables).needs_model
    except SettingsError:
        return True


def item_name(agent: str, choice: ModelChoice, *, several: bool, number: int, attempts: int) -> str:
    """Return ``agent``, ``agent-model`` when several models run, with ``[k]`` for repeats."""
    name = f"{agent}-{choice.label}" if several else agent
    return f"{name}[{number}]" if attempts > 1 else name


def marks_of(task: Task) -> list[pytest.MarkDecorator]:
    """Return a task's marks: with arguments for ``-m "suite(id='104')"``, plain ones for ``-m multimodal``."""
    plain = {task.capability, task.language, *task.tags} - {"gui"}  # the tag asks for a desktop; `headed` decides
    plain |= {"services"} if task.services else set()
    plain |= {"needs_network"} if task.needs_network else set()
    plain |= {"gui"} if task.gui else set()
    plain |= {"local"} if task.local else set()
    marks = [
        pytest.mark.capability(name=task.capability),
        pytest.mark.language(code=task.language),
        pytest.mark.suite(id=task.suite),
    ]
    return marks + [getattr(pytest.mark, name) for name in PLAIN_MARKS if name in plain]
