"""Why a model call failed, in the provider's words and in ours, and what the client is told."""

from __future__ import annotations

import email.utils
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_uniclaw.models.grants import CallClass, Failure

_QUOTA = re.compile(r"insufficient_quota|insufficient_balance|insufficient balance|billing_hard_limit|credit balance")
_CONTEXT = re.compile(
    r"context_length_exceeded|maximum context length|context window|(prompt|input) is too long|too many tokens"
)
_FILTER = re.compile(r"content_filter|content_policy|content management policy|data_inspection_failed")
_TYPES = {
    CallClass.RATE_LIMIT: ("rate_limit_error", "rate_limit_exceeded"),
    CallClass.QUOTA: ("insufficient_quota", "insufficient_quota"),
    CallClass.AUTH: ("authentication_error", "invalid_api_key"),
    CallClass.CONTEXT_LENGTH: ("invalid_request_error", "context_length_exceeded"),
    CallClass.CONTENT_FILTER: ("invalid_request_error", "content_filter"),
    CallClass.BAD_REQUEST: ("invalid_request_error", None),
    CallClass.BUDGET: ("budget_exceeded", "budget_exceeded"),
    CallClass.SESSION_BUDGET: ("budget_exceeded", "session_budget_exceeded"),
    CallClass.REPLAY_MISS: ("invalid_request_error", "replay_miss"),
}
MESSAGE_LIMIT = 2000
"""Characters of a provider's error text that are kept."""


@dataclass
class CallFailed(Exception):
    """A call, or one try of it, that got no answer.

    ``status`` is what the client is told, ``upstream_status`` what the provider said. ``retry`` says that another try
    may help, ``final`` that the gateway has spent its tries (clients are asked not to multiply them). ``answer`` is how
    the client hears of it: an OpenAI error body, a cut connection, or ``raw`` as a 200.
    """

    call_class: CallClass
    status: int
    message: str
    type: str | None = None
    code: str | None = None
    retry_after: float | None = None
    upstream_status: int | None = None
    retry: bool = False
    final: bool = False
    answer: Literal["error", "drop", "raw"] = "error"
    raw: str = ""

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        kind, code = _TYPES.get(self.call_class, ("server_error", None))
        message = self.message[:MESSAGE_LIMIT]
        error = {"message": message, "type": self.type or kind, "param": None, "code": self.code or code}
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """Response headers: our class, the provider's Retry-After, and a hint to SDKs where we have retried."""
        found = {"x-uniclaw-class": self.call_class.value}
        if self.retry_after is not None:
            found["retry-after"] = str(max(0, math.ceil(self.retry_after)))
        if self.final:
            found["x-should-retry"] = "false"
        return found

    def record(self) -> Failure:
        """The failure as the ledger keeps it."""
        return Failure(
            call_class=self.call_class,
            status=self.upstream_status,
            message=plain(self.message[:MESSAGE_LIMIT]),
            retry_after=self.retry_after,
        )


def plain(text: str) -> str:
    """The text as valid Unicode: lone surrogates, which JSON can carry and our values cannot, become ``?``."""
    return text.encode("utf-8", "replace").decode()


def from_answer(status: int, content: Any, headers: Mapping[str, str]) -> CallFailed:
    """Classify a provider's error answer. ``content`` is the body, decoded from JSON where it was JSON."""
    message, kind, code = _words(status, content)
    call_class, client_status, retry = _classify(status, f"{kind or ''} {code or ''} {message}".lower())
    return CallFailed(
        call_class,
        client_status,
        message[:MESSAGE_LIMIT],
        type=kind,
        code=code,
        retry_after=retry_after(headers),
        upstream_status=status,
        retry=retry,
    )


def from_event(error: Any) -> CallFailed:
    """Classify an error that came as an event of a 200 stream or as the body of a 200."""
    inner = error.get("error") if isinstance(error, dict) else None
    numbers = [inner.get(name) for name in ("status", "code")] if isinstance(inner, dict) else []
    status = next((number for number in numbers if isinstance(number, int) and 400 <= number < 600), 502)
    words = json.dumps(inner).lower()
    if status == 502 and ("rate_limit" in words or _QUOTA.search(words)):
        status = 429
    elif status == 502 and (_CONTEXT.search(words) or _FILTER.search(words)):
        status = 400
    failure = from_answer(status, error, {})
    failure.upstream_status = 200
    return failure


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait by ``retry-after-ms`` or ``retry-after`` (a number or a date), None when neither can be read."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        try:
            seconds = float(text) / scale
        except ValueError:
            continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    try:
        date = email.utils.parsedate_to_datetime(headers.get("retry-after", "").strip())
    except (TypeError, ValueError):
        return None
    return max(0.0, date.timestamp() - time.time())


def _words(status: int, content: Any) -> tuple[str, str | None, str | None]:
    error = content.get("error") if isinstance(content, dict) else None
    if isinstance(error, dict):
        kind, code = error.get("type"), error.get("code")
        message = error.get("message")
        text = message if isinstance(message, str) and message else json.dumps(error)
        return text, kind if isinstance(kind, str) else None, code if isinstance(code, str) else None
    if isinstance(error, str):
        return error, None, None
    text = content if isinstance(content, str) else json.dumps(content)
    return f"the provider answered {status}: {text[:300]}", None, None


def _classify(status: int, words: str) -> tuple[CallClass, int, bool]:
    """Class, status for the client, and whether another try may help."""
    if status == 402 or (status in (403, 429) and _QUOTA.search(words)):
        return CallClass.QUOTA, 429, False
    if status == 429:
        return CallClass.RATE_LIMIT, 429, True
    if status in (401, 403):
        return CallClass.AUTH, status, False
    if status in (400, 413, 422):
        if _CONTEXT.search(words):
            return CallClass.CONTEXT_LENGTH, 400, False
        if _FILTER.search(words):
            return CallClass.CONTENT_FILTER, 400, False
        return CallClass.BAD_REQUEST, status, False
    if status >= 500 or status in (408, 409, 425):
        return CallClass.INFRA, status if status >= 500 else 503, True
    # What is left (404, redirects, …) is a wrong base URL or model name: the client cannot choose either.
    return CallClass.INFRA, 502, False
