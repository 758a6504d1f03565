"""Box of queries, and its unit cube."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import gymnasium
import numpy as np
from jaxtyping import Bool, Float, Int, UInt64

from swarmbo.boundary.values import real_array, short
from swarmbo.errors import ConfigError, ShapeError

_FAR_SIDES = 100.0  # longest box widths; farther places are mistakes: swapped coordinates, another unit or origin
_MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F], dtype=np.uint64)  # odd numbers lose no information
_SHIFT = np.uint64(29)


@dataclass(frozen=True, eq=False)
class Domain:
    """A finite box.

    Args:
        low: Lower bounds (d,), in physical units.
        high: Upper bounds (d,), each above its lower bound.

    Example:
        >>> import swarmbo as sb
        >>> domain = sb.Domain(low=np.array([0.0, 10.0]), high=np.array([4.0, 20.0]))
        >>> domain.to_unit(np.array([1.0, 15.0])).tolist(), domain.from_unit(np.array([0.5, 1.0])).tolist()
        ([0.25, 0.5], [2.0, 20.0])
    """

    low: Float[np.ndarray, " d"]
    high: Float[np.ndarray, " d"]
    NEAR: ClassVar = f"in or near the box, at most {_FAR_SIDES:g} of its longest sides away"

    def __post_init__(self) -> None:
        low, high = real_array(self.low), real_array(self.high)
        if low is None or high is None:
            got = short(self.low if low is None else self.high)
            raise ConfigError(f"got {got}; wanted numbers, finite low < high", at="$.bounds")
        if low.ndim != 1 or low.shape != high.shape or low.size == 0:
            raise ShapeError(f"bounds: got shapes {low.shape} and {high.shape}; wanted two equal vectors")
        if not ((low < high) & (0.5 * high - 0.5 * low < 0.5 * np.finfo(float).max)).all():
            got = f"got low {low.tolist()} and high {high.tolist()}"
            raise ConfigError(f"{got}; wanted finite low < high, and a finite difference", at="$.bounds")
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def n_dims(self) -> int:
        """Number of coordinates d."""
        return self.low.size

    def to_unit(self, X: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        """Convert physical coordinates to the unit cube."""
        return (X - self.low) / (self.high - self.low)

    def from_unit(self, U: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        """Convert the unit cube to physical coordinates."""
        return self.low + U * (self.high - self.low)

    def off_grid(self, U: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        """Convert the unit cube to physical coordinates, also between the values of a grid."""
        return self.from_unit(U)

    def on_grid(self, X: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        """Physical coordinates, moved to the nearest values of axes with a grid; a plain box has none."""
        return X

    def snapped(self, U: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        """Points of the unit cube, moved to the nearest values of axes with a grid."""
        return U

    def stretch(self, X: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
        """Derivatives of physical coordinates in those of the unit cube, at points; as if no axis had a grid."""
        return np.broadcast_to(self.high - self.low, X.shape)

    @cached_property
    def counts(self) -> Float[np.ndarray, " d"]:
        """Number of values on axes with a grid; 0 on others."""
        return np.zeros(self.n_dims)

    def part(self, columns: Sequence[int]) -> "Domain":
        """Box of some coordinates."""
        return Domain(self.low[list(columns)], self.high[list(columns)])

    def is_near(self, X: Float[np.ndarray, "*n d"]) -> Bool[np.ndarray, "*n"]:
        """Mask of points in the box, or at most 100 of its longest sides from its low corner; NaN is excluded."""
        return np.asarray((np.abs(X - self.low) <= _FAR_SIDES * (self.high - self.low).max()).all(axis=-1))

    def farthest(self, x: Float[np.ndarray, " d"]) -> int:
        """Index of the coordinate farthest from the middle of its bounds; a coordinate that is not finite, if any."""
        off = np.abs(self.to_unit(x) - 0.5)
        return int(np.argmax(np.where(np.isfinite(off), off, np.inf)))

    @classmethod
    def of_space(cls, space: gymnasium.Space) -> "Domain":  # pyright: ignore[reportMissingTypeArgument]
        """Box of an action space.

        Raises:
            ConfigError: If it is not a finite one-dimensional ``gymnasium.spaces.Box`` of floats.
        """
        is_box = isinstance(space, gymnasium.spaces.Box)
        if not (is_box and len(space.shape) == 1 and np.issubdtype(space.dtype, np.floating)):
            raise ConfigError(f"got action space {space}; wanted a finite float Box with one axis", at="$.environment")
        return cls(space.low.astype(float), space.high.astype(float))


def place_keys(X: Float[np.ndarray, "m d"]) -> UInt64[np.ndarray, " m"]:
    """Hash of each location, equal for equal locations; collisions are rare."""
    keys = np.zeros(len(X), dtype=np.uint64)
    for column in np.ascontiguousarray(X.T + 0.0):  # -0 is 0
        keys ^= column.view(np.uint64)
        keys *= _MULTIPLIERS[0]
        keys ^= keys >> _SHIFT
        keys *= _MULTIPLIERS[1]
    return keys


class PlaceTable:
    """Distinct locations (m, d), found by their hashes; -0 counts as 0."""

    def __init__(self, places: Float[np.ndarray, "m d"]) -> None:
        self.places, self._columns, keys = places, np.ascontiguousarray(places.T), place_keys(places)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, X: Float[np.ndarray, "k d"]) -> Int[np.ndarray, " k"]:
        """Index of each location in the table; -1 if the table does not have it."""
        keys, rows = place_keys(X), np.full(len(X), -1)
        at, end = (np.searchsorted(self._keys, keys, side=side) for side in ("left", "right"))
        # more than one turn only where different locations have one hash
        while (is_open := (rows < 0) & (at < end)).any():
            candidates = self._order[at[is_open]]
            pairs = zip(self._columns, X[is_open].T, strict=True)
            is_same = np.all([column[candidates] == given for column, given in pairs], axis=0)
            rows[np.flatnonzero(is_open)[is_same]] = candidates[is_same]
            at = at + 1
        return rows

    def rows_of(self, X: Float[np.ndarray, "k d"]) -> Int[np.ndarray, " k"] | None:
        """Index of each location in the table; None if the table lacks any."""
        rows = self.find(X)
        return None if (rows < 0).any() else rows


def unique_places(X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, "u d"], Int[np.ndarray, " m"]]:
    """Distinct finite locations in the order of coordinates, and each location's index, faster than ``np.unique``."""
    order, number = np.lexsort(X.T[::-1]), np.zeros(len(X), dtype=np.int64)
    is_new = np.append(True, (X[order[1:]] != X[order[:-1]]).any(axis=1))[: len(X)]
    number[order] = np.cumsum(is_new) - 1
    return X[order[is_new]], number
