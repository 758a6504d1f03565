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
    belief: AdditiveGP,
    factors: Sequence[str],
    factor_means: Float[np.ndarray, "k t"] | None = None,
    *,
    pending: bool = False,
) -> Float[np.ndarray, "f t"]:
    """What some factors are worth at ``evaluated``.

    Args:
        belief: Of all factors.
        factors: Which.
        factor_means: As in ``part_means``.
        pending: At pending points instead.
    """
    if factor_means is not None:
        return factor_means[[belief.graph.place_of[factor] for factor in factors]]
    U = belief.domain.to_unit(belief.pending) if pending else evaluated(belief)
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
    return _columns(belief, part), mean


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


def to_beat(belief: AdditiveGP) -> Float[np.ndarray, " n"]:
    """The incumbent, but for parts of the graph of which a pending point promises more: those are as there.

    Improvement is measured from it. From the incumbent alone, the place of the best mean would be asked again and
    again, because pending points do not move the mean.

    Args:
        belief: Of all factors; it knows of pending points.
    """
    point = incumbent(belief)
    if not (len(belief.pending) and len(evaluated(belief))):
        return point
    for part in belief.graph.components:
        ahead = pending_means(belief, part, means_of(belief, part.factors, pending=True).sum(axis=0))
        columns = _columns(belief, part)
        stacks = stacks_of(belief.graph, part.factors)
        here = sum(float(belief.local_mean(stack, stack.take(point[None])).sum()) for stack in stacks)
        point[columns] = surpassed(belief, columns, point, here, ahead)
    return point


def surpassed(
    belief: AdditiveGP,
    columns: Int[np.ndarray, " a"],
    point: Float[np.ndarray, " n"],
    mean: float,
    ahead: Float[np.ndarray, " p"],
) -> Float[np.ndarray, " a"]:
    """Some variables of a point, or of the pending point of the largest mean if that is larger.

    Args:
        belief: That knows of pending points.
        columns: The variables.
        point: In the unit cube.
        mean: What it is expected to bring.
        ahead: What pending points are expected to bring.
    """
    best = int(np.argmax(ahead))
    return belief.domain.to_unit(belief.pending)[best, columns] if ahead[best] > mean else point[columns]


def pending_means(belief: AdditiveGP, part: FactorGraph, mean: Float[np.ndarray, " p"]) -> Float[np.ndarray, " p"]:
    """What a part's sum is expected to be at pending points; -inf where all its outcomes were told."""
    own = [belief.graph.place_of[factor] for factor in part.factors]
    return np.where(belief.awaited[:, own].any(axis=1), mean, -np.inf)


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


def _columns(belief: AdditiveGP, part: FactorGraph) -> Int[np.ndarray, " a"]:
    return np.array([belief.graph.column_of[variable] for variable in part.variables])


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
