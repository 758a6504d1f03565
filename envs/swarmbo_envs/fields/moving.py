"""Fields that change from round to round."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
from jaxtyping import Float

from swarmbo_envs.fields.field import Field, Surface, summit
from swarmbo_envs.fields.projection import LocalProjection

_KEPT = 4  # rounds that are remembered: a step asks for its own again and again

T = TypeVar("T")


class Change(Protocol):
    """A field over space and time."""

    def surface(self, round_number: float) -> Surface:
        """The field of one round; it can be pickled."""
        ...


class FieldInTime:
    """A field of every round: one map, one set of sites, values that may change.

    Args:
        first: The field of round 0; all else but values and summits is that of every round.
        change: Its surfaces; None for a field that stays as it is.
        minimum: Of the values in all rounds, or about it.
        maximum: As ``minimum``.
    """

    def __init__(
        self, first: Field, change: Change | None = None, minimum: float | None = None, maximum: float | None = None
    ) -> None:
        self.first, self._change = first, change
        self.minimum = first.minimum if minimum is None else minimum
        self.maximum = first.maximum if maximum is None else maximum
        self._surfaces: dict[int, Surface] = {}
        self._fields: dict[int, Field] = {}

    @property
    def moves(self) -> bool:
        """Whether it changes at all."""
        return self._change is not None

    @property
    def projection(self) -> LocalProjection | None:
        """How longitudes and latitudes became the map; None where coordinates were metres all along."""
        return self.first.projection

    def at(self, round_number: int) -> Field:
        """The field of a round, with its own summit."""
        if self._change is None:
            return self.first
        return _remembered(self._fields, round_number, lambda: with_surface(self.first, self._surface(round_number)))

    def value(self, X: Float[np.ndarray, "k 2"], round_number: int) -> Float[np.ndarray, " k"]:
        """The field of a round at places on the map, without the search for its summit."""
        return self.first.value(X) if self._change is None else self._surface(round_number)(X)

    def _surface(self, round_number: int) -> Surface:
        assert self._change is not None
        change = self._change
        return _remembered(self._surfaces, round_number, lambda: change.surface(round_number))


def _remembered(known: dict[int, T], key: int, make: Callable[[], T]) -> T:
    """What was made for a key before, or is made now; of many only the last few are kept."""
    if key not in known:
        while len(known) >= _KEPT:
            del known[next(iter(known))]
        known[key] = make()
    return known[key]


def with_surface(field: Field, surface: Surface) -> Field:
    """A field with other values, on the same map; its summit is looked for anew."""
    places = field.sites if field.sites_only else field.points
    values = surface(places)
    top = int(values.argmax())
    maximum, argmax = float(values[top]), places[top]
    if not field.sites_only:
        maximum, argmax = summit(surface, places, field.low, field.high)
    return replace(field, surface=surface, maximum=maximum, argmax=argmax, minimum=float(values.min()))
