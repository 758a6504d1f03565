"""Information of measurements about weighted places: the weighted variance reduction.

For targets s with weights w_s >= 0 and a set A of measurements with noise sigma_n^2,

    W(A) = sum_s w_s [var(s) - var(s | A)] = tr[(C_AA + sigma_n^2 I)^-1 M_AA],    M = C W C,

with C the posterior covariance before A, and W the diagonal of the weights on the targets. W depends on no outcome and
is monotone. A batch is valued sequentially: each term is the gain of a place over its successors. If an agent considers
all others, these terms add up to W exactly; the Markov approximation considers the next B.

Conditioning on a measurement at y replaces C_ab and M_ab of any pair (a, b) by terms in a, b and y alone, with g_a =
C_ay / (C_yy + sigma_n^2):

    C_ab - g_a C_yb,        M_ab - g_a M_yb - M_ay g_b + g_a g_b M_yy,

so tables need M between candidates only, computed once a round.

Source: total variance reduction, as Cohn 1996, eq. (9), and Krause, Singh & Guestrin 2008, section 2 (A-optimality).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from swarmbo import settings
from swarmbo.acquisition.chain_acquisition import ChainAcquisition, require_level
from swarmbo.acquisition.local_utility import Between
from swarmbo.acquisition.situation import Situation
from swarmbo.acquisition.utility import BatchValue, Block, Options, Scores, Utility
from swarmbo.belief import PlaceBelief
from swarmbo.records import Goal
from swarmbo.registry import FIELD, kind
from swarmbo.spaces import Domain


def planning_places(domain: Domain, sites: Float[np.ndarray, "k d"] | None, n_places: int) -> Float[np.ndarray, "m d"]:
    """About ``n_places`` locations, spread evenly over what is measurable, in a fixed order: for each nearly cubic cell
    of the map, the site nearest to its centre, or its centre if ``sites`` is None.
    """
    if sites is not None and len(sites) <= n_places:
        return np.unique(sites, axis=0)
    sides = domain.high - domain.low
    counts = _counts(sides, n_places)
    if sites is None:
        axes = [low + side * (np.arange(n) + 0.5) / n for low, side, n in zip(domain.low, sides, counts, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(sides))
    at = (sites - domain.low) / sides * counts
    cells = np.clip(np.floor(at), 0, counts - 1).astype(int)
    off = (((at - cells - 0.5) * (sides / counts)) ** 2).sum(axis=1)
    number = np.asarray(np.ravel_multi_index(tuple(cells.T), tuple(counts.tolist())))
    nearest = np.full(np.prod(counts), np.inf)
    np.minimum.at(nearest, number, off)
    found = np.flatnonzero(off == nearest[number])
    return sites[found[np.unique(number[found], return_index=True)[1]]]


def keys_of(places: Float[np.ndarray, "k d"]) -> list[bytes]:
    """Each place as bytes, as a key."""
    told, size = np.ascontiguousarray(places).tobytes(), places.itemsize * places.shape[1]
    return [told[start : start + size] for start in range(0, len(told), size)]


def _counts(sides: Float[np.ndarray, " d"], n_places: int) -> np.ndarray:
    """Cells along each side: at most ``n_places`` in all, and as nearly cubic as possible."""
    counts = np.ones(len(sides), dtype=int)
    while True:
        longest = int(np.argmax(sides / counts))
        grown = counts.copy()
        grown[longest] += 1
        if np.prod(grown, dtype=float) > n_places:
            return counts
        counts = grown


@dataclass(frozen=True, eq=False)
class TargetUtility(Utility):
    """Weighted variance reduction of measurements at targets."""

    targets: Float[np.ndarray, "t d"]  # places whose variance counts (t, d), physical
    weights: Float[np.ndarray, " t"]  # their weights (t,), >= 0, in a unit that gives values in the unit of the field
    noise_variance: float  # noise variance of a measurement, > 0, in the square of the field's unit
    opt_out_utility: float = 0.0  # utility of not measuring

    def scores(self, belief: PlaceBelief, places: Float[np.ndarray, "k d"], picks: int = 0) -> "TargetScores":
        """Utilities of single locations."""
        return TargetScores(self, belief, places, picks)

    def jointly(self, belief: PlaceBelief, places: Float[np.ndarray, "m d"]) -> BatchValue:
        """Gain of the first of some locations over the others, by the matrices C and M between them."""
        cache, n = belief.posterior_cache(np.concatenate([places, self.targets])), len(places)
        own, targets = np.arange(n), np.arange(n, len(cache.mean))
        told = cache.cov(own, targets)
        C, M = cache.cov(own, own), (told * self.weights) @ told.T

        def of_first(rows: Sequence[int], to_the_letter: bool) -> float:
            first, successors = rows[0], list(rows[1:])
            noisy = C[np.ix_(successors, successors)] + self.noise_variance * np.eye(len(successors))
            gain = np.linalg.solve(noisy, C[successors, first])
            var = C[first, first] - gain @ C[successors, first]
            square = M[first, first] - 2.0 * gain @ M[successors, first]
            square += gain @ M[np.ix_(successors, successors)] @ gain
            return float(max(square, 0.0) / (max(var, 0.0) + self.noise_variance))

        return of_first

    def table_of(self, belief: PlaceBelief, options: Options, price: float) -> Float[np.ndarray, "..."]:
        """Gain of the first agent's candidates over each choice of its successors' candidates, minus the price."""
        n, whole = len(options), Block.of(belief, [*options, self.targets])
        block = Block(whole.means[:n], whole.variances[:n], whole.covariances, whole.measures[:n])
        told = [row[n] for row in whole.covariances[:n]]  # covariances of candidates with the targets
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
        value = np.where(block.on_axes(block.measures[0], 0), value - price, self.opt_out_utility)
        return value + np.zeros(block.shape)


class TargetScores(Scores):
    """Utilities of single locations, while locations are successively taken as measured.

    C_0 are the covariances of targets and places. Each pick p has a_p = C_sp / r and r_p(x) = C_px / r with r^2 = C_pp
    + sigma_n^2, all given earlier picks. Then C = C_0 - sum_p a_p r_p^T. It is never formed: a pick costs only products
    of matrices with vectors.
    """

    def __init__(
        self, utility: TargetUtility, belief: PlaceBelief, places: Float[np.ndarray, "k d"], picks: int
    ) -> None:
        n = len(places)
        cache = belief.posterior_cache(np.concatenate([places, utility.targets]))
        own, targets = np.arange(n), np.arange(n, len(cache.mean))
        self._utility, self._taken = utility, 0
        # C_0 is not changed; the effect of picks is kept as products a_p r_p^T
        self._told = cache.cov(targets, own)
        self._var, self._weighted = cache.var[own], utility.weights @ self._told**2
        self._columns = np.empty((picks, len(targets)))  # a_p; r_p are the rows of ``Between``
        self._between = Between(cache, n, picks)

    @property
    def value(self) -> Float[np.ndarray, " k"]:
        """Current utility of each place."""
        return self._weighted / (self._var + self._utility.noise_variance)

    def take(self, pick: int) -> None:
        """Take a place as measured."""
        n, weights = self._taken, self._utility.weights
        columns, rows = self._columns[:n], self._between.rows[:n]
        variance = self._var[pick] + self._utility.noise_variance
        column = (self._told[:, pick] - rows[:, pick] @ columns) / np.sqrt(variance)
        row = self._between.take(pick, variance)
        told = (weights * column) @ self._told - (columns @ (weights * column)) @ rows
        left = self._weighted - 2.0 * row * told + row**2 * float((weights * column) @ column)
        self._weighted = np.maximum(left, 0.0)  # below 0 is rounding
        self._var = np.maximum(self._var - row**2, 0.0)
        self._columns[n] = column
        self._taken += 1


_LEAST_NOISE = 1e-6  # share of the prior variance: keeps known places uninformative in spite of rounding
_LEAST_STD = 1e-9  # share of the prior standard deviation, for known places


@kind("acquisition", FIELD)
class TargetedVariance(ChainAcquisition, frozen=True, tag_field="kind", tag="targeted-variance"):
    """Weighted variance reduction over locations spread over the map: W(A) = sum_s w_s [var(s) - var(s | A)].

    The task decides the weight of a location s with mean mu(s) and standard deviation sigma(s):

    * ``map``: 1 everywhere;
    * ``level``: the probability Phi(-|mu(s) - level| / sigma(s)) that the map is on the wrong side of the level there;
    * ``peak``: the probability Phi((mu(s) - best) / sigma(s)) that the field exceeds *best*, the best mean of a
      measured location.

    ``floor`` is added to the weights of ``level`` and ``peak``, so that agents also explore locations that look
    decided. Near a common start, all locations look decided. Utilities are scaled to compare with prices: among unknown
    locations of weight 1, each has the prior standard deviation as utility.

    Agents consider the next B agents of the chain, as in ``ChainAcquisition``. All settings of that class except
    ``noise_ratio_floor`` apply.

    Args:
        task: Task; by default ``level`` if these settings or the world state a level, else ``map``.
        level: Level for the task ``level``, in the unit of the field; None takes the world's level.
        floor: Number added to the weights of ``level`` and ``peak``, 0 to 1.
        places: Approximate number of the locations s that are spread over the map, 1 to 4096.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> line = np.linspace(0.0, 1.0, 21)[:, None]
        >>> acquisition = sb.TargetedVariance(level=0.7)
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], acquisition=acquisition)
        >>> team.attach(line[::5], line[::5, 0])  # the field is x, so the question is open near 0.7 only
        >>> all(abs(x[0] - 0.7) < 0.11 for x in team.ask({"a": line, "b": line}).points.values())
        True
    """

    task: Goal | None = None
    level: float | None = None
    floor: Annotated[float, settings.within(0, 1)] = 1e-3
    places: Annotated[int, settings.within(1, 4096)] = 230

    def __post_init__(self) -> None:
        super().__post_init__()
        is_free = self.level is None or self.task in (None, "level")
        settings.require(self, "level", lambda _: is_free, "no level, or the task 'level'")

    def aim(self, level: float | None) -> Goal:
        """Task of the settings; if unset, ``level`` if a level is stated, else ``map``."""
        return self.task or ("map" if level is None and self.level is None else "level")

    def check_world(self, level: float | None) -> None:
        """Refuse a world without a level if the task needs one and the settings have none.

        Raises:
            ConfigError: If neither states a level.
        """
        if self.task == "level":
            require_level(level, self.level)

    def utility(self, situation: Situation, n_agents: int | None = None) -> TargetUtility:
        """Weighted variance reduction of measurements."""
        belief, targets = situation.belief, planning_places(situation.domain, situation.sites, self.places)
        cache, prior = belief.posterior_cache(targets), max(belief.prior_variance, np.finfo(float).tiny)
        every = np.arange(len(targets))
        weights = self.weights(situation, cache.mean, np.sqrt(np.maximum(cache.var, _LEAST_STD**2 * prior)))
        # the largest number of places that one measurement informs about, 1 for each fully correlated one
        known = cache.var + _LEAST_NOISE * prior
        told_of = (cache.cov(every, every) ** 2 / known / known[:, None]).sum(axis=0).max()
        noise_variance = max(belief.noise_variance, _LEAST_NOISE * prior)
        return TargetUtility(targets, weights / (np.sqrt(prior) * max(told_of, 1.0)), noise_variance)

    def weights(
        self, situation: Situation, mean: Float[np.ndarray, " t"], std: Float[np.ndarray, " t"]
    ) -> Float[np.ndarray, " t"]:
        """Weights of locations, from the field's mean and standard deviation (> 0) there."""
        aim = self.aim(situation.level)
        if aim == "peak":
            return ndtr((mean - situation.best_measured()) / std) + self.floor
        if aim == "map":
            return np.ones(len(mean))
        return ndtr(-np.abs(mean - require_level(situation.level, self.level)) / std) + self.floor
