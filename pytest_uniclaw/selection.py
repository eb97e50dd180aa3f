"""What a session was asked for: the selected items, known from themselves or, with workers, from their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_uniclaw.collection import CUSTOM, TaskItem, is_task_file, item_name, models_of, needs_model
from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.modelchoice import ModelChoice
from pytest_uniclaw.options import load_settings
from pytest_uniclaw.preflight import Wanted
from pytest_uniclaw.report.record import ItemRecord, not_run_record
from pytest_uniclaw.settings import Settings
from pytest_uniclaw.task import Task, load_task


@dataclass(frozen=True)
class Selected:
    """One selected item: its task and what runs it, in the words of records.

    ``agent`` is :data:`CUSTOM` where only a conftest knows it; ``model`` is empty for an agent that needs none.
    """

    task: Task
    agent: str
    model: str
    number: int

    @property
    def wanted(self) -> Wanted:
        """What has to be checked before it runs."""
        return Wanted(self.task, None if self.agent == CUSTOM else self.agent)


def selected_item(item: TaskItem) -> Selected:
    """Return an item's selection."""
    return _selected(load_settings(item.config), item.task, item.agent_name, item.model, item.number)


def selected_ids(config: pytest.Config, ids: Iterable[str]) -> dict[str, Selected]:
    """Load the tasks that node ids name; ids of other tests and broken packages give nothing."""
    settings, found = load_settings(config), {}
    items: dict[str, dict[str, Selected]] = {}
    for nodeid in ids:
        file, _, name = nodeid.partition("::")
        if file not in items:
            items[file] = dict(_items_of(config, settings, file))
        if name in items[file]:
            found[nodeid] = items[file][name]
    return found


def unreported(selected: Mapping[str, Selected], records: Mapping[str, ItemRecord]) -> list[ItemRecord]:
    """Return a record for every selected item that has none; both mappings are by node id.

    An agent that only a conftest knows is called as in the records that there are of it.
    """
    told = {s.agent: records[i] for i, s in selected.items() if i in records and s.agent == CUSTOM}
    left = []
    for item in (item for nodeid, item in selected.items() if nodeid not in records):
        known = told.get(item.agent)
        agent, model = (known.agent, known.model) if known else (item.agent, item.model)
        left.append(not_run_record(item.task, agent, item.number, model=model))
    return left


def _selected(settings: Settings, task: Task, agent: str, choice: ModelChoice, number: int) -> Selected:
    asks = agent != CUSTOM and needs_model(agent, settings)
    return Selected(task, agent, choice.label if asks else "", number)


def _items_of(config: pytest.Config, settings: Settings, file: str) -> Iterator[tuple[str, Selected]]:
    """Yield the items that a file may have by name, as :class:`TaskFile` collects them."""
    if not is_task_file(Path(file), config):
        return
    with suppress(TaskError):
        task = load_task(_path_of(config, file))
        models = models_of(settings, task)
        for agent in (CUSTOM, *(settings.agents or (task.agent_sys,))):
            chosen = models if needs_model(agent, settings) else models[:1]
            for choice in chosen:
                for number in range(1, settings.attempts + 1):
                    name = item_name(agent, choice, several=len(chosen) > 1, number=number, attempts=settings.attempts)
                    yield name, _selected(settings, task, agent, choice, number)


def _path_of(config: pytest.Config, file: str) -> Path:
    """Return the file that a node id names: relative to the root, or for a suite elsewhere to its argument."""
    places = [Path(config.rootpath)]
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        places += [path, path.parent]
    return next((place / file for place in places if (place / file).is_file()), places[0] / file)
