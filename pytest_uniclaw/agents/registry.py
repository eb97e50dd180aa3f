"""Agents by name: the entry points of the group ``pytest_uniclaw.agents``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from pytest_uniclaw.agents.base import Agent
from pytest_uniclaw.agents.guard import crossing
from pytest_uniclaw.errors import SettingsError

GROUP = "pytest_uniclaw.agents"
_ATTRIBUTES = ("name", "version", "image", "memory", "trusted", "needs_model")
_METHODS = ("prepare", "turn", "transcript_sources", "read_transcript", "finish")


def agent_names() -> tuple[str, ...]:
    """Return the names of all installed agents, sorted."""
    return tuple(sorted(_entry_points()))


def load_agent(reference: str) -> Agent:
    """Return the agent that ``NAME`` or ``NAME@VERSION`` names.

    Raises :class:`SettingsError` for an unknown name (with did-you-mean), a release that the agent does not support,
    an entry point that cannot be imported or called, or an object that is no :class:`Agent`.
    """
    name, _, version = reference.partition("@")
    known = _entry_points()
    if name not in known:
        raise SettingsError(_unknown(name, tuple(sorted(known))))
    origin = f"entry point {known[name].value!r}"
    with crossing(lambda error: _broken(f"agent {name!r}: {origin} cannot be loaded", error)):
        factory: object = known[name].load()
    if not callable(factory):
        raise SettingsError(f"agent {name!r}: {origin} must name a class or function that makes the agent")
    if version == "" and reference.endswith("@"):
        raise SettingsError(f"--agent={reference}: a version is missing after '@'")
    return check_agent(_make(name, factory, version), origin)


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


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


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
    installed = ", ".join(known) or "none"
    return f"no agent is called {name!r}{hint} (installed agents: {installed}; choose with --agent=NAME)"
