"""Max-sum on continuous domains: coarse grids first, then finer and finer ones around the incumbent."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.local_functions import LocalFunctions, exchange
from swarmbo.coordination.max_sum_plan import PartPlan
from swarmbo.coordination.max_sum_solver import MaxSum
from swarmbo.coordination.refinement import Resolution, is_at_edge, tables
from swarmbo.coordination.tables import Table, rank
from swarmbo.coordination.zoom_plan import Zoom, ZoomPlan
from swarmbo.coordination.zoom_program import RefinedMaxSumPlan
from swarmbo.graph import stacks_of
from swarmbo.records import Traffic
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Settings, require
from swarmbo.transport import Routes

if TYPE_CHECKING:
    import networkx as nx

Numbers = dict[str, tuple[float, ...]]  # what each factor received, by phase


@kind("coordination", FUNCTION)
class RefinedMaxSum(Settings, frozen=True, tag_field="kind", tag="refined-max-sum"):
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

    points: int = 33
    refinement: int = 4
    starts: int = 3
    coarse_entries: int = 2**14
    window_entries: int = 2**12
    tolerance: float = 1e-6
    levels: int = 40
    rounds: int = 30
    damping: float = 0.5

    def __post_init__(self) -> None:
        require(self, "points", lambda v: 3 <= v <= 1025, "an integer from 3 to 1025")
        require(self, "refinement", lambda v: 2 <= v <= 64, "an integer from 2 to 64")
        require(self, "starts", lambda v: 1 <= v <= 16, "an integer from 1 to 16")
        for name in ("coarse_entries", "window_entries"):
            require(self, name, lambda v: 2**6 <= v <= 2**24, "an integer from 2^6 to 2^24")
        require(self, "tolerance", lambda v: 0.0 < v < 1.0, "a number between 0 and 1")
        for name in ("levels", "rounds"):
            require(self, name, lambda v: v >= 1, "an integer >= 1")
        require(self, "damping", lambda v: 0.0 <= v < 1.0, "a number in [0, 1)")

    def plan(self, functions: LocalFunctions, routes: Routes, seed: int = 0) -> RefinedMaxSumPlan:
        """What every agent works out for itself.

        Args:
            functions: For the graph, the box and the starts, which everyone knows; no value is asked for.
            routes: Who reaches whom.
            seed: Not used: nothing is drawn.

        Raises:
            BudgetError: If a factor has too many variables.
        """
        graph, low, high = functions.graph, functions.low, functions.high
        given = np.clip(functions.starts[: self.starts], low, high)
        starts = given if len(given) else 0.5 * (low + high)[None]
        place = {variable: i for i, variable in enumerate(graph.variables)}
        out: list[ZoomPlan] = []
        for index, part in enumerate(graph.components):
            wanted = max(self.points, getattr(functions, "lattice_points", 0))
            resolution = Resolution.of(
                part, wanted, self.refinement, len(starts), self.coarse_entries, self.window_entries
            )
            coarse = dict.fromkeys(part.variables, resolution.first)
            window = dict.fromkeys(part.variables, resolution.window)
            out.append(
                ZoomPlan(
                    coarse=PartPlan(part, index, coarse, routes),
                    window=PartPlan(part, index, window, routes),
                    resolution=resolution,
                    columns=np.array([place[variable] for variable in part.variables]),
                    low=low,
                    high=high,
                    starts=starts[: resolution.starts],
                    n_exchanges=functions.n_exchanges,
                    max_sum=MaxSum(rounds=self.rounds, damping=self.damping),
                    tolerance=self.tolerance,
                    levels=self.levels,
                )
            )
        return RefinedMaxSumPlan(graph, tuple(out))

    def maximise(self, functions: LocalFunctions, links: "nx.Graph[Any] | None" = None, seed: int = 0) -> Agreement:
        """Agree in this process, and report the traffic that the agents would have had.

        Args:
            functions: What to maximise in sum.
            links: Radio graph of the agents; None: everyone hears everyone.
            seed: Not used: nothing is drawn.

        Returns:
            The best joint point found.

        Raises:
            BudgetError: If a factor has too many variables for three points each.
            ShapeError: If a function's value is NaN or +inf.
            TransportError: If agents that must talk are not connected by links.
        """
        common = self.plan(functions, Routes(functions.graph.agents, links))
        plans = common.parts
        zooms, traffic = [Zoom()] * len(plans), Traffic()
        for plan in plans:
            traffic += plan.start_traffic
        x = plans[0].starts[0].copy()
        values, received = evaluated(functions, x)
        while active := [i for i, plan in enumerate(plans) if plan.goes_on(zooms[i])]:
            grids = {i: plans[i].grid(zooms[i], x) for i in active}
            found = _tabulated(functions, {i: plans[i] for i in active}, grids, received)
            candidate, moved, rounds = x.copy(), dict[int, bool](), dict[int, int]()
            for i in active:
                plan, part = plans[i], plans[i].part(zooms[i])
                own = {f: found[f] for f in part.graph.factors}
                chosen, _, rounds[i], crossed = plan.max_sum.solve_part(part, own)
                traffic += crossed + plan.level_traffic(zooms[i])
                rows = np.array([chosen[variable] for variable in part.graph.variables])
                candidate[plan.columns] = grids[i][np.arange(len(rows)), rows]
                low, high = plan.low[plan.columns], plan.high[plan.columns]
                moved[i] = bool(is_at_edge(grids[i], candidate[plan.columns], low, high).any())
            new_values, new_received = evaluated(functions, candidate)
            for i in active:
                factors = plans[i].coarse.graph.factors
                before, after = (rank(np.array([v[f] for f in factors])) for v in (values, new_values))
                improved = after > before
                if improved:
                    x[plans[i].columns] = candidate[plans[i].columns]
                    values.update({f: new_values[f] for f in factors})
                    received.update({f: new_received[f] for f in factors})
                zooms[i] = zooms[i].after(rounds[i], finer=not (improved and moved[i]))
        return common.together(x, values, zooms, traffic)


def evaluated(functions: LocalFunctions, x: Float[np.ndarray, " n"]) -> tuple[dict[str, float], Numbers]:
    """Each factor's value at a joint point, and what it received there."""
    values: dict[str, float] = {}
    numbers: Numbers = {}
    stacks = stacks_of(functions.graph)
    points = [stack.take(x[None]) for stack in stacks]
    for stack, U, received in zip(stacks, points, exchange(functions, stacks, points), strict=True):
        found = functions.value(stack, U, received)[:, 0].tolist()
        values.update(zip(stack.factors, found, strict=True))
        numbers.update({f: tuple(float(phase[g, 0]) for phase in received) for g, f in enumerate(stack.factors)})
    return values, numbers


def _tabulated(
    functions: LocalFunctions,
    plans: dict[int, ZoomPlan],
    grids: dict[int, Float[np.ndarray, "_v values"]],
    received: Numbers,
) -> dict[str, Table]:
    """Tables of all factors of some parts, those of one shape at once."""
    out: dict[str, Table] = {}
    for width in sorted({grid.shape[1] for grid in grids.values()}):
        alike = [i for i, grid in grids.items() if grid.shape[1] == width]
        values = np.sum([plans[i].on_whole_graph(grids[i]) for i in alike], axis=0)  # no two have a variable in common
        for stack in stacks_of(functions.graph, [f for i in alike for f in plans[i].coarse.graph.factors]):
            found = tables(functions, stack, values, [received[f] for f in stack.factors])
            out.update(zip(stack.factors, found, strict=True))
    return out
