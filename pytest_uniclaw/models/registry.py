"""Live grants: who may call which model, how much of the budget is used, and what is going on."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pytest_uniclaw.errors import SettingsError
from pytest_uniclaw.models.accounts import Account, Treasury
from pytest_uniclaw.models.bounds import Bounds, check_waiting
from pytest_uniclaw.models.exchange import ExchangeLog
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import SCRIPT, Activity, CallClass, Grant, GrantRequest, Provider, Role, Spend
from pytest_uniclaw.models.player import Player
from pytest_uniclaw.models.prices import FREE, Price
from pytest_uniclaw.redaction import Redactor

KEY_PREFIX = "uck-"
_KEY_BYTES = 24


class Signs:
    """Signs of life of an attempt, or of one of its roles, over all grants it has had."""

    def __init__(self) -> None:
        self.leases: set[Lease] = set()
        self.last_event: float | None = None
        self._waited = 0.0
        self._waiting = 0
        self._wait_began = 0.0

    def begin_wait(self) -> None:
        """A call begins to wait; calls that wait together count once."""
        if self._waiting == 0:
            self._wait_began = time.monotonic()
        self._waiting += 1

    def end_wait(self) -> None:
        """A call has waited."""
        self._waiting -= 1
        if self._waiting == 0:
            self._waited += time.monotonic() - self._wait_began

    def activity(self) -> Activity:
        """The signs as a value."""
        now = time.monotonic()
        return Activity(
            calls_in_flight=sum(len(lease.running) for lease in self.leases),
            last_event=None if self.last_event is None else now - self.last_event,
            waited_seconds=self._waited + (now - self._wait_began if self._waiting else 0.0),
        )


class Lease:
    """A live grant: its request, its budgets so far, and its calls in flight."""

    def __init__(
        self, ident: str, request: GrantRequest, player: Player | None, account: Account, redactor: Redactor,
        signs: tuple[Signs, ...],
    ) -> None:  # fmt: skip
        self.id = ident
        self.request = request
        self.player = player
        self.account = account
        self.redactor = redactor
        self.log = ExchangeLog(request.log, redactor)
        self.bounds = Bounds()
        self.started = 0
        self.running: set[asyncio.Task[object]] = set()
        self._expires = time.monotonic() + request.expires_seconds if request.expires_seconds else None
        # A semaphore wakes its waiters in the order of their arrival.
        self._places = asyncio.Semaphore(request.max_concurrency) if request.max_concurrency else None
        self._waiting = 0
        self._signs = signs
        self.touch()

    @property
    def expired(self) -> bool:
        """Whether the grant's time is over."""
        return self._expires is not None and time.monotonic() >= self._expires

    def touch(self) -> None:
        """Note a sign of life."""
        now = time.monotonic()
        for signs in self._signs:
            signs.last_event = now

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time inside as provider waiting."""
        for signs in self._signs:
            signs.begin_wait()
        try:
            yield
        finally:
            for signs in self._signs:
                signs.end_wait()
            self.touch()

    async def take_place(self) -> None:
        """Wait for a place among the grant's concurrent calls, first come first served; that is not provider waiting.

        Raises CallFailed of class ``budget`` when the grant refuses calls over its limit, when too many wait already,
        and when the grant ended meanwhile.
        """
        if self._places is None:
            return
        if self.request.refuse_busy and self._places.locked():
            text = f"{self.request.max_concurrency} calls of this key are under way, and it may have no more at once"
            raise CallFailed(CallClass.BUDGET, 403, text)
        if self._places.locked():
            check_waiting(self._waiting)
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        if self.expired:
            self._places.release()
            raise CallFailed(CallClass.BUDGET, 403, "the time of this key ended before it was this call's turn")

    def give_place(self) -> None:
        """Let the next call in."""
        if self._places is not None:
            self._places.release()


class Registry:
    """The live grants of the session, its money, and the signs of life of every attempt it has seen.

    Keys are kept as HMACs under a secret of this process. ``providers`` have the prices, and the keys that no log and
    no error may show; ``cap`` is the session's money in USD.
    """

    def __init__(self, providers: Mapping[str, Provider], cap: float | None = None) -> None:
        self._providers = providers
        self._hidden = tuple(provider.api_key for provider in providers.values() if provider.api_key)
        self._treasury = Treasury(cap)
        self._secret = secrets.token_bytes(32)
        self._numbers = itertools.count(1)
        self._by_key: dict[str, Lease] = {}
        self._leases: dict[str, Lease] = {}
        self._signs: defaultdict[tuple[str, Role | None], Signs] = defaultdict(Signs)

    def issue(self, request: GrantRequest, player: Player | None) -> Grant:
        """Make a virtual key.

        Raises SettingsError for a money budget on a model without price, OSError when the log cannot be opened.
        """
        price = self._price(request)
        if request.max_cost_usd is not None and (price is None or not price.complete):
            raise SettingsError(
                f"max_cost_usd needs a price, and the provider {request.provider!r} has none for "
                f"{_upstream_model(request)!r}\n  fix: state input and output in its prices, or drop the budget"
            )
        signs = tuple(self._signs[request.attempt, role] for role in (None, request.role))
        account = Account(request, price, self._treasury)
        redactor = Redactor((*request.secrets, *self._hidden))
        lease = Lease(f"g{next(self._numbers)}-{secrets.token_hex(3)}", request, player, account, redactor, signs)
        key = KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        self._by_key[self._digest(key)] = lease
        self._leases[lease.id] = lease
        for seen in signs:
            seen.leases.add(lease)
        return Grant(id=lease.id, key=key, model=request.model)

    def find(self, key: str) -> Lease | None:
        """The lease of a key that is known, not revoked and not expired."""
        lease = self._by_key.get(self._digest(key))
        return None if lease is None or lease.expired else lease

    async def revoke(self, ident: str, *, grace: float = 1.0) -> None:
        """End a grant: its key stops working, its calls in flight are cancelled and recorded. Unknown ids are fine."""
        lease = self._leases.pop(ident, None)
        if lease is None:
            return
        self._by_key = {digest: other for digest, other in self._by_key.items() if other is not lease}
        tasks = set(lease.running)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=grace)
        lease.log.close()
        for role in (None, lease.request.role):
            self._signs[lease.request.attempt, role].leases.discard(lease)

    async def close(self) -> None:
        """Revoke everything."""
        await asyncio.gather(*(self.revoke(ident, grace=0.3) for ident in list(self._leases)))

    def activity(self, attempt: str, role: Role | None = None) -> Activity:
        """Signs of life of an attempt, of one role or of all."""
        signs = self._signs.get((attempt, role))
        return signs.activity() if signs else Activity()

    def spend(self) -> Spend:
        """The session's money so far."""
        return self._treasury.spend()

    def _price(self, request: GrantRequest) -> Price | None:
        if request.provider == SCRIPT or request.cassette is not None:
            return FREE
        provider = self._providers.get(request.provider)
        return provider.prices.get(_upstream_model(request)) if provider else None

    def _digest(self, key: str) -> str:
        return hmac.new(self._secret, key.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()


def _upstream_model(request: GrantRequest) -> str:
    return request.upstream_model or request.model
