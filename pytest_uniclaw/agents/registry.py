"""Agents by name: the entry points of the group ``pytest_uniclaw.agents``, and the tables of ``uniclaw.toml``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import cast

from pytest_uniclaw.agents.base import Agent
from pytest_uniclaw.agents.command import CommandAgent
from pytest_uniclaw.agents.command_table import read_table, read_tables
from pytest_uniclaw.agents.guard import crossing
from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.installed import installed
from pytest_uniclaw.settings import AgentTables

GROUP = "pytest_uniclaw.agents"
_ATTRIBUTES = ("name", "version", "image", "memory", "trusted", "needs_model")
_METHODS = ("prepare", "turn", "transcript_sources", "read_transcript", "finish")


def agent_names(tables: AgentTables | None = None) -> tuple[str, ...]:
    """Return the names of all installed and described agents, sorted.

    Raises :class:`SettingsError` for a table that is wrong or bears the name of an installed agent.
    """
    described = read_tables(tables) if tables else {}
    for name in described:
        _refuse_collision(name, tables)
    return tuple(sorted({*installed(GROUP), *described}))


def load_agent(reference: str, tables: AgentTables | None = None) -> Agent:
    """Return the agent that ``NAME`` or ``NAME@VERSION`` names; ``tables`` are those of the settings.

    Raises :class:`SettingsError` for an unknown name (with did-you-mean), a release that the agent does not support,
    a table that is wrong, an entry point that cannot be imported or called, or an object that is no :class:`Agent`.
    """
    name, _, version = reference.partition("@")
    if tables and name in tables.tables:
        return _described(name, version, tables)
    known = installed(GROUP)
    if name not in known:
        raise SettingsError(_unknown(name, agent_names(tables)))
    origin = f"entry point {known[name].value!r}"
    with crossing(lambda error: _broken(f"agent {name!r}: {origin} cannot be loaded", error)):
        factory: object = known[name].load()
    if not callable(factory):
        raise SettingsError(f"agent {name!r}: {origin} must name a class or function that makes the agent")
    if version == "" and reference.endswith("@"):
        raise SettingsError(f"--agent={reference}: a version is missing after '@'")
    return check_agent(_make(name, factory, version), origin)


def _described(name: str, version: str, tables: AgentTables) -> Agent:
    """Return the agent of a table. Raises :class:`SettingsError`."""
    _refuse_collision(name, tables)
    agent = CommandAgent(name, read_table(name, tables.tables[name], tables.path))
    if version and version != agent.version:
        raise SettingsError(f"{tables.path}: [agents.{name}] describes version {agent.version}, not {version}")
    return agent


def _refuse_collision(name: str, tables: AgentTables | None) -> None:
    if tables and name in installed(GROUP):
        raise SettingsError(
            f"{tables.path}: [agents.{name}]: an agent of this name is installed already\n"
            f"  fix: choose another name, such as [agents.my-{name}]"
        )


def check_agent(agent: object, origin: str) -> Agent:
    """Return ``agent`` if it has all that an :class:`Agent` needs; else raise SettingsError, naming ``origin``."""
    if agent is None or isinstance(agent, type):
        given = "None" if agent is None else f"the class {agent.__name__}"
        raise SettingsError(f"{origin} gives {given}; return an agent, such as MyAgent()")
    lacking = [name for name in _ATTRIBUTES if not hasattr(agent, name)]
    lacking += [f"{name}()" for name in _METHODS if not callable(getattr(agent, name, None))]
    if lacking:
        kind = type(agent).__name__
        raise SettingsError(f"{origin} gives a {kind}, which is no agent: it lacks {', '.join(lacking)}")
    return cast("Agent", agent)


def _make(name: str, factory: Callable[..., object], version: str) -> object:
    with crossing(lambda error: _broken(f"agent {name!r} cannot be made", error)):
        if version and "version" not in inspect.signature(factory).parameters:
            raise SettingsError(f"agent {name!r} has no choice of versions (asked for {version!r})")
        return factory(version=version) if version else factory()


def _broken(what: str, error: BaseException) -> SettingsError:
    return SettingsError(f"{what}: {type(error).__name__}: {error}")


def _unknown(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    names = ", ".join(known) or "none"
    return f"no agent is called {name!r}{hint} (installed agents: {names}; choose with --agent=NAME)"
