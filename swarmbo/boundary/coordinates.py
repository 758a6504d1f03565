"""Coordinates of input files, metres on the map, and longitudes and latitudes for devices."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.boundary.projection import LocalProjection
from swarmbo.errors import ConfigError, needed

_AT = "--crs"


@dataclass(frozen=True)
class Coordinates:
    """Conversion between the coordinates of a file, metres, and longitudes and latitudes.

    ``projection`` is that of a file with longitudes and latitudes, from 0 to 360 if it ``wraps``; ``crs`` is the system
    of other files, such as ``EPSG:32632``, if known. A map of a file in ``crs`` begins at its ``corner``, and a unit of
    the file has ``unit_m`` metres.

    Example:
        >>> import numpy as np
        >>> coordinates = Coordinates(("lon", "lat"), LocalProjection(9.0, 0.0, 0.0))
        >>> metres = coordinates.metres(np.array([[9.5, 48.0]]))
        >>> metres.round().tolist(), coordinates.own(metres).round(9).tolist(), coordinates.unit
        ([[37313.0, 5318549.0]], [[9.5, 48.0]], 'degrees')
    """

    columns: tuple[str, str]
    projection: LocalProjection | None = None
    crs: str | None = None
    wraps: bool = False
    corner: tuple[float, float] = (0.0, 0.0)
    unit_m: float = 1.0

    @classmethod
    def about(cls, degrees: ArrayLike, columns: tuple[str, str] = ("lon", "lat")) -> "Coordinates":
        """Coordinates of a map around longitudes and latitudes (n, 2), which begins at their south-west corner.

        Example:
            >>> here = Coordinates.about([[9.10, 48.70], [9.12, 48.71]])
            >>> here.metres(np.array([[9.12, 48.70]])).round().tolist()
            [[1472.0, 0.0]]
        """
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
    def known_crs(self) -> str | None:
        """Coordinate reference system of the file's coordinates; None if unknown."""
        return self.crs if self.projection is None else "EPSG:4326"

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
        degrees = self.projection.degrees(metres)
        return np.column_stack([np.mod(degrees[:, 0], 360.0), degrees[:, 1]]) if self.wraps else degrees

    def lon_lat(self, metres: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"] | None:
        """Convert metres on the map to longitudes from -180 to 180 and latitudes (WGS 84); None if not possible."""
        if self.projection is not None:
            return self.projection.degrees(metres)
        if self.crs is None:
            return None
        warp = needed("rasterio.warp", "geo", "a coordinate reference system", _AT)
        return np.column_stack(warp.transform(self.crs, "EPSG:4326", *self.own(metres).T.tolist())[:2])

    def of_lon_lat(self, degrees: Float[np.ndarray, "n 2"], what: str, at: str) -> Float[np.ndarray, "n 2"]:
        """Convert longitudes and latitudes of something to metres on the map."""
        if self.projection is not None:
            return self.projection.metres(degrees)
        if self.crs is None:
            raise ConfigError(
                f"got {what} in longitudes and latitudes for samples in metres; wanted --crs, the samples' coordinate "
                "reference system, such as EPSG:32632",
                at=at,
            )
        warp = needed("rasterio.warp", "geo", "a coordinate reference system", _AT)
        return self.metres(np.column_stack(warp.transform("EPSG:4326", self.crs, *degrees.T.tolist())[:2]))
