"""The edges of a factor graph as arrays, for what goes through very many of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True, eq=False)
class Edges:
    """Pairs of a factor and a variable of its scope, numbered factor by factor, in each in the order of its scope.

    Factors and variables are known by their places in the graph.

    Args:
        factors: Of each edge its factor.
        variables: Of each edge its variable.
        first: For each factor its first edge, and last the number of edges.
        by_variable: The edges variable by variable, those of each in the graph's order of factors.
        first_of: For each variable where its edges begin in ``by_variable``, and last the number of edges.
    """

    factors: Int[np.ndarray, " e"]
    variables: Int[np.ndarray, " e"]
    first: Int[np.ndarray, " factors+1"]
    by_variable: Int[np.ndarray, " e"]
    first_of: Int[np.ndarray, " variables+1"]

    @classmethod
    def of(cls, scopes: Sequence[Sequence[str]], column_of: Mapping[str, int]) -> "Edges":
        """Those of a graph.

        Args:
            scopes: For each factor its variables.
            column_of: For each variable its place among all.
        """
        lengths = np.fromiter(map(len, scopes), dtype=np.int64, count=len(scopes))
        variables = np.array([column_of[x] for scope in scopes for x in scope], dtype=np.int64)
        degrees = np.bincount(variables, minlength=len(column_of))
        return cls(
            factors=np.repeat(np.arange(len(scopes)), lengths),
            variables=variables,
            first=np.concatenate([[0], np.cumsum(lengths)]),
            by_variable=np.argsort(variables, kind="stable"),
            first_of=np.concatenate([[0], np.cumsum(degrees)]),
        )

    def of_variables(self, places: Int[np.ndarray, " n"]) -> Int[np.ndarray, " m"]:
        """The edges of some variables, one variable after the other."""
        starts, degrees = self.first_of[places], self.first_of[places + 1] - self.first_of[places]
        ends = np.cumsum(degrees)
        return self.by_variable[np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + degrees, degrees)]
