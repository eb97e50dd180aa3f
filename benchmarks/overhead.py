"""Print what the harness costs beside the agent, and the floors it is held to: ``python benchmarks/overhead.py``.

Every round measures each subject once, floors and harness in turn, so that a busy machine is busy for all of them;
medians over the rounds are printed. Nothing is compared with figures of another run.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from subjects import Harness, make_suite, one_container, two_containers

from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.models.client import start_gateway
from pytest_uniclaw.settings import environment_value

CONCURRENT = 4
TASKS = 2 * CONCURRENT
"""Tasks of one concurrent measurement."""
ALONE = 4
"""Tasks of a session with one worker, whose first item pays for the import of the Docker SDK."""
TITLES = {
    "floor1": "one-container floor", "floor2": "two-container floor", "oracle": "oracle + checks, run_attempt",
    "pytest": "oracle + checks, pytest -n",
}  # fmt: skip


@dataclass
class Samples:
    """Seconds by the name of what was measured; ``wall`` of one task, ``cpu`` of this process for one task."""

    wall: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    cpu: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def take(self, name: str, jobs: Sequence[Callable[[], object]], threads: int = 1) -> list[object]:
        """Run jobs on threads and note seconds per job; returns what they returned."""
        cpu, began = cpu_seconds(resource.RUSAGE_SELF), time.monotonic()
        if threads == 1:
            results = [job() for job in jobs]
        else:
            with ThreadPoolExecutor(threads) as pool:
                results = [future.result() for future in [pool.submit(job) for job in jobs]]
        self.wall[name].append((time.monotonic() - began) / len(jobs))
        self.cpu[name].append((cpu_seconds(resource.RUSAGE_SELF) - cpu) / len(jobs))
        return results


def cpu_seconds(who: int) -> float:
    """Return user and system seconds of this process or of its children that ended."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def measure_round(samples: Samples, harness: Harness, files: Sequence[Path]) -> None:
    """Measure every subject once, alone and side by side."""
    samples.take("floor1", [one_container])
    samples.take("floor2", [two_containers])
    samples.take("oracle", [partial(harness.oracle, files[1])])
    samples.take("floor1 x4", [one_container] * TASKS, CONCURRENT)
    samples.take("floor2 x4", [two_containers] * TASKS, CONCURRENT)
    samples.take("oracle x4", [partial(harness.oracle, file) for file in files[:TASKS]], CONCURRENT)
    single = session_cpu(harness.root, files[:1])
    measure_pytest(samples, harness.root, files[:ALONE], workers=1)
    samples.cpu["pytest"].append((samples.cpu["pytest session"][-1] - single) / (ALONE - 1))
    measure_pytest(samples, harness.root, files[:TASKS], workers=CONCURRENT)
    for turns in (1, 2):
        (attempt,) = samples.take(f"nanobot {turns}", [partial(harness.nanobot, files[2 - turns])])
        assert isinstance(attempt, Attempt)
        overhead = samples.wall[f"nanobot {turns}"][-1] - attempt.executor_seconds
        samples.wall[f"nanobot {turns} overhead"].append(overhead)


def measure_pytest(samples: Samples, root: Path, files: Sequence[Path], workers: int) -> None:
    """Run a session of oracle attempts; note the time of its items per task, and what the session costs around them."""
    junit = root / "junit.xml"
    cpu, began = cpu_seconds(resource.RUSAGE_CHILDREN), time.monotonic()
    run_pytest(root, [*map(str, files), "--agent=oracle", f"-n{workers}", f"--junitxml={junit}"])
    wall, cpu = time.monotonic() - began, cpu_seconds(resource.RUSAGE_CHILDREN) - cpu
    times = [float(case.get("time", 0)) for case in ElementTree.parse(junit).iter("testcase")]
    suffix = "" if workers == 1 else f" x{workers}"
    samples.wall[f"pytest{suffix}"].append(sum(times) / len(times) / workers)
    samples.wall[f"pytest{suffix} session"].append(wall - sum(times) / workers)
    samples.cpu[f"pytest{suffix} session"].append(cpu)


def session_cpu(root: Path, files: Sequence[Path]) -> float:
    """Return the CPU seconds of all processes of a session with one worker."""
    before = cpu_seconds(resource.RUSAGE_CHILDREN)
    run_pytest(root, [*map(str, files), "--agent=oracle", "-n1"])
    return cpu_seconds(resource.RUSAGE_CHILDREN) - before


