"""Factors of equal size in stacks, and graphs derived from a graph: with groups as factors, or with split factors."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from swarmbo.boundary.values import unused_prefix
from swarmbo.graph.factor_graph import FactorGraph, grouped
from swarmbo.spaces import Domain


@dataclass(frozen=True, eq=False)
class FactorStack:
    """Some factors of one graph with scopes of the same size: columns of their variables, in scope order."""

    factors: tuple[str, ...]
    columns: Int[np.ndarray, "g a"]

    @property
    def size(self) -> int:
        """Number of variables a in each scope."""
        return self.columns.shape[1]

    def take(self, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "g m a"]:
        """Coordinates of joint points for each factor."""
        return np.ascontiguousarray(U[:, self.columns].transpose(1, 0, 2))


def stacks_of(graph: FactorGraph, factors: Iterable[str] | None = None) -> tuple[FactorStack, ...]:
    """Stack factors by the size of their scopes, small scopes first, each stack in the graph's order of factors."""
    wanted = set(graph.factors if factors is None else factors)
    by_size = grouped((len(graph.scopes[i]), i) for i, factor in enumerate(graph.factors) if factor in wanted)
    return tuple(
        FactorStack(tuple(graph.factors[i] for i in places), np.array([graph.columns[i] for i in places]))
        for _, places in sorted(by_size.items())
    )


def rows_of(stacks: Iterable[FactorStack]) -> dict[str, int]:
    """Row of each factor in stacks end to end."""
    return {factor: i for i, factor in enumerate(factor for stack in stacks for factor in stack.factors)}


def random_groups(graph: FactorGraph, size: int, rng: np.random.Generator) -> tuple[tuple[str, ...], ...]:
    """A random permutation of the variables, cut into groups of equal size; the last may be smaller."""
    order = [graph.variables[i] for i in rng.permutation(len(graph.variables))]
    return tuple(tuple(order[i : i + size]) for i in range(0, len(order), size))


def graph_of_groups(graph: FactorGraph, groups: Sequence[Sequence[str]]) -> FactorGraph:
    """Graph of one factor per group, owned by its first variable's owner; variables and owners are as in ``graph``."""
    prefix = unused_prefix("group_", graph.variables)
    names = tuple(f"{prefix}{i}" for i in range(len(groups)))
    owners = tuple(graph.variable_owner(group[0]) for group in groups)
    return replace(graph, factors=names, scopes=tuple(map(tuple, groups)), factor_owners=owners, joined=())


def part_names(graph: FactorGraph) -> dict[str, tuple[str, ...]]:
    """Names of the one-variable parts of each factor, different from all names of the graph."""
    taken, names = {*graph.factors, *graph.variables}, dict[str, tuple[str, ...]]()
    for other, scope in zip(graph.factors, graph.scopes, strict=True):
        own = list[str]()
        for variable in scope:
            name = f"{other}({variable})"
            while name in taken:
                name += "'"
            taken.add(name)
            own.append(name)
        names[other] = tuple(own)
    return names


def split_graph(graph: FactorGraph, split: Collection[str], *, shared_outcomes: bool) -> FactorGraph:
    """Graph in which each factor of ``split`` is replaced by one part for each of its variables. A part belongs to its
    variable's owner with ``shared_outcomes``, else to the factor's owner, which alone can learn it.
    """
    rows, parts = list[tuple[str, tuple[str, ...], str]](), part_names(graph)
    for factor, scope, owner in zip(graph.factors, graph.scopes, graph.factor_owners, strict=True):
        if factor not in split:
            rows.append((factor, scope, owner))
            continue
        for part, variable in zip(parts[factor], scope, strict=True):
            rows.append((part, (variable,), graph.variable_owner(variable) if shared_outcomes else owner))
    factors, scopes, owners = zip(*rows, strict=True)
    return replace(graph, factors=factors, scopes=scopes, factor_owners=owners, joined=())


def parts_of(graph: FactorGraph, factor: str, domain: Domain) -> tuple[FactorGraph, Domain]:
    """Graph of one factor's variables, with a separate factor for each, and the box of these variables."""
    scope, columns, owner = graph.scope(factor), list(graph.columns[graph.place_of[factor]]), graph.owner(factor)
    scopes, owners = tuple((variable,) for variable in scope), tuple(map(graph.variable_owner, scope))
    parts = FactorGraph(part_names(graph)[factor], scopes, (owner,) * len(scope), scope, owners)
    return parts, Domain(domain.low[columns], domain.high[columns])
