"""The boundary to an adapter's code, which other people write: what it raises is declared, what it returns is right.

An error that this project does not declare becomes an :class:`AgentError` that names the place in the adapter's own
file. Its traceback goes to ``error.log`` in the attempt's folder, without the values of variables and without secrets.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from traceback import FrameSummary, TracebackException

from pytest_uniclaw.agents.base import Agent, Finish, ModelAccess, Record, TurnRequest
from pytest_uniclaw.errors import AgentError, UniclawError
from pytest_uniclaw.redaction import Redactor
from pytest_uniclaw.sandbox.base import Completed, Sandbox
from pytest_uniclaw.store import write_text
from pytest_uniclaw.task import Task

ERROR_LOG = "error.log"
"""The traceback of an adapter's crash, in the attempt's folder."""
EXHAUSTED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE})
"""What a host ran out of is no fault of the adapter that notices it first."""
TEXT_LENGTH = 70
"""Characters of an error's text in a reason, which must have room for the place."""
OURS = str(Path(__file__).parents[1])


@contextmanager
def crossing(translate: Callable[[BaseException], UniclawError]) -> Iterator[None]:
    """Run an adapter's code. Declared errors and those of an exhausted host pass; ``translate`` makes one of any other.

    What is no :class:`Exception`, such as KeyboardInterrupt, passes too; but a SystemExit is a crash.
    """
    try:
        yield
    except UniclawError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.errno in EXHAUSTED:
            raise
        raise translate(error) from None  # a chain would be shown, with the values of variables under --showlocals


@dataclass(frozen=True)
class GuardedAgent:
    """An agent whose calls raise declared errors only. ``folder`` is the attempt's, for ``error.log``."""

    agent: Agent
    folder: Path
    redactor: Redactor

    def prepare(self, sandbox: Sandbox, task: Task, access: ModelAccess | None) -> None:
        """See :meth:`Agent.prepare`. Raises :class:`AgentError`, as all methods do."""
        with crossing(self._crash):
            self.agent.prepare(sandbox, task, access)

    def turn(self, sandbox: Sandbox, request: TurnRequest) -> Completed:
        """See :meth:`Agent.turn`."""
        with crossing(self._crash):
            result: object = self.agent.turn(sandbox, request)
        if not isinstance(result, Completed):
            raise self._mistake("turn", result, "what sandbox.turn returns (a Completed)")
        return result

    def transcript_sources(self, sandbox: Sandbox) -> Sequence[str]:
        """See :meth:`Agent.transcript_sources`."""
        with crossing(self._crash):
            result: object = self.agent.transcript_sources(sandbox)
        if not isinstance(result, list | tuple) or not all(isinstance(p, str) and p.startswith("/") for p in result):
            raise self._mistake("transcript_sources", result, "a tuple of absolute paths, which begin with /")
        return tuple(result)

    def read_transcript(self, collected: Path) -> tuple[Record, ...]:
        """See :meth:`Agent.read_transcript`."""
        with crossing(self._crash):
            result: object = self.agent.read_transcript(collected)
        if not isinstance(result, list | tuple) or not all(isinstance(record, dict) for record in result):
            raise self._mistake("read_transcript", result, "a tuple of records (dicts)")
        return tuple(result)

    def finish(self, completed: Completed, records: Sequence[Record]) -> Finish:
        """See :meth:`Agent.finish`."""
        with crossing(self._crash):
            result: object = self.agent.finish(completed, records)
        if not isinstance(result, Finish):
            raise self._mistake("finish", result, "a Finish")
        return result

    def _mistake(self, method: str, result: object, wanted: str) -> AgentError:
        given = "None" if result is None else f"a {type(result).__name__}"
        if isinstance(result, list | tuple):
            given += f" of {', '.join(sorted({type(item).__name__ for item in result})) or 'nothing'}"
        return AgentError(f"{type(self.agent).__name__}.{method} returned {given}; return {wanted}")

    def _crash(self, error: BaseException) -> AgentError:
        return AgentError(keep_crash(self.agent, error, self.folder, self.redactor))


def keep_crash(part: object, error: BaseException, folder: Path, redactor: Redactor) -> str:
    """Keep the traceback of a part that other people may have written; return what happened and where in its file.

    A disk that refuses the traceback costs no more than that.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    told = TracebackException(type(error), error, trace)
    with suppress(OSError):
        write_text(folder / ERROR_LOG, redactor.text("".join(told.format())))
    text = " ".join(redactor.text(str(told)).split())
    short = text if len(text) <= TEXT_LENGTH else text[: TEXT_LENGTH - 1] + "…"
    where = place_of(told.stack, files_of(part))
    return f"{type(error).__name__}: {short} ({where}); traceback in {ERROR_LOG}"


def files_of(part: object) -> set[str]:
    """Return the source files of an object's methods, with those of its base classes."""
    members = [member for kind in type(part).__mro__ for member in vars(kind).values()]
    return {member.__code__.co_filename for member in members if hasattr(member, "__code__")}


def place_of(stack: Sequence[FrameSummary], files: Iterable[str]) -> str:
    """Return ``conftest.py:12 in turn``: the innermost frame in one of ``files``, a foreign one before one of ours."""
    inside = [frame for frame in stack if frame.filename in files] or stack
    foreign = [frame for frame in inside if not frame.filename.startswith(OURS)] or inside
    if not foreign:
        return "no place known"
    frame = foreign[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
