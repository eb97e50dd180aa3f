"""``uniclaw``: what is not a test run. Tests are run by ``pytest``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_uniclaw.commands import agreement, export, regrade
from pytest_uniclaw.commands.runs import add_runs_dir, runs_dir
from pytest_uniclaw.doctor import examine
from pytest_uniclaw.errors import UniclawError
from pytest_uniclaw.lint import Finding, shorten
from pytest_uniclaw.options import DEFAULT_FILES
from pytest_uniclaw.report.stored import records_of_run
from pytest_uniclaw.settings import resolve
from pytest_uniclaw.soundness import lint_file
from pytest_uniclaw.store import find_run
from pytest_uniclaw.terminal import report_lines


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
    add_runs_dir(report)
    report.set_defaults(run=_report)
    for command in (regrade, agreement, export):
        command.add(commands)
    commands.add_parser("images", help="build, list and prune images (see uniclaw images --help)")
    return parser


def _doctor(options: argparse.Namespace) -> int:
    findings = examine(resolve({}, {}, Path.cwd()))
    for finding in findings:
        _say(f"{finding.kind:4} {finding.subject}: {finding.text}")
        if finding.remedy:
            _say(f"     fix: {finding.remedy}")
    return 1 if any(finding.kind == "MISS" for finding in findings) else 0


def _lint(options: argparse.Namespace) -> int:
    errors = files = 0
    for path in options.paths:
        found = _task_files(path)
        files += len(found)
        findings = [] if path.exists() else [_absent(path)]
        for file in found:
            findings += lint_file(file, check_assets=not options.no_assets)
        for finding in findings:
            errors += finding.severity == "error"
            _say(f"{finding.severity}: {shorten(str(finding), Path.cwd())}")
    hint = "" if files else f"; the name of a task file must match {' or '.join(DEFAULT_FILES)}"
    _say(f"{files} task files, {errors} errors{hint}")
    return 1 if errors or not files else 0


def _absent(path: Path) -> Finding:
    remedy = f"correct the path; a relative one is taken from {Path.cwd()}"
    return Finding("error", "there is no such file or folder", path, remedy=remedy)


def _report(options: argparse.Namespace) -> int:
    run = find_run(runs_dir(options), options.run_name)
    *lines, last = report_lines(records_of_run(run))
    for line in [*lines, f"run directory: {run}", last]:
        _say(line)
    return 0


def _task_files(path: Path) -> list[Path]:
    """Return the task files of a folder, sorted; a file is one whatever its name."""
    if path.is_dir():
        return sorted({file for pattern in DEFAULT_FILES for file in path.rglob(pattern)})
    return [path] if path.exists() else []


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
