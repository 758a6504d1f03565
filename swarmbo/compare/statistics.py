"""Means over seeds, and paired differences with bootstrap intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, ShapeError

BySeed = Mapping[int, float]  # outcomes of a method
FEWEST_PAIRS = 6  # n differences have one sign by chance with probability 2^(1 - n): over 5 % with fewer


class PairedDifference(msgspec.Struct, frozen=True):
    """Mean difference of two methods over their common seeds.

    Args:
        mean: Mean of method minus reference, in the unit of the values.
        low: Lower end of the bootstrap interval; None with fewer than two pairs, or values that are not finite.
        high: Upper end of the bootstrap interval; None like ``low``.
        n_pairs: Number of common seeds.
        unpaired: Seeds that only one of the methods has, sorted.
    """

    mean: float
    low: float | None
    high: float | None
    n_pairs: int
    unpaired: list[int]

    @property
    def is_clear(self) -> bool:
        """True if the interval lies on one side of zero, with at least ``FEWEST_PAIRS`` pairs.

        The interval lies within the range of the differences. So with two pairs of equal methods, half of all intervals
        would lie on one side of zero by chance.
        """
        if self.low is None or self.high is None or self.n_pairs < FEWEST_PAIRS:
            return False
        return self.low > 0 or self.high < 0


def paired_difference(
    method: BySeed, reference: BySeed, level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> PairedDifference:
    """Mean of the differences by seed, with a bootstrap interval.

    Methods with equal seeds share field, starts and noise; paired differences remove the effects of all three.

    Source: Efron (1987), Better bootstrap confidence intervals (BCa), as in ``scipy.stats.bootstrap``.

    Args:
        method: Outcome of the method by seed.
        reference: Outcome of the reference by seed.
        level: Confidence level, between 0 and 1.
        resamples: Bootstrap resamples, at least 1.
        seed: Seed of the resampling.

    Returns:
        The difference; its interval has no width if all differences are equal.

    Raises:
        ConfigError: If the level is not between 0 and 1.
        ShapeError: If no seed is in both.

    Example:
        >>> difference = paired_difference({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 3.0, 7: 9.0})
        >>> difference.mean, difference.n_pairs, difference.unpaired
        (2.0, 3, [7])
    """
    if not 0 < level < 1:
        raise ConfigError(f"got {level}; wanted a number between 0 and 1", at="$.level")
    seeds = sorted(method.keys() & reference.keys())
    if not seeds:
        raise ShapeError(f"no seed is in both: got {sorted(method)} and {sorted(reference)}")
    differences = np.array([method[key] - reference[key] for key in seeds])
    unpaired = sorted(method.keys() ^ reference.keys())
    ends = mean_interval(differences, level, resamples, seed)
    return PairedDifference(float(differences.mean()), *ends, len(seeds), unpaired)


def mean_interval(
    values: ArrayLike, level: float = 0.95, resamples: int = 9999, seed: int = 0
) -> tuple[float | None, float | None]:
    """Bootstrap interval (BCa) of a mean; (None, None) for fewer than two values, or if any is not finite."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2 or not np.isfinite(values).all():
        return None, None
    start, spread = values[0], np.ptp(values)
    if spread == 0:  # BCa divides by the spread
        return float(start), float(start)
    unit = (values - start) / spread  # scaled, as powers of a tiny or nearly constant sample are rounding errors
    draws: dict[str, Any] = {"n_resamples": resamples, "rng": stream(seed, "bootstrap")}
    found = stats.bootstrap((unit,), np.mean, confidence_level=level, method="BCa", **draws)
    # clipped to the range of the values: rounding could move an end at zero to either side
    low, high = np.clip(start + spread * np.array(found.confidence_interval), values.min(), values.max())
    return float(low), float(high)


def paired_p(method: BySeed, reference: BySeed) -> float | None:
    """Two-sided p-value of Wilcoxon's signed-rank test; None for fewer than ``FEWEST_PAIRS``, or if any is not finite.

    Source: Wilcoxon 1945, without equal pairs; exact for up to 50 pairs, 13 with ties (``scipy.stats.wilcoxon``).
    """
    differences = np.array([method[key] - reference[key] for key in sorted(method.keys() & reference.keys())])
    if len(differences) < FEWEST_PAIRS or not np.isfinite(differences).all():
        return None
    unequal = differences[differences != 0.0]  # with equal pairs, SciPy approximates for more than 13 pairs
    return float(stats.wilcoxon(unequal).pvalue) if len(unequal) else 1.0


def differ(method: BySeed, reference: BySeed, found: PairedDifference, level: float = 0.95) -> bool:
    """True if the interval of a difference is clear, and its p-value agrees: an interval of few pairs is too narrow."""
    return found.is_clear and (paired_p(method, reference) or 0.0) <= 1.0 - level


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted for multiple tests: the least family-wise error rate at which each hypothesis is rejected.

    Source: Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    adjusted, above = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        above = max(above, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = above
    return adjusted
