"""Grids that are refined around an incumbent: the values of variables at each level, and the rule for the next level.

The first level is a lattice over the whole box and the coordinates of the starts; later levels are windows of lattice
points around the incumbent. If the best joint choice lies inside the window, the lattice is made finer; if it lies at
an edge that is not a bound of the box, the window moves there. This is a generating set search along the coordinates
(Torczon 1997; with bounds, Lewis & Torczon 1999): it converges to a point where no coordinate direction climbs.

In parts of very many factors, no random joint point suits more than a few, so ``narrowed`` assembles points by max-sum:
first from a lattice with both bounds, as the unexplored edge is often best; then from the last choice, ever nearer
neighbours, and, at first, random values, which may lead to another maximum.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.boundary.rng import stream
from swarmbo.coordination.box_steps import exchange
from swarmbo.coordination.methods.max_sum import MaxSum
from swarmbo.coordination.part import BoxView
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import Sizes, Table
from swarmbo.errors import BudgetError, ShapeError
from swarmbo.graph import BoxFunctions, FactorGraph, FactorStack
from swarmbo.graph.box_functions import Received
from swarmbo.graph.factor_graph import grouped

Point = Float[np.ndarray, " n"]
Grid = Float[np.ndarray, "n points"]  # values of each variable

# points per evaluation; fixed, as the last bit of a value may depend on the number of points
CHUNK = 512


@dataclass(frozen=True)
class Resolution:
    """Fineness of a part's grids. ``window`` is odd; ``refinement`` >= 2 makes the lattice finer, level by level."""

    starts: int
    coarse: int
    window: int
    refinement: int

    @classmethod
    def of(
        cls, part: FactorGraph, points: int, refinement: int, starts: int, coarse_entries: int, window_entries: int
    ) -> "Resolution":
        """Make the finest grids within the budgets of entries; a BudgetError if the smallest do not fit."""
        factor = max(part.factors, key=lambda name: len(part.scope(name)))
        arity = len(part.scope(factor))
        widest, window = root(coarse_entries, arity), root(window_entries, arity)
        for got, fewest, budget, field in (
            (widest, 4, coarse_entries, "coarse_entries"),
            (window, 3, window_entries, "window_entries"),
        ):
            if got < fewest:
                size = f"with {fewest} values each, the fewest, its table has {fewest**arity} entries"
                fix = f"{field} allows {budget}; raise it, or take coordination = 'admm', which needs no tables"
                raise BudgetError(f"factor {factor!r} has {arity} variables: {size}. {fix}")
        starts = max(min(starts, widest // 4), 1)
        window = min(2 * refinement + 1, (window - 1) // 2 * 2 + 1)
        finer = min(refinement, max((window - 1) // 2, 2))
        return cls(starts, min(points, widest - starts), window, finer)


def root(entries: int, arity: int) -> int:
    """Largest number of values per variable so that a table of ``arity`` variables has at most ``entries`` entries."""
    found = round(entries ** (1.0 / arity))
    return found if found**arity <= entries else found - 1


@dataclass(frozen=True, eq=False)
class Grids:
    """Values of a part's variables, level by level; ``starts``, the incumbent first, join the first level."""

    resolution: Resolution
    low: Float[np.ndarray, " v"]
    high: Float[np.ndarray, " v"]
    starts: Float[np.ndarray, "s v"]

    def at(self, depth: int, x: Float[np.ndarray, " v"]) -> Float[np.ndarray, "v values"]:
        """Values around the incumbent ``x``, of which only the requested variables need be valid."""
        if not depth:
            return coarse_values(self.low, self.high, self.starts, self.resolution.coarse)
        spacing = (self.high - self.low) * self._share(depth)
        return window_values(x, self.low, self.high, spacing, self.resolution.window)

    def is_fine_enough(self, depth: int, tolerance: float) -> bool:
        """True if the last lattice on which the part settled had a spacing below this share of the box's widths."""
        return depth > 0 and self._share(depth - 1) <= tolerance

    def _share(self, depth: int) -> float:
        return 1.0 / ((self.resolution.coarse - 1) * self.resolution.refinement**depth)


def coarse_values(low: Point, high: Point, starts: Float[np.ndarray, "s n"], points: int) -> Grid:
    """Coordinates of the starts, the first start first, then a lattice over the box."""
    lattice = low[:, None] + np.linspace(0.0, 1.0, points) * (high - low)[:, None]
    lattice[:, -1] = high
    return np.concatenate([starts.T, lattice], axis=1)


def window_values(x: Point, low: Point, high: Point, spacing: Point, points: int) -> Grid:
    """Incumbent first, then its lattice neighbours from below to above, shifted and clipped to the box."""
    half, step = (points - 1) // 2, np.where(spacing > 0.0, spacing, 1.0)
    slack = 1e-9  # share of a step within which a bound counts as a lattice point
    below, above = np.ceil((x - low) / step - slack), np.ceil((high - x) / step - slack)
    first = -np.minimum(below, np.where(above < half, points - 1 - above, half))
    steps = first[:, None] + np.arange(points)
    # the incumbent first: it stays, as the first of equally good values is taken
    order = np.argsort(steps != 0.0, axis=1, kind="stable")
    out = x[:, None] + np.take_along_axis(steps, order, axis=1) * spacing[:, None]
    return np.clip(out, low[:, None], high[:, None])


def is_at_edge(values: Float[np.ndarray, "n points"], chosen: Point, low: Point, high: Point) -> Bool[np.ndarray, " n"]:
    """True where a variable's choice is the first or last of its window, and not a bound of the box."""
    at_first, at_last = chosen <= values.min(axis=1), chosen >= values.max(axis=1)
    return (at_first & (chosen > low)) | (at_last & (chosen < high))


def tabulated(
    view: BoxView,
    values: Grid,
    received: Sequence[Received],
    counts: Sizes | None = None,
    *,
    is_strict: bool = True,
) -> dict[str, Table]:
    """Tables of own factors over the first ``counts`` (None: all) values of each variable, axes in scope order. All
    entries use the sums ``received`` at the incumbent. NaN and +inf are a ShapeError if ``is_strict``, else -inf.
    """
    out, n_values = dict[str, Table](), values.shape[1]
    for stack, got in zip(view.stacks, received, strict=True):
        scopes = map(view.graph.scope, stack.factors)
        shapes = [tuple(n_values if counts is None else counts[x] for x in scope) for scope in scopes]
        for shape, members in grouped(zip(shapes, range(len(shapes)), strict=True)).items():
            rows = list(members)
            group = FactorStack(tuple(stack.factors[row] for row in rows), stack.columns[rows])
            there = [phase[rows] for phase in got]
            own = tables(view.functions, group, values, shape, there, is_strict)
            out.update(zip(group.factors, own, strict=True))
    return out


def tables(
    functions: BoxFunctions,
    stack: FactorStack,
    values: Grid,
    shape: tuple[int, ...],
    received: Received,
    is_strict: bool = True,
) -> Float[np.ndarray, "g ..."]:
    """Table of each factor over its variables' first values; see :func:`tabulated`."""
    places = np.indices(shape).reshape(len(shape), -1).T  # the index along every axis for each entry, in C order
    out = np.empty((len(stack.factors), len(places)))
    for start in range(0, len(places), CHUNK):
        part = places[start : start + CHUNK]
        U = values[stack.columns[:, None, :], part[None, :, :]]
        frozen = tuple(np.broadcast_to(phase, (len(phase), len(part))) for phase in received)
        # if neighbours matter, tabulate each factor's model of its effect on their terms
        found = functions.value_and_gradient(stack, U, frozen)[0] if frozen else functions.value(stack, U, frozen)
        out[:, start : start + CHUNK] = found
    bad = ~(out < np.inf)  # true for NaN too
    if is_strict and bad.any():
        g, entry = (int(i) for i in np.argwhere(bad)[0])
        at = values[stack.columns[g], places[entry]].tolist()
        got = f"got the value {out[g, entry]} at {at}"
        raise ShapeError(f"factor {stack.factors[g]!r}: {got}; wanted a number, or -inf")
    out[bad] = -np.inf
    return out.reshape(len(stack.factors), *shape)


MOST = 17  # values of a variable on the first level; fewer were found to miss the maximum more often
_GIVEN = 3  # largest number of these values that are from given points; at most a quarter
# distance of neighbours as a share of the lattice's spacing, and number of random values
_LEVELS = (0.5, 4), (0.3, 4), (0.1, 0)
_FIRST, _LATER = MaxSum(rounds=50), MaxSum(rounds=20)  # choices between maxima take more rounds than those within one


def narrowed(view: BoxView, seed: int, n_values: int) -> Steps[Float[np.ndarray, "m n"]]:
    """Joint points: one assembled on each level, the last level first, then given starts; ``n_values`` >= 7."""
    low, high, graph = view.functions.low, view.functions.high, view.graph
    given_points = np.clip(view.functions.starts[: min(_GIVEN, n_values // 4)], low, high)
    n_lattice = n_values - len(given_points)
    spacing = (high - low) / (n_lattice - 1)
    columns = [view.column_of[variable] for variable in graph.variables]
    rng = stream(seed, "starts", variable=graph.variables[0])
    pool = coarse_values(low, high, given_points, n_lattice).T
    out = [(yield from put_together(view, pool, _FIRST))]
    for share, n_random in _LEVELS:
        x = out[0]
        drawn = np.broadcast_to(x, (n_random, len(x))).copy()
        drawn[:, columns] = rng.random((n_random, len(columns)))
        drawn[:, columns] = low[columns] + drawn[:, columns] * (high - low)[columns]
        near = np.clip(x + share * np.array([[0.0], [-1.0], [1.0]]) * spacing, low, high)
        pool = np.concatenate([near, drawn])
        out.insert(0, (yield from put_together(view, pool, _LATER)))
    return np.concatenate([np.array(out), given_points])


def put_together(view: BoxView, pool: Float[np.ndarray, "c n"], method: MaxSum) -> Steps[Point]:
    """Point assembled from the joint points' values; neighbours' numbers are those at the first point."""
    graph, out = view.graph, pool[0].copy()
    received = yield from exchange(view, view.take(pool[:1]))
    built = tabulated(view, pool.T, received)
    sizes = dict.fromkeys(graph.variables, len(pool))
    best, _, _ = yield from method.flooded(view, built, sizes, 0.0 if graph.is_forest else method.damping)
    columns = [view.column_of[variable] for variable in graph.variables]
    out[columns] = pool[best, columns]
    return out
