"""What the robots measure: a field over a map, and the places offered as candidates."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float
from scipy.optimize import minimize

from swarmbo_envs.fields.projection import LocalProjection
from swarmbo_envs.fields.raster_file import Frame

Surface = Callable[[Float[np.ndarray, "k 2"]], Float[np.ndarray, " k"]]


@dataclass(frozen=True, eq=False)
class Field:
    """A noise-free field on a rectangular map, x to the east and y to the north, in metres.

    Args:
        name: What it is, for titles; it says how the sites are used where the field was measured.
        quantity: What is measured, for labels.
        unit: Its unit.
        low: South-west corner of the map.
        high: North-east corner.
        sites: Places (k, 2) to choose from: the only ones that can be measured if ``sites_only``, else a lattice.
        sites_only: Whether nothing can be measured between the sites.
        interpolated: Whether values between measured points were made up by an interpolant.
        points: Places (m, 2) at which maps of the field are compared.
        surface: The field at any places of the map.
        maximum: Its largest value over everything that can be measured.
        argmax: Where that is.
        minimum: Its smallest value at the sites.
        reach_m: A distance to cover in one round that is sensible here.
        digest: Of the data that it was made from, where the settings only name them; else empty.
        projection: How longitudes and latitudes became the map, ``projection.degrees(places)`` leads back; None where
            coordinates were metres all along.
        frame: Where the map lies in the projected system of the raster that it is of; None where it is of none.
        gaps: Cells of the map, the first row in the south, in some of which nothing is known (values there are those
            of the nearest place that has one); None: all is known.
    """

    name: str
    quantity: str
    unit: str
    low: Float[np.ndarray, " 2"]
    high: Float[np.ndarray, " 2"]
    sites: Float[np.ndarray, "k 2"]
    sites_only: bool
    interpolated: bool
    points: Float[np.ndarray, "m 2"]
    surface: Surface
    maximum: float
    argmax: Float[np.ndarray, " 2"]
    minimum: float
    reach_m: float
    digest: str = ""
    projection: LocalProjection | None = None
    frame: Frame | None = None
    gaps: Bool[np.ndarray, "rows columns"] | None = None

    def value(self, X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
        """The field at places on the map; places beyond its edge count as the edge."""
        return self.surface(np.clip(np.asarray(X, dtype=float), self.low, self.high))

    @cached_property
    def raster(self) -> Float[np.ndarray, "rows columns"]:
        """The field over the whole map for pictures, south row first, 160 cells along the longer side."""
        columns, rows = np.maximum(2, np.ceil(160 * (self.high - self.low) / (self.high - self.low).max())).astype(int)
        xs, ys = np.linspace(self.low[0], self.high[0], columns), np.linspace(self.low[1], self.high[1], rows)
        return self.value(np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)).reshape(rows, columns)


def lattice(low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"], n_points: int) -> Float[np.ndarray, "k 2"]:
    """At most ``n_points`` places in rows and columns over a rectangle, in nearly square cells, edges included."""
    width, height = high - low
    columns = int(np.clip(np.sqrt(n_points * width / height), 2, n_points // 2))
    rows = max(2, n_points // columns)
    xs, ys = np.linspace(low[0], high[0], columns), np.linspace(low[1], high[1], rows)
    return np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)


def summit(
    surface: Surface, places: Float[np.ndarray, "k 2"], low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"]
) -> tuple[float, Float[np.ndarray, " 2"]]:
    """The maximum of a smooth field and its place: the best of many places, then uphill from the ten best.

    Args:
        surface: The field.
        places: Places dense enough to have one on the slope of the highest peak.
        low: South-west corner of the map.
        high: North-east corner.
    """
    values = surface(places)
    size = high - low
    best_value, best_place = float(values.max()), places[values.argmax()]
    scale = float(np.ptp(values)) or 1.0

    def depth(unit: Float[np.ndarray, " 2"]) -> float:
        return -float(surface((low + unit * size)[None])[0]) / scale

    for start in places[np.argsort(-values, kind="stable")[:10]]:
        found = minimize(depth, (start - low) / size, method="L-BFGS-B", bounds=[(0.0, 1.0)] * 2)
        place = np.clip(low + found.x * size, low, high)
        value = float(surface(place[None])[0])
        if value > best_value:
            best_value, best_place = value, place
    return best_value, best_place
