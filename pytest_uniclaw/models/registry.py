"""Live grants: who may call which model, how much of the budget is used, and what is going on."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_uniclaw.models.exchange import ExchangeLog
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import Activity, CallClass, Grant, GrantRequest, Role
from pytest_uniclaw.models.player import Player
from pytest_uniclaw.redaction import Redactor

KEY_PREFIX = "uck-"
_KEY_BYTES = 24


class Lease:
    """A live grant: its request, its budget so far, and its calls in flight."""

    def __init__(self, ident: str, request: GrantRequest, player: Player | None, hidden: tuple[str, ...]) -> None:
        self.id = ident
        self.request = request
        self.player = player
        self.redactor = Redactor((*request.secrets, *hidden))
        self.log = ExchangeLog(request.log, self.redactor)
        self.started = 0
        self.accepted = 0
        self.tokens = 0
        self.running: set[asyncio.Task[object]] = set()
        self.expires = time.monotonic() + request.expires_seconds if request.expires_seconds else None
        self._waited = 0.0
        self._waiting = 0
        self._wait_began = 0.0
        self._last_event = time.monotonic()

    def touch(self) -> None:
        """Note a sign of life."""
        self._last_event = time.monotonic()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as provider waiting; calls that wait together count once."""
        if self._waiting == 0:
            self._wait_began = time.monotonic()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._waited += time.monotonic() - self._wait_began
            self.touch()

    def spend_call(self) -> None:
        """Take one call from the budget. Raises CallFailed of class ``budget`` when calls or tokens are used up."""
        request = self.request
        if request.max_calls is not None and self.accepted >= request.max_calls:
            raise CallFailed(CallClass.BUDGET, 403, f"the budget of {request.max_calls} model calls is used up")
        if request.max_tokens is not None and self.tokens >= request.max_tokens:
            used = f"{self.tokens} of {request.max_tokens}"
            raise CallFailed(CallClass.BUDGET, 403, f"the token budget is used up ({used} tokens)")
        self.accepted += 1

    def activity(self) -> Activity:
        """What goes on in this grant."""
        now = time.monotonic()
        current = now - self._wait_began if self._waiting else 0.0
        return Activity(
            calls_in_flight=len(self.running), last_event=now - self._last_event, waited_seconds=self._waited + current
        )


class Registry:
    """All grants of the session. Keys are kept as HMACs under a secret of this process; revoked leases stay visible.

    ``hidden`` are the providers' keys, which no log and no error may show.
    """

    def __init__(self, hidden: tuple[str, ...]) -> None:
        self._hidden = hidden
        self._secret = secrets.token_bytes(32)
        self._by_key: dict[str, Lease] = {}
        self._leases: dict[str, Lease] = {}

    def issue(self, request: GrantRequest, player: Player | None) -> Grant:
        """Make a virtual key. Raises OSError when the exchange log cannot be opened."""
        lease = Lease(f"g{len(self._leases) + 1}-{secrets.token_hex(3)}", request, player, self._hidden)
        key = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        self._by_key[self._digest(key)] = lease
        self._leases[lease.id] = lease
        return Grant(id=lease.id, key=key, model=request.model)

    def find(self, key: str) -> Lease | None:
        """The lease of a key that is known, not revoked and not expired."""
        lease = self._by_key.get(self._digest(key))
        if lease is None or (lease.expires is not None and time.monotonic() >= lease.expires):
            return None
        return lease

    async def revoke(self, ident: str, *, grace: float = 1.0) -> None:
        """End a grant: its key stops working, its calls in flight are cancelled and recorded. Unknown ids are fine."""
        lease = self._leases.get(ident)
        if lease is None:
            return
        self._by_key = {digest: other for digest, other in self._by_key.items() if other is not lease}
        tasks = set(lease.running)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        lease.log.close()

    async def close(self) -> None:
        """Revoke everything."""
        await asyncio.gather(*(self.revoke(ident, grace=0.3) for ident in self._leases))

    def activity(self, attempt: str, role: Role | None = None) -> Activity:
        """Signs of life of an attempt, of one role or of all."""
        found = [
            lease.activity()
            for lease in self._leases.values()
            if lease.request.attempt == attempt and role in (None, lease.request.role)
        ]
        return Activity(
            calls_in_flight=sum(part.calls_in_flight for part in found),
            last_event=min((part.last_event for part in found if part.last_event is not None), default=None),
            waited_seconds=sum(part.waited_seconds for part in found),
        )

    def _digest(self, key: str) -> str:
        return hmac.new(self._secret, key.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
