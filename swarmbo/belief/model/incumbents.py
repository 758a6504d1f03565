"""The best of what was evaluated, as a belief sees it: where searches start, and what improvement is measured from."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.graph import FactorGraph, stacks_of

PartMeans = tuple[Int[np.ndarray, " _a"], Float[np.ndarray, " t"]]

N_STARTS = 3  # of the best evaluations, from which a search starts


def known(belief: AdditiveGP) -> Bool[np.ndarray, " t"]:
    """Which evaluations have at least one outcome that is known."""
    return np.isfinite(belief.totals) | np.isfinite(belief.factors).any(axis=1)


def evaluated(belief: AdditiveGP) -> Float[np.ndarray, "t n"]:
    """Points of the unit cube of which at least one outcome is known."""
    return belief.domain.to_unit(belief.X[known(belief)])


def part_means(belief: AdditiveGP, factor_means: Float[np.ndarray, "k t"] | None = None) -> list[PartMeans]:
    """For each connected part of the graph its variables, as columns, and what its sum is worth at ``evaluated``.

    That is the posterior mean. Where factors are observed one by one, it is -inf where not all outcomes of the part are
    known, unless they nowhere are.

    Args:
        belief: Of all factors.
        factor_means: What each factor is worth there; by default as the belief has it.
    """
    graph, in_use = belief.graph, known(belief)
    if factor_means is None:
        order = [factor for stack in stacks_of(graph) for factor in stack.factors]
        row, factor_means = {factor: i for i, factor in enumerate(order)}, belief.means_at_data
    else:
        row = graph.place_of
    out = list[PartMeans]()
    for part in graph.components:
        own = sorted(row[factor] for factor in part.factors)
        out.append(as_seen(belief, part, factor_means[own].sum(axis=0), in_use))
    return out


def means_of(
    belief: AdditiveGP, factors: Sequence[str], factor_means: Float[np.ndarray, "k t"] | None = None
) -> Float[np.ndarray, "f t"]:
    """What some factors are worth at ``evaluated``.

    Args:
        belief: Of all factors.
        factors: Which.
        factor_means: As in ``part_means``.
    """
    if factor_means is not None:
        return factor_means[[belief.graph.place_of[factor] for factor in factors]]
    U = evaluated(belief)
    return np.concatenate([belief.local_mean(stack, stack.take(U)) for stack in stacks_of(belief.graph, factors)])


def as_seen(
    belief: AdditiveGP, part: FactorGraph, mean: Float[np.ndarray, " t"], in_use: Bool[np.ndarray, " T"] | None = None
) -> PartMeans:
    """A part's variables, as columns, and what its sum is worth, as ``part_means`` has it.

    Args:
        belief: Of all factors.
        part: A connected part of its graph.
        mean: Of the sum, at ``evaluated``.
        in_use: ``known`` of the belief, if that has been worked out.
    """
    graph = belief.graph
    own = [graph.place_of[factor] for factor in part.factors]
    seen = np.isfinite(belief.factors[:, own][known(belief) if in_use is None else in_use]).all(axis=1)
    if not belief.is_coupled and seen.any():
        mean = np.where(seen, mean, -np.inf)
    return np.array([graph.column_of[variable] for variable in part.variables]), mean


def incumbent(belief: AdditiveGP, factor_means: Float[np.ndarray, "k t"] | None = None) -> Float[np.ndarray, " n"]:
    """The evaluated point with the largest posterior mean, in the unit cube; its centre while nothing is known.

    Without noise that is the best outcome. Where factors are observed one by one, it is put together from the best
    evaluated point of each connected part: what a part is worth there was seen, not inferred.

    Args:
        belief: Of all factors.
        factor_means: As in ``part_means``.
    """
    U = evaluated(belief)
    if not len(U):
        return np.full(belief.domain.n_dims, 0.5)
    parts = part_means(belief, factor_means)
    if belief.is_coupled:
        return U[int(np.argmax(np.sum([mean for _, mean in parts], axis=0)))].copy()
    return composed(parts, U, 1)[0]


def starting_points(
    belief: AdditiveGP, low: Float[np.ndarray, " n"], high: Float[np.ndarray, " n"], count: int = N_STARTS
) -> Float[np.ndarray, "k n"]:
    """Points of a box worth starting a search from: for each part of the graph its best evaluated points.

    Args:
        belief: Of all factors.
        low: Lower corner.
        high: Upper corner.
        count: At most this many, best first.
    """
    U = evaluated(belief)
    if not len(U):
        return np.zeros((0, belief.domain.n_dims))
    return np.clip(composed(part_means(belief), U, count), low, high)


def composed(parts: Sequence[PartMeans], U: Float[np.ndarray, "t n"], count: int) -> Float[np.ndarray, "k n"]:
    """Points put together from the best that each part has seen, best first.

    Args:
        parts: As ``part_means`` has them.
        U: Points of the unit cube that they are about.
        count: At most this many.
    """
    out = np.full((min(count, len(U)), U.shape[1]), 0.5)
    for columns, mean in parts:
        best = np.argsort(-mean, kind="stable")[: len(out)]
        out[:, columns] = U[np.ix_(best, columns)]
    return out
