"""Elevation models shipped with matplotlib, and the field of any settings table."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.cbook import get_sample_data

from swarmbo.errors import ConfigError
from swarmbo_envs.fields import settings as kinds
from swarmbo_envs.fields.drawn import drawn_field, drawn_in_time, plume_field
from swarmbo_envs.fields.field import Bilinear, Field, FieldInTime
from swarmbo_envs.fields.measured import measured_field, measured_in_time
from swarmbo_envs.fields.raster import raster_field
from swarmbo_envs.shared import Places, Rows, grid_points

_METRES_PER_DEGREE = np.pi / 180 * 6_371_008.8  # of latitude, on a sphere with the Earth's mean radius
_SUMMIT_OF_JACKSBORO = (200, 128, 128, 128)
_MAX_EVALUATION_POINTS = 2500
_DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, eq=False)
class ElevationModel:
    """Heights on a rectilinear grid, as stored: one row per latitude."""

    title: str
    heights: Rows
    latitudes: Float[np.ndarray, " rows"]
    longitudes: Float[np.ndarray, " columns"]
    window: kinds.Window


def load(name: str) -> ElevationModel:
    """Read a model of matplotlib, ``jacksboro`` or ``topobathy``."""
    if name == "jacksboro":
        with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as data:
            heights = data["elevation"].astype(float)
            # the two are interchanged in the file; row 0 is north
            north = max(float(data["ymin"]), float(data["ymax"]))
            rows, columns = np.arange(heights.shape[0]), np.arange(heights.shape[1])
            latitudes = north - float(data["dy"]) * rows
            longitudes = float(data["xmin"]) + float(data["dx"]) * columns
        return ElevationModel("Jacksboro fault elevation", heights, latitudes, longitudes, _SUMMIT_OF_JACKSBORO)
    with np.load(get_sample_data("topobathy.npz", asfileobj=False)) as data:
        heights = data["topo"].astype(float)
        latitudes, longitudes = data["latitude"].astype(float), data["longitude"].astype(float)
    return ElevationModel("Vancouver Island elevation", heights, latitudes, longitudes, (0, 0, *heights.shape))


def elevation_field(settings: kinds.ElevationSettings, max_sites: int, at: str = "$.field") -> Field:
    """Window of an elevation model, bilinear between its cells; at most ``max_sites`` cells are candidate sites."""
    model = load(settings.elevation)
    row, column, rows, columns = window = settings.window or model.window
    height, width = model.heights.shape
    if min(row, column) < 0 or min(rows, columns) < 2 or row + rows > height or column + columns > width:
        cells = f"the {height} x {width} cells of {settings.elevation!r}, with at least 2 rows and 2 columns"
        got = f"got {list(window)}; wanted [row, column, rows, columns] within {cells}"
        raise ConfigError(got, at=f"{at}.window")
    heights = model.heights[row : row + rows, column : column + columns]
    latitudes = model.latitudes[row : row + rows]
    longitudes = model.longitudes[column : column + columns]
    if latitudes[0] > latitudes[-1]:
        heights, latitudes = heights[::-1], latitudes[::-1]
    ys = (latitudes - latitudes[0]) * _METRES_PER_DEGREE
    xs = (longitudes - longitudes[0]) * _METRES_PER_DEGREE * np.cos(np.radians(latitudes.mean()))
    row, column = np.unravel_index(heights.argmax(), heights.shape)
    surface, summit = Bilinear(xs, ys, np.ascontiguousarray(heights)), np.array([xs[column], ys[row]])
    title = model.title if window == model.window else f"{model.title}, window {list(window)}"
    sites, points = _every_nth_cell(xs, ys, max_sites), _every_nth_cell(xs, ys, _MAX_EVALUATION_POINTS)
    low, high, ends = np.zeros(2), np.array([xs[-1], ys[-1]]), (float(heights.max()), summit, float(heights.min()))
    return Field(title, low, high, sites, points, surface, *ends, quantity="elevation", unit="m")


def _every_nth_cell(xs: Float[np.ndarray, " columns"], ys: Float[np.ndarray, " rows"], max_sites: int) -> Places:
    stride = 1
    while len(xs[::stride]) * len(ys[::stride]) > max_sites:
        stride += 1
    return grid_points(xs[::stride], ys[::stride])


def build_field(table: dict[str, Any] | None, max_sites: int, at: str = "$.field") -> Field:
    """Field of a table; ``None`` is the default elevation model. All sites of a CSV file are kept."""
    settings = kinds.field_settings(table, at)
    if isinstance(settings, kinds.ElevationSettings):
        return elevation_field(settings, max_sites, at)
    if isinstance(settings, kinds.DrawnSettings):
        return drawn_field(settings.gp, max_sites)
    if isinstance(settings, kinds.RasterFieldSettings):
        return raster_field(settings, max_sites, at)
    if isinstance(settings, kinds.SurveySettings):
        path, sites = str(_DATA / "oxford_ph.csv"), settings.sites
        measured = kinds.MeasuredSettings(csv=path, x="x_m", y="y_m", value="ph", unit="pH", sites=sites)
        return measured_field(measured, max_sites, at, "Oxford soil, pH")
    assert isinstance(settings, kinds.MeasuredSettings)
    return measured_field(settings, max_sites, at)


def build_field_in_time(table: dict[str, Any] | None, max_sites: int, at: str = "$.field") -> FieldInTime:
    """Field of a table that may change: also a plume, a draw over time, or a CSV file with a column of times."""
    settings = kinds.field_settings(table, at, moving=True)
    if isinstance(settings, kinds.CarriedSettings):
        return plume_field(settings.plume, max_sites)
    if isinstance(settings, kinds.DrawnSettings):
        return drawn_in_time(settings.gp, max_sites)
    if isinstance(settings, kinds.RasterFieldSettings):
        return FieldInTime(raster_field(settings, max_sites, at, may_have_gaps=False))
    if isinstance(settings, kinds.MeasuredSettings):
        return measured_in_time(settings, max_sites, at)
    return FieldInTime(build_field(table, max_sites, at))
