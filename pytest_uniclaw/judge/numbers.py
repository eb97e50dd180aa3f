"""Numbers in text by their value: ``1,284,500`` = ``1.2845 million`` = ``128.45万`` = ``一百二十八万四千五百``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

_SCALES = {
    "k": 3, "thousand": 3, "m": 6, "mn": 6, "million": 6, "b": 9, "bn": 9, "billion": 9, "千": 3, "万": 4, "萬": 4,
    "亿": 8, "億": 8,
}  # fmt: skip
_DIGITS = re.compile(
    r"(?<![a-z0-9_.])(\d{1,3}(?:[, ' ]\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:\s?(%|thousand\b|million\b|billion\b|k\b|mn?\b|bn?\b|[千万萬亿億])|(?![a-z0-9_]*\.?\d))"
)
_CHINESE_DIGITS = {c: n for n, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_CHINESE_UNITS = {"十": 10, "百": 100, "千": 1000}
_CHINESE = re.compile(r"[零〇一二两三四五六七八九十百千万亿]{2,}")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_UNITS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_SMALL = {word: n for n, word in enumerate(_UNITS, 1)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_LARGE = {"thousand": 1000, "million": 1_000_000, "billion": 1_000_000_000}
_WORDS = re.compile(
    rf"\b(?:{'|'.join(_SMALL)})(?:[\s-]+(?:and[\s-]+)?(?:{'|'.join([*_SMALL, *_LARGE, 'hundred'])}))*\b"
)


def numbers_in(text: str) -> Iterator[str]:
    """Yield the value of every number of a folded (NFKC, casefolded) text in canonical form; a percentage twice."""
    for digits, scale in _DIGITS.findall(text):
        try:
            value = Decimal(re.sub(r"[, ' ]", "", digits))
        except InvalidOperation:
            continue
        if scale == "%":
            yield canonical(value / 100)
        yield canonical(value.scaleb(_SCALES.get(scale, 0)))
    for numeral in _CHINESE.findall(text):
        yield canonical(Decimal(chinese_value(numeral)))
    for phrase in _WORDS.findall(text):
        yield canonical(Decimal(english_value(phrase)))


def canonical(value: Decimal) -> str:
    """Return one spelling per value: no exponent, no trailing zeros."""
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def chinese_value(numeral: str) -> int:
    """Return the value of a Chinese numeral; a plain row of digits (``二〇二六``) is read digit by digit."""
    if not set(numeral) & set("十百千万亿"):
        return int("".join(str(_CHINESE_DIGITS[c]) for c in numeral))
    total = section = digit = 0
    for character in numeral:
        if character in _CHINESE_DIGITS:
            digit = _CHINESE_DIGITS[character]
        elif character in _CHINESE_UNITS:
            section += (digit or 1) * _CHINESE_UNITS[character]
            digit = 0
        elif character == "万":
            total += (section + digit or 1) * 10_000
            section = digit = 0
        else:
            total = (total + section + digit or 1) * 100_000_000
            section = digit = 0
    return total + section + digit


def english_value(phrase: str) -> int:
    """Return the value of number words such as ``forty-two thousand three hundred and one``."""
    total = group = 0
    for word in re.split(r"[\s-]+", phrase):
        if word in _SMALL:
            group += _SMALL[word]
        elif word == "hundred":
            group *= 100
        elif word in _LARGE:
            total, group = total + group * _LARGE[word], 0
    return total + group
