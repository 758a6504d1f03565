"""Base of the local functions of acquisitions: terms of a sum over a box of the unit cube, one per factor."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from jaxtyping import Float, Int

from swarmbo.errors import OwnershipError
from swarmbo.graph import FactorGraph, FactorStack

Received = Sequence[Float[np.ndarray, "g m"]]
Functions = TypeVar("Functions", bound="BoxFunctions")


@dataclass(frozen=True, eq=False, kw_only=True)
class BoxFunctions(ABC):
    """Functions of factors on a box, to be maximised in sum; coordinates are those of the unit cube.

    A factor's results are bit-identical for any other factors in the stack. The methods are those of
    ``swarmbo.coordination.LocalFunctions``.

    Args:
        graph: Scopes and owners; n variables.
        low: Lower corner (n,) of the box, in the order of ``graph.variables``.
        high: Upper corner (n,).
        starts: Good starting points (k, n), best first; k may be 0.
        owned: Factors that may be evaluated; None: all.
    """

    graph: FactorGraph
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    starts: Float[np.ndarray, "k n"]
    owned: frozenset[str] | None = None

    @property
    def n_exchanges(self) -> int:
        """Number of exchanges of numbers between neighbours."""
        return 0

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Numbers that each factor sends its neighbours in phase ``len(received)``; none by default."""
        raise NotImplementedError(f"{type(self).__name__} has no phases of exchange")

    @abstractmethod
    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Term of each factor in the sum, given all that its neighbours published there."""

    @abstractmethod
    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Objective of each factor for fixed received numbers, and its gradient."""

    def starting_from(
        self: Functions,
        best: Float[np.ndarray, "k n"],
        columns: Int[np.ndarray, " a"],
        beaten: Float[np.ndarray, " n"],
    ) -> Functions:
        """The same from received best points, for an agent that knows outcomes of some factors only.

        Args:
            best: Points in the unit cube, best first, as many as there are starts.
            columns: Variables for which they replace the own starts.
            beaten: ``swarmbo.belief.model.incumbents.to_beat`` with all outcomes known.
        """
        starts = self.starts.copy()
        starts[:, columns] = np.clip(best, self.low, self.high)[:, columns]
        return replace(self, starts=starts)

    def of(self: Functions, factors: Iterable[str]) -> Functions:
        """The same functions for an owner of some factors."""
        return replace(self, owned=frozenset(factors))

    def check_owned(self, stack: FactorStack) -> None:
        """Refuse factors of other owners."""
        if self.owned is not None and (foreign := [factor for factor in stack.factors if factor not in self.owned]):
            raise OwnershipError(
                f"asked for factor {foreign[0]!r}; wanted one of {sorted(self.owned)}, which are the owner's"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedPoint(BoxFunctions):
    """Functions that are zero on a box of one point."""

    @classmethod
    def at(cls, graph: FactorGraph, point: Float[np.ndarray, " n"]) -> "FixedPoint":
        """Agreement of all factors on this point of the unit cube."""
        return cls(graph=graph, low=point, high=point, starts=point[None])

    def starting_from(
        self, best: Float[np.ndarray, "k n"], columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]
    ) -> "FixedPoint":
        """The best received point."""
        point = self.low.copy()
        point[columns] = best[0, columns]
        return FixedPoint.at(self.graph, point)

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Zero."""
        return np.zeros(U.shape[:2])

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Zeros."""
        return np.zeros(U.shape[:2]), np.zeros_like(U)
