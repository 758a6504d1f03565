"""Incumbents by posterior mean: starts of searches, and the reference of improvement."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.graph.groups import rows_of

PartMeans = tuple[Int[np.ndarray, " _a"], Float[np.ndarray, " t"]]

N_STARTS = 3  # best evaluations from which a search starts
Point = Float[np.ndarray, " n"]


def evaluated(belief: AdditiveGP) -> Float[np.ndarray, "t n"]:
    """Evaluated points in the unit cube. All agents know them, but not all agents know their outcomes."""
    return belief.domain.to_unit(belief.X)


def part_means(belief: AdditiveGP, factor_means: Float[np.ndarray, "k t"] | None = None) -> list[PartMeans]:
    """Columns of each connected part's variables, and posterior means of its sum at ``evaluated`` points."""
    means, row = means_of(belief, belief.graph.factors, factor_means), belief.graph.place_of
    parts = belief.graph.components
    return [masked_means(belief, part, means[[row[factor] for factor in part.factors]].sum(axis=0)) for part in parts]


def means_of(
    belief: AdditiveGP, factors: Sequence[str], factor_means: Float[np.ndarray, "k t"] | None = None
) -> Float[np.ndarray, "f t"]:
    """Means of some factors at ``evaluated`` points: rows of ``factor_means`` if given, else by the belief."""
    if factor_means is not None:
        return factor_means[[belief.graph.place_of[factor] for factor in factors]]
    means, row = np.zeros((len(factors), len(belief.X))), rows_of(stacks_of(belief.graph))
    means[:, belief.known] = belief.means_at_data[[row[factor] for factor in factors]]
    return means


def means_at_pending(belief: AdditiveGP, factors: Sequence[str]) -> Float[np.ndarray, "f p"]:
    """Means of some factors at pending points."""
    U, stacks = belief.domain.to_unit(belief.pending), stacks_of(belief.graph, factors)
    means = [np.zeros((0, len(U))), *(belief.local_mean(stack, stack.take(U)) for stack in stacks)]
    row = rows_of(stacks)
    return np.concatenate(means)[[row[factor] for factor in factors]]


def masked_means(belief: AdditiveGP, part: FactorGraph, mean: Float[np.ndarray, " t"]) -> PartMeans:
    """Columns of a part's variables, and means (t,) of its sum, -inf at points without outcomes of the part."""
    own, seen = [belief.graph.place_of[factor] for factor in part.factors], belief.eligible
    if not belief.is_coupled:
        # points with outcomes of all the part's factors; if none, points with any: the part's agents know these
        complete = np.isfinite(belief.factors[:, own]).all(axis=1) & seen
        seen = complete if complete.any() or len(own) == 1 else seen
    return _columns(belief, part), np.where(seen, mean, -np.inf)


def incumbent(belief: AdditiveGP, factor_means: Float[np.ndarray, "k t"] | None = None) -> Point:
    """Evaluated point with the largest posterior mean, in the unit cube; the first if none has an outcome.

    Without noise, it has the best outcome; without evaluations, it is the centre. With outcomes per factor, it combines
    the best evaluated points of the connected parts, whose values are measured, not inferred.
    """
    U = evaluated(belief)
    if not len(U):
        return np.full(belief.domain.n_dims, 0.5)
    parts = part_means(belief, factor_means)
    if belief.is_coupled:
        return U[int(np.argmax(np.sum([mean for _, mean in parts], axis=0)))].copy()
    return composed(parts, U, 1)[0]


def to_beat(belief: AdditiveGP) -> Point:
    """Incumbent in which parts take the values of better pending points: otherwise that query would be repeated."""
    point = incumbent(belief)
    if not (len(belief.pending) and len(evaluated(belief))):
        return point
    for part in belief.graph.components:
        ahead = pending_means(belief, part, means_at_pending(belief, part.factors).sum(axis=0))
        columns = _columns(belief, part)
        stacks = stacks_of(belief.graph, part.factors)
        here = sum(float(belief.local_mean(stack, stack.take(point[None])).sum()) for stack in stacks)
        point[columns] = or_best_pending(belief, columns, point, here, ahead)
    return point


def or_best_pending(
    belief: AdditiveGP, columns: Int[np.ndarray, " a"], point: Point, mean: float, ahead: Float[np.ndarray, " p"]
) -> Float[np.ndarray, " a"]:
    """Values of ``columns`` at a point, or at the best pending point if its mean in ``ahead`` exceeds ``mean``."""
    best = int(np.argmax(ahead))
    return belief.domain.to_unit(belief.pending)[best, columns] if ahead[best] > mean else point[columns]


def pending_means(belief: AdditiveGP, part: FactorGraph, mean: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """Expected sum of a part at pending points; -inf if all its outcomes are known."""
    own = [belief.graph.place_of[factor] for factor in part.factors]
    return np.where(belief.awaited[:, own].any(axis=1), mean, -np.inf)


def starting_points(belief: AdditiveGP, low: Point, high: Point, count: int = N_STARTS) -> Float[np.ndarray, "k n"]:
    """Good starts in a box, best first: combined from the best evaluated points of each part of the graph."""
    U = evaluated(belief)
    if not len(U):
        return np.zeros((0, belief.domain.n_dims))
    return np.clip(composed(part_means(belief), U, count), low, high)


def _columns(belief: AdditiveGP, part: FactorGraph) -> Int[np.ndarray, " a"]:
    return np.array([belief.graph.column_of[variable] for variable in part.variables])


def composed(parts: Sequence[PartMeans], U: Float[np.ndarray, "t n"], count: int) -> Float[np.ndarray, "k n"]:
    """Points combined from each part's best points, best first; ``parts`` as from ``part_means``, for rows of ``U``."""
    out = np.full((min(count, len(U)), U.shape[1]), 0.5)
    for columns, mean in parts:
        n_seen = int(np.isfinite(mean).sum()) or len(mean)
        best = np.argsort(-mean, kind="stable")[np.arange(len(out)) % n_seen]
        out[:, columns] = U[np.ix_(best, columns)]
    return out
