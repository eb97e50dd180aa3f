"""Agents by name: the entry points of the group ``pytest_uniclaw.agents``."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import cast

from pytest_uniclaw.agents.base import Agent
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
    an entry point that cannot be imported, or an object that is no :class:`Agent`.
    """
    name, _, version = reference.partition("@")
    known = _entry_points()
    if name not in known:
        raise SettingsError(_unknown(name, tuple(sorted(known))))
    point = known[name]
    try:
        factory = cast("Callable[..., Agent]", point.load())
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"agent {name!r}: entry point {point.value!r} cannot be loaded: {error}") from error
    if version == "" and reference.endswith("@"):
        raise SettingsError(f"--agent={reference}: a version is missing after '@'")
    return check_agent(_make(name, factory, version), f"entry point {point.value!r}")


def check_agent(agent: object, origin: str) -> Agent:
    """Return ``agent`` if it has all that an :class:`Agent` needs; else raise SettingsError, naming ``origin``."""
    lacking = [name for name in _ATTRIBUTES if not hasattr(agent, name)]
    lacking += [f"{name}()" for name in _METHODS if not callable(getattr(agent, name, None))]
    if lacking:
        kind = type(agent).__name__
        raise SettingsError(f"{origin} gives a {kind}, which is no agent: it lacks {', '.join(lacking)}")
    return cast("Agent", agent)


def _entry_points() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def _make(name: str, factory: Callable[..., Agent], version: str) -> Agent:
    if not version:
        return factory()
    try:
        return factory(version=version)
    except TypeError as error:
        raise SettingsError(f"agent {name!r} has no choice of versions (asked for {version!r})") from error


def _unknown(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"installed agents: {', '.join(known) or 'none'}"
    return f"no agent is called {name!r}; {hint} (choose one with --agent=NAME)"
