"""Load sandboxes, supervisors and simulators by name from their entry points."""

from __future__ import annotations

import difflib
from typing import Any, cast

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.installed import installed
from pytest_uniclaw.judge.base import Simulator, Supervisor
from pytest_uniclaw.modelchoice import RoleChoice
from pytest_uniclaw.sandbox.base import SandboxProvider
from pytest_uniclaw.task import Task


def load_provider(name: str) -> SandboxProvider:
    """Return the sandbox provider of a name. Raises :class:`SettingsError` with the known names."""
    return cast(SandboxProvider, load_extension("sandboxes", name, "--sandbox"))


def load_supervisor(name: str, role: RoleChoice | None = None) -> Supervisor:
    """Return the supervisor of a name. Raises :class:`SettingsError` with the known names."""
    return cast(Supervisor, _configured(load_extension("supervisors", name, "--supervisor"), role or RoleChoice()))


def load_simulator(name: str, role: RoleChoice | None = None) -> Simulator:
    """Return the user simulator of a name. Raises :class:`SettingsError` with the known names."""
    return cast(Simulator, _configured(load_extension("simulators", name, "--simulator"), role or RoleChoice()))


def asks_model(role: Supervisor | Simulator, task: Task) -> bool:
    """Say whether a role may ask a model about a task: by its ``asks_model(task)``, else by its ``needs_model``."""
    ask = getattr(role, "asks_model", None)
    return bool(ask(task)) if ask else bool(getattr(role, "needs_model", False))


def _configured(extension: Any, role: RoleChoice) -> Any:
    """Let a role that takes a model (``configured(role)`` returns the role to use) have it."""
    return extension.configured(role) if hasattr(extension, "configured") else extension


def load_extension(kind: str, name: str, option: str) -> Any:
    """Build the extension ``name`` of entry-point group ``pytest_uniclaw.<kind>`` with its defaults."""
    known = installed(f"pytest_uniclaw.{kind}")
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise SettingsError(f"{option}={name}: unknown{hint} (known: {', '.join(sorted(known))})")
    return known[name].load()()
