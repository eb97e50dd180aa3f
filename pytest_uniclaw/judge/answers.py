"""What in a hidden text looks like an answer: names, titles, short values of JSON, tables and ``key: value`` lines."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pytest_uniclaw.judge.folding import CJK, fold, has_chinese
from pytest_uniclaw.judge.phrases import common_words

LONGEST_ANSWER = 60
"""Characters; a longer value of a data file is prose, in which answers are looked for."""
_NAME = rf"[A-Z](?:(?![{CJK}])[\w'’])+"
_NAMES = rf"{_NAME}(?:[ -](?:(?:of|de|van|von|der|da|el|al|bin|&) )?{_NAME})*"
_WORD = re.compile(rf"[^\W_{CJK}]+(?:['’][^\W_]+)?")
_CHARACTER = re.compile(f"[{CJK}]")
_WHOLE_NAME = re.compile(_NAME)
_LOWER = re.compile(r"(?<![\w/.@:=-])[a-z][\w'’]*(?![\w/@=-]|\.\w)")
"""Words in lower case that stand in prose, not in an address or a path."""
_PROPER = re.compile(rf"(?:(?<=[a-z0-9,;:(] )|(?<=[{CJK}，。：；、（]))({_NAMES})")
_PROPER_PAIR = re.compile(rf"(?<![\w-])({_NAME}(?: {_NAME})+)")
_QUOTED = re.compile(
    r"\"([^\"\n]{2,80})\"|“([^”\n]{2,80})”|「([^」\n]{2,80})」|『([^』\n]{2,80})』|《([^》\n]{2,80})》|`([^`\n]{2,80})`|"
    r"(?<!\w)'([^'\n]{2,80})'(?!\w)|‘([^’\n]{2,80})’|\*\*([^*\n]{2,80})\*\*|【([^】\n]{2,80})】"
)
_PAIR = re.compile(
    r"^[ \t]{0,40}(?:[-*•+] )?[\w.\-/*`()][\w .\-/*`()]{0,39}?[ \t]{0,4}(?::|：|=>?|->|→)[ \t]{0,9}(\S.{0,79})$",
    re.MULTILINE,
)
_ANSWER = re.compile(
    r"\b(?:answer|value|result|winner|name|code|word|option|colou?r|culprit|cause)s?\b[^.\n:;,]{0,30}?"
    r"\b(?:is|are|was|=|be) "
    r"(?:the |a |an )?([\w'’-]+(?: [\w'’-]+){0,2})"
)
_STATED = re.compile(
    r"\b(?:is|are|was|were|be|uses?|called|named) (?:of |a |an |the )?([a-z][\w-]{3,})(?=[.;,)!?\n]|$)"
)
"""The one word that a clause ends with: ``the mount is of pewter.``"""
_DESCRIBING = re.compile(r".*(?:ed|ing|ly|able|ible|ent|ant|ous|ive|al|ory|ary|less|ful|ic)|(?:non|out|well|mis)-.*")
"""Words that say how something is rather than what."""
_ELEMENT = re.compile(r"<[^<>/]+>([^<>\n]{2,60})</|=\"([^\"<>\n]{2,60})\"(?=[^<>]*>)")
_LATIN = re.compile(rf"(?<=[{CJK}，。：；、])\s?([A-Za-z][\w'’-]{{3,}}(?: [A-Z][\w'’-]+)*)(?=\s?[{CJK}，。：；、])")
"""A Latin word in Chinese prose."""
_ZH_SURNAMES = (
    "欧阳|司马|上官|诸葛|东方|皇甫|尉迟|公孙|慕容|长孙|[赵钱孙李周吴郑王冯陈褚卫蒋沈韩杨朱秦许何吕施张孔曹严华金魏陶姜戚谢邹喻柏窦章苏"
    "潘葛范彭郎鲁韦马苗凤方俞任袁柳鲍史唐费廉薛雷贺倪汤滕殷罗毕郝邬安常于傅康伍余顾孟黄穆萧尹姚邵汪祁毛狄贝臧戴宋庞熊纪舒项祝董梁杜阮蓝闵席贾"
    "江童颜郭梅林钟徐邱骆高夏蔡田樊胡凌霍虞万柯管卢莫房解应宗丁邓郁单洪包左石崔吉龚程裴陆翁荀侯宁刘叶白]"
)
_ZH_NAME = re.compile(
    rf"(?<![{CJK}])(?:是|为|叫|找|由|给|请|向|与|和|跟)?((?:{_ZH_SURNAMES})[{CJK}]{{1,2}})(?![{CJK}])|"
    rf"(?:是|为|叫|找|由|经理|老师|先生|女士|主任|负责人|联系人|收款人|经办人)((?:{_ZH_SURNAMES})[{CJK}]{{2}})(?=[，。；、,.;：:说在的于）)]|$)"
)


def answers_in(text: str) -> Iterator[str]:
    """Yield the answers of a hidden text, folded: names, titles, values. A word that any user says is none.

    A single word of prose counts only if the text never has it in lower case, or says that it is the answer.
    """
    values = _data_values(text)
    for value in dict.fromkeys(value for value in values if len(value) <= LONGEST_ANSWER):
        yield from _answer(value, frozenset())
        yield from _parts(value, frozenset())
    yield from _of_prose("\n".join(value for value in values if len(value) > LONGEST_ANSWER) if values else text)


def _of_prose(text: str) -> Iterator[str]:
    words = Counter(_LOWER.findall(text))
    lower, often = frozenset(words), frozenset(word for word, count in words.items() if count > 2)
    for groups in dict.fromkeys(_QUOTED.findall(text)):
        yield from _answer("".join(groups), lower, telling=2)
    elements = ["".join(groups) for groups in _ELEMENT.findall(text)]
    stated = [word for word in _STATED.findall(text) if not _DESCRIBING.fullmatch(word)]
    for found in dict.fromkeys([*_ANSWER.findall(text), *stated, *elements]):
        yield from _answer(found, often)
        yield from _parts(found, lower)
    for value in dict.fromkeys([*_PAIR.findall(text), *_cells(text)]):
        plain = value.strip(" \t|*`\"'.。;；,，")
        yield from _answer(plain, often)
        yield from _parts(plain, lower)
    prose = re.sub(r"(?m)^#.*$", "", text)
    for name in dict.fromkeys([*_PROPER.findall(prose), *_PROPER_PAIR.findall(prose)]):
        yield from _answer(name, lower)
        yield from _parts(name, lower)
    if has_chinese(text):
        for found in ["".join(pair) for pair in _ZH_NAME.findall(text)] + _LATIN.findall(text):
            yield from _answer(found, frozenset())


def _answer(candidate: str, lower: frozenset[str], telling: int = 1) -> Iterator[str]:
    """Yield a candidate, folded, unless it is prose, a number or common.

    ``telling`` says how many of several words must not be common.
    """
    folded = fold(candidate)
    words, cjk = _WORD.findall(folded), "".join(_CHARACTER.findall(folded)) if has_chinese(folded) else ""
    if cjk and not words:
        if 2 <= len(cjk) <= 12 and cjk not in common_words():
            yield cjk
    elif len(words) == 1 and not cjk:
        word = words[0]
        if len(word) >= 3 and not word.isdigit() and word not in common_words() and word not in lower:
            yield word
    elif cjk and len(words) + len(cjk) <= 12:
        yield " ".join(folded.split())
    elif (
        not cjk
        and 2 <= len(words) <= 6
        and not "".join(words).isdigit()
        and sum(word not in common_words() for word in words) >= telling
    ):
        yield " ".join(words)


def _parts(name: str, lower: frozenset[str]) -> Iterator[str]:
    """Yield the parts of a person's or place's name that tell it by themselves: ``Ana de Wit of Ghent``."""
    owners = re.split(" (?:of|&) ", name)
    for owner in owners:
        if len(owners) > 1:
            yield from _answer(owner, lower)
        parts = [part for part in owner.split() if not part.islower()]
        if 2 <= len(owner.split()) <= 5 and all(map(_WHOLE_NAME.fullmatch, parts)):
            for part in parts:
                if len(part) >= 4 and part.casefold() not in lower:
                    yield from _answer(part, lower)


def _data_values(text: str) -> list[str]:
    """Return the string values (not the keys) of JSON or JSON lines, the cells of tab- or comma-separated values."""
    start = text.lstrip("\ufeff \n\r\t")
    if not start.startswith(("{", "[")):
        return list(_separated(text))
    try:
        return _strings(json.loads(start))
    except (ValueError, RecursionError):
        values = []
        for line in start.splitlines():
            try:
                values += _strings(json.loads(line))
            except (ValueError, RecursionError):
                continue
        return values


def _strings(document: Any) -> list[str]:
    pending, values = [document], []
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str):
            values.append(value)
    return values


def _separated(text: str) -> Iterator[str]:
    """Yield the cells below the head of a text whose lines all have as many tabs, or two or more commas."""
    lines = [line for line in text.splitlines() if line.strip()]
    for mark, least in (("\t", 1), (",", 2)):
        counts = {line.count(mark) for line in lines}
        if len(lines) >= 3 and len(counts) == 1 and min(counts) >= least:
            for line in lines[1:]:
                yield from (cell.strip(' "') for cell in line.split(mark))


def _cells(text: str) -> Iterator[str]:
    """Yield the cells of Markdown tables, heads left out."""
    inside = False
    for line in text.splitlines():
        row = line.strip()
        if not row.startswith("|"):
            inside = False
        elif re.fullmatch(r"[|\s:-]+", row):
            inside = True
        elif inside:
            yield from row.strip("|").split("|")
