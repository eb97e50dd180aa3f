"""The last gate before the executor: a deterministic sanitiser of the user simulator's candidate.

Sentence by sentence it drops what speaks of grading, announces completion, repeats an earlier message or carries
hidden content; what is left is what a user could have said. Decisions name kinds, never values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_uniclaw.judge.fingerprints import HiddenFingerprints, features, fold, strip_invisible
from pytest_uniclaw.judge.phrases import phrases

SENTENCES = 3
"""Most sentences of one message."""
CHARACTERS = 1200
"""Longest message."""
CANDIDATE_CHARACTERS = 8 * CHARACTERS
"""How much of a candidate is read."""
ALIKE = 0.92
"""Similarity from which a sentence counts as said before."""

_META = re.compile(
    r"\b(?:scor(?:e|es|ed|ing)|rubrics?|check-?\s?points?|supervis(?:or|ors|ion)|grad(?:er|ers|ing|ed|e|es)|verdicts?|"
    r"benchmarks?|evaluat(?:or|ors|ion|ions|ed|e)|harness|handoff|judg(?:e|es|ed|ement|ements|ments?|ing)|threshold|"
    r"hidden|ground[ -]truth|eval[_ -]rule|answer[ -]keys?|reference (?:answer|solution)s?|pass mark|follow-?up budget|"
    r"partial credit|full (?:credit|marks)|attempt[_ -]state|recoverable|simulat(?:or|ed|ion)|"
    r"points?\s+(?:off|deducted|lost)|rewriter|executor|transcripts?|assessment|assessor|examiner)\b"
)
_META_ZH = re.compile(
    "评分|得分|分数|打分|扣分|满分|检查点|评审|评测|评估|测评|考核|基准测试|判定|裁判|监督者|监督员|阈值|标准答案|参考答案|正确答案|隐藏|"
    "评判|通过线|及格线|模拟用户|评价标准|得了\\s*\\d"
)
_SCORE = re.compile(
    r"(?<![\w.])0?\.\d+\b|(?<![\w.])[01]\.\d+(?![\w.])|\b\d+(?:\.\d+)?\s*%|\b\d+(?:\.\d+)?\s*/\s*\d+(?![\w/])|"
    r"\b\d+(?:\.\d+)?\s+(?:out\s+)?of\s+(?:the\s+)?\d+\b|\b\d+(?:\.\d+)?\s*(?:points?|pts)\b|\d+(?:\.\d+)?\s*分(?![钟之])|"
    r"百分之",
    re.ASCII,
)
_COMPLETION = re.compile(
    r"\A(?:it'?s |that'?s |all )?(?:done|complete|completed|finished|pass|passed|success|successful|perfect)\b[.! ]*\Z|"
    r"\b(?:task|request|work|job|everything|all|it|this|that)(?:'s|'re)?\s+(?:is|are|was|has been|have been|looks)?\s*"
    r"(?:now |all |already |fully )*(?:complete|completed|done|finished|accepted|passed|perfect)\b|"
    r"\b(?:you|i)(?:'ve| have)?\s+(?:now |already |successfully )*(?:passed|succeeded|finished|completed)\b|"
    r"\bno (?:further|more|other) (?:action|actions|changes?|work|steps?)\b|"
    r"\bnothing (?:more|else|further) (?:to do|is needed)\b|"
    r"(?:已|已经)(?:全部)?(?:完成|做完|通过)|任务完成|全部完成|(?:做完|完成|通过|合格|成功)了|大功告成|没有(?:其他)?问题了|无需(?:再|继续)"
)
_SECRET = re.compile(
    r"\b(?:sk|pk|rk|ghp|gho|ghs|xox[abprs]|glpat|hf)[-_][\w-]{8,}|\bgithub_pat_\w+|\bAKIA[0-9A-Z]{12,}|\beyJ[\w-]{10,}\.|"
    r"-----BEGIN|\bBearer\s+\S{8,}|\b(?=[\w+/=-]*\d)(?=[\w+/=-]*[A-Za-z])[A-Za-z0-9+/=_-]{28,}",
    re.ASCII,
)
_SENTENCE_END = re.compile(r"(?<=[。！？])|(?<=[.!?;；])\s+|\n+")


@dataclass(frozen=True)
class Rewritten:
    """The message for the executor and what was decided, as kinds such as ``dropped:number`` or ``fallback``."""

    message: str
    decisions: tuple[str, ...]


def rewrite(
    candidate: str, *, hidden: HiddenFingerprints, public: str, language: str, history: Sequence[str]
) -> Rewritten:
    """Return the message that may be sent. ``history`` holds the follow-ups sent before, without the first request.

    The message has at most 3 sentences and 1200 characters, repeats nothing hidden, and is never empty.
    """
    said = [fold(sentence) for message in history for sentence in split_sentences(message)]
    public_features, folded_public = frozenset(features(public)), fold(public)
    kept: list[str] = []
    decisions: list[str] = []
    for sentence in split_sentences(strip_invisible(candidate[:CANDIDATE_CHARACTERS])):
        kinds = list(hidden.kinds_in(sentence)) + _grading(sentence, folded_public, public_features)
        if _is_repeated(fold(sentence), [*said, *map(fold, kept)]):
            kinds.append("duplicate")
        if not kinds and (len(kept) == SENTENCES or sum(map(len, kept)) + len(sentence) + len(kept) > CHARACTERS):
            kinds.append("length")
        if kinds:
            decisions += [f"dropped:{kind}" for kind in kinds]
        else:
            kept.append(sentence)
    message = _join(kept, language)
    # Two harmless pieces can make a score or a name of their own: "0." and "65".
    across = [*hidden.kinds_in(message), *_grading(message, folded_public, public_features)]
    decisions += [f"dropped:{kind}" for kind in across]
    if message and not across:
        return Rewritten(message, (*decisions, f"kept:{len(kept)}"))
    return Rewritten(_neutral(language, said, hidden), (*decisions, "fallback"))


def split_sentences(text: str) -> list[str]:
    """Split a message into sentences, blank ones left out."""
    return [piece.strip() for piece in _SENTENCE_END.split(text) if any(c.isalnum() for c in piece)]


def _grading(sentence: str, public: str, public_features: frozenset[tuple[str, str]]) -> list[str]:
    """Return the kinds of grading talk in a sentence; words and numbers of the public request are the user's own."""
    folded = fold(sentence)
    kinds = []
    if any(word not in public for pattern in (_META, _META_ZH) for word in pattern.findall(folded)):
        kinds.append("meta")
    if any(set(features(found)) - public_features and found not in public for found in _SCORE.findall(folded)):
        kinds.append("score")
    if _COMPLETION.search(folded):
        kinds.append("completion")
    if _SECRET.search(sentence):
        kinds.append("secret")
    return kinds


def _is_repeated(sentence: str, said: Sequence[str]) -> bool:
    return any(difflib.SequenceMatcher(None, sentence, other).ratio() >= ALIKE for other in said)


def _join(sentences: Sequence[str], language: str) -> str:
    return ("" if language == "zh" else " ").join(sentences)


def _neutral(language: str, said: Sequence[str], hidden: HiddenFingerprints) -> str:
    """Return the first neutral line that was not sent yet and repeats nothing hidden."""
    lines = phrases(language)
    fresh = [line for line in lines["neutral"] if fold(line) not in said and not hidden.kinds_in(line)]
    return (fresh or lines["last_resort"])[0]
