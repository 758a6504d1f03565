"""From a joint choice that is forbidden towards one that is not: variable by variable, given all others.

A variable takes the value at which factors that weigh least are broken; of equal ones that of the largest sum. What is
still broken after a sweep over all variables weighs one more in the next, which leads out of choices where no single
variable can do better (breakout: Morris 1993; by messages: Yokoo & Hirayama 1996). A value at which something stays
broken is left if another is as good.

In Yokoo & Hirayama's form neighbours tell one another how much each could gain, the one that gains most moves, and
weights grow where none gains. Here variables take turns, in the order of decoding, and weights grow after every sweep.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from swarmbo.coordination.tables import Table
from swarmbo.coordination.updates import Vector
from swarmbo.graph import FactorGraph


def line_of(table: Table, scope: Sequence[str], variable: str, chosen: Mapping[str, int]) -> Vector:
    """A factor's entries by the value of one of its variables, the others as they are chosen."""
    return table[tuple(slice(None) if x == variable else chosen[x] for x in scope)]


def least_forbidden(lines: Sequence[Vector], weights: Sequence[float], present: int | None = None) -> int:
    """The value that a variable takes.

    Args:
        lines: Of each of its factors; -inf where the factor is broken.
        weights: What breaking each counts.
        present: Its present value, if it has one.

    Returns:
        The index; of equally good ones the lowest.
    """
    broken, worth = np.zeros(len(lines[0])), np.zeros(len(lines[0]))
    for line, weight in zip(lines, weights, strict=True):
        forbidden = line == -np.inf
        broken = broken + weight * forbidden
        worth = worth + np.where(forbidden, 0.0, line)
    best = broken == broken.min()
    if present is not None and broken[present] > 0.0 and best.sum() > 1:
        best[present] = False
    return int(np.argmax(np.where(best, worth, -np.inf)))


def reweighed(weights: Mapping[str, float], values: Mapping[str, float]) -> dict[str, float]:
    """The weights of factors for the next sweep, given their values after the last one."""
    return {factor: weight + (values[factor] == -np.inf) for factor, weight in weights.items()}


def sweeps(
    graph: FactorGraph, order: Sequence[str], tables: Mapping[str, Table], start: Mapping[str, int]
) -> Iterator[dict[str, int]]:
    """One joint choice after the other, for as long as asked.

    Args:
        graph: Scopes.
        order: In which the variables choose.
        tables: One per factor.
        start: A choice that breaks some factor.
    """
    chosen, weights = dict(start), dict.fromkeys(graph.factors, 1.0)
    while True:
        for variable in order:
            factors = graph.factors_of(variable)
            lines = [line_of(tables[factor], graph.scope(factor), variable, chosen) for factor in factors]
            chosen[variable] = least_forbidden(lines, [weights[factor] for factor in factors], chosen[variable])
        yield dict(chosen)
        values = {f: float(tables[f][tuple(chosen[x] for x in graph.scope(f))]) for f in graph.factors}
        weights = reweighed(weights, values)
