"""Outcomes of a sum and of its factors, one entry each, in the order of time, and their standardisation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief.gp.cholesky import EPSILON
from swarmbo.belief.gp.hyperparameters import TOTAL, AdditiveHyperparameters, Scopes
from swarmbo.kernels import KERNEL_NAMES

Table = Float[np.ndarray, "t _"]
Column = Float[np.ndarray, " t"]
_PER_OUTCOME = ("row", "channel", "outcome", "noise", "rounds")
LEAST_NOISE = 1e-8  # relative to the variance of outcomes: 1e-4 of their standard deviation


@dataclass(frozen=True, eq=False)
class Observations:
    """Outcomes, one entry each. Several outcomes may have the same joint point, which is then stored once."""

    places: Float[np.ndarray, "t n"]  # joint points in the unit cube
    row: Int[np.ndarray, " r"]  # index in ``places`` of each outcome's point
    channel: Int[np.ndarray, " r"]  # ``TOTAL`` or the index of a factor
    outcome: Float[np.ndarray, " r"]  # physical; NaN for points that are pending
    noise: Float[np.ndarray, " r"]  # variance, physical; NaN where the fitted variance is used
    rounds: Float[np.ndarray, " r"]  # without effect unless there is a time axis
    is_floored: bool = False  # True if the noise is already raised to ``LEAST_NOISE``: see ``floored``

    @classmethod
    def of(cls, U: Table, totals: Column, factors: Table, noise: Table, rounds: Column | None = None) -> "Observations":
        """Entries of a table with one row per evaluation: its total first, then factors; NaN means not observed."""
        rounds = np.zeros(len(U)) if rounds is None else rounds
        table = np.concatenate([totals[:, None], factors], axis=1)
        rows, columns = np.nonzero(~np.isnan(table))
        return cls(U, rows, columns - 1, table[rows, columns], noise[rows, columns], rounds[rows])

    @classmethod
    def pending(
        cls, U: Table, awaited: Bool[np.ndarray, "p k"], rounds: Column | None = None, *, in_sum: bool
    ) -> "Observations":
        """Pending outcomes of the ``awaited`` factors (p, k); ``in_sum``: where all factors are awaited, the total."""
        rounds = np.zeros(len(U)) if rounds is None else rounds
        total = awaited.all(axis=1, keepdims=True) & in_sum
        rows, columns = np.nonzero(np.concatenate([total, awaited & ~total], axis=1))
        unknown = np.full(len(rows), np.nan)
        return cls(U, rows, columns - 1, unknown, unknown, rounds[rows])

    def __len__(self) -> int:
        return len(self.channel)

    @property
    def U(self) -> Float[np.ndarray, "r n"]:  # noqa: N802
        """Joint point of each outcome; :meth:`at` gives a few coordinates of it faster."""
        return self.places[self.row]

    def at(self, scope: Sequence[int]) -> Float[np.ndarray, "r a"]:
        """Coordinates in a scope of each outcome's joint point."""
        return self.places[self.row[:, None], np.array(scope)]

    def take(self, rows: Bool[np.ndarray, " r"] | Int[np.ndarray, " s"] | slice) -> "Observations":
        """Observations in some rows."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _PER_OUTCOME})

    def of_channel(self, channel: int) -> "Observations":
        """Observations of one channel: a factor, or ``TOTAL``."""
        return self.take(self.channel == channel)

    def by_factor(self, n_factors: int) -> list["Observations"]:
        """Observations of each factor, in time linear in their number; totals are left out."""
        order = np.argsort(self.channel, kind="stable")
        ends = np.searchsorted(self.channel, np.arange(n_factors + 1), sorter=order)
        return [self.take(order[start:end]) for start, end in pairwise(ends.tolist())]

    def begin_with(self, other: "Observations") -> bool:
        """True if the first observations equal the others, entry by entry."""
        n, t = len(other), len(other.places)
        pairs = ((getattr(self, name)[:n], getattr(other, name)) for name in _PER_OUTCOME)
        is_first = np.array_equal(self.places[:t], other.places)
        return is_first and all(np.array_equal(*pair, equal_nan=True) for pair in pairs)

    def then(self, other: "Observations") -> "Observations":
        """Observations followed by others."""
        used, row = np.unique(other.row, return_inverse=True)
        other = replace(other, places=other.places[used], row=len(self.places) + row)
        names = ("places", *_PER_OUTCOME)
        return replace(self, **{name: np.concatenate([getattr(self, name), getattr(other, name)]) for name in names})

    def hold(self, factor: int) -> Bool[np.ndarray, " r"]:
        """Mask of outcomes that a factor contributes to."""
        return (self.channel == TOTAL) | (self.channel == factor)

    def residuals(self, hyper: AdditiveHyperparameters) -> Float[np.ndarray, " r"]:
        """Outcomes minus their prior means, standardised."""
        constants = np.array([*hyper.constants, hyper.constant])[self.channel]  # the last is that of ``TOTAL``
        return (self.outcome - constants) / np.array([*hyper.scales, hyper.common_scale])[self.channel]

    def noise_variances(self, hyper: AdditiveHyperparameters) -> Float[np.ndarray, " r"]:
        """Noise variances, standardised: known where they were told, else fitted."""
        fitted = np.array([*hyper.noise_variances, hyper.total_noise_variance])[self.channel]
        scales = np.array([*hyper.scales, hyper.common_scale])[self.channel]
        stated = self.noise / scales**2 if self.is_floored else standardised_noise(self.noise, scales)
        return np.where(np.isnan(stated), fitted, stated)

    def floored(self, hyper: AdditiveHyperparameters) -> "Observations":
        """Observations with known noise raised to ``LEAST_NOISE`` in each factor's own unit, not in a common one."""
        if hyper.in_one_unit() is hyper:
            return self
        scales = np.array([*hyper.scales, hyper.common_scale])[self.channel]
        return replace(self, noise=np.maximum(self.noise, LEAST_NOISE * scales**2), is_floored=True)


