"""The leak benchmark in its short form: the held-out half reaches its targets, and indexing is quick."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import pytest

from pytest_uniclaw.judge.fingerprints import HiddenFingerprints

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import leak_held
import leaks
from leak_tools import World

HELD, OPEN = list(leak_held.worlds()), list(leaks.open_half())


@pytest.fixture(scope="module")
def held() -> leaks.Tally:
    return leaks.measure(leaks.synthetic(HELD))


def test_there_are_enough_cases_of_every_sort() -> None:
    for worlds in (HELD, OPEN):
        found = [leak for world in worlds for leak in world.leaks]
        assert len(found) >= 300
        assert len({leak.kind for leak in found} - {leaks.PARAPHRASE}) >= 12
        assert {leak.language for leak in found} == {"en", "zh", "mixed"}
        assert len({text for world in worlds for text in world.harmless}) >= 100


def test_the_halves_share_nothing() -> None:
    def texts(worlds: list[World]) -> set[str]:
        return {text for w in worlds for text in (w.public, *w.harmless, *(leak.sentence for leak in w.leaks))}

    assert not texts(HELD) & texts(OPEN)


def test_the_held_out_leaks_are_caught(held: leaks.Tally) -> None:
    assert held.recall >= leaks.RECALL, [(leak.kind, leak.sentence) for leak in held.missed]
    for kind, number in held.leaks.items():
        assert kind == leaks.PARAPHRASE or held.caught[kind] / number >= 0.9, kind


def test_held_out_harmless_messages_are_left_alone(held: leaks.Tally) -> None:
    assert held.false_positives <= leaks.FALSE_POSITIVES, held.wronged


def test_a_rubric_is_indexed_in_linear_time() -> None:
    """Four times the text: 4 times the time when linear, 16 times when quadratic. The benchmark holds the seconds."""
    short, long = (min(_cpu_seconds(leaks.long_rubric(size)) for _ in range(3)) for size in (50_000, 200_000))
    assert long <= 8 * short, (short, long)


def _cpu_seconds(text: str) -> float:
    began = time.process_time()
    HiddenFingerprints.build([text], "Please add the numbers.")
    return time.process_time() - began


def test_the_worlds_come_from_their_seeds_alone() -> None:
    random.seed(1)
    assert list(leak_held.worlds()) == HELD
    assert list(leak_held.worlds(5)) != HELD
