"""A present setting, from which a team of a function begins, and near which it stays while it learns."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial.distance import cdist
from scipy.special import ndtri

from swarmbo.belief.model.success import excess_of
from swarmbo.boundary.files import finite
from swarmbo.boundary.values import reported_number, short, table
from swarmbo.errors import ConfigError, SwarmboWarning
from swarmbo.problem import Problem
from swarmbo.settings import Fraction, Positive, Settings, convert
from swarmbo.spaces.variables import Categorical

APART = 1.001e-3  # box widths: a batch has no two points within a thousandth of a box width
_STEPS_BACK = np.geomspace(1.0, 1e-3, 41)[:, None]  # shares of a line back to the best setting
_LINES = 16  # number of random lines
_RISE = 0.5  # extra standard deviations per setting below the floor in excess of the expected number
_LOSSES = 20.0  # least assumed fall of the utility over a side of the box, in stated losses; else the present utility
_LEAST = 1e-12  # share of the largest known utility: a smaller loss means a present utility of 0, up to rounding
_SLACK = 1e-9  # tolerance in box widths, or as a share of the present utility
_EQUAL = (1.0, 0.75, 0.5, 0.25, 0.0)  # positions of all numbers in their ranges, for simple settings

Point = Float[np.ndarray, " n"]
Points = Float[np.ndarray, "_m n"]
Values = Float[np.ndarray, " _m"]
Mask = Bool[np.ndarray, " _m"]


class Safe(Settings, frozen=True):
    """Requirement that settings are probably no worse than a share of the present one.

    Args:
        share: Least utility, as a share of the present setting's utility, in (0, 1]. The loss is at most ``1 - share``
            of the present utility's size, whatever its sign.
        loss: Largest loss, in the utility's unit, for a present utility near 0; it replaces the share. None: the share.
        probability: Least probability, by the model, that a setting meets this requirement, in [0.5, 1).
    """

    share: Fraction = 0.95
    loss: Positive | None = None
    probability: Annotated[float, msgspec.Meta(ge=0.5, lt=1)] = 0.9


class StepBox(NamedTuple):
    """Box of the unit cube in which the next setting must lie, and the best setting known (n,), its centre."""

    low: Point
    high: Point
    centre: Point

    def contains(self, U: Float[np.ndarray, "*m n"]) -> Bool[np.ndarray, "*m"]:
        """Mask of points in the box."""
        return np.all((self.low - _SLACK <= U) & (self.high + _SLACK >= U), axis=-1)


@dataclass(frozen=True, eq=False)
class Near:
    """Rules for the next setting of a team that begins at a present setting: step limits, and a requirement of safety.

    A limit is the largest difference from the best known setting; inf means no limit, and 0 keeps the value.
    """

    problem: Problem
    start: Point  # present setting, in codes
    reach: Point  # limits in codes
    shares: Point  # limits in box widths
    step_limit: Any = None  # both limits, as stated
    safe: Safe | None = None

    @classmethod
    def of(cls, problem: Problem, start: object, step_limit: object, safe: object) -> "Near | None":
        """Make the rules from a user's arguments; None if there are none."""
        given = {"start": start, "step_limit": step_limit, "safe": safe}
        first = next((name for name, value in given.items() if value is not None), None)
        if first is None:
            return None
        if problem.is_field:
            raise ConfigError("got one in a field, where agents start at their positions; wanted none", at=f"$.{first}")
        if start is None:
            fix = "wanted start, too: 'present', 'largest' or the values of the present setting"
            raise ConfigError(f"got no start; {fix}", at=f"$.{first}")
        reach, shares = _reach(problem, step_limit)
        needed = None if safe is None else convert(safe, Safe, "$.safe")
        place = _start(problem, start)
        if not problem.is_allowed(problem.domain.to_unit(place[None]))[0]:
            got = f"got {short(problem.named(place))}, which constraints or no_go forbid"
            raise ConfigError(f"{got}; wanted an allowed setting, or rules that allow it", at="$.start")
        return cls(problem, place, reach, shares, step_limit, needed)

    def to_plain(self) -> dict[str, Any]:
        """Arguments of ``of`` as plain data; the start as values."""
        plain = {"start": self.problem.named(self.start), "step_limit": self.step_limit, "safe": self.safe}
        return {name: msgspec.to_builtins(value) for name, value in plain.items() if value is not None}

    def step_box(self, centre: Point) -> StepBox:
        """Box around a best setting (n,) of the unit cube or, if that is forbidden, around the present one."""
        if not self.problem.is_allowed(centre[None])[0]:
            centre = self.problem.domain.to_unit(self.start)
        domain, code, is_free = self.problem.domain, self.problem.in_box(centre), np.isinf(self.reach)
        ends = [domain.to_unit(np.clip(code + way * self.reach, domain.low, domain.high)) for way in (-1.0, 1.0)]
        low, high = (np.where(is_free, full, end) for full, end in zip((0.0, 1.0), ends, strict=True))
        # shares refer to the unit cube, in which a logarithmic variable is linear
        return StepBox(np.maximum(low, centre - self.shares), np.minimum(high, centre + self.shares), centre)

    def at_start(self, points: Float[np.ndarray, "k n"]) -> Bool[np.ndarray, " k"]:
        """Mask of points at the present setting."""
        to_unit = self.problem.domain.to_unit
        return np.abs(to_unit(points) - to_unit(self.start)).max(axis=1, initial=0.0) <= _SLACK

    def lines_back(self, U: Point, box: StepBox, rng: np.random.Generator) -> Iterator[Points]:
        """Yield candidates (m, n) for ``first_safe``: first those on the line from a point ``U`` to the best setting.

        The second part is on lines from random points of the box. Both end with the best and the present setting.
        """
        last = np.stack([box.centre, self.problem.domain.to_unit(self.start)])
        for ends in (U[None], box.low + rng.random((_LINES, len(U))) * (box.high - box.low)):
            lines = box.centre + _STEPS_BACK * (ends - box.centre)[:, None]
            yield np.vstack([self.problem.domain.snapped(lines.reshape(-1, len(U))), last])

    def first_safe(
        self, candidates: Points, evaluated: Points, pending: Points, expected: tuple[Values, Values], fits: Mask
    ) -> tuple[Point, Literal["best", "present"] | None]:
        """First safe point (n,) on a line of candidates; of several lines' first safe points, the most uncertain.

        Args:
            candidates: Points (m, n) of ``lines_back``.
            evaluated: Codes (t, n) of settings with a known utility, in order; the present setting is among them.
            pending: Codes (q, n) of pending settings, from which the point keeps apart.
            expected: Mean and standard deviation (m + t,) at candidates and evaluated settings, inf if unknown, by a
                model without pending points.
            fits: Mask (m,) of candidates that may be asked: in the step box, and within all rules and learned limits.

        Returns:
            The point, and None. Without a safe candidate, the best setting and ``best`` or, if that is not good enough,
            the present setting and ``present``.
        """
        assert self.safe is not None
        safe, start, m, (mean, std) = self.safe, candidates[-1], len(candidates), expected
        if np.isinf(std[:m]).any():
            return start, "present"
        X, present = self.problem.in_box(candidates), mean[m - 1]
        loss = (1.0 - safe.share) * abs(present) if safe.loss is None else safe.loss
        good, std = self._good_enough(safe, X, evaluated, mean, std, loss)
        is_new = self._distances(X, evaluated).min(axis=1) > _SLACK
        is_new &= self._distances(X, pending).min(axis=1, initial=np.inf) > APART
        if safe.loss is None and loss <= _LEAST * np.abs(mean[m:]).max():
            got = f"safe: a share of {safe.share:g} of the present utility, {present:g}, allows no loss"
            warnings.warn(f"{got}, so no new setting is safe; state a loss: safe = {{loss = …}}", SwarmboWarning, 2)
            is_new[:] = False
        lines = (good & fits & is_new)[:-2].reshape(-1, len(_STEPS_BACK))
        if not lines.any():
            return (candidates[-2], "best") if good[-2] else (start, "present")
        has_one = np.flatnonzero(lines.any(axis=1))
        firsts = has_one * lines.shape[1] + lines[has_one].argmax(axis=1)
        return candidates[firsts[std[firsts].argmax()]], None

    def _good_enough(
        self, safe: Safe, X: Points, evaluated: Points, mean: Values, std: Values, loss: float
    ) -> tuple[Bool[np.ndarray, " m"], Values]:
        """Mask of candidates (m, n), codes, that probably lose no more than ``loss``, and their standard deviations.

        Each deviation includes a fall of the utility from the nearest evaluated setting. Its slope is the steepest
        between evaluated settings, and at least the present utility, or 20 stated losses, over a side of the box.
        """
        m, known = len(X), mean[len(X) :]
        size = abs(mean[m - 1]) if safe.loss is None else _LOSSES * loss
        nearest, between = self._distances(X, evaluated).min(axis=1), self._distances(evaluated, evaluated)
        is_apart = between > _SLACK
        slope = max(size, (np.abs(known[:, None] - known)[is_apart] / between[is_apart]).max(initial=0.0))
        # a model of few outcomes overestimates smoothness, and a model of equal outcomes does not know the unit
        std = np.hypot(std[:m] if np.ptp(known) > _SLACK * size else 0.0, slope * nearest)
        floor = mean[m - 1] - loss
        excess = excess_of(known >= floor - _SLACK * size, 1.0 - safe.probability)
        return mean[:m] - (ndtri(safe.probability) + _RISE * excess) * std >= floor, std

    def _distances(self, X: Points, others: Points) -> Float[np.ndarray, "m t"]:
        """Distances of joint points to others, in box widths; values of an unordered choice are 0.5 or 0.71 apart."""
        inside = self.problem.domain.to_unit if self.problem.coding is None else self.problem.modelled
        return cdist(inside(X), inside(others), "chebyshev")

    def simple(self, centre: Point) -> Float[np.ndarray, "k n"]:
        """Simple settings (k, n) of the unit cube: all largest; or all numbers equal, and choices as at a centre."""
        is_number = np.array([not isinstance(one, Categorical) for one in self.problem.variables.values()])
        equal = [np.where(is_number, share, centre) for share in _EQUAL]
        return np.vstack([self.problem.domain.to_unit(largest(self.problem)), *equal])


