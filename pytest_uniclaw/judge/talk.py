"""What no user of an agent says: grading talk, scores, announcements of the end, keys, the agent's own manner."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from pytest_uniclaw.judge.folding import CJK, collapse, fold
from pytest_uniclaw.judge.numbers import numbers_in
from pytest_uniclaw.redaction import VIRTUAL_KEY

_META = re.compile(
    r"\b(?:scor(?:e|es|ed|ing)|rubrics?|check-?\s?points?|supervis(?:or|ors|ion)|grad(?:er|ers|ing|ed|e|es)|verdicts?|"
    r"benchmarks?|evaluat(?:or|ors|ion|ions|ed|e)|harness|handoff|judg(?:e|es|ed|ement|ements|ments?|ing)|threshold|"
    r"hidden|ground[ _-]?truth|eval[_ -]?rule|answer[ -]keys?|reference (?:answer|solution)s?|pass mark|"
    r"follow-?up budget|partial credit|full (?:credit|marks)|attempt[_ -]state|recoverable|simulat(?:or|ed|ion)|"
    r"points?\s+(?:off|deducted|lost)|(?:lose|lost|gain(?:ed)?|earn(?:ed)?|worth)\s+(?:\w+ ){0,2}(?:points?|marks?)|"
    r"rewriter|executor|transcripts?|assessment|assessor|examiner|system prompt|"
    r"success criteria|test case|score cap|leaderboard)\b"
)
_META_ZH = re.compile(
    "评分|得分|分数|打分|扣分|满分|检查点|评审|评测|评估|测评|考核|基准测试|判定|裁判|监督者|监督员|阈值|标准答案|参考答案|正确答案|隐藏|"
    "评判|通过线|及格线|模拟用户|评价标准|得了\\s*\\d|評分|得分點|分數|扣分|滿分|檢查點|評審|評測|評估|監督者|標準答案|參考答案|隱藏|考点|"
    "采分点|给分|系统提示"
)
_SCORE = re.compile(
    r"(?<![\w.])0?\.\d+\b|(?<![\w.])[01]\.\d+(?![\w.])|\b\d+(?:\.\d+)?\s*%|\b\d+(?:\.\d+)?\s*/\s*\d+(?![\w/])|"
    r"\b\d+(?:\.\d+)?\s+(?:out\s+)?of\s+(?:the\s+)?\d+\b|\b\d+(?:\.\d+)?\s*(?:points?|pts|percent|per cent)\b|"
    r"\d+(?:\.\d+)?\s*分(?![钟之])|百分之 ?[\d.零一二三四五六七八九十百点]+",
    re.ASCII,
)
_COMPLETION = re.compile(
    r"\A(?:it'?s |that'?s |all )?(?:done|complete|completed|finished|pass|passed|success|successful|perfect)\b[.! ]*\Z|"
    r"\b(?:task|request|work|job|everything|all|it|this|that)(?:'s|'re)?\s+(?:is|are|was|has been|have been|looks)?\s*"
    r"(?:now |all |already |fully )*(?:complete|completed|done|finished|accepted|passed|perfect)\b|"
    r"\b(?:you|i)(?:'ve| have)?\s+(?:now |already |successfully )*(?:passed|succeeded|finished|completed)\b|"
    r"\bno (?:further|more|other) (?:action|actions|changes?|work|steps?)\b|"
    r"\bnothing (?:more|else|further) (?:to do|is needed)\b|\bthat(?:'s| is| will be) all\b|\byou (?:can|may) stop\b|"
    r"(?:已|已经)(?:全部)?(?:完成|做完|通过)|任务完成|全部完成|(?:做完|完成|通过|合格|成功)了|大功告成|没有(?:其他)?问题了|"
    r"无需(?:再|继续)|不用再(?:改|做)了|到此为止|可以结束了"
)
_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|xox[abprs]|glpat|hf)[-_][\w-]{8,}|\bgithub_pat_\w+|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{10,}\.|"
    r"-----BEGIN|\bBearer\s+\S{8,}|\b(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[A-Za-z0-9+/=_-]{28,}|" + VIRTUAL_KEY,
    re.ASCII,
)
_DONE = (
    "created|updated|generated|saved|written|wrote|fixed|added|implemented|completed|extracted|computed|calculated|"
    "exported|corrected|revised"
)
_VOICE = re.compile(
    r"\bas an? (?:large )?(?:ai|language model|assistant)\b|\b(?:ai|language) (?:assistant|model)\b|"
    r"\bi'?m (?:just )?an? (?:ai|assistant|agent)\b|\bhow (?:can|may) i (?:help|assist)\b|\bhappy to help\b|"
    r"\bfeel free to\b|</?(?:think|tool|function|system|user|assistant)\b|\btool_?call|"
    rf"\bi(?:'ve| have)?(?: now| just| also| successfully)? (?:{_DONE}) (?:the|a|an|all|your|both|it|and)\b|"
    r"\bhere(?:'s| is| are) (?:the|your|an?) (?:updated|final|revised|corrected|complete|requested)\b|"
    r"\b(?:i'?ll|i will|let me) (?:now )?(?:proceed|go ahead|begin by|start by|fix (?:that|it|this)|update the)\b|"
    r"作为(?:一个|一名)?(?:ai|人工智能|语言模型|助手|智能体)|"
    r"我(?:已经|已|刚刚|刚|现在)?(?:为|帮|替)?(?:您|你)?(?:已经|已)?"
    r"(?:创建|生成|更新|修改|修复|保存|写入|添加|实现|提取|导出)(?:了|好|完)|"
    r"已(?:经)?(?:为|帮|替)(?:您|你)|请问还有什么|很高兴为|有什么可以帮|如(?:有|需)(?:其他|进一步|任何)(?:问题|需要|帮助|修改)"
)


def unlike_a_user(sentence: str, public: str) -> list[str]:
    """Return the kinds of talk in a sentence that no user has.

    Grading words and numbers of the public request are the user's own.
    """
    folded = fold(sentence)
    joined = fold(collapse(sentence))
    words, numbers = _public_words(public)
    kinds = []
    if any(word not in words for word in _meta_words(f"{folded}\n{joined}")):
        kinds.append("meta")
    if any(set(numbers_in(found)) - numbers for found in _SCORE.findall(folded)):
        kinds.append("score")
    if _COMPLETION.search(folded):
        kinds.append("completion")
    if _SECRET.search(sentence):
        kinds.append("secret")
    if _VOICE.search(folded):
        kinds.append("voice")
    return kinds


def in_another_language(sentence: str, language: str) -> bool:
    """Say whether a sentence is in another language than the task: Latin words only, or hardly any."""
    chinese, latin = len(re.findall(f"[{CJK}]", sentence)), len(re.findall(r"[A-Za-z]{2,}", sentence))
    return not chinese and latin >= 4 if language == "zh" else chinese > 4 and chinese > latin


def _meta_words(folded: str) -> Iterator[str]:
    yield from _META.findall(folded)
    yield from _META_ZH.findall(folded)


@lru_cache(maxsize=8)
def _public_words(public: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the grading words and the numbers of a public request."""
    folded = fold(public)
    return frozenset(_meta_words(folded)), frozenset(numbers_in(folded))
