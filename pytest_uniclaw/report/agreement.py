"""How far two graders agree: the study of paper section 4.2 over any two gradings of the same attempts.

Pass and fail: share of equal verdicts, Cohen's kappa, Krippendorff's alpha (nominal). Scores: Pearson, Spearman,
Krippendorff's alpha (interval), mean absolute error. Intervals are percentile bootstraps that draw *tasks*, because
the attempts of one task resemble each other. A figure that the data does not define (no variance) is None.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 20260708


@dataclass(frozen=True)
class Grade:
    """One grader's word on one attempt. ``score`` is within 0 and 1, None where only pass or fail is known."""

    passed: bool
    score: float | None = None


Grading = Mapping[tuple[str, ...], Grade]
"""The grades of one grader by (task id, and whatever else tells attempts apart)."""


@dataclass(frozen=True)
class Figure:
    """A statistic with its confidence interval; every part is None where it is not defined."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Agreement:
    """What two graders share. ``only_first`` and ``only_second`` count the attempts that just one of them graded."""

    attempts: int
    tasks: int
    only_first: int
    only_second: int
    figures: tuple[Figure, ...]
    disagreements: tuple[tuple[str, ...], ...]


Pair = tuple[Grade, Grade]


def compare(first: Grading, second: Grading, *, resamples: int = RESAMPLES, seed: int = SEED) -> Agreement:
    """Compare two gradings over the attempts that both graded. Raises ValueError when there is none."""
    shared = sorted(first.keys() & second.keys())
    if not shared:
        raise ValueError("the two gradings have no attempt in common")
    by_task: dict[str, list[Pair]] = defaultdict(list)
    for key in shared:
        by_task[key[0]].append((first[key], second[key]))
    clusters = list(by_task.values())
    draws = _draws(clusters, resamples, seed)
    figures = tuple(_figure(name, statistic, clusters, draws) for name, statistic in STATISTICS)
    return Agreement(
        attempts=len(shared), tasks=len(clusters), only_first=len(first.keys() - second.keys()),
        only_second=len(second.keys() - first.keys()), figures=figures,
        disagreements=tuple(key for key in shared if first[key].passed != second[key].passed),
    )  # fmt: skip


@dataclass(frozen=True)
class Spread:
    """How far repeated gradings of the same attempts differ: a judge against itself.

    ``score_range`` is the mean over attempts of the largest less the smallest score, ``flipped`` the share of attempts
    that did not get one verdict from all, ``alpha`` Krippendorff's over scores.
    """

    gradings: int
    attempts: int
    score_range: float | None
    flipped: float
    alpha: float | None


def spread(gradings: Sequence[Grading]) -> Spread:
    """Return the spread of two or more gradings over what all graded. Raises ValueError when that is nothing."""
    shared = sorted(set.intersection(*(set(g) for g in gradings))) if gradings else []
    if len(gradings) < 2 or not shared:
        raise ValueError("a spread needs two gradings with an attempt in common")
    rows = [[grading[key] for grading in gradings] for key in shared]
    scores = [[g.score for g in row if g.score is not None] for row in rows]
    full = [row for row in scores if len(row) == len(gradings)]
    return Spread(
        gradings=len(gradings), attempts=len(shared),
        score_range=fmean(max(row) - min(row) for row in full) if full else None,
        flipped=fmean(len({g.passed for g in row}) > 1 for row in rows), alpha=krippendorff(scores, interval),
    )  # fmt: skip


def cohen_kappa(pairs: Sequence[tuple[object, object]]) -> float | None:
    """Cohen's kappa of two raters over nominal categories (Cohen 1960); None when chance alone agrees wholly."""
    if not pairs:
        return None
    total = len(pairs)
    observed = sum(a == b for a, b in pairs) / total
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    expected = sum(first[c] * second[c] for c in first) / total**2
    return None if math.isclose(expected, 1.0) else (observed - expected) / (1 - expected)


def krippendorff(units: Sequence[Sequence[float]], distances: Callable[[Sequence[float]], float]) -> float | None:
    """Krippendorff's alpha of any number of raters with missing values (Krippendorff 2011).

    ``units`` holds the values that each unit got; units with fewer than two values say nothing. ``distances`` adds up
    the distances of all ordered pairs of some values: :func:`nominal` or :func:`interval`.
    """
    kept = [unit for unit in units if len(unit) > 1]
    values = [value for unit in kept for value in unit]
    expected = distances(values) if len(set(values)) > 1 else 0.0
    observed = sum(distances(unit) / (len(unit) - 1) for unit in kept)
    return 1 - (len(values) - 1) * observed / expected if expected else None


