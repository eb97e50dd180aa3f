"""The ``uniclaw:`` mapping of a task file, which upstream's loader ignores (design.md section 6)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MEMORY = re.compile(r"(?P<count>\d+(?:\.\d+)?)(?P<unit>[bkmg]?)b?")
_TAG = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
MIN_MEMORY = 64 << 20
"""Bytes; below this no agent starts, so a smaller figure is a slip of the unit."""


def as_tuple(value: Any) -> Any:
    """A YAML list as a tuple; one string stands for a list of one, as upstream reads it."""
    if isinstance(value, list):
        return tuple(value)
    return (value,) if isinstance(value, str) else value


def safe_name(value: str) -> str:
    """Pass a name that is safe as one path part. Raises ValueError."""
    if not SAFE_NAME.fullmatch(value):
        raise ValueError("must start with a letter or digit and go on with letters, digits, '.', '_' or '-'")
    return value


def memory_bytes(value: str) -> int:
    """Bytes of ``512m``, ``2g``, ``1.5g``. Raises ValueError."""
    match = _MEMORY.fullmatch(value.strip().lower())
    size = int(float(match["count"]) * _UNITS[match["unit"]]) if match else 0
    if size < MIN_MEMORY:
        raise ValueError("must be an amount of memory of at least 64m, such as 512m or 2g")
    return size


def _memory(value: str) -> str:
    memory_bytes(value)
    return value.strip().lower()


def _tag(value: str) -> str:
    if not _TAG.fullmatch(value):
        raise ValueError("a tag is lower-case letters, digits, '-' and '_'")
    return value


def _command(value: str) -> str:
    if not value.strip():
        raise ValueError("must be a shell command, not blank")
    return value


Command = Annotated[str, AfterValidator(_command)]
Name = Annotated[str, AfterValidator(safe_name)]


class ServiceExtension(BaseModel):
    """What ``uniclaw: services: <name>:`` adds to one declared service."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    user: Literal["root", "service"] = "root"
    """Who runs the service and its exports in the sandbox."""
    ready: Command | None = None
    """Run until it exits 0; background services only."""
    ready_seconds: int = Field(60, gt=0, le=3600)
    """Deadline of ``ready``, in seconds."""
    export: dict[Name, Command] = {}
    """Evidence file name under ``state/`` to the command whose stdout fills it, run after each turn."""


class Extension(BaseModel):
    """The whole ``uniclaw:`` mapping; writing one (even empty) chooses the isolated, non-root defaults."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    network: Literal["isolated", "internet"] = "isolated"
    user: Literal["agent", "root"] = "agent"
    memory: Annotated[str, AfterValidator(_memory)] | None = None
    cpus: float | None = Field(None, gt=0, le=1024, allow_inf_nan=False)
    local: bool = False
    tags: Annotated[tuple[Annotated[str, AfterValidator(_tag)], ...], BeforeValidator(as_tuple)] = ()
    services: dict[str, ServiceExtension] = {}


UPSTREAM_DEFAULTS = Extension(network="internet", user="root")
"""How a task without a ``uniclaw:`` mapping runs: as upstream runs it."""
