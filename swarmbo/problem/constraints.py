"""Constraints known beforehand: limits between variables that every query and every recommendation keeps."""

import math
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from msgspec.structs import replace

from swarmbo.boundary.values import distinct_names, known_names, short, table
from swarmbo.errors import ConfigError
from swarmbo.problem.no_go import Shape
from swarmbo.settings import NonNegative, Settings, convert, require
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import Categorical, MixedDomain, Variable

_MOST = 20_000  # most joint values of the scope of a table


class Linear(Settings, frozen=True, tag_field="kind", tag="linear"):
    """Limit on a weighted sum: a budget, a cardinality, an order of two variables.

    Args:
        weights: Weight of each variable: a number, or a list of one number per value of a categorical variable.
        at_most: Largest sum; None: no upper limit.
        at_least: Smallest sum; None: no lower limit.

    Raises:
        ValueError: If there are no weights or limits, or they are not finite.

    Example:
        >>> import swarmbo as sb
        >>> budget = sb.Linear(weights={"a": 1.0, "b": 1.0}, at_most=1.0)
        >>> team = sb.Team(None, {"a": (0.0, 1.0), "b": (0.0, 1.0)}, constraints=[budget], initial=4)
        >>> all(query.point["a"] + query.point["b"] <= 1.0 for query in team.ask(4))
        True
    """

    weights: dict[str, float | tuple[float, ...]]
    at_most: float | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = [number for weight in self.weights.values() for number in np.atleast_1d(weight)]
        are_weights = bool(numbers) and bool(np.isfinite(numbers).all())
        require(self, "weights", lambda _: are_weights, "at least one weight, all finite")
        low, high = self.at_least, self.at_most
        require(self, "at_most", lambda _: not (low is None and high is None), "at_most, at_least, or both")
        if low is not None and high is not None:
            require(self, "at_least", lambda _: low <= high, f"a number up to at_most, {high}")

    @property
    def scope(self) -> tuple[str, ...]:
        """Variables of the sum."""
        return tuple(self.weights)

    def fitting(self, variables: Mapping[str, Variable], at: str) -> "Linear":
        """This limit; a ConfigError at the path ``at`` if its weights do not fit the variables."""
        for name, weight in self.weights.items():
            variable = variables[name]
            values = len(variable.values) if isinstance(variable, Categorical) else 0
            if values != (0 if isinstance(weight, float | int) else len(weight)):
                wanted = f"{values} numbers, one for each value" if values else "a number"
                raise ConfigError(f"got {short(weight)}; wanted {wanted}", at=f"{at}.weights.{name}")
        return self

    def depth(self, U: Float[np.ndarray, "m s"], box: Domain) -> Shape:
        """Excess of the sum in box widths, and its gradient."""
        codes, sides = box.from_unit(U), np.ones(U.shape[1])
        stretch = _stretch(box, codes)
        summed, slope = np.zeros(len(U)), np.zeros(U.shape)
        for column, weight in enumerate(self.weights.values()):
            if isinstance(weight, float | int):
                summed += weight * codes[:, column]
                sides[column] = abs(weight) * (box.high[column] - box.low[column])
                slope[:, column] = weight * stretch[:, column]
            else:
                weights = np.array(weight)
                summed += weights[codes[:, column].astype(int)]
                sides[column] = float(weights.max() - weights.min())
        unit = math.sqrt(float((sides**2).sum())) or 1.0
        above = np.full(len(U), -np.inf) if self.at_most is None else summed - self.at_most
        below = np.full(len(U), -np.inf) if self.at_least is None else self.at_least - summed
        return np.maximum(above, below) / unit, np.where((above >= below)[:, None], slope, -slope) / unit


class Separation(Settings, frozen=True, tag_field="kind", tag="separation"):
    """Least distance between two numeric variables.

    Args:
        variables: Names of the two variables.
        at_least: Smallest difference >= 0, in their unit.

    Example:
        >>> import swarmbo as sb
        >>> apart = sb.Separation(variables=("a", "b"), at_least=3)
        >>> hours = {name: sb.Integer(0, 9) for name in "ab"}
        >>> team = sb.Team(None, hours, constraints=[apart], initial=4)
        >>> all(abs(query.point["a"] - query.point["b"]) >= 3 for query in team.ask(4))
        True
    """

    variables: tuple[str, str]
    at_least: NonNegative

    @property
    def scope(self) -> tuple[str, ...]:
        """The two variables."""
        return self.variables

    def fitting(self, variables: Mapping[str, Variable], at: str) -> "Separation":
        """This limit; a ConfigError at the path ``at`` if a variable is a choice."""
        for name in self.variables:
            if isinstance(variables[name], Categorical):
                raise ConfigError(f"got the choice {name!r}; wanted two numbers, or a Constraint", at=f"{at}.variables")
        return self

    def depth(self, U: Float[np.ndarray, "m 2"], box: Domain) -> Shape:
        """Missing distance in box widths, and its gradient."""
        codes, side = box.from_unit(U), float((box.high - box.low).max())
        gap = codes[:, 0] - codes[:, 1]
        sign = np.where(gap >= 0.0, 1.0, -1.0)
        slope = np.stack([-sign, sign], axis=1) * _stretch(box, codes)
        return (self.at_least - np.abs(gap)) / side, slope / side


