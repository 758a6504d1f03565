"""What files of rasters hold: values, which of them are none, and where they lie."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Num

from swarmbo.boundary.extras import needed
from swarmbo.errors import ConfigError

_MOST_PIXELS = 10**8


@dataclass(frozen=True, eq=False)
class Raster:
    """One band of a GeoTIFF, or an array.

    Args:
        values: One per cell, the first row in the north where the raster is north up.
        masked: Which are none, as the file says.
        edges: West, south, east and north edge, in the unit of its coordinates.
        is_placed: Whether it says where it lies at all.
        is_north_up: Whether its rows run from west to east, the first of them in the north.
        crs: Its coordinate reference system, as rasterio has it; None if it names none.
    """

    values: Num[np.ndarray, "rows columns"]
    masked: Bool[np.ndarray, "rows columns"]
    edges: tuple[float, float, float, float]
    is_placed: bool
    is_north_up: bool
    crs: Any

    @property
    def in_degrees(self) -> bool:
        """Whether its coordinates are longitudes and latitudes."""
        return self.crs is not None and bool(self.crs.is_geographic)


@dataclass(frozen=True)
class Frame:
    """Where the map lies in a projected coordinate reference system.

    Args:
        crs: The system, as rasterio has it.
        corner: The map's south-west corner in it.
        unit_m: Metres in its unit.
    """

    crs: Any
    corner: tuple[float, float]
    unit_m: float

    def on_map(self, edges: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
        """West, south, east and north edge in the system, as m on the map."""
        west, south, east, north = ((edge - self.corner[number % 2]) * self.unit_m for number, edge in enumerate(edges))
        return west, south, east, north

    def of_degrees(self, degrees: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Longitudes and latitudes (WGS 84) as m on the map."""
        from rasterio.warp import transform  # whoever has a frame has the extra

        own = np.column_stack(transform("EPSG:4326", self.crs, *degrees.T.tolist())[:2])
        return (own - np.array(self.corner)) * self.unit_m


def read_geotiff(path: str, what: str, at: str, band: int = 1) -> Raster:
    """Read one band of a GeoTIFF.

    Args:
        path: Of the file.
        what: What it is for, for messages.
        at: Path of the settings, for messages.
        band: Which, from 1.

    Raises:
        ConfigError: If it cannot be read, is too large or has no such band.
        MissingPackageError: If the extra ``geo`` is not installed.
    """
    rasterio = needed("rasterio", "geo", what, at)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of files that say nothing of where they lie
            with rasterio.open(path) as file:
                if file.width * file.height > _MOST_PIXELS:
                    got = f"got {file.width} x {file.height} pixels"
                    raise ConfigError(f"{got}; wanted at most {_MOST_PIXELS:,}", at=at)
                if band > file.count:
                    raise ConfigError(f"got band {band} of {path!r}; wanted one from 1 to {file.count}", at=at)
                bounds, transform = file.bounds, file.transform
                return Raster(
                    values=file.read(band),
                    masked=file.read_masks(band) == 0,
                    edges=(bounds.left, bounds.bottom, bounds.right, bounds.top),
                    is_placed=not transform.is_identity,
                    is_north_up=transform.is_rectilinear and bounds.bottom < bounds.top and bounds.left < bounds.right,
                    crs=file.crs,
                )
    except rasterio.errors.RasterioError as error:
        raise ConfigError(
            f"got {path!r}, which cannot be read ({error}); wanted a GeoTIFF, or an array (.npy)", at=at
        ) from None


def read_array(path: str, at: str) -> Raster:
    """Read a ``.npy`` array of rows and columns, which says nothing of where it lies.

    Args:
        path: Of the file.
        at: Path of the settings, for messages.

    Raises:
        ConfigError: If it cannot be read, is too large, or is no array of rows and columns of numbers.
    """
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise ConfigError(f"got {path!r}, which cannot be read ({error}); wanted a .npy array", at=at) from None
    if not isinstance(values, np.ndarray) or values.ndim != 2 or values.dtype.kind not in "buif" or not values.size:
        raise ConfigError(f"got {path!r}; wanted one array of rows and columns, of booleans or numbers", at=at)
    if values.size > _MOST_PIXELS:
        raise ConfigError(f"got {values.shape[1]} x {values.shape[0]} cells; wanted at most {_MOST_PIXELS:,}", at=at)
    nowhere, nothing = (0.0, 0.0, 0.0, 0.0), np.zeros(values.shape, dtype=bool)
    return Raster(values, nothing, nowhere, is_placed=False, is_north_up=True, crs=None)
