"""Maximisation over choices and numbers in turn: choices from tables, then a climb of the numbers.

Functions are constant around each value of a variable with a grid, so climbs do not move it. Its values are tried
together with those of other variables, and max-sum chooses. If the tables of all variables are too large, they take
part in blocks, drawn anew in each turn. Only what raises the sum is kept.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.coordination import box_steps, requests
from swarmbo.coordination.local_functions import LocalFunctions, Received, levels_of, silence
from swarmbo.coordination.methods.max_sum import MaxSum
from swarmbo.coordination.part import BoxView
from swarmbo.coordination.refinement import CHUNK
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.tables import Table
from swarmbo.graph import FactorGraph, stacks_of

_ENTRIES = 2**13  # of a factor's table, ...
_ENTRIES_OF_BLOCK = 2**7  # ... and if not all of its variables' values fit
_OFFSETS = np.array([0, *(sign * 2**k for k in range(8) for sign in (-1, 1))])  # steps along a long grid
_TURNS = 4
_BY_TABLES = MaxSum(rounds=30)

Values = Mapping[str, Float[np.ndarray, " k"]]


@dataclass(frozen=True, eq=False)
class Alternatives:
    """Values of variables to choose from.

    Args:
        graph: A part's scopes; n variables of the functions.
        functions: Functions of at least the own factors.
        pool: Joint points (m, n): numbers take the values that they have in these.
    """

    graph: FactorGraph
    functions: LocalFunctions
    pool: Float[np.ndarray, "m n"]

    def blocks(self, rng: np.random.Generator) -> list[set[str]]:
        """Sets of variables whose joint values fit the tables: all of them, or some choices each, drawn at random."""
        counts = {v: len(self._all(v, self.pool[0])) for v in self.graph.variables}
        if self._entries(set(counts), counts) <= _ENTRIES:
            return [set(counts)]
        out: list[set[str]] = []
        for i in rng.permutation(len(self.graph.variables)):
            variable = self.graph.variables[i]
            if variable in levels_of(self.functions):
                fits = (block for block in out if self._entries(block | {variable}, counts) <= _ENTRIES_OF_BLOCK)
                if (block := next(fits, None)) is None:
                    out.append(block := set[str]())
                block.add(variable)
        return out

    def _entries(self, block: set[str], counts: Mapping[str, int]) -> int:
        return max(math.prod(counts[v] for v in scope if v in block) for scope in self.graph.scopes)

    def around(self, x: Float[np.ndarray, " n"], block: set[str]) -> dict[str, Float[np.ndarray, " k"]]:
        """Values of each variable; the present one only outside the block."""
        place = self.functions.graph.column_of
        return {v: self._all(v, x) if v in block else x[[place[v]]] for v in self.graph.variables}

    def _all(self, variable: str, x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " k"]:
        column, functions = self.functions.graph.column_of[variable], self.functions
        levels = levels_of(functions).get(variable)
        if levels is None:
            return np.array(list(dict.fromkeys([float(x[column]), *self.pool[:, column].tolist()])))
        near = int(np.abs(levels - x[column]).argmin())
        steps = near + _OFFSETS if len(levels) > len(_OFFSETS) else np.roll(np.arange(len(levels)), -near)
        tried = levels[steps[(steps >= 0) & (steps < len(levels))]]
        # the present value comes first: of equally good ones it stays
        within = (tried >= functions.low[column]) & (tried <= functions.high[column])
        within[0] = True
        return tried[within]


def in_turns(view: BoxView, pool: Float[np.ndarray, "m n"], seed: int, climbing: int) -> Steps[Float[np.ndarray, " n"]]:
    """Improve the first of a part's joint points, with at most ``climbing`` steps of its numbers in each turn."""
    graph, x, given = view.graph, pool[0], Alternatives(view.graph, view.functions, pool)
    rng = stream(seed, "choices", variable=graph.variables[0])
    (reached,) = yield from box_steps.part_total(view, x[None])
    for _ in range(_TURNS):
        began = reached
        for block in given.blocks(rng):
            candidate = yield from _chosen(view, x, given.around(x, block))
            (after,) = yield from box_steps.part_total(view, candidate[None])
            if after > reached:
                x, reached = candidate, after
        if any(v not in levels_of(view.functions) for v in graph.variables):
            climbed, values, _ = yield from box_steps.polish(view, x[None], climbing)
            if values[0] > reached:
                x, reached = climbed[0], values[0]
        if not reached > began:
            break
    return x


