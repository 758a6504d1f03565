"""Alternating maximisation over choices, by tables, and over numbers, by gradient ascent.

Functions are constant around each value of a variable with a grid, so a climb cannot move such a variable. Tables hold
its values combined with other variables' values, and max-sum chooses. If tables of all variables are too large,
variables with a grid take part in random blocks, drawn again in each turn. Only changes that raise the sum are kept.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.coordination import box_steps, requests
from swarmbo.coordination.methods.max_sum import MaxSum
from swarmbo.coordination.part import BoxView
from swarmbo.coordination.refinement import tabulated
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import Table
from swarmbo.graph import BoxFunctions, FactorGraph
from swarmbo.graph.box_functions import Received

_ENTRIES = 2**13  # most entries of a factor's table
_ENTRIES_OF_BLOCK = 2**7  # most entries of a factor's table if variables take part in blocks
_OFFSETS = np.array([0, *(sign * 2**k for k in range(8) for sign in (-1, 1))])  # steps along a long grid
_TURNS = 4
_BY_TABLES = MaxSum(rounds=30)

Point = Float[np.ndarray, " n"]
Points = Float[np.ndarray, "m n"]
Values = Mapping[str, Float[np.ndarray, " k"]]


@dataclass(frozen=True, eq=False)
class Alternatives:
    """Candidate values of each variable, some of them repeated. Their number depends on the sizes of grid and pool
    only, as a variable's owner without a factor knows nothing else.
    """

    graph: FactorGraph  # scopes of one part; n counts the variables of all parts
    functions: BoxFunctions  # functions of at least the own factors
    pool: Points  # joint points (m, n), whose values are the candidates of variables without a grid

    def blocks(self, rng: np.random.Generator) -> list[set[str]]:
        """Sets of variables whose joint values fit the tables: all variables, or random sets of those with a grid."""
        grid_sizes = {v: min(len(places), len(_OFFSETS)) for v, places in self.functions.levels.items()}
        counts = {v: grid_sizes.get(v, len(self.pool)) for v in self.graph.variables}
        if self._entries(set(counts), counts) <= _ENTRIES:
            return [set(counts)]
        out: list[set[str]] = []
        for i in rng.permutation(len(self.graph.variables)):
            variable = self.graph.variables[i]
            if variable in self.functions.levels:
                fits = (block for block in out if self._entries(block | {variable}, counts) <= _ENTRIES_OF_BLOCK)
                if (block := next(fits, None)) is None:
                    out.append(block := set[str]())
                block.add(variable)
        return out

    def _entries(self, block: set[str], counts: Mapping[str, int]) -> int:
        return max(math.prod(counts[v] for v in scope if v in block) for scope in self.graph.scopes)

    def around(self, x: Point, block: set[str]) -> dict[str, Float[np.ndarray, " k"]]:
        """Candidate values of each variable; outside the block, the present value only."""
        column_of = self.functions.graph.column_of
        return {v: self._all(v, x) if v in block else x[[column_of[v]]] for v in self.graph.variables}

    def _all(self, variable: str, x: Point) -> Float[np.ndarray, " k"]:
        column, functions = self.functions.graph.column_of[variable], self.functions
        levels = functions.levels.get(variable)
        if levels is None:
            return np.array([x[column], *self.pool[1:, column]])  # the search began at the first point
        near, last = int(np.abs(levels - x[column]).argmin()), len(levels) - 1
        steps = near + _OFFSETS if len(levels) > len(_OFFSETS) else np.roll(np.arange(len(levels)), -near)
        tried = levels[np.clip(steps, 0, last)]
        within = (tried >= functions.low[column]) & (tried <= functions.high[column]) & (steps >= 0) & (steps <= last)
        # the present value comes first, so it stays if others are only as good
        return np.where(within, tried, tried[0])


def in_turns(view: BoxView, pool: Points, seed: int, climbing: int) -> Steps[Point]:
    """Improve the first of a part's joint points; numbers climb for at most ``climbing`` steps in each turn."""
    graph, x, alternatives = view.graph, pool[0], Alternatives(view.graph, view.functions, pool)
    rng = stream(seed, "choices", variable=graph.variables[0])
    (reached,) = yield from box_steps.part_total(view, x[None])
    for _ in range(_TURNS):
        began = reached
        for block in alternatives.blocks(rng):
            candidate = yield from chosen(view, x, alternatives.around(x, block), _BY_TABLES)
            (after,) = yield from box_steps.part_total(view, candidate[None])
            if after > reached:
                x, reached = candidate, after
        if any(v not in view.functions.levels for v in graph.variables):
            climbed, values, _ = yield from box_steps.polish(view, x[None], climbing)
            if values[0] > reached:
                x, reached = climbed[0], values[0]
        if not reached > began:
            break
    return x


def of_one(view: BoxView, factor: str, starts: Points, seed: int, climbing: int) -> Float[np.ndarray, " a"]:
    """Best point found, from several starts, for a factor that shares no variable."""
    functions, factor_view = view.functions, replace(view, factors=(factor,))
    (stack,) = factor_view.stacks
    graph, columns = functions.graph.of([factor]), stack.columns[0]
    low, high = factor_view.box(stack)
    best, highest, climbed = starts[0], -np.inf, box_steps.climbed_by(functions, stack, functions.unheard(low))

    for number, start in enumerate(starts):
        x, reached, given = start.copy(), -np.inf, Alternatives(graph, functions, np.roll(starts, -number, axis=0)[:3])
        rng = stream(seed, "choices", factor=factor, start=number)
        for _ in range(_TURNS):
            began = reached
            for block in given.blocks(rng):
                values = given.around(x, block)
                table = _tabulated(factor_view, x, values, [functions.unheard(low)])[factor]
                at = np.unravel_index(int(table.argmax()), table.shape)
                if table[at] > reached:
                    reached = float(table[at])
                    x[columns] = [values[v][i] for v, i in zip(graph.variables, at, strict=True)]
            found = box_steps.ascend(climbed, x[columns][None, None], low, high, climbing)
            if found.value[0, 0] > reached:
                reached, x[columns] = float(found.value[0, 0]), found.X[0, 0]
            if not reached > began:
                break
        if reached > highest:
            best, highest = x, reached
    return best[columns]


def chosen(view: BoxView, x: Point, values: Values, method: MaxSum) -> Steps[Point]:
    """Joint choice from tables over some values of each variable; neighbours' numbers are those at ``x``."""
    received = yield from box_steps.exchange(view, view.take(x[None]))
    tables = _tabulated(view, x, values, received)
    sizes = {variable: len(own) for variable, own in values.items()}
    yield requests.SetSizes(sizes)
    outcome = yield from method.steps(view, tables, sizes)
    out = x.copy()
    for variable, index in (yield from box_steps.tell_factors(view, outcome.assignment, max(sizes.values()))).items():
        out[view.column_of[variable]] = values[variable][int(index)]
    return out


def _tabulated(view: BoxView, x: Point, values: Values, received: Sequence[Received]) -> dict[str, Table]:
    padded = np.repeat(x[:, None], max(map(len, values.values())), axis=1)
    for variable, own in values.items():
        padded[view.column_of[variable], : len(own)] = own
    counts = {variable: len(own) for variable, own in values.items()}
    # with grids, a combination whose value is NaN or +inf is not an error: it becomes -inf, and loses to others
    return tabulated(view, padded, received, counts, is_strict=not view.functions.levels)
