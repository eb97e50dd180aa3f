"""What one grant may take of the gateway itself: an executor that asks for more must not take it from others."""

from __future__ import annotations

import asyncio
from collections import Counter

from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import CallClass

MAX_IN_FLIGHT = 128 << 20
"""Bytes of one grant's requests in flight, unpacked: two of the largest ones, or sixteen of 8 MiB."""
MAX_STORED = 2 << 30
"""Bytes that one grant may have in the exchange log; a call that would begin above that is refused."""
MAX_WAITING = 64
"""Calls of one grant that wait for a place; each keeps a connection that others could need."""
MAX_REFUSALS = 1000
"""Refusals of one grant and class that are written down: a loop makes thousands a second, and each is a row for ever.

Each class counts for itself, so that the first refusal of a class that decides a status is always seen.
"""
FURTHER = f"this is refusal {MAX_REFUSALS} of its class under this key; further ones are not written down"


class Bounds:
    """What one grant takes at the moment, and what it was refused so far."""

    def __init__(self) -> None:
        self.unpacking = asyncio.Lock()
        """Held while a body is unpacked: until that is done nobody knows how large it is."""
        self._held = 0
        self._refusals: Counter[CallClass] = Counter()

    def hold(self, size: int) -> None:
        """Count bytes of a request in flight. Raises CallFailed (``budget``) and then counts nothing."""
        if self._held + size > MAX_IN_FLIGHT:
            text = f"the requests of this key in flight are larger than {MAX_IN_FLIGHT >> 20} MiB together"
            raise CallFailed(CallClass.BUDGET, 429, text)
        self._held += size

    def let_go(self, size: int) -> None:
        """Bytes of a request are in flight no more."""
        self._held -= size

    def refused(self, kind: CallClass) -> int:
        """Count a refusal; return how many of its class there are."""
        self._refusals[kind] += 1
        return self._refusals[kind]


def check_stored(size: int) -> None:
    """Raise CallFailed (``budget``) when so many bytes of exchange log are all that a grant may have."""
    if size > MAX_STORED:
        text = f"the requests of this key fill the exchange log: {MAX_STORED >> 20} MiB"
        raise CallFailed(CallClass.BUDGET, 403, text)


def check_waiting(calls: int) -> None:
    """Raise CallFailed (``budget``) when so many calls of a grant wait already."""
    if calls >= MAX_WAITING:
        text = f"{calls} calls of this key wait for their turn, and no more may"
        raise CallFailed(CallClass.BUDGET, 429, text)
