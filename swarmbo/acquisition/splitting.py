"""Factors as sums over their variables: which graph that makes, and what each part is worth."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.acquisition.expected_improvement import LogImprovements
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.spaces import Domain


def part_names(graph: FactorGraph, factor: str) -> tuple[str, ...]:
    """What the parts of a factor that depend on one variable each are called, like no factor of the graph."""
    taken, names = set(graph.factors), dict[str, tuple[str, ...]]()
    for other, scope in zip(graph.factors, graph.scopes, strict=True):
        own = list[str]()
        for variable in scope:
            name = f"{other}({variable})"
            while name in taken:
                name += "'"
            taken.add(name)
            own.append(name)
        names[other] = tuple(own)
    return names[factor]


def split_graph(graph: FactorGraph, split: Collection[str], *, shared_outcomes: bool) -> FactorGraph:
    """A graph in which some factors give way to one for each of their variables.

    Args:
        graph: Scopes and owners.
        split: The factors.
        shared_outcomes: Whether everyone knows the outcomes: then a part belongs to who sets its variable, else to the
            factor's owner, who alone can learn it.
    """
    factors, scopes, owners = list[str](), list[tuple[str, ...]](), list[str]()
    for factor, scope, owner in zip(graph.factors, graph.scopes, graph.factor_owners, strict=True):
        if factor not in split:
            factors.append(factor)
            scopes.append(scope)
            owners.append(owner)
            continue
        for part, variable in zip(part_names(graph, factor), scope, strict=True):
            factors.append(part)
            scopes.append((variable,))
            owners.append(graph.variable_owner(variable) if shared_outcomes else owner)
    return FactorGraph(
        factors=tuple(factors),
        scopes=tuple(scopes),
        factor_owners=tuple(owners),
        variables=graph.variables,
        variable_owners=graph.variable_owners,
    )


def parts_of(graph: FactorGraph, factor: str, domain: Domain) -> tuple[FactorGraph, Domain]:
    """One factor's variables by themselves, a factor for each, and their box."""
    scope, place = graph.scope(factor), {variable: index for index, variable in enumerate(graph.variables)}
    columns, owner = [place[variable] for variable in scope], graph.factor_owners[graph.factors.index(factor)]
    parts = FactorGraph(
        factors=part_names(graph, factor),
        scopes=tuple((variable,) for variable in scope),
        factor_owners=(owner,) * len(scope),
        variables=scope,
        variable_owners=tuple(graph.variable_owner(variable) for variable in scope),
    )
    return parts, Domain(domain.low[columns], domain.high[columns])


@dataclass(frozen=True, eq=False, kw_only=True)
class SplitImprovements(BoxFunctions):
    """Log expected improvements of factors, and of parts of those that are split.

    Args:
        whole: Of the factors as they are, those that are split included.
        parts: Of the split ones' parts, by factor.
    """

    whole: LogImprovements
    parts: dict[str, LogImprovements]

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's log expected improvement, in the unit of its own belief."""
        self.check_owned(stack)
        out = np.empty(U.shape[:2])
        for functions, sub, rows in self._by_source(stack):
            out[rows] = functions.value(sub, U[rows], received)
        return out

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's log expected improvement and its gradient."""
        self.check_owned(stack)
        out, slopes = np.empty(U.shape[:2]), np.empty(U.shape)
        for functions, sub, rows in self._by_source(stack):
            out[rows], slopes[rows] = functions.value_and_gradient(sub, U[rows], received)
        return out, slopes

    def _by_source(self, stack: FactorStack) -> list[tuple[LogImprovements, FactorStack, list[int]]]:
        """Which functions know which factors of a stack, as a stack of their own graph, and its rows here."""
        sources = {part: split for split in self.parts for part in self.parts[split].graph.factors}
        rows: dict[str | None, list[int]] = {}
        for row, factor in enumerate(stack.factors):
            rows.setdefault(sources.get(factor), []).append(row)
        found = list[tuple[LogImprovements, FactorStack, list[int]]]()
        for split, own in rows.items():
            functions = self.whole if split is None else self.parts[split]
            (sub,) = stacks_of(functions.graph, [stack.factors[row] for row in own])
            by_name = {stack.factors[row]: row for row in own}
            found.append((functions, sub, [by_name[factor] for factor in sub.factors]))
        return found
