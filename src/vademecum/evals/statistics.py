"""Rates, their intervals, and what a difference is worth; the tests check each formula against scipy."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import NormalDist, fmean, stdev

from msgspec import Struct

CONFIDENCE = 0.95
ROUNDS = 4000
SEED = 20_261_116


class Interval(Struct, frozen=True):
    """Where a rate or a difference lies, with the confidence that was asked for."""

    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Whether no difference at all is among the possible ones."""
        return self.low <= 0.0 <= self.high


class Difference(Struct, frozen=True):
    """How much better or worse, pair by pair: the mean, its interval, and how many more pairs would do.

    ``more`` is 0 where it is settled, and ``None`` where nothing differs at all, so that no number would.
    """

    mean: float
    interval: Interval
    pairs: int
    more: int | None

    @property
    def verdict(self) -> str:
        """In one word."""
        if self.interval.holds_zero:
            return "inconclusive"
        return "better" if self.mean > 0 else "worse"


def wilson(successes: int, total: int, *, confidence: float = CONFIDENCE) -> Interval:
    """The Wilson interval of a rate; of nothing, everything is possible.

    >>> interval = wilson(8, 10)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.49, 0.943)
    """
    if total == 0:
        return Interval(0.0, 1.0)
    z = quantile(confidence)
    rate = successes / total
    centre = rate + z * z / (2 * total)
    margin = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    low = 0.0 if successes == 0 else max(0.0, (centre - margin) / scale)
    high = 1.0 if successes == total else min(1.0, (centre + margin) / scale)
    return Interval(low, high)


def failure_bound(total: int) -> float:
    """The most that failures can be, where there was none in so many: the rule of three."""
    return 1.0 if total == 0 else min(1.0, 3 / total)


def pass_at_k(successes: int, total: int, k: int) -> float:
    """How likely at least one of ``k`` runs is a success.

    >>> pass_at_k(1, 4, 2)
    0.5
    """
    _check_k(total, k)
    return 1 - math.comb(total - successes, k) / math.comb(total, k)


def pass_hat_k(successes: int, total: int, k: int) -> float:
    """How likely all of ``k`` runs are.

    >>> pass_hat_k(3, 4, 2)
    0.5
    """
    _check_k(total, k)
    return math.comb(successes, k) / math.comb(total, k)


def paired(
    differences: Sequence[float], *, confidence: float = CONFIDENCE, rounds: int = ROUNDS, seed: int = SEED
) -> Difference:
    """What differences, one for each case, are worth: a bootstrap over cases, the same every time."""
    if not differences:
        return Difference(0.0, Interval(-1.0, 1.0), 0, None)
    mean = fmean(differences)
    interval = bootstrap(differences, confidence=confidence, rounds=rounds, seed=seed)
    return Difference(
        mean, interval, len(differences), more_cases(differences, interval, confidence=confidence)
    )


def bootstrap(
    values: Sequence[float], *, confidence: float = CONFIDENCE, rounds: int = ROUNDS, seed: int = SEED
) -> Interval:
    """The percentile interval of the mean."""
    if len(set(values)) == 1:
        return Interval(values[0], values[0])
    chance = random.Random(seed)  # noqa: S311 - chance for statistics, the same every time
    size = len(values)
    means = sorted(math.fsum(chance.choices(values, k=size)) / size for _ in range(rounds))
    tail = (1 - confidence) / 2
    return Interval(_at(means, tail), _at(means, 1 - tail))


def more_cases(
    differences: Sequence[float], interval: Interval, *, confidence: float = CONFIDENCE
) -> int | None:
    """How many more cases would settle it, if they are like these; none where nothing differs."""
    if not interval.holds_zero:
        return 0
    mean = fmean(differences)
    if mean == 0 or len(differences) < 2:
        return None
    spread = stdev(differences)
    wanted = math.ceil((quantile(confidence) * spread / mean) ** 2)
    return max(1, wanted - len(differences))


def quantile(confidence: float) -> float:
    """How many standard deviations either side hold that share of a normal distribution."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def _at(ordered: Sequence[float], share: float) -> float:
    """The value at a share of the way, between its neighbours where it falls between two."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _check_k(total: int, k: int) -> None:
    if not 1 <= k <= total:
        raise ValueError(f"k is {k}: of {total} runs, ask for 1 to {total}")
