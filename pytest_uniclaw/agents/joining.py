"""Several sessions of one agent as one transcript: the user's last, the sub-agents' before it, and what was cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.cleaning import clean_text, weight

MAX_RECORDS = 20_000
MAX_WEIGHT = 64 * 1024 * 1024
"""Characters of all sessions, as :func:`weight` counts them, after which no further one is read."""


@dataclass
class Joined:
    """The sessions as they are read. The bounds of one transcript hold for them together: the user's is read first."""

    own: list[Record] = field(default_factory=list)
    others: list[Record] = field(default_factory=list)
    broken: int = 0
    cut: int = 0
    missing: str = ""
    room: int = MAX_WEIGHT

    def is_full(self) -> bool:
        """Whether no further session is to be read."""
        return self.room <= 0 or len(self.own) + len(self.others) >= MAX_RECORDS

    def add(self, records: Sequence[Record], agent: str, *, broken: int, cut: bool) -> None:
        """Add a session; ``agent`` is empty for the one in which the user speaks.

        ``broken`` counts its lines that are no JSON object, ``cut`` says that a part of it was not read.
        """
        self.room -= weight(records, self.room)
        (self.others if agent else self.own).extend(messages_only(records, agent or None))
        self.broken += broken
        self.cut += cut + was_cut(records)

    def records(self, prefix: str) -> tuple[Record, ...]:
        """Return the transcript: its end is always the end of the user's session."""
        return with_notices((*self.others, *self.own), prefix, broken=self.broken, cut=self.cut, missing=self.missing)


def messages_only(records: Iterable[Record], agent: str | None = None) -> Iterator[Record]:
    """Yield the records of messages; those of a sub-agent bear its id as ``agentId``."""
    name = {"agentId": clean_text(agent, 100)} if agent is not None else {}
    yield from (record | name for record in records if record["type"] == "message")


def with_notices(
    records: tuple[Record, ...], prefix: str, *, broken: int = 0, cut: int = 0, missing: str = ""
) -> tuple[Record, ...]:
    """Return records and a closing notice of broken lines, of cuts and of a missing file, if there is any."""
    facts = {name: fact for name, fact in (("brokenLines", broken), ("cut", cut), ("missing", missing)) if fact}
    if not facts:
        return records
    return (*records, {"type": "notice", "id": f"{prefix}-{len(records):06d}", "timestamp": "", **facts})


def was_cut(records: Iterable[Record]) -> bool:
    """Whether a bound cut something of the records."""
    return has_notice(records, "cut")


def has_notice(records: Iterable[Record], fact: str) -> bool:
    """Whether a notice of the records states a fact."""
    return any(record.get("type") == "notice" and bool(record.get(fact)) for record in records)
