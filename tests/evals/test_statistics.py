"""L2: each formula against scipy."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from vademecum.evals.reports import statistics
from vademecum.evals.reports.summary import summarise
from vademecum.evals.results import CaseResult, Evaluation, Header
from vademecum.evals.units import Configuration


@pytest.mark.parametrize(("passed", "total"), [(0, 1), (0, 20), (1, 3), (8, 10), (20, 20), (370, 1000)])
def test_wilson(passed: int, total: int) -> None:
    theirs = stats.binomtest(passed, total).proportion_ci(0.95, method="wilson")
    ours = statistics.wilson(passed, total)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_of_nothing_everything_is_possible() -> None:
    assert statistics.wilson(0, 0) == statistics.Interval(0.0, 1.0)
    assert statistics.paired([]).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("passed", "total", "k"), [(0, 5, 2), (1, 5, 1), (3, 5, 2), (3, 5, 5), (5, 5, 3), (17, 40, 10)]
)
def test_pass_at_k_and_pass_hat_k(passed: int, total: int, k: int) -> None:
    drawn = stats.hypergeom(total, passed, k)
    assert statistics.pass_at_k(passed, total, k) == pytest.approx(1 - drawn.pmf(0))
    assert statistics.pass_hat_k(passed, total, k) == pytest.approx(drawn.pmf(k))
    with pytest.raises(ValueError, match="k is"):
        statistics.pass_at_k(passed, total, total + 1)


@pytest.mark.parametrize("seed", range(4))
def test_bootstrap(seed: int) -> None:
    chance = random.Random(seed)
    values = [chance.choice([-1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 1.0]) for _ in range(80)]
    theirs = stats.bootstrap((np.array(values),), np.mean, method="percentile", rng=seed).confidence_interval
    ours = statistics.bootstrap(values)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.03)
    assert statistics.bootstrap(values) == ours


@pytest.mark.parametrize(
    ("one", "other"), [(0, 0), (1, 0), (5, 0), (6, 0), (3, 3), (9, 2), (60, 40), (520, 480)]
)
def test_the_test_of_signs(one: int, other: int) -> None:
    theirs = stats.binomtest(one, one + other).pvalue if one + other else 1.0
    assert statistics.sign_test(one, other) == statistics.sign_test(other, one) == pytest.approx(theirs)


def test_the_test_of_signs_for_very_many() -> None:
    theirs = stats.binomtest(25_300, 50_000).pvalue
    assert statistics.sign_test(25_300, 24_700) == pytest.approx(theirs, rel=0.001)


@pytest.mark.parametrize("value", [1, Fraction(1, 2), Fraction(1, 3), -1])
def test_few_cases_settle_nothing(value: Fraction) -> None:
    """Below six differing cases a coin does as well one time in twenty, however much they differ."""
    assert statistics.LEAST_DIFFERING == 6
    for count in range(1, 6):
        found = statistics.paired([value] * count + [0] * 3)
        assert (found.verdict, found.differing) == ("inconclusive", count)
        assert found.interval.low < found.interval.high
        assert f"only {count} of them differ" in found.advice
    found = statistics.paired([value] * 6)
    assert found.verdict == ("better" if value > 0 else "worse")
    assert found.interval.low < found.interval.high


@pytest.mark.parametrize(("up", "down"), [(5, 1), (1, 1), (3, 0), (12, 3), (30, 10)])
def test_no_rounding_decides(up: int, down: int) -> None:
    """Thirds as floats, thirds as fractions and whole cases come to the same."""
    floats = statistics.paired([1 - 2 / 3] * up + [1 / 3 - 2 / 3] * down)
    exact = statistics.paired([Fraction(1, 3)] * up + [Fraction(-1, 3)] * down)
    whole = statistics.paired([1] * up + [-1] * down)
    assert floats == exact
    assert (exact.verdict, exact.more, exact.advice) == (whole.verdict, whole.more, whole.advice)


def test_what_chance_does_is_seldom_called_a_difference() -> None:
    """Where nothing is better or worse, at most one time in twenty it is said to be."""
    chance = random.Random(11)
    for count in (6, 12, 25, 60):
        wrong = sum(
            statistics.paired(chance.choices((0, 1, -1), (4, 3, 3), k=count), rounds=200).verdict
            != "inconclusive"
            for _ in range(400)
        )
        assert wrong <= 400 * 0.05 + 10


def test_the_interval_holds_what_is_true() -> None:
    chance = random.Random(12)
    for count, weights in ((8, (5, 4, 1)), (20, (2, 7, 1)), (50, (8, 1, 1)), (12, (1, 9, 0))):
        true = (weights[1] - weights[2]) / sum(weights)
        drawn = [
            statistics.paired(chance.choices((0, 1, -1), weights, k=count), rounds=200) for _ in range(300)
        ]
        assert sum(one.interval.low <= true <= one.interval.high for one in drawn) >= 300 * 0.9


@pytest.mark.parametrize(("same", "up", "down"), [(0, 5, 1), (6, 5, 2), (20, 6, 2), (2, 3, 0)])
def test_how_many_more_cases_by_trying_it(same: int, up: int, down: int) -> None:
    """With so many more of the same kind it is settled most of the time, with a third of them it is not."""
    values = [0] * same + [1] * up + [-1] * down
    found = statistics.paired(values)
    assert found.verdict == "inconclusive"
    assert found.more is not None
    chance = random.Random(13)

    def settled(more: int) -> float:
        drawn = (chance.choices(values, k=len(values) + more) for _ in range(150))
        return sum(statistics.paired(each, rounds=200).verdict == "better" for each in drawn) / 150

    assert settled(found.more) > 0.6
    assert down == 0 or settled(found.more // 4) < settled(found.more) - 0.1


def test_how_many_more_cases_is_never_absurd() -> None:
    assert statistics.paired([0] * 9).advice.startswith("no case differs")
    for both in ([1, -1], [0.5, 0.5, -1], [Fraction(1, 4)] * 2 + [-1]):
        found = statistics.paired(both)
        assert (found.more, found.verdict) == (None, "inconclusive")
        assert "no number of cases can be advised" in found.advice
    endless = statistics.paired([1] * 1001 + [-1] * 1000 + [0] * 1000)
    assert endless.more == statistics.MOST_ADVISED + 1
    assert endless.advice == "more than a million more cases like these would be needed to settle it"
    assert statistics.paired([]).advice == "no case has a verdict on both sides"
    assert statistics.paired([1] * 5).advice.endswith("about 1 more case like these would settle it")
    assert (statistics.paired([1] * 9).more, statistics.paired([1] * 9).advice) == (0, "")
    assert pytest.approx(stats.norm.ppf(0.975)) == statistics.DEVIATIONS


def test_cases_that_pass_in_part_lie_between() -> None:
    half = statistics.wilson(Fraction(15, 2), 10)
    assert statistics.wilson(7, 10).low < half.low < statistics.wilson(8, 10).low
    assert statistics.wilson(7, 10).high < half.high < statistics.wilson(8, 10).high


@pytest.mark.parametrize("total", [30, 100, 1000])
def test_no_failure_in_n(total: int) -> None:
    """The rule of three is where seeing none has a chance of five in a hundred."""
    header = Header("n", "", 0.0, (Configuration("x"),), (), (), ())
    results = tuple(CaseResult(str(case), str(case), "x", 1, "pass") for case in range(total))
    (column,) = summarise(Evaluation(header, results)).columns
    assert stats.binom.pmf(0, total, column.rate.failures_at_most) == pytest.approx(0.05, abs=0.01)
