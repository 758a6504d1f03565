"""Samples of a survey, and its coordinates: those of its files, metres for the map, degrees for devices."""

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.boundary.coordinates import Coordinates, Rings, holds, like_degrees, read_polygons
from swarmbo.boundary.csv_measurements import CsvColumns, Measurements, coordinate_columns, measurements_of, unit_of
from swarmbo.boundary.files import finite, read_table
from swarmbo.errors import ConfigError, DataWarning

_OPTION = "--{key} {value}"
_FAR = 100.0  # sides of the samples' box, as for locations of a team
_NOISE_NAMES = ("noise_std", "noise", "value_std", "std", "sd", "sigma", "stderr", "uncertainty")
_FOOTPRINT_NAMES = ("footprint", "footprint_m", "footprint_radius", "footprint_radius_m")


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples of a quantity at locations (n, 2), m on the map; noise is NaN where unknown, None if no row has one."""

    places: Float[np.ndarray, "n 2"]
    values: Float[np.ndarray, " n"]
    noise_std: Float[np.ndarray, " n"] | None
    coordinates: Coordinates
    quantity: str
    noise_column: str | None = None

    def __len__(self) -> int:
        return len(self.values)


def read_samples(
    path: str | os.PathLike[str],
    value: str | None = None,
    *,
    x: str | None = None,
    y: str | None = None,
    coordinates: Literal["metres", "degrees"] | None = None,
    noise: str | None = None,
    missing: list[float] | None = None,
    crs: str | None = None,
) -> Samples:
    """Read samples from a CSV file with a header line.

    Args:
        path: Path of the file. Rows with empty cells, or with -9999 and the like, are left out with a warning.
        value: Column of the values. Default: ``value``, or the only column that has no other meaning.
        x: Column of the coordinate to the east, in metres or degrees. Default: the only one with such a name.
        y: Column of the coordinate to the north. Default: as for ``x``.
        coordinates: ``metres`` or ``degrees``. Default: by the names of the columns, else metres.
        noise: Column of the standard deviation >= 0 of each value's noise. Default: ``noise_std``, ``std`` and the
            like, if there is one.
        missing: Numbers that mark gaps. Default: -9999 and the like, if far from the others.
        crs: Coordinate reference system of coordinates in metres, such as ``EPSG:32632`` (needs the extra ``geo``).

    Raises:
        ConfigError: If the file cannot be read, a column is missing or ambiguous, or a cell is not a number.

    Warns:
        DataWarning: If rows are left out, coordinates are taken for degrees, or a few samples lie far from all others.
    """
    name = os.fspath(path)
    table = read_table(name, "$.csv")
    header = table.header
    noise = noise or next((column for column in header if column.lower() in _NOISE_NAMES and column != value), None)
    if broad := [column for column in header if column.lower() in _FOOTPRINT_NAMES and column != value]:
        fix = "wanted a file without it, if the footprints are small compared with the distances between samples"
        raise ConfigError(f"{name}: got the column {broad[0]!r}, but samples are taken at points; {fix}", at="$.csv")
    pair = coordinate_columns(CsvColumns(csv=name, value=value or "", x=x, y=y), header, "$", _OPTION)
    quantity = value or _only_value(name, header, {*pair, noise})
    columns = CsvColumns(csv=name, value=quantity, x=x, y=y, coordinates=coordinates, missing=missing)
    read = measurements_of(table, columns, "$", _OPTION, noise)
    noise_std = None if read.noise_std is None or np.isnan(read.noise_std).all() else read.noise_std
    where = read.coordinates(crs)
    where.require_metres()
    _warn_of_far(read, name)
    return Samples(read.places, read.values, noise_std, where, quantity, None if noise_std is None else noise)


def _warn_of_far(read: Measurements, name: str) -> None:
    """Warn of a few samples far from all others: such locations are often mistyped, and would stretch the map."""
    low = np.quantile(read.places, 0.1, axis=0, method="higher")  # without the least and the largest, also of few
    high = np.quantile(read.places, 0.9, axis=0, method="lower")
    is_far = (np.maximum(low - read.places, read.places - high) > _FAR * (high - low).max()).any(axis=1)
    if is_far.any() and (high > low).any():
        got = f"{is_far.sum()} of {len(is_far)} samples lie far from all others, such as {read.own[is_far.argmax()]}"
        warnings.warn(f"{name}: {got}; check their coordinates", DataWarning, stacklevel=3)


def read_positions(
    path: str | os.PathLike[str], coordinates: Coordinates, agents: int | None = None
) -> tuple[tuple[str, ...], Float[np.ndarray, "agents 2"]]:
    """Names (``agent_1``, … unless given) and positions (m on the map) of agents, from a CSV file like the samples'."""
    name, at = os.fspath(path), "--from"
    header, lines = read_table(name, at)
    rows = [(line, dict(zip(header, row, strict=True))) for line, row in lines]
    pair, own, unit = coordinates.columns, coordinates.columns, coordinates.unit
    if not set(own) <= set(header):
        with suppress(ConfigError):
            pair = coordinate_columns(CsvColumns(csv=name, value=""), header, at)
        if pair == own or unit_of(pair) != unit:
            wanted = f"wanted the samples' columns {own}, or one pair with other such names, in {unit}"
            raise ConfigError(f"{name}: got columns {', '.join(header)}; {wanted}", at=at)
    xy = np.array([[finite(row[column]) for column in pair] for _, row in rows]).reshape(-1, 2)
    for i, axis in np.argwhere(np.isnan(xy))[:1]:
        (line, row), column = rows[i], pair[axis]
        raise ConfigError(f"{name}: line {line}, column {column!r}: got {row[column]!r}; wanted a number", at=at)
    if agents not in (None, len(rows)):
        raise ConfigError(f"{name}: got {len(rows)} rows; wanted one for each of --agents {agents}", at=at)
    named = next((column for column in header if column.lower() in ("agent", "name")), None)
    names = tuple(f"agent_{i}" if named is None else row[named] for i, (_, row) in enumerate(rows, start=1))
    if not rows or len(set(names)) < len(names) or not all(names):
        raise ConfigError(f"{name}: got the agents {list(names)}; wanted one row for each, with distinct names", at=at)
    return names, coordinates.metres(xy)


