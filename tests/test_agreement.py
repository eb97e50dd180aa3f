"""Agreement between graders, against published figures and by hand."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_uniclaw.report.agreement import (
    Grade,
    Grading,
    cohen_kappa,
    compare,
    interval,
    krippendorff,
    nominal,
    pearson,
    spearman,
    spread,
)

COMPUTING_ALPHA = (
    (1, 1, None, 1), (2, 2, 3, 2), (3, 3, 3, 3), (3, 3, 3, 3), (2, 2, 2, 2), (1, 2, 3, 4), (4, 4, 4, 4),
    (1, 1, 2, 1), (2, 2, 2, 2), (None, 5, 5, 5), (None, None, 1, 1), (None, 3, None, None),
)  # fmt: skip
"""Four observers, twelve units: the example of Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011)."""


def test_alpha_of_the_published_example() -> None:
    units = [[float(v) for v in unit if v is not None] for unit in COMPUTING_ALPHA]
    alphas = [krippendorff(units, distances) or 0 for distances in (nominal, interval)]
    assert [round(alpha, 3) for alpha in alphas] == [0.743, 0.849]


@given(st.lists(st.floats(0, 1), max_size=30))
def test_distances_are_those_of_all_ordered_pairs(values: list[float]) -> None:
    pairs = list(permutations(values, 2))
    assert nominal(values) == sum(a != b for a, b in pairs)
    if values:
        assert interval(values) == pytest.approx(sum((a - b) ** 2 for a, b in pairs), abs=1e-9)


def test_kappa_of_a_table_done_by_hand() -> None:
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    assert cohen_kappa(pairs) == pytest.approx(0.4)  # observed 0.7, by chance 0.5


def test_correlations() -> None:
    assert pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1.0)
    assert pearson([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    assert spearman([1, 2, 3, 4], [1, 10, 100, 1000]) == pytest.approx(1.0)
    assert spearman([1, 1, 2, 3], [1, 2, 3, 4]) == pytest.approx(3 / math.sqrt(10))


def test_what_has_no_variance_is_unknown() -> None:
    assert cohen_kappa([(True, True)] * 5) is None
    assert krippendorff([[0.1, 0.1], [0.1, 0.1]], interval) is None
    assert krippendorff([[0.0, 1e-200]], interval) is None, "nor what is too little for its square"
    assert pearson([1, 1], [1, 2]) is None
    assert cohen_kappa([]) is None


def grading(*scores: float) -> Grading:
    return {(f"t{n}", "a"): Grade(score >= 0.9, score) for n, score in enumerate(scores)}


def test_two_equal_gradings() -> None:
    same = compare(grading(1.0, 0.5, 0.0, 0.95), grading(1.0, 0.5, 0.0, 0.95), resamples=50)
    assert [round(f.value, 6) for f in same.figures if f.value is not None] == [1, 1, 1, 1, 1, 1, 0]
    assert (same.attempts, same.tasks, same.disagreements) == (4, 4, ())


def test_what_never_varies_has_no_interval() -> None:
    same = compare(grading(1.0, 0.5, 0.0, 0.95), grading(1.0, 0.5, 0.0, 0.95), resamples=50)
    assert [(f.low, f.high) for f in same.figures] == [(None, None)] * 7


def test_a_disagreement_is_named_and_the_unshared_are_counted() -> None:
    found = compare({**grading(1.0, 0.5), ("x",): Grade(True, 1.0)}, grading(0.8, 0.5, 0.2), resamples=50)
    assert found.disagreements == (("t0", "a"),)
    assert (found.attempts, found.only_first, found.only_second) == (2, 1, 1)
    values = {f.name: f.value for f in found.figures}
    assert values["same verdict"] == 0.5
    assert values["mean absolute error"] == pytest.approx(0.1)


def test_intervals_draw_tasks_and_repeat_with_their_seed() -> None:
    first = {(f"t{n % 10}", str(n)): Grade(n % 3 == 0, (n % 7) / 7) for n in range(60)}
    second = {key: Grade(grade.passed != (key[0] == "t1"), grade.score) for key, grade in first.items()}
    one, two = compare(first, second, resamples=200), compare(first, second, resamples=200)
    assert one == two
    agreement = one.figures[0]
    assert agreement.value == pytest.approx(0.9)
    assert agreement.low is not None
    assert agreement.high is not None
    assert agreement.low <= 0.8 < 1.0 == agreement.high  # one task in ten disagrees wholly: a wide interval


def test_gradings_without_a_common_attempt_are_refused() -> None:
    with pytest.raises(ValueError, match="no attempt in common"):
        compare(grading(1.0), {("other",): Grade(True)})


def test_the_spread_of_a_judge_against_itself() -> None:
    found = spread([grading(1.0, 0.5), grading(0.8, 0.5), grading(0.9, 0.4)])
    assert found.score_range == pytest.approx(0.15)
    assert (found.gradings, found.attempts, found.flipped) == (3, 2, 0.5)


def test_pass_or_fail_alone_is_compared_too() -> None:
    human = {("t0", "a"): Grade(True), ("t1", "a"): Grade(False)}
    found = compare(grading(1.0, 0.5), human, resamples=20)
    values = {f.name: f.value for f in found.figures}
    assert values["Cohen kappa"] == 1.0
    assert values["Pearson"] is None
