"""One model call while it runs: what is counted, and the single place where it is written down."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from pytest_uniclaw.models.accounts import Estimate, estimate
from pytest_uniclaw.models.bounds import FURTHER, MAX_REFUSALS, check_stored
from pytest_uniclaw.models.chat import Assembled, Json, estimate_tokens, token_counts
from pytest_uniclaw.models.exchange import Got, Sent
from pytest_uniclaw.models.failure import CallFailed, plain
from pytest_uniclaw.models.grants import INFRA_CLASSES, Call, CallClass, Failure
from pytest_uniclaw.models.ledger import Ledger
from pytest_uniclaw.models.registry import Lease
from pytest_uniclaw.models.sse import text_of_chunk

CLIENT_LEFT = 499
"""The status of a call whose client went away."""
LARGE = 1 << 17
"""Bytes of a request above which decoding, translating, hashing and encoding go to a thread."""
_NOT_WORKED_ON = frozenset({CallClass.RATE_LIMIT, CallClass.QUOTA, CallClass.AUTH})
"""A provider that refuses a request for one of these reads no token of it and bills nothing."""


class RunningCall:
    """Collects the facts of one call; :meth:`close` writes the ledger row and the exchange, however the call ended."""

    def __init__(self, lease: Lease, ledger: Ledger) -> None:
        lease.started += 1
        self.lease = lease
        self.n = lease.started
        self.stream = False
        self.large = False
        self.hang_up = False
        """Whether the connection is closed after the answer: set for refusals that are too many to be written down."""
        self.tries = 0
        self.errors: list[Failure] = []
        self.waited = 0.0
        # What an error of the gateway itself would be: until the request is accepted, its sender has provoked it.
        self.call_class = CallClass.BAD_REQUEST
        self.status = 500
        self._ledger = ledger
        self._started = datetime.now(UTC)
        self._clock = time.monotonic()
        self._ttfb: float | None = None
        self._sent = Sent()
        self._reserved: Estimate | None = None
        self._has_place = False
        self._held = 0
        self._chunks: list[str] = []
        self._seen = Assembled()
        self._body: Json | None = None
        self._error: Json | None = None
        self._closed = False

    async def enter(self) -> None:
        """Wait for a place among the grant's calls, before anything of the request is read. Raises CallFailed."""
        self.lease.touch()
        await self.lease.take_place()
        self._has_place = True

    def hold(self, size: int) -> None:
        """Count bytes of the request until the call ends. Raises CallFailed when the grant has too many in flight."""
        self.lease.bounds.hold(size)
        self._held += size

    def let_go(self, size: int) -> None:
        """Bytes that were counted are there no more."""
        self.lease.bounds.let_go(size)
        self._held -= size

    async def admit(self, body: Json, size: int, notes: tuple[str, ...] = ()) -> None:
        """Let a sound chat request of ``size`` bytes in: reserve from the budgets, store it.

        A refused request is not stored, and only the first refusals of a grant get a row (bounds.py): agents that
        repeat one for ever fill neither memory nor disk.
        ``notes`` say what of the agent's request the chat wire could not carry.
        From here on it is the provider's turn. Raises CallFailed (``budget``, ``session_budget``).
        """
        lease = self.lease
        lease.touch()
        self.large = size > LARGE
        check_stored(lease.log.size)
        wanted = await asyncio.to_thread(estimate, body, size) if self.large else estimate(body, size)
        lease.account.reserve(wanted)
        self._reserved = wanted
        self._sent = await asyncio.to_thread(lease.log.sent, body) if self.large else lease.log.sent(body)
        self._sent.notes = notes
        self.call_class = CallClass.INFRA

    async def wait(self, seconds: float) -> None:
        """Sleep because the provider wants it; counted as waiting, not as the executor's time."""
        with self.lease.waiting():
            began = time.monotonic()  # inside, so that no call has waited longer than its attempt
            try:
                await asyncio.sleep(seconds)
            finally:
                self.waited += time.monotonic() - began

    def failed_try(self, failure: CallFailed) -> None:
        """Note a failed try; the call may still succeed."""
        self._clean(failure)
        self.errors.append(failure.record())
        self.lease.touch()

    def chunk(self, chunk: Json) -> None:
        """Note one chunk of the answer, before the client gets it."""
        self._first_byte()
        self._chunks.append(text_of_chunk(chunk))
        self._seen.add(chunk)

    def completed(self, body: Json | None = None) -> None:
        """The answer is complete; ``body`` is a whole completion, None after a stream."""
        self._first_byte()
        self._body = body
        if body is not None:
            self._seen.usage = body.get("usage")
            reason = body["choices"][0].get("finish_reason")
            self._seen.finish_reason = reason if isinstance(reason, str) else None
        self.call_class, self.status = CallClass.OK, 200

    def failed(self, failure: CallFailed) -> None:
        """The call ended in an error that the client is told; takes secrets out of the failure itself."""
        self._clean(failure)
        self.call_class, self.status, self._error = failure.call_class, failure.status, failure.body()
        if not self.errors or self.errors[-1].call_class is not failure.call_class:
            self.errors.append(failure.record())

    def client_left(self) -> None:
        """The client went away. An answer that had its finish reason counts as given."""
        complete = self._seen.finish_reason is not None
        self.call_class, self.status = (CallClass.OK, 200) if complete else (CallClass.CANCELLED, CLIENT_LEFT)

    def close(self) -> None:
        """Write the call down and settle the budget; does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        counts, message = self._counts(), self._seen.message()
        self._settle(counts, message)
        self.let_go(self._held)
        if self._has_place:
            self.lease.give_place()
        if self._is_written():
            row = self._call(counts).model_dump(mode="json", by_alias=True)
            self._ledger.append(row)
            facts = {name: row[name] for name in _FACTS}
            self.lease.log.row(facts, self._sent, Got(self._chunks, message, self._body, self._error))
        self.lease.touch()

    def _is_written(self) -> bool:
        """Count a refusal, and say whether the call is written down: all are but for refusals after the first ones.

        A refusal is a call that no provider was asked for, also one that its client left before that.
        """
        if self._reserved is not None and self.call_class is not CallClass.REPLAY_MISS:
            return True
        count = self.lease.bounds.refused(self.call_class)
        self.hang_up = count >= MAX_REFUSALS
        if count == MAX_REFUSALS:
            self.errors.append(Failure(call_class=self.call_class, message=FURTHER))
            self._sent.notes = (*self._sent.notes, FURTHER)
        return count <= MAX_REFUSALS

    def _call(self, counts: dict[str, int | None]) -> Call:
        request = self.lease.request
        return Call(
            attempt=request.attempt,
            role=request.role,
            grant=self.lease.id,
            model=request.model,
            provider=request.provider,
            n=self.n,
            started=self._started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            call_class=self.call_class,
            status=self.status,
            stream=self.stream,
            tries=self.tries,
            errors=tuple(self.errors),
            ttfb_ms=self._ttfb,
            ms=self._elapsed(),
            waited_seconds=round(self.waited, 3),
            finish_reason=plain(self._seen.finish_reason) if self._seen.finish_reason else None,
            cost_usd=self.lease.account.price.cost(counts),
            **counts,
        )

    def _counts(self) -> dict[str, int | None]:
        """The token counters: what the provider stated, 0 where none worked on the call."""
        refusals = (e for e in self.errors if e.status is not None and e.call_class in _NOT_WORKED_ON)
        if self.call_class is not CallClass.OK and sum(1 for _ in refusals) >= self.tries:
            return dict.fromkeys(token_counts(None), 0)
        return token_counts(self._seen.usage)

    def _settle(self, counts: dict[str, int | None], message: Json) -> None:
        """Settle the budgets; unknown tokens are estimated there, so that leaving early is not free."""
        if self._reserved is None:
            return
        own = self.call_class not in INFRA_CLASSES
        began = self.tries > 0 and (own or self._ttfb is not None)
        guess = Estimate(self._reserved.input_tokens, estimate_tokens([message])) if began else Estimate(0, 0)
        self.lease.account.settle(self._reserved, counts, guess, own=own)

    def _clean(self, failure: CallFailed) -> None:
        """Providers echo keys in their errors."""
        failure.message = self.lease.redactor.text(failure.message)
        failure.type = self.lease.redactor.value(failure.type)
        failure.code = self.lease.redactor.value(failure.code)

    def _first_byte(self) -> None:
        self.lease.touch()
        if self._ttfb is None:
            self._ttfb = self._elapsed()

    def _elapsed(self) -> float:
        return round((time.monotonic() - self._clock) * 1000, 1)


_FACTS = ("grant", "n", "started", "ms", "ttfb_ms", "class", "status", "stream", "model")
