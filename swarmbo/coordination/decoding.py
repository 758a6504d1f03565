"""From messages to a joint choice in which ties cannot mix two optima: variable by variable, given those before."""

from collections.abc import Mapping, Sequence

import numpy as np

from swarmbo.coordination.repair import least_forbidden
from swarmbo.coordination.tables import Table
from swarmbo.coordination.updates import Edge, Vector
from swarmbo.graph import FactorGraph


def decoding_order(graph: FactorGraph) -> tuple[str, ...]:
    """Breadth first from the first variable of each connected part: on a forest, parents before children."""
    order: dict[str, None] = {}
    for start in graph.variables:
        frontier = [start] if start not in order else []
        order[start] = None
        for variable in frontier:
            for factor in graph.factors_of(variable):
                for other in graph.scope(factor):
                    if other not in order:
                        order[other] = None
                        frontier.append(other)
    return tuple(order)


def conditioned_message(
    table: Table,
    scope: Sequence[str],
    variable: str,
    chosen: Mapping[str, int],
    from_variables: Mapping[Edge, Vector],
    factor: str,
) -> Vector:
    """What a factor says to a variable once some of its other variables are decided.

    Args:
        table: The factor's table.
        scope: Its variables.
        variable: The recipient.
        chosen: Index of each decided variable.
        from_variables: Messages of the undecided others to this factor.
        factor: Its name.

    Returns:
        For each value the best over the undecided others of table + their messages, at the decided ones' values.
    """
    line = table[tuple(chosen[x] if x in chosen and x != variable else slice(None) for x in scope)]
    open_scope = [x for x in scope if x == variable or x not in chosen]
    place = open_scope.index(variable)
    line = np.moveaxis(line, place, 0)
    for axis, other in enumerate(x for x in open_scope if x != variable):
        shape = [1] * line.ndim
        shape[axis + 1] = -1
        line = line + from_variables[factor, other].reshape(shape)
    return line.reshape(len(line), -1).max(axis=1)


def decode(
    graph: FactorGraph,
    order: Sequence[str],
    tables: Mapping[str, Table],
    from_variables: Mapping[Edge, Vector],
    from_factors: Mapping[Edge, Vector],
) -> dict[str, int]:
    """Choose variable by variable; of equal values the lowest index.

    A factor none of whose variables is decided speaks by its last message; the others by :func:`conditioned_message`.
    On a forest with final messages this is the best assignment, ties included: given its parent, each variable's sum is
    the exact best of everything behind it.

    Args:
        graph: Scopes.
        order: The variables, from :func:`decoding_order`.
        tables: One per factor.
        from_variables: Messages by (factor, variable), at least those to factors with two variables or more.
        from_factors: Messages by (factor, variable).
    """
    chosen: dict[str, int] = {}
    for variable in order:
        heard = [
            conditioned_message(tables[factor], graph.scope(factor), variable, chosen, from_variables, factor)
            if any(x in chosen for x in graph.scope(factor))
            else from_factors[factor, variable]
            for factor in graph.factors_of(variable)
        ]
        chosen[variable] = best_value(heard)
    return chosen


def best_value(heard: Sequence[Vector]) -> int:
    """The index of the largest sum, added from the first message to the last; the lowest of equal ones.

    Where every value is forbidden, it is one that fewest messages forbid.
    """
    summed = heard[0]
    for message in heard[1:]:
        summed = summed + message
    best = int(np.argmax(summed))
    return best if summed[best] > -np.inf else least_forbidden(heard, [1.0] * len(heard))