class Constraint(Settings, frozen=True, tag_field="kind", tag="table"):
    """Allowed joint values of some variables that have grids or are choices.

    Args:
        scope: Names of the variables.
        allowed: Function of the variables' values, in the order of the scope; it returns True where they are allowed.
            Or a table of at most 20,000 booleans: nested lists with an axis for each variable.

    Example:
        >>> import swarmbo as sb
        >>> differ = sb.Constraint(scope=("a", "b"), allowed=lambda a, b: a != b)
        >>> channels = {name: sb.Categorical([1, 6, 11]) for name in "ab"}
        >>> team = sb.Team(None, channels, constraints=[differ], initial=6)
        >>> all(query.point["a"] != query.point["b"] for query in team.ask(6))
        True
    """

    scope: tuple[str, ...]
    allowed: Any

    def fitting(self, variables: Mapping[str, Variable], at: str) -> "Constraint":
        """This constraint with its function as a table; a ConfigError at the path ``at`` if it does not fit."""
        own_variables = [variables[name] for name in self.scope]
        axes = [variable.axis for variable in own_variables]
        if ungridded := [name for name, axis in zip(self.scope, axes, strict=True) if not axis.step]:
            wanted = "variables with a step, or a Linear constraint"
            raise ConfigError(f"got the real number {ungridded[0]!r}; wanted {wanted}", at=f"{at}.scope")
        shape = tuple(axis.count for axis in axes)
        if math.prod(shape) > _MOST:
            raise ConfigError(f"got {math.prod(shape):,} joint values; wanted at most {_MOST:,}", at=f"{at}.scope")
        if callable(self.allowed):
            values = [
                [variable.value(axis.low + axis.step * i) for i in range(n)]
                for variable, axis, n in zip(own_variables, axes, shape, strict=True)
            ]
            table = np.array([bool(self.allowed(*joint)) for joint in product(*values)]).reshape(shape)
        else:
            table = np.array(self.allowed, dtype=object)
            if table.shape != shape or not all(isinstance(entry, bool) for entry in table.flat):
                wanted = f"a function, or booleans of shape {shape}"
                raise ConfigError(f"got {short(self.allowed)}; wanted {wanted}", at=f"{at}.allowed")
        return replace(self, allowed=table.astype(bool).tolist())

    @property
    def table(self) -> Bool[np.ndarray, "..."]:
        """True where allowed, an axis for each variable."""
        return np.array(self.allowed, dtype=bool)

    def depth(self, U: Float[np.ndarray, "m s"], box: Domain) -> Shape:
        """1 where forbidden, -1 where allowed; its gradient is zero."""
        assert isinstance(box, MixedDomain)
        return np.where(self.table[tuple(box.cells(U).astype(int).T)], -1.0, 1.0), np.zeros(U.shape)


Known = Linear | Separation | Constraint


def _stretch(box: Domain, codes: Float[np.ndarray, "m s"]) -> Float[np.ndarray, "m s"]:
    """Derivatives of codes with respect to coordinates of the unit cube; 0 on grids."""
    return np.where(box.counts > 0.0, 0.0, box.stretch(codes))


def constraint_of(given: object, variables: Mapping[str, Variable], at: str) -> Known:
    """Constraint from a user that fits the variables: an object, or its table."""
    wanted = "with a kind, or sb.Linear, sb.Separation or sb.Constraint"
    made = given if isinstance(given, Known) else convert(table(given, wanted, at), Known, at)
    names = f"{at}.{made.__struct_fields__[0]}"  # weights, variables or scope
    known_names(made.scope, variables, names)
    distinct_names(made.scope, "variable", names)
    return made.fitting(variables, at)


def names_of(constraints: Sequence[Known], places: Sequence[int]) -> str:
    """Constraints in words, from their positions in the list."""
    return " and ".join(f"constraints[{place}] ({', '.join(constraints[place].scope)})" for place in places)
