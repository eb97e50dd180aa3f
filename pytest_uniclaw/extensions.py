"""Load sandboxes, supervisors and simulators by name from their entry points."""

from __future__ import annotations

import difflib
from functools import cache
from importlib.metadata import entry_points
from typing import Any, cast

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.judge.base import Simulator, Supervisor
from pytest_uniclaw.sandbox.base import SandboxProvider


def load_provider(name: str) -> SandboxProvider:
    """Return the sandbox provider of a name. Raises :class:`SettingsError` with the known names."""
    return cast(SandboxProvider, load_extension("sandboxes", name, "--sandbox"))


def load_supervisor(name: str) -> Supervisor:
    """Return the supervisor of a name. Raises :class:`SettingsError` with the known names."""
    return cast(Supervisor, load_extension("supervisors", name, "--supervisor"))


def load_simulator(name: str) -> Simulator:
    """Return the user simulator of a name. Raises :class:`SettingsError` with the known names."""
    return cast(Simulator, load_extension("simulators", name, "--simulator"))


def load_extension(kind: str, name: str, option: str) -> Any:
    """Build the extension ``name`` of entry-point group ``pytest_uniclaw.<kind>`` with its defaults."""
    known = names_of(kind)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SettingsError(f"{option}={name}: unknown{hint} (known: {', '.join(sorted(known))})")
    (point,) = entry_points(group=f"pytest_uniclaw.{kind}", name=name)
    return point.load()()


@cache
def names_of(kind: str) -> tuple[str, ...]:
    """Return the names that are installed for a kind of extension."""
    return tuple(sorted({point.name for point in entry_points(group=f"pytest_uniclaw.{kind}")}))
