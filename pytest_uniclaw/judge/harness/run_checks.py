"""Run the checks of a task: ``python3 -I /grading/harness/run_checks.py [ROOT]``, ROOT being ``/grading``.

Reads ``ROOT/job.json`` = ``{"only": [node, ...], "check_seconds": N}`` and writes ``ROOT/out/judgements.jsonl``, one
JSON object a line: ``collected`` first, then one line per check (kind ``checkpoint``, ``cap`` or ``fatal``),
``integrity`` and ``collection_error`` where they occur, ``end`` last.

The checks run in a child process that reports through a pipe. A child that dies costs the check it was running,
which is reported as ``crashed``; one that overruns the deadline by ``GRACE`` seconds is killed and reported as
``timeout``. The remaining checks go on in a new child.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

GRACE = 2.0
"""Seconds that a check may overrun its own alarm before its process is killed."""
COLLECT_SECONDS = 60.0
"""Seconds between two reports while no check is running: start, collection, shutdown."""
RESULTS = ("checkpoint", "cap", "fatal")


@dataclass(frozen=True)
class Job:
    """What the host asked for."""

    only: tuple[str, ...]
    check_seconds: float


@dataclass
class Round:
    """What one child process reported. ``nodes`` maps a node to its kind and id, None before collection ended."""

    nodes: dict[str, tuple[str, str]] | None = None
    running: str | None = None
    done: set[str] = field(default_factory=set)
    ended: bool = False
    killed: bool = False
    exit_code: int | None = None


def main(argv: Sequence[str]) -> int:
    """Grade; returns 0 whenever the output file is complete."""
    root = Path(argv[1]) if len(argv) > 1 else Path("/grading")
    _hide()
    if len(argv) > 2:
        return int(_package().plugin.run(root, json.loads(argv[2])))
    raw = json.loads((root / "job.json").read_text("utf-8"))
    job = Job(only=tuple(raw.get("only") or ()), check_seconds=float(raw.get("check_seconds", 20.0)))
    (root / "out").mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="checks-"))
    try:
        with (root / "out" / "judgements.jsonl").open("w", encoding="utf-8") as out:
            grade(root, job, scratch, out)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


def _hide() -> None:
    """Let no other process of this account open what this one has open: a check may have started one.

    ``prctl(PR_SET_DUMPABLE, 0)``; it does not keep such a process from killing this one.
    """
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def grade(root: Path, job: Job, scratch: Path, out: TextIO) -> None:
    """Run child after child until every collected check has a line."""
    only: Sequence[str] = job.only
    first = True
    while True:
        report = _run_child(root, job, only, scratch, out, first)
        if report.nodes is None:
            message = f"the checks were not collected: their process ended with {_how(report)}"
            _write(out, {"kind": "collection_error", "node": "", "message": message})
            break
        if report.running and not report.ended:
            _write(out, _lost(report, job))
            report.done.add(report.running)
        left = [node for node in report.nodes if node not in report.done]
        if report.ended or not left or not report.done:
            break
        only, first = left, False
    _write(out, {"kind": "end"})


def _lost(report: Round, job: Job) -> dict[str, Any]:
    assert report.nodes is not None
    assert report.running is not None
    kind, identity = report.nodes[report.running]
    if report.killed:
        outcome, message = "timeout", f"still running {GRACE:g} s after its deadline of {job.check_seconds:g} s"
    else:
        outcome, message = "crashed", f"the check's process ended with {_how(report)}"
    return {
        "kind": kind,
        "id": identity,
        "node": report.running,
        "outcome": outcome,
        "award": None,
        "message": message,
    }


def _how(report: Round) -> str:
    if report.killed:
        return "a kill at its deadline"
    code = report.exit_code if report.exit_code is not None else 0
    return f"signal {-code}" if code < 0 else f"exit status {code}"


def _run_child(root: Path, job: Job, only: Sequence[str], scratch: Path, out: TextIO, first: bool) -> Round:
    reader, writer = os.pipe()
    order = {"pipe": writer, "only": list(only), "check_seconds": job.check_seconds}
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }
    script = Path(__file__).absolute()
    child = subprocess.Popen(
        [sys.executable, "-I", "-B", "-X", "utf8", str(script), str(root.absolute()), json.dumps(order)],
        cwd=scratch,
        env=environment,
        stdin=subprocess.DEVNULL,
        pass_fds=(writer,),
        start_new_session=True,
    )
    os.close(writer)
    report = Round()
    try:
        _follow(child, reader, report, job, out, first)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        report.exit_code = child.wait()
    return report


def _follow(child: subprocess.Popen[bytes], reader: int, report: Round, job: Job, out: TextIO, first: bool) -> None:
    """Forward the child's lines until it ends, or goes silent for too long."""
    os.set_blocking(reader, False)
    ending = os.pidfd_open(child.pid)
    rest = b""
    deadline = time.monotonic() + COLLECT_SECONDS
    try:
        while True:
            ready, _, _ = select.select([reader, ending], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                report.killed = True
                return
            data = _drain(reader)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _take(json.loads(line), report, out, first)
            if lines:
                allowed = job.check_seconds + GRACE if report.running else COLLECT_SECONDS
                deadline = time.monotonic() + allowed
            if report.ended or ending in ready or not data:
                return
    finally:
        os.close(ending)


def _drain(reader: int) -> bytes:
    chunks = []
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(reader, 65536):
            chunks.append(chunk)
    return b"".join(chunks)


def _take(line: dict[str, Any], report: Round, out: TextIO, first: bool) -> None:
    kind = line["kind"]
    if kind == "collected":
        report.nodes = {node["node"]: (node["kind"], node["id"]) for node in line["nodes"]}
    elif kind == "start":
        report.running = line["node"]
        return
    elif kind == "end":
        report.ended = True
        return
    elif kind in RESULTS and line["node"] != report.running:
        message = "the result of another check was reported while this one ran"
        line = {"kind": "integrity", "node": report.running or "", "message": message}
    elif kind in RESULTS:
        report.done.add(line["node"])
        report.running = None
    if first or kind in RESULTS or kind == "integrity":
        _write(out, line)


def _write(out: TextIO, line: dict[str, Any]) -> None:
    out.write(json.dumps(line) + "\n")
    out.flush()


def _package() -> ModuleType:
    """Import this folder as a package without putting any folder on ``sys.path``."""
    folder = Path(__file__).absolute().parent
    name = "uniclaw_harness"
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    importlib.import_module(f"{name}.plugin")
    return package


if __name__ == "__main__":
    sys.exit(main(sys.argv))
