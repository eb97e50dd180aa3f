"""One model call while it runs: what is counted, and the single place where it is written down."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
from typing import Any

from pytest_uniclaw.models.chat import Assembled, Json, estimate_tokens, token_counts
from pytest_uniclaw.models.exchange import Sent
from pytest_uniclaw.models.failure import CallFailed, plain
from pytest_uniclaw.models.grants import INFRA_CLASSES, Call, CallClass, Failure
from pytest_uniclaw.models.ledger import Ledger
from pytest_uniclaw.models.registry import Lease

CLIENT_LEFT = 499
"""The status of a call whose client went away."""
_LARGE = 1 << 20
"""Bytes of a request above which hashing and decoding go to a thread."""


class RunningCall:
    """Collects the facts of one call; :meth:`close` writes the ledger row and the exchange, however the call ended."""

    def __init__(self, lease: Lease, ledger: Ledger) -> None:
        lease.started += 1
        self.lease = lease
        self.n = lease.started
        self.stream = False
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
        self._request: Json = {}
        self._sent = Sent()
        self._chunks: list[Json] = []
        self._seen = Assembled()
        self._body: Json | None = None
        self._error: Json | None = None
        self._closed = False

    async def log_request(self, body: Json, size: int) -> None:
        """Store the request side of the exchange. ``size`` is that of the request in bytes."""
        self._request = body
        self.lease.touch()
        log = self.lease.log
        self._sent = await asyncio.to_thread(log.sent, body) if size > _LARGE else log.sent(body)

    def accepted(self) -> None:
        """The request is sound and within budget; from here on it is the provider's turn."""
        self.call_class = CallClass.INFRA

    async def wait(self, seconds: float) -> None:
        """Sleep because the provider wants it; counted as waiting, not as the executor's time."""
        began = time.monotonic()
        try:
            with self.lease.waiting():
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
        self._chunks.append(chunk)
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
        call = self._call()
        self._settle(call)
        self._ledger.append(call)
        facts = call.model_dump(mode="json", by_alias=True, include=_ROW_FIELDS)
        self.lease.log.row(facts, self._sent, self._chunks, self._body, self._error)
        self.lease.touch()

    def _call(self) -> Call:
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
            **token_counts(self._seen.usage),
        )

    def _settle(self, call: Call) -> None:
        """Count tokens; unknown ones are estimated for the budget only, so that leaving early is not free."""
        if call.input_tokens is not None and call.output_tokens is not None:
            self.lease.tokens += call.input_tokens + call.output_tokens
        elif self.tries and call.call_class not in INFRA_CLASSES:
            request = self._request
            sent = estimate_tokens(request.get("messages"), request.get("tools"))
            self.lease.tokens += sent + estimate_tokens([self._seen.message()])

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


_ROW_FIELDS: Any = {"grant", "n", "started", "ms", "ttfb_ms", "call_class", "status", "stream", "model"}
