"""Base of the local functions that acquisitions are: terms of a sum over a box of the unit cube, one per factor."""

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

    What comes out for one factor does not depend, to the bit, on which others are in the stack. The methods are those
    that agents who agree expect, see ``swarmbo.coordination.LocalFunctions``.

    Args:
        graph: Scopes and owners; n variables.
        low: Lower corner (n,) of the box, in the order of ``graph.variables``.
        high: Upper corner (n,).
        starts: Points (k, n) worth starting from, best first; k may be 0.
        owned: The factors that may be asked for; None: all.
    """

    graph: FactorGraph
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    starts: Float[np.ndarray, "k n"]
    owned: frozenset[str] | None = None

    @property
    def n_exchanges(self) -> int:
        """Phases in which neighbours tell each other numbers."""
        return 0

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """What each factor tells its neighbours in phase ``len(received)``; nothing, unless a subclass says so."""
        raise NotImplementedError(f"{type(self).__name__} has no phases of exchange")

    @abstractmethod
    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's term of the sum, given all that its neighbours published there."""

    @abstractmethod
    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """What each factor climbs while what it received stays fixed, and its gradient."""

    def starting_from(
        self: Functions,
        best: Float[np.ndarray, "k n"],
        columns: Int[np.ndarray, " a"],
        beaten: Float[np.ndarray, " n"],
    ) -> Functions:
        """The same for somebody who was told the best evaluated points, since he knows outcomes of some factors only.

        Args:
            best: In the unit cube, best first, as many as there are starts.
            columns: Variables to take them for; of others what is known here is right.
            beaten: What ``swarmbo.belief.model.incumbents.to_beat`` is to who knows all.
        """
        starts = self.starts.copy()
        starts[:, columns] = np.clip(best, self.low, self.high)[:, columns]
        return replace(self, starts=starts)

    def of(self: Functions, factors: Iterable[str]) -> Functions:
        """The same functions of some factors only: all that their owner may ask for."""
        return replace(self, owned=frozenset(factors))

    def check_owned(self, stack: FactorStack) -> None:
        """Refuse factors that the asker does not own.

        Raises:
            OwnershipError: If there is one.
        """
        if self.owned is not None and (foreign := [factor for factor in stack.factors if factor not in self.owned]):
            raise OwnershipError(
                f"asked for factor {foreign[0]!r}; wanted one of {sorted(self.owned)}: these are the owner's functions"
            )


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedPoint(BoxFunctions):
    """Functions that are zero on a box of one point."""

    @classmethod
    def at(cls, graph: FactorGraph, point: Float[np.ndarray, " n"]) -> "FixedPoint":
        """All factors agree on this point of the unit cube."""
        return cls(graph=graph, low=point, high=point, starts=point[None])

    def starting_from(
        self, best: Float[np.ndarray, "k n"], columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]
    ) -> "FixedPoint":
        """The best of points that were told, where they are to be taken."""
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
