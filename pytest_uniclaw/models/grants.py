"""The values that cross between the gateway, its clients and the ledger (design.md section 1: Grant, Ledger)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from pytest_uniclaw.errors import InfraError
from pytest_uniclaw.models.prices import Price

Role = Literal["executor", "supervisor", "user_simulator", "harness"]
"""Who asks. ``harness`` asks a provider that failed the executor whether it answers others."""
SCRIPT = "script"
"""The provider that needs no key: it says what a ``script/model.yaml`` says."""
REPLAY = "replay"
"""The provider that answers from cassettes, for grants that have one."""


class CallClass(StrEnum):
    """What became of one model call."""

    OK = "ok"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    AUTH = "auth"
    INFRA = "infra"
    BAD_UPSTREAM = "bad_upstream"
    STREAM_BROKEN = "stream_broken"
    CONTEXT_LENGTH = "context_length"
    CONTENT_FILTER = "content_filter"
    BAD_REQUEST = "bad_request"
    BUDGET = "budget"
    SESSION_BUDGET = "session_budget"
    CANCELLED = "cancelled"
    REPLAY_MISS = "replay_miss"


INFRA_CLASSES = frozenset(
    {
        CallClass.RATE_LIMIT,
        CallClass.QUOTA,
        CallClass.AUTH,
        CallClass.INFRA,
        CallClass.BAD_UPSTREAM,
        CallClass.STREAM_BROKEN,
        CallClass.SESSION_BUDGET,
    }
)
"""What the executor could not have caused (design invariant 3). ``replay_miss`` is a fault of harness or task.

``budget`` is the limit of one grant, or a wish too large for what the session has left, and so the attempt's own
outcome; ``session_budget`` is the limit of all attempts together, which any of them may meet.
"""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)


class Provider(_Frozen):
    """An OpenAI-compatible service: ``base_url`` ends before ``/chat/completions``.

    ``stream_usage`` asks for token counts in streams (``stream_options.include_usage``); a service that refuses the
    option needs False, and its streamed calls then have unknown token counts. ``prices`` are by the provider's own
    model name; the cost of a model without one is unknown.
    """

    name: str
    base_url: str
    api_key: str = Field("", repr=False)
    stream_usage: bool = True
    prices: dict[str, Price] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _free_name(cls, value: str) -> str:
        if not value or value in (SCRIPT, REPLAY):
            raise ValueError(f"a provider needs a name other than {SCRIPT!r} and {REPLAY!r}, which are built in")
        return value

    @field_validator("base_url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must start with http:// or https://")
        return value.rstrip("/")


class Tuning(_Frozen):
    """Limits of upstream calls, in seconds.

    ``idle_seconds`` without a byte end a call; ``backoff_seconds`` is the first back-off, doubled each try up to
    ``backoff_cap_seconds`` and drawn with full jitter; a Retry-After above ``give_up_seconds`` is not waited for;
    ``max_wait_seconds`` bounds all waiting of one call.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    idle_seconds: float = Field(300.0, gt=0)
    connect_seconds: float = Field(30.0, gt=0)
    tries: int = Field(5, ge=1)
    backoff_seconds: float = Field(0.5, gt=0)
    backoff_cap_seconds: float = Field(20.0, gt=0)
    give_up_seconds: float = Field(60.0, gt=0)
    max_wait_seconds: float = Field(300.0, gt=0)


class GatewayConfig(_Frozen):
    """The first line a gateway reads on stdin.

    ``temporary`` is a folder that it removes when it ends; ``max_cost_usd`` caps what all calls cost together.
    """

    directory: Path
    agent_socket: Path
    admin_socket: Path
    providers: dict[str, dict[str, Any]] = Field(default_factory=dict, repr=False)
    tuning: Tuning = Tuning()
    max_cost_usd: float | None = Field(None, ge=0)
    temporary: Path | None = None


class GrantRequest(_Frozen):
    """What to grant: one model for one role of one attempt.

    ``model`` is the name the client will send, ``upstream_model`` the provider's own. ``script`` is needed for the
    provider ``script``; ``lane`` names its part for this attempt and ``turn`` the attempt's turn (from 1) at which the
    conversation begins. ``cassette`` is the lane file to answer from instead of the provider, ``lenient`` lets
    requests differ from the recorded ones, ``variables`` are this run's names for things (``{"WORK": "/srv/run-7"}``).
    ``log`` is the folder of the exchange log. ``secrets`` are values to redact there.

    None means no limit. ``max_tokens`` counts input and output together. Tokens and USD are reserved before a call, at
    their likely most, and settled by its usage. A call over ``max_concurrency`` waits for its turn, first come first
    served, or is refused when ``refuse_busy`` says so.
    """

    attempt: str = Field(min_length=1)
    role: Role
    model: str = Field(min_length=1)
    provider: str
    upstream_model: str = ""
    script: Path | None = None
    lane: str = ""
    turn: int = Field(1, ge=1)
    cassette: Path | None = None
    lenient: bool = False
    variables: dict[str, str] = Field(default_factory=dict)
    log: Path
    secrets: tuple[str, ...] = Field((), repr=False)
    max_calls: int | None = Field(None, ge=0)
    max_tokens: int | None = Field(None, ge=0)
    max_cost_usd: float | None = Field(None, ge=0)
    max_concurrency: int | None = Field(None, ge=1)
    refuse_busy: bool = False
    expires_seconds: float | None = Field(None, gt=0)


