"""Methods for tables on continuous domains: coarse grids first, then finer grids around the incumbent."""

from collections.abc import Callable, Mapping
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float

from swarmbo import settings
from swarmbo.boundary.rng import stream
from swarmbo.coordination import requests
from swarmbo.coordination.agreement import BoxOutcome, TableOutcome
from swarmbo.coordination.box_steps import exchange, tell_factors
from swarmbo.coordination.methods.local_search import DSA, MGM
from swarmbo.coordination.methods.max_sum import MaxSum
from swarmbo.coordination.part import BoxView
from swarmbo.coordination.plan import BoxMethod, Plan
from swarmbo.coordination.refinement import Grids, Resolution, is_at_edge, tabulated
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import Table
from swarmbo.graph import BoxFunctions, FactorGraph
from swarmbo.graph.box_functions import Received
from swarmbo.registry import FUNCTION, kind
from swarmbo.transport import Routes

Chooser = Callable[[Mapping[str, Table], Mapping[str, int], dict[str, int]], Steps[TableOutcome]]


class RefinedMethod(BoxMethod, frozen=True, tag_field="kind"):
    """Base of methods that choose from tables on refined grids; a subclass defines ``chooser``."""

    points: Annotated[int, settings.within(3, 1025)] = 33
    refinement: Annotated[int, settings.within(2, 64)] = 4
    starts: Annotated[int, settings.within(1, 16)] = 3
    coarse_entries: Annotated[int, settings.within(2**6, 2**24)] = 2**14
    window_entries: Annotated[int, settings.within(2**6, 2**24)] = 2**12
    tolerance: settings.ProperFraction = 1e-6
    levels: settings.Count = 40

    def chooser(self, view: BoxView, seed: int) -> "Chooser":
        """Steps that choose on a level, from the agent's tables, sizes of domains, and present values of variables."""
        raise NotImplementedError(f"{type(self).__name__} cannot choose from tables: define its method chooser")

    def plan(self, functions: BoxFunctions, routes: Routes, seed: int = 0) -> Plan[BoxFunctions, BoxOutcome]:
        """Make the plan; see :meth:`BoxMethod.plan`."""
        for part in functions.graph.components:
            self.grids(part, functions)  # raises a BudgetError for factors of too many variables
        return super().plan(functions, routes, seed)

    def grids(self, part: FactorGraph, functions: BoxFunctions) -> Grids:
        """Grids of a connected part, from the functions' box and starts.

        Raises:
            BudgetError: If a factor has too many variables for three points each.
        """
        columns = [functions.graph.column_of[variable] for variable in part.variables]
        low, high = functions.low[columns], functions.high[columns]
        given = np.clip(functions.starts[: self.starts, columns], low, high)
        starts = given if len(given) else 0.5 * (low + high)[None]
        wanted = max(self.points, functions.lattice_points)
        resolution = Resolution.of(part, wanted, self.refinement, len(starts), self.coarse_entries, self.window_entries)
        return Grids(resolution, low, high, starts[: resolution.starts])

    def steps(self, view: BoxView, seed: int) -> Steps[BoxOutcome]:
        """Steps of an agent with some factors and variables of a connected part, level after level."""
        grids, chosen_from = self.grids(view.graph, view.functions), self.chooser(view, seed)
        columns = np.array([view.column_of[v] for v in view.graph.variables])
        row = {v: i for i, v in enumerate(view.graph.variables)}
        own_rows = [row[v] for v in view.variables]
        depth, solved, rounds, best_so_far = 0, 0, 0, None  # refinements of the lattice, levels, rounds on them
        x = np.zeros(len(view.column_of))  # only entries of own variables and own factors' variables are valid
        x[columns] = grids.starts[0]
        values, received = yield from _evaluated(view, x)
        while not grids.is_fine_enough(depth, self.tolerance) and solved < self.levels:
            grid = grids.at(depth, x[columns])
            everywhere = np.zeros((len(x), grid.shape[1]))
            everywhere[columns] = grid
            tables = tabulated(view, everywhere, received)
            sizes = dict.fromkeys(view.graph.variables, int(grid.shape[1]))
            yield requests.SetSizes(sizes)
            present = np.abs(grid - x[columns, None]).argmin(axis=1)  # the incumbent is among the values
            outcome = yield from chosen_from(tables, sizes, {v: int(present[row[v]]) for v in view.variables})
            chosen = {v: float(grid[row[v], index]) for v, index in outcome.assignment.items()}
            candidate = x.copy()
            for variable, value in (chosen | (yield from tell_factors(view, chosen))).items():
                candidate[view.column_of[variable]] = value
            new_values, sums = yield from _evaluated(view, candidate)
            rows = [new_values] if solved else [values, new_values]
            moved = is_at_edge(grid[own_rows], candidate[columns[own_rows]], grids.low[own_rows], grids.high[own_rows])
            verdict, best_so_far = yield requests.Compare(rows, best_so_far, moved=bool(moved.any()))
            improved = verdict.best == len(rows)
            # if the best choice lies at an edge of the window, the window moves with the same lattice
            depth += bool(not improved or verdict.stop)
            solved, rounds = solved + 1, rounds + outcome.rounds
            if improved:
                x, values, received = candidate, new_values, sums
        at = {v: float(x[view.column_of[v]]) for v in view.variables}
        terms = zip(view.factors, values.tolist(), strict=True)
        return BoxOutcome(view.part.index, at, dict(terms), rounds, grids.is_fine_enough(depth, self.tolerance))


