"""Days in text by their value: ``2025-03-14`` = ``14 March 2025`` = ``Mar 14th`` = ``3月14日`` = ``三月十四日``."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pytest_uniclaw.judge.numbers import chinese_value

_MONTHS = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12,
}  # fmt: skip
_MONTH = (
    "(jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    "nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"(\d{1,2})(?:st|nd|rd|th)?"
_YEAR_FIRST = re.compile(r"(?<!\d)\d{4}[-/.](\d{1,2})[-/.](\d{1,2})(?!\d)")
_YEAR_LAST = re.compile(r"(?<!\d)(\d{1,2})[-/.](\d{1,2})[-/.]\d{4}(?!\d)")
_DAY_MONTH = re.compile(rf"(?<!\d){_DAY}[ /-](?:of )?{_MONTH}(?![a-z])")
_MONTH_DAY = re.compile(rf"(?<![a-z]){_MONTH}\.? (?:the )?{_DAY}(?![\d:])")
_NUMERAL = r"(\d{1,2}|[一二三四五六七八九十]{1,3})"
_CHINESE = re.compile(rf"{_NUMERAL} ?月 ?(?:{_NUMERAL}) ?[日号]")


def days_in(text: str) -> Iterator[str]:
    """Yield the days of a folded text as ``month-day``; one that may be day or month first is given both ways."""
    for month, day in _YEAR_FIRST.findall(text):
        yield from _day(int(month), int(day))
    for first, second in _YEAR_LAST.findall(text):
        yield from _day(int(first), int(second))
        yield from _day(int(second), int(first))
    for day, month in _DAY_MONTH.findall(text):
        yield from _day(_MONTHS[month[:3]], int(day))
    for month, day in _MONTH_DAY.findall(text):
        yield from _day(_MONTHS[month[:3]], int(day))
    if "月" in text:
        for month, day in _CHINESE.findall(text):
            yield from _day(int(chinese_value(month)), int(chinese_value(day)))


def _day(month: int, day: int) -> Iterator[str]:
    if 1 <= month <= 12 and 1 <= day <= 31:
        yield f"{month}-{day}"
