"""The child's side: one pytest run over ``references/checks``, reported check by check through a pipe."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from .evidence import Evidence

MESSAGE_CHARACTERS = 500
"""Longest message of one line."""
KINDS = ("checkpoint", "cap", "fatal")
MARKS = (
    "checkpoint(id): the check decides this checkpoint of eval_rule.md",
    "cap(id): the cap of eval_rule.md holds when the check fails",
    "fatal(reason): the attempt is irrecoverable when the check fails",
)


class DeadlineReached(BaseException):
    """The check used up its time; a base exception, so that ``except Exception`` in a check does not catch it."""


@dataclass
class Running:
    """The check that is running and what has been seen of it."""

    node: str
    kind: str
    identity: str
    outcome: str = "passed"
    message: str = ""
    awards: list[tuple[float, str]] = field(default_factory=list)

    def award(self, fraction: float, why: str) -> None:
        """Note partial credit and the reason for it."""
        if self.kind != "checkpoint":
            raise ValueError(f"award() belongs in a checkpoint's check, {self.node} is marked {self.kind}")
        value = float(fraction)
        if not (math.isfinite(value) and 0.0 <= value <= 1.0):
            raise ValueError(f"award({fraction!r}): a fraction lies within 0 and 1")
        self.awards.append((value, why))

    def line(self) -> dict[str, Any]:
        """Return the result line."""
        award, why = max(self.awards) if self.awards and self.outcome == "passed" else (None, "")
        return {
            "kind": self.kind,
            "id": self.identity,
            "node": self.node,
            "outcome": self.outcome,
            "award": award,
            "message": self.message or clean(why),
        }


class ChecksPlugin:
    """Selects, times and reports the checks of one run."""

    def __init__(self, root: Path, order: Mapping[str, Any]) -> None:
        self.root = root
        self.only = frozenset(order["only"])
        self.seconds = float(order["check_seconds"])
        self.pipe = int(order["pipe"])
        self.running: Running | None = None
        os.set_inheritable(self.pipe, False)

    def send(self, line: Mapping[str, Any]) -> None:
        """Write one line to the parent."""
        data = json.dumps(line).encode("ascii") + b"\n"
        while data:
            data = data[os.write(self.pipe, data) :]

    def pytest_configure(self, config: pytest.Config) -> None:
        """Register the marks."""
        for mark in MARKS:
            config.addinivalue_line("markers", mark)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report a check file that could not be imported."""
        if report.failed:
            lines = [line for line in str(report.longrepr).splitlines() if line.startswith("E ")]
            text = " ".join(line[2:].strip() for line in lines) or str(report.longrepr)
            self.send({"kind": "collection_error", "node": clean(report.nodeid), "message": clean(text)})

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the marked checks that were asked for and announce them."""
        nodes = []
        kept = []
        for item in items:
            if self.only and item.nodeid not in self.only:
                continue
            try:
                kind, identity = subject(item)
            except ValueError as error:
                self.send({"kind": "collection_error", "node": clean(item.nodeid), "message": clean(str(error))})
                continue
            kept.append(item)
            nodes.append({"node": item.nodeid, "kind": kind, "id": identity})
        items[:] = kept
        self.send({"kind": "collected", "nodes": nodes})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Announce the check before it runs and report it afterwards."""
        kind, identity = subject(item)
        self.running = Running(node=item.nodeid, kind=kind, identity=identity)
        self.send({"kind": "start", "node": item.nodeid})
        result = yield
        self.send(self.running.line())
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> Generator[None, object, object]:
        """Run the check under its alarm."""
        with alarm(self.seconds):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note the first thing that went wrong in any phase."""
        report = yield
        running = self.running
        if running is not None and running.outcome == "passed" and report.outcome != "passed":
            running.outcome, running.message = judge(report, call.excinfo, self.seconds)
        return report

    @pytest.fixture
    def evidence(self) -> Evidence:
        """What was collected from the turn, through safe readers."""
        assert self.running is not None
        return Evidence(self.root, award=self.running.award, violation=self._violation)

    def _violation(self, text: str) -> None:
        node = self.running.node if self.running else ""
        self.send({"kind": "integrity", "node": node, "message": clean(text)})


def run(root: Path, order: Mapping[str, Any]) -> int:
    """Run the checks below ``root`` as ``order`` says; returns pytest's exit status."""
    checks = root / "references" / "checks"
    plugin = ChecksPlugin(root, order)
    arguments = [
        "-c",
        "/dev/null",
        "--rootdir",
        str(checks),
        "--confcutdir",
        str(checks),
        "--noconftest",
        "--disable-plugin-autoload",
        "-p",
        "no:cacheprovider",
        "--continue-on-collection-errors",
        "--import-mode=prepend",
        "-o",
        "python_files=check_*.py",
        "-o",
        "python_functions=check_*",
        "-o",
        "python_classes=",
        "-q",
        "--no-header",
        "--color=no",
        "--tb=short",
        str(checks),
    ]
    code = int(pytest.main(arguments, plugins=[plugin]))
    if code in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}:
        plugin.send({"kind": "end"})
    return code


def subject(item: pytest.Item) -> tuple[str, str]:
    """Return kind and id of a check. Raises ValueError when its marks do not say exactly one."""
    marks = [mark for mark in item.iter_markers() if mark.name in KINDS]
    if len(marks) != 1:
        found = ", ".join(mark.name for mark in marks) or "none"
        raise ValueError(f"{item.nodeid}: needs exactly one of the marks checkpoint, cap, fatal; it has {found}")
    mark = marks[0]
    if len(mark.args) != 1 or mark.kwargs or not isinstance(mark.args[0], str) or not mark.args[0].strip():
        raise ValueError(f"{item.nodeid}: the mark {mark.name} takes one text, such as {mark.name}('C1')")
    return mark.name, clean(mark.args[0].strip())


def judge(
    report: pytest.TestReport, info: pytest.ExceptionInfo[BaseException] | None, seconds: float
) -> tuple[str, str]:
    """Return outcome and message of a phase that did not pass."""
    if info is None:
        return "error", clean(str(report.longrepr))
    if report.outcome == "skipped":
        return "skipped", clean(str(info.value) or "skipped")
    if isinstance(info.value, DeadlineReached):
        return "timeout", f"did not finish within {seconds:g} s"
    if isinstance(info.value, AssertionError | pytest.fail.Exception):
        return "failed", clean(_assertion_text(str(info.value)) or f"assertion failed{_where(info)}")
    return "error", clean(f"{info.typename}: {_text(info.value)}{_where(info)}")


def clean(text: str) -> str:
    """Make text valid UTF-8 on one line of at most ``MESSAGE_CHARACTERS`` characters."""
    sound = text.encode("utf-8", "replace").decode("utf-8")
    line = " ".join("".join(c if c.isprintable() else " " for c in sound[: 20 * MESSAGE_CHARACTERS]).split())
    return line if len(line) <= MESSAGE_CHARACTERS else line[: MESSAGE_CHARACTERS - 1] + "…"


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise DeadlineReached in the block after ``seconds``."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise DeadlineReached

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _assertion_text(text: str) -> str:
    """Drop pytest's rendering of the expression where the author wrote a message before it."""
    head, found, _ = text.partition("\nassert ")
    return head if found and head.strip() else text


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # a broken __str__ of a library's exception must not cost the check its line
        return "(no text)"


def _where(info: pytest.ExceptionInfo[BaseException]) -> str:
    for entry in reversed(list(info.traceback)):
        if Path(str(entry.path)).name.startswith("check_"):
            return f" ({Path(str(entry.path)).name}:{entry.lineno + 1})"
    return ""
