"""Command-line agents that come with this project: tables like those of ``uniclaw.toml``, in ``definitions/``."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from pytest_uniclaw.agents.command import CommandAgent
from pytest_uniclaw.agents.command_table import AgentTable, read_table
from pytest_uniclaw.errors import SettingsError

_FOLDER = Path(__file__).parent / "definitions"


def qwen_code(version: str = "") -> CommandAgent:
    """Qwen Code. Raises :class:`SettingsError` for a release that it has no definition of."""
    return _builtin("qwen-code", version)


def opencode(version: str = "") -> CommandAgent:
    """Opencode. Raises :class:`SettingsError` for a release that it has no definition of."""
    return _builtin("opencode", version)


def _builtin(name: str, version: str) -> CommandAgent:
    table = _definition(name)
    if version and version != table.version:
        raise SettingsError(f"{name} {version} is not supported; known releases: {table.version}")
    return CommandAgent(name, table)


@cache
def _definition(name: str) -> AgentTable:
    path = _FOLDER / f"{name}.toml"
    return read_table(name, tomllib.loads(path.read_text("utf-8")), path)
