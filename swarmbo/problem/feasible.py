"""Nearest joint point that keeps all constraints, and proof that there is none, by mixed-integer linear programming."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from swarmbo.problem.constraints import Constraint, Known, Linear, Separation
from swarmbo.spaces.variables import Axis, Categorical, Variable

_INSIDE = 1e-6  # share of a sum's range that real numbers stay away from its limits, as solvers round
_SECONDS = 20.0
_INFEASIBLE = 2  # status of ``scipy.optimize.milp``

Point = Float[np.ndarray, " n"]  # codes
Terms = list[tuple[int, float]]  # columns and coefficients


class _Program:
    """Mixed-integer linear program, to which rows and columns are added."""

    def __init__(self) -> None:
        self.low, self.high, self.cost, self.whole = list[float](), list[float](), list[float](), list[int]()
        self._rows = list[tuple[Terms, float, float]]()

    def column(self, low: float, high: float, *, whole: bool = False, cost: float = 0.0) -> int:
        self.low.append(low)
        self.high.append(high)
        self.cost.append(cost)
        self.whole.append(int(whole))
        return len(self.low) - 1

    def row(self, terms: Terms, floor: float, ceiling: float) -> None:
        self._rows.append((terms, floor, ceiling))

    def solved(self) -> tuple[Float[np.ndarray, " c"] | None, bool]:
        """Columns of the optimum or, after 20 s, of the best solution found, and whether there is proof of none."""
        every, floors, ceilings = zip(*self._rows, strict=True)
        at = [(row, column, number) for row, terms in enumerate(every) for column, number in terms]
        rows, columns, numbers = zip(*at, strict=True)
        matrix = coo_array((numbers, (rows, columns)), shape=(len(every), len(self.low)))
        limits, bounds = LinearConstraint(matrix.tocsr(), floors, ceilings), Bounds(self.low, self.high)
        solve, options = cast(Any, milp), {"time_limit": _SECONDS, "mip_rel_gap": 0.0}
        found = solve(self.cost, integrality=self.whole, bounds=bounds, constraints=limits, options=options)
        return None if found.x is None else np.asarray(found.x), found.status == _INFEASIBLE


@dataclass(frozen=True, eq=False)
class Feasible:
    """Joint points of n typed and named variables that keep constraints on some of them."""

    variables: tuple[Variable, ...]
    names: tuple[str, ...]
    constraints: tuple[Known, ...]

    def nearest(self, codes: Point) -> Point | None:
        """Codes of the nearest point, by the sum of distances in sides; a choice counts 1. None if none was found."""
        return self._solved(self.constraints, codes)[0]

    def conflict(self) -> list[int]:
        """Positions of a minimal set of constraints that exclude one another; empty if there is no proof of one."""
        kept = list(range(len(self.constraints)))
        if not self._solved(self.constraints, None)[1]:
            return []
        for place in list(kept):
            rest = [other for other in kept if other != place]
            if rest and self._solved([self.constraints[other] for other in rest], None)[1]:
                kept = rest
        return kept

    def _solved(self, constraints: Sequence[Known], codes: Point | None) -> tuple[Point | None, bool]:
        program, listed = _Program(), {name for c in constraints if isinstance(c, Constraint) for name in c.scope}
        named = zip(self.names, self.variables, strict=True)
        parts = {name: _Part.of(program, variable, name in listed) for name, variable in named}
        for constraint in constraints:
            own = [parts[name] for name in constraint.scope]
            match constraint:
                case Linear():
                    _keep_sum(program, constraint, own)
                case Separation():
                    _keep_apart(program, constraint, own)
                case Constraint():
                    _keep_listed(program, constraint, own)
        for part, code in zip(parts.values(), [] if codes is None else codes.tolist(), strict=codes is not None):
            part.draw_to(program, code)
        found, is_excluded = program.solved()
        return None if found is None else np.array([part.code(found) for part in parts.values()]), is_excluded


@dataclass(frozen=True)
class _Part:
    """Columns of a variable: steps along its axis or, if a table or a choice names values, a flag for each value."""

    axis: Axis
    terms: Terms  # terms that add up to its code minus the lowest code
    flags: tuple[int, ...]
    is_choice: bool

    @classmethod
    def of(cls, program: _Program, variable: Variable, is_listed: bool) -> "_Part":
        axis, is_choice = variable.axis, isinstance(variable, Categorical)
        if not axis.step:
            return cls(axis, [(program.column(0.0, 1.0), axis.high - axis.low)], (), is_choice)
        if not (is_listed or is_choice):
            return cls(axis, [(program.column(0.0, axis.count - 1, whole=True), axis.step)], (), is_choice)
        flags = tuple(program.column(0.0, 1.0, whole=True) for _ in range(axis.count))
        program.row([(flag, 1.0) for flag in flags], 1.0, 1.0)
        return cls(axis, [(flag, axis.step * i) for i, flag in enumerate(flags)], flags, is_choice)

    def draw_to(self, program: _Program, code: float) -> None:
        if self.is_choice:
            for i, flag in enumerate(self.flags):
                program.cost[flag] = float(i != round(code))
            return
        apart, side = program.column(0.0, np.inf, cost=1.0), self.axis.high - self.axis.low
        offset, terms = (code - self.axis.low) / side, [(column, number / side) for column, number in self.terms]
        program.row([(apart, 1.0), *((column, -number) for column, number in terms)], -offset, np.inf)
        program.row([(apart, 1.0), *terms], offset, np.inf)

    def code(self, found: Float[np.ndarray, " c"]) -> float:
        if self.flags:
            return self.axis.low + self.axis.step * int(np.argmax(found[list(self.flags)]))
        ((column, number),) = self.terms
        steps = float(found[column])
        if self.axis.step:
            return self.axis.low + number * round(steps)
        return min(self.axis.low + number * max(steps, 0.0), self.axis.high)


def _keep_sum(program: _Program, constraint: Linear, parts: Sequence[_Part]) -> None:
    terms, constant, slack = Terms(), 0.0, 0.0
    for part, weight in zip(parts, constraint.weights.values(), strict=True):
        if isinstance(weight, float | int):
            terms += [(column, weight * number) for column, number in part.terms]
            constant += weight * part.axis.low
            slack += 0.0 if part.axis.step else _INSIDE * abs(weight) * (part.axis.high - part.axis.low)
        else:
            terms += list(zip(part.flags, weight, strict=True))
    ends = [number * program.high[column] for column, number in terms]
    lowest, highest = sum(min(end, 0.0) for end in ends), sum(max(end, 0.0) for end in ends)
    floor = -np.inf if constraint.at_least is None else constraint.at_least - constant
    ceiling = np.inf if constraint.at_most is None else constraint.at_most - constant
    slack = _inside(slack, ceiling - floor)  # between equal limits there is no room
    floor, ceiling = floor + _inside(slack, highest - floor), ceiling - _inside(slack, ceiling - lowest)
    reach = highest - lowest or 1.0  # scaled, as a solver's tolerances are absolute
    program.row([(column, number / reach) for column, number in terms], floor / reach, max(floor, ceiling) / reach)


def _inside(slack: float, room: float) -> float:
    """Distance that real numbers stay away from a limit: at most half the room beyond it."""
    return min(slack, max(0.5 * room, 0.0))


def _keep_apart(program: _Program, constraint: Separation, parts: Sequence[_Part]) -> None:
    one, other = parts
    widest = max(one.axis.high - other.axis.low, other.axis.high - one.axis.low)
    reach = widest + constraint.at_least
    terms = [(column, sign * number / reach) for sign, p in ((1.0, one), (-1.0, other)) for column, number in p.terms]
    offset = (one.axis.low - other.axis.low) / reach
    slack = 0.0 if one.axis.step and other.axis.step else _INSIDE
    least = constraint.at_least / reach + _inside(slack, (widest - constraint.at_least) / reach)
    terms.append((program.column(0.0, 1.0, whole=True), 2.0))  # 1 if the first is the smaller
    program.row(terms, least - offset, np.inf)
    program.row(terms, -np.inf, 2.0 - least - offset)


def _keep_listed(program: _Program, constraint: Constraint, parts: Sequence[_Part]) -> None:
    joint = [(program.column(0.0, 1.0), entry) for entry in np.argwhere(constraint.table).tolist()]
    for axis, part in enumerate(parts):
        for value, flag in enumerate(part.flags):
            # the weights of the joint values with this value add up to its flag
            own = [(column, 1.0) for column, entry in joint if entry[axis] == value]
            program.row([*own, (flag, -1.0)], 0.0, 0.0)
