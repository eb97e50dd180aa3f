"""Progress across processes: workers append JSON lines to the run directory, the controller tails and prints them."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.options import worker_input
from pytest_uniclaw.report.record import clean_text
from pytest_uniclaw.session import run_info
from pytest_uniclaw.store import append_line
from pytest_uniclaw.turn import Sink

POLL_SECONDS = 0.25
FOLDER = "progress"
LINE_CHARACTERS = 300


def sink_of(config: pytest.Config, nodeid: str) -> Sink:
    """Return where an item's progress events go: its worker's file in the run directory."""
    path = run_info(config).directory / FOLDER / f"{worker_input(config).get('workerid', 'main')}.jsonl"

    def sink(event: dict[str, Any]) -> None:
        with suppress(OSError):  # a full disk is for the attempt to report
            append_line(path, {"item": nodeid, **event})

    return sink


def line_of(event: dict[str, Any]) -> str:
    """Return an event as one line for a person, short and free of control characters."""
    line = " ".join(clean_text(_told(event)).split())
    return line if len(line) <= LINE_CHARACTERS else line[: LINE_CHARACTERS - 1] + "…"


def _told(event: dict[str, Any]) -> str:
    item = str(event.get("item", "")).rpartition("/")[2]
    what = event.get("what")
    if what == "turn":
        return f"{item}: turn {event['turn']} of {event['of']}"
    if what == "verdict":
        return f"{item}: turn {event['turn']} judged: {event['verdict']} {event['score']:.2f}"
    if what == "retry":
        return f"{item}: trying again after: {event['why']}"
    return f"{item}: {what}"


class ProgressPrinter:
    """A controller thread that prints new progress lines to the real stdout, past pytest's capturing."""

    def __init__(self, run: Path) -> None:
        self._folder = run / FOLDER
        self._offsets = {path: path.stat().st_size for path in self._folder.glob("*.jsonl")}
        self._stop = threading.Event()
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

    def _run(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            self._drain()
        self._drain()
        if self._terminal:
            os.write(self._descriptor, b"\r\x1b[2K")

    def _drain(self) -> None:
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder.is_dir() else []:
            with path.open("rb") as stream:
                stream.seek(self._offsets.get(path, 0))
                for raw in iter(stream.readline, b""):
                    if not raw.endswith(b"\n"):
                        break
                    self._offsets[path] = stream.tell()
                    self._print(line_of(json.loads(raw)))

    def _print(self, line: str) -> None:
        text = f"\r\x1b[2K{line[:110]}" if self._terminal else f"\n  {line}"
        os.write(self._descriptor, text.encode("utf-8", "replace"))
