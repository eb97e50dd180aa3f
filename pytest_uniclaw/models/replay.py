"""The backend that answers from cassettes; it needs no provider and no key.

A lane is read in the order of its recording, each entry once. Calls that overlapped in the recording may come in any
order. *Strict* takes an entry for the same request only (normalised, see normalise.py); *lenient* also takes one for a
request that ends in the same way, then one of the same shape, and lists each of these as drift. A request without an
entry is an error of class ``replay_miss`` that says where the first difference is.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.models.bounds import MAX_REFUSALS
from pytest_uniclaw.models.call import RunningCall
from pytest_uniclaw.models.cassette import Cassette, Entry, load_cassette, walked
from pytest_uniclaw.models.chat import Json, assemble, chunks_of, completion
from pytest_uniclaw.models.exchange import rewritten
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import REPLAY, CallClass, Drift, GrantRequest, LaneReport, Tuning
from pytest_uniclaw.models.normalise import Normal, Normaliser, first_difference
from pytest_uniclaw.models.provider import Answer

_WARM = 64
"""Lanes, the latest ones, that keep their normalised texts."""


class Tape:
    """One lane as one attempt plays it. ``variables`` are the attempt's names for things."""

    def __init__(self, cassette: Cassette, variables: Mapping[str, str], *, lenient: bool) -> None:
        self._lane = cassette.lane
        self._total = len(cassette.entries)
        self._unused = list(cassette.entries)
        self._lenient = lenient
        self._recorded = Normaliser(cassette.variables)
        self._now = Normaliser(variables)
        self._normals: dict[int, Normal] = {}
        self._swap = _Swap(cassette.variables, variables)
        self._drift: list[Drift] = []
        self._misses: list[str] = []

    def prepare(self, body: Json) -> Normal:
        """Return a request's normal form, and have those of the entries it may be compared with; slow, for a thread."""
        for entry in self._comparable():
            self._normal(entry)
        return self._now.request(body)

    def take(self, now: Normal) -> Entry:
        """Use up the entry for a request. Raises CallFailed of class ``replay_miss``."""
        found = self._find(now)
        if found is None:
            told = self._told(now)
            if len(self._misses) < MAX_REFUSALS:
                self._misses.append(told)
            raise CallFailed(CallClass.REPLAY_MISS, 409, told, final=True)
        self._unused = [entry for entry in self._unused if entry is not found]
        recorded = self._normal(found)
        self._normals.pop(found.n, None)
        if recorded.full != now.full:
            matched: Any = "tail" if recorded.tail == now.tail else "shape"
            self._drift.append(Drift(n=found.n, matched=matched, difference=first_difference(recorded, now)))
        return self._swap.entry(found)

    def forget(self) -> None:
        """Free what only saves time."""
        self._normals.clear()
        self._recorded.forget()
        self._now.forget()

    def report(self) -> LaneReport:
        """What became of the lane so far."""
        unused = tuple(entry.n for entry in self._unused)
        return LaneReport(
            lane=self._lane, entries=self._total, unused=unused, drift=tuple(self._drift), misses=tuple(self._misses)
        )

    def _find(self, now: Normal) -> Entry | None:
        def first(entries: Iterable[Entry], level: str) -> Entry | None:
            same = (e for e in entries if getattr(self._normal(e), level) == getattr(now, level))
            return next(same, None)

        due = self._due()
        if not self._lenient:
            return first(due, "full")
        return first(self._unused, "full") or first(self._unused, "tail") or first(due, "shape")

    def _comparable(self) -> list[Entry]:
        return list(self._unused) if self._lenient else self._due()

    def _due(self) -> list[Entry]:
        """The entries whose turn it is: the next one, and those that began before it had ended."""
        found: list[Entry] = []
        for entry in self._unused:
            if found and entry.began >= min(earlier.ended for earlier in found):
                break
            found.append(entry)
        return found

    def _normal(self, entry: Entry) -> Normal:
        if entry.n not in self._normals:
            self._normals[entry.n] = self._recorded.request(entry.request)
        return self._normals[entry.n]

    def _told(self, now: Normal) -> str:
        """What a request without an entry is told."""
        due = self._due()
        if not due:
            return f"cassette {self._lane}: all {self._total} recorded calls are used, and this is one more"
        alike = (entry for entry in due if self._normal(entry).shape == now.shape)
        entry = next(alike, due[0])
        difference = first_difference(self._normal(entry), now)
        return (
            f"cassette {self._lane}: this request is not the recorded call {entry.n} of {self._total}; the first "
            f"difference is at {difference}\n  fix: record anew with --uniclaw-cassette-record, or let it pass with "
            "--uniclaw-cassette-lenient"
        )


