"""Salted fingerprints of hidden content, by which the rewriter finds a leak without holding what it protects.

A leak is what a text shares with the hidden files and the public request does not have. Hidden texts go in on the
supervisor's side; out comes a value of hashes only (design invariant 1). A paraphrase is not found: against that
stands the architecture, in which the user simulator never sees anything hidden.
"""

from __future__ import annotations

import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import accumulate, chain

from pytest_uniclaw.judge.answers import answers_in
from pytest_uniclaw.judge.dates import days_in
from pytest_uniclaw.judge.encodings import decoded, mirrored
from pytest_uniclaw.judge.folding import CJK, collapse, fold, squeeze, strip_invisible
from pytest_uniclaw.judge.hashing import Hasher
from pytest_uniclaw.judge.numbers import numbers_in, roundings
from pytest_uniclaw.judge.phrases import canned_text, common_words
from pytest_uniclaw.redaction import SHORTEST_SECRET

WORD_RUN = 5
"""Words in a row that make a copied passage, when two of them are not common."""
PLAIN_RUN = 7
"""Words in a row that make a copied passage, when one of them is not common."""
CJK_RUN = 8
"""Chinese characters in a row that make a copied passage."""
TITLE_WORDS = 6
"""Longest title or short answer, in words (or in Chinese characters below ``CJK_RUN``)."""
SMALL_NUMBER = 12
"""Whole numbers up to this are too common to be a leak."""
SECRET_RUN = 8
"""Characters of a protected value that are a leak by themselves where one is a digit; letters alone must be 12."""
NO_SECRETS = frozenset({"true", "false", "null", "none"})
"""Settings are declared like secrets; these words are no secret."""
SPELLED = 8
"""Letters from which an answer is also sought without regard to spaces and separators; 6 where one is a digit."""

_WORD = re.compile(rf"[^\W_{CJK}]+(?:['’][^\W_{CJK}]+)?")
_PHRASE = re.compile(rf"[{CJK}]+(?:[\s\-_.·•*~|/]+[{CJK}]+)*")
_URL = re.compile(r"\bhttps?://[^\s<>\"')\]，。、]+|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?!\w|\.\w)")
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DOMAIN = re.compile(r".*\.(?:com|org|net|io|cn|dev|edu|gov|example|test|internal|local)")
_FILE = re.compile(r"(?<![\w.])[\w-][\w.-]*\.[a-z][a-z0-9]{0,7}(?!\w)")
_FOLDER = re.compile(r"(?<![\w:/])/?(?:[\w.-]+/){1,8}[\w.-]+")
_IDENTIFIER = re.compile(r"(?<!\w)(?=[\w-]*[a-z])(?=[\w-]*[\d_])[a-z0-9][\w]*(?:-[\w]+)*(?!\w)")
_ORDINAL = re.compile(r"\d+(?:st|nd|rd|th|am|pm|k|m|px|kb|mb|gb|min|h|s|x)|[a-z]{1,2}\d")
_PATTERNS = (("address", _URL), ("file", _FILE), ("path", _FOLDER), ("identifier", _IDENTIFIER))


@dataclass(frozen=True)
class HiddenFingerprints:
    """Hashes, under a random salt, of what is hidden and not public, by kind; holds nothing in the clear.

    ``lengths`` are the lengths of the answers and protected values that are sought letter by letter.
    """

    salt: bytes = field(repr=False)
    marks: frozenset[int] = field(repr=False)
    lengths: frozenset[int] = field(repr=False, default=frozenset())

    @classmethod
    def build(cls, hidden_texts: Iterable[str], public_text: str) -> HiddenFingerprints:
        """Take the fingerprints of hidden texts.

        What occurs in ``public_text`` or in the project's own sentences as well is no secret.
        """
        hasher = Hasher(secrets.token_bytes(16))
        public = {mark for _, mark in _marks(hasher, fold(f"{public_text}\n{canned_text()}"))}
        squeezed = squeeze(fold(public_text))
        marks: set[int] = set()
        lengths: set[int] = set()
        for text in hidden_texts:
            folded = fold(text)
            figures, found = dict.fromkeys(_figures(folded)), dict.fromkeys(_found(folded))
            answers = dict.fromkeys(answers_in(text))
            marks.update(mark for _, mark in _passages(hasher, folded))
            marks.update(hasher.single(kind, feature) for kind, feature in (*figures, *found))
            numbers = [figure for kind, figure in figures if kind == "number"]
            marks.update(hasher.single("number", short) for number in numbers for short in roundings(number))
            marks.update(hasher.run("name", units) for units in map(_units_of, answers) if units)
            for kind, spelled in _spelled([*(("name", answer) for answer in answers), *found]):
                if spelled not in squeezed:
                    marks.update(hasher.spelled(kind, spelled))
                    lengths.add(len(spelled))
        return cls(hasher.salt, frozenset(marks - public), frozenset(lengths))

    def protecting(self, values: Iterable[str], public_text: str = "") -> HiddenFingerprints:
        """Return fingerprints that hold a run's secrets as well: privacy values and keys, in part or whole."""
        hasher, marks, lengths = Hasher(self.salt), set(self.marks), set(self.lengths)
        public = squeeze(fold(public_text))
        for value in values:
            folded = fold(value)
            if len(value) < SHORTEST_SECRET or folded in NO_SECRETS or squeeze(folded) in public:
                continue
            marks.add(hasher.run("secret", _WORD.findall(folded) or [folded]))
            for piece in _secret_pieces(squeeze(folded)):
                marks.update(hasher.spelled("secret", piece))
                lengths.add(len(piece))
        return replace(self, marks=frozenset(marks), lengths=frozenset(lengths))

    def kinds_in(self, text: str) -> tuple[str, ...]:
        """Return the kinds of hidden content that a text repeats in any writing, sorted; empty when it is clean."""
        hasher, found = Hasher(self.salt), set[str]()
        plain = unicodedata.normalize("NFKC", strip_invisible(text))
        for reading in dict.fromkeys([fold(plain), fold(collapse(plain)), fold(decoded(plain))]):
            found |= {kind for kind, mark in _marks(hasher, reading) if mark in self.marks}
            found |= self._spelled_in(hasher, reading)
        for reading in map(fold, mirrored(plain)):
            found |= {kind for kind, mark in _marks(hasher, reading, strong=True) if mark in self.marks}
            found |= self._spelled_in(hasher, reading)
        return tuple(sorted(found))

    def _spelled_in(self, hasher: Hasher, reading: str) -> set[str]:
        return hasher.spelled_kinds(squeeze(reading), self.lengths, self.marks)


