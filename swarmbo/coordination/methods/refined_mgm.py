"""MGM on continuous domains, on grids that are refined."""

from swarmbo.coordination.methods.mgm import MGM
from swarmbo.coordination.refined import Chooser, RefinedMethod
from swarmbo.coordination.view import BoxView
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count


@kind("coordination", FUNCTION)
class RefinedMGM(RefinedMethod, frozen=True, tag_field="kind", tag="refined-mgm"):
    """MGM with domain refinement, to compare with: what :class:`MGM` does on the grids of :class:`RefinedMaxSum`.

    Variables start from the incumbent, on the first level the best point that the functions suggest, or the middle of
    the box. So nothing is drawn, and the sum never falls.

    Args:
        points: As of :class:`RefinedMaxSum`, like all up to ``levels``.
        refinement: As there.
        starts: As there.
        coarse_entries: As there.
        window_entries: As there.
        tolerance: As there.
        levels: As there.
        rounds: Most rounds on a level, >= 1.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> from swarmbo.testing.problems import Bowls
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> bowls = Bowls(graph, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4
        >>> sb.RefinedMGM().maximise(bowls).point.round(3).tolist()
        [0.317, 0.35, 0.383]
    """

    rounds: Count = 30

    def chooser(self, view: BoxView, seed: int) -> Chooser:
        """MGM from where variables are."""
        method = MGM(rounds=self.rounds)
        return lambda tables, _, present: method.steps_from(view, tables, present)
