"""The Markov approximation of a batch's information gain (Daxberger & Low 2017, section 3).

A batch of N blocks has Psi = I + Sigma / s^2, with Sigma the posterior covariance and s^2 the noise variance. Its
information gain is 0.5 log|Psi|. Order B conditions each block on the next B blocks only; the sum then splits into
local terms, one per block, which is what lets each agent own one of them. It over-states the gain (by exactly
KL(Psi, Psi_bar)), the less so the larger B.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief import PlaceBelief
from swarmbo.belief.at_places import Looked
from swarmbo.belief.gp.joint_posterior import JointPosterior
from swarmbo.belief.views import PosteriorCache

_AT_ONCE = 32  # pairs whose covariances are worked out at once, with those of all others among them


@dataclass(frozen=True, eq=False)
class Block:
    """What is believed of the candidates of an agent and of its successors in the chain, B + 1 agents in all.

    Each row is one measurement of one agent, and has an entry for each of its candidates. The agent's first row is
    where it goes; the rows after it are what it measures on the way there. What is no place (the last candidate of who
    declines; a way with fewer measurements than others) has mean, variance and covariances 0.

    Args:
        means: Of each row (C_i,), C_i candidates of its agent.
        variances: As ``means`` (C_i,), without noise.
        covariances: covariances[i][j], j > i, between row i and row j: (C_i, C_j), or (C_i,) of candidate by candidate
            where both are the same agent's.
        measures: Which entries (C_i,) are places.
        axes: The agent of each row, by its number in the block; rows of the first agent come first.
    """

    means: list[Float[np.ndarray, " _"]]
    variances: list[Float[np.ndarray, " _"]]
    covariances: list[list[Float[np.ndarray, "..."]]]
    measures: list[Bool[np.ndarray, " _"]]
    axes: tuple[int, ...]

    @classmethod
    def of(
        cls,
        belief: PlaceBelief,
        options: Sequence[Float[np.ndarray, "_ d"]],
        ways: Sequence[Float[np.ndarray, "_ k d"]] = (),
    ) -> "Block":
        """As a belief has it.

        Args:
            belief: Whose.
            options: Candidates of each agent, in physical units; a last row of NaN is to decline.
            ways: What each measures on the way to each candidate, NaN where nothing.
        """
        parts, axes = rows_of(options, ways)
        measures = [~np.isnan(own[:, 0]) for own in parts]
        places = [own[there] for own, there in zip(parts, measures, strict=True)]
        cache = belief.posterior_cache(np.concatenate(places))
        ends = np.cumsum([0, *map(len, places)])
        rows = [np.arange(start, stop) for start, stop in itertools.pairwise(ends)]
        # without a copy where that will do
        whole = [slice(start, stop) for start, stop in itertools.pairwise(ends.tolist())]
        parts_of = whole if isinstance(cache, JointPosterior | Looked) else rows

        def between(i: int, j: int) -> Float[np.ndarray, "..."]:
            if axes[i] == axes[j]:
                both, out = measures[i] & measures[j], np.zeros(len(parts[i]))
                out[both] = paired(cache, rows[i][both[measures[i]]], rows[j][both[measures[j]]])
                return out
            known = cache.cov(parts_of[i], parts_of[j])  # pyright: ignore[reportArgumentType]
            if known.shape == (len(parts[i]), len(parts[j])):
                return known
            out = np.zeros((len(parts[i]), len(parts[j])))
            out[np.ix_(measures[i], measures[j])] = known
            return out

        n = range(len(parts))
        covariances = [[between(i, j) if j > i else np.empty((0, 0)) for j in n] for i in n]
        means, variances = ([np.zeros(len(own)) for own in parts] for _ in range(2))
        for i, there in enumerate(measures):
            means[i][there], variances[i][there] = cache.mean[rows[i]], cache.var[rows[i]]
        return cls(means, variances, covariances, measures, axes)

    @classmethod
    def of_single(cls, mean: Float[np.ndarray, " m"], cov: Float[np.ndarray, "m m"]) -> "Block":
        """Of one place for each agent, by their joint marginals."""
        every = range(len(mean))
        covariances = [[cov[i : i + 1, j : j + 1] if j > i else np.empty((0, 0)) for j in every] for i in every]
        there = [np.ones(1, dtype=bool) for _ in every]
        return cls(
            [mean[i : i + 1] for i in every], [cov[i, i : i + 1] for i in every], covariances, there, tuple(every)
        )

    def first(self, part: slice) -> "Block":
        """The same with some of the first agent's candidates."""
        own = self.own
        means, variances, measures = (
            [*(row[part] for row in rows[:own]), *rows[own:]] for rows in (self.means, self.variances, self.measures)
        )
        covariances = [[cov[part] for cov in row] for row in self.covariances[:own]] + self.covariances[own:]
        return Block(means, variances, covariances, measures, self.axes)

    @property
    def own(self) -> int:
        """How many rows are the first agent's."""
        return self.axes.count(0)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a table over the candidates."""
        return tuple(len(self.means[self.axes.index(axis)]) for axis in range(self.axes[-1] + 1))

    def on_axes(self, array: Float[np.ndarray, "..."], *rows: int) -> Float[np.ndarray, "..."]:
        """An array over the candidates of the agents of some rows, so that it multiplies a table over all of them."""
        shape = [1] * (self.axes[-1] + 1)
        for size, axis in zip(array.shape, dict.fromkeys(self.axes[row] for row in rows), strict=True):
            shape[axis] = size
        return array.reshape(shape)


def rows_of(
    options: Sequence[Float[np.ndarray, "_ d"]], ways: Sequence[Float[np.ndarray, "_ k d"]]
) -> tuple[list[Float[np.ndarray, "_ d"]], tuple[int, ...]]:
    """The places of each row of a block, and whose rows they are.

    Args:
        options: Candidates of each agent.
        ways: What each measures on the way to each; empty: nothing.
    """
    parts, axes = list[np.ndarray](), list[int]()
    for axis, own in enumerate(options):
        legs = [own, *(np.moveaxis(ways[axis], 1, 0) if ways else ())]
        parts += legs
        axes += [axis] * len(legs)
    return parts, tuple(axes)


def paired(cache: PosteriorCache, rows: Int[np.ndarray, " n"], cols: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Covariances of the first row with the first column, of the second with the second, and so on."""
    parts = [slice(start, start + _AT_ONCE) for start in range(0, len(rows), _AT_ONCE)]
    return np.concatenate([np.zeros(0), *(np.diagonal(cache.cov(rows[part], cols[part])) for part in parts)])


