"""Max-sum on continuous domains: coarse grids first, then finer and finer ones around the incumbent."""

from typing import Annotated

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.agreement import BoxOutcome
from swarmbo.coordination.local_functions import LocalFunctions, Received
from swarmbo.coordination.methods.max_sum import MaxSum
from swarmbo.coordination.plan import BoxMethod, Plan
from swarmbo.coordination.refinement import Grids, RefinementLevel, Resolution, is_at_edge, tabulated
from swarmbo.coordination.requests import Compare, Look, Steps, exchange, tell_factors
from swarmbo.coordination.view import BoxView
from swarmbo.graph import FactorGraph
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, ProperFraction, Share, within
from swarmbo.transport import Routes


@kind("coordination", FUNCTION)
class RefinedMaxSum(BoxMethod, frozen=True, tag_field="kind", tag="refined-max-sum"):
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
        >>> import swarmbo as sb
        >>> from swarmbo.testing.problems import Bowls
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> bowls = Bowls(graph, np.zeros(3), np.ones(3), starts=np.empty((0, 3)))  # f is drawn to 0.3, g to 0.4
        >>> coarse, fine = (sb.RefinedMaxSum(points=5, levels=levels).maximise(bowls).point for levels in (1, 40))
        >>> coarse.tolist(), fine.round(3).tolist()
        ([0.25, 0.25, 0.25], [0.317, 0.35, 0.383])
    """

    points: Annotated[int, within(3, 1025)] = 33
    refinement: Annotated[int, within(2, 64)] = 4
    starts: Annotated[int, within(1, 16)] = 3
    coarse_entries: Annotated[int, within(2**6, 2**24)] = 2**14
    window_entries: Annotated[int, within(2**6, 2**24)] = 2**12
    tolerance: ProperFraction = 1e-6
    levels: Count = 40
    rounds: Count = 30
    damping: Share = 0.5

    def plan(self, functions: LocalFunctions, routes: Routes, seed: int = 0) -> Plan[LocalFunctions, BoxOutcome]:
        """What every agent works out for itself; see :meth:`BoxMethod.plan`. Nothing is drawn, so no seed is used."""
        for part in functions.graph.components:
            self.grids(part, functions)  # refuses factors of too many variables
        return super().plan(functions, routes, seed)

    def grids(self, part: FactorGraph, functions: LocalFunctions) -> Grids:
        """The grids of a connected part.

        Args:
            part: It.
            functions: For the box and the starts.

        Raises:
            BudgetError: If a factor has too many variables for three points each.
        """
        place = {variable: i for i, variable in enumerate(functions.graph.variables)}
        columns = [place[variable] for variable in part.variables]
        low, high = functions.low[columns], functions.high[columns]
        given = np.clip(functions.starts[: self.starts, columns], low, high)
        starts = given if len(given) else 0.5 * (low + high)[None]
        wanted = max(self.points, getattr(functions, "lattice_points", 0))
        resolution = Resolution.of(part, wanted, self.refinement, len(starts), self.coarse_entries, self.window_entries)
        return Grids(resolution, low, high, starts[: resolution.starts])

    def steps(self, view: BoxView, seed: int) -> Steps[BoxOutcome]:
        """What whoever sees some factors and variables of a connected part does: level after level."""
        grids, max_sum = self.grids(view.graph, view.functions), MaxSum(rounds=self.rounds, damping=self.damping)
        columns = np.array([view.place[v] for v in view.graph.variables])
        row = {v: i for i, v in enumerate(view.graph.variables)}
        own = [row[v] for v in view.variables]
        level, best_so_far = RefinementLevel(), None
        x = np.zeros(len(view.place))  # only entries of own variables and own factors' variables are ever right
        x[columns] = grids.starts[0]
        values, received = yield from _evaluated(view, x)
        while not grids.is_fine_enough(level, self.tolerance) and level.solved < self.levels:
            grid = grids.at(level, x[columns])
            everywhere = np.zeros((len(x), grid.shape[1]))
            everywhere[columns] = grid
            tables = yield from tabulated(view, everywhere, received)
            solved = yield from max_sum.steps(view, tables, dict.fromkeys(view.graph.variables, grid.shape[1]))
            chosen = {v: float(grid[row[v], index]) for v, index in solved.assignment.items()}
            candidate = x.copy()
            for variable, value in (chosen | (yield from tell_factors(view, chosen))).items():
                candidate[view.place[variable]] = value
            found, heard = yield from _evaluated(view, candidate)
            rows = [found] if level.solved else [values, found]
            moved = is_at_edge(grid[own], candidate[columns[own]], grids.low[own], grids.high[own])
            verdict, best_so_far = yield Compare(rows, best_so_far, moved=bool(moved.any()))
            improved = verdict.best == len(rows)
            level = level.after(solved.rounds, finer=not improved or verdict.stop)
            if improved:
                x, values, received = candidate, found, heard
        return BoxOutcome(
            part=view.part.index,
            x={v: float(x[view.place[v]]) for v in view.variables},
            values=dict(zip(view.factors, values.tolist(), strict=True)),
            rounds=level.rounds,
            has_converged=grids.is_fine_enough(level, self.tolerance),
        )


def _evaluated(
    view: BoxView, x: Float[np.ndarray, " n"]
) -> Steps[tuple[Float[np.ndarray, " factors"], list[Received]]]:
    """The own factors' values at a joint point, and what each stack received there."""
    points = view.take(x[None])
    received = yield from exchange(view, points)
    rows: list[np.ndarray] = []
    for stack, own, got in zip(view.stacks, points, received, strict=True):
        rows.append((yield Look(view.functions, stack, own, got)))
    return view.in_order(rows)[:, 0] if rows else np.zeros(0), received
