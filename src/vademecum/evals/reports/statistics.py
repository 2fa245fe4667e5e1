"""Compute rates, intervals and the significance of differences; tests compare each formula with scipy."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from statistics import NormalDist, quantiles

from msgspec import Struct

CONFIDENCE = 0.95
POWER = 0.8
ROUNDS = 4000
SEED = 20_261_116
# How many standard deviations on either side contain that share of a normal distribution.
DEVIATIONS = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
# The fewest differing cases that give a clear result, if all of them differ in the same direction.
LEAST_DIFFERING = math.ceil(math.log2(2 / (1 - CONFIDENCE)))
# To advise more cases than this is useless.
MOST_ADVISED = 1_000_000
# For more cases the sign test uses the normal approximation, which agrees to four places.
_MOST_EXACT = 1000
# For very many cases, fewer rounds are enough.
_MOST_DRAWN, _LEAST_ROUNDS = 8_000_000, 500
# Rates are shares of at most this many repeats; a finer difference between floats is noise.
_FINEST = 1_000_000

Share = Fraction | float


class Interval(Struct, frozen=True):
    """The bounds of a rate or a difference, with the confidence ``CONFIDENCE``."""

    low: float
    high: float

    @property
    def holds_zero(self) -> bool:
        """Return whether the interval contains zero."""
        return self.low <= 0.0 <= self.high


class PairedDifference(Struct, frozen=True):
    """A difference case by case: its mean, its interval, and how many more cases would settle it.

    ``differing`` cases differ at all, and ``chance`` is the probability of their split. ``more`` is 0 if the
    result is clear, ``None`` if it cannot be estimated, and never more than ``MOST_ADVISED + 1``.
    """

    mean: float
    interval: Interval
    pairs: int
    more: int | None
    differing: int = 0
    chance: float = 1.0

    @property
    def verdict(self) -> str:
        """Return the verdict in one word."""
        if self.interval.holds_zero:
            return "inconclusive"
        return "better" if self.mean > 0 else "worse"

    @property
    def advice(self) -> str:
        """Return advice on how to get a clear result; empty if it is clear."""
        if self.more == 0:
            return ""
        if not self.pairs:
            return "no case has a verdict on both sides"
        if not self.differing:
            return "no case differs, so more cases like these would not settle it"
        if self.more is None:
            return "the cases differ in both directions, so no number of cases can be advised"
        if self.more > MOST_ADVISED:
            return "more than a million more cases like these would be needed to settle it"
        differ = "1 of them differs" if self.differing == 1 else f"{self.differing} of them differ"
        few = f"only {differ}, and fewer than {LEAST_DIFFERING} settle nothing; "
        cases = "1 more case" if self.more == 1 else f"{self.more:,} more cases"
        return f"{few if self.differing < LEAST_DIFFERING else ''}about {cases} like these would settle it"


def wilson(successes: Share, total: int) -> Interval:
    """Return the Wilson interval of a rate; without trials it is from 0 to 1.

    A repeated case counts as one trial, with the share of its runs that succeeded.

    >>> interval = wilson(8, 10)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.49, 0.943)
    """
    if total == 0:
        return Interval(0.0, 1.0)
    z = DEVIATIONS
    rate = float(successes / total)
    centre = rate + z * z / (2 * total)
    margin = z * math.sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    low = 0.0 if successes == 0 else max(0.0, (centre - margin) / scale)
    high = 1.0 if successes == total else min(1.0, (centre + margin) / scale)
    return Interval(low, high)


def pass_at_k(successes: int, total: int, k: int) -> float:
    """Return the probability that at least one of ``k`` runs succeeds.

    >>> pass_at_k(1, 4, 2)
    0.5
    """
    return 1 - pass_hat_k(total - successes, total, k)


def pass_hat_k(successes: int, total: int, k: int) -> float:
    """Return the probability that all of ``k`` runs succeed.

    >>> pass_hat_k(3, 4, 2)
    0.5
    """
    if not 1 <= k <= total:
        raise ValueError(f"k is {k}: of {total} runs, ask for 1 to {total}")
    return math.comb(successes, k) / math.comb(total, k)


def paired(differences: Sequence[Share], *, rounds: int = ROUNDS) -> PairedDifference:
    """Return the mean of paired differences with its interval; the random numbers are seeded.

    The interval is a bootstrap over the cases and one extra case in each direction, because a few cases that
    agree prove little. It is widened to contain zero unless the exact sign test excludes zero.
    """
    if not differences:
        return PairedDifference(0.0, Interval(-1.0, 1.0), 0, None)
    found = [Fraction(value).limit_denominator(_FINEST) for value in differences]
    mean = sum(found, Fraction()) / len(found)
    along, against = _split(found, mean)
    chance = sign_test(along, against) if along > against else 1.0
    most = max(map(abs, found)) or 1
    interval = bootstrap([*found, most, -most], rounds=rounds)
    if chance > 1 - CONFIDENCE or interval.holds_zero:
        interval = Interval(min(interval.low, 0.0), max(interval.high, 0.0))
    more = _more_cases(found, mean, along, against) if interval.holds_zero else 0
    return PairedDifference(float(mean), interval, len(found), more, along + against, chance)


def bootstrap(values: Sequence[Share], *, rounds: int = ROUNDS) -> Interval:
    """Return the percentile interval of the mean; the sums are integers, to avoid rounding errors."""
    exact = [Fraction(value) for value in values]
    scale = math.lcm(*(value.denominator for value in exact))
    whole = [int(value * scale) for value in exact]
    size = len(whole)
    rounds = min(rounds, max(_LEAST_ROUNDS, _MOST_DRAWN // size))
    chance = random.Random(SEED)  # noqa: S311 - chance for statistics, the same every time
    sums = sorted(sum(chance.choices(whole, k=size)) for _ in range(rounds))
    means = [Fraction(each, size * scale) for each in sums]
    low, *_, high = quantiles(means, n=round(2 / (1 - CONFIDENCE)), method="inclusive")
    return Interval(float(low), float(high))


def sign_test(one: int, other: int) -> float:
    """Return the probability that chance alone splits the cases at least as unevenly, either way.

    >>> sign_test(5, 0), sign_test(6, 0), sign_test(3, 3)
    (0.0625, 0.03125, 1.0)
    """
    total, most = one + other, max(one, other)
    if total > _MOST_EXACT:
        return min(1.0, 2 * (1 - NormalDist().cdf((2 * most - total - 1) / math.sqrt(total))))
    tail = sum(math.comb(total, count) for count in range(most, total + 1))
    return min(1.0, float(Fraction(2 * tail, 2**total)))


def _more_cases(differences: Sequence[Fraction], mean: Fraction, along: int, against: int) -> int | None:
    """Estimate how many more such cases give a clear result four times out of five, or return None."""
    if along <= against:
        return None
    count, differing = len(differences), along + against
    likely = NormalDist().inv_cdf(POWER)
    spread = math.sqrt(sum(float(value - mean) ** 2 for value in differences) / count)
    share = along / differing
    signs = ((DEVIATIONS / 2 + likely * math.sqrt(share * (1 - share))) / (share - 0.5)) ** 2
    wanted = max(
        ((DEVIATIONS + likely) * spread / float(abs(mean))) ** 2,
        signs * count / differing if against else 0.0,
        LEAST_DIFFERING * count / differing,
    )
    return min(max(1, math.ceil(wanted) - count), MOST_ADVISED + 1)


def _split(differences: Sequence[Fraction], mean: Fraction) -> tuple[int, int]:
    """Return how many cases differ in the direction of the mean, and how many in the other."""
    up, down = sum(value > 0 for value in differences), sum(value < 0 for value in differences)
    return (up, down) if mean > 0 else (down, up) if mean < 0 else (min(up, down), max(up, down))
