"""Regions that must not be asked, as hard factors: whoever reads all variables of a region keeps out of it.

What a factor climbs is lowered within a region and in a margin around it, by so much that nothing there is worth it.
Regions that no factor reads as a whole are left to the last step of a decision, which moves a point out of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.success_bound import BoundedFunctions, part_spreads
from swarmbo.problem.no_go import Limit

_MARGIN = 0.01  # sides of the box around a region, over which the penalty bends from zero to a slope
_STEEP = 40.0  # spreads of what is maximised, for a side of the box


@dataclass(frozen=True, eq=False)
class Border:
    """What a factor loses within one region.

    Args:
        limit: The region.
        inside: Where its coordinates are in the factor's scope.
        weight: Of the penalty, in the unit of what is maximised for a side of the box.
    """

    limit: Limit
    inside: tuple[int, ...]
    weight: float

    def penalty(self, U: Float[np.ndarray, "m a"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m a"]]:
        """At points (m, a) of the factor's scope, and its gradient: 0 beyond the margin."""
        own = list(self.inside)
        depth, slope = self.limit.region.depth(U[:, own], self.limit.bounds)
        lack = np.maximum(depth + _MARGIN, 0.0)
        bent = np.where(lack < _MARGIN, lack**2 / (2.0 * _MARGIN), lack - 0.5 * _MARGIN)
        gradient = np.zeros(U.shape)
        gradient[:, own] = (self.weight * np.minimum(lack / _MARGIN, 1.0))[:, None] * slope
        return self.weight * bent, gradient


def kept_out(functions: BoxFunctions, limits: Sequence[Limit], spread: Mapping[str, float]) -> BoxFunctions:
    """Local functions that keep out of regions, as far as one factor can see to it; themselves where there are none.

    Args:
        functions: What is maximised.
        limits: The regions.
        spread: Of each factor's function: see ``success_bound.spreads``.
    """
    graph, holds = functions.graph, dict[str, list[Border]]()
    place = {variable: column for column, variable in enumerate(graph.variables)}
    scopes = [[place[variable] for variable in scope] for scope in graph.scopes]
    weights = part_spreads(graph, spread)
    for limit in limits:
        reader = next((n for n, scope in enumerate(scopes) if set(limit.columns.tolist()) <= set(scope)), None)
        if reader is not None:
            factor, inside = graph.factors[reader], tuple(scopes[reader].index(column) for column in limit.columns)
            holds.setdefault(factor, []).append(Border(limit, inside, _STEEP * weights[factor]))
    return BoundedFunctions.around(functions, holds) if holds else functions