@kind("coordination", FUNCTION)
class RefinedMaxSum(RefinedMethod, frozen=True, tag_field="kind", tag="refined-max-sum"):
    """Max-sum on grids that are refined level by level (Hoang et al. 2018 require refinement, without a schedule).

    The first level has ``points`` lattice points along each variable, bounds included, and the coordinates of up to
    ``starts`` points that the functions suggest. Each further level has a window of lattice points around the
    incumbent, with the last level's spacing divided by ``refinement``. If the best joint choice lies at an edge of the
    window, the window moves there with the same spacing. Refinement ends once the spacing is at most ``tolerance``.
    Connected parts of the graph are refined independently. The incumbent is always one of the values.

    On a forest, every level is solved exactly. The result is at least as good as the best point of the first level's
    grid, and as the best recombination of the starts. On smooth concave functions, the method converges to the maximum
    (``swarmbo.coordination.refinement``); on others, to a local maximum along the coordinates. On graphs with loops,
    max-sum is a heuristic: the only guarantee is that the incumbent never gets worse.

    If neighbouring functions exchange numbers, they exchange them at the incumbent. The tables of a level use these
    fixed numbers, and the true sum is evaluated afterwards.

    Tables grow exponentially with the number of a factor's variables, so ``coarse_entries`` and ``window_entries``
    limit the grids. The defaults allow 36 values of each variable for factors of two variables, 25 for three, 11 for
    four and 6 for five. Factors of more than 7 variables are refused.

    Args:
        points: Lattice points per variable on the first level, 3 to 1025; at least the functions' ``lattice_points``.
        refinement: Number by which the spacing is divided, 2 to 64. A window has 2 x refinement + 1 points along each
            variable, and fewer for large factors.
        starts: Suggested points whose coordinates are added to the first level, 1 to 16; up to a quarter of its values.
        coarse_entries: Most entries of a factor's table on the first level, 2^6 to 2^24.
        window_entries: Most entries of a factor's table on further levels, 2^6 to 2^24.
        tolerance: Spacing at which refinement ends, as a share of the box's sides, in (0, 1).
        levels: Largest number of levels, >= 1.
        rounds: Most rounds of max-sum on a level, >= 1; only on parts with loops.
        damping: Share of the previous message that a new message keeps, in [0, 1); only on parts with loops.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.coordinator import TWO_BOWLS  # f(x, y) is drawn to 0.3, g(y, z) to 0.4
        >>> coarse, fine = (sb.RefinedMaxSum(points=5, levels=levels).maximise(TWO_BOWLS).point for levels in (1, 40))
        >>> coarse.tolist(), fine.round(3).tolist()
        ([0.25, 0.25, 0.25], [0.317, 0.35, 0.383])
    """

    rounds: settings.Count = 30
    damping: settings.Share = 0.5

    def chooser(self, view: BoxView, seed: int) -> Chooser:
        """Max-sum, which needs no present values, and draws nothing at random."""
        max_sum = MaxSum(rounds=self.rounds, damping=self.damping)
        return lambda tables, sizes, _: max_sum.steps(view, tables, sizes)


