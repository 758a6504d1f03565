"""Edges of a factor graph as arrays, for fast loops over many of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True, eq=False)
class Edges:
    """Pairs of a factor and a variable of its scope, as indices, factor by factor, in the order of the scope.

    ``first`` has the first edge of each factor, and last the number of edges. ``by_variable`` has edges variable by
    variable, in the graph's order of factors; those of each begin at ``first_of``.
    """

    factors: Int[np.ndarray, " e"]
    variables: Int[np.ndarray, " e"]
    first: Int[np.ndarray, " factors+1"]
    by_variable: Int[np.ndarray, " e"]
    first_of: Int[np.ndarray, " variables+1"]

    @classmethod
    def of(cls, scopes: Sequence[Sequence[str]], column_of: Mapping[str, int]) -> "Edges":
        """Edges of a graph; ``column_of`` has the index of each variable."""
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
        """Edges of some variables, variable after variable."""
        starts, degrees = self.first_of[places], self.first_of[places + 1] - self.first_of[places]
        ends = np.cumsum(degrees)
        return self.by_variable[np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + degrees, degrees)]
