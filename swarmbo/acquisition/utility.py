"""What measurements are worth to agents on a chain: the one interface by which places are ranked and batches valued."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief import PlaceBelief


class Scores(ABC):
    """What some places are worth one by one, while more and more of them are taken as measured."""

    @property
    @abstractmethod
    def value(self) -> Float[np.ndarray, " k"]:
        """What each place is worth now, in the unit of the field."""

    @property
    def rank(self) -> Float[np.ndarray, " k"]:
        """By what they are ordered: as by ``value``, and in finer steps where that would round."""
        return self.value

    @abstractmethod
    def take(self, pick: int) -> None:
        """Take a place as measured."""


class BatchValue(ABC):
    """What is believed of some places jointly, worked out once."""

    @abstractmethod
    def of_first(self, rows: Sequence[int], to_the_letter: bool = False) -> float:
        """What the first of some of the places is worth given the others.

        Args:
            rows: Which places, the first one first.
            to_the_letter: With the noise of others as the rule's source has it, where that is another.
        """


class Utility(ABC):
    """The rule by which places are ranked and batches valued, from what an agent believes of them.

    The value of a batch is a sum with a term for each agent: what its place is worth given those of its successors.
    ``opt_out_utility`` is that of not measuring: an agent declines a measurement that brings no more than this and its
    price.
    ``PlaceUtility`` is a base for rules that look at the means and variances of the places themselves only.
    """

    opt_out_utility: float
    in_order: ClassVar[bool] = False  # whether shortlists are sorted by rank, so that agreements break ties by it

    @abstractmethod
    def scores(self, belief: PlaceBelief, places: Float[np.ndarray, "k d"], picks: int = 0) -> Scores:
        """What places are worth one by one.

        Args:
            belief: Whose.
            places: Physical, k >= 1.
            picks: How many of them will be taken as measured at most.
        """

    @abstractmethod
    def table_of(
        self, belief: PlaceBelief, options: Sequence[Float[np.ndarray, "_ d"]], price: float
    ) -> Float[np.ndarray, "..."]:
        """What the first agent's candidates are worth less a price, given each choice of its successors' candidates.

        Args:
            belief: Of the first agent.
            options: Candidates of each agent, physical; a last row of NaN is to decline. Successors that decline change
                nothing.
            price: Of a measurement, in the unit of the field; who declines pays none, and has ``opt_out_utility``.

        Returns:
            One axis per agent.
        """

    @abstractmethod
    def jointly(self, belief: PlaceBelief, places: Float[np.ndarray, "m d"]) -> BatchValue:
        """By what batches of some places are valued.

        Args:
            belief: Whose.
            places: All that may be in a batch, physical.
        """

    def best_of(self, belief: PlaceBelief, places: Float[np.ndarray, "k d"], price: float | None = None) -> int | None:
        """The place that is worth most by itself; None where declining is worth more.

        Args:
            belief: Whose.
            places: Physical, k >= 1.
            price: Of a measurement, in the unit of the field; None for an agent that measures in any case.
        """
        scores = self.scores(belief, places)
        chosen = int(scores.rank.argmax())
        return None if price is not None and scores.value[chosen] - price <= self.opt_out_utility else chosen


def shortlist(
    belief: PlaceBelief, places: Float[np.ndarray, "k d"], size: int, utility: Utility
) -> Int[np.ndarray, " s"]:
    """Indices of the shortlisted places, in the order in which they were picked; all of them in their own order, unless
    the rule wants it otherwise.

    Half of the list is the greedy batch: each pick ranks highest once the picks before it are taken as measured, so the
    list is spread out. The rest are those that rank highest by themselves, so that it is dense where the promise is
    highest. The place that ranks highest is always on it.

    Args:
        belief: With posterior mean and covariance.
        places: What can be reached (k, d), in physical units.
        size: How many to pick; all of them if k is smaller.
        worth: What a place is good for.
    """
    if len(places) <= size:
        listed = np.arange(len(places))
        return listed[np.argsort(-utility.scores(belief, places).rank, kind="stable")] if utility.in_order else listed
    scores = utility.scores(belief, places, picks=size - size // 2)
    alone = scores.rank.copy()
    spread = greedy_batch(scores, size - size // 2)
    alone[spread] = -np.inf
    dense = np.argsort(-alone, kind="stable")[: size // 2]
    return np.concatenate([spread, dense])


def greedy_batch(scores: Scores, size: int) -> Int[np.ndarray, " s"]:
    """Pick places one by one, each as if those before it had been measured (GP-BUCB's rule, Desautels et al. 2014).

    Args:
        scores: What the places are worth; the picks are taken.
        size: How many to pick, at most as many as there are.

    Returns:
        Indices of the picks; no place is picked twice.
    """
    rank, picks = scores.rank, np.empty(size, dtype=int)
    for n in range(size):
        picks[n] = pick = int(rank.argmax())
        scores.take(pick)
        rank = scores.rank.copy()
        rank[picks[: n + 1]] = -np.inf
    return picks
