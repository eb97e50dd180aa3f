"""``uniclaw regrade``: judge the stored evidence of a run again, with another supervisor or the same one."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pytest_uniclaw.attempt import Attempt
from pytest_uniclaw.commands.runs import add_runs_dir
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.extensions import load_provider
from pytest_uniclaw.models.client import GatewayAddress, start_gateway
from pytest_uniclaw.options import DEFAULT_FILES
from pytest_uniclaw.paths import scratch_prefix
from pytest_uniclaw.regrade import Regrading, regrade_attempt
from pytest_uniclaw.report.stored import records_of_run
from pytest_uniclaw.rolecheck import check_supervisor, supervisor_of
from pytest_uniclaw.session import providers_of, tuning_of
from pytest_uniclaw.settings import Settings, resolve
from pytest_uniclaw.status import is_judged
from pytest_uniclaw.store import attempts_of, find_run, new_run
from pytest_uniclaw.task import Task, load_task
from pytest_uniclaw.terminal import report_lines

SETTINGS = (
    "supervisor", "supervisor_model", "supervisor_effort", "judges", "sandbox", "runs_dir", "config", "max_cost",
)  # fmt: skip
"""The settings that the command has options for."""


def add(commands: Any) -> None:
    """Register the command."""
    parser = commands.add_parser(
        "regrade",
        help="judge a stored run again, without running agents",
        description="Judge the stored evidence of every attempt of a run again and write the result as a run of its "
        "own, which `uniclaw report` and `uniclaw agreement` read. The agents' work is neither repeated nor changed.",
    )
    parser.add_argument("run_name", metavar="RUN", help="run id, path, or latest")
    parser.add_argument(
        "tasks", nargs="*", type=Path, metavar="PATH", help="where the task files are (default: suites)"
    )
    parser.add_argument("--supervisor", metavar="NAME", help="as for pytest: auto, checks, model, codex or script:FILE")
    parser.add_argument("--supervisor-model", metavar="MODEL", help="model of the supervisor")
    parser.add_argument("--supervisor-effort", metavar="EFFORT", help="reasoning effort of the supervisor's model")
    parser.add_argument("--judges", metavar="N", help="1, an odd number for a panel, or auto")
    parser.add_argument("--sandbox", metavar="NAME", help="where checks and the judge's tools run (default: docker)")
    parser.add_argument("--max-cost", metavar="USD", help="judge no more once the judges' calls have cost this much")
    add_runs_dir(parser)
    parser.add_argument("--config", metavar="FILE", help="settings file (default: uniclaw.toml)")
    parser.add_argument("-n", dest="workers", type=int, default=1, metavar="N", help="attempts at a time (default: 1)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Regrade a run; return 1 when an attempt could not be judged. Raises SettingsError and InfraError."""
    given = {f"uniclaw_{name}": getattr(options, name) for name in SETTINGS}
    settings = resolve(given, {}, Path.cwd())
    source = find_run(settings.runs_dir, options.run_name)
    tasks = _tasks(options.tasks or [Path("suites")])
    work = list(attempts_of(source))
    _refuse_unknown(work, tasks, source)
    name = f"{new_run()}-regrade"
    target = settings.runs_dir / name
    judged = [tasks[task_id] for task_id in dict.fromkeys(attempt.task_id for _, attempt in work)]
    asks = [check_supervisor(task, settings, "--supervisor-model") for task in judged]
    with ExitStack() as stack:
        stack.callback(_remove_empty, target)
        gateway = _start(settings, name, target, stack, needs_model=any(asks))

        def judge(item: tuple[Path, Attempt]) -> str:
            stored, attempt = item
            task = tasks[attempt.task_id]
            regrading = _regrading(settings, name, task, gateway)
            directory = target / stored.relative_to(source)
            directory.mkdir(parents=True)
            new = regrade_attempt(regrading, task, stored, attempt, directory)
            return f"{attempt.task_id} {attempt.agent}: {_shown(attempt)} -> {_shown(new)}"

        with ThreadPoolExecutor(max_workers=max(1, options.workers)) as pool:
            for number, line in enumerate(pool.map(judge, work), start=1):
                _say(f"[{number}/{len(work)}] {line}")
    for line in [*report_lines(records := records_of_run(target)), f"run directory: {target}"]:
        _say(line)
    return 0 if records and all(record.judged for record in records) else 1


def _tasks(paths: list[Path]) -> dict[str, Task]:
    return {task.task_id: task for path in paths for task in map(load_task, _files(path))}


def _files(path: Path) -> Iterator[Path]:
    if not path.exists():
        raise SettingsError(f"{path}: there is no such file or folder\n  fix: name the folder of the run's task files")
    if path.is_dir():
        yield from sorted({file for pattern in DEFAULT_FILES for file in path.rglob(pattern)})
    else:
        yield path


def _refuse_unknown(work: list[tuple[Path, Attempt]], tasks: dict[str, Task], source: Path) -> None:
    if not work:
        raise SettingsError(f"{source}: no finished attempt is stored there")
    if unknown := sorted({attempt.task_id for _, attempt in work} - tasks.keys()):
        raise SettingsError(
            f"no task file for {', '.join(unknown)}\n  fix: name the folders that hold them after the run"
        )


def _shown(attempt: Attempt) -> str:
    """Return score and status; no score where the attempt is not judged."""
    score = f"{attempt.score:.2f}" if is_judged(attempt.status, attempt.protocol) else "-"
    return f"{score} {attempt.status}"


def _remove_empty(target: Path) -> None:
    """Remove a run directory without any attempt: it would look like a run in which nothing was to be done."""
    if target.is_dir() and not any(True for _ in attempts_of(target)):
        shutil.rmtree(target)


def _start(
    settings: Settings, name: str, target: Path, stack: ExitStack, *, needs_model: bool
) -> GatewayAddress | None:
    """Start what the regrade needs: the reaper for its containers, a gateway where a model is asked."""
    providers, tuning = providers_of(settings), tuning_of(settings)
    load_provider(settings.sandbox)
    target.mkdir(parents=True)
    if settings.sandbox == "docker":
        from pytest_uniclaw.sandbox.reaper import start_reaper

        stack.callback(start_reaper(name).close)
    if not needs_model:
        return None
    process = start_gateway(
        target / "models", providers, tuning=tuning, scratch=scratch_prefix(name), max_cost_usd=settings.max_cost
    )
    stack.callback(process.close)
    return process.address


def _regrading(settings: Settings, name: str, task: Task, gateway: GatewayAddress | None) -> Regrading:
    secrets = tuple(provider.api_key for provider in settings.providers if provider.api_key)
    return Regrading(name, supervisor_of(task, settings), load_provider(settings.sandbox), gateway, secrets)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
