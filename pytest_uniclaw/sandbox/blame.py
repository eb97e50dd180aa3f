"""Failed calls that the executor brought about: it pays for them, they are no infrastructure (design invariant 3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from pytest_uniclaw.errors import EngineError
from pytest_uniclaw.sandbox.engine import Container, failures
from pytest_uniclaw.sandbox.fetch import obstacle
from pytest_uniclaw.sandbox.freeze import kill


def blame(container: Container, check_disk: Callable[[], None], paths: Iterable[str] = ()) -> None:
    """Say whether the executor is why a call just failed; return when it is not known to be.

    ``check_disk`` is the free-space guard's. ``paths`` are those in the container that files were to be written to:
    what cannot be gone through on the way to one costs the executor its container.

    Raises:
        SandboxLost: it has filled the disk (cause ``disk``), or has put something in the way (cause ``killed``).
    """
    with suppress(EngineError):
        check_disk()
    with suppress(*failures()):
        for path in paths:
            if found := obstacle(container, path):
                raise kill(container, f"files cannot be written to {path}: {found} was made impassable")


__all__ = ["blame"]
