"""Information of measurements about weighted places: the weighted variance reduction.

For targets s with weights w_s >= 0 and a set A of measurements with noise sigma_n^2,

    W(A) = sum_s w_s [var(s) - var(s | A)] = tr[(C_AA + sigma_n^2 I)^-1 M_AA],    M = C W C,

with C the posterior covariance before A, and W the diagonal of the weights on the targets. W depends on no outcome and
is monotone. A batch is valued sequentially: each term is the gain of a place over its successors. If an agent considers
all others, these terms add up to W exactly; the Markov approximation considers the next B.

Conditioning on a measurement at y turns both C and M of any pair (a, b) by numbers at a, b and y alone, with g_a = C_ay
/ (C_yy + sigma_n^2):

    C_ab - g_a C_yb,        M_ab - g_a M_yb - M_ay g_b + g_a g_b M_yy,

so tables need M between candidates only, computed once a round.

Source: total variance reduction, as Cohn 1996, eq. (9), and Krause, Singh & Guestrin 2008, section 2 (A-optimality).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.local_utility import MANY
from swarmbo.acquisition.markov import Block
from swarmbo.acquisition.utility import BatchValue, Scores, Utility
from swarmbo.belief import PlaceBelief


@dataclass(frozen=True, eq=False)
class TargetUtility(Utility):
    """Weighted variance reduction of measurements at targets.

    Args:
        targets: Places whose variance counts (t, d), physical.
        weights: Their weights (t,), >= 0, in a unit that gives values in the unit of the field.
        noise_variance: Noise variance of a measurement, > 0, in the square of that unit.
        opt_out_utility: Utility of not measuring.
    """

    targets: Float[np.ndarray, "t d"]
    weights: Float[np.ndarray, " t"]
    noise_variance: float
    opt_out_utility: float = 0.0

    def scores(self, belief: PlaceBelief, places: Float[np.ndarray, "k d"], picks: int = 0) -> "TargetScores":
        """Utilities of single locations."""
        return TargetScores(self, belief, places, picks)

    def jointly(self, belief: PlaceBelief, places: Float[np.ndarray, "m d"]) -> "TargetValue":
        """Values of batches of some locations."""
        cache, n = belief.posterior_cache(np.concatenate([places, self.targets])), len(places)
        own, targets = np.arange(n), np.arange(n, len(cache.mean))
        told = cache.cov(own, targets)
        return TargetValue(cache.cov(own, own), (told * self.weights) @ told.T, self.noise_variance)

    def table_of(
        self, belief: PlaceBelief, options: Sequence[Float[np.ndarray, "_ d"]], price: float
    ) -> Float[np.ndarray, "..."]:
        """Gain of the first agent's candidates over each choice of its successors' candidates, minus the price."""
        block, n = Block.of(belief, options), len(options)
        told = [self._told(belief, own, there) for own, there in zip(options, block.measures, strict=True)]
        C = {(i, j): block.on_axes(block.covariances[i][j], i, j) for i in range(n) for j in range(i + 1, n)}
        M = {(i, j): block.on_axes((told[i] * self.weights) @ told[j].T, i, j) for i, j in C}
        C |= {(i, i): block.on_axes(block.variances[i], i) for i in range(n)}
        M |= {(i, i): block.on_axes((told[i] ** 2) @ self.weights, i) for i in range(n)}
        for k in range(n - 1, 0, -1):  # the last first; abstaining agents have no covariance, and change nothing
            gains = [C[i, k] / (C[k, k] + self.noise_variance) for i in range(k)]
            for i in range(k):
                for j in range(i, k):
                    C[i, j] = C[i, j] - gains[i] * C[j, k]
                    M[i, j] = M[i, j] - gains[i] * M[j, k] - M[i, k] * gains[j] + gains[i] * gains[j] * M[k, k]
        value = np.maximum(M[0, 0], 0.0) / (np.maximum(C[0, 0], 0.0) + self.noise_variance)  # below 0 is rounding
        return np.where(block.on_axes(block.measures[0], 0), value - price, self.opt_out_utility) + np.zeros(
            block.shape
        )

    def _told(
        self, belief: PlaceBelief, own: Float[np.ndarray, "c d"], there: Float[np.ndarray, " c"]
    ) -> Float[np.ndarray, "c t"]:
        """Covariances of candidates with the targets; 0 for an abstaining row."""
        cache = belief.posterior_cache(np.concatenate([own[there], self.targets]))
        n = int(there.sum())
        told = np.zeros((len(own), len(self.targets)))
        told[there] = cache.cov(np.arange(n), np.arange(n, len(cache.mean)))
        return told


class TargetScores(Scores):
    """Utilities of single locations, while locations are successively taken as measured.

    With C_0 the covariances of targets and places, each pick p has a_p = C_sp / r and r_p(x) = C_px / r, all given the
    picks before it, r^2 = C_pp + sigma_n^2; then C = C_0 - sum_p a_p r_p^T, which is never formed: a pick costs
    products of matrices with vectors.
    """

    def __init__(
        self, utility: TargetUtility, belief: PlaceBelief, places: Float[np.ndarray, "k d"], picks: int
    ) -> None:
        n = len(places)
        cache = belief.posterior_cache(np.concatenate([places, utility.targets]))
        own, targets = np.arange(n), np.arange(n, len(cache.mean))
        self._cache, self._utility, self._own, self._taken = cache, utility, own, 0
        self._told = cache.cov(targets, own)
        self._var, self._weighted = cache.var[own], utility.weights @ self._told**2
        self._columns, self._rows = np.empty((picks, len(targets))), np.empty((picks, n))  # a_p, r_p
        # many rows of covariances are cheaper all at once
        self._between = cache.cov(own, own) if MANY * picks >= n else None

    @property
    def value(self) -> Float[np.ndarray, " k"]:
        """Current utility of each place."""
        return self._weighted / (self._var + self._utility.noise_variance)

    def take(self, pick: int) -> None:
        """Take a place as measured."""
        n, weights = self._taken, self._utility.weights
        columns, rows = self._columns[:n], self._rows[:n]
        root = np.sqrt(self._var[pick] + self._utility.noise_variance)
        column = (self._told[:, pick] - rows[:, pick] @ columns) / root
        if self._between is None:
            across = self._cache.cov(self._own[pick : pick + 1], self._own)[0]
        else:
            across = self._between[pick]
        row = (across - rows[:, pick] @ rows) / root
        told = (weights * column) @ self._told - (columns @ (weights * column)) @ rows
        left = self._weighted - 2.0 * row * told + row**2 * float((weights * column) @ column)
        self._weighted = np.maximum(left, 0.0)  # below 0 is rounding
        self._var = np.maximum(self._var - row**2, 0.0)
        self._columns[n], self._rows[n] = column, row
        self._taken += 1


@dataclass(frozen=True, eq=False)
class TargetValue(BatchValue):
    """Values of batches of some locations by the matrices C and M between them."""

    cov: Float[np.ndarray, "m m"]
    told: Float[np.ndarray, "m m"]
    noise_variance: float

    def of_set(self, rows: Sequence[int]) -> float:
        """W of some of the places; a place named twice is measured twice."""
        own = np.array(rows, dtype=int)
        noisy = self.cov[own[:, None], own] + self.noise_variance * np.eye(len(own))
        return float(np.trace(np.linalg.solve(noisy, self.told[own[:, None], own])))

    def of_first(self, rows: Sequence[int], to_the_letter: bool = False) -> float:
        """Gain of the first of some of the places over the others."""
        first, others = rows[0], list(rows[1:])
        noisy = self.cov[np.ix_(others, others)] + self.noise_variance * np.eye(len(others))
        gain = np.linalg.solve(noisy, self.cov[others, first])
        var = self.cov[first, first] - gain @ self.cov[others, first]
        told = self.told[first, first] - 2.0 * gain @ self.told[others, first]
        told += gain @ self.told[np.ix_(others, others)] @ gain
        return float(max(told, 0.0) / (max(var, 0.0) + self.noise_variance))
