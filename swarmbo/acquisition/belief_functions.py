"""Local functions of the posterior of an additive belief."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.model.incumbents import starting_points
from swarmbo.graph import FactorStack

Functions = TypeVar("Functions", bound="BeliefFunctions")
Contrasts = TypeVar("Contrasts", bound="ContrastFunctions")

VARIANCE_FLOOR = 1e-12  # of a factor's prior variance, added under roots, which have no slope at 0


@dataclass(frozen=True, eq=False, kw_only=True)
class BeliefFunctions(BoxFunctions):
    """Base of functions of a belief.

    Roots are taken of the variance plus 1e-12 of the factor's prior variance, as a root has no derivative at zero.

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
        """On the whole unit cube, starting from the best evaluated points."""
        low, high = np.zeros(belief.domain.n_dims), np.ones(belief.domain.n_dims)
        starts = starting_points(belief, low, high)
        return cls(graph=belief.graph, low=low, high=high, starts=starts, belief=belief, **more)

    def variance_floor(self, stack: FactorStack) -> Float[np.ndarray, "g 1"]:
        """Addition to each factor's variance under a root, in the square of the outcome's unit."""
        return np.array([self._variance_floors[factor] for factor in stack.factors])[:, None]

    @cached_property
    def _variance_floors(self) -> dict[str, float]:
        h = self.belief.hyperparameters
        priors = [output * scale**2 for output, scale in zip(h.outputscales, h.scales, strict=True)]
        return {factor: VARIANCE_FLOOR * prior for factor, prior in zip(self.graph.factors, priors, strict=True)}


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastFunctions(BeliefFunctions):
    """Base of functions of the difference to a factor's value at the incumbent.

    Args:
        reference: The incumbent (n,), a joint point of the unit cube.
    """

    reference: Float[np.ndarray, " n"]

    def starting_from(
        self: Contrasts,
        best: Float[np.ndarray, "k n"],
        columns: Int[np.ndarray, " a"],
        beaten: Float[np.ndarray, " n"],
    ) -> Contrasts:
        """The same compared with the best evaluated point; see ``BoxFunctions.starting_from``."""
        return super().starting_from(best, columns, beaten)._over(best[0], columns)

    def _over(self: Contrasts, point: Float[np.ndarray, " n"], columns: Int[np.ndarray, " a"]) -> Contrasts:
        """The same compared with a point, in some variables."""
        reference = self.reference.copy()
        reference[columns] = point[columns]
        return replace(self, reference=reference)
