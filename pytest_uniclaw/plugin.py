"""The hooks of the plugin, and nothing else: each hands over to the module that does the work."""

from __future__ import annotations

from collections.abc import Generator
from html import escape
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw import collection, fixtures, options
from pytest_uniclaw.controller import Controller
from pytest_uniclaw.outcome import RECORD, clean_report, shape_report
from pytest_uniclaw.report.record import crashed_record
from pytest_uniclaw.selection import selected_item
from pytest_uniclaw.session import interrupt_once, redactor_of, stop_reason, watch_controller
from pytest_uniclaw.terminal import header, set_up

agent = fixtures.agent
artifacts = fixtures.artifacts
attempt_spec = fixtures.attempt_spec
budget = fixtures.budget
executor = fixtures.executor
services = fixtures.services
simulator = fixtures.simulator
supervisor = fixtures.supervisor
task = fixtures.task
uniclaw_attempt = fixtures.uniclaw_attempt
uniclaw_parts = fixtures.uniclaw_parts
uniclaw_replay = fixtures.uniclaw_replay
uniclaw_run = fixtures.uniclaw_run


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options of :data:`pytest_uniclaw.optiontable.OPTIONS`."""
    options.add_options(parser, pluginmanager)


def pytest_configure(config: pytest.Config) -> None:
    """Register marks; on the controller, resolve the settings and take charge of the session."""
    for line in collection.MARKER_LINES:
        config.addinivalue_line("markers", line)
    options.load_settings(config)
    if options.is_worker(config):
        interrupt_once()
        watch_controller(config)
    else:
        collection.refuse_unknown_agents(config)
        config.pluginmanager.register(Controller(config), "uniclaw-controller")


def pytest_report_header(config: pytest.Config) -> str:
    """Show what will run."""
    return header(options.load_settings(config))


@pytest.hookimpl(optionalhook=True)
def pytest_metadata(metadata: dict[str, Any], config: pytest.Config) -> None:
    """Show what runs in the environment table of pytest-html too."""
    shown = set_up(options.load_settings(config))
    metadata.update({f"uniclaw {name}": escape(value) for name, value in shown.items()})


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect task files."""
    if collection.is_task_file(file_path, parent.config):
        return collection.task_file(parent, file_path)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget what an earlier run of the same item left, as `--reruns` of pytest-rerunfailures has it."""
    if RECORD in item.stash:
        del item.stash[RECORD]


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the session once no item can be judged any more, in each worker: what did not run is selected, not judged."""
    if nextitem is not None and isinstance(item, collection.TaskItem) and (why := stop_reason(item.config)):
        item.session.shouldstop = why


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the item's record on its report."""
    report = yield
    if isinstance(item, collection.TaskItem) and call.when != "teardown":
        record = item.stash.get(RECORD, None)
        if record is None and call.excinfo is not None and report.failed:
            told = isinstance(call.excinfo.value, pytest.fail.Exception)
            why = redactor_of(item.config).text(str(call.excinfo.value) if told else call.excinfo.exconly())
            known = selected_item(item)
            record = crashed_record(item.task, item.shown_agent, item.number, why, model=known.model)
        if record is not None and (call.when == "call" or report.outcome != "passed"):
            shape_report(record, item, report)
    if isinstance(item, collection.TaskItem):
        clean_report(report, redactor_of(item.config))
    return report
