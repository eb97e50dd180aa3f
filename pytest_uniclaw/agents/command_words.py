"""Placeholders such as ``{message}`` in what describes an agent: found, checked, filled in.

A placeholder is a small-letter word in braces. ``${word}`` belongs to a shell and is left alone, as are the braces of
JSON; ``{{word}}`` is the literal text ``{word}``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

_FOUND = re.compile(r"\{\{([a-z][a-z0-9_]*)\}\}|(?<!\$)\{([a-z][a-z0-9_]*)\}")
QUOTED_FILES = (".json", ".jsonc", ".toml", ".yaml", ".yml")
"""In files of these names a value stands within double quotes, so it is escaped for them."""


def names_in(text: str) -> Iterator[str]:
    """Yield the names of the placeholders of a text."""
    yield from (match[2] for match in _FOUND.finditer(text) if match[2])


def fill(text: str, values: Mapping[str, str], *, quoted: bool = False) -> str:
    """Return a text with its placeholders filled in; with ``quoted`` their values are escaped as within a JSON string.

    What has no value stays as it is.
    """

    def value(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[1]}}}"
        found = values.get(match[2])
        if found is None:
            return match[0]
        return json.dumps(found, ensure_ascii=False)[1:-1] if quoted else found

    return _FOUND.sub(value, text)
