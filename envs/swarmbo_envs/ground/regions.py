"""No-go regions from corners, GeoJSON files and rasters, and their cells on a map."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import contourpy
import numpy as np
from jaxtyping import Bool, Float
from scipy.ndimage import label

from swarmbo.boundary.geojson import holds, read_polygons
from swarmbo.boundary.projection import LocalProjection
from swarmbo.errors import ConfigError
from swarmbo.settings import Settings, convert, require
from swarmbo_envs.fields.raster import Frame, Raster, read_array, read_geotiff

Pair = tuple[float, float]
Edges = tuple[float, float, float, float]  # west, south, east, north
_MOST_CORNERS = 100_000
_SPECK = 1e-3  # of the map's longer side: smaller coordinates in metres are probably degrees
# around the cells of a raster: more are not distinguishable in pictures
_MOST_RINGS = 300


class CornersSettings(Settings, frozen=True):
    """A polygon.

    Args:
    corners: At least 3 [x, y] in order, m on the map; the last is joined to the first.
    """

    corners: list[Pair]

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self,
            "corners",
            lambda corners: len(corners) >= 3 and bool(np.isfinite(corners).all()),
            "at least 3 [x, y] of finite numbers",
        )


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

    No-go are true cells of booleans, cells that are NaN, and those of the nodata value. Outside the raster nothing is
    no-go.

    Args:
        raster: Path of the file; relative to the current directory.
        nodata: The value of no-go cells. Default: the file's own, if it has one.
        extent: West, south, east and north edge, m on the map. Default: those of a GeoTIFF, else those of the map. A
            GeoTIFF in the coordinate reference system of the field's raster keeps its location in it.
    """

    raster: str
    nodata: float | None = None
    extent: Edges | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self,
            "extent",
            _are_edges,
            "[west, south, east, north] of finite numbers, west below east and south below north",
        )


def _are_edges(edges: Edges | None) -> bool:
    return edges is None or (bool(np.isfinite(edges).all()) and edges[0] < edges[2] and edges[1] < edges[3])


RegionSettings = CornersSettings | GeoJSONSettings | RasterSettings
_KINDS: dict[str, type[RegionSettings]] = {
    "corners": CornersSettings,
    "geojson": GeoJSONSettings,
    "raster": RasterSettings,
}


