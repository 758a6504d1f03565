"""Utility of measurements on a chain: the interface by which places are ranked, and the belief about a chain's places.

Markov approximation of a batch's information gain (Daxberger & Low 2017, section 3): a batch of N blocks has Psi = I +
Sigma / s^2, with Sigma the posterior covariance and s^2 the noise variance. Its information gain is 0.5 log|Psi|. Order
B conditions each block on the next B blocks only; the sum then splits into local terms, one per block, so each agent
can own one. This overstates the gain by exactly KL(Psi, Psi_bar), which falls with B.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief import PlaceBelief

Options = Sequence[Float[np.ndarray, "_ d"]]  # candidates of each agent, physical; a last row of NaN is to abstain
Places = Float[np.ndarray, "k d"]
Table = Float[np.ndarray, "..."]  # an axis of options for each agent
OwnValues = Float[np.ndarray, " _"]  # a number for each option of an agent


class Scores(ABC):
    """Utilities of single locations, while locations are successively taken as measured."""

    @property
    @abstractmethod
    def value(self) -> Float[np.ndarray, " k"]:
        """Current utility of each place, in the unit of the field."""

    @property
    def rank(self) -> Float[np.ndarray, " k"]:
        """Numbers that rank the places as ``value`` does, with finer steps where it would round."""
        return self.value

    @abstractmethod
    def take(self, pick: int) -> None:
        """Take a place as measured."""


# utility of the first of some places, given the others. Arguments: indices of the places; True to use the noise of the
# others as in the rule's source, if that differs
BatchValue = Callable[[Sequence[int], bool], float]


class Utility(ABC):
    """Utility of single locations and of batches, computed from an agent's belief.

    The value of a batch is a sum over agents: the utility of each agent's location, given those of its successors in
    the chain. ``opt_out_utility`` is the utility of abstaining. Agents abstain unless a measurement's utility exceeds
    this plus its price. ``PlaceUtility`` is a base for utilities that use only means and covariances.
    """

    opt_out_utility: float
    in_order: ClassVar[bool] = False  # True: shortlists are sorted by rank, which then breaks ties of agreements

    @abstractmethod
    def scores(self, belief: PlaceBelief, places: Places, picks: int = 0) -> Scores:
        """Utilities of single locations (physical, k >= 1), of which at most ``picks`` will be taken as measured."""

    @abstractmethod
    def table_of(self, belief: PlaceBelief, options: Options, price: float) -> Table:
        """Utility of the first agent's candidates minus a price, given each choice of its successors' candidates.

        Candidates are physical; belief and price (in the unit of the field) are the first agent's. Abstaining is free,
        with utility ``opt_out_utility``. Successors that abstain change nothing. The table has one axis per agent.
        """

    @abstractmethod
    def jointly(self, belief: PlaceBelief, places: Float[np.ndarray, "m d"]) -> BatchValue:
        """Values of batches of some locations (physical), by their joint belief, computed once."""

    def best_of(self, belief: PlaceBelief, places: Places, price: float | None = None) -> int | None:
        """Single location (physical, k >= 1) of largest utility; None if abstaining is better.

        The price is in the unit of the field, None for an agent that cannot abstain.
        """
        scores = self.scores(belief, places)
        chosen = int(scores.rank.argmax())
        return None if price is not None and scores.value[chosen] - price <= self.opt_out_utility else chosen


def shortlist(belief: PlaceBelief, places: Places, size: int, utility: Utility) -> Int[np.ndarray, " s"]:
    """Indices of the shortlisted places, in the order of their picks; all places in their own order if ``size``
    suffices.

    Half of the list is the greedy batch: each pick ranks highest once the earlier picks are taken as measured, so the
    list is spread out. The rest have the highest individual ranks, for density at promising places. The place of
    highest rank is always on it.
    """
    if len(places) <= size:
        listed = np.arange(len(places))
        return listed[np.argsort(-utility.scores(belief, places).rank, kind="stable")] if utility.in_order else listed
    scores = utility.scores(belief, places, picks=size - size // 2)
    alone = scores.rank.copy()
    spread = greedy_batch(scores, size - size // 2)
    alone[spread] = np.nan  # sorted behind -inf, the rank of places without a value
    # stable, so that agents with equal ranks list the same places
    return np.concatenate([spread, np.argsort(-alone, kind="stable")[: size // 2]])


def greedy_batch(scores: Scores, size: int) -> Int[np.ndarray, " s"]:
    """Pick different locations one by one, given the earlier picks as measured (GP-BUCB, Desautels et al. 2014)."""
    left, picks = np.arange(len(scores.rank)), np.empty(size, dtype=int)
    for n in range(size):
        best = int(scores.rank[left].argmax())  # among those left: ranks may be -inf
        picks[n], left = left[best], left[left != left[best]]
        scores.take(int(picks[n]))
    return picks


@dataclass(frozen=True, eq=False)
class Block:
    """Belief about the candidates of an agent and its B successors in the chain; 0 for a last row that abstains."""

    means: list[OwnValues]  # means of each agent (C_i,), C_i candidates
    variances: list[OwnValues]  # variances of each agent (C_i,), without noise
    # covariances[i][j], j > i, between agent i and agent j: (C_i, C_j)
    covariances: list[list[Table]]
    measures: list[Bool[np.ndarray, " _"]]  # masks (C_i,) of entries that are places

    @classmethod
    def of(cls, belief: PlaceBelief, options: Options) -> "Block":
        """Block of a belief at each agent's candidates (physical); a last row of NaN is to abstain."""
        measures = [~np.isnan(own[:, 0]) for own in options]
        places = [own[there] for own, there in zip(options, measures, strict=True)]
        cache = belief.posterior_cache(np.concatenate(places))
        ends = np.cumsum([0, *map(len, places)])
        rows = [np.arange(start, stop) for start, stop in itertools.pairwise(ends)]

        def between(i: int, j: int) -> Table:
            known = cache.cov(rows[i], rows[j])
            if known.shape == (len(options[i]), len(options[j])):
                return known
            out = np.zeros((len(options[i]), len(options[j])))
            out[np.ix_(measures[i], measures[j])] = known
            return out

        n = range(len(options))
        covariances = [[between(i, j) if j > i else np.empty((0, 0)) for j in n] for i in n]
        means, variances = ([np.zeros(len(own)) for own in options] for _ in range(2))
        for i, there in enumerate(measures):
            means[i][there], variances[i][there] = cache.mean[rows[i]], cache.var[rows[i]]
        return cls(means, variances, covariances, measures)

    def first(self, part: slice) -> "Block":
        """Block with some of the first agent's candidates."""
        rows = self.means, self.variances, self.measures
        means, variances, measures = ([own[0][part], *own[1:]] for own in rows)
        covariances = [[cov[part] for cov in self.covariances[0]], *self.covariances[1:]]
        return Block(means, variances, covariances, measures)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a table over the candidates."""
        return tuple(map(len, self.means))

    def on_axes(self, array: Table, *agents: int) -> Table:
        """Reshape an array over some agents' candidates to broadcast over a table of all."""
        sizes = dict(zip(agents, array.shape, strict=True))
        return array.reshape([sizes.get(agent, 1) for agent in range(len(self.means))])


