"""Types of variables (numbers, integers, categories), and boxes with such variables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import floor, isfinite, log10
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from msgspec.structs import force_setattr

from swarmbo.boundary.values import exact, real_array, short
from swarmbo.errors import ConfigError
from swarmbo.settings import Count, Positive, Settings, convert, require
from swarmbo.spaces.box import Domain

_MOST_VALUES = 10_000  # largest number of values of a categorical variable
_FIXED = "a variable that has one value"
_LISTED = 1000  # values of an axis that are tried one by one; on a finer grid numbers climb
_ALL: Any = np.s_[:]
_ROUNDING = 1e-15  # largest rounding error, relative to the larger bound
_SLACK = 1e-6  # share of a step, within which a number counts as a value of the grid

Choice = str | bool | int | float | None
Points = Float[np.ndarray, "*n d"]


class _Number(Settings, frozen=True, tag_field="kind"):
    low: float
    high: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for bound in ("low", "high") if isinstance(self, Integer) else ():  # codes are floats
            require(self, bound, lambda given: abs(given) <= 2**53, "an integer from -2^53 to 2^53")
        require(self, "high", lambda high: high > self.low, f"a number above low, {self.low}; leave out {_FIXED}")
        axis = self.axis
        require(self, "low", lambda low: not axis.is_log or low > 0, "a number > 0 on a logarithmic axis")
        steps = (self.high - self.low) / axis.step if axis.step else 0.0
        is_on_grid = abs(steps - round(steps)) <= _SLACK
        require(self, "high", lambda _: is_on_grid, f"{self.low} plus a multiple of the step {axis.step}")

    @property
    def axis(self) -> "Axis":
        own: Any = self
        return Axis(self.low, self.high, own.step or 0.0, own.log)

    @property
    def wanted(self) -> str:
        return f"{'an integer' if isinstance(self, Integer) else 'a number'} from {self.in_words}"

    @property
    def in_words(self) -> str:
        """Range of the variable: ``1 to 9``, ``0.001 to 1, logarithmic``."""
        spaced = f" in steps of {self.axis.step:g}" if self.axis.step not in (0.0, 1.0) else ""
        return f"{self.low:g} to {self.high:g}{spaced}{', logarithmic' if self.axis.is_log else ''}"

    def code(self, value: object) -> float | None:
        """Code of a value; None if it is not a number."""
        number = None if isinstance(value, str | bool | np.bool) else real_array(value)
        return None if number is None or number.shape != () else float(number)


class Real(_Number, frozen=True, tag_field="kind", kw_only=False, tag="real"):
    """Real variable.

    Args:
        low: Lower bound, in the user's unit.
        high: Upper bound, above it.
        log: True for a logarithmic axis, on which equal ratios are equally far apart; then ``low`` > 0.
        step: Spacing of its values, which begin at ``low``; None: all values between the bounds.

    Raises:
        ValueError: If bounds are not finite with low < high, or ``high`` is not a value of the grid.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team(None, {"rate": sb.Real(1e-4, 1.0, log=True)}, initial=4)
        >>> sorted(query.point["rate"] < 0.01 for query in team.ask(4))  # half of them below the geometric mean
        [False, False, True, True]
    """

    low: float
    high: float
    log: bool = False
    step: Positive | None = None

    def value(self, code: float) -> float:
        """Value of a code; on a grid without rounding errors: 0.6, not 0.6000000000000001."""
        if self.step is None:
            return code
        largest = max(abs(self.low), abs(self.high))
        rounded = round(code, 11 - floor(log10(largest)))  # digits count from those of the largest value: 0 stays 0
        slack = min(_ROUNDING * largest, _SLACK * self.step)
        return rounded if abs(rounded - code) <= slack and self.low <= rounded <= self.high else code


class Integer(_Number, frozen=True, tag_field="kind", kw_only=False, tag="integer"):
    """Integer variable; its values are ints.

    Args:
        low: Smallest value.
        high: Largest value, above it.
        step: Spacing of the values, >= 1.
        log: True for a logarithmic axis; then ``low`` > 0.

    Raises:
        ValueError: If ``high`` is not ``low`` plus a positive multiple of ``step``, or a bound is beyond ±2^53.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team(None, {"threshold": sb.Integer(-82, -62, step=2)})
        >>> team.ask().point["threshold"] in range(-82, -61, 2)
        True
    """

    low: int
    high: int
    step: Count = 1
    log: bool = False

    def value(self, code: float) -> int:
        """Value of a code."""
        return round(code)


class Categorical(Settings, frozen=True, tag_field="kind", kw_only=False, tag="categorical"):
    """Categorical variable: a choice among values without an order, unless ``ordered``.

    Args:
        values: At least two different values: texts, numbers, booleans or None.
        ordered: True if neighbours in the list are alike, such as ``["low", "medium", "high"]``.

    Raises:
        ValueError: If values are repeated, or fewer than two.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team(None, {"channel": sb.Categorical([1, 6, 11])}, initial=3)
        >>> {team.tell(q, float(q.point["channel"] == 6)) for q in team.ask(3)} and team.recommend().point
        {'channel': 6}
    """

    values: Sequence[Choice]
    ordered: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.values
        is_list = isinstance(given, Sequence) and not isinstance(given, str) and len(given) <= _MOST_VALUES
        require(self, "values", lambda _: is_list, f"a list of values, at most {_MOST_VALUES:,}")
        force_setattr(self, "values", values := exact(tuple(self.values)))
        is_plain = all(v is None or isinstance(v, str | int) or (type(v) is float and isfinite(v)) for v in values)
        require(self, "values", lambda _: is_plain, "texts, finite numbers, booleans or None")
        are_distinct = 2 <= len(set(map(_key, values))) == len(values)
        require(self, "values", lambda _: are_distinct, f"2 to {_MOST_VALUES:,} different values; leave out {_FIXED}")

    @property
    def axis(self) -> "Axis":
        """Range of the variable's codes: positions in the list of its values."""
        return Axis(0, len(self.values) - 1, 1, is_log=False)

    def code(self, value: object) -> float | None:
        """Position of a value; None if it is not in the list. Numbers that are equal count as one value."""
        plain = value.item() if isinstance(value, np.generic) else value
        found = [i for i, own in enumerate(self.values) if _key(own) == _key(plain)]
        if not found and _is_number(plain):
            found = [i for i, own in enumerate(self.values) if _is_number(own) and own == plain]
        return float(found[0]) if found else None

    def value(self, code: float) -> Choice:
        """Value at a position."""
        return self.values[round(code)]

    @property
    def wanted(self) -> str:
        """Values of the variable, in words."""
        return f"one of {short(list(self.values))}"

    @property
    def in_words(self) -> str:
        """Values of the variable: ``'a', 'b', 'c'``."""
        return short(list(self.values)).strip("[]")


