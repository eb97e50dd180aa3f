"""Two runs of one conversation, told to be equal: what differs by chance is replaced by its kind.

Used for matching requests with recorded ones, never on text that is stored or shown to a model. Named variables go
first, then patterns in the order of ``_PATTERNS``: dates before clocks before plain numbers. Sizes, counts and names
stay, so that a changed file is a difference.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pytest_uniclaw.models.chat import Json
from pytest_uniclaw.redaction import REDACTED

IGNORED = frozenset(
    {"prompt_cache_key", "metadata", "client_metadata", "user", "stream", "stream_options", "store", "include", "seed"}
)
"""Parameters of a request that change nothing about what its answer means."""
KEYS = re.compile(
    r"\bsk-[A-Za-z0-9_-]{20,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36,}|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\bAIza[0-9A-Za-z_-]{35}|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"
    r"|-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[^-]{0,20000}-----END [A-Z ]{0,20}PRIVATE KEY-----"
)
"""Keys of well-known services, by their shapes."""
_KEY_MARKS = ("sk-", "AKIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "xox", "AIza", "eyJ", "PRIVATE KEY")

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6}\.?"
_HAN_DAY = r"星期[一二三四五六日天]"
_CLOCK = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?[AaPp][Mm]\b)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)?"
_YEAR = r"(?:19|20)\d\d"
_DATE = rf"(?:{_MONTH} {{1,2}}\d{{1,2}}|\d{{1,2}} {{1,2}}{_MONTH})(?:st|nd|rd|th)?"
_UNIT = r"(?:[nuµm]?s|secs?|seconds?|毫秒|秒)"
_CHANCE = r"tmp[a-z0-9_]{6,60}|tmp\.[A-Za-z0-9]{6,20}|(?=[a-z_-]{0,60}\d)[A-Za-z0-9_-]{8,60}"
_LOCAL = r"\blocalhost|\b127\.0\.0\.1|\b0\.0\.0\.0|\[::1\]"
_PRIVATE = r"10(?:\.\d{1,3}){3}|192\.168(?:\.\d{1,3}){2}|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2}"
# Every repetition is bounded: the texts are an agent's, and a pattern must not take quadratic time on any of them.
# The first member is what a line must hold for the pattern to be tried.
_PATTERNS = tuple(
    (needle, re.compile(pattern), kind)
    for needle, pattern, kind in (
        ("-", r"\b[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}\b", "<uuid>"),
        (":", rf"\b{_YEAR}-\d\d-\d\d[T ]{_CLOCK}{_ZONE}", "<date>"),
        ("", rf"\b{_YEAR}[-/](?:0?[1-9]|1[0-2])[-/](?:3[01]|[12]\d|0?[1-9])\b", "<date>"),
        ("20", r"(?<!\d)20\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[T_-]?\d{4}(?:\d\d)?Z?)?(?!\d)", "<date>"),
        ("年", rf"{_YEAR} ?年 ?\d{{1,2}} ?月 ?\d{{1,2}} ?日(?: ?{_HAN_DAY})?", "<date>"),
        (" ", rf"\b(?:{_DAY},? {{1,2}})?{_DATE}(?:,? {{1,2}}{_CLOCK}{_ZONE}(?:,? {{1,2}}{_YEAR})?|,? {{1,2}}{_YEAR}\b)",
         "<date>"),
        ("<date>", rf"(?<=<date>) ?[(（]?(?:{_DAY}|{_HAN_DAY})[)）]?", ""),
        ("<date>", rf"\b{_DAY},? {{1,2}}(?=<date>)", ""),
        (":", rf"(?:{_LOCAL}):\d{{2,5}}\b", "<local>"),
        (".", rf"\b(?:{_PRIVATE})(?::\d{{2,5}})?\b", "<ip>"),
        (":", rf"(?<![\d:]){_CLOCK}{_ZONE}(?![\d:])", "<clock>"),
        ("/tmp/", r"(?<![\w.])/(?:var/)?tmp/[^\s/\"'`<>|:;,)\]}]{1,100}(?=/)", "/tmp/<tmp>"),
        ("/tmp/", rf"(?<![\w.])/(?:var/)?tmp/(?:{_CHANCE})(?![\w./-])", "/tmp/<tmp>"),
        ("0x", r"\b0x[0-9A-Fa-f]{6,16}\b", "<pointer>"),
        ("", r"\b(?=\d{0,128}[a-f])(?=[a-f]{0,128}\d)[0-9a-f]{12,128}\b", "<hex>"),
        ("hunk", r"(\b[Cc]hunk (?:ID|id):? )[0-9a-f]{4,16}", r"\1<chunk>"),
        ("ession", r"(\b[Ss]ession (?:ID|id):? )\d{1,20}", r"\1<session>"),
        ("", r"(?i)(\b(?:pid|process id)\b[\"']?\s?[:=#]?\s{0,4})\d{1,10}", r"\1<pid>"),
        ("[", r"^(\[\d{1,3}\] )\d{2,7}$", r"\1<pid>"),
        ("ort", r"(\b[Pp]ort\b[\"']?\s?[:=]?\s{0,4})\d{4,5}\b", r"\1<port>"),
        ("", r"\b(?:chatcmpl-|msg_|resp_|toolu_|call_)(?=[A-Za-z]{0,64}\d)[A-Za-z0-9]{12,64}\b", "<id>"),
        ("1", r"(?<![\w.])1[6-9]\d{8}(?:\d{3}|\d{6})?(?:\.\d{1,9})?(?![\w.])", "<epoch>"),
        ("", rf"(?<![\w.])(?:\d{{1,4}} ?m(?:in)? ?)?\d{{1,9}}(?:\.\d{{1,9}})? ?{_UNIT}(?![A-Za-z])",
         "<duration>"),
    )
)  # fmt: skip
_DATA_URL = re.compile(r"data:[\w.+-]{1,60}/[\w.+-]{1,80};base64,[A-Za-z0-9+/=_-]+")
_TELLING = re.compile(r"\d|/tmp/")
"""What a line must hold for any pattern to match."""
_CACHED = 1 << 20
"""Characters of the largest text that is kept normalised: a conversation repeats its texts in every request."""


@dataclass(frozen=True)
class Normal:
    """A request with what is accidental replaced by its kind, and its digests from strict to loose."""

    messages: tuple[Json, ...]
    tools: Json
    params: Json
    full: str
    tail: str
    shape: str


class Normaliser:
    """Normalises the requests of one run. ``variables`` are its own names for things: ``{"WORK": "/home/x/run-7"}``."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        named = sorted(variables.items(), key=lambda pair: (-len(pair[1]), pair[0]))
        self._variables = tuple((value, f"{{{{{name}}}}}") for name, value in named if value)
        self._cached = lru_cache(maxsize=2048)(self._changed)

    def forget(self) -> None:
        """Drop the texts that are kept for the next request."""
        self._cached.cache_clear()

    def text(self, text: str) -> str:
        """Return one text with its accidents replaced."""
        if text.startswith("data:") or len(text) > _CACHED:
            return self._changed(text)
        return self._cached(text)

    def request(self, body: Json) -> Normal:
        """Return a chat request's normal form."""
        ids = _call_ids(body["messages"])
        messages = tuple(self._value(message, ids) for message in body["messages"])
        listed = [tool for tool in _listed(body.get("tools")) if isinstance(tool, dict)]
        tools = {_tool_name(tool): self._value(tool, ids) for tool in listed}
        params = {k: self._value(v, ids) for k, v in body.items() if k not in IGNORED and k not in _PARTS}
        roles = [[m.get("role"), *map(_tool_name, _listed(m.get("tool_calls")))] for m in messages]
        last = max((i for i, message in enumerate(messages) if message.get("role") == "assistant"), default=-1)
        return Normal(
            messages, tools, params,
            full=_digest([messages, tools, params]),
            tail=_digest([len(messages), messages[last + 1 :]]),
            shape=_digest([roles, sorted(tools)]),
        )  # fmt: skip

    def _changed(self, text: str) -> str:
        text = _DATA_URL.sub(_hashed, text)
        for value, name in self._variables:
            text = text.replace(value, name)
        text = without_keys(text)
        return "\n".join(_told(line) if _TELLING.search(line) else line for line in text.split("\n"))

    def _value(self, value: Any, ids: Mapping[str, str]) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self._value(item, ids) for item in value]
        if isinstance(value, dict):
            kept = ((key, item) for key, item in value.items() if item is not None and key not in _UNTOLD)
            return {key: self._field(key, item, ids) for key, item in kept}
        return value

    def _field(self, key: str, value: Any, ids: Mapping[str, str]) -> Any:
        if key in _ID_FIELDS and isinstance(value, str) and value in ids:
            return ids[value]
        return self._value(value, ids)


