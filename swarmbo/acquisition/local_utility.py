"""Utility of one measurement, alone and given those of others, in the unit of the field."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.utility import BatchValue, Block, Options, Scores, Table, Utility, of_first, of_successors
from swarmbo.belief import PlaceBelief
from swarmbo.belief.at_places import KnownPlaces
from swarmbo.belief.gp.conditioning import CovarianceRows, JointPosterior
from swarmbo.belief.gp.spatial import PosteriorCache
from swarmbo.settings import require

_AT_ONCE = 2**15  # entries of a table at once, 256 KiB: their intermediates fit the second-level cache
# all covariances between places are computed at once if there are at most this many places per pick, as this is then
# cheaper
_MANY = 32
_ROWS = 8  # the same for beliefs that compute single rows fast
_FIRST = 32  # number of places evaluated first; then it doubles each time

Merit = Callable[[Float[np.ndarray, " k"]], Float[np.ndarray, " k"]]
Means = Float[np.ndarray, " m"]
Places = Float[np.ndarray, "k d"]


class PlaceUtility(Utility):
    """A utility that depends only on the means, variances and covariances of locations."""

    @abstractmethod
    def single(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Utility of single locations."""

    @abstractmethod
    def table(self, block: Block, price: float) -> Table:
        """``Utility.table_of``, computed from the belief about the candidates of an agent and its successors."""

    def rank(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Numbers that rank single locations as ``single`` does, with finer steps where it would round."""
        return self.single(mean, var)

    def of_first(self, mean: Means, cov: Float[np.ndarray, "m m"], to_the_letter: bool = False) -> float:
        """``BatchValue``, from the means of all places and their covariance without noise."""
        means, variances = list(mean[:, None]), list(cov.diagonal()[:, None])  # of one candidate for each agent
        covariances = [list(row) for row in cov[:, :, None, None]]
        block = Block(means, variances, covariances, [np.ones(1, dtype=bool)] * len(mean))
        return float(self.table(block, 0.0).item())

    def scores(self, belief: PlaceBelief, places: Places, picks: int = 0) -> "PlaceScores":
        """Utilities of single locations."""
        return PlaceScores(self, belief, places, picks)

    def table_of(self, belief: PlaceBelief, options: Options, price: float) -> Table:
        """Utility of the first agent's candidates minus a price, given each choice of its successors' candidates."""
        return self.table(Block.of(belief, options), price)

    def jointly(self, belief: PlaceBelief, places: Float[np.ndarray, "m d"]) -> BatchValue:
        """Values of batches of some locations."""
        cache, every = belief.posterior_cache(places), np.arange(len(places))
        mean, cov = cache.mean, cache.cov(every, every)
        return lambda rows, to_the_letter: self.of_first(mean[list(rows)], cov[np.ix_(rows, rows)], to_the_letter)


class PlaceScores(Scores):
    """Utilities of places by their marginals, with variances given the taken places."""

    def __init__(self, utility: PlaceUtility, belief: PlaceBelief, places: Places, picks: int) -> None:
        self._utility, self._noise_variance = utility, belief.noise_variance
        self._rows: CovarianceRows | Between | None = None
        if not picks:
            self._mean, self._var = belief.posterior(places)
            return
        cache = belief.posterior_cache(places)
        self._mean, self._var = cache.mean, cache.var.copy()
        # many rows of covariances are cheaper if computed all at once
        if isinstance(cache, JointPosterior) and _ROWS * picks < len(places):
            self._rows = CovarianceRows(cache, picks)
        else:
            self._rows = Between(cache, len(places), picks)

    @property
    def value(self) -> Float[np.ndarray, " k"]:
        """Current utility of each place, in the unit of the field."""
        return self._utility.single(self._mean, self._var)

    @property
    def rank(self) -> Float[np.ndarray, " k"]:
        """Numbers that rank the places."""
        return self._utility.rank(self._mean, self._var)

    def take(self, pick: int) -> None:
        """Take a place as measured."""
        assert self._rows is not None
        told = self._rows.take(pick, max(self._var[pick], 0.0) + self._noise_variance)
        self._var = np.maximum(self._var - told**2, 0.0)


class Between:
    """Covariances of places that are taken as measured one by one; ``rows`` are their rows of the Cholesky factor."""

    def __init__(self, cache: PosteriorCache, n_places: int, picks: int) -> None:
        self._cache, self._every, self._taken = cache, np.arange(n_places), 0
        self._between = cache.cov(self._every, self._every) if _MANY * picks >= n_places else None
        self.rows = np.empty((picks, n_places))

    def take(self, pick: int, variance: float) -> Float[np.ndarray, " k"]:
        """Take a point as measured, as in ``CovarianceRows.take``."""
        n, rows = self._taken, self.rows
        across = self._cache.cov(np.array([pick]), self._every)[0] if self._between is None else self._between[pick]
        rows[n] = (across - rows[:n, pick] @ rows[:n]) / np.sqrt(variance)
        self._taken += 1
        return rows[n]


@dataclass(frozen=True)
class LocalUtility(PlaceUtility):
    """Utility of a measurement by its expected value and its information.

    A single location has the utility merit(mean) + sqrt_beta std. In a batch, a location has merit(mean) + bonus
    sqrt(log Psi). Psi is the residual's variance at the location given its chain neighbours' measurements, in units of
    ``noise_variance``.

    Args:
        sqrt_beta: Weight of the standard deviation, >= 0.
        bonus: Weight of sqrt(log Psi), in the unit of the field.
        noise_variance: Scale of Psi, > 0, in the square of the field's unit.
        merit: Function that gives the utility of an expected value.
        opt_out_utility: Utility of abstaining, which a measurement's utility minus price must exceed; -inf: never.
        neighbours_noise: Noise variance of neighbours' measurements, > 0, in that unit; None: ``noise_variance``.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> rule = sb.LocalUtility(sqrt_beta=2.0, bonus=1.0, noise_variance=0.01)
        >>> rule.single(np.array([1.0, 0.0]), np.array([0.0, 0.25])).tolist()  # what is unknown is worth as much
        [1.0, 1.0]
    """

    sqrt_beta: float
    bonus: float
    noise_variance: float
    merit: Merit = np.positive  # the mean itself
    opt_out_utility: float = 0.0
    neighbours_noise: float | None = None

    def __post_init__(self) -> None:
        require(self, "sqrt_beta", lambda weight: weight >= 0.0, "a number >= 0")
        require(self, "bonus", np.isfinite, "a number")
        if self.opt_out_utility != -math.inf:
            require(self, "opt_out_utility", np.isfinite, "a number, or -inf")
        require(self, "noise_variance", lambda variance: variance > 0.0, "a number > 0")
        require(self, "neighbours_noise", lambda noise: noise is None or noise > 0.0, "a number > 0, or None")

    def single(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Utility of single locations."""
        return self.merit(mean) + self.sqrt_beta * np.sqrt(var)

    def best_of(self, belief: PlaceBelief, places: Places, price: float | None = None) -> int | None:
        """Single location of largest utility; None if abstaining is better.

        For fast beliefs, locations are evaluated in the order of their utility without pending measurements. The
        evaluation ends once no remaining location can be better, since pending measurements only reduce variance.
        """
        rows = None
        # a subclass may prefer less variance
        if type(self) is LocalUtility and isinstance(belief, KnownPlaces):
            rows = belief.rows_of(places)
        if rows is None:
            return super().best_of(belief, places, price)
        assert isinstance(belief, KnownPlaces)
        at_most = self.single(*belief.of_rows(rows, on_data=True))
        order, n, value = np.argsort(-at_most, kind="stable"), 0, -np.inf
        best = int(order[0])
        while n < len(places) and at_most[order[n]] >= value:
            part = np.sort(order[n : max(_FIRST, 2 * n)])
            found = self.single(*belief.of_rows(rows[part]))
            first = int(found.argmax())
            if (found[first], -int(part[first])) > (value, -best):  # ties go to the first, as in a full evaluation
                best, value = int(part[first]), float(found[first])
            n = max(_FIRST, 2 * n)
        return None if price is not None and value - price <= self.opt_out_utility else best

    def gain(self, var: Table, out: Table | None = None) -> Table:
        """Information term ``bonus`` sqrt(log Psi), from variances given the neighbours' measurements."""
        told = np.maximum(var, 0.0, out=np.empty(np.shape(var)) if out is None else out)  # below 0 is rounding
        told /= self.noise_variance
        np.sqrt(np.log1p(told, out=told), out=told)  # in place: memory bounds the speed of tables
        told *= self.bonus
        return told

    @property
    def told_noise(self) -> float:
        """Noise variance of neighbours' measurements."""
        return self.noise_variance if self.neighbours_noise is None else self.neighbours_noise

    def table(self, block: Block, price: float) -> Table:
        """w_n = merit(mean(x_n)) + bonus sqrt(log Psi_n|nB) - price."""
        # an abstaining agent changes no conditional variance: its covariances are 0
        variances = [block.variances[0]] + [
            np.where(there, var + self.told_noise, self.noise_variance)
            for var, there in zip(block.variances[1:], block.measures[1:], strict=True)
        ]
        merit = np.where(block.measures[0], self.merit(block.means[0]) - price, self.opt_out_utility)
        table, known = np.empty(block.shape), of_successors(block, variances)
        n_rows = max(1, _AT_ONCE // math.prod(block.shape[1:]))
        for start in range(0, len(table), n_rows):
            part = slice(start, start + n_rows)
            self.gain(of_first(block.first(part), [variances[0][part], *variances[1:]], known), out=table[part])
            table[part] += block.on_axes(merit[part], 0)
        return table

    def of_first(self, mean: Means, cov: Float[np.ndarray, "m m"], to_the_letter: bool = False) -> float:
        """Utility of one choice; ``to_the_letter`` takes ``noise_variance`` as the neighbours' noise."""
        told = cov[1:, 1:] + (self.noise_variance if to_the_letter else self.told_noise) * np.eye(len(mean) - 1)
        var = cov[0, 0] - cov[0, 1:] @ np.linalg.solve(told, cov[1:, 0])
        return float(self.merit(mean[:1])[0] + self.gain(var))