def read_region(path: str | os.PathLike[str], samples: Samples, at: str) -> "Region":
    """Polygons (m on the map) of a GeoJSON file: in degrees if the samples are, or if they look so; else in metres."""
    coordinates, found = samples.coordinates, Region(read_polygons(os.fspath(path), at))
    low, high = samples.places.min(axis=0), samples.places.max(axis=0)
    can_be, look_so = like_degrees(found.polygons, high - low)
    if coordinates.projection is not None and not can_be:
        raise ConfigError(f"got {os.fspath(path)!r}, not in degrees; wanted longitudes and latitudes", at=at)
    reach, away = float((high - low).max()), found.distance_to(low, high)
    if coordinates.projection is not None or look_so or (can_be and away > reach):
        found = Region([[coordinates.of_ring(ring, reach, at) for ring in rings] for rings in found.polygons])
        away = found.distance_to(low, high)
    if away > _FAR * reach and len(np.unique(samples.places, axis=0)) > 2:  # fewer are refused later
        got = f"got {os.fspath(path)!r}, whose polygons are {away:,.0f} m from the samples"
        raise ConfigError(f"{got}; wanted some near them, in metres like the samples, not in km or feet", at=at)
    return found


@dataclass(frozen=True, eq=False)
class Region:
    """Polygons with holes; ``polygons`` holds the rings (k, 2) of each polygon, m on the map."""

    polygons: Sequence[Rings]

    def holds(self, places: Float[np.ndarray, "m 2"]) -> Bool[np.ndarray, " m"]:
        """Mask of places within any of the polygons."""
        return np.any([holds(rings, places) for rings in self.polygons], axis=0)

    @property
    def corners(self) -> Float[np.ndarray, "k 2"]:
        """Corners of all polygons."""
        return np.concatenate([ring for rings in self.polygons for ring in rings])

    def distance_to(self, low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"]) -> float:
        """Distance of the polygons from a box, m, along the axis where it is largest; <= 0 if their boxes overlap."""
        return float(np.maximum(low - self.corners.max(axis=0), self.corners.min(axis=0) - high).max())


def _only_value(path: str, header: Sequence[str], others: set[str | None]) -> str:
    free = [name for name in header if name and name not in others]
    if "value" in header or len(free) == 1:
        return "value" if "value" in header else free[0]
    wanted = "wanted the column of the values: --value COLUMN"
    raise ConfigError(f"{path}: got columns {', '.join(free or header)}; {wanted}", at="--value")
