"""L2: each formula against scipy."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from scipy import stats

from vademecum.evals import statistics


@pytest.mark.parametrize(("passed", "total"), [(0, 1), (0, 20), (1, 3), (8, 10), (20, 20), (370, 1000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
def test_wilson(passed: int, total: int, confidence: float) -> None:
    theirs = stats.binomtest(passed, total).proportion_ci(confidence, method="wilson")
    ours = statistics.wilson(passed, total, confidence=confidence)
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


def test_how_many_more_cases() -> None:
    """As many as the interval by the normal distribution needs to leave zero out."""
    differences = [1.0, 0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0]
    found = statistics.paired(differences)
    assert found.verdict == "inconclusive"
    spread, mean, z = np.std(differences, ddof=1), np.mean(differences), stats.norm.ppf(0.975)
    assert found.more == math.ceil((z * spread / mean) ** 2) - len(differences)
    assert statistics.quantile(0.95) == pytest.approx(z)
    assert statistics.paired([0.0] * 9).more is None
    assert statistics.paired([1.0] * 9) == statistics.Difference(1.0, statistics.Interval(1.0, 1.0), 9, 0)
    assert statistics.paired([-1.0] * 8 + [0.0]).verdict == "worse"


@pytest.mark.parametrize("total", [30, 100, 1000])
def test_no_failure_in_n(total: int) -> None:
    """The rule of three is where seeing none has a chance of five in a hundred."""
    assert stats.binom.pmf(0, total, statistics.failure_bound(total)) == pytest.approx(0.05, abs=0.01)
    assert statistics.failure_bound(0) == statistics.failure_bound(2) == 1.0