_PARTS = frozenset({"messages", "tools", "model"})
_ID_FIELDS = frozenset({"id", "tool_call_id"})
_UNTOLD = frozenset({"extra_content", "annotations"})
"""Fields of messages that a provider makes up anew each time."""


def without_keys(text: str) -> str:
    """Return the text with keys of well-known services blanked, as the exchange log blanks known secrets."""
    return KEYS.sub(REDACTED, text) if any(mark in text for mark in _KEY_MARKS) else text


def first_difference(recorded: Normal, now: Normal) -> str:
    """Say where two requests begin to differ and how: ``messages[3].content (text): recorded '…', now '…'``."""
    places = (
        ("messages", list(recorded.messages), list(now.messages)),
        ("tools", recorded.tools, now.tools),
        ("params", recorded.params, now.params),
    )
    found = (difference for place, old, new in places for difference in _differences(place, old, new))
    return next(found, "nothing")


def _differences(place: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            if key not in new or key not in old:
                yield f"{place}.{key} ({'missing' if key in old else 'new'})"
            else:
                yield from _differences(f"{place}.{key}", old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from _differences(f"{place}[{index}]", one, other)
        if len(old) != len(new):
            yield f"{place} (length): recorded {len(old)}, now {len(new)}"
    elif isinstance(old, str) and isinstance(new, str):
        if old != new:
            at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
            begin = max(0, at - 30)
            shown = [repr(("…" if begin else "") + text[begin : at + 50]) for text in (old, new)]
            yield f"{place} (text, at character {at}): recorded {shown[0]}, now {shown[1]}"
    elif old != new:
        yield f"{place} (value): recorded {old!r}, now {new!r}"[:300]


def _call_ids(messages: list[Json]) -> dict[str, str]:
    """Tool-call ids by the order in which they come up."""
    found: dict[str, str] = {}
    for message in messages:
        for call in _listed(message.get("tool_calls")):
            if isinstance(call, dict) and isinstance(call.get("id"), str):
                found.setdefault(call["id"], f"call-{len(found) + 1}")
    return found


def _listed(value: Any) -> list[Any]:
    """What a request should have as a list; an agent may write anything there."""
    return value if isinstance(value, list) else []


def _tool_name(tool: Any) -> str:
    function = tool.get("function") if isinstance(tool, dict) else None
    return str(function.get("name")) if isinstance(function, dict) else ""


def _told(line: str) -> str:
    for needle, pattern, kind in _PATTERNS:
        if needle in line:
            line = pattern.sub(kind, line)
    return line


def _hashed(found: re.Match[str]) -> str:
    head, _, data = found[0].partition(",")
    # The underscore keeps the pattern for long hexadecimal numbers off: another picture is a difference.
    return f"{head},sha256_{hashlib.sha256(data.encode()).hexdigest()}"


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
