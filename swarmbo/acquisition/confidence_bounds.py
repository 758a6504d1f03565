"""Sums of upper confidence bounds: what Add-GP-UCB and DEC-HBO maximise."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.belief_functions import BeliefFunctions
from swarmbo.acquisition.box_functions import Received
from swarmbo.graph import FactorStack


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfidenceBounds(BeliefFunctions):
    """The local functions mu_i + sqrt(beta_i) sigma_i.

    Args:
        sqrt_beta: Weight of each factor's standard deviation.
        lattice_points: As many along each variable, at least, are wanted of a way to agree that has a lattice.
    """

    sqrt_beta: Mapping[str, float]
    lattice_points: int = 0

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's bound, in the unit the belief is about."""
        self.check_owned(stack)
        marginals = self.belief.local(stack, U)
        return marginals.mean + self._weights(stack) * np.sqrt(marginals.var + self.variance_floor(stack))

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's bound and its gradient."""
        self.check_owned(stack)
        marginals = self.belief.local(stack, U, gradient=True)
        assert marginals.dmean is not None
        assert marginals.dvar is not None
        weights, std = self._weights(stack), np.sqrt(marginals.var + self.variance_floor(stack))
        slope = (weights / (2.0 * std))[..., None]
        return marginals.mean + weights * std, marginals.dmean + slope * marginals.dvar

    def _weights(self, stack: FactorStack) -> Float[np.ndarray, "g 1"]:
        return np.array([self.sqrt_beta[factor] for factor in stack.factors])[:, None]
