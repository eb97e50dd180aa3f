"""The turns of one attempt: what the agent's own session lacks of them comes from the exchange log.

A killed agent may have stored nothing of its turn, or only the beginning. One that never asked its model stored nothing
either, and its session still ends with the turn before. So a turn is told from the one before it, and what was mended
stays mended when later turns are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_uniclaw.agents.base import Record
from pytest_uniclaw.agents.transcript import records_from_messages
from pytest_uniclaw.agents.usage import has_tool_call, messages

Turn = tuple[Record, ...]
"""The records of a turn; the first is the user's message."""


@dataclass(frozen=True)
class Split:
    """A transcript in parts: sub-agents' records and what stands before the first turn, the turns, the notices."""

    head: tuple[Record, ...]
    turns: tuple[Turn, ...]
    notices: tuple[Record, ...]


@dataclass(frozen=True)
class Mended:
    """A turn that the session lacks (``absent``) or lacks the end of, behind ``place`` turns of the session."""

    place: int
    records: Turn
    absent: bool


@dataclass(frozen=True)
class Known:
    """What is known when a turn begins: the session as it was read last, and the turns that were mended."""

    session: tuple[Record, ...] = ()
    mended: tuple[Mended, ...] = ()


@dataclass
class Turns:
    """The turns so far, in the order in which they are taken."""

    number: int = 0
    known: Known = Known()
    before: Known = Known()

    def take(
        self, number: int, message: str, session: Sequence[Record], rebuilt: Sequence[Record]
    ) -> tuple[tuple[Record, ...], bool]:
        """Return the transcript with a turn, and whether that turn needed ``rebuilt``.

        ``message`` is what the user said. ``session`` is the agent's own; where it has no turn, what was read last
        stands. ``rebuilt`` is the conversation of this turn's model calls. A turn may be taken again, in place of its
        first taking.
        """
        if number != self.number:
            self.number, self.before = number, self.known
        before, own, told = split(self.before.session), split(session), split(rebuilt)
        own = own if own.turns else replace(before, notices=own.notices)
        mine = _new_turn(before.turns, own.turns)
        theirs = (*told.turns[-1], *told.notices) if told.turns else ()
        mended = _settled(self.before.mended, len(before.turns), own.turns)
        used = False
        if mine and goes_on(mine, theirs):
            mended, used = (*mended, Mended(len(own.turns) - 1, (mine[0], *theirs[1:]), absent=False)), True
        elif not mine and (theirs or own.turns or mended):
            turn = theirs or records_from_messages([{"role": "user", "content": message}], f"turn-{number}")
            mended, used = (*mended, Mended(len(own.turns), turn, absent=True)), len(messages(theirs)) > 1
        self.known = Known((*own.head, *(record for turn in own.turns for record in turn), *own.notices), mended)
        woven = (record for turn in _woven(own.turns, mended) for record in turn)
        return (*own.head, *woven, *own.notices), used


def split(records: Sequence[Record]) -> Split:
    """Return a transcript in its parts."""
    head: list[Record] = []
    turns: list[list[Record]] = []
    notices: list[Record] = []
    for record in records:
        if record.get("type") != "message":
            notices.append(record)
        elif "agentId" in record:
            head.append(record)
        elif record["message"].get("role") == "user":
            turns.append([record])
        else:
            (turns[-1] if turns else head).append(record)
    return Split(tuple(head), tuple(map(tuple, turns)), tuple(notices))


def goes_on(own: Sequence[Record], rebuilt: Sequence[Record]) -> bool:
    """Whether a rebuilt turn begins with the calls of the agent's own, which has no answer yet, and has more."""
    mine, theirs = messages(own)[1:], messages(rebuilt)[1:]
    if not theirs or not mine:
        return bool(theirs)
    if mine[-1].get("role") == "assistant" and not has_tool_call(mine[-1]):
        return False
    called, told = _calls(mine), _calls(theirs)
    return len(told) > len(called) and told[: len(called)] == called


def _new_turn(before: Sequence[Turn], now: Sequence[Turn]) -> Turn:
    """Return the last turn of a session if it was not there when the session was read before, else nothing.

    A session that an agent made shorter is told by the user's message.
    """
    if not now or (before and len(now) <= len(before) and now[-1][0] == before[-1][0]):
        return ()
    return now[-1]


def _settled(mended: Sequence[Mended], known: int, turns: Sequence[Turn]) -> tuple[Mended, ...]:
    """Return earlier turns as they stand to the session that is read now, which had ``known`` turns before.

    Turns that an agent stores afterwards, beside the one it was asked for, are those that were absent last. In a
    session that was made shorter none comes behind the last turn.
    """
    late = iter(turns[known:-1])
    settled = []
    for one in mended:
        stored = next(late, None) if one.absent and one.place == known else None
        if stored:
            settled.append(Mended(known, (stored[0], *one.records[1:]), absent=False))
        elif one.place >= len(turns) < known:
            settled.append(replace(one, place=max(0, len(turns) - 1)))
        else:
            settled.append(one)
    return tuple(settled)


def _woven(turns: Sequence[Turn], mended: Sequence[Mended]) -> Iterator[Turn]:
    """Yield the session's turns with those that were mended."""
    absent = [one for one in mended if one.absent]
    better = [one.records for one in mended if not one.absent]
    for place, turn in enumerate(turns):
        yield from (one.records for one in absent if one.place == place)
        yield next((each for each in better if each[0] == turn[0] and _calls_more(each, turn)), turn)
    yield from (one.records for one in absent if one.place >= len(turns))


def _calls_more(one: Turn, other: Turn) -> bool:
    return len(_calls(messages(one))) > len(_calls(messages(other)))


def _calls(turn: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the ids of the tool calls in messages, in their order."""
    lists = (content for message in turn if isinstance(content := message.get("content"), list))
    blocks = (block for blocks in lists for block in blocks if isinstance(block, dict))
    return [block.get("id") for block in blocks if block.get("type") == "toolCall"]