Variable = Real | Integer | Categorical


def _key(value: object) -> tuple[type, object]:
    return type(value), value  # 1 and True are two values


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True)
class Axis:
    """Range of a variable's codes; without a step all numbers from ``low`` to ``high``."""

    low: float
    high: float
    step: float = 0.0
    is_log: bool = False

    @property
    def count(self) -> int:
        """Number of codes on the grid; 0 without a step."""
        return round((self.high - self.low) / self.step) + 1 if self.step else 0

    def has(self, code: float) -> bool:
        """True for the code of a value: within the bounds and on the grid, but for rounding errors."""
        slack = _SLACK * (self.step or self.high - self.low)
        below = min(slack, _SLACK * self.low) if self.is_log else slack
        on_grid = not self.step or abs((code - self.low) % self.step - self.step * 0.5) >= 0.5 * self.step - slack
        return self.low - below <= code <= self.high + slack and on_grid  # false for NaN


@dataclass(frozen=True, eq=False)
class MixedDomain(Domain):
    """Box in which some coordinates have values on a grid, are choices, or have a logarithmic axis.

    A joint point has the variables' codes: numbers, and the positions of choices in their lists. In the unit cube each
    value of a grid has a cell, as wide as its neighbours' on that axis; ``from_unit`` returns the value of the cell.
    """

    variables: tuple[Variable, ...] = ()

    @staticmethod
    def types_of(bounds: Mapping[str, Any], at: str) -> dict[str, Variable]:
        """Variables from a user's table of bounds and types."""
        return {name: variable_of(given, f"{at}.{name}") for name, given in bounds.items()}

    @classmethod
    def of(cls, variables: Sequence[Variable]) -> Domain:
        """Box of variables; a plain ``Domain`` if all are real numbers without a step or a logarithm."""
        axes = [variable.axis for variable in variables]
        low, high = np.array([axis.low for axis in axes], float), np.array([axis.high for axis in axes], float)
        is_plain = all(not axis.step and not axis.is_log for axis in axes)
        return Domain(low, high) if is_plain else cls(low, high, tuple(variables))

    @cached_property
    def steps(self) -> Float[np.ndarray, " d"]:
        """Spacing of codes; 0 on axes without a grid."""
        return np.array([variable.axis.step for variable in self.variables])

    @cached_property
    def _is_log(self) -> Bool[np.ndarray, " d"]:
        return np.array([variable.axis.is_log for variable in self.variables])

    @cached_property
    def _ends(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " d"]]:
        """Ends of the axes: half a step beyond the bounds, so that the outer values have whole cells."""
        half = 0.5 * self.steps
        # on a logarithmic axis half a step below the lowest value may be 0
        below = np.where(self._is_log, np.maximum(self.low - half, 0.5 * self.low), self.low - half)
        return self._on_axis(below), self._on_axis(self.high + half)

    def _on_axis(self, X: Points, columns: Any = _ALL) -> Points:
        is_log = self._is_log[columns]
        return np.where(is_log, np.log(np.where(is_log, np.maximum(X, np.finfo(float).tiny), 1.0)), X)

    def to_unit(self, X: Points, columns: Any = _ALL) -> Points:
        """Convert codes, of some coordinates if given, to the unit cube."""
        first, last = (end[columns] for end in self._ends)
        return (self._on_axis(X, columns) - first) / (last - first)

    def from_unit(self, U: Points, columns: Any = _ALL) -> Points:
        """Convert the unit cube to codes; on a grid, to the code of the cell."""
        return self.on_grid(self.off_grid(U, columns), columns)

    def off_grid(self, U: Points, columns: Any = _ALL) -> Points:
        """Convert the unit cube to codes, also between the values of a grid."""
        first, last = (end[columns] for end in self._ends)
        axis, is_log = first + U * (last - first), self._is_log[columns]
        return np.where(is_log, np.exp(np.where(is_log, axis, 0.0)), axis)

    def stretch(self, X: Points) -> Points:
        """Derivatives of codes in coordinates of the unit cube, at points; as if no axis had a grid."""
        first, last = self._ends
        return (last - first) * np.where(self._is_log, X, 1.0)

    def on_grid(self, X: Points, columns: Any = _ALL) -> Points:
        """Nearest codes within the bounds, on axes with a grid; other coordinates are unchanged."""
        low, high, steps = self.low[columns], self.high[columns], self.steps[columns]
        step = np.where(steps > 0.0, steps, 1.0)
        n_steps = np.clip(np.rint((X - low) / step), 0.0, np.rint((high - low) / step))
        return np.where(steps > 0.0, low + n_steps * step, X)

    def cells(self, U: Points, columns: Any = _ALL) -> Points:
        """Number of each point's cell along its axis, from 0; 0 on axes without a grid, NaN for NaN."""
        counts = self.counts[columns]
        place = np.clip(np.floor(U * counts), 0.0, np.maximum(counts - 1.0, 0.0))
        is_uneven = self._is_log[columns] & (counts > 0.0)
        if is_uneven.any():  # cells of a logarithmic axis differ in width
            steps = np.where(is_uneven, self.steps[columns], 1.0)
            place = np.where(is_uneven, np.rint((self.from_unit(U, columns) - self.low[columns]) / steps), place)
        return place

    def snapped(self, U: Points) -> Points:
        """Points of the unit cube, moved to the centres of their cells on axes with a grid."""
        return self.centres(U, self.cells(U))

    def centres(self, U: Points, cells: Points, columns: Any = _ALL) -> Points:
        """Centres of cells, on axes with a grid; the points themselves on others."""
        counts = self.counts[columns]
        out = np.where(counts > 0.0, (cells + 0.5) / np.maximum(counts, 1.0), U)
        is_uneven = self._is_log[columns] & (counts > 0.0)
        if is_uneven.any():
            out = np.where(is_uneven, self.to_unit(self.low[columns] + cells * self.steps[columns], columns), out)
        return out

    def beside(self, u: Points, columns: Any, most: int, rng: np.random.Generator) -> Points:
        """Centre of a random cell at most ``most`` cells away, on one axis that ``levels`` lacks."""
        fine = np.setdiff1d(columns[self.counts[columns] > 0.0], list(self.levels))
        moved, at = u.copy(), rng.permutation(fine)[:1]
        n_cells = rng.choice([-1.0, 1.0]) * np.floor(most ** rng.random())  # near cells are likelier
        moved[at] = self.centres(u[at], self.cells(u[at], at) + n_cells, at)
        return self.snapped(moved)

    @cached_property
    def counts(self) -> Float[np.ndarray, " d"]:
        """Number of values on axes with a grid; 0 on others."""
        return np.array([variable.axis.count for variable in self.variables], dtype=float)

    def part(self, columns: Sequence[int]) -> Domain:
        """Box of some coordinates."""
        return MixedDomain.of([self.variables[column] for column in columns])

    @cached_property
    def levels(self) -> dict[int, Float[np.ndarray, " k"]]:
        """Places of values in the unit cube, by coordinate, except for axes with no grid or a fine grid of numbers."""
        is_choice = [isinstance(variable, Categorical) for variable in self.variables]
        out = dict[int, np.ndarray]()
        for column in np.flatnonzero((self.counts > 0.0) & ((self.counts <= _LISTED) | is_choice)).tolist():
            numbers = np.arange(self.counts[column])[:, None]
            out[column] = self.centres(numbers, numbers, np.array([column]))[:, 0]
        return out


def variable_of(given: Any, at: str) -> Variable:
    """Variable from a user: a type, its table, or a pair (low, high).

    Raises:
        ConfigError: If it is none of these, or a bound or another field is refused; ``at`` is its path.
    """
    if isinstance(given, Real | Integer | Categorical):
        return given
    if isinstance(given, Mapping):
        return convert(given, Variable, at)
    numbers = None if isinstance(given, str) else real_array(given)
    if numbers is None or numbers.shape != (2,):
        wanted = "(low, high), two numbers, or sb.Real, sb.Integer or sb.Categorical"
        raise ConfigError(f"got {short(given)}; wanted {wanted}", at=at)
    low, high = numbers.tolist()
    if not (np.isfinite(numbers).all() and low < high):
        fix = f"; leave out {_FIXED}" if low == high else ""
        raise ConfigError(f"got ({low}, {high}); wanted finite low < high{fix}", at=at)
    return Real(low, high)
