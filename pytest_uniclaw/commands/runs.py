"""Where the subcommands of ``uniclaw`` look for runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_uniclaw.settings import resolve


def add_runs_dir(parser: argparse.ArgumentParser) -> None:
    """Add ``--runs-dir``."""
    parser.add_argument(
        "--runs-dir", metavar="DIR", help="where run directories are (default: runs_dir of ./uniclaw.toml, else runs)"
    )


def runs_dir(options: argparse.Namespace) -> Path:
    """Return the folder of the runs. Raises SettingsError when ``./uniclaw.toml`` cannot be read."""
    return resolve({"uniclaw_runs_dir": options.runs_dir}, {}, Path.cwd()).runs_dir
