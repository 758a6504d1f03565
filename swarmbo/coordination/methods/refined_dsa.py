"""DSA on continuous domains, on grids that are refined."""

from typing import Literal

from swarmbo.boundary.rng import stream
from swarmbo.coordination.methods.dsa import DSA
from swarmbo.coordination.refined import Chooser, RefinedMethod
from swarmbo.coordination.view import BoxView
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Fraction


@kind("coordination", FUNCTION)
class RefinedDSA(RefinedMethod, frozen=True, tag_field="kind", tag="refined-dsa"):
    """DSA with domain refinement, to compare with: what :class:`DSA` does on the grids of :class:`RefinedMaxSum`.

    Variables start from the incumbent, on the first level the best point that the functions suggest, or the middle of
    the box. It is a local search on every level: it costs less than max-sum, and often ends where it began.

    Args:
        points: As of :class:`RefinedMaxSum`, like all up to ``levels``.
        refinement: As there.
        starts: As there.
        coarse_entries: As there.
        window_entries: As there.
        tolerance: As there.
        levels: As there.
        rounds: Most rounds on a level, >= 1.
        probability: As of :class:`DSA`.
        variant: As of :class:`DSA`.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> from swarmbo.testing.problems import Bowls
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> bowls = Bowls(graph, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4
        >>> sb.RefinedDSA().maximise(bowls).point.round(3).tolist()
        [0.317, 0.35, 0.383]
    """

    rounds: Count = 30
    probability: Fraction = 0.7
    variant: Literal["A", "B", "C"] = "B"

    def chooser(self, view: BoxView, seed: int) -> Chooser:
        """DSA from where variables are; what it draws goes on from level to level."""
        method = DSA(rounds=self.rounds, probability=self.probability, variant=self.variant)
        draws = {x: stream(seed, "dsa", variable=x) for x in view.variables}
        return lambda tables, _, present: method.steps_from(view, tables, present, draws)