class Grant(_Frozen):
    """A virtual key. ``key`` is a bearer token; the gateway keeps only its HMAC."""

    id: str
    key: str = Field(repr=False)
    model: str


class Failure(_Frozen):
    """One failed try of a call. ``status`` is the provider's HTTP status, None where there was no answer."""

    call_class: CallClass = Field(alias="class")
    status: int | None = None
    message: str = ""
    retry_after: float | None = None


class Call(_Frozen):
    """One ledger row: a model call that has ended.

    ``n`` counts the calls of a grant from 1, ``started`` is ISO 8601 in UTC, ``ms`` the whole and ``ttfb_ms`` the time
    to the first byte given to the client; ``waited_seconds`` of it went to Retry-After, cool-down and back-off.
    ``status`` is the HTTP status the client saw (499 when it left). Token counters and cost are None where unknown,
    never 0 for unknown; they are 0 where no provider worked on the call: it was not asked, or refused every try for
    rate, quota or key. ``input_tokens`` includes cached ones. ``tries`` is 0 when no provider was asked.
    """

    attempt: str
    role: Role
    grant: str
    model: str
    provider: str
    n: int
    started: str
    call_class: CallClass = Field(alias="class")
    status: int
    stream: bool = False
    tries: int = 0
    errors: tuple[Failure, ...] = ()
    ttfb_ms: float | None = None
    ms: float = 0.0
    waited_seconds: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None


class Activity(_Frozen):
    """Signs of life of an attempt's model calls.

    ``last_event`` is the age in seconds of the newest event (grant, call, chunk, end), None when the attempt has no
    grant. ``waited_seconds`` counts time in which calls waited for a provider's permission, overlaps once.
    """

    calls_in_flight: int = 0
    last_event: float | None = None
    waited_seconds: float = 0.0


class Drift(_Frozen):
    """A replayed request that was not the recorded one: how much of entry ``n`` matched, and the first difference."""

    n: int
    matched: Literal["tail", "shape"]
    difference: str


class LaneReport(_Frozen):
    """What became of one cassette lane in an attempt.

    ``unused`` are the entries that were never asked for, ``drift`` what a lenient replay let pass, ``misses`` what the
    requests without an entry were told. All three are empty after an exact replay.
    """

    lane: str
    entries: int
    unused: tuple[int, ...] = ()
    drift: tuple[Drift, ...] = ()
    misses: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Whether the attempt asked what was recorded, all of it and nothing else."""
        return not (self.unused or self.drift or self.misses)


class Spend(_Frozen):
    """The session's money so far, in USD.

    ``known_usd`` is the cost of ended calls that can be told, ``unknown_calls`` how many cannot (no price or no
    usage). ``reserved_usd`` is held by calls in flight, and by ended ones whose price is known and whose usage is not.
    ``stopped`` says that the cap has been met: not even a call of default size fits beside what ended calls cost.
    """

    known_usd: float = 0.0
    unknown_calls: int = 0
    reserved_usd: float = 0.0
    cap_usd: float | None = None
    stopped: bool = False


def provider_failure(calls: Sequence[Call]) -> Failure | None:
    """Return the failure of provider or session that ended a turn, None when the last word was another's.

    ``calls`` are the turn's calls in the order in which they ended (as :meth:`Gateway.calls` gives them). A call that
    the client left before its first byte says nothing about the provider and is passed over, unless its own tries
    failed: then it counts as their class. The caller must know that the turn ended unfinished (design invariant 3).
    """
    for call in reversed(calls):
        last = call.errors[-1] if call.errors else Failure(call_class=call.call_class)
        if call.call_class in INFRA_CLASSES:
            return last.model_copy(update={"call_class": call.call_class})
        if call.call_class is not CallClass.CANCELLED or call.ttfb_ms is not None:
            return None
        if last.call_class in INFRA_CLASSES:
            return last
    return None


def is_refusal(failure: Failure) -> bool:
    """Say whether a provider refused the request as such, which no waiting changes: 404, 403 for its content, …"""
    return failure.status is not None and 400 <= failure.status < 500 and failure.status not in (408, 409, 425, 429)


def infra_error(role: Role, failure: Failure) -> InfraError:
    """Return the error that a role was failed by its provider, or stopped by the session's cap."""
    found = failure.call_class
    kind = "rate_limit" if found in {CallClass.RATE_LIMIT, CallClass.QUOTA} else "infra"
    kind = "spent" if found is CallClass.SESSION_BUDGET else kind
    who = "the session's cost cap stopped" if found is CallClass.SESSION_BUDGET else "the model provider failed"
    words = f"{found.value}: {failure.message}" if failure.message else found.value
    return InfraError(f"{who} the {role.replace('_', ' ')}: {words}", kind=kind)