def largest(problem: Problem) -> Point:
    """Codes at which all variables are largest; choices without an order have their first value."""
    variables = problem.variables.values()
    return np.array([0.0 if isinstance(v, Categorical) and not v.ordered else v.axis.high for v in variables])


def _start(problem: Problem, given: Any) -> Point:
    at, names = "$.start", problem.graph.variables
    forms = "wanted 'present', 'largest', or a value of each variable, as a list or a table"
    if isinstance(given, str):
        if given == "largest":
            return largest(problem)
        if given != "present":
            raise ConfigError(f"got {given!r}; {forms}", at=at)
        if problem.present is None:
            fix = "start = {variable: value, …} or 'largest'"
            raise ConfigError(f"got 'present', and nothing reports the present setting; wanted {fix}", at=at)
        given = problem.present
    if hasattr(given, "keys"):
        given = {str(key): given[key] for key in given.keys() if str(key) in names}  # noqa: SIM118  also a table's row
    elif isinstance(given, Sequence | np.ndarray) and len(cast(Any, given)) == len(names):
        given = dict(zip(names, cast(Any, given), strict=True))
    else:
        raise ConfigError(f"got {short(given)}; {forms}, of {len(names)}", at=at)
    return problem.placed(given, at)


def _reach(problem: Problem, given: Any) -> tuple[Point, Point]:
    """Largest changes in codes, and in box widths. Names override patterns; the last matching pattern counts."""
    at, names, is_table = "$.step_limit", problem.graph.variables, isinstance(given, Mapping)
    reach, shares = np.full((2, len(names)), np.inf)
    wanted = "a number > 0 in the variable's unit, a share of its axis such as '10%', or a table (0 keeps a value)"
    limits = table(given, "{variable: limit}", at) if is_table else {} if given is None else {"*": given}
    # a name is not a pattern: agent[0] would match agent0, but not itself
    patterns = {one: [one] if one in names else [name for name in names if fnmatchcase(name, one)] for one in limits}
    if strange := [pattern for pattern, own in patterns.items() if not own]:
        raise ConfigError(f"got {strange[0]!r}; wanted some of {short(list(names))}", at=at)
    for column, name in enumerate(names):
        if not (matching := [pattern for pattern, own in patterns.items() if name in own]):
            continue
        pattern = name if name in limits else matching[-1]
        limit, variable = limits[pattern], problem.variables[name]
        axis, is_share = variable.axis, isinstance(limit, str) and limit.endswith("%")
        number = finite(limit.removesuffix("%")) if is_share else reported_number(limit)
        if not number >= 0.0 or (number == 0.0 and not is_table):
            raise ConfigError(f"got {short(limit)}; wanted {wanted}", at=f"{at}.{pattern}" if is_table else at)
        width = number / 100.0 * (axis.high - axis.low) if is_share else number
        if number == 0.0 or (isinstance(variable, Categorical) and not variable.ordered):
            reach[column] = 0.0 if number == 0.0 else np.inf
        elif is_share and (axis.is_log or not axis.step):
            shares[column] = number / 100.0
        elif axis.is_log:
            got = f"got {short(limit)} on a logarithmic axis"
            raise ConfigError(f"{got}; wanted a share such as '10%'", at=f"{at}.{name}")
        elif width < axis.step * (1.0 - 1e-9):
            got = f"got {short(limit)}, less than one step of its values, {axis.step:g}"
            raise ConfigError(f"{got}; wanted at least a step, or 0 to keep its value", at=f"{at}.{name}")
        else:
            reach[column] = np.floor(width / axis.step + 1e-9) * axis.step if axis.step else width
    return reach, shares