class Taken(NamedTuple):
    """A row of a successor, given all rows after it, by which those before it are conditioned.

    Args:
        variance: Of the row, with noise.
        covariances: With each row of a successor before it.
    """

    variance: Float[np.ndarray, "..."]
    covariances: dict[int, Float[np.ndarray, "..."]]


def of_successors(block: Block, variances: list[Float[np.ndarray, " _"]]) -> list[Taken]:
    """The rows of successors, the last first: the part of ``pivots`` that is the same for all places of the first one.

    Args:
        block: With covariances between rows.
        variances: As of ``pivots``.
    """
    n, own, taken = len(variances), block.own, list[Taken]()
    given = {(i, j): block.on_axes(block.covariances[i][j], i, j) for i in range(own, n) for j in range(i + 1, n)}
    given |= {(i, i): block.on_axes(variances[i], i) for i in range(own, n)}
    for k in range(n - 1, own - 1, -1):
        taken.append(Taken(given[k, k], {i: given[i, k] for i in range(own, k)}))
        _condition(given, range(own, k), k)
    return taken


def pivots(
    block: Block, variances: list[Float[np.ndarray, " _"]], successors: list[Taken] | None = None
) -> list[Float[np.ndarray, "..."]]:
    """Variance of each row of the first agent given the rows after it, for all combinations of candidates at once.

    Args:
        block: With covariances between rows.
        variances: Of each row (C_i,), with the noise that it is measured with.
        successors: ``of_successors``, where that is known.

    Returns:
        Tables that multiply one over the candidates, in the order of the rows: with two rows, one of each agent, the
        entry (c_0, c_1) is Var[x_0 = c_0 | x_1 = c_1].
        Only sums and products of single entries are taken, so that a table never depends on what is computed beside it.
    """
    n, own = len(variances), block.own
    given = {(i, j): block.on_axes(block.covariances[i][j], i, j) for i in range(own) for j in range(i + 1, n)}
    given |= {(i, i): block.on_axes(variances[i], i) for i in range(own)}
    known = of_successors(block, variances) if successors is None else successors
    for k, (variance, covariances) in zip(range(n - 1, own - 1, -1), known, strict=True):
        given |= {(k, k): variance} | {(j, k): cov for j, cov in covariances.items()}
        _condition(given, range(own), k)
    for k in range(own - 1, 0, -1):
        _condition(given, range(k), k)
    return [given[i, i] for i in range(own)]


def _condition(given: dict[tuple[int, int], Float[np.ndarray, "..."]], rows: range, k: int) -> None:
    """Condition some rows, and what they have with all rows before k, on row k: each step's Schur complement."""
    gains = [given[i, k] / given[k, k] for i in rows]
    for i, gain in zip(rows, gains, strict=True):
        for j in range(i, k):
            taken = gain * given[j, k]  # most of the work is memory, so as little of it as possible is new
            full = np.broadcast_shapes(taken.shape, given[i, j].shape) == taken.shape
            given[i, j] = np.subtract(given[i, j], taken, out=taken if full else None)
