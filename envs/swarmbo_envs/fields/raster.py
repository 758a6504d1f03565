"""Fields from rasters that say where on Earth they lie."""

import hashlib
from pathlib import Path

import numpy as np
from jaxtyping import Float
from scipy.interpolate import RegularGridInterpolator

from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import Field, lattice
from swarmbo_envs.fields.geotiff import GeoTIFF, read_geotiff
from swarmbo_envs.fields.projection import LocalProjection
from swarmbo_envs.fields.settings import RasterFieldSettings

_MAX_EVALUATION_POINTS = 2500
_MOST_FOR_MAXIMUM = 250_000
_EDGE = 257  # places along each edge that is projected


def raster_field(settings: RasterFieldSettings, max_sites: int, at: str = "$.field") -> Field:
    """A raster as a field, bilinear between the middles of its cells.

    Args:
        settings: Which file.
        max_sites: Largest number of candidate sites, which are a lattice.
        at: Path of the settings, for messages.

    Raises:
        ConfigError: If the file cannot be read, says nothing of where it lies or in which unit, is turned, or has cells
            without a value.
        MissingPackageError: If the extra ``geo`` is not installed.
    """
    at = f"{at}.raster"
    tiff = read_geotiff(settings.raster, "a field in a GeoTIFF", at, settings.band)
    _require_usable(settings.raster, tiff, at)
    values = tiff.values[::-1].astype(float)  # south row first
    west, south, east, north = tiff.edges
    rows, columns = values.shape
    xs = west + (np.arange(columns) + 0.5) / columns * (east - west)
    ys = south + (np.arange(rows) + 0.5) / rows * (north - south)
    surface = _Cells(xs, ys, values, *_placing(xs, ys, tiff, at))
    low, high = np.zeros(2), surface.size
    sites, fine = lattice(low, high, max_sites), lattice(low, high, _MOST_FOR_MAXIMUM)
    places = np.concatenate([sites, fine, surface.middles()])
    found = surface(places)
    best = int(found.argmax())
    kind = "longitudes and latitudes, projected" if tiff.in_degrees else tiff.crs.to_string()
    return Field(
        name=f"{Path(settings.raster).stem} ({kind})",
        quantity=settings.value,
        unit=settings.unit,
        low=low,
        high=high,
        sites=sites,
        sites_only=False,
        interpolated=False,
        points=lattice(low, high, _MAX_EVALUATION_POINTS),
        surface=surface,
        maximum=float(found[best]),
        argmax=places[best],
        minimum=float(surface(sites).min()),
        reach_m=0.15 * float(high.max()),
        digest=hashlib.blake2b(values.astype("<f8").tobytes() + repr(tiff.edges).encode(), digest_size=16).hexdigest(),
        projection=surface.projection,
    )


def _require_usable(path: str, tiff: GeoTIFF, at: str) -> None:
    if tiff.crs is None:
        raise ConfigError(
            f"got {path!r}, which does not say what its coordinates are (no CRS); wanted one: "
            "`gdal_edit.py -a_srs EPSG:4326 FILE` states longitudes and latitudes",
            at=at,
        )
    if not tiff.is_placed or not tiff.is_north_up:
        got = "is turned" if tiff.is_placed else "does not say where it lies"
        raise ConfigError(f"got {path!r}, which {got}; wanted rows from west to east, the first in the north", at=at)
    if not tiff.in_degrees and not tiff.crs.is_projected:
        raise ConfigError(f"got {path!r} in {tiff.crs.to_string()}; wanted coordinates in degrees or metres", at=at)
    missing = int((tiff.masked | ~np.isfinite(tiff.values.astype(float))).sum())
    if missing:
        raise ConfigError(
            f"got {path!r} with {missing:,} cells without a value; wanted none: cut the raster to where it has values, "
            "or fill them",
            at=at,
        )
    if min(tiff.values.shape) < 2:
        raise ConfigError(f"got {path!r} of {tiff.values.shape} cells; wanted at least 2 rows and 2 columns", at=at)


def _placing(
    xs: Float[np.ndarray, " columns"], ys: Float[np.ndarray, " rows"], tiff: GeoTIFF, at: str
) -> tuple[Float[np.ndarray, " 2"], LocalProjection | None, float]:
    """Size of the map in m, its projection, and how many metres the unit of the raster is."""
    if not tiff.in_degrees:
        metres = float(tiff.crs.linear_units_factor[1])
        return np.array([xs[-1] - xs[0], ys[-1] - ys[0]]) * metres, None, metres
    along_x, along_y = np.linspace(xs[0], xs[-1], _EDGE), np.linspace(ys[0], ys[-1], _EDGE)
    around = np.stack(np.meshgrid([xs[0], xs[-1]], [ys[0], ys[-1]]), axis=-1).reshape(-1, 2)
    whole = LocalProjection.about(around, at)

    def edge(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return whole.metres(np.column_stack(np.broadcast_arrays(x, y)))

    west, east = edge(xs[:1], along_y)[:, 0].max(), edge(xs[-1:], along_y)[:, 0].min()
    south, north = edge(along_x, ys[:1])[:, 1].max(), edge(along_x, ys[-1:])[:, 1].min()
    if not (west < east and south < north):
        raise ConfigError("got a raster that covers no rectangle in metres; wanted one farther from a pole", at=at)
    inner = LocalProjection(whole.meridian_deg, whole.east_m + float(west), whole.north_m + float(south))
    return np.array([east - west, north - south]), inner, 1.0


class _Cells:
    """Values between the middles of cells, at places on the map.

    Args:
        xs: Columns' places, rising, in the unit of the raster.
        ys: Rows' places, rising.
        values: One per row and column.
        size: Of the map, m.
        projection: How longitudes and latitudes became metres; None where none were.
        unit_m: Metres in the unit of the raster, without a projection.
    """

    def __init__(
        self,
        xs: Float[np.ndarray, " columns"],
        ys: Float[np.ndarray, " rows"],
        values: Float[np.ndarray, "rows columns"],
        size: Float[np.ndarray, " 2"],
        projection: LocalProjection | None,
        unit_m: float,
    ) -> None:
        self._xs, self._ys = xs, ys
        self.size, self.projection, self._unit_m = size, projection, unit_m
        self._interpolator = RegularGridInterpolator((ys, xs), values, method="linear")

    def __call__(self, X: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
        """Values at places on the map."""
        if self.projection is None:
            own = X / self._unit_m + np.array([self._xs[0], self._ys[0]])
        else:
            own = self.projection.degrees(X)
            own[:, 0] += 360.0 * np.round((self._xs.mean() - own[:, 0]) / 360.0)
        low, high = np.array([self._xs[0], self._ys[0]]), np.array([self._xs[-1], self._ys[-1]])
        return self._interpolator(np.clip(own, low, high)[:, ::-1])

    def middles(self) -> Float[np.ndarray, "k 2"]:
        """The middles of cells that lie on the map: its highest place is one of them, or on its edge."""
        own = np.stack(np.meshgrid(self._xs, self._ys), axis=-1).reshape(-1, 2)
        places = (own - own[0]) * self._unit_m if self.projection is None else self.projection.metres(own)
        return places[((places >= 0.0) & (places <= self.size)).all(axis=1)]
