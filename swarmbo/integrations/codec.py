"""Parameters of other libraries as variables of a box: logarithms, steps and choices."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from swarmbo.boundary.rng import stream

_MOST_TRIED = 256  # values of one parameter, and draws of all, in the search for a new one


@dataclass(frozen=True)
class Number:
    """A parameter that is a number.

    Args:
        high: Largest value, >= low; with a step a whole number of steps above ``low``.
        step: Between values; None for a continuous one.
        is_log: True for a logarithmic scale.
        is_whole: True if values are integers.
    """

    low: float
    high: float
    step: float | None = None
    is_log: bool = False
    is_whole: bool = False

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of its variable: half a step wider, so that every value has an equal share of the box."""
        margin = 0.5 * (self.step or 0.0)
        low, high = self.low - margin, self.high + margin
        return [(math.log(low), math.log(high)) if self.is_log else (low, high)]

    @property
    def n_values(self) -> float:
        """Number of its values; infinite if it is continuous."""
        return math.inf if self.step is None else round((self.high - self.low) / self.step) + 1

    def decode(self, variables: Sequence[float]) -> float | int:
        """Nearest value."""
        value = math.exp(variables[0]) if self.is_log else float(variables[0])
        if self.step is not None:
            return self._at(round((value - self.low) / self.step))
        return min(max(value, self.low), self.high)

    def encode(self, value: Any) -> list[float] | None:
        """Its variable; None if the value is not one of this parameter."""
        if not isinstance(value, int | float | np.number) or not self.low <= float(value) <= self.high:
            return None
        return [math.log(value) if self.is_log else float(value)]

    def values_near(self, value: Any) -> Iterator[float | int]:
        """Its other values, the nearest first; none if it is continuous."""
        if self.step is None:
            return
        here = round((value - self.low) / self.step)
        for distance in range(1, min(int(self.n_values), _MOST_TRIED)):
            yield from (self._at(k) for k in (here - distance, here + distance) if 0 <= k < self.n_values)

    def _at(self, number: int) -> float | int:
        assert self.step is not None, "a continuous parameter has no numbered values"
        value = min(max(self.low + self.step * number, self.low), self.high)
        return round(value) if self.is_whole else value


@dataclass(frozen=True)
class Choice:
    """A categorical parameter: a variable for each choice, of which the largest wins."""

    choices: tuple[Any, ...]

    @property
    def bounds(self) -> list[tuple[float, float]]:
        """Bounds of its variables."""
        return [(0.0, 1.0)] * len(self.choices)

    @property
    def n_values(self) -> float:
        """Number of categories."""
        return len(self.choices)

    def decode(self, variables: Sequence[float]) -> Any:
        """Category with the largest coordinate."""
        return self.choices[int(np.argmax(variables))]

    def encode(self, value: Any) -> list[float] | None:
        """One-hot variables; None if the value is no choice."""
        found = self._index(value)
        return None if found is None else [float(number == found) for number in range(len(self.choices))]

    def values_near(self, value: Any) -> Iterator[Any]:
        """All other choices."""
        yield from (self.choices[number] for number in range(len(self.choices)) if number != self._index(value))

    def _index(self, value: Any) -> int | None:
        same = (n for n, choice in enumerate(self.choices) if choice == value and type(choice) is type(value))
        found = next(same, None)
        if found is None and isinstance(value, float) and math.isnan(value):
            found = next((n for n, choice in enumerate(self.choices) if choice != choice), None)
        return found


Parameter = Number | Choice


@dataclass(frozen=True)
class Codec:
    """Parameters as variables of a box, in the order of ``parameters``.

    Example:
        >>> codec = Codec({"rate": Number(1e-4, 1.0, is_log=True), "kind": Choice(("a", "b"))})
        >>> codec.names, codec.encode({"rate": 1.0, "kind": "b"})
        ({'rate': ('rate',), 'kind': ('kind=0', 'kind=1')}, {'rate': 0.0, 'kind=0': 0.0, 'kind=1': 1.0})
        >>> codec.decode({"rate": 0.0, "kind=0": 0.7, "kind=1": 0.6})
        {'rate': 1.0, 'kind': 'a'}
    """

    parameters: Mapping[str, Parameter]

    @cached_property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Variables of each parameter."""
        return {
            name: (name,) if isinstance(of, Number) else tuple(f"{name}={number}" for number in range(len(of.choices)))
            for name, of in self.parameters.items()
        }

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """(low, high) of each variable."""
        pairs = {name: zip(self.names[name], of.bounds, strict=True) for name, of in self.parameters.items()}
        return {variable: bound for pair in pairs.values() for variable, bound in pair}

    def decode(self, point: Mapping[str, float]) -> dict[str, Any]:
        """Parameters nearest to a point."""
        return {name: of.decode([point[v] for v in self.names[name]]) for name, of in self.parameters.items()}

    def encode(self, values: Mapping[str, Any]) -> dict[str, float] | None:
        """Variables of parameters; None if one is missing, or is not in its range."""
        point: dict[str, float] = {}
        for name, of in self.parameters.items():
            coded = of.encode(values[name]) if name in values else None
            if coded is None:
                return None
            point.update(zip(self.names[name], coded, strict=True))
        return point

    def unseen(self, values: dict[str, Any], seen: set[tuple[Any, ...]], seed: int) -> dict[str, Any]:
        """Untried parameters near given ones; the given ones if one is continuous, or all were tried.

        If all have steps or are choices, the agreed point is rounded, and may so have been tried before; ``seen`` has
        the keys of tried ones.
        """
        if key_of(values) not in seen or any(of.n_values == math.inf for of in self.parameters.values()):
            return values
        for name, of in self.parameters.items():
            for other in of.values_near(values[name]):
                if key_of(near := {**values, name: other}) not in seen:
                    return near
        rng, bounds = stream(seed, "parameters that are new", tried=len(seen)), self.bounds
        for _ in range(_MOST_TRIED):
            drawn = self.decode({variable: rng.uniform(*bound) for variable, bound in bounds.items()})
            if key_of(drawn) not in seen:
                return drawn
        return values

    def apart(
        self, values: dict[str, Any], others: Sequence[Mapping[str, float]], reach: float, seed: int
    ) -> dict[str, Any]:
        """Parameters that differ from others by a share ``reach`` of some variable's range; unchanged if none is near.

        Rounding may undo a difference between two points, so it is checked again, and numbers are moved.
        """
        low, high = np.array(list(self.bounds.values())).T
        is_number = [isinstance(of, Number) for name, of in self.parameters.items() for _ in self.names[name]]
        there = np.array([list(point.values()) for point in others]).reshape(-1, len(low))
        rng, tried, here = stream(seed, "parameters apart", others=len(there)), values, np.zeros(len(low))
        for number in range(_MOST_TRIED):
            coded = self.encode(tried)
            u = np.array(list((coded or {}).values()))
            if coded is None or not len(there) or float((np.abs(there - u) / (high - low)).max(axis=1).min()) > reach:
                return tried
            here = u if number == 0 else here
            turn = np.where(is_number, rng.uniform(-1.0, 1.0, len(low)), 0.0)
            moved = here + turn * (high - low) * reach * (4.0 + number)
            tried = self.decode(dict(zip(self.bounds, moved.clip(low, high).tolist(), strict=True)))
        return values


def key_of(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key that distinguishes parameters, also unhashable ones and those unequal to themselves."""
    return tuple((name, repr(values[name])) for name in sorted(values))
