"""Nearest joint point that keeps all constraints, and proof that there is none, by mixed-integer linear programming."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np
from jaxtyping import Float
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from swarmbo.problem.constraints import Constraint, Known, Linear, Separation
from swarmbo.spaces.variables import Axis, Categorical, Variable

_INSIDE = 1e-6  # share of a sum's range that real numbers stay away from its limits, as solvers round
_WIDER = 1e-6  # widening of limits where rounding must not exclude a point: for proofs, and on wide grids
_WIDE = 20_000  # most values of a grid that are whole numbers to a solver, which fails with millions
_FEW = 100  # the same if limits are widened: the solver drops coefficients below a billionth
_SECONDS = 20.0
_INFEASIBLE = 2  # status of ``scipy.optimize.milp``

Point = Float[np.ndarray, " n"]  # codes
Terms = list[tuple[int, float]]  # columns and coefficients


class _Program:
    """Mixed-integer linear program, to which rows and columns are added; see ``_INSIDE`` and ``_WIDER``."""

    def __init__(self, *, inside: float = 0.0, wider: float = 0.0) -> None:
        self.inside, self._wider, self.most = inside, wider, _FEW if wider else _WIDE
        self.low, self.high, self.cost, self.whole = list[float](), list[float](), list[float](), list[int]()
        self._rows = list[tuple[Terms, float, float]]()

    def column(self, low: float, high: float, *, whole: bool = False, cost: float = 0.0) -> int:
        self.low.append(low)
        self.high.append(high)
        self.cost.append(cost)
        self.whole.append(int(whole))
        return len(self.low) - 1

    def row(self, terms: Terms, floor: float, ceiling: float) -> None:
        self._rows.append((terms, floor - self._wider, ceiling + self._wider))

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
        """Codes of the nearest point, by the sum of distances in box widths; a choice counts 1. None if not found.

        On a wide grid it lies near the point that is nearest if all numbers are allowed.
        """
        axes = [variable.axis for variable in self.variables]
        while (widest := max(axis.count for axis in axes)) > _WIDE:
            found, _ = self._solved(_Program(wider=_WIDER), self.constraints, codes, axes)
            if found is None:
                return None
            most = max(_WIDE, widest // 1000)
            axes = [_around(axis, code, most) for axis, code in zip(axes, found.tolist(), strict=True)]
        found, _ = self._solved(_Program(inside=_INSIDE), self.constraints, codes, axes)
        return self._solved(_Program(), self.constraints, codes, axes)[0] if found is None else found

    def conflict(self) -> list[int]:
        """Positions of a minimal set of constraints that exclude one another; empty if there is no proof of one."""
        kept = list(range(len(self.constraints)))
        if not self._solved(_Program(wider=_WIDER), self.constraints)[1]:
            return []
        for place in list(kept):
            rest = [other for other in kept if other != place]
            if rest and self._solved(_Program(wider=_WIDER), [self.constraints[other] for other in rest])[1]:
                kept = rest
        return kept

    def _solved(
        self, program: _Program, constraints: Sequence[Known], codes: Point | None = None, axes: Sequence[Axis] = ()
    ) -> tuple[Point | None, bool]:
        listed = {name for c in constraints if isinstance(c, Constraint) for name in c.scope}
        named = zip(self.names, self.variables, axes or [variable.axis for variable in self.variables], strict=True)
        parts = {name: _Part.of(program, variable, axis, name in listed) for name, variable, axis in named}
        for constraint in constraints:
            own_parts = [parts[name] for name in constraint.scope]
            match constraint:
                case Linear():
                    _keep_sum(program, constraint, own_parts)
                case Separation():
                    _keep_apart(program, constraint, own_parts)
                case Constraint():
                    _keep_listed(program, constraint, own_parts)
        for part, code in zip(parts.values(), [] if codes is None else codes.tolist(), strict=codes is not None):
            part.draw_to(program, code)
        found, is_excluded = program.solved()
        return None if found is None else np.array([part.code(found) for part in parts.values()]), is_excluded


def _around(axis: Axis, code: float, most: int) -> Axis:
    """At most ``most`` values of an axis with a grid, around a code."""
    if axis.count <= most:
        return axis
    place, half = round((code - axis.low) / axis.step), (most - 1) // 2
    first, last = max(place - half, 0), min(place + half, axis.count - 1)
    return replace(axis, low=axis.low + first * axis.step, high=axis.low + last * axis.step)


@dataclass(frozen=True)
class _Part:
    """Columns of a variable: steps along its axis or, if a table or a choice names values, a flag for each value."""

    axis: Axis
    terms: Terms  # terms that add up to its code minus the lowest code
    flags: tuple[int, ...]
    is_choice: bool
    whole: float  # side of the variable's own axis

    @classmethod
    def of(cls, program: _Program, variable: Variable, axis: Axis, is_listed: bool) -> "_Part":
        is_choice, whole = isinstance(variable, Categorical), variable.axis.high - variable.axis.low
        has_flags = is_listed or is_choice
        if not axis.step or (axis.count > program.most and not has_flags):
            real = replace(axis, step=0.0)
            return cls(real, [(program.column(0.0, 1.0), axis.high - axis.low)], (), is_choice, whole)
        if not has_flags:
            steps = program.column(0.0, axis.count - 1, whole=True)
            return cls(axis, [(steps, axis.step)], (), is_choice, whole)
        flags = tuple(program.column(0.0, 1.0, whole=True) for _ in range(axis.count))
        program.row([(flag, 1.0) for flag in flags], 1.0, 1.0)
        return cls(axis, [(flag, axis.step * i) for i, flag in enumerate(flags)], flags, is_choice, whole)

    def draw_to(self, program: _Program, code: float) -> None:
        if self.is_choice:
            for i, flag in enumerate(self.flags):
                program.cost[flag] = float(i != round(code))
            return
        low, high = self.axis.low, self.axis.high
        side, nearest = high - low, min(max(code, low), high)
        apart = program.column(0.0, np.inf, cost=side / self.whole)
        offset, terms = (nearest - low) / side, [(column, number / side) for column, number in self.terms]
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
    terms, constant, slack = Terms(), Fraction(0), 0.0
    for part, weight in zip(parts, constraint.weights.values(), strict=True):
        if isinstance(weight, float | int):
            terms += [(column, weight * number) for column, number in part.terms]
            constant += Fraction(weight) * Fraction(part.axis.low)
            slack += 0.0 if part.axis.step else program.inside * abs(weight) * (part.axis.high - part.axis.low)
        else:
            terms += list(zip(part.flags, weight, strict=True))
    ends = [number * program.high[column] for column, number in terms]
    lowest, highest = sum(min(end, 0.0) for end in ends), sum(max(end, 0.0) for end in ends)
    floor = -np.inf if constraint.at_least is None else float(Fraction(constraint.at_least) - constant)
    ceiling = np.inf if constraint.at_most is None else float(Fraction(constraint.at_most) - constant)
    slack = _inside(slack, ceiling - floor)  # between equal limits there is no room
    floor, ceiling = floor + _inside(slack, highest - floor), ceiling - _inside(slack, ceiling - lowest)
    unit = highest - lowest or 1.0  # a solver's tolerances are absolute
    if all(part.axis.step for part in parts):  # and must not hide a step
        unit = max(1e-12 * unit, min(abs(number) for _, number in terms if number) if highest > lowest else unit)
    program.row([(column, number / unit) for column, number in terms], floor / unit, max(floor, ceiling) / unit)


def _inside(slack: float, room: float) -> float:
    """Distance that real numbers stay away from a limit: at most half the room beyond it."""
    return min(slack, max(0.5 * room, 0.0))


def _keep_apart(program: _Program, constraint: Separation, parts: Sequence[_Part]) -> None:
    one, other = parts
    orders = [[a, b] for a, b in (parts, parts[::-1]) if a.axis.high - b.axis.low >= constraint.at_least]
    if len(orders) == 1:
        _keep_sum(program, Linear({"larger": 1.0, "smaller": -1.0}, at_least=constraint.at_least), orders[0])
        return
    widest = max(one.axis.high - other.axis.low, other.axis.high - one.axis.low)
    reach = widest + constraint.at_least
    terms = [(column, sign * number / reach) for sign, p in ((1.0, one), (-1.0, other)) for column, number in p.terms]
    offset = (one.axis.low - other.axis.low) / reach
    slack = 0.0 if one.axis.step and other.axis.step else program.inside
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
