"""Progress across processes: workers append JSON lines to the run directory, the controller tails and prints them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.options import worker_input
from pytest_uniclaw.report.lines import one_line
from pytest_uniclaw.report.record import clean_text
from pytest_uniclaw.session import run_info
from pytest_uniclaw.store import append_line
from pytest_uniclaw.turn import Sink
from pytest_uniclaw.verdict import Decision

POLL_SECONDS = 0.25
FOLDER = "progress"
LINE_CHARACTERS = 300
TERMINAL_CHARACTERS = 110
"""A longer line would be wrapped, and only its last part be erased."""
ERASE = "\r\x1b[2K"


def sink_of(config: pytest.Config, nodeid: str) -> Sink:
    """Return where an item's progress events go: its worker's file in the run directory."""
    path = run_info(config).directory / FOLDER / f"{worker_input(config).get('workerid', 'main')}.jsonl"

    def sink(event: dict[str, Any]) -> None:
        with suppress(OSError):  # a full disk is for the attempt to report
            append_line(path, {"item": nodeid, **event})

    return sink


def line_of(event: dict[str, Any]) -> str:
    """Return an event as one line for a person, short and free of control characters."""
    return one_line(clean_text(_told(event)), LINE_CHARACTERS)


def _told(event: dict[str, Any]) -> str:
    item = str(event.get("item", "")).rpartition("/")[2]
    what = event.get("what")
    if what == "retry":
        return f"{item}: trying again after: {event['why']}"
    turn = f"{item}: turn {event.get('turn')}/{event.get('of')}"
    if what == "turn":
        return turn
    if what == "verdict":
        return f"{turn}: {event['score']:.2f}{_what_follows(event)}"
    return f"{turn}: {what}"


def _what_follows(event: dict[str, Any]) -> str:
    """Say what the verdict leads to; ``continue`` in the last turn leads to nothing."""
    if event["verdict"] == Decision.CONTINUE.value and event["turn"] == event["of"]:
        return " (no follow-up left)"
    return f", {event['verdict']}"


class ProgressPrinter:
    """A controller thread that prints new progress lines to the real stdout, past pytest's capturing.

    It shares the screen with pytest's reporter, whose hooks it wraps: none of them writes on the other's line. On a
    terminal a progress line stays until the next line of either.
    """

    def __init__(self, run: Path, reporter: pytest.TerminalReporter) -> None:
        self._folder = run / FOLDER
        self._reporter = reporter
        self._offsets = {path: path.stat().st_size for path in self._folder.glob("*.jsonl")}
        self._stop = threading.Event()
        self._lock = threading.RLock()
        self._behind_pytest = False
        self._descriptor = os.dup(1)
        self._terminal = os.isatty(self._descriptor)
        self._thread = threading.Thread(target=self._run, name="uniclaw-progress", daemon=True)

    def start(self) -> None:
        """Begin to print."""
        self._thread.start()

    def close(self) -> None:
        """Print what is left and stop."""
        self._stop.set()
        self._thread.join(timeout=5)
        os.close(self._descriptor)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Generator[None, None, None]:
        """Give way to the item's location, which pytest writes without workers."""
        with self._given_way(self._reporter.showfspath or self._reporter.showlongtestinfo):
            yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """Give way to the item's result."""
        with self._given_way(report.when == "call" or report.outcome != "passed"):
            yield

    @contextmanager
    def _given_way(self, pytest_writes: bool) -> Iterator[None]:
        """Print what came before, and nothing inside; where pytest writes, its text begins a line."""
        with self._lock:
            if not self._stop.is_set():
                self._drain()
            if pytest_writes and not self._behind_pytest:
                self._behind_pytest = True
                if self._terminal and not self._stop.is_set():
                    self._write(ERASE)
            yield

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            self._drain()
        self._drain()
        if self._terminal and not self._behind_pytest:
            self._write(ERASE)

    def _drain(self) -> None:
        with self._lock:
            for path in sorted(self._folder.glob("*.jsonl")):
                with path.open("rb") as stream:
                    stream.seek(self._offsets.get(path, 0))
                    for raw in iter(stream.readline, b""):
                        if not raw.endswith(b"\n"):
                            break
                        self._offsets[path] = stream.tell()
                        with suppress(ValueError, KeyError, TypeError):  # a full disk can have cut an event short
                            self._print(line_of(json.loads(raw)))

    def _print(self, line: str) -> None:
        if self._terminal:
            self._write(("\n" if self._behind_pytest else ERASE) + line[:TERMINAL_CHARACTERS])
        else:
            self._write(("\n" if self._behind_pytest else "") + f"  {line}\n")
        self._behind_pytest = False

    def _write(self, text: str) -> None:
        os.write(self._descriptor, text.encode("utf-8", "replace"))
