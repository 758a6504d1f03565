"""Tables of a factor graph, checked once at the boundary."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph

LARGEST = 1e200  # entries beyond it could overflow in a sum, and inf - inf is not a number

Table = Float[np.ndarray, "..."]
Edge = tuple[str, str]  # (factor, variable), for messages in either direction
Vector = Float[np.ndarray, " n_values"]
Messages = Float[np.ndarray, "n d"]
Flat = Float[np.ndarray, " entries"]  # every message of one direction, end to end


def checked_tables(graph: FactorGraph, tables: Mapping[str, ArrayLike]) -> dict[str, Table]:
    """Tables as float64 arrays in C order, by factor; copied only if necessary. An entry is to be maximised; -inf
    forbids. A ShapeError names a missing table, an unfit axis, or an entry that is NaN, +inf or beyond 1e200.
    """
    if missing := [factor for factor in graph.factors if factor not in tables]:
        raise ShapeError(f"factor {missing[0]!r} has no table; give one array with axes {graph.scope(missing[0])}")
    known_factors = set(graph.factors)
    if unknown := [factor for factor in tables if factor not in known_factors]:
        raise ShapeError(f"got a table for {unknown[0]!r}, which is no factor of the graph; leave it out")
    checked: dict[str, Table] = {}
    size_of: dict[str, tuple[int, str]] = {}
    for factor in graph.factors:
        table = np.ascontiguousarray(tables[factor], dtype=np.float64)
        scope = graph.scope(factor)
        if np.ndim(tables[factor]) != len(scope):
            raise ShapeError(
                f"table of {factor!r}: got {np.ndim(tables[factor])} axes; wanted {len(scope)}, one for each of "
                f"{', '.join(scope)}"
            )
        for variable, size in zip(scope, table.shape, strict=True):
            if size == 0:
                raise ShapeError(f"table of {factor!r}: variable {variable!r} has no value to choose from; wanted >= 1")
            known, by = size_of.setdefault(variable, (size, factor))
            if known != size:
                raise ShapeError(
                    f"variable {variable!r} has {known} values in the table of {by!r} but {size} in that of "
                    f"{factor!r}. Give all tables of a variable the same values in the same order"
                )
        _check_entries(factor, table)
        checked[factor] = table
    return checked


def sizes_of(graph: FactorGraph, tables: Mapping[str, Table]) -> dict[str, int]:
    """Number of values of each variable, in the graph's order of variables."""
    sizes = {
        variable: size
        for factor in graph.factors
        for variable, size in zip(graph.scope(factor), tables[factor].shape, strict=True)
    }
    return {variable: sizes[variable] for variable in graph.variables}


def factor_values(
    graph: FactorGraph, tables: Mapping[str, Table], assignment: Mapping[str, int]
) -> Float[np.ndarray, " n_factors"]:
    """Entry of each factor at an assignment, in the graph's order of factors."""
    return np.array([tables[f][tuple(assignment[x] for x in graph.scope(f))] for f in graph.factors])


def total(values: Float[np.ndarray, " n_factors"]) -> float:
    """Sum from the first to the last value, so that every agent's sum is bit-identical."""
    return float(np.add.accumulate(values)[-1])


Rank = tuple[int, float]


def rank(values: Float[np.ndarray, " n_factors"]) -> Rank:
    """Rank of a joint choice, larger being better: by the fewest forbidding factors, then by the sum of the others."""
    forbidden = values == -np.inf
    return -int(forbidden.sum()), total(np.where(forbidden, 0.0, values))


def violated(values: Mapping[str, float]) -> tuple[str, ...]:
    """Factors that forbid a joint choice, given the value of each."""
    return tuple(factor for factor, value in values.items() if value == -np.inf)


def spreads(tables: Table) -> Float[np.ndarray, " n"]:
    """Largest less smallest finite entry of tables of one shape (n, …); 1 where it would be 0 or nothing is finite."""
    axes = tuple(range(1, tables.ndim))
    high, low = tables.max(axis=axes), tables.min(axis=axes)
    forbids = low == -np.inf
    finite = tables[forbids]
    low[forbids] = np.min(finite, axis=axes, where=finite > -np.inf, initial=np.inf)
    return np.subtract(high, low, out=np.ones(len(tables)), where=low < high)


def _check_entries(factor: str, table: Table) -> None:
    high = float(table.max())  # NaN if any entry is
    if not high <= LARGEST:
        at = tuple(map(int, np.unravel_index(int(np.argmax(~(table <= LARGEST))), table.shape)))
        raise ShapeError(
            f"table of {factor!r}: got {table[at]} at {at}; wanted numbers up to {LARGEST:g}, or -inf for a forbidden "
            "combination"
        )
    if np.count_nonzero(table < -LARGEST) > np.count_nonzero(table == -np.inf):
        raise ShapeError(f"table of {factor!r}: got an entry below {-LARGEST:g}; use -inf to forbid a combination")


def by_axis(entries: Flat, starts: Int[np.ndarray, " a"], tables: Table) -> list[Messages]:
    """Messages (n, d_k) by axis, of factors of one shape, whose messages lie end to end from ``starts`` on."""
    n, *shape = tables.shape
    ends = zip(starts.tolist(), shape, strict=True)
    return [entries[start : start + n * size].reshape(n, size) for start, size in ends]
