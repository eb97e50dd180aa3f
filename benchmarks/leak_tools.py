"""What both halves of the leak benchmark are made with: the values of a case, and ways to write figures."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December")  # fmt: skip
_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


@dataclass(frozen=True)
class Leak:
    """A candidate that says ``sentence``, which holds something hidden, after a harmless opening."""

    kind: str
    language: str
    opening: str
    sentence: str


@dataclass(frozen=True)
class World:
    """One task: what is public, what is hidden, a run's secrets, and candidates of both sorts.

    ``language`` is the task's; a mixed case is a Chinese task with Latin names, words and figures in the candidate.
    """

    language: str
    public: str
    hidden: tuple[str, ...]
    secrets: tuple[str, ...]
    leaks: tuple[Leak, ...]
    harmless: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """What the worlds of one topic have in common; ``said`` is the language of its cases."""

    language: str
    said: str
    public: str
    openings: Sequence[str]
    harmless: Sequence[str]
    worlds: int

    def world(
        self, rng: random.Random, index: int, hidden: Sequence[str], secret: str, sentences: Mapping[str, str]
    ) -> World:
        """Make one world: a leak of each kind, and its part of the harmless messages, so that each is used once."""
        leaks = tuple(Leak(kind, self.said, rng.choice(self.openings), text) for kind, text in sentences.items())
        joint = "" if self.language == "zh" else " "
        lines = self.harmless[index :: self.worlds]
        plain = [text if n % 2 else f"{rng.choice(self.openings)}{joint}{text}" for n, text in enumerate(lines)]
        return World(self.language, self.public, tuple(hidden), (secret,), leaks, tuple(plain))


def pick(rng: random.Random, *choices: str) -> str:
    """Return one of the choices."""
    return rng.choice(choices)


def token(rng: random.Random, length: int, alphabet: str = "abcdefghijkmnpqrstuvwxyz23456789") -> str:
    """Return random letters and digits, at least one of each."""
    while True:
        text = "".join(rng.choice(alphabet) for _ in range(length))
        if any(c.isdigit() for c in text) and any(c.isalpha() for c in text):
            return text


def ordinal(day: int) -> str:
    """Return ``1st``, ``22nd``, ``13th``."""
    return f"{day}{'th' if day in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def english_words(value: int) -> str:
    """Return a whole number below a billion in English words."""
    for unit, name in ((10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if value >= unit:
            rest = english_words(value % unit) if value % unit else ""
            joint = " and " if unit == 100 and rest else " "
            return f"{english_words(value // unit)} {name}{joint}{rest}".strip()
    if value < 20:
        return _SMALL[value]
    return _TENS[value // 10 - 2] + (f"-{_SMALL[value % 10]}" if value % 10 else "")


def chinese_numeral(value: int) -> str:
    """Return a whole number below 10^8 as a Chinese numeral."""
    if value >= 10_000:
        low = value % 10_000
        between = "零" if 0 < low < 1000 else ""
        return f"{chinese_numeral(value // 10_000)}万{between}{chinese_numeral(low) if low else ''}"
    text, pending = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit = value // unit % 10
        if digit:
            text += ("零" if pending else "") + "零一二三四五六七八九"[digit] + name
            pending = False
        elif text:
            pending = True
    return text


def chinese_decimal(decimal: str) -> str:
    """Return a number such as ``45.3`` in Chinese."""
    whole, _, rest = decimal.partition(".")
    return chinese_numeral(int(whole)) + "点" + "".join("零一二三四五六七八九"[int(digit)] for digit in rest)
