"""What installed packages add: the entry points of a group, looked up once per process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType


@cache
def installed(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group by name.

    Each look-up reads the metadata of every installed package, so the answer is kept: what is installed does not
    change under a running session.
    """
    return MappingProxyType({point.name: point for point in entry_points(group=group)})