# variance of a successor given all after it, and its covariances with those before it


def of_successors(block: Block, variances: list[OwnValues]) -> list[tuple[Table, dict[int, Table]]]:
    """Successors, the last first: the part of ``of_first`` that is the same for all places of the first agent."""
    n, taken = len(variances), list[tuple[Table, dict[int, Table]]]()
    given = {(i, j): block.on_axes(block.covariances[i][j], i, j) for i in range(1, n) for j in range(i + 1, n)}
    given |= {(i, i): block.on_axes(variances[i], i) for i in range(1, n)}
    for k in range(n - 1, 0, -1):
        taken.append((given[k, k], {i: given[i, k] for i in range(1, k)}))
        _condition(given, range(1, k), k)
    return taken


def of_first(block: Block, variances: list[OwnValues], successors: list[tuple[Table, dict[int, Table]]]) -> Table:
    """Variance of the first agent's candidates given those of its successors, for all combinations; ``variances``
    include the noise. Only sums and products of single entries, so that no entry depends on other entries.
    """
    n = len(variances)
    given = {(0, j): block.on_axes(block.covariances[0][j], 0, j) for j in range(1, n)}
    given[0, 0] = block.on_axes(variances[0], 0)
    for k, (variance, covariances) in zip(range(n - 1, 0, -1), successors, strict=True):
        given |= {(k, k): variance} | {(j, k): cov for j, cov in covariances.items()}
        _condition(given, range(1), k)
    return given[0, 0]


# Gaussian elimination over blocks of candidates, on all their combinations at once
def _condition(given: dict[tuple[int, int], Table], rows: range, k: int) -> None:
    """Condition some agents, and their covariances with all before k, on agent k: each step's Schur complement."""
    gains = [given[i, k] / given[k, k] for i in rows]
    for i, gain in zip(rows, gains, strict=True):
        for j in range(i, k):
            taken = gain * given[j, k]  # memory dominates the time, so allocate as little as possible
            full = np.broadcast_shapes(taken.shape, given[i, j].shape) == taken.shape
            given[i, j] = np.subtract(given[i, j], taken, out=taken if full else None)
