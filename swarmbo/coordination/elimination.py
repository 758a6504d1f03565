"""Eliminating variables one by one: the order, what each step joins, and the step itself."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.decoding import best_value
from swarmbo.coordination.tables import Table
from swarmbo.graph import FactorGraph

BLOCK = 2**14  # entries joined at a time: 128 KiB of float64 stays in the second-level cache


@dataclass(frozen=True)
class Bucket:
    """One step of the elimination.

    Args:
        variable: The one that is maximised out.
        scope: The others that it is joined with, in the order in which they are eliminated later.
        factors: The factors joined here, in the graph's order.
        children: Earlier variables whose results are joined here, in the order of elimination.
        parent: The later variable whose step takes this one's result; None at the end of a connected part.
    """

    variable: str
    scope: tuple[str, ...]
    factors: tuple[str, ...]
    children: tuple[str, ...]
    parent: str | None


def elimination_steps(graph: FactorGraph, sizes: Mapping[str, int]) -> dict[str, Bucket]:
    """The steps in the graph's own order of variables, unless the largest table of min-fill is smaller.

    On a chain, where factor n has variables n … n+B, the graph's order is one sweep with tables over B + 1 variables,
    and every factor is joined by the owner of its first variable.

    Args:
        graph: A factor graph.
        sizes: Number of values by variable.
    """
    candidates = [buckets_of(graph, order) for order in (graph.variables, _min_fill_order(graph, sizes))]
    return min(candidates, key=lambda buckets: largest_clique(buckets, sizes)[0])  # of equal ones the first


def largest_clique(buckets: Mapping[str, Bucket], sizes: Mapping[str, int]) -> tuple[int, tuple[str, ...]]:
    """Entries of the largest table that an elimination joins, and its variables."""
    cliques = [(bucket.variable, *bucket.scope) for bucket in buckets.values()]
    return max(((math.prod(sizes[x] for x in clique), clique) for clique in cliques), key=lambda pair: pair[0])


def buckets_of(graph: FactorGraph, order: Sequence[str]) -> dict[str, Bucket]:
    """The steps of an elimination, by variable, in its order."""
    place = {variable: i for i, variable in enumerate(order)}
    factors: dict[str, list[str]] = {variable: [] for variable in order}
    for factor in graph.factors:
        factors[min(graph.scope(factor), key=place.__getitem__)].append(factor)
    children: dict[str, list[str]] = {variable: [] for variable in order}
    buckets: dict[str, Bucket] = {}
    for variable in order:
        joined = {x for factor in factors[variable] for x in graph.scope(factor)}
        joined.update(x for child in children[variable] for x in buckets[child].scope)
        scope = tuple(sorted(joined - {variable}, key=place.__getitem__))
        parent = scope[0] if scope else None
        buckets[variable] = Bucket(variable, scope, tuple(factors[variable]), tuple(children[variable]), parent)
        if parent is not None:
            children[parent].append(variable)
    return buckets


def eliminate(
    bucket: Bucket, parts: Sequence[tuple[Sequence[str], Table]], sizes: Mapping[str, int]
) -> Float[np.ndarray, "..."]:
    """Join tables and maximise a variable out of them.

    Additions run over the parts in their order and maxima over the variable's values, so the result has the same bits
    whoever computes it.

    Args:
        bucket: The step.
        parts: Scope and table of the factors joined here, then of the children's results.
        sizes: Number of values by variable.

    Returns:
        The maximum over the variable, one axis for each of ``bucket.scope``.
    """
    clique = (bucket.variable, *bucket.scope)
    views = [_aligned(table, scope, clique) for scope, table in parts]
    shape = tuple(sizes[x] for x in bucket.scope)
    n_values = sizes[bucket.variable]
    if len(views) == 1:
        return np.ascontiguousarray(np.broadcast_to(views[0].max(axis=0), shape))
    n_rows = max(1, min(n_values, BLOCK // max(1, math.prod(shape))))
    best = np.full(shape, -np.inf)
    joined = np.empty((n_rows, *shape))
    for start in range(0, n_values, n_rows):
        block = joined[: min(n_rows, n_values - start)]
        rows = slice(start, start + len(block))
        np.add(views[0][rows], views[1][rows], out=block)
        for view in views[2:]:
            np.add(block, view[rows], out=block)
        np.maximum(best, block[0] if len(block) == 1 else block.max(axis=0), out=best)
    return best


def choose(bucket: Bucket, parts: Sequence[tuple[Sequence[str], Table]], chosen: Mapping[str, int]) -> int:
    """The best value of a step's variable, given those of its scope; of equal ones the lowest index.

    Args:
        bucket: The step.
        parts: What :func:`eliminate` was given.
        chosen: Index by variable, at least for ``bucket.scope``.
    """
    lines = [table[tuple(slice(None) if x == bucket.variable else chosen[x] for x in scope)] for scope, table in parts]
    return best_value(lines)


def _aligned(table: Table, scope: Sequence[str], clique: Sequence[str]) -> Table:
    """A view with one axis for each variable of the clique, of length 1 where the table lacks it."""
    present = [x for x in clique if x in scope]
    view = table.transpose([scope.index(x) for x in present])
    return view[tuple(slice(None) if x in scope else None for x in clique)]


def _min_fill_order(graph: FactorGraph, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Always the variable whose neighbours lack the fewest links; of equal ones the smallest table, then the first."""
    neighbours: dict[str, set[str]] = {variable: set() for variable in graph.variables}
    for scope in graph.scopes:
        for variable in scope:
            neighbours[variable].update(x for x in scope if x != variable)
    place = {variable: i for i, variable in enumerate(graph.variables)}

    def cost(variable: str) -> tuple[int, int, int]:
        around = neighbours[variable]
        fill = sum(len(around - neighbours[x]) - 1 for x in around)  # less x itself; every link that lacks counts twice
        return fill, math.prod(sizes[x] for x in around), place[variable]

    costs = {variable: cost(variable) for variable in graph.variables}
    order: list[str] = []
    while costs:
        variable = min(costs, key=costs.__getitem__)
        around = neighbours.pop(variable)
        del costs[variable]
        order.append(variable)
        for x in around:
            neighbours[x].discard(variable)
            neighbours[x].update(around - {x})
        for x in around.union(*(neighbours[y] for y in around)):  # only there can the fill have changed
            costs[x] = cost(x)
    return tuple(order)
