"""Agreement on a place that is given: a fresh start."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.graph import FactorGraph, FactorStack


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
