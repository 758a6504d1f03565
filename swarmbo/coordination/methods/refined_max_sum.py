"""Max-sum on continuous domains, on grids that are refined."""

from swarmbo.coordination.methods.max_sum import MaxSum
from swarmbo.coordination.refined import Chooser, RefinedMethod
from swarmbo.coordination.view import BoxView
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Share


@kind("coordination", FUNCTION)
class RefinedMaxSum(RefinedMethod, frozen=True, tag_field="kind", tag="refined-max-sum"):
    """Max-sum with domain refinement (Hoang et al. 2018 ask for grids of growing granularity, and give no schedule).

    First level: ``points`` lattice points along each variable, bounds included, and the coordinates of up to ``starts``
    points that the functions suggest. Further levels: a window of lattice points around the incumbent, ``refinement``
    times finer. If the best joint choice lies at an edge of the window, the window moves there at the same fineness;
    else the lattice is made ``refinement`` times finer again, until it is finer than ``tolerance``. Every connected
    part of the graph does so for itself. The incumbent is always among the values; only a better choice replaces it.

    On a forest every level is solved exactly: the result is never worse than the best point of the first level's grid,
    or than the best recombination of the starts, and on smooth concave functions it converges to the maximum (see
    ``swarmbo.coordination.refinement``). On other functions it ends in a local maximum along the coordinates; on graphs
    with loops max-sum is a heuristic, and sure is only that the incumbent does not get worse.

    Functions that tell their neighbours numbers do so at the incumbent; in the tables of a level these stay fixed, and
    whether the sum has really risen is seen afterwards.

    Tables grow with the power of a factor's size, so grids are cut to what ``coarse_entries`` and ``window_entries``
    allow: with the defaults to 36 values for pairs, 25 for triples, 11 for four variables, 6 for five, and factors of
    more than 7 are refused.

    Args:
        points: Lattice points along each variable on the first level, 3 to 1025; more if the functions have
            ``lattice_points`` that are more.
        refinement: By what a lattice is made finer, 2 to 64. A window has 2 x refinement + 1 points, fewer for large
            factors.
        starts: Suggested points whose coordinates join the first level, 1 to 16; at most a quarter of its values.
        coarse_entries: Most entries of a factor's table on the first level, 2^6 to 2^24.
        window_entries: Most entries of a factor's table on further levels, 2^6 to 2^24.
        tolerance: Fine enough is a lattice finer than this share of the box's sides, in (0, 1).
        levels: At most, >= 1.
        rounds: Most rounds of max-sum on a level, on parts with loops, >= 1.
        damping: Share of the previous message kept in a new one, in [0, 1); parts with loops only.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> from swarmbo.testing.problems import Bowls
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> bowls = Bowls(graph, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4
        >>> coarse, fine = (sb.RefinedMaxSum(points=5, levels=levels).maximise(bowls).point for levels in (1, 40))
        >>> coarse.tolist(), fine.round(3).tolist()
        ([0.25, 0.25, 0.25], [0.317, 0.35, 0.383])
    """

    rounds: Count = 30
    damping: Share = 0.5

    def chooser(self, view: BoxView, seed: int) -> Chooser:
        """Max-sum, which needs no place to start from, and draws nothing."""
        max_sum = MaxSum(rounds=self.rounds, damping=self.damping)
        return lambda tables, sizes, _: max_sum.steps(view, tables, sizes)
