"""Budgets of a grant and of the session: reserved before a call, settled by its usage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.models.failure import CallFailed
from pytest_uniclaw.models.grants import CallClass, GrantRequest, Spend
from pytest_uniclaw.models.prices import Price

DEFAULT_OUTPUT_TOKENS = 4096
"""Output tokens that are reserved for a request which sets no limit of its own."""
ORDINARY_INPUT_TOKENS = 32_768
"""Of a call's input, what counts when the question is whether the session's money is spent."""
BYTES_PER_TOKEN = 3
"""Of a request as JSON: on the safe side for prose and code in English and Chinese."""
IMAGE_TOKENS = 1600
"""Reserved for an image, whatever its size in bytes."""


@dataclass(frozen=True)
class Estimate:
    """What a call may take at most: tokens in and out."""

    input_tokens: int
    output_tokens: int

    @property
    def tokens(self) -> int:
        """Both together."""
        return self.input_tokens + self.output_tokens

    def cost(self, price: Price) -> float | None:
        """Return its USD, None where the price is unknown."""
        return price.cost({"input_tokens": self.input_tokens, "output_tokens": self.output_tokens})

    def ordinary(self) -> Estimate:
        """The same call, no larger than a default-size one."""
        return Estimate(min(self.input_tokens, ORDINARY_INPUT_TOKENS), min(self.output_tokens, DEFAULT_OUTPUT_TOKENS))


def estimate(body: Json, size: int) -> Estimate:
    """Return what a chat request of ``size`` bytes may take; of its two output limits the larger counts."""
    images, image_bytes = _images(body.get("messages"))
    limits = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
    stated = [n for n in limits if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
    sent = max(0, size - image_bytes) // BYTES_PER_TOKEN + images * IMAGE_TOKENS
    return Estimate(sent, max(stated, default=DEFAULT_OUTPUT_TOKENS))


def _images(messages: Any) -> tuple[int, int]:
    """Count embedded images, and the bytes of their data URLs."""
    contents = (m.get("content") for m in messages if isinstance(m, dict)) if isinstance(messages, list) else ()
    parts = (part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict))
    pictures = [part["image_url"] for part in parts if "image_url" in part]
    urls = [picture.get("url") if isinstance(picture, dict) else picture for picture in pictures]
    return len(pictures), sum(len(url) for url in urls if isinstance(url, str) and url.startswith("data:"))


class Treasury:
    """The session's money: one cap over all grants."""

    def __init__(self, cap: float | None = None) -> None:
        self._cap = cap
        self._known = 0.0
        self._unknown_calls = 0
        self._held = 0.0
        self._kept = 0.0
        self._stopped = False

    def hold(self, usd: float, ordinary: float | None = None, own: float = 0.0) -> None:
        """Reserve money for a call in flight.

        ``ordinary`` is what the call would take at no more than default size, ``own`` what the same grant holds for
        other calls. Raises CallFailed when the money is not there: ``session_budget`` when the session is spent, which
        stops it, and when only calls of others are in the way of an ordinary one; else ``budget``, for then the size
        of the grant's own calls is what does not fit, and an executor must not end the session by what it asks for.
        """
        if self._cap is None or self._known + self._kept + self._held + usd <= self._cap:
            self._held += usd
            return
        least, settled = usd if ordinary is None else ordinary, self._known + self._kept
        money = _money(self._known, self._kept + self._held, usd)
        if settled + least > self._cap:
            self._stopped = True
        elif usd > least or settled + own + usd > self._cap:
            raise _over(f"this call does not fit into what is left of the session's {self._cap:g} USD ({money})")
        text = f"the session's cost cap of {self._cap:g} USD is reached ({money})"
        raise CallFailed(CallClass.SESSION_BUDGET, 403, text)

    def settle(self, held: float, cost: float | None, guess: float) -> None:
        """Put ``cost`` in the place of what was held; while it is unknown, ``guess`` stays held for good."""
        self._held -= held
        if cost is None:
            self._unknown_calls += 1
            self._kept += guess
        else:
            self._known += cost

    def spend(self) -> Spend:
        """The state for the controller."""
        reserved = max(0.0, self._held + self._kept)  # sums of floats may end a hair below zero
        stopped = self._stopped or (self._cap is not None and self._known + reserved > self._cap)
        return Spend(
            known_usd=round(self._known, 10), unknown_calls=self._unknown_calls, reserved_usd=round(reserved, 10),
            cap_usd=self._cap, stopped=stopped,
        )  # fmt: skip


class Account:
    """The budgets of one grant: calls, tokens, USD. Every call reserves once and settles once."""

    def __init__(self, request: GrantRequest, price: Price | None, treasury: Treasury) -> None:
        self.price = price or Price()
        self._request = request
        self._treasury = treasury
        self._calls = 0
        self._tokens = 0
        self._held_tokens = 0
        self._usd = 0.0
        self._held_usd = 0.0

    def reserve(self, wanted: Estimate) -> None:
        """Take a call and its estimate. Raises CallFailed (``budget``, ``session_budget``) and then takes nothing."""
        request, usd = self._request, wanted.cost(self.price) or 0.0
        if request.max_calls is not None and self._calls >= request.max_calls:
            raise _over(f"the budget of {request.max_calls} model calls is used up")
        if request.max_tokens is not None and self._tokens + self._held_tokens + wanted.tokens > request.max_tokens:
            used = f"{self._tokens} used, {self._held_tokens} reserved, this call may take {wanted.tokens}"
            raise _over(f"the budget of {request.max_tokens} tokens is used up ({used})")
        if request.max_cost_usd is not None and self._usd + self._held_usd + usd > request.max_cost_usd:
            used = _money(self._usd, self._held_usd, usd)
            raise _over(f"the budget of {request.max_cost_usd:g} USD is used up ({used})")
        self._treasury.hold(usd, wanted.ordinary().cost(self.price) or 0.0, self._held_usd)
        self._calls += 1
        self._held_tokens += wanted.tokens
        self._held_usd += usd

    def settle(self, reserved: Estimate, counts: Mapping[str, int | None], guess: Estimate, *, own: bool) -> None:
        """Replace a reservation by the call's usage.

        ``counts`` are the ledger's four counters. Where they are unknown, ``guess`` stands in for them: on the grant
        only when the call's end was its ``own`` doing, on the session's cap always.
        """
        held = reserved.cost(self.price) or 0.0
        self._held_tokens -= reserved.tokens
        self._held_usd -= held
        cost, likely = self.price.cost(counts), guess.cost(self.price) or 0.0
        sent, said = counts.get("input_tokens"), counts.get("output_tokens")
        if sent is not None and said is not None:
            self._tokens += sent + said
        elif own:
            self._tokens += guess.tokens
        if cost is not None:
            self._usd += cost
        elif own:
            self._usd += likely
        self._treasury.settle(held, cost, likely)


def _over(text: str) -> CallFailed:
    return CallFailed(CallClass.BUDGET, 403, text)


def _money(spent: float, held: float, wanted: float) -> str:
    return f"{spent:.4f} spent, {held:.4f} reserved, this call may take {wanted:.4f}"