@kind("coordination", FUNCTION)
class RefinedDSA(RefinedMethod, frozen=True, tag_field="kind", tag="refined-dsa"):
    """DSA with domain refinement, for comparison: :class:`DSA` on the grids of :class:`RefinedMaxSum`.

    On each level, DSA starts from the incumbent. The first incumbent is the best point that the functions suggest, or
    the middle of the box. This local search costs less than max-sum, and often ends where it began. ``points``,
    ``refinement``, ``starts``, ``coarse_entries``, ``window_entries``, ``tolerance`` and ``levels`` are as in
    :class:`RefinedMaxSum`.

    Args:
        rounds: Most rounds on a level, >= 1.
        probability: Probability of a possible move, in (0, 1], as in :class:`DSA`.
        variant: ``"A"``, ``"B"`` or ``"C"``, as in :class:`DSA`.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.coordinator import TWO_BOWLS  # f(x, y) is drawn to 0.3, g(y, z) to 0.4
        >>> sb.RefinedDSA().maximise(TWO_BOWLS).point.round(3).tolist()
        [0.317, 0.35, 0.383]
    """

    rounds: settings.Count = 30
    probability: settings.Fraction = 0.7
    variant: Literal["A", "B", "C"] = "B"

    def chooser(self, view: BoxView, seed: int) -> Chooser:
        """DSA from the present values; its random streams continue from one level to the next."""
        method = DSA(rounds=self.rounds, probability=self.probability, variant=self.variant)
        draws = {x: stream(seed, "dsa", variable=x) for x in view.variables}
        return lambda tables, _, present: method.steps_from(view, tables, present, draws)


@kind("coordination", FUNCTION)
class RefinedMGM(RefinedMethod, frozen=True, tag_field="kind", tag="refined-mgm"):
    """MGM with domain refinement, for comparison: :class:`MGM` on the grids of :class:`RefinedMaxSum`.

    On each level, MGM starts from the incumbent. The first incumbent is the best point that the functions suggest, or
    the middle of the box. So nothing is drawn at random, and the sum never falls. ``points``, ``refinement``,
    ``starts``, ``coarse_entries``, ``window_entries``, ``tolerance`` and ``levels`` are as in :class:`RefinedMaxSum`.

    Args:
        rounds: Most rounds on a level, >= 1.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.coordinator import TWO_BOWLS  # f(x, y) is drawn to 0.3, g(y, z) to 0.4
        >>> sb.RefinedMGM().maximise(TWO_BOWLS).point.round(3).tolist()
        [0.317, 0.35, 0.383]
    """

    rounds: settings.Count = 30

    def chooser(self, view: BoxView, seed: int) -> Chooser:
        """MGM from the present values."""
        method = MGM(rounds=self.rounds)
        return lambda tables, _, present: method.steps_from(view, tables, present)


def _evaluated(
    view: BoxView, x: Float[np.ndarray, " n"]
) -> Steps[tuple[Float[np.ndarray, " factors"], list[Received]]]:
    """Own factors' values at a joint point, and the sums that each stack received there."""
    points = view.take(x[None])
    received = yield from exchange(view, points)
    rows = view.values(points, received)
    return view.in_order(rows)[:, 0] if rows else np.zeros(0), received