def of_one(
    functions: LocalFunctions, factor: str, starts: Float[np.ndarray, "m n"], seed: int, climbing: int
) -> Float[np.ndarray, " a"]:
    """Best point found of a factor that shares no variable, from several starts."""
    (stack,) = stacks_of(functions.graph, [factor])
    graph, columns = functions.graph.of([factor]), stack.columns[0]
    low, high = functions.low[columns][None, None], functions.high[columns][None, None]
    best, highest = starts[0], -np.inf

    def climbed(X: Float[np.ndarray, "1 m a"]) -> box_steps.Climbing:
        return functions.value_and_gradient(stack, X, silence(functions, X))

    for number, start in enumerate(starts):
        x, reached, given = start.copy(), -np.inf, Alternatives(graph, functions, np.roll(starts, -number, axis=0)[:3])
        rng = stream(seed, "choices", factor=factor, start=number)
        for _ in range(_TURNS):
            began = reached
            for block in given.blocks(rng):
                values = given.around(x, block)
                (table,) = looked_up(functions, [factor], values, {factor: silence(functions, low)})
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


def _chosen(view: BoxView, x: Float[np.ndarray, " n"], values: Values) -> Steps[Float[np.ndarray, " n"]]:
    """Joint choice from tables over some values of each variable, by max-sum."""
    received = yield from box_steps.exchange(view, view.take(x[None]))
    heard = {
        factor: tuple(phase[row : row + 1] for phase in got)
        for stack, got in zip(view.stacks, received, strict=True)
        for row, factor in enumerate(stack.factors)
    }
    tables = dict(zip(view.factors, looked_up(view.functions, view.factors, values, heard), strict=True))
    sizes = {variable: len(own) for variable, own in values.items()}
    yield requests.Choices(sizes)
    outcome = yield from _BY_TABLES.steps(view, tables, sizes)
    chosen = yield from box_steps.tell_factors(view, outcome.assignment, max(sizes.values()))
    out = x.copy()
    for variable, index in chosen.items():
        out[view.place[variable]] = values[variable][int(index)]
    return out


def looked_up(
    functions: LocalFunctions, factors: Sequence[str], values: Values, received: Mapping[str, Received]
) -> Iterable[Table]:
    """Table of each factor over the values of its variables, axes in scope order; received sums are fixed."""
    graph, alike, found = functions.graph, dict[tuple[int, ...], list[str]](), dict[str, Table]()
    for factor in factors:
        alike.setdefault(tuple(len(values[v]) for v in graph.scope(factor)), []).append(factor)
    for shape, names in alike.items():
        (stack,) = stacks_of(graph, names)
        places = np.indices(shape).reshape(len(shape), -1).T
        U = np.stack(
            [
                np.stack([values[v][at] for v, at in zip(graph.scope(f), places.T, strict=True)], axis=-1)
                for f in stack.factors
            ]
        )
        sums = [np.concatenate(phases) for phases in zip(*(received[f] for f in stack.factors), strict=True)]
        out = np.empty(U.shape[:2])
        for start in range(0, len(places), CHUNK):
            part = U[:, start : start + CHUNK]
            fixed = tuple(np.broadcast_to(phase, part.shape[:2]) for phase in sums)
            # if neighbours matter, tabulate each factor's model of its effect on their terms
            looked = (
                functions.value_and_gradient(stack, part, fixed)[0] if fixed else functions.value(stack, part, fixed)
            )
            out[:, start : start + CHUNK] = looked
        found |= {factor: own.reshape(shape) for factor, own in zip(stack.factors, out, strict=True)}
    return [found[factor] for factor in factors]
