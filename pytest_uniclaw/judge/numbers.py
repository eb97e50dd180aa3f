"""Numbers in text by their value: ``1,284,500`` = ``1.2845 million`` = ``128.45万`` = ``一百二十八万四千五百``.

Where a spelling can be read in two ways (``1.284`` as thousands, ``两千三`` as 2300), both values are given.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

from pytest_uniclaw.judge.folding import has_chinese

LONGEST_PHRASE = 40
"""Words of one number; a longer row is none."""
_SCALES = {
    "k": 3, "thousand": 3, "grand": 3, "m": 6, "mn": 6, "mln": 6, "mio": 6, "million": 6, "b": 9, "bn": 9, "bln": 9,
    "billion": 9, "tn": 12, "trillion": 12, "lakh": 5, "crore": 7, "w": 4, "千": 3, "万": 4, "萬": 4, "亿": 8, "億": 8,
    "十万": 5, "百万": 6, "千万": 7, "十亿": 9, "百亿": 10, "千亿": 11, "万亿": 12,
}  # fmt: skip
_PARTS = {"%": 2, "percent": 2, "per cent": 2, "pct": 2, "个百分点": 2, "‰": 3, "bps": 4, "basis points": 4}
"""What a share is divided by, as a power of ten."""
_GROUPED = r"\d{1,3}(?:[, '’_]\d{3})+(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}|\d{1,3}(?:\.\d{3}){2,}(?:,\d{1,2})?"
_DIGITS = re.compile(
    rf"(?<![a-z0-9_.])({_GROUPED}|\d+(?:\.\d+)?(?:e[+-]?\d{{1,2}})?|\.\d+)"
    rf"(?:\s?({'|'.join(map(re.escape, sorted([*_SCALES, *_PARTS], key=len, reverse=True)))})(?![a-z])"
    r"|(?![a-z0-9_]*\.?\d))"
)
_COMMA_DECIMAL = re.compile(r"(?<![\w.,])(\d{1,3}(?:[. ]\d{3})+|\d+),(\d{1,2})(?![\d,])")
_DOT_THOUSANDS = re.compile(r"(?<![\w.,])([1-9]\d{0,2})\.(\d{3})(?![\d.,])")
_CHINESE_DIGITS = {c: n for row in ("〇一二三四五六七八九", "零壹贰叁肆伍陆柒捌玖") for n, c in enumerate(row)} | {
    "○": 0, "两": 2, "兩": 2, "貳": 2, "叄": 3, "參": 3, "陸": 6,
}  # fmt: skip
_CHINESE_UNITS = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_MYRIADS = {"万": 10_000, "萬": 10_000, "亿": 100_000_000, "億": 100_000_000}
_NUMERAL = "".join([*_CHINESE_DIGITS, *_CHINESE_UNITS, *_MYRIADS])
_CHINESE = re.compile(f"[{_NUMERAL}]{{2,30}}(?:点[{_NUMERAL}]{{1,30}})?|[{_NUMERAL}]点[{_NUMERAL}]{{1,30}}")
_CHINESE_SHARE = re.compile(f"(百分之|千分之) ?(\\d+(?:\\.\\d+)?|[{_NUMERAL}]{{1,30}}(?:点[{_NUMERAL}]{{1,30}})?)")
_MIXED = re.compile(rf"\d+(?:\.\d+)?(?: ?[{_NUMERAL}]{{1,3}} ?\d*){{1,12}}")
_IDIOMS = re.compile(
    f"(?<![{_NUMERAL}])(?:(?:万一|一一|三三两两)(?![{_NUMERAL}])|千万(?=[别不要记注小])|"
    "[一二两三四五六七八九]{2}(?=[个次天遍下点条处张份]))"
)
"""``两三个`` is "a few" and ``万一`` is "in case": no numbers."""
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_UNITS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_SMALL = {word: n for n, word in enumerate(_UNITS, 1)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_SMALL |= {"zero": 0, "oh": 0}
_LARGE = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_INSIDE = {*_SMALL, *_LARGE, "hundred", "dozen", "and", "point", "half", "a"}
_TOKEN = re.compile(r"[a-z]+|[^a-z\s-]+")


def numbers_in(text: str) -> Iterator[str]:
    """Yield the values of the numbers of a folded text in canonical form, each once; a share as figure and fraction."""
    yield from dict.fromkeys(_numbers(text))


def roundings(number: str) -> Iterator[str]:
    """Yield what a long number in canonical form is called for short: rounded or cut to three to six digits."""
    value = Decimal(number)
    digits = len(number.strip("-0.").replace(".", ""))
    for kept in range(3, min(digits, 7)):
        if kept <= digits - 2 or 4 <= kept == digits - 1:
            unit = Decimal(1).scaleb(value.adjusted() - kept + 1)
            for mode in (ROUND_HALF_UP, ROUND_DOWN):
                short = value.quantize(unit, mode)
                if short != short.to_integral_value() or abs(short) >= 10_000:
                    yield canonical(short)


def _numbers(text: str) -> Iterator[str]:
    for digits, unit in _DIGITS.findall(text):
        plain = digits.replace(".", "").replace(",", ".") if digits.count(".") > 1 else digits
        value = Decimal(re.sub(r"[, '’_]", "", plain))
        if unit in _PARTS:
            yield canonical(value.scaleb(-_PARTS[unit]))
        yield canonical(value.scaleb(_SCALES.get(unit, 0)))
    for whole, decimals in _COMMA_DECIMAL.findall(text):
        yield canonical(Decimal(f"{re.sub('[. ]', '', whole)}.{decimals}"))
    for whole, rest in _DOT_THOUSANDS.findall(text):
        yield whole + rest
    if has_chinese(text):
        yield from _chinese_numbers(text)
    yield from _english_numbers(text)


def canonical(value: Decimal) -> str:
    """Return one spelling per value: no exponent, no trailing zeros."""
    text = f"{value:f}"
    return (text.rstrip("0").rstrip(".") if "." in text else text) or "0"


def _chinese_numbers(text: str) -> Iterator[str]:
    for found in _MIXED.findall(text):
        yield canonical(chinese_value(found.replace(" ", "")))
    for share, numeral in _CHINESE_SHARE.findall(text):
        value = chinese_value(numeral)
        yield from (canonical(value), canonical(value.scaleb(-2 if share == "百分之" else -3)))
    for numeral in _CHINESE.findall(_IDIOMS.sub(" ", _MIXED.sub(" ", text))):
        value = chinese_value(numeral)
        yield canonical(value)
        unit = _CHINESE_UNITS.get(numeral[-2], 0) or _MYRIADS.get(numeral[-2], 0)
        if unit > 10 and numeral[-1] in _CHINESE_DIGITS:
            yield canonical(value + _CHINESE_DIGITS[numeral[-1]] * (unit // 10 - 1))


def chinese_value(numeral: str) -> Decimal:
    """Return the value of a Chinese numeral: ``一百零五``, ``128万4500``, ``三点五万``.

    A plain row of digits (``二〇二六``) is read digit by digit.
    """
    whole, point, decimals = numeral.partition("点")
    if point:
        digits = decimals.rstrip("".join([*_CHINESE_UNITS, *_MYRIADS]))
        fraction = "".join(str(_CHINESE_DIGITS.get(c, 0)) for c in digits)
        scale = chinese_value("一" + decimals[len(digits) :]) if len(digits) < len(decimals) else Decimal(1)
        return (chinese_value(whole) + Decimal(f"0.{fraction or 0}")) * scale
    if numeral.replace(".", "").isdecimal() and numeral.isascii():
        return Decimal(numeral)
    if not set(numeral) & {*_CHINESE_UNITS, *_MYRIADS}:
        return Decimal("".join(str(_CHINESE_DIGITS.get(c, c)) for c in numeral))
    total = section = digit = Decimal(0)
    for token in re.findall(r"\d+(?:\.\d+)?|\D", numeral):
        if token in _CHINESE_UNITS:
            section += (digit or 1) * _CHINESE_UNITS[token]
            digit = Decimal(0)
        elif token in _MYRIADS:
            below = section + digit or Decimal(0 if total else 1)
            myriad = Decimal(_MYRIADS[token])
            total = total + below * myriad if myriad == 10_000 else (total + below or Decimal(1)) * myriad
            section = digit = Decimal(0)
        else:
            digit = Decimal(_CHINESE_DIGITS[token]) if token in _CHINESE_DIGITS else Decimal(token)
    return total + section + digit


def _english_numbers(text: str) -> Iterator[str]:
    run: list[str] = []
    tokens = _TOKEN.findall(text)
    for word in [] if _INSIDE.isdisjoint(tokens) else [*tokens, "."]:
        if word in _INSIDE:
            run.append(word)
            continue
        if 0 < len(run) <= LONGEST_PHRASE:
            yield from _readings(run)
        run = []


def _readings(words: list[str]) -> Iterator[str]:
    """Yield what a row of number words may mean: its value, its digits one by one, its parts as two figures."""
    while words and words[0] in {"and", "point"}:
        words = words[1:]
    while words and words[-1] in {"and", "a", "point", "half"}:
        words = words[:-1]
    if not words or not (set(words) & _SMALL.keys() or words[0] in {"a", "half"}):
        return  # "2 million" is read with its digits
    if not _is_row(words):
        yield canonical(english_value(" ".join(words)))
    digits = [str(_SMALL[word]) for word in words if word in _SMALL]
    if len(digits) == len(words) >= 2:
        if all(len(digit) == 1 for digit in digits) and len(digits) >= 3:
            yield canonical(Decimal("".join(digits)))
        for cut in range(1, len(words)):
            high, low = (english_value(" ".join(part)) for part in (words[:cut], words[cut:]))
            if 10 <= high < 100 and (10 <= low < 100 or digits[cut] == "0"):
                yield canonical(high * 100 + low)


def _is_row(words: list[str]) -> bool:
    """Say whether figures stand side by side (``nineteen ninety``) and make no sum as ``ninety-nine`` does."""
    values = [_SMALL.get(word, -1) for word in words]
    pair = len(values) == 2 and values[0] >= 20 and 0 < values[1] < 10
    return len(values) > 1 and min(values) >= 0 and not pair


def english_value(phrase: str) -> Decimal:
    """Return the value of number words: ``forty-two thousand three hundred and one``, ``one point two million``."""
    total, group = Decimal(0), Decimal(0)
    decimals: str | None = None
    for word in re.split(r"[\s-]+", phrase):
        if word in _SMALL and decimals is not None:
            decimals += str(_SMALL[word])
        elif word in _SMALL:
            group += _SMALL[word]
        elif word == "point":
            decimals = ""
        elif word == "half":
            group += Decimal("0.5")
        elif word in {"hundred", "dozen", *_LARGE}:
            group = (group + Decimal(f"0.{decimals or 0}")) or Decimal(1)
            decimals = None
            group *= 100 if word == "hundred" else 12 if word == "dozen" else _LARGE[word]
            if word in _LARGE:
                total, group = total + group, Decimal(0)
    return total + group + Decimal(f"0.{decimals or 0}")
