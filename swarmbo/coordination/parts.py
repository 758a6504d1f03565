"""Connected parts of a graph, as index arrays: parts decide for themselves and never wait for one another."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.graph import FactorGraph, FactorStack, stacks_of


@dataclass(frozen=True, eq=False)
class Parts:
    """A graph's factors in stacks, and which connected part each factor and variable belongs to.

    Args:
        graph: The whole graph.
        stacks: All its factors.
        of_variable: Part of each variable (n,).
        of_factor: For each stack the part of each of its factors (g,).
        is_shared: Whether a part has more than one factor (parts,).
    """

    graph: FactorGraph
    stacks: tuple[FactorStack, ...]
    of_variable: Int[np.ndarray, " n"]
    of_factor: tuple[Int[np.ndarray, " _g"], ...]
    is_shared: Bool[np.ndarray, " parts"]

    @classmethod
    def of(cls, graph: FactorGraph) -> "Parts":
        """Find the parts."""
        stacks = stacks_of(graph)
        components = graph.components
        part = {variable: p for p, component in enumerate(components) for variable in component.variables}
        of_variable = np.array([part[variable] for variable in graph.variables])
        of_factor = tuple(of_variable[stack.columns[:, 0]] for stack in stacks)
        return cls(graph, stacks, of_variable, of_factor, np.array([len(c.factors) > 1 for c in components]))

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self.is_shared)

    def sums(self, values: Sequence[Float[np.ndarray, "_g m"]]) -> Float[np.ndarray, "parts m"]:
        """Sums over the factors of each part, in the order of the stacks."""
        out = np.zeros((self.count, values[0].shape[1]))
        for part, value in zip(self.of_factor, values, strict=True):
            np.add.at(out, part, value)
        return out

    def scatter(self, copies: Sequence[Float[np.ndarray, "_g m _a"]]) -> Float[np.ndarray, "m n"]:
        """Sums over the factors of each variable."""
        out = np.zeros((copies[0].shape[1], len(self.of_variable)))
        for stack, X in zip(self.stacks, copies, strict=True):
            np.add.at(out.T, stack.columns, np.moveaxis(X, 1, 2))
        return out

    @property
    def degree(self) -> Int[np.ndarray, " n"]:
        """Number of factors of each variable."""
        return np.array([len(self.graph.factors_of(variable)) for variable in self.graph.variables])
