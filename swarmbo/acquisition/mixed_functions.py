"""Local functions over a problem's own variables, from functions over the coordinates of its models."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.graph import FactorStack, stacks_of
from swarmbo.problem.coding import Coding


@dataclass(frozen=True, eq=False, kw_only=True)
class MixedFunctions(BoxFunctions):
    """Functions of variables with types. They are constant in a cell of a grid, and have no slope along it.

    A box around an incumbent limits numbers only: ``low`` and ``high`` of choices are the whole axis.

    Args:
        inner: The same factors over the coordinates of ``coding``.
        coding: Coordinates of the variables.
    """

    inner: BoxFunctions
    coding: Coding

    @classmethod
    def around(cls, inner: BoxFunctions, coding: Coding) -> "MixedFunctions":
        """Functions over the variables that the given ones read."""
        low, high = (coding.bounds(end) for end in (inner.low, inner.high))
        levels = {coding.graph.variables[column]: places for column, places in coding.domain.levels.items()}
        return cls(
            graph=coding.over(inner.graph),
            low=np.where(coding.is_choice, 0.0, low),
            high=np.where(coding.is_choice, 1.0, high),
            starts=coding.outside(inner.starts),
            owned=inner.owned,
            levels=levels,
            inner=inner,
            coding=coding,
        )

    @property
    def n_exchanges(self) -> int:
        """Number of exchanges of the inner functions."""
        return self.inner.n_exchanges

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Numbers that the inner functions publish."""
        out = np.empty(U.shape[:2])
        for rows, own, inner in self._parts(stack):
            told = tuple(phase[rows] for phase in received)
            out[rows] = self.inner.published(inner, self.coding.read(own, inner, U[rows]), told)
        return out

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's term."""
        out = np.empty(U.shape[:2])
        for rows, own, inner in self._parts(stack):
            told = tuple(phase[rows] for phase in received)
            out[rows] = self.inner.value(inner, self.coding.read(own, inner, U[rows]), told)
        return out

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's objective, and its gradient by numbers; 0 along grids."""
        out, slopes = np.empty(U.shape[:2]), np.empty(U.shape)
        for rows, own, inner in self._parts(stack):
            told, Z = tuple(phase[rows] for phase in received), self.coding.read(own, inner, U[rows])
            out[rows], slope = self.inner.value_and_gradient(inner, Z, told)
            slopes[rows] = self.coding.slopes(own, inner, slope)
        return out, slopes

    def of(self, factors: Iterable[str]) -> "MixedFunctions":
        """The same functions of some factors only."""
        own = frozenset(factors)
        return replace(self, owned=own, inner=self.inner.of(own))

    def _parts(self, stack: FactorStack) -> list[tuple[list[int], FactorStack, FactorStack]]:
        """Rows of a stack whose factors read equally many coordinates, with both stacks of these."""
        row_of = {factor: row for row, factor in enumerate(stack.factors)}
        out: list[tuple[list[int], FactorStack, FactorStack]] = []
        for inner in stacks_of(self.inner.graph, row_of):
            rows = [row_of[factor] for factor in inner.factors]
            out.append((rows, FactorStack(inner.factors, stack.columns[rows]), inner))
        return out