def nominal(values: Sequence[float]) -> float:
    """Return how many ordered pairs of the values differ."""
    return float(len(values) ** 2 - sum(count**2 for count in Counter(values).values()))


def interval(values: Sequence[float]) -> float:
    """Return the sum of the squared differences over all ordered pairs of the values."""
    mean = fmean(values)
    return 2 * len(values) * math.fsum((value - mean) ** 2 for value in values)


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson's correlation; None for fewer than two points or a constant."""
    if len(first) < 2:
        return None
    mean_a, mean_b = fmean(first), fmean(second)
    spread_a, spread_b = (math.fsum((x - m) ** 2 for x in v) for v, m in ((first, mean_a), (second, mean_b)))
    if spread_a == 0 or spread_b == 0:
        return None
    product = math.fsum((a - mean_a) * (b - mean_b) for a, b in zip(first, second, strict=True))
    return product / math.sqrt(spread_a * spread_b)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties at their mean rank."""
    return pearson(_ranks(first), _ranks(second))


def _ranks(values: Sequence[float]) -> list[float]:
    places: dict[float, list[int]] = defaultdict(list)
    for place, value in enumerate(sorted(values), start=1):
        places[value].append(place)
    return [fmean(places[value]) for value in values]


def _scored(pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
    both = [(a.score, b.score) for a, b in pairs if a.score is not None and b.score is not None]
    return [a for a, _ in both], [b for _, b in both]


def _same_verdict(pairs: Sequence[Pair]) -> float | None:
    return fmean(a.passed == b.passed for a, b in pairs) if pairs else None


def _kappa(pairs: Sequence[Pair]) -> float | None:
    return cohen_kappa([(a.passed, b.passed) for a, b in pairs])


def _verdict_alpha(pairs: Sequence[Pair]) -> float | None:
    return krippendorff([(float(a.passed), float(b.passed)) for a, b in pairs], nominal)


def _score_alpha(pairs: Sequence[Pair]) -> float | None:
    return krippendorff(list(zip(*_scored(pairs), strict=True)), interval)


def _pearson(pairs: Sequence[Pair]) -> float | None:
    return pearson(*_scored(pairs))


def _spearman(pairs: Sequence[Pair]) -> float | None:
    return spearman(*_scored(pairs))


def _absolute_error(pairs: Sequence[Pair]) -> float | None:
    first, second = _scored(pairs)
    return fmean(abs(a - b) for a, b in zip(first, second, strict=True)) if first else None


STATISTICS: tuple[tuple[str, Callable[[Sequence[Pair]], float | None]], ...] = (
    ("same verdict", _same_verdict),
    ("Cohen kappa", _kappa),
    ("Krippendorff alpha, verdict", _verdict_alpha),
    ("Krippendorff alpha, score", _score_alpha),
    ("Pearson", _pearson),
    ("Spearman", _spearman),
    ("mean absolute error", _absolute_error),
)
"""What a comparison holds, in this order."""


def _draws(clusters: Sequence[list[Pair]], resamples: int, seed: int) -> list[list[int]]:
    """Return for each resample the clusters drawn, with replacement."""
    chance = random.Random(seed)
    return [chance.choices(range(len(clusters)), k=len(clusters)) for _ in range(resamples)]


def _figure(
    name: str, statistic: Callable[[Sequence[Pair]], float | None], clusters: Sequence[list[Pair]],
    draws: Sequence[Sequence[int]],
) -> Figure:  # fmt: skip
    value = statistic([pair for cluster in clusters for pair in cluster])
    if value is None or len(clusters) < 2:
        return Figure(name, value)
    drawn = [statistic([pair for index in draw for pair in clusters[index]]) for draw in draws]
    known = sorted(found for found in drawn if found is not None)
    if len(known) < len(drawn) / 2:  # most resamples have no variance: an interval of the rest would flatter
        return Figure(name, value)
    tail = (1 - CONFIDENCE) / 2
    low, high = (known[min(len(known) - 1, int(len(known) * share))] for share in (tail, 1 - tail))
    if low == high == value:  # resampling what does not vary says nothing of how sure the figure is
        return Figure(name, value)
    return Figure(name, value, low, high)
