"""The best of what was evaluated, as a belief sees it: where searches start, and what improvement is measured from."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.graph import stacks_of


def known(belief: AdditiveGP) -> Bool[np.ndarray, " t"]:
    """Which evaluations have at least one outcome that is known."""
    return np.isfinite(belief.totals) | np.isfinite(belief.factors).any(axis=1)


def evaluated(belief: AdditiveGP) -> Float[np.ndarray, "t n"]:
    """Points of the unit cube of which at least one outcome is known."""
    return belief.domain.to_unit(belief.X[known(belief)])


def part_means(
    belief: AdditiveGP, factor_means: Float[np.ndarray, "k t"] | None = None
) -> list[tuple[Int[np.ndarray, " _a"], Float[np.ndarray, " t"]]]:
    """For each connected part of the graph its variables, as columns, and what its sum is worth at ``evaluated``.

    That is the posterior mean. Where factors are observed one by one, it is -inf where not all outcomes of the part are
    known, unless they nowhere are.

    Args:
        belief: Of all factors.
        factor_means: What each factor is worth there; by default as the belief has it.
    """
    U, place = evaluated(belief), {variable: index for index, variable in enumerate(belief.graph.variables)}
    told = np.isfinite(belief.factors[known(belief)])
    out: list[tuple[np.ndarray, np.ndarray]] = []
    for part in belief.graph.components:
        own = [belief.graph.factors.index(factor) for factor in part.factors]
        if factor_means is None:
            means = [belief.local(stack, stack.take(U)).mean for stack in stacks_of(belief.graph, part.factors)]
            mean = np.concatenate(means).sum(axis=0)
        else:
            mean = factor_means[own].sum(axis=0)
        seen = told[:, own].all(axis=1)
        if not belief.is_tied and seen.any():
            mean = np.where(seen, mean, -np.inf)
        out.append((np.array([place[variable] for variable in part.variables]), mean))
    return out


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
    if belief.is_tied:
        return U[int(np.argmax(np.sum([mean for _, mean in parts], axis=0)))].copy()
    return _composed(parts, U, 1)[0]


def starting_points(
    belief: AdditiveGP, low: Float[np.ndarray, " n"], high: Float[np.ndarray, " n"], count: int = 3
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
    return np.clip(_composed(part_means(belief), U, count), low, high)


def _composed(
    parts: Sequence[tuple[Int[np.ndarray, " _a"], Float[np.ndarray, " t"]]], U: Float[np.ndarray, "t n"], count: int
) -> Float[np.ndarray, "k n"]:
    out = np.empty((min(count, len(U)), U.shape[1]))
    for columns, mean in parts:
        best = np.argsort(-mean, kind="stable")[: len(out)]
        out[:, columns] = U[np.ix_(best, columns)]
    return out
