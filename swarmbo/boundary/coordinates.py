"""Coordinates of input files, metres on the map, and longitudes and latitudes for devices; polygons of GeoJSON."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from swarmbo.boundary.files import read_regular
from swarmbo.boundary.values import short
from swarmbo.errors import ConfigError, needed

_AT = "--crs"
_EQUATOR_M, _FLATTENING = 6378137.0, 1.0 / 298.257223563  # WGS 84
_ECCENTRICITY = float(np.sqrt(_FLATTENING * (2.0 - _FLATTENING)))
_THIRD = _FLATTENING / (2.0 - _FLATTENING)  # third flattening
_RADIUS_M = _EQUATOR_M / (1.0 + _THIRD) * (1.0 + _THIRD**2 / 4.0 + _THIRD**4 / 64.0)
_FARTHEST_M = 1.2e6  # from the central meridian: lengths there are 1.8 % too long
_FORWARD_SERIES = np.array(
    [
        _THIRD / 2 - 2 * _THIRD**2 / 3 + 5 * _THIRD**3 / 16 + 41 * _THIRD**4 / 180,
        13 * _THIRD**2 / 48 - 3 * _THIRD**3 / 5 + 557 * _THIRD**4 / 1440,
        61 * _THIRD**3 / 240 - 103 * _THIRD**4 / 140,
        49561 * _THIRD**4 / 161280,
    ]
)
_INVERSE_SERIES = np.array(
    [
        _THIRD / 2 - 2 * _THIRD**2 / 3 + 37 * _THIRD**3 / 96 - _THIRD**4 / 360,
        _THIRD**2 / 48 + _THIRD**3 / 15 - 437 * _THIRD**4 / 1440,
        17 * _THIRD**3 / 480 - 37 * _THIRD**4 / 840,
        4397 * _THIRD**4 / 161280,
    ]
)
_NEWTON_STEPS = 6
_BEND, _LEAST_BEND_M = 1e-5, 0.1  # of a projected edge: share of the map's longer side, and least value that counts
_THIRDS, _MOST_SPLITS = np.array([[1.0], [2.0]]) / 3.0, 8
_SPECK = 1e-3  # of the map's longer side: smaller coordinates in metres are probably degrees
_PARTS = {"FeatureCollection": "features", "GeometryCollection": "geometries", "MultiPolygon": "coordinates"}
Rings = list[Float[np.ndarray, "k 2"]]  # outlines; a hole is a ring within another
Vector = Float[np.ndarray, " n"]


@dataclass(frozen=True)
class LocalProjection:
    """Transverse Mercator on the WGS 84 ellipsoid about a local meridian, along which lengths are true.

    At distance x from the meridian lengths are too long by about x² / 2 R², R = 6371 km: by a thousandth at 285 km.
    ``east_m`` and ``north_m`` are offsets, so that the map begins at 0.

    Source: Krüger's series in the third flattening, to fourth order: Karney 2011, Transverse Mercator with an accuracy
    of a few nanometers, J. Geodesy 85, eqs. (7) to (12), (35) and (36).
    """

    meridian_deg: float
    east_m: float
    north_m: float

    @classmethod
    def about(
        cls, degrees: Float[np.ndarray, "n 2"], at: str, lines: Sequence[int] = (), file: str = ""
    ) -> "LocalProjection":
        """Projection about the middle of places in degrees, from their south-west corner.

        ``lines`` of ``file`` are for errors.
        """
        # the map may cross the date line: longitudes are on a circle, cut where most of it is empty
        around = np.sort(np.unique(np.mod(degrees[:, 0], 360.0)))
        gaps = np.diff(around, append=around[0] + 360.0)
        widest = int(gaps.argmax())  # the arc without sites: the map begins at its end
        begin, width = around[(widest + 1) % len(around)], 360.0 - gaps[widest]
        meridian = float(np.mod(begin + width / 2.0 + 180.0, 360.0) - 180.0)
        metres = cls(meridian, 0.0, 0.0).metres(degrees)
        if (reach := float(np.abs(metres[:, 0]).max())) > _FARTHEST_M or width > 90.0:
            got, most = f"reach {reach / 1e3:,.0f} km east and west of their middle", f"{_FARTHEST_M / 1e3:,.0f} km"
            if width > 90.0:
                got, most = f"span {width:.0f} degrees of longitude", "90 degrees"
            eastward = np.mod(degrees[:, 0] - begin, 360.0)
            far = int(np.abs(eastward - np.median(eastward)).argmax())  # mistyped, perhaps
            got += f" (the farthest is {degrees[far].tolist()}" + (f", in line {lines[far]})" if lines else ")")
            wanted = f"wanted at most {most}, or coordinates in metres"
            where = f"{file}: " if file else ""
            raise ConfigError(f"{where}got longitudes and latitudes that {got}; {wanted}", at=f"{at}.csv")
        east, north = metres.min(axis=0)
        return cls(meridian, float(east), float(north))

    def metres(self, degrees: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Metres east and north of the map's south-west corner, for longitudes and latitudes."""
        east = np.deg2rad(np.mod(degrees[:, 0] - self.meridian_deg + 180.0, 360.0) - 180.0)
        tangent = _conformal(np.tan(np.deg2rad(degrees[:, 1])))
        xi = np.arctan2(tangent, np.cos(east))
        eta = np.arcsinh(np.sin(east) / np.hypot(tangent, np.cos(east)))
        x, y = _corrected(xi, eta, _FORWARD_SERIES)
        return _RADIUS_M * np.column_stack([x, y]) - np.array([self.east_m, self.north_m])

    def degrees(self, metres: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Longitudes, from -180 to 180, and latitudes of places on the map, m."""
        metres = np.asarray(metres, dtype=float).reshape(-1, 2)
        x, y = ((metres + np.array([self.east_m, self.north_m])) / _RADIUS_M).T
        eta, xi = _corrected(y, x, -_INVERSE_SERIES)
        wanted = np.sin(xi) / np.hypot(np.sinh(eta), np.cos(xi))
        # Newton's steps from the limit at small latitudes: six are enough everywhere but at a pole itself
        tangent = wanted / (1.0 - _ECCENTRICITY**2)
        for _ in range(_NEWTON_STEPS):
            now = _conformal(tangent)
            slope = np.hypot(1.0, now) * (1.0 - _ECCENTRICITY**2) * np.hypot(1.0, tangent)
            tangent = tangent + (wanted - now) * (1.0 + (1.0 - _ECCENTRICITY**2) * tangent**2) / slope
        east = np.rad2deg(np.arctan2(np.sinh(eta), np.cos(xi))) + self.meridian_deg
        return np.column_stack([np.mod(east + 180.0, 360.0) - 180.0, np.rad2deg(np.arctan(tangent))])


def _conformal(tangent: Vector) -> Vector:
    """Tangent of the conformal latitude, from the tangent of the latitude; eqs. (7) to (9)."""
    slant = np.hypot(1.0, tangent)
    sigma = np.sinh(_ECCENTRICITY * np.arctanh(_ECCENTRICITY * tangent / slant))
    return tangent * np.hypot(1.0, sigma) - sigma * slant


def _corrected(xi: Vector, eta: Vector, series: Float[np.ndarray, " 4"]) -> tuple[Vector, Vector]:
    """East and north, from the sphere to the ellipsoid or back; eqs. (11) and (15)."""
    twice = 2.0 * np.arange(1, len(series) + 1)[:, None]
    x = eta + series @ (np.cos(twice * xi) * np.sinh(twice * eta))
    y = xi + series @ (np.sin(twice * xi) * np.cosh(twice * eta))
    return x, y


def read_polygons(path: str, at: str) -> list[Rings]:
    """Rings of every polygon of a GeoJSON file, in its own coordinates; ``at`` names the setting, for messages."""
    try:
        data = json.loads(read_regular(path).decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"got {path!r}, which cannot be read ({error}); wanted GeoJSON", at=at) from None
    polygons: list[Rings] = []
    for polygon in _polygons(data, at):
        try:
            rings = [np.array([corner[:2] for corner in ring], dtype=float).reshape(-1, 2) for ring in polygon]
        except (TypeError, ValueError, IndexError):
            rings = [np.empty((0, 2))]
        if not rings or any(len(ring) < 3 or not np.isfinite(ring).all() for ring in rings):
            raise ConfigError(f"got a bad polygon in {path!r}; wanted rings, each of 3 or more finite [x, y]", at=at)
        polygons.append(rings)
    if not polygons:
        raise ConfigError(f"got {path!r} without polygons; wanted at least one", at=at)
    return polygons


def holds(rings: Sequence[Float[np.ndarray, "k 2"]], places: Float[np.ndarray, "k 2"]) -> Bool[np.ndarray, " k"]:
    """Mask of places within an odd number of rings; on a border either result is possible."""
    from matplotlib.path import Path as Outline  # late: takes time to import

    within = np.zeros(len(places), dtype=bool)
    for ring in rings:
        within ^= Outline(ring).contains_points(places)
    return within


def _polygons(data: Any, at: str) -> Iterator[Any]:
    kind = data.get("type") if isinstance(data, dict) else None
    if kind == "Polygon":
        yield data.get("coordinates")
    elif kind == "Feature":
        if data.get("geometry") is not None:
            yield from _polygons(data["geometry"], at)
    elif isinstance(kind, str) and kind in _PARTS:
        if not isinstance(parts := data.get(_PARTS[kind]), list):
            raise ConfigError(f"got a {kind} with {short(parts)}; wanted a list of {_PARTS[kind]}", at=at)
        for part in parts:
            yield from [part] if kind == "MultiPolygon" else _polygons(part, at)
    elif kind not in ("Point", "MultiPoint", "LineString", "MultiLineString"):
        raise ConfigError(f"got a GeoJSON object of type {kind!r}; wanted polygons, features or collections", at=at)


def like_degrees(polygons: Sequence[Rings], size: Float[np.ndarray, " 2"]) -> tuple[bool, bool]:
    """Pair: corners can be longitudes and latitudes, and they look like it on a map of ``size`` m."""
    # they look like degrees if most polygons, read as metres, would be smaller than a thousandth of the map
    corners = np.concatenate([rings[0] for rings in polygons])
    can_be = bool((np.abs(corners - [90.0, 0.0]) <= [270.0, 90.0]).all())
    widths = np.array([np.ptp(rings[0], axis=0).max() for rings in polygons])
    return can_be, can_be and bool(np.median(widths) < _SPECK * size.max())


@dataclass(frozen=True)
class Coordinates:
    """Conversion between the coordinates of a file, metres, and longitudes and latitudes.

    A file with longitudes and latitudes has a ``projection``; the middle of its map has a longitude from -180 to 180,
    or from 0 to 360 if it ``wraps``. Another file may have a known ``crs``, such as ``EPSG:32632``: its map begins at
    ``corner``, in coordinates of the file, and a unit of the file has ``unit_m`` metres.
    """

    columns: tuple[str, str]
    projection: LocalProjection | None = None
    crs: str | None = None
    wraps: bool = False
    corner: tuple[float, float] = (0.0, 0.0)
    unit_m: float = 1.0

    @classmethod
    def about(cls, degrees: ArrayLike, columns: tuple[str, str] = ("lon", "lat")) -> "Coordinates":
        """Coordinates of a map around longitudes and latitudes (n, 2), which begins at their south-west corner."""
        return cls(columns, LocalProjection.about(np.asarray(degrees, dtype=float), "$"))

    def require_metres(self) -> None:
        """Refuse a stated system that is unknown, or not in metres."""
        if self.crs is None:
            return
        if self.projection is not None:
            raise ConfigError(f"got {self.crs!r} for a file with longitudes and latitudes; wanted none", at=_AT)
        warp = needed("rasterio.crs", "geo", f"the coordinate reference system {self.crs!r}", _AT)
        errors = needed("rasterio.errors", "geo", "a coordinate reference system", _AT)
        try:
            known = warp.CRS.from_user_input(self.crs)
        except errors.CRSError:
            raise ConfigError(f"got {self.crs!r}; wanted a code such as EPSG:32632", at=_AT) from None
        if not known.is_projected or known.linear_units_factor[1] != 1.0:
            raise ConfigError(f"got {self.crs!r}; wanted a projected system in metres", at=_AT)

    @property
    def unit(self) -> Literal["degrees", "m"]:
        """Unit of the file's coordinates."""
        return "m" if self.projection is None else "degrees"

    @property
    def decimals(self) -> int:
        """Decimals of the file's coordinates that give a millimetre."""
        return 8 if self.unit == "degrees" else 3

    def axes(self, taken: Collection[str] = ()) -> tuple[str, str]:
        """Names of the file's coordinates: its columns, unless other columns have these names."""
        if not set(self.columns) & set(taken):
            return self.columns
        return ("lon", "lat") if self.unit == "degrees" else ("easting", "northing")

    def metres(self, own: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Convert coordinates of the file to metres on the map."""
        if self.projection is not None:
            return self.projection.metres(own)
        return (np.asarray(own) - np.array(self.corner)) * self.unit_m

    def own(self, metres: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Convert metres on the map to coordinates of the file."""
        if self.projection is None:
            return np.asarray(metres) / self.unit_m + np.array(self.corner)
        degrees, middle = self.projection.degrees(metres), self.projection.meridian_deg
        middle += 360.0 * (self.wraps and middle < 0.0)
        degrees[:, 0] += 360.0 * np.round((middle - degrees[:, 0]) / 360.0)  # no jump within the map
        return degrees

    def lon_lat(self, metres: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"] | None:
        """Convert metres on the map to longitudes from -180 to 180 and latitudes (WGS 84); None if not possible."""
        if self.projection is not None:
            return self.projection.degrees(metres)
        return None if self.crs is None else _warped(self.crs, "EPSG:4326", self.own(metres))

    def of_ring(self, ring: Float[np.ndarray, "n 2"], size_m: float, at: str) -> Float[np.ndarray, "m 2"]:
        """Convert a ring in longitudes and latitudes to metres on a map with the longer side ``size_m``.

        Edges are straight in degrees (RFC 7946): those that bend on the map get further corners. Edges over more than
        180 and less than 360 degrees of longitude go the shorter way, across the date line.
        """
        for _ in range(_MOST_SPLITS):
            steps = np.roll(ring, -1, axis=0) - ring
            # the shorter way across the date line
            steps[:, 0] -= 360.0 * np.round(steps[:, 0] / 360.0) * (np.abs(steps[:, 0]) < 360.0)
            between, ends = ring[:, None] + steps[:, None] * _THIRDS, self._of_lon_lat(ring, at)
            chords = ends[:, None] + (np.roll(ends, -1, axis=0) - ends)[:, None] * _THIRDS
            apart = self._of_lon_lat(between.reshape(-1, 2), at).reshape(chords.shape) - chords
            is_bent = (np.hypot(apart[..., 0], apart[..., 1]) > max(_BEND * size_m, _LEAST_BEND_M)).any(axis=1)
            if not is_bent.any():
                break
            ring = np.insert(ring, np.repeat(np.flatnonzero(is_bent) + 1, 2), between[is_bent].reshape(-1, 2), axis=0)
        return self._of_lon_lat(ring, at)

    def _of_lon_lat(self, degrees: Float[np.ndarray, "n 2"], at: str) -> Float[np.ndarray, "n 2"]:
        if self.projection is not None:
            return self.projection.metres(degrees)
        if self.crs is None:
            wanted = "wanted --crs, the samples' coordinate reference system, such as EPSG:32632"
            raise ConfigError(f"got polygons in longitudes and latitudes for samples in metres; {wanted}", at=at)
        if (own := _warped("EPSG:4326", self.crs, degrees)) is None:
            got, wanted = f"got degrees that have no coordinates in {short(self.crs)}", "wanted places in its area"
            raise ConfigError(f"{got}; {wanted}, or coordinates in metres", at=at)
        return self.metres(own)


def _warped(source: str, target: str, places: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"] | None:
    """Places in another coordinate reference system; None if it is on another planet, or far from them."""
    warp, errors = (
        needed(f"rasterio.{name}", "geo", "a coordinate reference system", _AT) for name in ("warp", "_err")
    )
    try:
        return np.column_stack(warp.transform(source, target, *places.T.tolist())[:2])
    except errors.CPLE_BaseError:
        return None
