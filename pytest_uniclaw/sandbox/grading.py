"""The grading container: checks run on evidence in a fresh, offline, unprivileged sandbox (design.md section 6)."""

from __future__ import annotations

import json
import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.paths import scratch_prefix
from pytest_uniclaw.sandbox import provision
from pytest_uniclaw.sandbox.archive import pack
from pytest_uniclaw.sandbox.base import MIB, CollectLimits, Entry, GradingJob, GradingOutput
from pytest_uniclaw.sandbox.engine import Container, calls, failures, image_reference
from pytest_uniclaw.sandbox.fetch import fetch

HARNESS = Path(__file__).resolve().parent.parent / "judge" / "harness"
ROOT = "/grading"
GRADER = "1001"
COMMAND = ("/usr/bin/python3", "-I", f"{ROOT}/harness/run_checks.py")
LINES, LINE_CHARACTERS = 10_000, 65_536
OUTPUT_LIMITS = CollectLimits(file_bytes=16 * MIB, total_bytes=16 * MIB, files=1, seconds=30.0)
LOG_BYTES = 16_384
LIFETIME_GRACE_SECONDS = 600.0
SHM_BYTES = 64 * MIB
PIDS = 256


@dataclass(frozen=True)
class Exit:
    """How the grading container ended."""

    code: int | None
    timed_out: bool
    out_of_memory: bool


def run_job(container: Container, job: GradingJob) -> GradingOutput:
    """Create, fill, start, await and read one grading container; the caller removes it.

    Raises:
        EngineError: the engine refused, vanished, or lost the container.
        TaskError: the references hold a link out of them or a special file.
    """
    create(container, job)
    entries = payload(job)
    with pack(entries) as archive, calls("fill the grading sandbox"):
        container.api.put_archive(container.name, "/", archive)
    with calls("start the grading sandbox"):
        container.api.start(container.name)
    ended = await_exit(container, job.seconds)
    log = log_tail(container)
    if ended.out_of_memory:
        log += f"\n[the grading sandbox ran out of its {job.memory // MIB} MiB of memory]"
    return GradingOutput(read_lines(container, job.owner.run), ended.code, ended.timed_out, log)


def create(container: Container, job: GradingJob) -> None:
    """Create the container: no network, no rights, no host folder."""
    image = image_reference("grader")
    with calls(f"create a grading sandbox from the image {image} (`uniclaw images` builds ours)"):
        host = container.api.create_host_config(
            **provision.limits(job.memory, PIDS, SHM_BYTES), network_mode="none", cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
        )
        container.api.create_container(
            image, name=container.name, entrypoint=[COMMAND[0]], command=list(COMMAND[1:]),
            user=f"{GRADER}:{GRADER}", working_dir=ROOT, host_config=host,
            environment={"HOME": "/home/grader", "LANG": "C.UTF-8", "TZ": "UTC"},
            labels=provision.labels(job.owner, job.seconds + LIFETIME_GRACE_SECONDS),
        )


def payload(job: GradingJob) -> list[Entry]:
    """Return what goes in: everything root's and read-only by its modes, one folder for the answer."""
    order = json.dumps({"only": list(job.only), "check_seconds": job.check_seconds}).encode()
    harness = [Entry(f"{ROOT}/harness/{file.name}", source=file) for file in sorted(HARNESS.glob("*.py"))]
    return [
        Entry(ROOT, mode=0o755), Entry(f"{ROOT}/harness", mode=0o755), *harness,
        Entry(f"{ROOT}/job.json", content=order),
        Entry(f"{ROOT}/evidence", source=job.evidence), Entry(f"{ROOT}/references", source=job.references),
        Entry(f"{ROOT}/out", mode=0o755, user=GRADER),
    ]


def await_exit(container: Container, seconds: float) -> Exit:
    """Block until the container ends; kill it at the deadline. Raises EngineError."""
    end = time.monotonic() + seconds
    timed_out = False
    while True:
        try:
            container.api.wait(container.name, timeout=max(math.ceil(end - time.monotonic()), 1))
        except failures():
            timed_out = time.monotonic() >= end
        record = container.state()
        if record is None:
            raise EngineError("the grading sandbox was removed while in use")
        state = record["State"]
        if not state["Running"]:
            return Exit(int(state["ExitCode"]), timed_out, container.out_of_memory(record))
        if timed_out:
            memory = container.out_of_memory(record)
            with calls("end the grading sandbox"):
                container.api.kill(container.name, signal="SIGKILL")
                container.api.wait(container.name, timeout=container.api.timeout)
            return Exit(None, True, memory)
        time.sleep(0.05)  # the wait broke off although both sides live


def log_tail(container: Container) -> str:
    """Return the end of what the harness printed, as text."""
    with calls("read the grading sandbox's log"):
        data: bytes = container.api.logs(container.name, tail=200)
    return data[-LOG_BYTES:].decode("utf-8", "replace")


def read_lines(container: Container, run: str) -> tuple[str, ...]:
    """Return the judgement lines, bounded in number and size; empty when none were written."""
    name = "judgements.jsonl"
    with tempfile.TemporaryDirectory(prefix=scratch_prefix(run)) as folder:
        destination = Path(folder, "out")
        end = time.monotonic() + OUTPUT_LIMITS.seconds
        manifest = fetch(container, f"{ROOT}/out/{name}", destination, OUTPUT_LIMITS, end)
        if not manifest.files:
            return ()
        text = (destination / name).read_text("utf-8", "replace")
    lines = [line[:LINE_CHARACTERS] for line in text.splitlines() if line.strip()]
    return tuple(lines[:LINES])


__all__ = ["run_job"]
