"""What one measurement is worth by itself, and given those of others, in the unit of the field."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.markov import Block, of_first, of_successors
from swarmbo.acquisition.utility import BatchValue, Scores, Utility
from swarmbo.belief import PlaceBelief
from swarmbo.belief.at_places import AtPlaces, Looked
from swarmbo.belief.gp.covariance_rows import CovarianceRows
from swarmbo.belief.gp.joint_posterior import JointPosterior
from swarmbo.belief.views import PosteriorCache

_AT_ONCE = 2**15  # entries of a table at once, 256 KiB: what they are made of stays in the second-level cache
MANY = 32  # times as many picks as there are places from which on all covariances between places are worked out
_ROWS = 8  # the same where a belief is quick at single rows
_FIRST = 128  # places looked at first; then as many again, and so on

Merit = Callable[[Float[np.ndarray, " k"]], Float[np.ndarray, " k"]]


def plain(mean: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """The merit of looking for a peak: the mean itself."""
    return mean


class PlaceUtility(Utility):
    """A rule that looks at what is believed of the places themselves: their means, variances and covariances."""

    @abstractmethod
    def single(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """What places are worth one by one."""

    @abstractmethod
    def table(self, block: Block, price: float) -> Float[np.ndarray, "..."]:
        """What the first agent's candidates are worth less a price, given each choice of its successors' candidates.

        Args:
            block: What is believed of them. Successors that decline change nothing.
            price: Of a measurement, in the unit of the field; who declines pays none, and has ``opt_out_utility``.

        Returns:
            One axis per agent.
        """

    def rank(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """By what single places are ordered: as by ``single``, and in finer steps where that would round."""
        return self.single(mean, var)

    def of_first(
        self, mean: Float[np.ndarray, " m"], cov: Float[np.ndarray, "m m"], to_the_letter: bool = False
    ) -> float:
        """What the first of some places is worth given the others.

        Args:
            mean: Of all of them.
            cov: Their covariance, without noise.
            to_the_letter: With the noise of others as the rule's source has it, where that is another.
        """
        return float(self.table(Block.of_single(mean, cov), 0.0).item())

    def scores(self, belief: PlaceBelief, places: Float[np.ndarray, "k d"], picks: int = 0) -> "PlaceScores":
        """What places are worth one by one."""
        return PlaceScores(self, belief, places, picks)

    def table_of(
        self, belief: PlaceBelief, options: Sequence[Float[np.ndarray, "_ d"]], price: float
    ) -> Float[np.ndarray, "..."]:
        """What the first agent's candidates are worth less a price, given each choice of its successors' candidates."""
        return self.table(Block.of(belief, options), price)

    def jointly(self, belief: PlaceBelief, places: Float[np.ndarray, "m d"]) -> "PlaceValue":
        """By what batches of some places are valued."""
        cache, every = belief.posterior_cache(places), np.arange(len(places))
        return PlaceValue(self, cache.mean, cache.cov(every, every))


class PlaceScores(Scores):
    """What places are worth by their marginals, of which the variance knows of those that were taken.

    Args:
        worth: The rule.
        belief: Whose.
        places: Physical (k, d).
        picks: How many of them will be taken as measured at most.
    """

    def __init__(
        self, utility: PlaceUtility, belief: PlaceBelief, places: Float[np.ndarray, "k d"], picks: int
    ) -> None:
        self._utility, self._noise_variance = utility, belief.noise_variance
        self._rows: CovarianceRows | _Between | None = None
        if not picks:
            self._mean, self._var = belief.posterior(places)
            return
        cache = belief.posterior_cache(places)
        self._mean, self._var = cache.mean, cache.var.copy()
        # many rows of covariances are cheaper all at once
        at_once = (_ROWS if isinstance(cache, JointPosterior | Looked) else MANY) * picks >= len(places)
        if at_once or not isinstance(cache, JointPosterior | Looked):
            self._rows = _Between(cache, len(places), picks, at_once)
        else:
            self._rows = cache.by_row(picks) if isinstance(cache, Looked) else CovarianceRows(cache, None, picks)

    @property
    def value(self) -> Float[np.ndarray, " k"]:
        """What each place is worth now, in the unit of the field."""
        return self._utility.single(self._mean, self._var)

    @property
    def rank(self) -> Float[np.ndarray, " k"]:
        """By what they are ordered."""
        return self._utility.rank(self._mean, self._var)

    def take(self, pick: int) -> None:
        """Take a place as measured."""
        assert self._rows is not None
        told = self._rows.take(pick, max(self._var[pick], 0.0) + self._noise_variance)
        self._var = np.maximum(self._var - told**2, 0.0)


class _Between:
    """Covariances of some places of any belief, while more and more of them are taken as measured.

    Args:
        cache: Of the places.
        n_places: How many they are.
        picks: How many of them will be taken as measured at most.
        at_once: Whether all covariances are worked out at once.
    """

    def __init__(self, cache: PosteriorCache, n_places: int, picks: int, at_once: bool) -> None:
        self._cache, self._every, self._taken = cache, np.arange(n_places), 0
        self._between = cache.cov(self._every, self._every) if at_once else None
        self._rows = np.empty((picks, n_places))  # of the Cholesky factor of the picks' covariance

    def take(self, pick: int, variance: float) -> Float[np.ndarray, " k"]:
        """As of ``CovarianceRows``."""
        n, rows = self._taken, self._rows
        across = self._cache.cov(np.array([pick]), self._every)[0] if self._between is None else self._between[pick]
        rows[n] = (across - rows[:n, pick] @ rows[:n]) / np.sqrt(variance)
        self._taken += 1
        return rows[n]


@dataclass(frozen=True)
class PlaceValue(BatchValue):
    """What batches of some places are worth by their joint posterior.

    Args:
        worth: The rule.
        mean: Of the places.
        cov: Their covariance, without noise.
    """

    utility: PlaceUtility
    mean: Float[np.ndarray, " m"]
    cov: Float[np.ndarray, "m m"]

    def of_first(self, rows: Sequence[int], to_the_letter: bool = False) -> float:
        """What the first of some of the places is worth given the others."""
        return self.utility.of_first(self.mean[list(rows)], self.cov[np.ix_(rows, rows)], to_the_letter)


@dataclass(frozen=True)
class LocalUtility(PlaceUtility):
    """What is expected somewhere, and what is learned there.

    A single place is worth merit(mean) + sqrt_beta std. In a batch the standard deviation is replaced by what the place
    tells beyond its neighbours in the chain: merit(mean) + bonus sqrt(log Psi), Psi the conditional variance of its
    residual in units of ``noise_variance``.

    Args:
        sqrt_beta: Weight of the standard deviation, >= 0.
        bonus: Weight of the root of the information, in the unit of the field.
        noise_variance: What Psi is scaled by, in the square of that unit.
        merit: What the expected value is worth.
        idle: What it is worth not to measure: a measurement is declined if it brings no more than this and its price.
        neighbours_noise: Variance of the noise with which neighbours are taken to measure, in the square of that unit;
            None takes ``noise_variance``.

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
    merit: Merit = plain
    opt_out_utility: float = 0.0
    neighbours_noise: float | None = None

    def single(self, mean: Float[np.ndarray, " k"], var: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """What places are worth one by one."""
        return self.merit(mean) + self.sqrt_beta * np.sqrt(var)

    def best_of(self, belief: PlaceBelief, places: Float[np.ndarray, "k d"], price: float | None = None) -> int | None:
        """The place that is worth most by itself; None where declining is worth more.

        Where a belief is quick at them, places are looked at in the order of what they would be worth if nothing were
        pending, until none can be worth more: as variance only falls, the others need no look.
        """
        rows = None
        # of a subclass nobody knows that less variance is worth no more
        if type(self) is LocalUtility and isinstance(belief, AtPlaces):
            rows = belief.rows_of(places)
        if rows is None:
            return super().best_of(belief, places, price)
        assert isinstance(belief, AtPlaces)
        at_most = self.single(*belief.of_rows(rows, on_data=True))
        order, n, value = np.argsort(-at_most, kind="stable"), 0, -np.inf
        chosen = int(order[0])
        while n < len(places) and at_most[order[n]] >= value:
            part = np.sort(order[n : max(_FIRST, 2 * n)])
            found = self.single(*belief.of_rows(rows[part]))
            first = int(found.argmax())
            if (found[first], -int(part[first])) > (value, -chosen):  # of equal ones the first, as where all are seen
                chosen, value = int(part[first]), float(found[first])
            n = max(_FIRST, 2 * n)
        return None if price is not None and value - price <= self.opt_out_utility else chosen

    def gain(
        self, var: Float[np.ndarray, "..."], out: Float[np.ndarray, "..."] | None = None
    ) -> Float[np.ndarray, "..."]:
        """What places tell: root and weight included, of variances given what neighbours measure."""
        told = np.maximum(var, 0.0, out=np.empty(np.shape(var)) if out is None else out)  # below 0 is rounding
        told /= self.noise_variance
        np.sqrt(np.log1p(told, out=told), out=told)  # in one array: tables are as quick as memory is
        told *= self.bonus
        return told

    @property
    def told_noise(self) -> float:
        """Variance of the noise in what neighbours measure."""
        return self.noise_variance if self.neighbours_noise is None else self.neighbours_noise

    def table(self, block: Block, price: float) -> Float[np.ndarray, "..."]:
        """w_n = merit(mean(x_n)) + bonus sqrt(log Psi_n|nB) - price."""
        # who declines changes no conditional variance: it has no covariance, whatever its own variance
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

    def of_first(
        self, mean: Float[np.ndarray, " m"], cov: Float[np.ndarray, "m m"], to_the_letter: bool = False
    ) -> float:
        """The same of one choice; to the letter others measure with the noise that Psi is scaled by."""
        told = cov[1:, 1:] + (self.noise_variance if to_the_letter else self.told_noise) * np.eye(len(mean) - 1)
        var = cov[0, 0] - cov[0, 1:] @ np.linalg.solve(told, cov[1:, 0])
        return float(self.merit(mean[:1])[0] + self.gain(var))
