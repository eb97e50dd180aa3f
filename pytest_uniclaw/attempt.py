"""What is recorded of an attempt: frozen values that are stored as JSON in the run directory."""

from __future__ import annotations

import math
from enum import StrEnum

from pytest_uniclaw.status import Status
from pytest_uniclaw.verdict import Handoff, Value, Verdict


class Ending(StrEnum):
    """How a turn's process ended."""

    EXITED = "exited"
    DEADLINE = "deadline"
    SILENCE = "silence"
    LOST = "lost"


class FileRecord(Value):
    """One collected regular file: its safe relative name, size in bytes and SHA-256 in hex."""

    path: str
    size: int
    sha256: str


class Refusal(Value):
    """One entry that was not collected and why (link, special file, too large, too many, unsafe name)."""

    path: str
    reason: str


class Manifest(Value):
    """What one collection brought out of a sandbox."""

    files: tuple[FileRecord, ...] = ()
    refused: tuple[Refusal, ...] = ()
    refused_total: int = 0


class FollowUp(Value):
    """The next user message: what the simulator wrote, what the rewriter let through and its decisions by kind.

    ``revised`` is what the simulator wrote in place of a candidate that could not be sent, if it was asked again.
    """

    candidate: str
    message: str
    decisions: tuple[str, ...] = ()
    revised: str = ""


class Turn(Value):
    """One executor run on one user message.

    ``seconds`` is billed executor time, ``wall_seconds`` includes collection. ``finished`` says that the executor
    finished the turn by its own word, ``reason`` why not. ``directory`` is relative to the attempt's directory.
    """

    number: int
    message: str
    started: str
    seconds: float
    wall_seconds: float
    ending: Ending
    exit_code: int | None
    finished: bool
    reason: str = ""
    directory: str = ""
    manifest: Manifest = Manifest()
    verdict: Verdict | None = None
    handoff: Handoff | None = None
    follow_up: FollowUp | None = None
    waited_seconds: float = 0.0


class Usage(Value):
    """Model use of one role: calls, token counters and cost; what is unknown is None, never 0.

    ``tries`` counts how often a provider was asked, ``waited_seconds`` how long providers made the role wait, overlaps
    once.
    """

    role: str
    calls: int = 0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    tries: int = 0
    waited_seconds: float = 0.0


class LaneUse(Value):
    """What became of one cassette lane in a replayed attempt; all but its name and size is empty after an exact one.

    ``unused`` are entries that nobody asked for, ``drift`` what a lenient replay let pass, ``misses`` calls without an
    entry, ``outdated`` what the lane was recorded with and is otherwise by now.
    """

    lane: str
    entries: int
    unused: tuple[int, ...] = ()
    drift: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    outdated: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the attempt asked what was recorded, all of it and nothing else."""
        return not (self.unused or self.drift or self.misses or self.outdated)


class Attempt(Value):
    """One task, run once by one executor: 1 + up to ``followups`` turns, ending in a status.

    ``score`` is the best over finished turns (0 when none was), ``last_score`` that of the last judged turn and
    ``unfinished_best`` the best of unfinished turns. ``reason`` is one line for a person, ``problem`` the whole message
    of what broke the attempt off or left its last turn unfinished, if anything did. ``digests`` are what a stored
    attempt must equal to be replayed (design invariant 8). Times are ISO 8601 in UTC.
    """

    attempt_id: str
    task_id: str
    category: str
    capability: str
    language: str
    agent: str
    model: str
    number: int
    status: Status
    score: float
    threshold: float
    reason: str
    started: str
    ended: str
    problem: str = ""
    turns: tuple[Turn, ...] = ()
    last_score: float | None = None
    unfinished_best: float | None = None
    executor_seconds: float = 0.0
    wall_seconds: float = 0.0
    tries: int = 1
    usage: tuple[Usage, ...] = ()
    flags: tuple[str, ...] = ()
    digests: dict[str, str] = {}
    protocol: str = "strict"
    limits: dict[str, str] = {}
    cassettes: tuple[LaneUse, ...] = ()

    @property
    def last_verdict(self) -> Verdict | None:
        """The verdict of the last judged turn."""
        return next((t.verdict for t in reversed(self.turns) if t.verdict), None)

    @property
    def best_verdict(self) -> Verdict | None:
        """The verdict that gave the score: the best of the turns that count, the last one among equals."""
        counted = [t.verdict for t in self.turns if t.verdict and (t.finished or self.protocol == "paper")]
        return max(reversed(counted), key=lambda v: v.score, default=None) or self.last_verdict


def best_score(turns: tuple[Turn, ...], *, finished: bool) -> float | None:
    """Return the best score over the judged turns that were (or were not) finished, None when there is none."""
    best = max((t.verdict.score for t in turns if t.verdict and t.finished is finished), default=-math.inf)
    return best if math.isfinite(best) else None
