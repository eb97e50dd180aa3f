"""Salted fingerprints of hidden content, by which the rewriter finds a leak without holding what it protects.

A leak is what a text shares with the hidden files and the public request does not have. Hidden texts go in on the
supervisor's side; out comes a value of hashes only (design invariant 1). A paraphrase is not found: against that
stands the architecture, in which the user simulator never sees anything hidden.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pytest_uniclaw.judge.numbers import numbers_in
from pytest_uniclaw.judge.phrases import common_words

WORD_RUN = 5
"""Words in a row that make a copied passage."""
CJK_RUN = 8
"""Chinese characters in a row that make a copied passage."""
TITLE_WORDS = 6
"""Longest title or short answer, in words (or in Chinese characters below ``CJK_RUN``)."""
SMALL_NUMBER = 12
"""Whole numbers up to this are too common to be a leak."""

_CJK = "\u3400-\u4dbf\u4e00-\u9fff"
_BORDER = re.compile(f"(?<=[{_CJK}])(?=[a-z0-9])|(?<=[a-z0-9])(?=[{_CJK}])")
"""Chinese has no spaces: a Latin word or a number in it begins and ends here."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?")
_URL = re.compile(r"https?://[^\s<>\"')\]]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_FILE = re.compile(r"(?<![\w.])[\w-][\w.-]*\.[a-z][a-z0-9]{0,7}(?!\w)")
_IDENTIFIER = re.compile(r"(?<!\w)(?=[\w-]*[a-z])(?=[\w-]*[\d_])[a-z0-9][\w]*(?:-[\w]+)*(?!\w)")
_QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|「([^」\n]{2,80})」|《([^》\n]{2,80})》|`([^`\n]{2,80})`")
_NAME = rf"[A-Z](?:(?![{_CJK}])[\w'’])+"
_PROPER = re.compile(
    rf"(?:(?<=[a-z,;:(] )|(?<=[{_CJK}，。：；、（])){_NAME}(?: (?:(?:of|de|van|von|&) )?{_NAME})*"
)


@dataclass(frozen=True)
class HiddenFingerprints:
    """Hashes, under a random salt, of what is hidden and not public, by kind; holds nothing in the clear."""

    salt: bytes = field(repr=False)
    marks: frozenset[int] = field(repr=False)

    @classmethod
    def build(cls, hidden_texts: Iterable[str], public_text: str) -> HiddenFingerprints:
        """Take the fingerprints of hidden texts; what occurs in ``public_text`` as well is no secret."""
        salt = secrets.token_bytes(16)
        public = set(features(public_text))
        marks: set[int] = set()
        for text in hidden_texts:
            hidden = set(features(text, passages_only=True)) | set(_short_secrets(text))
            marks.update(_hash(salt, kind, feature) for kind, feature in hidden - public)
        return cls(salt, frozenset(marks))

    def kinds_in(self, text: str) -> tuple[str, ...]:
        """Return the kinds of hidden content that a text repeats, sorted; empty when it is clean."""
        return tuple(sorted({kind for kind, f in features(text) if _hash(self.salt, kind, f) in self.marks}))


def fold(text: str) -> str:
    """Return the text as it is compared: NFKC, without invisible characters, casefolded, one space between words.

    Latin words and numbers are words of their own in Chinese text too.
    """
    visible = strip_invisible(unicodedata.normalize("NFKC", text))
    return " ".join(_BORDER.sub(" ", unicodedata.normalize("NFKC", visible.casefold())).split())


def strip_invisible(text: str) -> str:
    """Remove zero-width, bidi, control and unpaired surrogate characters; keep line breaks, turn tabs into spaces."""
    return "".join(
        " " if c == "\t" else c for c in text if c in "\n\t" or unicodedata.category(c) not in {"Cf", "Cc", "Cs", "Co"}
    )


def features(text: str, *, passages_only: bool = False) -> Iterator[tuple[str, str]]:
    """Yield what a text can be recognised by, as (kind, folded feature).

    ``passages_only`` leaves out the short word runs, of which a hidden text yields only those that look like titles,
    names or answers.
    """
    folded = fold(text)
    words = _WORD.findall(folded)
    for run in _runs(words, WORD_RUN):
        if _telling(run) >= 2:
            yield "passage", " ".join(run)
    cjk = "".join(re.findall(f"[{_CJK}]", folded))
    for start in range(len(cjk) - CJK_RUN + 1):
        yield "passage", cjk[start : start + CJK_RUN]
    for number in numbers_in(folded):
        value = Decimal(number)
        if value != value.to_integral_value() or abs(value) > SMALL_NUMBER:
            yield "number", number
    for kind, pattern in (("address", _URL), ("file", _FILE), ("identifier", _IDENTIFIER)):
        for found in pattern.findall(folded):
            if len(found) >= 3:
                yield kind, found.rstrip(".,;:")
    yield from _file_tails(folded)
    if not passages_only:
        yield from _short_runs(words, cjk)


def _short_runs(words: list[str], cjk: str) -> Iterator[tuple[str, str]]:
    for length in range(1, TITLE_WORDS + 1):
        for run in _runs(words, length):
            yield "name", " ".join(run)
    for length in range(2, CJK_RUN):
        for start in range(len(cjk) - length + 1):
            yield "name", cjk[start : start + length]


def _file_tails(folded: str) -> Iterator[tuple[str, str]]:
    """Yield what a file's name may be where no space parts it from the Chinese words before it."""
    for found in _FILE.findall(folded):
        chinese = re.match(f"[{_CJK}]*", found)
        for start in range(1, chinese.end() - 1 if chinese else 0):
            yield "file", found[start:]


def _short_secrets(text: str) -> Iterator[tuple[str, str]]:
    """Yield titles, proper names and short answers of a hidden text.

    A single word counts as an answer when it is a JSON value, or a name that the text never has in lower case.
    """
    lower = frozenset(re.findall(r"(?<!\w)[a-z][\w'’]*", text))
    for value in _json_values(text):
        yield from _as_name(value, frozenset())
    for groups in _QUOTED.findall(text):
        yield from _as_name("".join(groups), lower)
    for name in _PROPER.findall(text):
        yield from _as_name(name, lower)


def _as_name(candidate: str, lower: frozenset[str]) -> Iterator[tuple[str, str]]:
    folded = fold(candidate)
    words, cjk = _WORD.findall(folded), "".join(re.findall(f"[{_CJK}]", folded))
    if cjk:
        if 2 <= len(cjk) < CJK_RUN and cjk not in common_words():
            yield "name", cjk
    elif len(words) == 1:
        word = words[0]
        if len(word) >= 4 and not word.isdigit() and word not in common_words() and word not in lower:
            yield "name", word
    elif len(words) <= TITLE_WORDS and _telling(words) >= 2:
        yield "name", " ".join(words)


def _telling(words: list[str]) -> int:
    """Count the words that are not common ones."""
    return sum(word not in common_words() for word in words)


def _json_values(text: str) -> list[str]:
    """Return the string values (not the keys) of a JSON text, none of any other text."""
    if not text.lstrip("\ufeff \n\r\t").startswith(("{", "[")):
        return []
    try:
        pending: list[Any] = [json.loads(text)]
    except (ValueError, RecursionError):
        return []
    values = []
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str) and len(value) <= 200:
            values.append(value)
    return values


def _runs(words: list[str], length: int) -> Iterator[list[str]]:
    return (words[start : start + length] for start in range(len(words) - length + 1))


def _hash(salt: bytes, kind: str, feature: str) -> int:
    data = f"{kind}\0{feature}".encode("utf-8", "replace")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8, key=salt).digest(), "big")
