"""Parts that worlds share: types of arrays, points of grids, hashes of content, tables whose kind is a key."""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.errors import ConfigError

Pair = tuple[float, float]
Place = Float[np.ndarray, " 2"]  # x to the east and y to the north, m
Places = Float[np.ndarray, "k 2"]
Values = Float[np.ndarray, " k"]
Mask = Bool[np.ndarray, " k"]
Starts = Float[np.ndarray, "n 2"]  # of paths from each start to each end
Ends = Float[np.ndarray, "m 2"]
PerStart = Float[np.ndarray, " n"]
Rows = Float[np.ndarray, "rows columns"]
Marks = Bool[np.ndarray, "rows columns"]
Pose = Float[np.ndarray, " 3"]  # x, y, and the heading: rad from east, anticlockwise
Path = Float[np.ndarray, "s 3"]  # segments of constant command: duration in s, speed in m/s, turn rate in rad/s

_STORED = {"f": "<f8", "i": "<i8", "u": "<i8", "b": "<i1"}


def grid_points(xs: np.ndarray, ys: np.ndarray) -> Places:
    """Points of a grid with these coordinates, row by row."""
    return np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)


def nearest(places: Places, place: Place) -> int:
    """Index of the place that is nearest to another."""
    return int(((places - place) ** 2).sum(axis=1).argmin())


def any_marked(
    marked: Marks, columns: tuple[np.ndarray, np.ndarray], rows: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Mask of rectangles with a marked cell; each range is (first, end), without the end."""
    # number of marked cells south and west of each corner: four of them give the number in any rectangle
    sums = np.zeros((marked.shape[0] + 1, marked.shape[1] + 1), dtype=np.int64)
    sums[1:, 1:] = marked.cumsum(axis=0).cumsum(axis=1)
    (x0, x1), (y0, y1) = columns, rows
    return sums[y1, x1] - sums[y0, x1] - sums[y1, x0] + sums[y0, x0] > 0


def digest(*parts: np.ndarray | bytes) -> str:
    """Hash of arrays by their values, not their shapes or item sizes; the same on every machine."""
    stored = (part if isinstance(part, bytes) else part.astype(_STORED[part.dtype.kind]).tobytes() for part in parts)
    return hashlib.blake2b(b"".join(stored), digest_size=16).hexdigest()


def kind_of(table: Mapping[str, Any], kinds: Collection[str], at: str) -> str:
    """The only key of a table that names a kind."""
    found = [key for key in table if key in kinds]
    if len(found) != 1:
        whole = "".join(f"; to replace all of it: {at.removeprefix('$.')} = {{ {key} = …, … }}" for key in found[-1:])
        wanted = f"wanted exactly one of the keys {', '.join(map(repr, kinds))}{whole}"
        raise ConfigError(f"got {', '.join(map(repr, table)) or 'an empty table'}; {wanted}", at=at)
    return found[0]
