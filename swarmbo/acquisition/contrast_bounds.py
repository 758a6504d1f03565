"""Upper confidence bounds of the difference to the incumbent."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.belief_functions import ContrastFunctions
from swarmbo.acquisition.box_functions import Received
from swarmbo.graph import FactorStack


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastBounds(ContrastFunctions):
    """The local functions mean + weight x std of f_i(u) - f_i(reference).

    From totals the offset of one factor against another cannot be told; it inflates the variance of f_i and cancels in
    the difference.

    Args:
        weight: Of the standard deviation; times the root of a factor's number of variables.
    """

    weight: float

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's bound, in the unit the belief is about."""
        return self._values(stack, U, rough=False)

    def rough_value(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """The same to some digits, which tables need that say where to look; of many factors that is much quicker."""
        return self._values(stack, U, rough=True)

    def _values(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, rough: bool) -> Float[np.ndarray, "g m"]:
        self.check_owned(stack)
        marginals = self.belief.local_contrast(stack, U, self.reference, rough=rough)
        return marginals.mean + self._weight(stack) * np.sqrt(marginals.var + self.variance_floor(stack))

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's bound and its gradient."""
        self.check_owned(stack)
        marginals = self.belief.local_contrast(stack, U, self.reference, gradient=True)
        assert marginals.dmean is not None
        assert marginals.dvar is not None
        std = np.sqrt(marginals.var + self.variance_floor(stack))
        slope = (self._weight(stack) / (2.0 * std))[..., None]
        return marginals.mean + self._weight(stack) * std, marginals.dmean + slope * marginals.dvar

    def _weight(self, stack: FactorStack) -> float:
        return self.weight * float(np.sqrt(stack.size))
