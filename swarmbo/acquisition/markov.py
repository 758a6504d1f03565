"""The Markov approximation of a batch's information gain (Daxberger & Low 2017, section 3).

A batch of N blocks has Psi = I + Sigma / s^2, with Sigma the posterior covariance and s^2 the noise variance. Its
information gain is 0.5 log|Psi|. Order B conditions each block on the next B blocks only; the sum then splits into
local terms, one per block, which is what lets each agent own one of them. It over-states the gain (by exactly
KL(Psi, Psi_bar)), the less so the larger B.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.belief import PlaceBelief


@dataclass(frozen=True, eq=False)
class Block:
    """What is believed of the candidates of an agent and of its successors in the chain, B + 1 agents in all.

    Who declines has a last candidate that is no place: its mean and variance are 0, and so are its covariances.

    Args:
        means: Of each agent's candidates (C_i,).
        variances: As ``means`` (C_i,), without noise.
        covariances: covariances[i][j], j > i, between those of agent i (rows) and agent j (columns).
        measures: Which candidates (C_i,) are places.
    """

    means: list[Float[np.ndarray, " _"]]
    variances: list[Float[np.ndarray, " _"]]
    covariances: list[list[Float[np.ndarray, "_ _"]]]
    measures: list[Bool[np.ndarray, " _"]]

    @classmethod
    def of(cls, belief: PlaceBelief, options: Sequence[Float[np.ndarray, "_ d"]]) -> "Block":
        """As a belief has it.

        Args:
            belief: Whose.
            options: Candidates of each agent, in physical units; a last row of NaN is to decline.
        """
        measures = [~np.isnan(own[:, 0]) for own in options]
        places = [own[there] for own, there in zip(options, measures, strict=True)]
        cache = belief.posterior_cache(np.concatenate(places))
        ends = np.cumsum([0, *map(len, places)])
        rows = [np.arange(start, stop) for start, stop in itertools.pairwise(ends)]
        declines = [len(own) - len(looked) for own, looked in zip(options, places, strict=True)]
        covariances = [
            [
                np.pad(cache.cov(rows[i], rows[j]), ((0, declines[i]), (0, declines[j]))) if j > i else np.empty((0, 0))
                for j in range(len(rows))
            ]
            for i in range(len(rows))
        ]
        means, variances = (
            [np.pad(part[own], (0, more)) for own, more in zip(rows, declines, strict=True)]
            for part in (cache.mean, cache.var)
        )
        return cls(means, variances, covariances, measures)

    @classmethod
    def of_single(cls, mean: Float[np.ndarray, " m"], cov: Float[np.ndarray, "m m"]) -> "Block":
        """Of one place for each agent, by their joint marginals."""
        every = range(len(mean))
        covariances = [[cov[i : i + 1, j : j + 1] if j > i else np.empty((0, 0)) for j in every] for i in every]
        there = [np.ones(1, dtype=bool) for _ in every]
        return cls([mean[i : i + 1] for i in every], [cov[i, i : i + 1] for i in every], covariances, there)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a table over the candidates."""
        return tuple(map(len, self.means))

    def on_axes(self, array: Float[np.ndarray, "..."], *axes: int) -> Float[np.ndarray, "..."]:
        """An array over the candidates of some agents, laid out so that it multiplies a table over all of them."""
        shape = [1] * len(self.means)
        for size, axis in zip(array.shape, axes, strict=True):
            shape[axis] = size
        return array.reshape(shape)


def conditional_variances(
    covariances: list[list[Float[np.ndarray, "_ _"]]], variances: list[Float[np.ndarray, " _"]]
) -> np.ndarray:
    """Variance of one point given B others, for every combination of candidates of all of them at once.

    Args:
        covariances: covariances[i][j], j > i, between the candidates of agent i (rows) and agent j (columns).
        variances: variances[i] (C_i,) of the candidates of agent i. Agent 0 is conditioned on agents 1 … B.

    Returns:
        A table with one axis per agent: entry (c_0, …, c_B) is Var[x_0 = c_0 | x_1 = c_1, …, x_B = c_B].
        Only sums and products of single entries are taken, so that a table never depends on what is computed beside it.
    """
    n = len(variances)

    def on_axes(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        shape = [1] * n
        for size, axis in zip(array.shape, axes, strict=True):
            shape[axis] = size
        return array.reshape(shape)

    given = {(i, j): on_axes(covariances[i][j], (i, j)) for i in range(n) for j in range(i + 1, n)}
    given |= {(i, i): on_axes(variances[i], (i,)) for i in range(n)}
    for k in range(n - 1, 0, -1):  # condition on the last first: each step's Schur complement keeps the rest
        for i in range(k):
            for j in range(i, k):
                given[i, j] = given[i, j] - given[i, k] * given[j, k] / given[k, k]
    return np.broadcast_to(given[0, 0], tuple(len(variance) for variance in variances))
