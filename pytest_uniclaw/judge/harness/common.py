"""What the tools share: answers, errors, arguments and pages of lines."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

MIB = 1024 * 1024
TEXT_BYTES = 65_536
"""Longest text of an answer, in UTF-8."""
PAGE_BYTES = 60_000
"""Longest page of content in an answer; the rest is for what is said about it."""
SURROGATES = re.compile("[\ud800-\udfff]")


class ToolError(Exception):
    """What was asked for cannot be had; the text says why, for whoever asked."""


class TimeUp(BaseException):
    """The time of the order is over; a base exception, so that no library's ``except Exception`` holds it."""


@dataclass
class Answer:
    """What a tool found. ``found`` is for ``find_quotes`` alone."""

    text: str = ""
    images: list[dict[str, str]] = field(default_factory=list)
    next_offset: int | None = None
    found: list[bool] | None = None


class Arguments:
    """The arguments of a call, as a model may have written them."""

    def __init__(self, tool: str, values: Mapping[str, Any], known: tuple[str, ...]) -> None:
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise ToolError(f"{tool} takes {', '.join(known)}, not {', '.join(map(repr, unknown))[:200]}")
        self.values = {name: value for name, value in values.items() if value is not None}

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string. Raises ToolError when there is none and no default, or it is something else."""
        value = self.values.get(name, default)
        if not isinstance(value, str):
            raise ToolError(f"{name} must be a string" if name in self.values else f"{name} is missing")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """Return a finite number, also from its digits in a string. Raises ToolError."""
        value = self.values.get(name, default)
        try:
            found = math.nan if value is None or isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if not math.isfinite(found):
            raise ToolError(f"{name} must be a number" if name in self.values else f"{name} is missing")
        return found

    def whole(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number of ``low`` or more, cut to ``high``. Raises ToolError."""
        found = self.number(name, default)
        if found != int(found) or found < low:
            raise ToolError(f"{name} must be a whole number, {low} or more")
        return min(int(found), high)


def page(lines: Iterable[str], offset: int, most: int) -> tuple[list[str], int | None]:
    """Return lines from number ``offset`` (from 0) on, at most ``most`` and PAGE_BYTES of them.

    Returns:
        The lines, and the offset to go on with, None when none follows.
    """
    taken: list[str] = []
    following = fill(taken, lines, offset, most)
    return taken, following


def fill(taken: list[str], lines: Iterable[str], offset: int, most: int) -> int | None:
    """Put a page of lines into ``taken`` and return the offset to go on with; see :func:`page`."""
    size = 0
    for number, line in enumerate(lines):
        if number < offset:
            continue
        size += len(line.encode(errors="replace")) + 1
        if len(taken) == most or (taken and size > PAGE_BYTES):
            return number
        taken.append(line)
    return None


def shortened(text: str, most: int) -> str:
    """Return a text that says how much of it is left out."""
    return text if len(text) <= most else f"{text[:most]}…[{len(text) - most} more characters]"


def go_on(next_offset: int | None, name: str = "offset") -> str:
    """Return the line that says how to go on, empty when there is nothing more."""
    return "" if next_offset is None else f"\n[cut here: go on with {name}={next_offset}]"


def need(module: str, package: str) -> Any:
    """Import a library. Raises ToolError where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ToolError(f"this sandbox has no {package}, which this needs") from None
