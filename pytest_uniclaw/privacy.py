"""Values that a task declares in ``.privacy``: their names, where they come from, and how they stay unseen.

A value comes from a named file or from ``UNICLAW_PRIVACY_<KEY>``, and from nowhere else (design invariant 5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_uniclaw.errors import TaskError
from pytest_uniclaw.yamlsource import read_text

ENVIRONMENT_PREFIX = "UNICLAW_PRIVACY_"
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDERS = frozenset(
    {
        "...", "<value>", "api_key", "changeme", "change_me", "outlook_password", "password", "placeholder",
        "replaceme", "replace_me", "secret", "tbd", "todo", "token", "xxx", "you@example.com", "you@outlook.com",
    }
)  # fmt: skip
"""Whole values, lower-cased, that nobody means; a real secret may contain any of these words."""
_PLACEHOLDER_FORM = re.compile(r"<?(REPLACE_?ME.*|CHANGE_?ME.*|YOUR_[A-Z0-9_]+>?)", re.DOTALL)
_RESERVED = frozenset({"PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "SHELL", "USER"})


@dataclass(frozen=True, slots=True)
class PrivacyValues:
    """Names and values; no representation ever shows a value."""

    pairs: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    origin: str = "no privacy file"
    """Where the values came from, for messages."""

    def get(self, key: str) -> str | None:
        """The value of ``key``, or None."""
        return dict(self.pairs).get(key)

    def problems(self, keys: Iterable[str]) -> str | None:
        """Why ``keys`` cannot all be served (missing, empty, placeholder), naming keys only; None if they can."""
        known = dict(self.pairs)
        wanted = tuple(keys)
        missing = [key for key in wanted if key not in known]
        empty = [key for key in wanted if key in known and not known[key].strip()]
        fake = [key for key in wanted if known.get(key, "").strip() and is_placeholder(known[key])]
        named = (("missing", missing), ("empty", empty), ("still a placeholder", fake))
        parts = [f"{what}: {', '.join(names)}" for what, names in named if names]
        if not parts:
            return None
        return f"privacy values {'; '.join(parts)} ({self.origin}; or set {ENVIRONMENT_PREFIX}<KEY>)"

    def environment(self, keys: Iterable[str]) -> dict[str, str]:
        """The variables for exactly ``keys``. Raises KeyError for one that has no value: ask ``problems`` first."""
        known = dict(self.pairs)
        return {key: known[key] for key in keys}

    def secrets(self) -> tuple[str, ...]:
        """All non-empty values, longest first, for redaction."""
        return tuple(sorted({value for _, value in self.pairs if value.strip()}, key=len, reverse=True))

    def __str__(self) -> str:
        return f"PrivacyValues({', '.join(key for key, _ in self.pairs)})"


def read_keys(path: Path) -> tuple[str, ...]:
    """The names in a package's ``.privacy``: one a line, ``#`` comments; () when there is no such file.

    A pasted ``KEY=value`` line keeps KEY. Raises TaskError with the line for an invalid or repeated name.
    """
    if not path.exists():
        return ()
    keys: list[str] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key = text.split("=", 1)[0].strip()
        _check_key(path, number, key, keys)
        keys.append(key)
    return tuple(keys)


def read_values(path: Path) -> PrivacyValues:
    """Parse a values file: ``KEY=value`` lines, ``export`` and one pair of quotes tolerated, ``#`` comments.

    Raises TaskError with the line; the message never repeats what stands behind the ``=``.
    """
    pairs: list[tuple[str, str]] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = text.removeprefix("export ").partition("=")
        if not equals:
            raise TaskError(path, "is not a KEY=value line", line=number, remedy="write KEY=value, or comment it out")
        _check_key(path, number, key.strip(), [known for known, _ in pairs])
        pairs.append((key.strip(), _unquote(value.strip())))
    return PrivacyValues(tuple(pairs), str(path))


def resolve_values(file: Path | None, environment: Mapping[str, str]) -> PrivacyValues:
    """Values of ``file`` (None: no file), overridden by every ``UNICLAW_PRIVACY_<KEY>`` of ``environment``."""
    base = read_values(file) if file is not None else PrivacyValues()
    merged = dict(base.pairs)
    for name, value in environment.items():
        key = name.removeprefix(ENVIRONMENT_PREFIX)
        if key != name and _KEY.fullmatch(key):
            merged[key] = value
    return PrivacyValues(tuple(merged.items()), base.origin)


def is_placeholder(value: str) -> bool:
    """Whether a value is the example's filler: a known whole word, or one of the form ``REPLACE_ME…``, ``YOUR_KEY``."""
    text = value.strip()
    return text.lower() in _PLACEHOLDERS or bool(_PLACEHOLDER_FORM.fullmatch(text))


def _check_key(path: Path, number: int, key: str, known: list[str]) -> None:
    remedy = "one name a line: letters, digits and '_', not starting with a digit"
    if not _KEY.fullmatch(key):
        shown = key if len(key) <= 40 else key[:37] + "..."
        raise TaskError(path, f"{shown!r} is not a variable name", line=number, remedy=remedy)
    if key in _RESERVED:
        raise TaskError(path, f"{key} would change how programs run", line=number, remedy="use a name of your own")
    if key in known:
        raise TaskError(path, f"{key} is listed twice", line=number, remedy="keep one of the two lines")


def _unquote(value: str) -> str:
    quoted = len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
