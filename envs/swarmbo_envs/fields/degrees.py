"""Whether the coordinates of a CSV file are longitudes and latitudes."""

import re
import warnings

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError, DataWarning
from swarmbo_envs.fields.projection import LocalProjection
from swarmbo_envs.fields.settings import MeasuredSettings

_EAST = frozenset({"lon", "long", "lng", "longitude", "longitudes"})
_NORTH = frozenset({"lat", "latitude", "latitudes"})
_DEGREES = frozenset({"deg", "degs", "degree", "degrees", "wgs", "wgs84", "epsg4326"})
_METRES = frozenset({"m", "km", "metre", "metres", "meter", "meters", "utm"})
_DECIMALS = 4  # of most cells: a ten-thousandth of a degree is 11 m


def projection_of(
    places: Float[np.ndarray, "n 2"], settings: MeasuredSettings, path: str, at: str
) -> LocalProjection | None:
    """How the coordinates of a file become metres; None where they are metres already.

    Where the settings do not say, the names of the columns do: ``lon``, ``latitude`` or ``x_deg`` with numbers that can
    be degrees are degrees. That is told in a warning.

    Args:
        places: Columns x and y (n, 2).
        settings: For the names of the columns, and what is stated of them.
        path: Of the file, for messages.
        at: Path of the settings, for messages.

    Raises:
        ConfigError: If degrees are stated or named, and numbers can't be any; if they are named the wrong way round; or
            if names say nothing, and numbers look like degrees.
    """
    if settings.coordinates == "metres":
        return None
    east, north = _words(settings.x), _words(settings.y)
    named = bool((east | north) & (_EAST | _NORTH | _DEGREES)) and not (east | north) & _METRES
    if named and east & _NORTH and north & _EAST:
        raise ConfigError(
            f"got {settings.x!r}, a latitude; wanted longitudes, to the east: x = {settings.y!r}, y = {settings.x!r}",
            at=f"{at}.x",
        )
    if settings.coordinates == "degrees" or named:
        _require_degrees(places, settings, at)
        projection = LocalProjection.about(places, at)
        if settings.coordinates is None:
            warnings.warn(
                f"{at}.coordinates: {settings.x!r} and {settings.y!r} of {path!r} are taken for degrees, and projected "
                f"to metres east and north (transverse Mercator about {projection.meridian_deg:.4g}° E); "
                "coordinates = 'degrees' says so, 'metres' that they are metres",
                DataWarning,
                stacklevel=2,
            )
        return projection
    if _look_like_degrees(places):
        raise ConfigError(
            f"got columns {settings.x!r} and {settings.y!r} in {path!r} whose numbers look like longitudes and "
            "latitudes; wanted coordinates = 'degrees', or coordinates = 'metres' if they are metres",
            at=f"{at}.coordinates",
        )
    return None


def _words(name: str) -> set[str]:
    """The words of a column's name, in small letters: decimalLongitude has decimal and longitude."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return set(re.findall(r"[^\W_]+", apart.lower())) | ({"deg"} if "°" in name else set())


def _require_degrees(places: Float[np.ndarray, "n 2"], settings: MeasuredSettings, at: str) -> None:
    ranges = (("x", settings.x, "longitude", -180.0, 360.0), ("y", settings.y, "latitude", -90.0, 90.0))
    for values, (key, column, what, low, high) in zip(places.T, ranges, strict=True):
        outside = values[(values < low) | (values > high)]
        if outside.size:
            raise ConfigError(
                f"column {column!r} holds {outside[0]:.10g}, which is no {what}; wanted degrees from {low:g} to "
                f"{high:g}, or coordinates = 'metres'",
                at=f"{at}.{key}",
            )


def _look_like_degrees(places: Float[np.ndarray, "n 2"]) -> bool:
    """In the range of degrees, most of them with four decimals, and far from zero for how far they are from another.

    Metres with tenths of a millimetre that begin far from their origin look alike, so this is never more than a
    question.
    """
    low, high = places.min(axis=0), places.max(axis=0)
    if low[0] < -180.0 or high[0] > 360.0 or low[1] < -90.0 or high[1] > 90.0:
        return False
    scaled = places * 10.0 ** (_DECIMALS - 1)
    fine = (np.abs(scaled - np.round(scaled)) > 1e-6).mean(axis=0) > 0.5
    offset = np.where(low > 0.0, low, np.where(high < 0.0, -high, 0.0))
    return bool(fine.all() and (offset > high - low).any())