@dataclass(frozen=True, eq=False)
class Region:
    """Places within an odd number of rings, or in marked cells of a raster.

    Args:
        rings: Closed outlines (k, 2), m; a hole is a ring within another. With ``marked`` they are for pictures only.
        marked: Cells of a raster, the first row in the south; None: the region is that of the rings.
        edges: West, south, east and north edge of the raster, m.
    """

    rings: Sequence[Float[np.ndarray, "k 2"]]
    marked: Bool[np.ndarray, "rows columns"] | None = None
    edges: Edges = (0.0, 0.0, 0.0, 0.0)

    @classmethod
    def of_cells(cls, marked: Bool[np.ndarray, "rows columns"], edges: Edges) -> "Region":
        """Region of marked cells of a raster, south row first, with edges in m."""
        return cls(_outlines(marked, edges), marked, edges)

    def touched(
        self, low: Float[np.ndarray, " 2"], cell: Float[np.ndarray, " 2"], shape: tuple[int, ...], clearance_m: float
    ) -> Bool[np.ndarray, "rows columns"]:
        """Cells of a map that the region, widened by the clearance along each axis, touches."""
        return (
            self._by_rings(low, cell, shape, clearance_m)
            if self.marked is None
            else self._by_marks(self.marked, low, cell, shape, clearance_m)
        )

    def holds(self, places: Float[np.ndarray, "k 2"]) -> Bool[np.ndarray, " k"]:
        """Mask of places in the region; on its border either result is possible."""
        if self.marked is not None:
            west, south, east, north = self.edges
            rows, columns = self.marked.shape
            column = np.floor((places[:, 0] - west) / (east - west) * columns).astype(int)
            row = np.floor((places[:, 1] - south) / (north - south) * rows).astype(int)
            inside = (column >= 0) & (column < columns) & (row >= 0) & (row < rows)
            return inside & self.marked[np.clip(row, 0, rows - 1), np.clip(column, 0, columns - 1)]
        return holds(self.rings, places)

    def _by_rings(
        self, low: Float[np.ndarray, " 2"], cell: Float[np.ndarray, " 2"], shape: tuple[int, ...], clearance_m: float
    ) -> Bool[np.ndarray, "rows columns"]:
        """Mark cells near an edge, and all connected cells of a part that lies within."""
        from swarmbo_envs.ground.sight import mark_segments  # numba takes a second to import

        touched = np.zeros(shape, dtype=bool)
        for ring in self.rings:
            units = (ring - low) / cell
            mark_segments(units, np.roll(units, -1, axis=0).copy(), clearance_m / cell, touched)
        parts, n = label(~touched)
        some = np.empty(n + 1, dtype=int)  # a cell of each
        some[parts.ravel()] = np.arange(parts.size)
        row, column = np.unravel_index(some[1:], shape)
        within = np.append(False, self.holds(low + (np.column_stack([column, row]) + 0.5) * cell))
        return touched | within[parts]

    def _by_marks(
        self,
        marked: Bool[np.ndarray, "rows columns"],
        low: Float[np.ndarray, " 2"],
        cell: Float[np.ndarray, " 2"],
        shape: tuple[int, ...],
        clearance_m: float,
    ) -> Bool[np.ndarray, "rows columns"]:
        """Mark cells that a marked cell of the raster overlaps, by cumulative sums over the raster."""
        west, south, east, north = self.edges
        sums = np.zeros((marked.shape[0] + 1, marked.shape[1] + 1), dtype=np.int64)
        sums[1:, 1:] = marked.cumsum(axis=0).cumsum(axis=1)
        ends: list[tuple[np.ndarray, np.ndarray]] = []
        for axis, (first, last, n_own) in enumerate(((west, east, marked.shape[1]), (south, north, marked.shape[0]))):
            edges = low[axis] + np.arange(shape[1 - axis] + 1) * cell[axis]
            scale = n_own / (last - first)
            begin = np.floor((edges[:-1] - clearance_m - first) * scale - 1e-9)
            end = np.ceil((edges[1:] + clearance_m - first) * scale + 1e-9)
            ends.append((np.clip(begin, 0, n_own).astype(int), np.clip(end, 0, n_own).astype(int)))
        (x0, x1), (y0, y1) = ends
        within = sums[np.ix_(y1, x1)] - sums[np.ix_(y0, x1)] - sums[np.ix_(y1, x0)] + sums[np.ix_(y0, x0)]
        return within > 0


def read_regions(
    tables: Sequence[Mapping[str, Any]] | None,
    low: Float[np.ndarray, " 2"],
    high: Float[np.ndarray, " 2"],
    projection: LocalProjection | None = None,
    frame: Frame | None = None,
    at: str = "$.no_go",
) -> list[Region]:
    """Regions that tables describe, each of a kind given by its key.

    ``low`` and ``high`` are the map's corners; ``projection`` converts longitudes and latitudes to the map; ``frame``
    is the map's location in a projected system.

    Example:
        >>> lake = {"corners": [[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]]}
        >>> region, = read_regions([lake], np.zeros(2), np.full(2, 10.0))
        >>> region.holds(np.array([[1.0, 1.0], [8.0, 8.0]])).tolist()
        [True, False]
    """
    found: list[Region] = []
    for number, table in enumerate(tables or ()):
        here = f"{at}[{number}]"
        kinds = [key for key in _KINDS if key in table]
        if len(kinds) != 1:
            got = ", ".join(map(repr, table)) or "an empty table"
            raise ConfigError(f"got {got}; wanted exactly one of the keys {', '.join(map(repr, _KINDS))}", at=here)
        settings = convert(dict(table), _KINDS[kinds[0]], at=here)
        if isinstance(settings, CornersSettings):
            found.append(Region([np.array(settings.corners, dtype=float)]))
        elif isinstance(settings, GeoJSONSettings):
            found += _of_geojson(settings, high - low, projection, frame, here)
        else:
            found.append(_of_raster(settings, low, high, frame, here))
    if sum(len(ring) for region in found if region.marked is None for ring in region.rings) > _MOST_CORNERS:
        raise ConfigError(f"got more than {_MOST_CORNERS:,} corners; wanted simpler polygons", at=at)
    return found


