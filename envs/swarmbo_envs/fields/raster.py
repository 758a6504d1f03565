"""Fields from rasters: georeferenced GeoTIFFs, and NumPy arrays."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Num
from scipy.ndimage import distance_transform_edt

from swarmbo.boundary.coordinates import Coordinates, LocalProjection
from swarmbo.boundary.csv_measurements import MARKS, doubt, marked
from swarmbo.errors import ConfigError, DataWarning, needed
from swarmbo_envs.fields.field import MAX_EVALUATION_POINTS, Bilinear, Field, lattice
from swarmbo_envs.fields.settings import RasterFieldSettings
from swarmbo_envs.shared import Marks, Place, Places, Rows, Values, any_marked, digest, grid_points

_AT = "$.field.raster"
_MOST_PIXELS = 10**8
_POINTS_FOR_MAXIMUM = 250_000
_ANTIMERIDIAN = 180.0
_EDGE = 257  # points along each projected edge
# bend of a map cell's edges in the raster, as a share of a cell, up to which cells count as straight
_BEND = 0.05
# per side, of gaps resampled on a projected map
_MOST_GAP_CELLS = 1024


@dataclass(frozen=True, eq=False)
class Raster:
    """One band of a GeoTIFF, or an array, north row first if ``is_north_up``.

    Cells are ``masked`` where the file marks them as missing; others stand for ``scale`` times their value, plus
    ``offset``. Edges are west, south, east and north in the unit of its coordinates; ``is_placed`` if the file is
    georeferenced; ``crs`` is an object of rasterio.
    """

    values: Num[np.ndarray, "rows columns"]
    masked: Marks
    edges: tuple[float, float, float, float]
    is_placed: bool
    is_north_up: bool
    crs: Any
    scale: float = 1.0
    offset: float = 0.0

    @property
    def in_degrees(self) -> bool:
        """True if the coordinates are longitudes and latitudes."""
        return self.crs is not None and bool(self.crs.is_geographic)


def read_geotiff(path: str, what: str, at: str, band: int = 1) -> Raster:
    """Read one band of a GeoTIFF; ``what`` names its purpose in messages."""
    rasterio = needed("rasterio", "geo", what, at)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a file has no georeference
            with rasterio.open(path) as file:
                if file.width * file.height > _MOST_PIXELS:
                    got = f"got {file.width} x {file.height} pixels"
                    raise ConfigError(f"{got}; wanted at most {_MOST_PIXELS:,}", at=at)
                if band > file.count:
                    raise ConfigError(f"got band {band} of {path!r}; wanted one from 1 to {file.count}", at=at)
                if file.dtypes[band - 1].startswith("complex"):
                    raise ConfigError(f"got complex numbers in band {band} of {path!r}; wanted real ones", at=at)
                bounds, transform = file.bounds, file.transform
                edges = bounds.left, bounds.bottom, bounds.right, bounds.top
                is_up = transform.is_rectilinear and bounds.bottom < bounds.top and bounds.left < bounds.right
                cells = file.read(band), file.read_masks(band) == 0, edges, not transform.is_identity, is_up
                return Raster(*cells, file.crs, float(file.scales[band - 1]), float(file.offsets[band - 1]))
    except rasterio.errors.RasterioError as error:
        got = f"got {path!r}, which cannot be read ({error})"
        raise ConfigError(f"{got}; wanted a GeoTIFF, or an array (.npy)", at=at) from None


def read_array(path: str, at: str) -> Raster:
    """Read a ``.npy`` array of rows and columns, which is not georeferenced."""
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"got {path!r}, which cannot be read ({error}); wanted a .npy array", at=at) from None
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "buif" or not values.size:
        raise ConfigError(f"got {path!r}; wanted one array of rows and columns, of booleans or numbers", at=at)
    if values.size > _MOST_PIXELS:
        raise ConfigError(f"got {values.shape[1]} x {values.shape[0]} cells; wanted at most {_MOST_PIXELS:,}", at=at)
    no_edges, no_mask = (0.0, 0.0, 0.0, 0.0), np.zeros(values.shape, dtype=bool)
    return Raster(values, no_mask, no_edges, is_placed=False, is_north_up=True, crs=None)


def raster_field(settings: RasterFieldSettings, max_sites: int, *, may_have_gaps: bool = True) -> Field:
    """Raster as a field, bilinear between four cell centres; ``gaps`` are where any of the four cells has no value."""
    raster = _read(settings)
    values = raster.scale * raster.values[::-1].astype(float) + raster.offset  # south row first
    is_known = ~_missing_cells(settings, raster, may_have_gaps=may_have_gaps)[::-1]
    squares = is_known[1:, 1:] & is_known[1:, :-1] & is_known[:-1, 1:] & is_known[:-1, :-1]
    if not squares.any():
        got = f"got {settings.raster!r} of {values.shape[0]} x {values.shape[1]} cells, {is_known.sum():,} with a value"
        raise ConfigError(f"{got}; wanted at least 2 x 2 adjacent cells with a value", at=_AT)
    if not is_known.all():
        nearest = np.asarray(distance_transform_edt(~is_known, return_distances=False, return_indices=True))
        values = values[nearest[0], nearest[1]]
    west, south, east, north = raster.edges
    rows, columns = values.shape
    xs = west + (np.arange(columns) + 0.5) / columns * (east - west)
    ys = south + (np.arange(rows) + 0.5) / rows * (north - south)
    surface = _RasterSurface(xs, ys, values, raster)
    low, high = np.zeros(2), surface.size
    sites, fine = lattice(low, high, max_sites), lattice(low, high, _POINTS_FOR_MAXIMUM)
    places = np.concatenate([sites, fine, surface.cell_centres()])
    place_values = surface(places)
    best = int(place_values.argmax())
    kind = "" if raster.crs is None else f" ({raster.crs.to_string()})"
    kind = " (longitudes and latitudes, projected)" if raster.in_degrees else kind
    points, name = lattice(low, high, MAX_EVALUATION_POINTS), f"{Path(settings.raster).stem}{kind}"
    ends = float(place_values[best]), places[best], float(surface(sites).min())
    labels = settings.value, settings.unit
    field = Field(name, low, high, sites, points, surface, *ends, *labels, coordinates=surface.coordinates(raster))
    cells = (rows, columns) if surface.projection is None else None
    content = digest(np.where(is_known, values, np.nan), repr(raster.edges).encode())
    return replace(field, cells=cells, digest=content, gaps=None if squares.all() else surface.touched(~squares))


def _read(settings: RasterFieldSettings) -> Raster:
    if settings.raster.lower().endswith(".npy"):
        values = read_array(settings.raster, _AT).values
        if settings.cell_m is None:
            got = f"got {settings.raster!r}, an array, which does not say how large its cells are"
            raise ConfigError(f"{got}; wanted their width in m, or [width, height]", at="$.field.cell_m")
        cell = settings.cell_m if isinstance(settings.cell_m, list) else [settings.cell_m] * 2
        edges = (0.0, 0.0, values.shape[1] * cell[0], values.shape[0] * cell[1])
        return Raster(values, np.zeros(values.shape, dtype=bool), edges, is_placed=True, is_north_up=True, crs=None)
    if settings.cell_m is not None:
        got = f"got cells of {settings.cell_m} m for a GeoTIFF"
        raise ConfigError(f"{got}; wanted none: the file states its location", at="$.field.cell_m")
    path = settings.raster
    raster = read_geotiff(path, "a field in a GeoTIFF", _AT, settings.band)
    if raster.crs is None:
        fix = "`gdal_edit.py -a_srs EPSG:4326 FILE` states longitudes and latitudes"
        raise ConfigError(f"got {path!r}, without a coordinate reference system; wanted one: {fix}", at=_AT)
    if not raster.is_placed or not raster.is_north_up:
        got = "is turned" if raster.is_placed else "does not say where it lies"
        raise ConfigError(f"got {path!r}, which {got}; wanted rows from west to east, the first in the north", at=_AT)
    if not raster.in_degrees and not raster.crs.is_projected:
        raise ConfigError(f"got {path!r} in {raster.crs.to_string()}; wanted coordinates in degrees or metres", at=_AT)
    return raster


def _missing_cells(settings: RasterFieldSettings, raster: Raster, *, may_have_gaps: bool) -> Marks:
    """Cells of a raster without a value; warns about them, or refuses them."""
    values = raster.values.astype(float)
    voids = raster.masked | ~np.isfinite(values)
    reasons = [f"{voids.sum():,} without a number"] if voids.any() else list[str]()
    size, stated = values.size, settings.missing
    marks, doubtful = _marks(values[~voids]) if stated is None else (stated, dict[float, int]())
    keep = f" ({MARKS[1]} takes all numbers as they are)" if stated is None and marks else ""
    for number in marks:
        is_marked = ~voids & (values == number)
        voids = voids | is_marked
        reasons += [f"{is_marked.sum():,} with {number:.10g}"] if is_marked.any() else []
    path = repr(settings.raster)
    why = "; ".join(reasons) + keep
    if voids.any() and not may_have_gaps:
        got = f"got {path} with {voids.sum():,} of {size:,} cells that have no value ({why}); wanted a value in each"
        fix = "Cut the raster to cells with values, or fill them; swarmbo/robot_team-v0 keeps robots out of them"
        raise ConfigError(f"{got}. {fix}", at=_AT)
    for number, count in doubtful.items():
        held = f"{_AT}: {path} holds {number:.10g} in {count:,} of {size:,} cells"
        warnings.warn(f"{held}. {doubt(number)}", DataWarning, stacklevel=2)
    if voids.any():
        gaps = f"{_AT}: {voids.sum():,} of {size:,} cells of {path} have no value and are no-go"
        warnings.warn(f"{gaps}: {why}", DataWarning, stacklevel=2)
    return voids


def _marks(values: Float[np.ndarray, " n"]) -> tuple[list[float], dict[float, int]]:
    """Numbers that mark missing values, which occur only at the ends of the value range; counts of doubtful numbers."""
    marks, doubtful = list[float](), dict[float, int]()
    while values.size:
        low, high = float(values.min()), float(values.max())
        between = values[(values > low) & (values < high)]
        some = between[:: max(1, between.size // 1000)]  # enough for the usual distance between numbers
        ends_between = [between.min(), between.max(), *some] if between.size else []
        repeated = [end for end in (low, high) if (values == end).sum() > 1]
        is_marked, found = marked(np.array([low, high, *repeated, *ends_between]), None, is_coordinate=False)
        new_marks = {number for number, is_mark in zip((low, high), is_marked[:2], strict=True) if is_mark}
        if not new_marks:
            doubtful = {number: int((values == number).sum()) for number in found}
            break
        marks += sorted(new_marks)
        values = values[~np.isin(values, list(new_marks))]
    return marks, doubtful


def _projected_map(
    xs: Float[np.ndarray, " columns"], ys: Float[np.ndarray, " rows"], raster: Raster
) -> tuple[Place, LocalProjection | None, float]:
    """Size of the map in m, its projection, and the length of the raster's unit in m."""
    if not raster.in_degrees:
        metres = 1.0 if raster.crs is None else float(raster.crs.linear_units_factor[1])
        return np.array([xs[-1] - xs[0], ys[-1] - ys[0]]) * metres, None, metres
    along_x, along_y = np.linspace(xs[0], xs[-1], _EDGE), np.linspace(ys[0], ys[-1], _EDGE)
    whole = LocalProjection.about(grid_points(xs[[0, -1]], ys[[0, -1]]), _AT)

    def edge(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return whole.metres(np.column_stack(np.broadcast_arrays(x, y)))

    west, east = edge(xs[:1], along_y)[:, 0].max(), edge(xs[-1:], along_y)[:, 0].min()
    south, north = edge(along_x, ys[:1])[:, 1].max(), edge(along_x, ys[-1:])[:, 1].min()
    if not (west < east and south < north):
        raise ConfigError("got a raster that covers no rectangle in metres; wanted one that is not at a pole", at=_AT)
    local = LocalProjection(whole.meridian_deg, whole.east_m + float(west), whole.north_m + float(south))
    return np.array([east - west, north - south]), local, 1.0


class _RasterSurface:
    """Values between cell centres, at locations on the map, projected or in units of the raster."""

    def __init__(self, xs: Values, ys: Values, values: Rows, raster: Raster) -> None:
        self._xs, self._ys = xs, ys
        self._low, self._high = np.array([xs[0], ys[0]]), np.array([xs[-1], ys[-1]])
        self.size, self.projection, self._unit_m = _projected_map(xs, ys, raster)
        self._between = Bilinear(xs, ys, values)

    def __call__(self, X: Places) -> Values:
        return self._between(np.clip(self._raster_coordinates(X), self._low, self._high))

    def _raster_coordinates(self, X: Places) -> Places:
        if self.projection is None:
            return X / self._unit_m + self._low
        degrees = self.projection.degrees(X)
        degrees[:, 0] += 360.0 * np.round((self._xs.mean() - degrees[:, 0]) / 360.0)
        return degrees

    def touched(self, squares: Marks) -> Bool[np.ndarray, "own_rows own_columns"]:
        """Mark map cells that touch marked squares between cell centres; without projection, they are these squares."""
        if self.projection is None:
            return squares
        rows, columns = np.minimum(squares.shape, _MOST_GAP_CELLS)
        xs, ys = np.linspace(0.0, self.size[0], columns + 1), np.linspace(0.0, self.size[1], rows + 1)
        corners = self._raster_coordinates(grid_points(xs, ys)).reshape(rows + 1, columns + 1, 2)
        units = (corners - self._low) / np.array([self._xs[1] - self._xs[0], self._ys[1] - self._ys[0]])
        around_cell = np.stack([units[:-1, :-1], units[:-1, 1:], units[1:, :-1], units[1:, 1:]])
        first = np.clip(np.floor(around_cell.min(axis=0) - _BEND), 0, None).astype(int)
        last = np.minimum(np.ceil(around_cell.max(axis=0) + _BEND).astype(int), squares.shape[::-1])
        return any_marked(squares, (first[..., 0], last[..., 0]), (first[..., 1], last[..., 1]))

    def coordinates(self, raster: Raster) -> Coordinates | None:
        """Coordinates of the raster; None without a coordinate reference system."""
        if self.projection is not None:
            return Coordinates(("lon", "lat"), self.projection, wraps=raster.edges[2] > _ANTIMERIDIAN)
        if raster.crs is None:
            return None
        corner = float(self._xs[0]), float(self._ys[0])
        return Coordinates(("easting", "northing"), None, raster.crs.to_string(), corner=corner, unit_m=self._unit_m)

    def cell_centres(self) -> Places:
        """Cell centres on the map; the maximum is at one of them, or on the edge."""
        centres = grid_points(self._xs, self._ys)
        places = (centres - centres[0]) * self._unit_m if self.projection is None else self.projection.metres(centres)
        return places[((places >= 0.0) & (places <= self.size)).all(axis=1)]
