"""Sums of terms, each over some variables, with a known maximum: moved, rescaled, or of variables with types."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from swarmbo.boundary.rng import sobol, stream
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.spaces.variables import Axis, Categorical, MixedDomain, variable_of

Points = Float[np.ndarray, "m a"]
Values = Float[np.ndarray, " m"]
Term = Callable[[Points], Values]


@dataclass(frozen=True, eq=False)
class AdditiveFunction:
    """f(x) = Σ_i f_i(x_{V_i}) on a box, to be maximised.

    Args:
        name: For titles.
        low: Lower bounds (n,), one per variable.
        high: Upper bounds (n,).
        scopes: Indices of each factor's variables, from 0.
        terms: Term of each factor, points (m, a) in scope order -> values (m,).
        argmax: A point (n,) of the maximum; None if unknown.
        maximum: The largest value; None if unknown.
        is_unbounded: True if the terms are defined everywhere, with this maximum everywhere: a moved optimum is then a
            plain shift of the axes.
        variables: Names of the variables; by default ``x0``, ``x1``, …
        types: Tables of the types of variables whose points have codes (``typed``).

    Example:
        >>> f = AdditiveFunction.from_terms(
        ...     {"near": lambda X: -((X[:, 0] - 1.0) ** 2), "far": lambda X: -((X[:, 0] - X[:, 1]) ** 2)},
        ...     scopes={"near": [0], "far": [0, 1]},
        ...     low=[0.0, 0.0],
        ...     high=[2.0, 2.0],
        ... )
        >>> f.factor_values(np.array([[0.5, 0.0]])).tolist()
        [[-0.25, -0.25]]
    """

    name: str
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    scopes: Mapping[str, tuple[int, ...]]
    terms: Mapping[str, Term] = field(repr=False)
    argmax: Float[np.ndarray, " n"] | None = None
    maximum: float | None = None
    is_unbounded: bool = False
    variables: tuple[str, ...] = ()
    types: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        low, high = np.array(self.low, dtype=float), np.array(self.high, dtype=float)
        if low.ndim != 1 or low.shape != high.shape or not (np.isfinite([low, high]).all() and (low < high).all()):
            raise ConfigError(f"got low {low.tolist()} and high {high.tolist()}; wanted finite low < high", "$.bounds")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        if not self.variables:
            object.__setattr__(self, "variables", tuple(f"x{j}" for j in range(len(low))))
        if set(self.scopes) != set(self.terms) or not self.scopes:
            raise ConfigError(f"got scopes of {list(self.scopes)} and terms of {list(self.terms)}; wanted the same")
        for factor, scope in self.scopes.items():
            if not scope or len(set(scope)) < len(scope) or not all(0 <= j < len(low) for j in scope):
                raise ConfigError(f"got {list(scope)}; wanted indices from 0 to {len(low) - 1}", f"$.scopes.{factor}")

    @classmethod
    def from_terms(
        cls,
        terms: Mapping[str, Term],
        scopes: Mapping[str, Sequence[int]],
        low: Sequence[float],
        high: Sequence[float],
        *,
        maximum: float | None = None,
        argmax: Sequence[float] | None = None,
        name: str = "function",
    ) -> "AdditiveFunction":
        """A user's own sum of terms.

        Args:
            terms: Term of each factor, points (m, a) in scope order -> values (m,); ``scopes`` are indices from 0.
            low: Lower bounds (n,); ``high`` are the upper ones.
            maximum: The largest value, at the point ``argmax`` (n,); without it, regret is not scored.
        """
        place = None if argmax is None else np.array(argmax, dtype=float)
        tuples = {factor: tuple(scope) for factor, scope in scopes.items()}
        return cls(name, np.array(low), np.array(high), tuples, dict(terms), place, maximum)

    @classmethod
    def from_callable(
        cls,
        function: Callable[..., float],
        bounds: Mapping[str, tuple[float, float]],
        *,
        maximum: float | None = None,
        name: str = "function",
    ) -> "AdditiveFunction":
        """Any Python function, as one factor over all variables.

        Args:
            function: Function that is called once per point, with a keyword argument for each variable.
            bounds: (low, high) of each variable by name.
            maximum: The largest value; without it, regret is not scored.

        Raises:
            ConfigError: If bounds are missing, or are no intervals.

        Example:
            >>> f = AdditiveFunction.from_callable(lambda x, y: -((x - y) ** 2), {"x": (0.0, 1.0), "y": (0.0, 2.0)})
            >>> f.value(np.array([[1.0, 1.0], [0.0, 2.0]])).tolist()
            [0.0, -4.0]
        """
        variables = tuple(bounds)
        sides = list(bounds.values())
        if not sides or any(len(side) != 2 for side in sides):
            raise ConfigError(f"got {dict(bounds)}; wanted (low, high) for every variable", at="$.bounds")
        low, high = np.array(sides, dtype=float).T
        term, scope = partial(_by_name, function=function, variables=variables), tuple(range(len(variables)))
        return cls(name, low, high, {"all": scope}, {"all": term}, maximum=maximum, variables=variables)

    @property
    def n_variables(self) -> int:
        """Number of variables n."""
        return len(self.low)

    def factor_values(self, X: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "m k"]:
        """Values of the terms at points.

        Raises:
            ShapeError: If points have another number of variables, or a term returns another number of values.
        """
        points = np.asarray(X, dtype=float)
        if points.ndim != 2 or points.shape[1] != self.n_variables:
            raise ShapeError(f"X: got shape {points.shape}; wanted (m, {self.n_variables})")
        values = {f: np.asarray(self.terms[f](points[:, list(scope)])) for f, scope in self.scopes.items()}
        for f, own in values.items():
            if own.size != len(points):
                raise ShapeError(f"term {f!r}: got values of shape {own.shape}; wanted ({len(points)},), one per point")
        return np.column_stack([own.reshape(-1) for own in values.values()])

    def value(self, X: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
        """The sum at points."""
        return self.factor_values(X).sum(axis=1)

    def spread(self) -> float:
        """Range of finite values over 4,096 quasi-random points, to which relative noise refers; 0 if there is none."""
        points = self.low + sobol(4096, self.n_variables, stream(0, "spread")) * (self.high - self.low)
        try:
            values = self.value(points)
        except Exception:  # noqa: BLE001  a user's function may fail at some points only
            values = np.full(len(points), np.nan)
            for i in range(len(points)):
                with suppress(Exception):
                    values[i : i + 1] = self.value(points[i : i + 1])
        found = values[np.isfinite(values)]
        return float(np.ptp(found)) if found.size else 0.0

    def moved(self, seed: int) -> "AdditiveFunction":
        """The same function with its maximum moved to a point drawn uniformly from the middle 80 % of the box.

        Functions that are defined everywhere are shifted. Others are bent: every axis is mapped onto itself by the
        monotone u -> k u / (1 - u + k u), with k such that the new point maps to the old maximum; the edge stays.
        """
        return self._bent(seed, move=True, rescale=False)

    def rescaled(self, seed: int) -> "AdditiveFunction":
        """The same function with its axes stretched around the maximum, by factors of 1/2 to 2 drawn from a seed.

        Functions that are defined everywhere are stretched evenly; others by u -> u^p, p from 1/2 to 2, then bent so
        that the maximum stays in place.
        """
        return self._bent(seed, move=False, rescale=True)

    def _bent(self, seed: int, *, move: bool, rescale: bool) -> "AdditiveFunction":
        if self.argmax is None:
            what = "moved" if move else "rescaled"
            raise ConfigError(f"{self.name}: no maximum is known, so it cannot be {what}", at=f"$.environment.{what}")
        n, sides = self.n_variables, self.high - self.low
        old_share = (self.argmax - self.low) / sides
        new_share = stream(seed, "moved optimum").uniform(0.1, 0.9, n) if move else old_share
        powers = 2.0 ** stream(seed, "rescaled axes").uniform(-1.0, 1.0, n) if rescale else np.ones(n)
        if not self.is_unbounded:
            new_share = np.where((old_share <= 0.0) | (old_share >= 1.0), old_share, new_share)
        argmax, terms = self.low + new_share * sides, dict[str, Term]()
        for factor, scope in self.scopes.items():
            term, i = self.terms[factor], list(scope)
            if self.is_unbounded:
                terms[factor] = partial(_stretched, term=term, new=argmax[i], old=self.argmax[i], factor=powers[i])
            else:
                bend = np.stack([old_share, new_share, powers])[:, i]
                terms[factor] = partial(_bent, term=term, low=self.low[i], sides=sides[i], move=bend)
        name = self.name + (", moved" if move else "") + (", rescaled" if rescale else "")
        return replace(self, name=name, terms=terms, argmax=argmax)


# terms are partial functions of this module, so that they can be pickled


def _by_name(X: Points, function: Callable[..., float], variables: tuple[str, ...]) -> Values:
    return np.array([float(function(**dict(zip(variables, x, strict=True)))) for x in X.tolist()])


def _stretched(X: Points, term: Term, new: np.ndarray, old: np.ndarray, factor: np.ndarray) -> Values:
    return term(old + factor * (X - new))


def _bent(X: Points, term: Term, low: np.ndarray, sides: np.ndarray, move: np.ndarray) -> Values:
    """Term at bent points; each axis is mapped onto itself, by rows old, new and power; see ``moved``, ``rescaled``."""
    old, new, power = move
    inside = (old > 0.0) & (old < 1.0)
    old, at = np.where(inside, old, 0.5), np.where(inside, new, 0.5) ** power
    k = np.where(inside, old * (1.0 - at) / (at * (1.0 - old)), 1.0)
    u = np.clip((X - low) / sides, 0.0, 1.0) ** power
    return term(low + sides * (k * u / (1.0 - u + k * u)))


_MOST_JOINT_VALUES = 20_000  # of grids, in a search for the best
_AT_ONCE = 64
_SPREAD, _CLIMBED = 64, 8  # points of free variables for each joint value; number of candidates that are improved


class _TypedAxis(NamedTuple):
    """Axis of a variable's codes, the ends of the function's own axis on which they lie, and the order of choices."""

    axis: Axis
    own: tuple[float, float]
    order: tuple[int, ...] | None = None

    def read(self, codes: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
        """Coordinates of codes: the lowest and the highest at the ends of the axis, others evenly between."""
        low, high, step = self.axis.low, self.axis.high, self.axis.step
        if step:
            codes = low + step * np.rint((np.clip(codes, low, high) - low) / step)
        if self.order is not None:
            codes = np.array(self.order, dtype=float)[codes.astype(int)]
        ends = np.array([low, high])
        if self.axis.is_log:
            codes, ends = np.log(codes), np.log(ends)
        return self.own[0] + (codes - ends[0]) / (ends[1] - ends[0]) * (self.own[1] - self.own[0])


def typed(f: AdditiveFunction, types: Mapping[str, Any], seed: int = 0) -> AdditiveFunction:
    """The same function with other types of some variables; the values of a type lie evenly over the variable's axis.

    Choices lie in an order drawn from a seed, unless they are ordered. Points consist of codes: numbers, and positions
    of choices. The maximum is searched if the grids have at most 20,000 joint values; otherwise it is unknown.

    Args:
        f: A function of real numbers.
        types: Tables by variable, as in ``{kind = "integer", low = 1, high = 9}``.
        seed: Seed of the order of choices.

    Raises:
        ConfigError: If a variable or a type is unknown, or the type is refused.

    Example:
        >>> from swarmbo_envs.functions.library import get
        >>> f = typed(get("camel"), {"x0": {"kind": "integer", "low": 0, "high": 6}})
        >>> f.low.tolist(), f.high.tolist(), abs(f.argmax).round(3).tolist(), round(f.maximum, 4)
        ([0.0, -2.0], [6.0, 2.0], [3.0, 0.707], 1.0)
    """
    if unknown := sorted(set(types) - set(f.variables)):
        raise ConfigError(f"got {unknown[0]!r}; wanted some of {', '.join(f.variables)}", at="$.types")
    low, high, sides, axes = f.low.copy(), f.high.copy(), f.high - f.low, dict[int, _TypedAxis]()
    optima = [] if f.argmax is None else [f.argmax.copy()]
    for name, table in types.items():
        variable, column, order = variable_of(table, f"$.types.{name}"), f.variables.index(name), None
        if isinstance(variable, Categorical) and not variable.ordered:
            order = tuple(stream(seed, "order of choices", variable=name).permutation(len(variable.values)).tolist())
        axes[column] = _TypedAxis(variable.axis, (float(f.low[column]), float(f.high[column])), order)
        low[column], high[column] = variable.axis.low, variable.axis.high
        for best in optima:
            best[column] = MixedDomain.of([variable]).from_unit((best[[column]] - f.low[column]) / sides[column])[0]
    terms: dict[str, Term] = {}
    for factor, scope in f.scopes.items():
        own_axes = {place: axes[column] for place, column in enumerate(scope) if column in axes}
        terms[factor] = partial(_read, term=f.terms[factor], axes=own_axes)
    g = replace(f, low=low, high=high, terms=terms, argmax=None, maximum=None, is_unbounded=False, types=dict(types))
    best = _best(g, {column: own.axis for column, own in axes.items()}, optima)
    return g if best is None else replace(g, argmax=best, maximum=float(g.value(best[None])[0]))


def _read(X: Points, term: Term, axes: Mapping[int, _TypedAxis]) -> Values:
    points = X.copy()
    for column, axis in axes.items():
        points[:, column] = axis.read(X[:, column])
    return term(points)


def _best(f: AdditiveFunction, axes: Mapping[int, Axis], known: list[np.ndarray]) -> np.ndarray | None:
    """Best of climbs from the best joint values of grids, free variables spread or ``known``; None if too many."""
    grids = {column: axis.low + axis.step * np.arange(axis.count) for column, axis in axes.items() if axis.step}
    if prod(map(len, grids.values())) > _MOST_JOINT_VALUES:
        return None
    free = [column for column in range(f.n_variables) if column not in grids]
    unit = sobol(_SPREAD, len(free), stream(0, "spread")) if free else np.zeros((1, 0))
    spread, ends = f.low[free] + unit * (f.high[free] - f.low[free]), list[np.ndarray]()
    for places in [spread, *(point[None, free] for point in known if free)]:
        candidates, joint_values = list[tuple[float, np.ndarray]](), product(*grids.values())
        while values := list(islice(joint_values, _AT_ONCE)):
            X = np.empty((len(values), len(places), f.n_variables))
            X[:, :, list(grids)] = np.array(values)[:, None]
            X[:, :, free] = places
            y = f.value(X.reshape(-1, f.n_variables)).reshape(X.shape[:2])
            candidates += [(float(y_row[i]), x[i]) for y_row, x, i in zip(y, X, y.argmax(axis=1), strict=True)]
            candidates = sorted(candidates, key=lambda one: -one[0])[:_CLIMBED]
        ends += [climb(f, x, free) for _, x in candidates]
    return max(ends, key=lambda x: float(f.value(x[None])[0]))


def climb(f: AdditiveFunction, x: Float[np.ndarray, " n"], free: Sequence[int]) -> Float[np.ndarray, " n"]:
    """End of a climb that moves the ``free`` variables; the point itself if the end is worse."""
    if not free:
        return x

    def loss(part: Float[np.ndarray, " k"]) -> float:
        moved = x.copy()
        moved[free] = part
        return -float(f.value(moved[None])[0])

    bounds = list(zip(f.low[free], f.high[free], strict=True))
    end = x.copy()
    end[free] = minimize(loss, x[free], bounds=bounds, method="L-BFGS-B").x
    return end if -loss(end[free]) >= -loss(x[free]) else x
