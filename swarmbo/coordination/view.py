"""Views of a connected part: the factors and variables of one agent, or all of them in one process.

A method is written once, as a generator that works on such a view and yields ``swarmbo.coordination.requests``. It
computes for the factors and variables of its view, and gets all others' data by its requests.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.coordination.local_functions import LocalFunctions, Received
from swarmbo.coordination.part import Part
from swarmbo.graph import FactorGraph, FactorStack, stacks_of

Copies = Sequence[Float[np.ndarray, "_g m _a"]]  # for each stack its factors' columns of joint points
Rows = Sequence[Float[np.ndarray, "_g m"]]  # for each stack a number for each of its factors and points


@dataclass(frozen=True, eq=False)
class LocalView:
    """Some factors and variables of a part, in the order of the part."""

    part: Part
    factors: tuple[str, ...]
    variables: tuple[str, ...]

    @classmethod
    def of(cls, part: Part, agent: str | None = None) -> "LocalView":
        """View of an agent; None: of the whole part."""
        if agent is None:
            return LocalView(part, part.graph.factors, part.graph.variables)
        return LocalView(part, part.graph.factors_owned_by(agent), part.graph.variables_owned_by(agent))

    @property
    def graph(self) -> FactorGraph:
        """The part's scopes and owners."""
        return self.part.graph

    @property
    def is_whole(self) -> bool:
        """True if it is the whole part."""
        graph = self.graph
        return (len(self.factors), len(self.variables)) == (len(graph.factors), len(graph.variables))

    @cached_property
    def seen(self) -> tuple[str, ...]:
        """Variables of the own factors."""
        return tuple(dict.fromkeys(x for factor in self.factors for x in self.graph.scope(factor)))


@dataclass(frozen=True, eq=False)
class BoxView(LocalView):
    """View of a part with continuous domains; only own factors' columns of joint points (m, n) are right."""

    functions: LocalFunctions

    @classmethod
    def on(cls, view: LocalView, functions: LocalFunctions) -> Self:
        """Make a view with functions of at least the own factors."""
        return cls(view.part, view.factors, view.variables, functions)

    @cached_property
    def stacks(self) -> tuple[FactorStack, ...]:
        """Stacks of the own factors."""
        return stacks_of(self.functions.graph, self.factors) if self.factors else ()

    @cached_property
    def place(self) -> dict[str, int]:
        """Columns of joint points, by variable."""
        return {variable: i for i, variable in enumerate(self.functions.graph.variables)}

    @cached_property
    def sides(self) -> Float[np.ndarray, " n"]:
        """Sides of the box; 1 where it has no length."""
        low, high = self.functions.low, self.functions.high
        return np.where(high > low, high - low, 1.0)

    @cached_property
    def degree(self) -> Float[np.ndarray, " n"]:
        """Number of the part's factors of each variable; 1 for variables of other parts."""
        degree = np.ones(len(self.place))
        for variable in self.graph.variables:
            degree[self.place[variable]] = len(self.graph.factors_of(variable))
        return degree

    @cached_property
    def is_home(self) -> tuple[Bool[np.ndarray, "_g 1 _a"], ...]:
        """True, for each stack, where a factor is the first of its variable, and counts it in sums over variables."""
        graph = self.graph
        return tuple(
            np.array([[graph.factors_of(x)[0] == f for x in graph.scope(f)] for f in stack.factors])[:, None, :]
            for stack in self.stacks
        )

    @cached_property
    def _order(self) -> list[int]:
        row = {factor: i for i, factor in enumerate(factor for stack in self.stacks for factor in stack.factors)}
        return [row[factor] for factor in self.factors]

    def take(self, Z: Float[np.ndarray, "m n"]) -> list[Float[np.ndarray, "_g m _a"]]:
        """Coordinates of joint points for the own factors."""
        return [stack.take(Z) for stack in self.stacks]

    def box(self, stack: FactorStack) -> tuple[Float[np.ndarray, "g 1 a"], Float[np.ndarray, "g 1 a"]]:
        """Lower and upper corners for a stack."""
        return self.functions.low[stack.columns][:, None, :], self.functions.high[stack.columns][:, None, :]

    def in_order(self, rows: Rows) -> Float[np.ndarray, "factors m"]:
        """Numbers of the own factors, in the order of the part."""
        return np.concatenate(rows)[self._order]

    def by_variable(self, entries: Float[np.ndarray, "m n"]) -> list[Float[np.ndarray, "_g m"]]:
        """Sums over variables, split among factors so that every variable is counted once."""
        return [
            (stack.take(entries) * home).sum(axis=-1) for stack, home in zip(self.stacks, self.is_home, strict=True)
        ]

    def values(self, points: Copies, received: Sequence[Received]) -> list[Float[np.ndarray, "_g m"]]:
        """Values of the own factors."""
        rows = zip(self.stacks, points, received, strict=True)
        return [self.functions.value(*row) for row in rows]