class Replay:
    """The backend of every grant that has a cassette."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._tapes: dict[tuple[str, Path], Tape] = {}

    def load(self, asked: GrantRequest) -> GrantRequest:
        """Take note of a grant, and return it as one of this backend when it has a cassette.

        All grants of an attempt share a lane, one after another. An executor's grant begins the attempt, or its next
        try: its lanes are rewound. Raises SettingsError for a cassette that is missing or damaged.
        """
        if asked.role == "executor":
            self._tapes = {key: tape for key, tape in self._tapes.items() if key[0] != asked.attempt}
        if asked.cassette is None:
            if asked.provider == REPLAY:
                raise SettingsError(f"the provider {REPLAY!r} needs a cassette\n  fix: set --uniclaw-cassette-replay")
            return asked
        key = asked.attempt, asked.cassette
        if key not in self._tapes:
            self._tapes[key] = Tape(load_cassette(asked.cassette), asked.variables, lenient=asked.lenient)
            for tape in list(self._tapes.values())[:-_WARM]:
                tape.forget()
        return asked.model_copy(update={"provider": REPLAY})

    def reports(self, attempt: str) -> list[LaneReport]:
        """What became of an attempt's lanes."""
        return [tape.report() for (owner, _), tape in self._tapes.items() if owner == attempt]

    @asynccontextmanager
    async def open(self, body: Json, call: RunningCall) -> AsyncGenerator[Answer, None]:
        """See :class:`pytest_uniclaw.models.provider.Backend`."""
        call.tries = 1
        asked = call.lease.request
        assert asked.cassette is not None
        tape = self._tapes[asked.attempt, asked.cassette]
        now = await asyncio.to_thread(lambda: tape.prepare(call.lease.redactor.value(body)))
        entry = tape.take(now)
        chunks, ending = _chunks(entry), self._ending(entry)
        if ending is not None and not (chunks and body.get("stream")):
            await ending.wait()
            raise ending.failure
        if body.get("stream"):
            yield _stream(chunks, ending)
        else:
            yield entry.body or _whole(chunks, str(body.get("model")))

    def _ending(self, entry: Entry) -> _Ending | None:
        """How the recorded answer failed, None when it is complete."""
        if entry.error is not None:
            return _Ending(_failure(entry.error))
        if entry.complete:
            return None
        # Its client left, at some deadline of its own; waiting lets this one do the same.
        text = "the recorded answer ends here: its client left"
        return _Ending(CallFailed(CallClass.INFRA, 504, text), self._tuning.idle_seconds)


class _Ending:
    """The failure that ends an answer, after ``seconds`` of silence."""

    def __init__(self, failure: CallFailed, seconds: float = 0.0) -> None:
        self.failure = failure
        self._seconds = seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)


class _Swap:
    """Puts an attempt's own values of named variables in the place of the recorded ones, in answers."""

    def __init__(self, recorded: Mapping[str, str], now: Mapping[str, str]) -> None:
        self._new = {old: now[name] for name, old in recorded.items() if old and now.get(name, old) != old}
        olds = sorted(self._new, key=lambda old: (-len(old), old))
        self._pattern = re.compile("|".join(map(re.escape, olds))) if olds else None

    def entry(self, entry: Entry) -> Entry:
        """Return an entry with its answer in the attempt's own names."""
        if self._pattern is None:
            return entry
        chunks = tuple(rewritten(list(entry.chunks), self._value)) if entry.chunks else ()
        return replace(entry, request={}, chunks=chunks, body=self._value(entry.body))

    def _value(self, value: Any) -> Any:
        return walked(value, self._text)

    def _text(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._new[found[0]], text) if self._pattern else text


def _chunks(entry: Entry) -> list[Json]:
    return list(entry.chunks) or (list(chunks_of(entry.body)) if entry.body else [])


async def _stream(chunks: list[Json], ending: _Ending | None) -> AsyncGenerator[Json, None]:
    for chunk in chunks:
        yield chunk
        await asyncio.sleep(0)  # let other calls in between two chunks
    if ending is not None:
        await ending.wait()
        raise ending.failure


def _whole(chunks: list[Json], model: str) -> Json:
    """A recorded stream as one answer."""
    found, head = assemble(chunks), chunks[0]
    created = head.get("created")
    return completion(
        found.message(), model=model, ident=str(head.get("id")), created=created if isinstance(created, int) else 0,
        usage=found.usage, finish_reason=found.finish_reason or "stop",
    )  # fmt: skip


def _failure(recorded: Json) -> CallFailed:
    error, status = recorded["error"], recorded["status"]
    return CallFailed(
        CallClass(recorded["class"]), status if status >= 400 else 502, str(error.get("message")),
        type=error.get("type"), code=error.get("code"), final=True,
    )  # fmt: skip
