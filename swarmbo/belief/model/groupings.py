"""Disjoint groups of variables as a graph of factors, given or drawn at random."""

from collections.abc import Sequence

import numpy as np

from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph


def check_disjoint(graph: FactorGraph) -> None:
    """Refuse a graph in which a variable has two factors."""
    for variable in graph.variables:
        if len(factors := graph.factors_of(variable)) > 1:
            raise ConfigError(
                f"variable {variable!r} is in the factors {', '.join(map(repr, factors))}; Add-GP-UCB wanted groups "
                "that share no variable: take groups = 'learned', or kind = 'dec-hbo', where factors may overlap",
                at="$.acquisition.groups",
            )


def random_groups(graph: FactorGraph, size: int, rng: np.random.Generator) -> tuple[tuple[str, ...], ...]:
    """A random permutation of the variables, cut into groups of equal size; the last may be smaller."""
    order = [graph.variables[i] for i in rng.permutation(len(graph.variables))]
    return tuple(tuple(order[i : i + size]) for i in range(0, len(order), size))


def graph_of_groups(graph: FactorGraph, groups: Sequence[Sequence[str]]) -> FactorGraph:
    """Graph of one factor per group, variables and owners as in a given one, in the same order.

    A group is owned by the owner of its first variable.
    """
    prefix = "group_"
    while any(variable.startswith(prefix) for variable in graph.variables):
        prefix = "_" + prefix
    return FactorGraph(
        factors=tuple(f"{prefix}{i}" for i in range(len(groups))),
        scopes=tuple(tuple(group) for group in groups),
        factor_owners=tuple(graph.variable_owner(group[0]) for group in groups),
        variables=graph.variables,
        variable_owners=graph.variable_owners,
    )
