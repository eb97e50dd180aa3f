"""Prices as the settings state them; there are no built-in ones. What has no price has an unknown cost, never 0."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field

_MILLION = 1_000_000
_DIGITS = 10
"""Decimals of a cost in USD; a token of the cheapest models costs some 1e-8."""


class Price(BaseModel):
    """What one model costs, in USD per million tokens of each kind; None is an unknown price.

    A provider that states no price of its own for cached tokens bills them as input.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float | None = Field(None, ge=0)
    output: float | None = Field(None, ge=0)
    cache_read: float | None = Field(None, ge=0)
    cache_write: float | None = Field(None, ge=0)

    @property
    def free(self) -> bool:
        """Whether nothing of this model costs anything, however much of it is used."""
        return self.input == 0 and self.output == 0 and not self.cache_read and not self.cache_write

    @property
    def complete(self) -> bool:
        """Whether a call without cached tokens has a cost."""
        return self.input is not None and self.output is not None

    def cost(self, counts: Mapping[str, int | None]) -> float | None:
        """Return the USD of one call, None when a counter or a price that matters is unknown; a free model costs 0.

        ``counts`` are the ledger's four counters; ``input_tokens`` includes the cached ones. Cache counters that the
        provider does not state count as 0: all of the input is then billed at the input price.
        """
        if self.free:
            return 0.0
        sent, said = counts.get("input_tokens"), counts.get("output_tokens")
        if sent is None or said is None:
            return None
        read, written = counts.get("cache_read_tokens") or 0, counts.get("cache_write_tokens") or 0
        parts = (
            (max(0, sent - read - written), self.input),
            (read, self.input if self.cache_read is None else self.cache_read),
            (written, self.input if self.cache_write is None else self.cache_write),
            (said, self.output),
        )
        total = 0.0
        for tokens, price in parts:
            if tokens and price is None:
                return None
            total += tokens * (price or 0.0)
        return round(total / _MILLION, _DIGITS)


FREE = Price(input=0, output=0)
"""The price of the script and of cassettes."""