def _of_geojson(
    settings: GeoJSONSettings,
    size: Float[np.ndarray, " 2"],
    projection: LocalProjection | None,
    frame: Frame | None,
    at: str,
) -> list[Region]:
    polygons = read_polygons(settings.geojson, f"{at}.geojson")
    on_map = projection.metres if projection is not None else None if frame is None else frame.of_degrees
    can_be, look_so = _like_degrees(polygons, size)
    in_degrees, at = settings.coordinates == "degrees", f"{at}.coordinates"
    if settings.coordinates is None:
        in_degrees = look_so or projection is not None
    if not in_degrees:
        return [Region(rings) for rings in polygons]
    if not can_be:
        got = f"got {settings.geojson!r} with numbers that are no longitudes and latitudes"
        raise ConfigError(f"{got}; wanted degrees, or coordinates = 'metres' on the map", at=at)
    if on_map is None:
        got = "got degrees" if settings.coordinates else f"got {settings.geojson!r}, whose numbers look like degrees,"
        wanted = (
            "coordinates = 'metres' if they are metres on it, or a field that lies on Earth, in degrees or projected"
        )
        raise ConfigError(f"{got} on a map in metres; wanted {wanted}", at=at)
    return [Region([on_map(ring) for ring in rings]) for rings in polygons]


def _like_degrees(
    polygons: Sequence[Sequence[Float[np.ndarray, "k 2"]]], size: Float[np.ndarray, " 2"]
) -> tuple[bool, bool]:
    """Pair: corners can be longitudes and latitudes, and they look like it on a map of ``size`` m.

    They do if in metres most polygons would be specks of less than a thousandth of the map.
    """
    corners = np.concatenate([rings[0] for rings in polygons])
    can_be = bool((np.abs(corners - [90.0, 0.0]) <= [270.0, 90.0]).all())
    widths = np.array([np.ptp(rings[0], axis=0).max() for rings in polygons])
    return can_be, can_be and bool(np.median(widths) < _SPECK * size.max())


def _of_raster(
    settings: RasterSettings,
    low: Float[np.ndarray, " 2"],
    high: Float[np.ndarray, " 2"],
    frame: Frame | None,
    at: str,
) -> Region:
    path = settings.raster
    is_tiff = path.lower().endswith((".tif", ".tiff"))
    if not is_tiff and not path.lower().endswith(".npy"):
        raise ConfigError(f"got {path!r}; wanted a .npy array or a GeoTIFF (.tif)", at=f"{at}.raster")
    raster = _read_tiff(settings, at) if is_tiff else read_array(path, f"{at}.raster")
    values, told = raster.values, raster.edges if raster.is_placed else None
    if settings.extent is None and told is not None and frame is not None and raster.crs is not None:
        if raster.crs != frame.crs:
            got = f"got a raster in {raster.crs.to_string()} on a map in {frame.crs.to_string()}"
            raise ConfigError(f"{got}; wanted the same, or its extent, in m on the map", at=f"{at}.extent")
        told = frame.on_map(told)
    marked = values if values.dtype.kind == "b" else raster.masked
    if values.dtype.kind == "f":
        marked = marked | np.isnan(values)
    if settings.nodata is not None:
        marked = marked | (values == settings.nodata)
    edges = settings.extent or told or (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
    return Region.of_cells(np.ascontiguousarray(marked[::-1]), edges)  # south row first


def _read_tiff(settings: RasterSettings, at: str) -> Raster:
    """First band of a GeoTIFF, whose edges are those of the map if no extent is given."""
    tiff = read_geotiff(settings.raster, "a GeoTIFF of no-go regions", f"{at}.raster")
    if settings.extent is None and tiff.is_placed and (tiff.in_degrees or not tiff.is_north_up):
        got = "in degrees" if tiff.in_degrees else "that is turned"
        raise ConfigError(f"got a raster {got}; wanted its extent, in m on the map", at=f"{at}.extent")
    return tiff


def _outlines(marked: Bool[np.ndarray, "rows columns"], edges: Edges) -> list[Float[np.ndarray, "k 2"]]:
    """Outlines of the marked cells of a raster, half a cell within them at their corners.

    For pictures only: in a raster with many pieces blocks of cells are marked, until the pieces are few enough.
    """
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
