"""Functions of integers, choices and numbers on grids, made from functions of real numbers."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import islice, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from swarmbo.boundary.rng import sobol, stream
from swarmbo.errors import ConfigError
from swarmbo.spaces.variables import Axis, Categorical, variable_of
from swarmbo_envs.functions.additive_function import AdditiveFunction, Points, Term, Values

_MOST = 20_000  # joint values of grids, of which the best is searched
_AT_ONCE = 64
_SPREAD, _CLIMBED = 64, 8  # points of the other variables for each, and how many of all are improved


class _Placed(NamedTuple):
    """Codes of a variable, and the ends of the function's own axis on which they lie; choices in an order."""

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

    Choices are in an order drawn from a seed, unless they are ordered. Points have codes: numbers, and positions of
    choices. Its maximum is searched, if the grids have at most 20,000 joint values; otherwise it is unknown.

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
    if strange := sorted(set(types) - set(f.variables)):
        raise ConfigError(f"got {strange[0]!r}; wanted some of {', '.join(f.variables)}", at="$.types")
    low, high, placed = f.low.copy(), f.high.copy(), dict[int, _Placed]()
    for name, table in types.items():
        of, column, order = variable_of(table, f"$.types.{name}"), f.variables.index(name), None
        if isinstance(of, Categorical) and not of.ordered:
            order = tuple(stream(seed, "order of choices", variable=name).permutation(len(of.values)).tolist())
        placed[column] = _Placed(of.axis, (float(f.low[column]), float(f.high[column])), order)
        low[column], high[column] = of.axis.low, of.axis.high
    terms: dict[str, Term] = {}
    for factor, scope in f.scopes.items():
        own = {place: placed[column] for place, column in enumerate(scope) if column in placed}
        terms[factor] = partial(_read, term=f.terms[factor], placed=own)
    out = replace(f, low=low, high=high, terms=terms, argmax=None, maximum=None, is_unbounded=False, types=dict(types))
    best = _best(out, {column: of.axis for column, of in placed.items()})
    return out if best is None else replace(out, argmax=best, maximum=float(out.value(best[None])[0]))


def _read(X: Points, term: Term, placed: Mapping[int, _Placed]) -> Values:
    own = X.copy()
    for place, of in placed.items():
        own[:, place] = of.read(X[:, place])
    return term(own)


def _best(f: AdditiveFunction, axes: Mapping[int, Axis]) -> Float[np.ndarray, " n"] | None:
    """Best point found: of all joint values of grids, each with spread values of other variables, then improved."""
    grids = {column: axis.low + axis.step * np.arange(axis.count) for column, axis in axes.items() if axis.step}
    if prod(map(len, grids.values())) > _MOST:
        return None
    free = [column for column in range(f.n_variables) if column not in grids]
    spread = sobol(_SPREAD, len(free), stream(0, "spread")) if free else np.zeros((1, 0))
    places = f.low[free] + spread * (f.high[free] - f.low[free])
    found: list[tuple[float, np.ndarray]] = []
    joint = product(*grids.values())
    while values := list(islice(joint, _AT_ONCE)):
        X = np.empty((len(values), len(spread), f.n_variables))
        X[:, :, list(grids)] = np.array(values)[:, None]
        X[:, :, free] = places
        y = f.value(X.reshape(-1, f.n_variables)).reshape(X.shape[:2])
        best = y.argmax(axis=1)
        found += [(float(own[i]), x[i]) for own, x, i in zip(y, X, best, strict=True)]
        found = sorted(found, key=lambda one: -one[0])[:_CLIMBED]
    return max((_climbed(f, x, free) for _, x in found), key=lambda x: float(f.value(x[None])[0]))


def _climbed(f: AdditiveFunction, x: Float[np.ndarray, " n"], free: list[int]) -> Float[np.ndarray, " n"]:
    if not free:
        return x

    def loss(part: Float[np.ndarray, " k"]) -> float:
        moved = x.copy()
        moved[free] = part
        return -float(f.value(moved[None])[0])

    bounds = list(zip(f.low[free], f.high[free], strict=True))
    out = x.copy()
    out[free] = minimize(loss, x[free], bounds=bounds, method="L-BFGS-B").x
    return out if -loss(out[free]) >= -loss(x[free]) else x
