"""A role's read-only workspace in namespaces of this machine: this interpreter, its libraries, the host's programs."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from pytest_uniclaw.attempt import Ending
from pytest_uniclaw.sandbox.base import WorkspaceJob
from pytest_uniclaw.sandbox.grading import GRADER
from pytest_uniclaw.sandbox.local_exec import TICK_SECONDS, exit_code, follow, raise_if_dead, started
from pytest_uniclaw.sandbox.local_holder import PATH, Holder
from pytest_uniclaw.sandbox.stream import HeadAndTail
from pytest_uniclaw.sandbox.workspace import COMMAND, ENVIRONMENT, KILL_SECONDS, OUTPUT_BYTES, order_line, read_answer


class LocalWorkspace:
    """A running PID 1 in its namespaces, as :class:`~pytest_uniclaw.sandbox.base.Workspace` describes it."""

    def __init__(self, holder: Holder, job: WorkspaceJob) -> None:
        self.holder, self.job = holder, job

    def call(self, tool: str, arguments: Mapping[str, Any], *, seconds: float = 60.0) -> Mapping[str, Any]:
        """Run a tool as one command that reads its order from standard input."""
        last = time.monotonic() + seconds + KILL_SECONDS
        output = HeadAndTail(OUTPUT_BYTES)
        with tempfile.TemporaryFile() as order:
            order.write(order_line(self.job, tool, arguments, seconds))
            order.seek(0)
            with started(
                self.holder, [sys.executable, *COMMAND[1:]], user=int(GRADER), cwd="/",
                environment={"PATH": PATH, **ENVIRONMENT}, stdin=order.fileno(),
            ) as process:  # fmt: skip
                late = follow(
                    process, output.write, lambda now, _: Ending.DEADLINE if now > last else None, TICK_SECONDS
                )
                code = exit_code(process) if late is Ending.EXITED else None
        raise_if_dead(self.holder, code)
        return read_answer(output, code)


__all__ = ["LocalWorkspace"]
