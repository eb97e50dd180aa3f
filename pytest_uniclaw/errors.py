"""The exceptions of the project, as one tree.

::

    UniclawError
    ├── TaskError          a task package is wrong: file, line, field, value, remedy
    │   └── TaskUnavailable    the package is right, but this machine lacks something it needs (skips the task)
    ├── SettingsError      the command line, ini, uniclaw.toml or environment is wrong (pytest exit 4)
    ├── InfraError         what the executor could not have caused (design invariant 3)
    │   ├── PreExecError       a package's host-side preparation failed
    │   ├── EngineError        the container engine did not do its part
    │   └── AgentError         an agent's adapter crashed or returned what it should not
    ├── SandboxLost        the container died while the engine answers: the executor's own doing
    ├── ModelRefused       a role's model answered that it will not serve this request
    ├── GradingError       a supervisor could not judge; the attempt ends `unjudged`
    ├── SimulatorError     the user simulator could not answer; the attempt ends `simulator_error`
    └── AccessDenied       a hidden folder was asked for by someone who is not its one reader (invariant 1)
"""

from __future__ import annotations

from pathlib import Path


class UniclawError(Exception):
    """Root of every error this project raises on purpose."""


class TaskError(UniclawError):
    """A task package that cannot be loaded; its text names file, line, field, value and the fix.

    ``line`` is one-based, 0 where no line is known. ``field`` is a dotted path such as ``services[0].start``.
    """

    def __init__(self, path: Path, message: str, *, line: int = 0, field: str = "", remedy: str = "") -> None:
        self.path, self.line, self.field, self.message, self.remedy = path, line, field, message, remedy
        where = f"{path}:{line}" if line else f"{path}"
        what = f"{field}: {message}" if field else message
        super().__init__(f"{where}: {what}" + (f"\n  fix: {remedy}" if remedy else ""))


class TaskUnavailable(TaskError):
    """A sound package that cannot run here: a privacy value is missing, a large file was not fetched."""


class SettingsError(UniclawError):
    """A usage error; pytest shows it and exits with status 4."""


class InfraError(UniclawError):
    """Something outside the executor failed; the attempt leaves the denominator, visibly.

    ``kind`` is ``infra``, ``rate_limit``, which has a status of its own, or ``spent``: the session's money is used up,
    and no other try would end otherwise.
    """

    def __init__(self, message: str, *, kind: str = "infra") -> None:
        self.kind = kind
        super().__init__(message)


class PreExecError(InfraError):
    """A ``pre_exec`` script of a package exited non-zero or ran past its deadline."""


class EngineError(InfraError):
    """The container engine refused, vanished or broke a promise."""


class AgentError(InfraError):
    """An agent's adapter raised an undeclared error or returned something else than it should; not tried again."""


class SandboxLost(UniclawError):
    """The executor's container is gone or out of memory or disk while the engine still answers.

    ``cause`` is one of ``killed``, ``oom``, ``disk``, ``exited``.
    """

    def __init__(self, message: str, *, cause: str) -> None:
        self.cause = cause
        super().__init__(message)


class ModelRefused(UniclawError):
    """A role's model refuses its request: too long, filtered, malformed or over budget.

    ``call_class`` is the ledger's class of the call.
    """

    def __init__(self, message: str, *, call_class: str) -> None:
        self.call_class = call_class
        super().__init__(message)


class GradingError(UniclawError):
    """No judgement could be had of sound evidence."""


class SimulatorError(UniclawError):
    """No next user message could be had."""


class AccessDenied(UniclawError):
    """A hidden folder of a package was asked for by someone other than its one reader."""
