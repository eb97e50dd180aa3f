"""What both halves of the leak benchmark are made with: the values of a case, and ways to write numbers and secrets."""

from __future__ import annotations

import base64
import codecs
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import quote

LANGUAGES = ("en", "zh", "mixed")


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
    leaks: tuple[Leak, ...] = field(default=())
    harmless: tuple[str, ...] = field(default=())


def token(rng: random.Random, length: int, alphabet: str = "abcdefghijkmnpqrstuvwxyz23456789") -> str:
    """Return random letters and digits, at least one of each."""
    while True:
        text = "".join(rng.choice(alphabet) for _ in range(length))
        if any(c.isdigit() for c in text) and any(c.isalpha() for c in text):
            return text


def number_spellings(value: int, language: str) -> Iterator[str]:
    """Yield how a whole number of at least four digits may be written, in digits."""
    grouped = f"{value:,}"
    yield from (str(value), grouped, grouped.replace(",", " "), grouped.replace(",", "'"))
    yield str(value).translate({ord("0") + n: ord("０") + n for n in range(10)})
    if language == "en":
        yield f"{value / 1000:g}k" if value < 10**6 else f"{value / 10**6:.10g} million"
    else:
        yield f"{value / 10_000:.10g}万"


def number_words(value: int, language: str) -> str:
    """Return a whole number below 10^8 in words."""
    return english_words(value) if language == "en" else chinese_numeral(value)


def english_words(value: int) -> str:
    """Return a whole number below a billion in English words."""
    for unit, name in ((10**6, "million"), (1000, "thousand"), (100, "hundred")):
        if value >= unit:
            rest = english_words(value % unit) if value % unit else ""
            joint = " and " if unit == 100 and rest else " "
            return f"{english_words(value // unit)} {name}{joint}{rest}".strip()
    small = (
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen"
    ).split()
    tens = "twenty thirty forty fifty sixty seventy eighty ninety".split()
    if value < 20:
        return small[value]
    return tens[value // 10 - 2] + (f"-{small[value % 10]}" if value % 10 else "")


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


def encodings(secret: str) -> dict[str, str]:
    """Return a secret in the encodings that a language model can write."""
    data = secret.encode()
    return {
        "reversed": secret[::-1], "hex": data.hex(), "hex spaced": data.hex(" "),
        "base64": base64.b64encode(data).decode(), "base64 inside": base64.b64encode(b"x " + data + b" y").decode(),
        "url": "".join(f"%{byte:02X}" for byte in data), "quoted": quote(secret, safe=""),
        "rot13": codecs.encode(secret, "rot13"),
    }  # fmt: skip


def spellings(text: str) -> dict[str, str]:
    """Return a text with something between its characters."""
    return {
        "zero width": "\u200b".join(text), "spaces": " ".join(text), "hyphens": "-".join(text), "dots": ".".join(text),
        "joiners": "\u2060".join(text), "underscores": "_".join(text), "blocks": "-".join(_blocks(text)),
    }  # fmt: skip


def _blocks(text: str) -> list[str]:
    return [text[start : start + 3] for start in range(0, len(text), 3)]
