"""``uniclaw``: what is not a test run. Tests are run by ``pytest``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_uniclaw.doctor import examine
from pytest_uniclaw.errors import TaskError, UniclawError
from pytest_uniclaw.lint import lint_task
from pytest_uniclaw.report.stats import group_by, headline, summarise
from pytest_uniclaw.report.stored import records_of_run
from pytest_uniclaw.settings import resolve
from pytest_uniclaw.store import find_run
from pytest_uniclaw.task import load_task
from pytest_uniclaw.terminal import figures_line, non_pass_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit status: 0 well, 1 findings, 2 an error or wrong usage."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["images"]:
        from pytest_uniclaw.sandbox.images_cli import main as images

        return images(given[1:])
    options = _parser().parse_args(given)
    try:
        return int(options.run(options))
    except UniclawError as error:
        _say(f"error: {error}")
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="uniclaw", description="Companion of the pytest plugin: `pytest suites …` runs tasks."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="report engine, images, models, disk and memory, with remedies")
    doctor.set_defaults(run=_doctor)
    lint = commands.add_parser("lint", help="check task packages: fields, rubric arithmetic, checks, hidden folders")
    lint.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="task files or folders of them")
    lint.add_argument("--no-assets", action="store_true", help="do not look for sources, skills, services, references")
    lint.set_defaults(run=_lint)
    report = commands.add_parser("report", help="print the figures of a stored run")
    report.add_argument(
        "run_name", nargs="?", default="latest", metavar="RUN", help="run id, path, or latest (default)"
    )
    report.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR")
    report.set_defaults(run=_report)
    commands.add_parser("images", help="build, list and prune images (see uniclaw images --help)")
    return parser


def _doctor(options: argparse.Namespace) -> int:
    findings = examine(resolve({}, {}, Path.cwd()))
    for finding in findings:
        _say(f"{'ok  ' if finding.good else 'MISS'} {finding.subject}: {finding.text}")
        if finding.remedy:
            _say(f"     fix: {finding.remedy}")
    return 0 if all(f.good for f in findings) else 1


def _lint(options: argparse.Namespace) -> int:
    errors = files = 0
    for path in _task_files(options.paths):
        files += 1
        try:
            task = load_task(path, check_assets=not options.no_assets)
        except TaskError as error:
            errors += 1
            _say(f"error: {error}")
            continue
        for finding in lint_task(task):
            errors += finding.severity == "error"
            _say(f"{finding.severity}: {finding.path}:{finding.line}: {finding.message}")
    _say(f"{files} task files, {errors} errors")
    return 1 if errors or not files else 0


def _report(options: argparse.Namespace) -> int:
    run = find_run(options.runs_dir, options.run_name)
    records = records_of_run(run)
    for record in records:
        if record.outcome != "passed":
            _say(non_pass_line(record))
    groups = group_by(records, lambda r: f"{r.agent} {r.model}".strip() + f"  {r.category}")
    width = max([len(g.name) for g in groups] + [8])
    for group in [*groups, summarise("all", records)]:
        _say(figures_line(group, width))
    _say(f"{run}: {headline(summarise('all', records))}")
    return 0


def _task_files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("task_*.yaml")) if path.is_dir() else [path]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
