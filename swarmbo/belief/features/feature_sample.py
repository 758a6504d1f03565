"""Functions drawn from random-feature models, one per factor, jointly."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.path_sample import PriorDraw, StackedDraws
from swarmbo.graph import FactorGraph, FactorStack


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Sums of waves c_i + scale_i w_i·phi_i(u). Made by ``Ensemble.draw``."""

    graph: FactorGraph
    draws: Mapping[str, PriorDraw]
    constants: Mapping[str, float]
    scales: Mapping[str, float]

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m"]:
        """Each factor's drawn function, physical; coordinates of the unit cube."""
        return self._column(self.constants, stack) + self._column(self.scales, stack) * self._of(stack).value(U)

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"]
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Values and gradients by coordinates of the unit cube."""
        values, slopes = self._of(stack).value_and_gradient(U)
        scales = self._column(self.scales, stack)
        return self._column(self.constants, stack) + scales * values, scales[..., None] * slopes

    def _of(self, stack: FactorStack) -> StackedDraws:
        return StackedDraws([self.draws[factor] for factor in stack.factors])

    def _column(self, numbers: Mapping[str, float], stack: FactorStack) -> Float[np.ndarray, "g 1"]:
        return np.array([numbers[factor] for factor in stack.factors])[:, None]