def run_pytest(root: Path, arguments: Sequence[str]) -> None:
    """Run a session that must succeed."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stdout[-3000:] + done.stderr[-3000:]
        raise RuntimeError(f"{' '.join(command)} exited with {done.returncode}:\n{said}")


def collection(root: Path, folder: Path) -> tuple[float, float]:
    """Return CPU seconds and the largest resident size in MB of a session that only collects ``folder``."""
    command = [sys.executable, "-m", "pytest", str(folder), "--collect-only", "-q", "-p", "no:cacheprovider"]
    with (root / "collected.txt").open("wb") as output:
        process = subprocess.Popen(command, cwd=root, stdout=output, stderr=output)
        _, _, usage = os.wait4(process.pid, 0)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def report(samples: Samples) -> None:
    """Print medians, with the targets they are held to."""
    wall = {name: statistics.median(values) for name, values in samples.wall.items()}
    cpu = {name: statistics.median(values) for name, values in samples.cpu.items()}
    line("one trivial task, no model time", "conc 1", f"conc {CONCURRENT}", "seconds per task")
    for name, title in TITLES.items():
        line(title, wall[name], wall[f"{name} x4"])
    for name in ("oracle", "pytest"):
        for floor, target in (("floor2", "target 1.30"), ("floor1", "for information")):
            alone, together = wall[name] / wall[floor], wall[f"{name} x4"] / wall[f"{floor} x4"]
            line(f"  {TITLES[name].partition(', ')[2]} / {TITLES[floor]}", alone, together, f"times; {target}")
    for name, limit in (("nanobot 1", 2.0), ("nanobot 2", 3.0)):
        line(f"{name} turn(s), overhead", wall[f"{name} overhead"], "", f"s of {wall[name]:.2f} s; target {limit}")
    for name in ("floor2", "oracle", "nanobot 1", "nanobot 2"):
        line(f"CPU of this process, {name}", cpu[name], cpu.get(f"{name} x4", ""), "s per task; target 0.15")
    line("CPU of all processes, one more task, pytest -n", cpu["pytest"], "", "s; target 0.15")
    for name, tasks in (("pytest", ALONE), ("pytest x4", TASKS)):
        name = f"{name} session"
        line(f"{name}, {tasks} tasks", wall[name], "", f"s beside its items, CPU of all processes {cpu[name]:.2f} s")


def line(title: str, alone: float | str, together: float | str, note: str = "") -> None:
    """Print one line of the table."""
    cells = "".join(f"{cell:>8.2f}" if isinstance(cell, float) else f"{cell:>8}" for cell in (alone, together))
    print(f"{title:48}{cells}   {note}".rstrip())


def report_collection(root: Path, upstream: str | None) -> None:
    """Print what it costs to collect upstream's tasks."""
    if not upstream:
        print("NOT RUN: collection of 400 tasks; UNICLAW_UPSTREAM names no checkout")
        return
    empty = root / "empty"
    empty.mkdir()
    pairs = [(collection(root, empty), collection(root, Path(upstream).resolve() / "tasks")) for _ in range(3)]
    extra = statistics.median(full[0] - none[0] for none, full in pairs)
    line("collection of 400 tasks", extra, "", f"CPU s over an empty start of {pairs[0][0][0]:.2f} s; target 2.0")
    line("", max(full[1] for _, full in pairs), "", "MB resident; target 100")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds; medians are printed (default: 5)")
    parser.add_argument("--collection-only", action="store_true", help="measure only how UNICLAW_UPSTREAM collects")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="uniclaw-benchmark-") as folder:
        root = Path(folder)
        if not options.collection_only:
            files, samples = make_suite(root, TASKS + 1), Samples()
            with start_gateway(root / "models") as gateway:
                harness = Harness(root, gateway.address)
                for number in range(options.rounds + 1):
                    measure_round(samples, harness, files)
                    if number == 0:
                        samples = Samples()  # the first round warms the engine's and the kernel's caches
                    print(f"round {number} of {options.rounds}", file=sys.stderr)
            report(samples)
        report_collection(root, environment_value("UNICLAW_UPSTREAM"))


if __name__ == "__main__":
    main()
