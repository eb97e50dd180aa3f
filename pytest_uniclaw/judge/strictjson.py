"""JSON as a model must write it: one object, no key twice, no NaN, nothing repaired in silence.

What a repair would have to guess is the model's to say: every refusal is a :class:`Rejected` with words it can act on.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from pytest_uniclaw.errors import UniclawError
from pytest_uniclaw.models.chat import Json

TEXT_CHARACTERS = 200_000
"""Longest answer that is searched for an object."""
_STRAY_BRACES = 50
"""How many braces that open nothing are passed over."""
_OPENING = re.compile(r'\{\s*"')


class Rejected(UniclawError):
    """An answer that cannot be used. ``errors`` are for the model to act on.

    ``otherwise`` is what to settle for when it cannot be asked again; None is nothing.
    """

    def __init__(self, *errors: str, otherwise: object = None) -> None:
        self.errors, self.otherwise = errors, otherwise
        super().__init__("; ".join(errors))


def parse_object(text: str) -> Json:
    """Parse one JSON object. Raises Rejected."""
    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_number)
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise Rejected("the JSON holds half of a surrogate pair; write the character itself") from None
    except RecursionError:
        raise Rejected("the JSON is nested too deeply") from None
    except ValueError as error:
        raise Rejected(f"this is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise Rejected("the JSON is not an object")
    return value


def last_object(text: str) -> str:
    """Return the last complete {…} of a text that stands in no other one, valid or not. Raises Rejected.

    Braces in JSON strings do not count, so an object that quotes another is found whole. One that is cut off is
    refused: no part of it is taken for the whole.
    """
    if len(text) > TEXT_CHARACTERS:
        raise Rejected(f"the answer has more than {TEXT_CHARACTERS} characters")
    found, start, strays = "", text.find("{"), 0
    while start >= 0 and strays <= _STRAY_BRACES:
        end = _end_of(text, start)
        if end is None and _OPENING.match(text, start):
            raise Rejected("a JSON object in the answer is not complete: a brace or a quotation mark is missing")
        if end is None:
            strays += 1
            start = text.find("{", start + 1)
        else:
            found = text[start:end]
            start = text.find("{", end)
    if not found:
        raise Rejected("there is no complete JSON object in the answer")
    return found


def _end_of(text: str, start: int) -> int | None:
    """Return the index after the brace that closes the one at ``start``, None when there is none."""
    depth, quoted, escaped = 0, False, False
    for index in range(start, len(text)):
        character = text[index]
        if quoted:
            quoted = escaped or character != '"'
            escaped = character == "\\" and not escaped
        elif character == '"':
            quoted = True
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return index + 1
    return None


def _pairs(pairs: list[tuple[str, Any]]) -> Json:
    found: Json = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands twice in one object")
        found[key] = value
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is out of range")
    return value
