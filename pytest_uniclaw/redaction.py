"""Redaction by value (design invariant 5): a known secret is blanked wherever it stands, in text and in files.

A value is found as it is, as JSON quotes it (also inside JSON text), percent-encoded, in hexadecimal and in base64 at
any offset of one line. What was compressed, encrypted or spelled otherwise is not found: who can read a secret can
always write it in a way of their own.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Protocol
from urllib.parse import quote, quote_plus

REDACTED = "[redacted]"
SHORTEST_SECRET = 4
"""Characters; shorter values are words of ordinary text and are left alone."""
SHORTEST_ENCODED = 8
"""Characters; a shorter piece of base64 or hexadecimal stands in ordinary data by chance."""
JSON_DEPTH = 3
"""How often JSON text may be quoted in JSON text: arguments of a tool call, in its message, in a line of a log."""
VIRTUAL_KEY = r"(?<![A-Za-z0-9_-])uck-[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])"
"""A key of the gateway. Whole, because ``truck-`` and the like begin many a slug."""
_KEY_MARK = "uck-"
_NO_SECRETS = frozenset({"true", "false", "null", "none"})
"""Settings are declared like secrets; these words are syntax in every JSON file."""


class Searchable(Protocol):
    """Bytes, or a file that is mapped into memory."""

    def find(self, needle: bytes, /) -> int:
        """Return where ``needle`` begins, -1 when it is not there."""


class Redactor:
    """Blanks secret values and virtual keys; without a hit it costs one plain search per form of each secret."""

    def __init__(self, secrets: Iterable[str]) -> None:
        kept = {s for s in secrets if len(s) >= SHORTEST_SECRET and s.casefold() not in _NO_SECRETS}
        forms = {form for secret in kept for form in _forms(secret)}
        wide = {secret.encode(code, "replace") for secret in kept for code in ("utf-16-le", "utf-16-be")}
        ordered = sorted(forms, key=_longest_first)
        self._needles = (*ordered, _KEY_MARK)
        self._pattern = re.compile("|".join([*map(re.escape, ordered), VIRTUAL_KEY]))
        encoded = sorted({form.encode("utf-8", "replace") for form in forms} | wide, key=_longest_first)
        self._byte_needles = (*encoded, _KEY_MARK.encode())
        self._byte_pattern = re.compile(b"|".join([*map(re.escape, encoded), VIRTUAL_KEY.encode()]))

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        return self._pattern.sub(REDACTED, text) if any(needle in text for needle in self._needles) else text

    def value(self, value: Any) -> Any:
        """Return a JSON value with every string (keys too) redacted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(item) for key, item in value.items()}
        return value

    def may_hold(self, data: Searchable) -> bool:
        """Say whether a search of the whole data is worth while."""
        return any(data.find(needle) >= 0 for needle in self._byte_needles)

    def data(self, data: bytes) -> bytes:
        """Return bytes without secrets; where they are no text, their length and so their format stay as they were."""
        if not self.may_hold(data):
            return data
        if b"\0" in data:
            return self._byte_pattern.sub(lambda found: b"*" * len(found[0]), data)
        return self._byte_pattern.sub(REDACTED.encode(), data)


def _longest_first(form: str | bytes) -> tuple[int, str | bytes]:
    return -len(form), form


def _forms(secret: str) -> set[str]:
    data = secret.encode("utf-8", "replace")
    plain = {secret}
    for _ in range(JSON_DEPTH):
        plain |= {json.dumps(form, ensure_ascii=ascii)[1:-1] for form in plain for ascii in (True, False)}
    escaped = {quote(data), quote(data, safe=""), quote_plus(data)}
    digits = {data.hex(), data.hex().upper(), *_base64(data)}
    return plain | escaped | {form for form in digits if len(form) >= SHORTEST_ENCODED}


def _base64(data: bytes) -> Iterator[str]:
    """Yield what stands in base64 text for ``data`` whatever comes before and after it, in both alphabets."""
    for shift in range(3):
        text = base64.b64encode(bytes(shift) + data).decode()
        whole = text[-(-shift * 4 // 3) : (shift + len(data)) * 4 // 3]  # characters that hold bits of the data only
        yield whole
        yield whole.translate(str.maketrans("+/", "-_"))
