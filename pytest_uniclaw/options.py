"""Register the options of :mod:`pytest_uniclaw.settings` with pytest, and read them back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.settings import OPTIONS, Settings, resolve

FILES_INI = "uniclaw_files"
SHORT_INI = "uniclaw_short_options"
DEFAULT_FILES = ("task_*.yaml", "task_*.yml")

SETTINGS = pytest.StashKey[Settings]()


def add_options(parser: pytest.Parser, *, short: bool) -> None:
    """Add every option, with its short form unless ``short`` is false, and its ini equivalent."""
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
    parser.addini(SHORT_INI, "false removes the short options (--agent, --model, …)", type="bool", default=True)


def short_options_wanted(manager: pytest.PytestPluginManager) -> bool:
    """Read ``uniclaw_short_options`` before options exist: the ini file is parsed by then."""
    config = manager.get_plugin("pytestconfig")
    value = getattr(config, "inicfg", {}).get(SHORT_INI, True)
    return str(getattr(value, "value", value)).lower() not in {"false", "0", "no", "off"}


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
