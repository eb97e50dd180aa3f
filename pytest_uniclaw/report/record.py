"""ItemRecord: what a finished item says of itself to reports, as JSON primitives in valid UTF-8 (invariant 9).

This is the one choke point: whatever goes on a pytest report passes :func:`clean`.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from pytest_uniclaw.attempt import Attempt, FollowUp, LaneUse, Usage
from pytest_uniclaw.report.lines import one_line
from pytest_uniclaw.status import Outcome, PartialPolicy, Status, is_judged, outcome_of
from pytest_uniclaw.task import Task
from pytest_uniclaw.verdict import CapScore, CheckpointScore, Handoff, Opinion

_TURNS = frozenset({"LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
"""The bidi classes of the controls that let text be shown in another order than it is written in."""

SKIPPED = "skipped"
"""Status of an item that cannot run here; it counts as selected and not judged."""
NOT_RUN = "not_run"
"""Status of an item that the session did not come to; it counts as selected and not judged."""


class TurnNote(BaseModel):
    """One turn in a report row: billed seconds, score, the handoff, the judge's own word and the next user message.

    ``drift`` is the judge's own score less the computed one; it and ``opinion`` are None where checks alone judged.
    """

    model_config = ConfigDict(frozen=True)

    number: int
    seconds: float
    finished: bool
    score: float | None = None
    handoff: Handoff | None = None
    opinion: Opinion | None = None
    drift: float | None = None
    follow_up: FollowUp | None = None


class ItemRecord(BaseModel):
    """One item of a session.

    ``score`` is None exactly where the item is not judged. ``reason`` is one line, ``detail`` the whole message of what
    kept the item from being judged or broke it off. ``directory`` is the attempt's folder, empty where there is none.
    ``supervisor`` and ``simulator`` are ``name@version``, empty where unknown. ``cassettes`` are the lanes that did not
    answer exactly what was recorded.
    """

    model_config = ConfigDict(frozen=True)

    task_id: str
    category: str
    capability: str
    language: str
    agent: str
    model: str = ""
    number: int = 1
    status: str
    outcome: str
    score: float | None = None
    threshold: float = 1.0
    reason: str = ""
    detail: str = ""
    supervisor: str = ""
    simulator: str = ""
    protocol: str = "strict"
    seconds: float = 0.0
    wall_seconds: float = 0.0
    turns: tuple[TurnNote, ...] = ()
    checkpoints: tuple[CheckpointScore, ...] = ()
    caps: tuple[CapScore, ...] = ()
    fatal: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    usage: tuple[Usage, ...] = ()
    cassettes: tuple[LaneUse, ...] = ()
    directory: str = ""
    replayed: bool = False

    @property
    def judged(self) -> bool:
        """Whether the item is in the denominator of PR and AS."""
        return self.status not in {SKIPPED, NOT_RUN} and is_judged(Status(self.status), self.protocol)

    @model_validator(mode="after")
    def _scored_where_judged(self) -> ItemRecord:
        if self.judged != (self.score is not None):
            raise ValueError(f"status {self.status} with score {self.score}")
        return self

    def dump(self) -> dict[str, Any]:
        """Return the record as clean JSON primitives."""
        cleaned: dict[str, Any] = clean(self.model_dump(mode="json"))
        return cleaned


def record_of_attempt(attempt: Attempt, policy: PartialPolicy, directory: Path, *, replayed: bool) -> ItemRecord:
    """Return the record of a finished attempt."""
    verdict = attempt.best_verdict
    judged = is_judged(attempt.status, attempt.protocol)
    record = ItemRecord(
        task_id=attempt.task_id, category=attempt.category, capability=attempt.capability, language=attempt.language,
        agent=attempt.agent, model=attempt.model, number=attempt.number, status=attempt.status.value,
        outcome=outcome_of(attempt.status, attempt.score, policy).value, score=attempt.score if judged else None,
        threshold=attempt.threshold, reason=attempt.reason, detail=attempt.problem,
        supervisor=attempt.digests.get("supervisor", ""), simulator=attempt.digests.get("simulator", ""),
        protocol=attempt.protocol,
        seconds=attempt.executor_seconds,
        wall_seconds=attempt.wall_seconds, turns=tuple(_turn_notes(attempt)),
        checkpoints=verdict.checkpoints if verdict else (), caps=verdict.caps if verdict else (),
        fatal=verdict.fatal if verdict else (), flags=attempt.flags,
        usage=attempt.usage, cassettes=tuple(lane for lane in attempt.cassettes if not lane.exact),
        directory=str(directory), replayed=replayed,
    )  # fmt: skip
    return _cleaned(record)


def lane_line(lane: LaneUse) -> str:
    """Return ``cassette differs: LANE: 2 drifts, 1 unused`` of a lane that was not exact."""
    counts = {"drift": len(lane.drift), "miss": len(lane.misses)}
    parts = [f"{count} {_plural(word, count)}" for word, count in counts.items() if count]
    parts += [f"{len(lane.unused)} unused"] if lane.unused else []
    parts += [f"outdated: {', '.join(lane.outdated)}"] if lane.outdated else []
    return f"cassette differs: {lane.lane}: {', '.join(parts)}"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}es" if word.endswith("s") else f"{word}s"


def skipped_record(task: Task, agent: str, number: int, reason: str, *, model: str = "") -> ItemRecord:
    """Return the record of an item that cannot run here."""
    return _unrun(task, agent, model, number, reason, SKIPPED, SKIPPED)


def crashed_record(task: Task, agent: str, number: int, reason: str, *, model: str = "") -> ItemRecord:
    """Return the record of an item whose worker died or whose fixture failed."""
    return _unrun(task, agent, model, number, reason, Status.INFRA_ERROR.value, Outcome.INFRA.value)


def not_run_record(task: Task, agent: str, number: int, *, model: str = "") -> ItemRecord:
    """Return the record of an item that the session did not come to."""
    return _unrun(task, agent, model, number, "", NOT_RUN, NOT_RUN)


def _unrun(task: Task, agent: str, model: str, number: int, reason: str, status: str, outcome: str) -> ItemRecord:
    record = ItemRecord(
        task_id=task.task_id, category=task.category, capability=task.capability, language=task.language, agent=agent,
        model=model, number=number, status=status, outcome=outcome, threshold=task.threshold, reason=one_line(reason),
        detail=reason,
    )  # fmt: skip
    return _cleaned(record)


def _cleaned(record: ItemRecord) -> ItemRecord:
    """Return the record as every report will have it: what a failure says on a terminal passes the same point."""
    return ItemRecord.model_validate(record.dump())


def clean(value: Any) -> Any:
    """Return JSON primitives with every string valid UTF-8 and free of control characters but newline and tab."""
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    return value


def clean_text(text: str) -> str:
    """Replace by U+FFFD what XML or UTF-8 cannot carry, and what moves a cursor or turns the writing direction."""
    return "".join("\ufffd" if _is_unfit(character) else character for character in str(text))


def _is_unfit(character: str) -> bool:
    if character in "\n\t":
        return False
    if unicodedata.bidirectional(character) in _TURNS:
        return True
    return unicodedata.category(character) in {"Cc", "Cs", "Cn", "Zl", "Zp"}


def _turn_notes(attempt: Attempt) -> list[TurnNote]:
    return [
        TurnNote(
            number=t.number, seconds=t.seconds, finished=t.finished, score=t.verdict.score if t.verdict else None,
            handoff=t.handoff, opinion=t.verdict.opinion if t.verdict else None,
            drift=t.verdict.drift if t.verdict else None, follow_up=t.follow_up,
        )
        for t in attempt.turns
    ]  # fmt: skip
