"""Choosing from tables on continuous domains: coarse grids first, then finer and finer ones around the incumbent."""

from collections.abc import Callable, Mapping
from typing import Annotated

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.agreement import BoxOutcome, TableOutcome
from swarmbo.coordination.box_steps import exchange, tell_factors
from swarmbo.coordination.local_functions import LocalFunctions, Received
from swarmbo.coordination.plan import BoxMethod, Plan
from swarmbo.coordination.refinement import Grids, RefinementLevel, Resolution, is_at_edge, tabulated
from swarmbo.coordination.requests import Choices, Compare, Look, Steps
from swarmbo.coordination.tables import Table
from swarmbo.coordination.view import BoxView
from swarmbo.graph import FactorGraph
from swarmbo.settings import Count, ProperFraction, within
from swarmbo.transport import Routes

Chooser = Callable[[Mapping[str, Table], Mapping[str, int], dict[str, int]], Steps[TableOutcome]]


class RefinedMethod(BoxMethod, frozen=True, tag_field="kind"):
    """A way to choose from tables, on grids that are refined; a subclass says which: ``chooser``.

    Grids and settings are as :class:`RefinedMaxSum` says. Whatever chooses, the incumbent is always among the values,
    and only a better choice replaces it.
    """

    points: Annotated[int, within(3, 1025)] = 33
    refinement: Annotated[int, within(2, 64)] = 4
    starts: Annotated[int, within(1, 16)] = 3
    coarse_entries: Annotated[int, within(2**6, 2**24)] = 2**14
    window_entries: Annotated[int, within(2**6, 2**24)] = 2**12
    tolerance: ProperFraction = 1e-6
    levels: Count = 40

    def chooser(self, view: BoxView, seed: int) -> "Chooser":
        """What chooses on one level after the other: given the own factors' tables, numbers of values, and where the
        own variables are.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how to choose from tables")

    def plan(self, functions: LocalFunctions, routes: Routes, seed: int = 0) -> Plan[LocalFunctions, BoxOutcome]:
        """What every agent works out for itself; see :meth:`BoxMethod.plan`."""
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
        grids, chosen_from = self.grids(view.graph, view.functions), self.chooser(view, seed)
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
            sizes = dict.fromkeys(view.graph.variables, int(grid.shape[1]))
            yield Choices(sizes)
            present = np.abs(grid - x[columns, None]).argmin(axis=1)  # the incumbent is among the values
            solved = yield from chosen_from(tables, sizes, {v: int(present[row[v]]) for v in view.variables})
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
