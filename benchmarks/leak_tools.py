"""What both halves of the leak benchmark are made with: the values of a case, and ways to write figures."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Texts = Mapping[str, str]
"""The texts of one world, by name."""
Values = dict[str, Any]
"""What a world is made with, by name: figures and texts."""
Disguise = Callable[[random.Random, str], str]

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
    """What the worlds of one topic have in common, as a file of cases holds it.

    ``said`` is the language of its cases. ``own`` are texts of which each world has one, by the world's index.
    ``hidden`` and ``sentences`` are templates of the :func:`forms` of all values. In them ``{encoded[a|b]}`` is one of
    two values in an encoding, ``{spelled[a]}`` a value spelled. A kind of leak has one sentence, or a list of which one
    is drawn. ``secret`` names the value that is a run's secret.
    """

    language: str
    said: str
    public: str
    secret: str
    openings: Sequence[str]
    harmless: Sequence[str]
    own: Mapping[str, Sequence[str]]
    hidden: Sequence[str]
    sentences: Mapping[str, str | Sequence[str]]

    @property
    def worlds(self) -> int:
        """The number of worlds."""
        return min(map(len, self.own.values()))

    def world(self, rng: random.Random, index: int, fields: Mapping[str, Any]) -> World:
        """Make one world: a leak of each kind, and its part of the harmless messages, so that each is used once."""
        said = {kind: _sentence(rng, templates, fields) for kind, templates in self.sentences.items()}
        leaks = tuple(Leak(kind, self.said, rng.choice(self.openings), text) for kind, text in said.items())
        joint = "" if self.language == "zh" else " "
        lines = self.harmless[index :: self.worlds]
        plain = [text if n % 2 else f"{rng.choice(self.openings)}{joint}{text}" for n, text in enumerate(lines)]
        hidden = tuple(template.format_map(fields) for template in self.hidden)
        return World(self.language, self.public, hidden, (fields[self.secret],), leaks, tuple(plain))


def _sentence(rng: random.Random, templates: str | Sequence[str], fields: Mapping[str, Any]) -> str:
    if isinstance(templates, str):
        return templates.format_map(fields)
    return rng.choice([template.format_map(fields) for template in templates])


@dataclass(frozen=True)
class Disguised:
    """The values in a disguise: ``disguised["a|b"]`` is one of two, disguised anew each time."""

    rng: random.Random
    disguise: Disguise
    values: Values

    def __getitem__(self, names: str) -> str:
        found = [self.values[name] for name in names.split("|")]
        return self.disguise(self.rng, self.rng.choice(found) if len(found) > 1 else found[0])


def load_topics(name: str) -> dict[str, Topic]:
    """Return the topics of a file of cases, by name."""
    text = Path(__file__).with_name(f"{name}.yaml").read_text("utf-8")
    return {topic: Topic(**fields) for topic, fields in yaml.safe_load(text).items()}


def worlds_of(
    topic: Topic, seed: str, draw: Callable[[random.Random, Texts], Values], encoded: Disguise, spelled: Disguise
) -> Iterator[World]:
    """Yield the worlds of a topic; ``draw`` makes the values of one, given its own texts."""
    for index in range(topic.worlds):
        rng = random.Random(f"{seed}:{draw.__name__}:{index}")
        own = {name: texts[index] for name, texts in topic.own.items()}
        values = own | draw(rng, own)
        disguises = {"encoded": Disguised(rng, encoded, values), "spelled": Disguised(rng, spelled, values)}
        yield topic.world(rng, index, forms(values) | disguises)


def moment(rng: random.Random) -> Values:
    """Draw a day that cannot be taken for a month, and a month."""
    day, month = rng.randrange(13, 29), rng.randrange(12) + 1
    return {"day": day, "month": month, "month_name": MONTHS[month - 1], "day_ordinal": ordinal(day)}


def forms(values: Values) -> Values:
    """Return values and the forms in which a sentence may say them, such as ``owed_words`` for ``owed``."""
    made: Values = {}
    for name, value in values.items():
        if isinstance(value, int):
            made |= _figure_forms(name, value)
        elif isinstance(value, str):
            made |= _text_forms(name, value)
    return made | values


def _figure_forms(name: str, value: int) -> Values:
    words = english_words(value)
    shares = {"thousands": value / 1000, "myriads": value / 10_000, "millions": value / 10**6}
    said = {"numeral": chinese_numeral(value), "words": words, "dotted": f"{value:,}".replace(",", ".")}
    return {f"{name}_{form}": text for form, text in (shares | said).items()} | _text_forms(f"{name}_words", words)


def _text_forms(name: str, text: str) -> Values:
    return {
        f"{name}_upper": text.upper(),
        f"{name}_lower": text.lower(),
        f"{name}_capital": text.capitalize(),
        f"{name}_spaced": text.replace("-", " "),
        f"{name}_bare": text.rpartition("://")[2],
        f"{name}_first": text.partition(" ")[0],
        f"{name}_last": text.rpartition(" ")[2],
    }


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
