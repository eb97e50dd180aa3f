"""Register the options of :mod:`pytest_uniclaw.settings` with pytest, and read them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.optiontable import OPTIONS
from pytest_uniclaw.settings import Settings, resolve

FILES_INI = "uniclaw_files"
SHORT_INI = "uniclaw_short_options"
DEFAULT_FILES = ("task_*.yaml", "task_*.yml")

SETTINGS = pytest.StashKey[Settings]()


def add_options(parser: pytest.Parser, manager: pytest.PytestPluginManager) -> None:
    """Add every option with its ini equivalent, and its short form unless the ini file says otherwise."""
    parser.addini(SHORT_INI, "false removes the short options (--agent, --model, …)", type="bool", default=True)
    short = _short_options_wanted(manager)
    group = parser.getgroup("uniclaw", "evaluation of proactive agents (pytest-uniclaw)")
    for option in OPTIONS:
        names = [option.flag] + ([option.short] if short and option.short else [])
        text = option.help.replace("%(default)s", option.default)
        if option.kind == "flag":
            group.addoption(*names, dest=option.dest, action="store_true", default=None, help=text)
        else:
            group.addoption(*names, dest=option.dest, default=None, metavar=option.metavar or None, help=text)
        parser.addini(option.dest, f"ini form of {option.flag}", type="string", default="")
    parser.addini(FILES_INI, "file patterns of task files", type="args", default=list(DEFAULT_FILES))


def _short_options_wanted(manager: pytest.PytestPluginManager) -> bool:
    """Read the ini value while options are being added: the ini file is parsed by then."""
    config: pytest.Config | None = manager.get_plugin("pytestconfig")
    return bool(config.getini(SHORT_INI)) if config is not None else True


def load_settings(config: pytest.Config) -> Settings:
    """Resolve the session's settings once and keep them on the config. Raises :class:`pytest.UsageError`."""
    if SETTINGS not in config.stash:
        options = {o.dest: config.getoption(o.dest, None) for o in OPTIONS}
        ini = {o.dest: config.getini(o.dest) for o in OPTIONS}
        try:
            config.stash[SETTINGS] = resolve(options, ini, Path(config.rootpath))
        except SettingsError as error:
            raise pytest.UsageError(str(error)) from None
    return config.stash[SETTINGS]


def is_worker(config: pytest.Config) -> bool:
    """Say whether this process is an xdist worker."""
    return hasattr(config, "workerinput")


def worker_input(config: pytest.Config) -> dict[str, Any]:
    """Return what the controller gave this worker; empty elsewhere."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    return given
