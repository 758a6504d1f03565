"""Factors of equal size, stacked along a leading axis, so that one array operation serves all of them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from swarmbo.graph.factor_graph import FactorGraph


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
    """Stack factors by the size of their scopes, small ones first, each stack in the graph's order of factors."""
    wanted = set(graph.factors if factors is None else factors)
    by_size: dict[int, list[int]] = {}
    for place, factor in enumerate(graph.factors):
        if factor in wanted:
            by_size.setdefault(len(graph.scopes[place]), []).append(place)
    return tuple(
        FactorStack(tuple(graph.factors[i] for i in places), np.array([graph.columns[i] for i in places]))
        for _, places in sorted(by_size.items())
    )