def standardised_noise(
    noise: Float[np.ndarray, "*r"], scale: float | Float[np.ndarray, "*#r"]
) -> Float[np.ndarray, "*r"]:
    """Known noise variances, standardised, NaN if unknown; at least ``LEAST_NOISE``, as 0 gives singular matrices."""
    return np.maximum(noise / scale**2, LEAST_NOISE)


def noise_ahead(fitted: float, data: Observations, scale: float, floor: float) -> float:
    """Standardised noise variance of future outcomes: the data's median if all are known, else the fitted value."""
    if not len(data) or np.isnan(data.noise).any():
        return fitted
    return max(float(np.median(standardised_noise(data.noise, scale))), floor)


def projection(hyper: AdditiveHyperparameters, scope: Sequence[int], rows: Observations) -> Float[np.ndarray, "r a"]:
    """Coordinates (r, a) of outcomes in the scope of a latent; with a time axis, the last coordinate is the round."""
    own = rows.at(scope)
    return own if not hyper.times else np.column_stack([own, rows.rounds])


def factor_covariance(
    hyper: AdditiveHyperparameters, scope: Sequence[int], factor: int, one: Observations, other: Observations
) -> Float[np.ndarray, "r s"]:
    """Prior covariance of one factor between the points and rounds of two sets of outcomes."""
    return hyper.covariance(factor).matrix(projection(hyper, scope, one), projection(hyper, scope, other))


def observation_covariance(
    hyper: AdditiveHyperparameters, scopes: Scopes, one: Observations, other: Observations
) -> Float[np.ndarray, "r s"]:
    """Prior covariance between outcomes, without noise: the sum over the factors that contribute to both."""
    is_compiled = one is other and len(scopes) > 1 and not hyper.times  # a single latent's matrix is faster by NumPy
    if is_compiled and set(hyper.kernels) <= set(KERNEL_NAMES):
        from swarmbo.belief.gp.evidence import covariances  # late: numba is slow to load

        return covariances(hyper, scopes, one.U, np.array([one.hold(i) for i in range(len(scopes))], dtype=float))
    if len(scopes) == 1 or all((each.channel == TOTAL).all() for each in (one, other)):
        return reduce(np.add, (factor_covariance(hyper, scope, i, one, other) for i, scope in enumerate(scopes)))
    K = np.zeros((len(one), len(other)))
    for i, scope in enumerate(scopes):
        rows, columns = np.flatnonzero(one.hold(i)), np.flatnonzero(other.hold(i))
        if len(rows) and len(columns):
            K[np.ix_(rows, columns)] += factor_covariance(hyper, scope, i, one.take(rows), other.take(columns))
    return K


_SCALE_FLOOR = 1e-60  # smaller scales count as no variation, so that products of their squares cannot underflow


def standardisation(y: Float[np.ndarray, " n"]) -> tuple[float, float, bool]:
    """Offset and scale of y = offset + scale z, where z has mean 0 and standard deviation 1; True if outcomes vary. If
    they do not (a single outcome, or constant ones), the scale is 1.
    """
    largest = float(np.abs(y).max(initial=0.0))
    if largest == 0.0:
        return 0.0, 1.0, False
    share = y / largest  # the mean and the squares of large outcomes would overflow
    offset = largest * float(share.mean())
    std = float(share.std())
    if std <= 64.0 * EPSILON or std * largest < _SCALE_FLOOR:
        return offset, 1.0, False
    scale = largest * std
    return offset, 1.0 + EPSILON if scale == 1.0 else scale, True  # exactly 1 means that outcomes do not vary


def units(
    totals: Float[np.ndarray, " t"], factors: Float[np.ndarray, "t k"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], bool]:
    """Offset and scale of each factor's outcomes, and True if any outcomes vary.

    Without totals, each factor has its own offset and scale. Totals need a common scale: their own standard deviation
    or, if they do not vary, that of a sum of independent factors. The mean of the totals, minus the offsets of observed
    factors, is divided evenly among factors that were not observed.
    """
    k = factors.shape[1]
    alone = [standardisation(column[~np.isnan(column)]) for column in factors.T]
    offsets, scales = np.array([part[0] for part in alone]), np.array([part[1] for part in alone])
    varies = [part[2] for part in alone]
    offset, scale, is_shown = standardisation(totals[~np.isnan(totals)])
    if np.isnan(totals).all():
        return offsets, scales, any(varies)
    unseen = np.isnan(factors).all(axis=0)
    if unseen.any():
        offsets[unseen] = (offset - offsets[~unseen].sum()) / unseen.sum()
    if not is_shown:
        largest = scales[varies].max(initial=0.0)
        scale = largest * float(np.sqrt(((scales[varies] / largest) ** 2).sum())) if largest else 1.0
    return offsets, np.full(k, scale), is_shown or any(varies)
