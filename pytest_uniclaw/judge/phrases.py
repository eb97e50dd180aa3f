"""The sentences of the template user and of the rewriter's fallback, and the words that give nothing away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import yaml

_FOLDER = Path(__file__).parent / "followups"


@cache
def phrases(language: str) -> Mapping[str, tuple[str, ...]]:
    """Return the sentences by slot, in English for a language that has no file."""
    path = _FOLDER / f"{'zh' if language.startswith('zh') else 'en'}.yaml"
    slots = yaml.safe_load(path.read_text("utf-8"))
    return {str(slot): tuple(map(str, lines)) for slot, lines in slots.items()}


@cache
def common_words() -> frozenset[str]:
    """Return the words, English and Chinese, that are too common to be a hidden answer."""
    lists = yaml.safe_load((_FOLDER / "words.yaml").read_text("utf-8"))
    return frozenset(word for text in lists.values() for word in str(text).split())


@cache
def canned_text() -> str:
    """Return every sentence that the project itself may say to an agent."""
    return "\n".join(line for language in ("en", "zh") for lines in phrases(language).values() for line in lines)


def explained(kinds: Iterable[str]) -> str:
    """Return what is wrong with a message in words for its writer, one line a kind."""
    reasons = yaml.safe_load((_FOLDER / "reasons.yaml").read_text("utf-8"))
    return "\n".join(dict.fromkeys(f"- {reasons.get(kind, reasons['other'])}" for kind in kinds))
