"""The controller's hooks: prepare the session, gather records, decide the exit status, write the summary."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any

import pytest

from pytest_uniclaw.collection import TaskItem
from pytest_uniclaw.errors import EngineError, SettingsError
from pytest_uniclaw.html import HtmlHooks
from pytest_uniclaw.options import load_settings
from pytest_uniclaw.outcome import properties_of
from pytest_uniclaw.progress import ProgressPrinter
from pytest_uniclaw.report.estimate import Planned, estimate_cost
from pytest_uniclaw.report.gate import GATE_FAILED, GateResult, evaluate_gate, parse_gate
from pytest_uniclaw.report.record import ItemRecord, crashed_record
from pytest_uniclaw.report.stats import summarise
from pytest_uniclaw.selection import Selected, selected_ids, selected_item, unreported
from pytest_uniclaw.session import DIRECTORY_KEY, RUN_KEY, SessionServices, choose_run
from pytest_uniclaw.status import Outcome
from pytest_uniclaw.terminal import resume_line, write_details, write_summary

TASK_FAILURES = frozenset({Outcome.FAILED.value, Outcome.XFAILED.value})
"""Outcomes that a gate excuses: the second is a failed report under ``--runxfail``."""


class Controller:
    """One per session, in the process that the user started."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._services = SessionServices(config)
        self._records: dict[str, ItemRecord] = {}
        self._selected: dict[str, Selected] = {}
        self._failed_tasks = 0
        self._gate: GateResult | None = None
        self._progress: ProgressPrinter | None = None
        self._ready = self._interrupted = False
        try:
            self._rules = parse_gate(load_settings(config).gate)
        except SettingsError as error:
            raise pytest.UsageError(str(error)) from None
        if config.pluginmanager.hasplugin("html") and config.getoption("htmlpath", None):
            config.pluginmanager.register(HtmlHooks(config, self._all_records), "uniclaw-html")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Without workers: prepare as soon as the items are known."""
        self._prepare({item.nodeid: selected_item(item) for item in session.items if isinstance(item, TaskItem)})

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker which run it belongs to."""
        name = choose_run(self._config)
        node.workerinput[RUN_KEY], node.workerinput[DIRECTORY_KEY] = name.run, str(name.directory)

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Interrupt the workers too. A session that ``-x`` cuts comes here with a subclass: nobody interrupted it."""
        self._interrupted = excinfo.type in {KeyboardInterrupt, pytest.exit.Exception}
        self._services.interrupt()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """With workers: prepare from the ids that the first of them collected, before any item is handed out."""
        if not self._services.prepared:
            self._prepare(selected_ids(self._config, ids))

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
        if item := self._selected.get(crashitem):
            why = "the worker process died while running it"
            record = crashed_record(item.task, item.agent, item.number, why, model=item.model)
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
            self._records[report.nodeid] = ItemRecord.model_validate(data)
            self._failed_tasks += report.failed and data["outcome"] in TASK_FAILURES
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
        passed = any(r.outcome == Outcome.PASSED.value for r in self._records.values())
        if not passed:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._rules:
            self._gate = evaluate_gate(self._rules, summarise("all", self._all_records()))
            excused = passed and session.testsfailed == self._failed_tasks
            good = pytest.ExitCode.OK if excused else pytest.ExitCode.TESTS_FAILED
            session.exitstatus = good if self._gate.holds else GATE_FAILED

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write infra in full and the uniclaw section; after Ctrl-C, say how to continue."""
        if not self._records and not (self._ready and self._interrupted):
            return
        records, settings = self._all_records(), load_settings(self._config)
        directory = choose_run(self._config).directory
        write_details(terminalreporter, self._config, records)
        write_summary(terminalreporter, records, self._gate, str(directory), settings)
        if self._interrupted and len(self._records) < len(self._selected):
            known = directory.parent.resolve() == settings.runs_dir.resolve()
            arguments = [str(argument) for argument in self._config.invocation_params.args]
            terminalreporter.line(resume_line(arguments, "latest" if known else str(directory)))

    def pytest_unconfigure(self) -> None:
        """Take the session's services down, however it ended: here the last worker has gone."""
        self._services.close()

    def _expected_cost(self) -> str:
        """Say what the session may cost by earlier runs; nothing where no cost is known."""
        settings = load_settings(self._config)
        planned = [Planned(one.task.task_id, one.agent, one.model) for one in self._selected.values()]
        found = estimate_cost(settings.runs_dir, planned) if settings.has_prices else None
        cap = f", cap {settings.max_cost:g} USD" if settings.max_cost else ""
        return f"expected cost: {found}{cap}" if found else ""

    def _prepare(self, selected: dict[str, Selected]) -> None:
        if self._config.option.collectonly or self._services.prepared or not selected:
            return
        self._selected = selected
        self._services.prepare([item.wanted for item in selected.values()])
        self._ready = True
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and (line := self._expected_cost()):
            reporter.write_line(line)
        if reporter is not None and self._config.get_verbosity() >= 0:
            self._progress = ProgressPrinter(choose_run(self._config).directory, reporter)
            self._config.pluginmanager.register(self._progress, "uniclaw-progress")
            self._progress.start()

    def _all_records(self) -> list[ItemRecord]:
        """Return a record for every selected item, also for those that the session did not come to."""
        return [*self._records.values(), *unreported(self._selected, self._records)]


def teardown_of(report: pytest.TestReport) -> pytest.TestReport:
    """Return an empty teardown report for an item whose worker died."""
    closing = pytest.TestReport(
        report.nodeid, report.location, {}, "passed", None, "teardown", user_properties=report.user_properties
    )
    closing.node = report.node  # type: ignore[attr-defined]
    return closing
