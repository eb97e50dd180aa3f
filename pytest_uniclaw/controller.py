"""The controller's hooks: prepare the session, gather records, decide the exit status, write the summary."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.collection import CUSTOM, TaskItem, is_task_file
from pytest_uniclaw.errors import EngineError, SettingsError, TaskError
from pytest_uniclaw.html import HtmlHooks
from pytest_uniclaw.options import load_settings
from pytest_uniclaw.outcome import properties_of
from pytest_uniclaw.preflight import Wanted
from pytest_uniclaw.progress import ProgressPrinter
from pytest_uniclaw.report.gate import GATE_FAILED, GateResult, evaluate_gate, parse_gate
from pytest_uniclaw.report.record import ItemRecord, crashed_record
from pytest_uniclaw.report.stats import Summary, summarise
from pytest_uniclaw.session import DIRECTORY_KEY, RUN_KEY, SessionServices, choose_run
from pytest_uniclaw.status import Outcome
from pytest_uniclaw.task import Task, load_task
from pytest_uniclaw.terminal import write_summary


class Controller:
    """One per session, in the process that the user started."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._services = SessionServices(config)
        self._records: list[ItemRecord] = []
        self._selected = 0
        self._failed_tasks = 0
        self._gate: GateResult | None = None
        self._progress: ProgressPrinter | None = None
        try:
            self._rules = parse_gate(load_settings(config).gate)
        except SettingsError as error:
            raise pytest.UsageError(str(error)) from None
        if config.pluginmanager.hasplugin("html") and config.getoption("htmlpath", None):
            config.pluginmanager.register(HtmlHooks(config, self._records), "uniclaw-html")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers: prepare as soon as the items are known."""
        items = [item for item in session.items if isinstance(item, TaskItem)]
        self._prepare([Wanted(item.task, known_agent(item.agent_name)) for item in items], len(items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker which run it belongs to."""
        name = choose_run(self._config)
        node.workerinput[RUN_KEY], node.workerinput[DIRECTORY_KEY] = name.run, str(name.directory)

    def pytest_keyboard_interrupt(self) -> None:
        """Interrupt the workers too."""
        self._services.interrupt()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """With workers: prepare from the ids that the first of them collected, before any item is handed out."""
        wanted = list(wanted_of(self._config, ids))
        self._prepare(wanted, len(wanted))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Remove what a dead worker left behind; what an engine that is gone keeps, the reaper looks for again."""
        if error and self._services.prepared and load_settings(self._config).sandbox == "docker":
            from pytest_uniclaw.sandbox.reaper import remove_owned

            with suppress(EngineError):
                remove_owned(run=choose_run(self._config).run, worker=node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Give the item a dead worker was running its record."""
        repeat = re.search(r"\[(\d+)\]$", crashitem)
        number = int(repeat[1]) if repeat else 1
        for wanted in wanted_of(self._config, [crashitem]):
            agent = wanted.agent or CUSTOM
            record = crashed_record(wanted.task, agent, number, "the worker process died while running it")
            report.uniclaw = record.dump()  # type: ignore[attr-defined]
            report.user_properties.extend(properties_of(record))
            report.when = "setup"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """Gather the records as they come in.

        A worker that died sends no teardown for its item, and without one JUnit drops its properties and html the item.
        """
        crashed = report.when == "setup" and not hasattr(report, "worker_id") and hasattr(report, "node")
        data = getattr(report, "uniclaw", None)
        if data is not None:
            self._records.append(ItemRecord.model_validate(data))
            self._failed_tasks += report.failed and data["outcome"] != Outcome.INFRA.value
        yield
        if crashed:
            self._config.hook.pytest_runtest_logreport(report=teardown_of(report))

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count infra outcomes in a category of their own."""
        data = getattr(report, "uniclaw", None)
        if data and data["outcome"] == Outcome.INFRA.value and report.failed:
            return "infra", "I", "INFRA"
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Decide the exit status: nothing passed is never 0, and a gate excuses failed tasks, nothing else."""
        if self._progress:
            self._progress.close()
        if not self._records or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        passed = any(r.outcome == Outcome.PASSED.value for r in self._records)
        if not passed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._rules:
            self._gate = evaluate_gate(self._rules, self._summary())
            excused = passed and session.testsfailed == self._failed_tasks
            good = pytest.ExitCode.OK if excused else pytest.ExitCode.TESTS_FAILED
            session.exitstatus = good if self._gate.holds else GATE_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write the uniclaw section, last of all."""
        if self._records:
            place = str(choose_run(self._config).directory)
            write_summary(terminalreporter, self._records, self._summary(), self._gate, place)

    def pytest_unconfigure(self) -> None:
        """Take the session's services down, however it ended: here the last worker has gone."""
        self._services.close()

    def _prepare(self, wanted: Sequence[Wanted], selected: int) -> None:
        self._selected = max(self._selected, selected)
        if self._config.option.collectonly or self._services.prepared or not wanted:
            return
        self._services.prepare(wanted)
        if self._config.get_verbosity() >= 0:
            self._progress = ProgressPrinter(choose_run(self._config).directory)
            self._progress.start()

    def _summary(self) -> Summary:
        return summarise("all", self._records, selected=self._selected)


def teardown_of(report: pytest.TestReport) -> pytest.TestReport:
    """Return an empty teardown report for an item whose worker died."""
    closing = pytest.TestReport(
        report.nodeid, report.location, {}, "passed", None, "teardown", user_properties=report.user_properties
    )
    closing.node = report.node  # type: ignore[attr-defined]
    return closing


def wanted_of(config: pytest.Config, ids: Iterable[str]) -> Iterable[Wanted]:
    """Load the tasks that node ids name; ids of other tests and broken packages give nothing."""
    loaded: dict[str, Task | None] = {}
    for nodeid in ids:
        file, _, name = nodeid.partition("::")
        if not is_task_file(Path(file), config):
            continue
        if file not in loaded:
            with suppress(TaskError):
                loaded[file] = load_task(path_of(config, file))
        if task := loaded.setdefault(file, None):
            agents = (CUSTOM, *(load_settings(config).agents or (task.agent_sys,)))
            named = [agent for agent in agents if re.fullmatch(rf"{re.escape(agent)}(-.*)?(\[\d+\])?", name)]
            yield Wanted(task, known_agent(max(named, key=len, default=CUSTOM)))


def path_of(config: pytest.Config, file: str) -> Path:
    """Return the file that a node id names: relative to the root, or for a suite elsewhere to its argument."""
    places = [Path(config.rootpath)]
    for argument in config.args:
        path = config.invocation_params.dir / argument.partition("::")[0]
        places += [path, path.parent]
    return next((place / file for place in places if (place / file).is_file()), places[0] / file)


def known_agent(name: str) -> str | None:
    """Return an item's agent name, None for one that only a conftest knows."""
    return None if name == CUSTOM else name
