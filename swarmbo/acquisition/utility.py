"""Utility of measurements on a chain: the interface by which places are ranked and batches valued."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief import PlaceBelief


class Scores(ABC):
    """Utilities of single locations, while locations are successively taken as measured."""

    @property
    @abstractmethod
    def value(self) -> Float[np.ndarray, " k"]:
        """Current utility of each place, in the unit of the field."""

    @property
    def rank(self) -> Float[np.ndarray, " k"]:
        """Order of the places: that of ``value``, with finer steps if it would round."""
        return self.value

    @abstractmethod
    def take(self, pick: int) -> None:
        """Take a place as measured."""


class BatchValue(ABC):
    """Joint belief about some places, computed once."""

    @abstractmethod
    def of_first(self, rows: Sequence[int], to_the_letter: bool = False) -> float:
        """Utility of the first of some of the places given the others.

        Args:
            rows: Indices of places, the first one first.
            to_the_letter: Use the noise of others as in the rule's source, if that differs.
        """


class Utility(ABC):
    """Rule by which places are ranked and batches valued, from an agent's belief.

    The value of a batch is a sum with a term for each agent: the utility of its place given those of its successors.
    ``opt_out_utility`` is that of not measuring: agents abstain unless a measurement adds more than this and its cost.
    ``PlaceUtility`` is a base for rules that use the means and covariances of the places only.
    """

    opt_out_utility: float
    in_order: ClassVar[bool] = False  # True: shortlists are sorted by rank, which then breaks ties of agreements

    @abstractmethod
    def scores(self, belief: PlaceBelief, places: Float[np.ndarray, "k d"], picks: int = 0) -> Scores:
        """Utilities of single locations.

        Args:
            belief: Belief of an agent.
            places: Physical, k >= 1.
            picks: Most places that will be taken as measured.
        """

    @abstractmethod
    def table_of(
        self, belief: PlaceBelief, options: Sequence[Float[np.ndarray, "_ d"]], price: float
    ) -> Float[np.ndarray, "..."]:
        """Utility of the first agent's candidates minus a price, given each choice of its successors' candidates.

        Args:
            belief: Belief of the first agent.
            options: Candidates of each agent, physical; a last row of NaN is to abstain. Successors that abstain change
                nothing.
            price: Price of a measurement, in the unit of the field; abstaining is free, with utility
                ``opt_out_utility``.

        Returns:
            One axis per agent.
        """

    @abstractmethod
    def jointly(self, belief: PlaceBelief, places: Float[np.ndarray, "m d"]) -> BatchValue:
        """Values of batches of some locations (physical)."""

    def best_of(self, belief: PlaceBelief, places: Float[np.ndarray, "k d"], price: float | None = None) -> int | None:
        """Single place of largest utility; None if abstaining is better.

        Args:
            belief: Belief of an agent.
            places: Physical, k >= 1.
            price: Price of a measurement, in the unit of the field; None for an agent that cannot abstain.
        """
        scores = self.scores(belief, places)
        chosen = int(scores.rank.argmax())
        return None if price is not None and scores.value[chosen] - price <= self.opt_out_utility else chosen


def shortlist(
    belief: PlaceBelief, places: Float[np.ndarray, "k d"], size: int, utility: Utility
) -> Int[np.ndarray, " s"]:
    """Indices of the shortlisted places, in the order of their picks; all places in their own order if ``size``
    suffices.

    Half of the list is the greedy batch: each pick ranks highest once the earlier picks are taken as measured, so the
    list is spread out. The rest are the highest ranks by themselves, for density at promising places. The place of
    highest rank is always on it.
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
    """Pick different places one by one, each with the earlier ones as measured (GP-BUCB, Desautels et al. 2014)."""
    rank, picks = scores.rank, np.empty(size, dtype=int)
    for n in range(size):
        picks[n] = pick = int(rank.argmax())
        scores.take(pick)
        rank = scores.rank.copy()
        rank[picks[: n + 1]] = -np.inf
    return picks
