"""No-go regions from corners, GeoJSON files and rasters, and their cells on a map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import contourpy
import numpy as np
from scipy.ndimage import label

from swarmbo.boundary import coordinates as earth
from swarmbo.boundary.coordinates import Coordinates
from swarmbo.errors import ConfigError
from swarmbo.settings import Settings, convert, require
from swarmbo_envs.fields import raster as rasters
from swarmbo_envs.shared import Marks, Mask, Pair, Place, Places, any_marked, kind_of

Edges = tuple[float, float, float, float]  # west, south, east, north
Tables = Sequence[Mapping[str, Any]] | None
Cells = tuple[int, int] | None  # rows and columns of the field's raster, if the map's edges join centres of outer cells
_MOST_CORNERS = 100_000
# outlines of a raster's cells: more are not distinguishable in pictures
_MOST_RINGS = 300


class CornersSettings(Settings, frozen=True):
    """A polygon.

    Args:
        corners: At least 3 [x, y] in order, m on the map; the last is joined to the first.
    """

    corners: list[Pair]

    def __post_init__(self) -> None:
        super().__post_init__()
        is_polygon = len(self.corners) >= 3 and bool(np.isfinite(self.corners).all())
        require(self, "corners", lambda _: is_polygon, "at least 3 [x, y] of finite numbers")


class GeoJSONSettings(Settings, frozen=True):
    """The polygons of a GeoJSON file, with their holes.

    Args:
        geojson: Path of the file; relative to the current directory.
        coordinates: ``degrees`` (longitude and latitude, the format's standard) or ``metres`` on the map. Default:
            degrees if the field was projected from degrees, or is a raster in a projected system and numbers look like
            degrees; else metres. On other maps numbers that look like degrees are refused as ambiguous.
    """

    geojson: str
    coordinates: Literal["degrees", "metres"] | None = None


class RasterSettings(Settings, frozen=True):
    """A raster over the map, its first row in the north: a ``.npy`` array, or a GeoTIFF (needs the extra ``geo``).

    Cells are no-go if they are True (booleans), NaN or the nodata value. Outside the raster, nothing is no-go.

    Args:
        raster: Path of the file; relative to the current directory.
        nodata: The value of no-go cells. Default: the file's own, if it has one.
        extent: West, south, east and north edge, m on the map. Default: those of a GeoTIFF, else those of the field's
            raster if that has as many rows and columns and is not in degrees, else those of the map. A GeoTIFF in the
            coordinate reference system of the field's raster is placed by its own coordinates.
    """

    raster: str
    nodata: float | None = None
    extent: Edges | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.extent is not None:
            (west, south, east, north), wanted = self.extent, "west below east and south below north"
            are_edges = bool(np.isfinite(self.extent).all()) and west < east and south < north
            require(self, "extent", lambda _: are_edges, f"[west, south, east, north] of finite numbers, {wanted}")


_KINDS = {"corners": CornersSettings, "geojson": GeoJSONSettings, "raster": RasterSettings}


@dataclass(frozen=True, eq=False)
class Region:
    """Places within an odd number of rings, or in marked cells of a raster.

    Rings are closed outlines, m; a hole is a ring within another. With ``marked`` cells (south row first), rings are
    for pictures only, and ``edges`` are those of the raster: west, south, east and north, m.
    """

    rings: Sequence[Places]
    marked: Marks | None = None
    edges: Edges = (0.0, 0.0, 0.0, 0.0)

    @classmethod
    def of_cells(cls, marked: Marks, edges: Edges) -> "Region":
        """Region of marked cells of a raster, south row first, with edges in m."""
        return cls(_outlines(marked, edges), marked, edges)

    def touched(self, low: Place, cell: Place, shape: tuple[int, ...], clearance_m: float) -> Marks:
        """Cells of a map that the region touches if it is widened by the clearance along each axis."""
        if self.marked is not None:
            return self._by_marks(self.marked, low, cell, shape, clearance_m)
        from swarmbo_envs.ground.sight import mark_segments  # numba takes a second to import

        # cells near an outline, and all cells of connected parts that lie inside
        touched = np.zeros(shape, dtype=bool)
        for ring in self.rings:
            units = (ring - low) / cell
            mark_segments(units, np.roll(units, -1, axis=0).copy(), clearance_m / cell, touched)
        parts, n = label(~touched)
        cell_of_part = np.empty(n + 1, dtype=int)  # any of its cells
        cell_of_part[parts.ravel()] = np.arange(parts.size)
        row, column = np.unravel_index(cell_of_part[1:], shape)
        is_inside = np.append(False, self.holds(low + (np.column_stack([column, row]) + 0.5) * cell))
        return touched | is_inside[parts]

    def holds(self, places: Places) -> Mask:
        """Mask of places in the region; on its border either result is possible."""
        if self.marked is not None:
            west, south, east, north = self.edges
            rows, columns = self.marked.shape
            column = np.floor((places[:, 0] - west) / (east - west) * columns).astype(int)
            row = np.floor((places[:, 1] - south) / (north - south) * rows).astype(int)
            inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
            return inside & self.marked[np.clip(row, 0, rows - 1), np.clip(column, 0, columns - 1)]
        return earth.holds(self.rings, places)

    def _by_marks(self, marked: Marks, low: Place, cell: Place, shape: tuple[int, ...], clearance_m: float) -> Marks:
        west, south, east, north = self.edges
        ends: list[tuple[np.ndarray, np.ndarray]] = []
        for axis, (first, last, n_cells) in enumerate(((west, east, marked.shape[1]), (south, north, marked.shape[0]))):
            edges = low[axis] + np.arange(shape[1 - axis] + 1) * cell[axis]
            scale = n_cells / (last - first)
            begin = np.floor((edges[:-1] - clearance_m - first) * scale - 1e-9)
            end = np.ceil((edges[1:] + clearance_m - first) * scale + 1e-9)
            ends.append((np.clip(begin, 0, n_cells).astype(int), np.clip(end, 0, n_cells).astype(int)))
        columns, (south_rows, north_rows) = ends
        return any_marked(marked, columns, (south_rows[:, None], north_rows[:, None]))


def read_regions(
    tables: Tables, low: Place, high: Place, coordinates: Coordinates | None = None, cells: Cells = None
) -> list[Region]:
    """Regions that tables describe, each of a kind given by its key, on a map with corners ``low`` and ``high``."""
    regions: list[Region] = []
    for number, table in enumerate(tables or ()):
        at = f"$.no_go[{number}]"
        settings = convert(dict(table), _KINDS[kind_of(table, _KINDS, at)], at=at)
        if isinstance(settings, CornersSettings):
            ring = np.array(settings.corners, dtype=float)
            if coordinates and earth.like_degrees([[ring]], high - low)[1] and _is_on_map(ring, low, high, coordinates):
                got = f"got corners such as {settings.corners[0]}, which lie on the map if they are degrees"
                raise ConfigError(f"{got}; wanted m on the map, or a GeoJSON file in degrees", at=f"{at}.corners")
            regions.append(Region([ring]))
        elif isinstance(settings, GeoJSONSettings):
            regions += _of_geojson(settings, high - low, coordinates, at)
        else:
            regions.append(_of_raster(settings, low, high, coordinates, cells, at))
    if sum(len(ring) for region in regions if region.marked is None for ring in region.rings) > _MOST_CORNERS:
        raise ConfigError(f"got more than {_MOST_CORNERS:,} corners; wanted simpler polygons", at="$.no_go")
    return regions


def _is_on_map(degrees: Places, low: Place, high: Place, coordinates: Coordinates) -> bool:
    """True if a ring in longitudes and latitudes can be converted to metres and may overlap the map."""
    try:
        with np.errstate(all="ignore"):  # a projection may be undefined far from the map
            ring = coordinates.of_ring(degrees, (high - low).max(), "$.no_go")
    except ConfigError:
        return False
    return bool(np.isfinite(ring).all() and ((ring.max(axis=0) >= low) & (ring.min(axis=0) <= high)).all())


def _of_geojson(settings: GeoJSONSettings, size: Place, coordinates: Coordinates | None, at: str) -> list[Region]:
    polygons = earth.read_polygons(settings.geojson, f"{at}.geojson")
    are_valid, looks_like_degrees = earth.like_degrees(polygons, size)
    in_degrees, at = settings.coordinates == "degrees", f"{at}.coordinates"
    if settings.coordinates is None:
        in_degrees = looks_like_degrees or (coordinates is not None and coordinates.unit == "degrees")
    if not in_degrees:
        return [Region(rings) for rings in polygons]
    if not are_valid:
        got = f"got {settings.geojson!r} with numbers that are not longitudes and latitudes"
        raise ConfigError(f"{got}; wanted degrees, or coordinates = 'metres' on the map", at=at)
    if coordinates is None:
        got = "got degrees" if settings.coordinates else f"got {settings.geojson!r}, whose numbers look like degrees,"
        fix = "coordinates = 'metres' if they are metres on the map, or a field on Earth, in degrees or projected"
        raise ConfigError(f"{got} on a map in metres; wanted {fix}", at=at)
    return [Region([coordinates.of_ring(ring, size.max(), at) for ring in rings]) for rings in polygons]


def _of_raster(
    settings: RasterSettings, low: Place, high: Place, coordinates: Coordinates | None, cells: Cells, at: str
) -> Region:
    path = settings.raster
    if path.lower().endswith(".npy"):
        raster = rasters.read_array(path, f"{at}.raster")
    elif path.lower().endswith((".tif", ".tiff")):
        raster = rasters.read_geotiff(path, "a GeoTIFF of no-go regions", f"{at}.raster")
        if settings.extent is None and raster.is_placed and (raster.in_degrees or not raster.is_north_up):
            got = "in degrees" if raster.in_degrees else "that is turned"
            raise ConfigError(f"got a raster {got}; wanted its extent, in m on the map", at=f"{at}.extent")
    else:
        raise ConfigError(f"got {path!r}; wanted a .npy array or a GeoTIFF (.tif)", at=f"{at}.raster")
    values, edges = raster.values, raster.edges if raster.is_placed else None
    crs = None if coordinates is None else coordinates.crs
    if settings.extent is None and edges is not None and coordinates is not None and crs and raster.crs is not None:
        if raster.crs.to_string() != crs:
            got = f"got a raster in {raster.crs.to_string()} on a map in {crs}"
            raise ConfigError(f"{got}; wanted the same, or its extent, in m on the map", at=f"{at}.extent")
        (west, south), (east, north) = coordinates.metres(np.array(edges).reshape(2, 2)).tolist()
        edges = west, south, east, north
    marked = values if values.dtype.kind == "b" else raster.masked | np.isnan(values)
    if settings.nodata is not None:
        marked = marked | (values == settings.nodata)
    # half a cell, if the map's edges join centres of outer cells
    half = 0.5 * (high - low) / (np.array(values.shape[::-1]) - 1) if values.shape == cells else np.zeros(2)
    (west, south), (east, north) = (low - half).tolist(), (high + half).tolist()
    edges = settings.extent or edges or (west, south, east, north)
    return Region.of_cells(np.ascontiguousarray(marked[::-1]), edges)  # south row first


def _outlines(marked: Marks, edges: Edges) -> list[Places]:
    """Outlines of the marked cells of a raster, which cut corners by half a cell, for pictures only."""
    # with too many pieces, cells are merged into larger blocks until the pieces are few enough
    west, south, east, north = edges
    rows, columns = marked.shape
    dx, dy = (east - west) / columns, (north - south) / rows
    block = 1
    while True:
        n_rows, n_columns = marked.shape
        xs = west + (np.arange(-1, n_columns + 1) + 0.5) * dx * block
        ys = south + (np.arange(-1, n_rows + 1) + 0.5) * dy * block
        lines = contourpy.contour_generator(xs, ys, np.pad(marked, 1).astype(float)).lines(0.5)
        if len(lines) <= _MOST_RINGS:
            return [np.clip(np.asarray(line), [west, south], [east, north]) for line in lines]
        block *= 2
        even = np.pad(marked, ((0, n_rows % 2), (0, n_columns % 2)))
        marked = even[::2, ::2] | even[1::2, ::2] | even[::2, 1::2] | even[1::2, 1::2]
