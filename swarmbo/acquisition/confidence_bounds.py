"""Upper confidence bounds of factors, and of their difference to the incumbent, as terms of a sum."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.belief_functions import BeliefFunctions, ContrastFunctions
from swarmbo.acquisition.box_functions import Received
from swarmbo.belief.gp.stack import Marginals
from swarmbo.graph import FactorStack


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfidenceBounds(BeliefFunctions):
    """The local functions mu_i + sqrt(beta_i) sigma_i, which Add-GP-UCB and DEC-HBO maximise in sum.

    Args:
        sqrt_beta: Weight of each factor's standard deviation.
        lattice_points: Least number of points along each variable for coordination methods with a lattice.
    """

    sqrt_beta: Mapping[str, float]
    lattice_points: int = 0

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's bound, in the unit of the belief."""
        self.check_owned(stack)
        return _bounds(self, stack, self.belief.local(stack, U), self._weights(stack))

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's bound and its gradient."""
        self.check_owned(stack)
        return _bounds_and_gradients(self, stack, self.belief.local(stack, U, gradient=True), self._weights(stack))

    def _weights(self, stack: FactorStack) -> Float[np.ndarray, "g 1"]:
        return np.array([self.sqrt_beta[factor] for factor in stack.factors])[:, None]


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastBounds(ContrastFunctions):
    """The local functions mean + weight x std of f_i(u) - f_i(reference).

    The offset between factors is unknown from totals; it inflates the variance of f_i and cancels in the difference.
    ``weight`` is multiplied by the root of a factor's number of variables.
    """

    weight: float

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's bound, in the unit of the belief."""
        return self._values(stack, U, rough=False)

    def rough_value(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Each factor's bound to some digits, for tables that guide a search; much faster with many factors."""
        return self._values(stack, U, rough=True)

    def _values(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, rough: bool) -> Float[np.ndarray, "g m"]:
        self.check_owned(stack)
        marginals = self.belief.local_contrast(stack, U, self.reference, rough=rough)
        return _bounds(self, stack, marginals, self._weight(stack))

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's bound and its gradient."""
        self.check_owned(stack)
        marginals = self.belief.local_contrast(stack, U, self.reference, gradient=True)
        return _bounds_and_gradients(self, stack, marginals, self._weight(stack))

    def _weight(self, stack: FactorStack) -> float:
        return self.weight * float(np.sqrt(stack.size))


def _bounds(
    functions: BeliefFunctions, stack: FactorStack, marginals: Marginals, weight: float | Float[np.ndarray, "g 1"]
) -> Float[np.ndarray, "g m"]:
    return marginals.mean + weight * np.sqrt(marginals.var + functions.variance_floor(stack))


def _bounds_and_gradients(
    functions: BeliefFunctions, stack: FactorStack, marginals: Marginals, weight: float | Float[np.ndarray, "g 1"]
) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
    assert marginals.dmean is not None
    assert marginals.dvar is not None
    std = np.sqrt(marginals.var + functions.variance_floor(stack))
    return marginals.mean + weight * std, marginals.dmean + (weight / (2.0 * std))[..., None] * marginals.dvar
