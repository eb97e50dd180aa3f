"""The last gate before the executor: a deterministic sanitiser of the user simulator's candidate.

Sentence by sentence it drops what speaks of grading, announces completion, repeats an earlier message or carries
hidden content; what is left is what a user could have said. Decisions name kinds, never values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_uniclaw.judge.fingerprints import HiddenFingerprints
from pytest_uniclaw.judge.folding import fold, strip_invisible
from pytest_uniclaw.judge.phrases import phrases
from pytest_uniclaw.judge.talk import in_another_language, unlike_a_user

SENTENCES = 3
"""Most sentences of one message."""
CHARACTERS = 1200
"""Longest message."""
CANDIDATE_CHARACTERS = 8 * CHARACTERS
"""How much of a candidate is read."""
ALIKE = 0.92
"""Similarity from which a sentence counts as said before."""
PASSES = 4
"""How often a message is gone over until it stays as it is."""
HARMLESS = frozenset({"duplicate", "length", "language", "voice", "completion"})
"""Kinds that give nothing away; sentences of all other kinds are leaks."""

_SENTENCE_END = re.compile(r"(?<=[。！？])|(?<=[.!?])\s+|\n+")
_LIST_MARK = re.compile(r"^[ \t]*(?:(?:[-*•>]|#{1,6}|[1-9]\d?[.)、])[ \t]+)+", re.MULTILINE)


@dataclass(frozen=True)
class Rewritten:
    """The message for the executor and what was decided, as kinds such as ``dropped:number`` or ``fallback``."""

    message: str
    decisions: tuple[str, ...]


@dataclass(frozen=True)
class Review:
    """What is left of a candidate without its bad sentences, maybe nothing, and the kinds that were dropped."""

    message: str
    kinds: tuple[str, ...]
    kept: int = 0

    @property
    def leaks(self) -> bool:
        """Whether the candidate held something that must not reach the executor."""
        return not HARMLESS.issuperset(self.kinds)


def rewrite(
    candidate: str, *, hidden: HiddenFingerprints, public: str, language: str, history: Sequence[str]
) -> Rewritten:
    """Return the message that may be sent. ``history`` holds the follow-ups sent before, without the first request.

    The message has at most 3 sentences and 1200 characters, repeats nothing hidden, and is never empty.
    """
    found = review(candidate, hidden=hidden, public=public, language=language, history=history)
    dropped = tuple(f"dropped:{kind}" for kind in found.kinds)
    if found.message:
        return Rewritten(found.message, (*dropped, f"kept:{found.kept}"))
    return Rewritten(neutral_line(hidden=hidden, language=language, history=history), (*dropped, "fallback"))


def review(candidate: str, *, hidden: HiddenFingerprints, public: str, language: str, history: Sequence[str]) -> Review:
    """Say what may stay of a candidate, and by kinds what may not. Arguments as for :func:`rewrite`."""
    said = [fold(sentence) for message in history for sentence in split_sentences(message)]
    text, kinds, kept = strip_invisible(candidate[:CANDIDATE_CHARACTERS]), list[str](), list[str]()
    for _ in range(PASSES):
        clean, dropped = _clean(text, hidden, public, language)
        # Two harmless pieces can make a score or a name of their own: "0." and "65".
        together = _join(clean, language)
        across = [*hidden.kinds_in(together), *unlike_a_user(together, public)] if clean else []
        across += [kind for kind in hidden.kinds_in(text) if kind not in dropped]
        kept, more = _short(clean, said)
        kinds += [*dropped, *dict.fromkeys(across), *more]
        if across:
            break
        message = _join(kept, language)
        if message == text:
            return Review(message, tuple(kinds), len(kept))
        text = message
    return Review("", tuple(kinds))


def neutral_line(*, hidden: HiddenFingerprints, language: str, history: Sequence[str]) -> str:
    """Return the first neutral line that was not sent yet and repeats nothing hidden."""
    lines = phrases(language)
    said = {fold(sentence) for message in history for sentence in split_sentences(message)}
    fresh = [line for line in lines["neutral"] if fold(line) not in said and not hidden.kinds_in(line)]
    return (fresh or lines["last_resort"])[0]


def split_sentences(text: str) -> list[str]:
    """Split a message into sentences, blank ones and list marks left out."""
    pieces = _SENTENCE_END.split(_LIST_MARK.sub("", text))
    return [piece.strip() for piece in pieces if any(c.isalnum() for c in piece)]


def _clean(text: str, hidden: HiddenFingerprints, public: str, language: str) -> tuple[list[str], list[str]]:
    """Return the sentences that a user could have said, and the kinds of the others."""
    kept: list[str] = []
    dropped: list[str] = []
    for sentence in split_sentences(text):
        kinds = [*hidden.kinds_in(sentence), *unlike_a_user(sentence, public)]
        if in_another_language(sentence, language):
            kinds.append("language")
        dropped += kinds
        kept += [] if kinds else [sentence]
    return kept, dropped


def _short(sentences: Sequence[str], said: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the sentences that are new and have room, and the kinds of the others."""
    kept: list[str] = []
    dropped: list[str] = []
    for sentence in sentences:
        if _is_repeated(fold(sentence), [*said, *map(fold, kept)]):
            dropped.append("duplicate")
        elif len(kept) == SENTENCES or sum(map(len, kept)) + len(sentence) + len(kept) > CHARACTERS:
            dropped.append("length")
        else:
            kept.append(sentence)
    return kept, dropped


def _is_repeated(sentence: str, said: Sequence[str]) -> bool:
    return any(difflib.SequenceMatcher(None, sentence, other).ratio() >= ALIKE for other in said)


def _join(sentences: Sequence[str], language: str) -> str:
    return ("" if language == "zh" else " ").join(sentences)
