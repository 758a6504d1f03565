"""Local functions that are worked out from the posterior of an additive belief."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.model.incumbents import starting_points
from swarmbo.graph import FactorStack

Functions = TypeVar("Functions", bound="BeliefFunctions")

VARIANCE_FLOOR = 1e-12  # of a factor's prior variance, added under roots, which have no slope at 0


@dataclass(frozen=True, eq=False, kw_only=True)
class BeliefFunctions(BoxFunctions):
    """Base of functions of a belief.

    Roots are taken of the variance plus 1e-12 of the factor's prior variance: a root has no derivative at zero, and no
    measurement is as good as that.

    Args:
        belief: About the factors of ``graph``, which is its own.

    Example:
        >>> from swarmbo.acquisition.confidence_bounds import ConfidenceBounds  # a subclass
        >>> from swarmbo.graph import FactorGraph
        >>> belief = AdditiveGP(FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 10.0)})
        >>> bounds = ConfidenceBounds.on_cube(belief.update([[2.0], [5.0]], [0.0, 3.0]), sqrt_beta={"f": 2.0})
        >>> bounds.starts[0].tolist()  # the better point, in the unit cube
        [0.5]
    """

    belief: AdditiveGP

    @classmethod
    def on_cube(cls: type[Functions], belief: AdditiveGP, **more: Any) -> Functions:
        """On the whole unit cube, starting from the best of what was evaluated."""
        low, high = np.zeros(belief.domain.n_dims), np.ones(belief.domain.n_dims)
        starts = starting_points(belief, low, high)
        return cls(graph=belief.graph, low=low, high=high, starts=starts, belief=belief, **more)

    def variance_floor(self, stack: FactorStack) -> Float[np.ndarray, "g 1"]:
        """What is added to each factor's variance under a root, in the square of the outcome's unit."""
        return np.array([self._variance_floors[factor] for factor in stack.factors])[:, None]

    @cached_property
    def _variance_floors(self) -> dict[str, float]:
        h = self.belief.hyperparameters
        priors = [output * scale**2 for output, scale in zip(h.outputscales, h.scales, strict=True)]
        return {factor: VARIANCE_FLOOR * prior for factor, prior in zip(self.graph.factors, priors, strict=True)}