def _marks(hasher: Hasher, folded: str, *, strong: bool = False) -> Iterator[tuple[str, int]]:
    """Yield what a text can be recognised by, as (kind, hash).

    ``strong`` leaves out short words and numbers, for readings that turn every word into another one.
    """
    yield from _passages(hasher, folded)
    yield from _singles(hasher, folded, least=5 if strong else 0)
    words = _WORD.findall(folded)
    for kind in ("name", "secret"):
        for run in hasher.runs(kind, words, range(1, TITLE_WORDS + 1), least=6 if strong else 0):
            yield kind, run
    for phrase in _PHRASE.findall(folded):
        characters = re.findall(f"[{CJK}]", phrase)
        for run in hasher.runs("name", characters, range(3 if strong else 2, 13)):
            yield "name", run


def _passages(hasher: Hasher, folded: str) -> Iterator[tuple[str, int]]:
    words = _WORD.findall(folded)
    common = common_words()
    telling = [0, *accumulate(word not in common for word in words)]
    rich = [telling[end] - telling[end - WORD_RUN] >= 2 for end in range(WORD_RUN, len(telling))]
    for start, run in enumerate(hasher.runs("passage", words, (WORD_RUN,))):
        if rich[start]:
            yield "passage", run
    for start, run in enumerate(hasher.runs("passage", words, (PLAIN_RUN,))):
        if telling[start + PLAIN_RUN] > telling[start] and not any(rich[start : start + PLAIN_RUN - WORD_RUN + 1]):
            yield "passage", run
    if not folded.isascii():
        for run in hasher.runs("passage", re.findall(f"[{CJK}]", folded), (CJK_RUN,)):
            yield "passage", run


def _singles(hasher: Hasher, folded: str, least: int = 0) -> Iterator[tuple[str, int]]:
    """Yield numbers, days, addresses, files and identifiers; ``least``: characters they must have."""
    for kind, found in chain(_figures(folded), _found(folded)):
        if len(found) >= least:
            yield kind, hasher.single(kind, found)


def _figures(folded: str) -> Iterator[tuple[str, str]]:
    for number in numbers_in(folded):
        value = Decimal(number)
        if value != value.to_integral_value() or abs(value) > SMALL_NUMBER:
            yield "number", number
    for day in days_in(folded):
        yield "date", day


def _found(folded: str) -> Iterator[tuple[str, str]]:
    common = common_words()
    if "@" in folded:
        yield from (("address", found) for found in _MAIL.findall(folded))
    for kind, pattern in _PATTERNS:
        for match in pattern.findall(folded):
            found = match.rstrip(".,;:/")
            if kind == "file" and _DOMAIN.fullmatch(found):
                yield "address", found
            if len(found) >= 3 and found not in common and not (kind == "identifier" and _ORDINAL.fullmatch(found)):
                yield kind, found
                # No space parts a file's name from the Chinese words before it.
                yield from ((kind, tail) for tail in _tails(found) if kind == "file")


def _tails(found: str) -> Iterator[str]:
    chinese = re.match(f"[{CJK}]*", found)
    return (found[start:] for start in range(1, chinese.end() if chinese else 0))


def _units_of(folded: str) -> Sequence[str]:
    """Return an answer as words or, when it is Chinese, as characters; one that is both is sought letter by letter."""
    words, characters = _WORD.findall(folded), re.findall(f"[{CJK}]", folded)
    return [] if words and characters else words or characters


def _spelled(found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what is long enough to be sought letter by letter, squeezed."""
    for kind, text in found:
        letters = squeeze(text)
        least = SPELLED if letters.isalpha() else SPELLED - 2
        if least <= len(letters) <= 64 and not letters.isdigit() and letters not in common_words():
            yield kind, letters


def _secret_pieces(letters: str) -> Iterator[str]:
    """Yield the pieces of a squeezed value that are a leak anywhere in a text; a short word is sought as a word."""
    if len(letters) >= SECRET_RUN or re.search(rf"[\d{CJK}]", letters):
        yield letters
    for length in (SECRET_RUN, SECRET_RUN + 4):
        for start in range(len(letters) - length + 1):
            piece = letters[start : start + length]
            if length > SECRET_RUN or re.search(r"\d", piece):
                yield piece
