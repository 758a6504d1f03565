"""Measurements in CSV files, and numbers that mark missing values, such as -9999."""

import math
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.boundary.coordinates import Coordinates, LocalProjection
from swarmbo.boundary.files import CsvRows, finite, read_table
from swarmbo.errors import ConfigError, DataWarning

_MISSING = frozenset({"", "-", "--", ".", "?", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "missing"})
_NINES = re.compile(r"-9{2,}(\.9+)?|9{3,}(\.9+)?")
_EXTREMES = (-32768.0, -32767.0, -2147483648.0, 2147483647.0)  # extremes of two-byte and four-byte integers
_FILL = (1e20, 1e30, 9.969209968386869e36, 3.4028234663852886e38, 1.7976931348623157e308)  # of NetCDF, GRIB and rasters
_LEAST_POSITIVE = 9999.0
_POSITIVE_SPREADS = 3.0
_ISOLATED, _ENOUGH = 1.5, 10  # distance from the next number, in usual distances between at least ten numbers

MARKS = "missing = [{:.10g}]", "missing = []"  # settings that state one mark, and no marks
_LARGEST = 1e12  # size of coordinates and values: products of several stay far from overflow
_COORDINATES = ("x", "y")
_NOISE = "noise"
IN_SCENARIO = "--set environment.field.{key}={value}"
Cells = list[tuple[int, list[str]]]  # line number and cells of each row
_EAST = frozenset({"lon", "long", "lng", "longitude", "longitudes"})
_NORTH = frozenset({"lat", "latitude", "latitudes"})
_DEGREES = frozenset({"deg", "degs", "degree", "degrees", "wgs", "wgs84", "epsg4326"})
_METRES = frozenset({"m", "metre", "metres", "meter", "meters", "utm"})
_OTHER_UNITS = frozenset({"km", "kilometres", "kilometers", "cm", "mm", "ft", "foot", "feet", "yd", "yards", "miles"})
_PAIRS = (
    (_EAST, _NORTH),
    (frozenset({"x"}), frozenset({"y"})),
    (frozenset({"east", "easting", "eastings"}), frozenset({"north", "northing", "northings"})),
)
_BESIDE = _DEGREES | _METRES | _OTHER_UNITS | {"decimal", "gps", "coord", "coords", "coordinate", "pos", "position"}
# most cells with degrees have four or more decimals: a ten-thousandth of a degree is 11 m
_DECIMALS = 4
_ANTIMERIDIAN = 180.0  # a longitude above it shows that the file counts from 0 to 360


def doubt(number: float, marks: tuple[str, str] = MARKS) -> str:
    """Sentences on a number that may be a mark or a measurement."""
    return f"It may mark a gap, but is used as a value. {marks[0].format(number)} leaves it out, {marks[1]} keeps all"


def is_missing(cell: str) -> bool:
    """True if a cell is empty, or marks a missing value: NA, nan, null, none, missing, -, ? and the like."""
    return cell.strip().lower() in _MISSING


def is_fill(number: float) -> bool:
    """True if a number is a fill value of data formats, beyond any measurement."""
    return any(math.isclose(abs(number), fill, rel_tol=1e-6) for fill in _FILL)


def marked(
    numbers: Float[np.ndarray, " n"], missing: list[float] | None, *, is_coordinate: bool
) -> tuple[Bool[np.ndarray, " n"], dict[float, int]]:
    """Mask of marks for missing numbers, stated or common and far from the others; and counts of doubtful numbers.

    Common marks are -99, -999, … and 999, 9999, …, also with decimals of nines; extremes of two-byte and four-byte
    integers; and fill values of data formats, which always count. A negative common mark counts if it is farther from
    the other numbers than their range or, except in coordinates, if no other number is negative. A positive mark
    counts if it is >= 9999 and more than three times the range away. Common marks outside the range that do not count
    are doubtful, except a mark that occurs once, at a usual distance from the next of ten or more numbers.
    """
    if missing is not None:
        return np.isin(numbers, missing), {}
    fill = np.array([is_fill(number) for number in numbers], dtype=bool)
    nines = [bool(_NINES.fullmatch(f"{number:.10g}")) or number in _EXTREMES for number in numbers]
    usual = np.array(nines, dtype=bool) & ~fill
    values = np.unique(numbers[~usual & ~fill & np.isfinite(numbers)])
    usual_gap = float(np.median(np.diff(values))) if values.size >= _ENOUGH else 0.0
    rows, doubtful = fill, dict[float, int]()
    for number, count in Counter(numbers[usual].tolist()).items():
        if values.size and values.min() <= number <= values.max():
            continue
        if values.size and _stands_apart(number, float(values.min()), float(values.max()), is_coordinate):
            rows = rows | (numbers == number)
        elif count > 1 or not values.size or np.abs(values - number).min() > _ISOLATED * usual_gap:
            doubtful[number] = count
    return rows, doubtful


def _stands_apart(number: float, low: float, high: float, is_coordinate: bool) -> bool:
    if number < 0.0:
        return (low >= 0.0 and not is_coordinate) or low - number > high - low
    return number >= _LEAST_POSITIVE and number - high > _POSITIVE_SPREADS * (high - low)


@dataclass(frozen=True, kw_only=True)
class CsvColumns:
    """A CSV file and its columns; ``swarmbo_envs.fields.MeasuredSettings`` documents them."""

    csv: str
    value: str
    x: str | None = None
    y: str | None = None
    time: str | None = None
    coordinates: Literal["metres", "degrees"] | None = None
    missing: list[float] | None = None


@dataclass(frozen=True, eq=False)
class Measurements:
    """Content of a CSV file, in the order of its rows: ``places`` in metres, and ``own`` coordinates as in the file.

    ``projection`` is None if ``own`` are metres. ``noise_std`` is NaN for empty cells; None if no column has it.
    """

    places: Float[np.ndarray, "n 2"]
    values: Float[np.ndarray, " n"]
    times: Float[np.ndarray, " n"] | None
    projection: LocalProjection | None
    columns: tuple[str, str]
    own: Float[np.ndarray, "n 2"]
    noise_std: Float[np.ndarray, " n"] | None = None

    def coordinates(self, crs: str | None = None) -> Coordinates:
        """Coordinates of the file, in metres of a system ``crs`` or in degrees."""
        east = self.own[:, 0]  # across the date line, longitudes continue beyond 180; across Greenwich, below 0
        wraps = max(east.max(), np.ptp(east)) > _ANTIMERIDIAN and np.ptp(np.mod(east, 360.0)) < _ANTIMERIDIAN
        return Coordinates(self.columns, self.projection, crs, self.projection is not None and bool(wraps))


def read_measurements(settings: CsvColumns, at: str) -> Measurements:
    """Complete rows of a file that a scenario names; see ``measurements_of``."""
    if not settings.csv:
        wanted = f"wanted the path of a CSV file: {IN_SCENARIO.format(key='csv', value='FILE')}"
        how = f"{wanted} for the scenario 'measured', field={{'csv': FILE, ...}} in Python"
        raise ConfigError(f"no file is given; {how}", at=f"{at}.csv")
    return measurements_of(read_table(settings.csv, f"{at}.csv"), settings, at)


def measurements_of(
    table: CsvRows, settings: CsvColumns, at: str, how: str = IN_SCENARIO, noise_std: str | None = None
) -> Measurements:
    """Complete rows of a table, with locations in metres; cells of the column ``noise_std`` may be empty.

    For messages, ``how`` is the form of an option that sets ``key`` to ``value``.
    """
    header, rows = table
    if not rows:
        raise ConfigError(f"{settings.csv!r} is empty; wanted a header line and rows of numbers", at=f"{at}.csv")
    x, y = coordinate_columns(settings, header, at, how)
    stated = {"x": x, "y": y, "value": settings.value, "time": settings.time, _NOISE: noise_std}
    columns = {key: name for key, name in stated.items() if name is not None}
    for key, name in columns.items():
        if name not in header:
            got = f"{settings.csv}: no column {name!r}; columns: {', '.join(header)}"
            raise ConfigError(f"{got}; wanted one of them: {how.format(key=key, value='COLUMN')}", at=f"{at}.{key}")
        if (first := next(other for other in columns if columns[other] == name)) != key:
            raise ConfigError(f"got {name!r}, which is the column of {first}; wanted another", at=f"{at}.{key}")
    numbers, lines = _complete_rows(settings, columns, header, rows, at, how)
    cells = dict(zip(columns, numbers.T, strict=True))
    places = np.column_stack([cells["x"], cells["y"]])
    projection = projection_of(places, lines, (x, y), settings, at, how)
    for row in np.flatnonzero(cells.get(_NOISE, np.empty(0)) < 0.0)[:1]:
        got = f"{settings.csv}: line {lines[row]}, column {noise_std!r}: got {cells[_NOISE][row]:.10g}"
        raise ConfigError(f"{got}; wanted standard deviations >= 0", at=f"{at}.{_NOISE}")
    metres = places if projection is None else projection.metres(places)
    return Measurements(metres, cells["value"], cells.get("time"), projection, (x, y), places, cells.get(_NOISE))


def _complete_rows(
    settings: CsvColumns, columns: Mapping[str, str], header: list[str], rows: Cells, at: str, how: str
) -> tuple[Float[np.ndarray, "rows columns"], list[int]]:
    """Numbers of all complete rows, one column each in the order given, and their lines; warns about other rows."""
    numbers = {
        key: np.array([_number(settings, row[header.index(name)], line, name, f"{at}.{key}") for line, row in rows])
        for key, name in columns.items()
    }
    left_out, reasons, hint = np.zeros(len(rows), dtype=bool), list[str](), ""
    options = MARKS if how == IN_SCENARIO else ("--missing {:.10g}", "--missing nan")
    for key, name in columns.items():
        column, empty = numbers[key], np.isnan(numbers[key])
        is_mark, doubtful = marked(column, settings.missing, is_coordinate=key in _COORDINATES)
        counted = Counter(column[is_mark].tolist()).items()
        marks = [f"{count} with {number:.10g} in {name!r}" for number, count in counted]
        if key == _NOISE:
            column[is_mark] = np.nan
            if marks:
                unknown = f"{at}.csv: the noise of rows of {settings.csv!r} is unknown: {'; '.join(marks)}"
                warnings.warn(unknown, DataWarning, stacklevel=2)
        else:
            reasons += [*([f"{empty.sum()} without a number in {name!r}"] if empty.any() else []), *marks]
            left_out |= empty | is_mark
            if settings.missing is None and marks:
                hint = f" ({options[1]} takes all numbers as they are)"
        for number, count in doubtful.items():
            here = f"{at}.missing: {name!r} of {settings.csv!r} holds {number:.10g} in {count} of {len(rows)} rows"
            warnings.warn(f"{here}. {doubt(number, options)}", DataWarning, stacklevel=2)
    causes = "; ".join(reasons)
    if left_out.all():
        got = f"no row of {settings.csv!r} is complete: {causes}"
        raise ConfigError(f"{got}; wanted numbers in each column", at=f"{at}.csv")
    if left_out.any():
        causes = f"{left_out.sum()} of {len(rows)} rows of {settings.csv!r} are left out: {causes}{hint}"
        warnings.warn(f"{at}.csv: {causes}", DataWarning, stacklevel=2)
    lines = [line for (line, _), is_out in zip(rows, left_out, strict=True) if not is_out]
    return np.column_stack(list(numbers.values()))[~left_out], lines


def _number(settings: CsvColumns, text: str, line: int, name: str, at: str) -> float:
    if is_missing(text):
        return math.nan
    number, where = finite(text), f"{settings.csv}: line {line}, column {name!r}"
    if math.isnan(number):
        how = " (dates and clock times as time since the first: days, hours, …)" if at.endswith(".time") else ""
        raise ConfigError(f"{where}: got {text!r}; wanted a finite number{how}", at=at)
    if abs(number) >= _LARGEST and not (is_fill(number) if settings.missing is None else number in settings.missing):
        raise ConfigError(f"{where}: got {text!r}; wanted a number below 1e12 in size", at=at)
    return number


def coordinate_columns(settings: CsvColumns, header: list[str], at: str, how: str = IN_SCENARIO) -> tuple[str, str]:
    """Columns of the coordinates to the east and north: stated, or else the only pair with such names."""
    if settings.x is not None and settings.y is not None:
        return settings.x, settings.y
    free = [name for name in header if name not in (settings.value, settings.time)]
    stated = settings.x or settings.y or ""  # its naming scheme is that of the pair, too
    schemes = [scheme for scheme in _PAIRS if _is_called(stated, scheme[0] | scheme[1])] or _PAIRS
    pairs = dict[tuple[str, str], None]()
    for east, north in schemes:
        easts = [name for name in free if _is_called(name, east)] if settings.x is None else [settings.x]
        norths = [name for name in free if _is_called(name, north)] if settings.y is None else [settings.y]
        pairs |= {(x, y): None for x in easts for y in norths}
    # pairs in other units only if there are no others: `projection_of` then refuses them by name
    matches = [pair for pair in pairs if not _words(" ".join(pair)) & _OTHER_UNITS] or list(pairs)
    if len(matches) == 1:
        return matches[0]
    told = " and ".join(f"{x!r}, {y!r}" for x, y in matches) or f"columns {', '.join(header)}"
    x, y = matches[0] if matches else (settings.x or "COLUMN", settings.y or "COLUMN")
    fix = f"{how.format(key='x', value=x)} {how.format(key='y', value=y)}, in Python x = {x!r}, y = {y!r}"
    wanted = f"wanted {'one' if matches else 'a'} pair to the east and north: {fix}"
    raise ConfigError(f"got {told}; {wanted}", at=f"{at}.x" if settings.x is None else f"{at}.y")


def _is_called(name: str, names: Set[str]) -> bool:
    """True if a column's name has one of ``names``, and else only units and the like: ``x_m``, but not ``x_error``."""
    words = _words(name)
    return bool(words & names) and words <= names | _BESIDE


def unit_of(columns: tuple[str, str]) -> str:
    """Unit of coordinates by the names of their columns: ``degrees``, another one such as ``km``, or else ``m``."""
    words = _words(" ".join(columns))
    is_degrees = words & (_EAST | _NORTH | _DEGREES) and not words & _METRES
    return min(words & _OTHER_UNITS, default="degrees" if is_degrees else "m")


def projection_of(
    places: Float[np.ndarray, "n 2"], lines: list[int], pair: tuple[str, str], settings: CsvColumns, at: str, how: str
) -> LocalProjection | None:
    """Projection of a file's coordinates to metres; None if they are metres already.

    Unless stated, columns named ``lon``, ``latitude`` or ``x_deg`` with numbers in range are degrees, with a warning;
    neutral names with numbers that look like degrees are refused.
    """
    (x, y), unit = pair, unit_of(pair)
    if settings.coordinates == "metres":
        return None
    if settings.coordinates is None and unit in _OTHER_UNITS:
        got = f"got columns {x!r} and {y!r} in {settings.csv!r}, whose numbers seem to be in {unit}"
        wanted = f"wanted metres: convert them, or state {how.format(key='coordinates', value='metres')}"
        raise ConfigError(f"{got}; {wanted}", at=f"{at}.coordinates")
    if unit == "degrees" and _words(x) & _NORTH and _words(y) & _EAST:
        got, fix = f"got {x!r}, a latitude", f"{how.format(key='x', value=y)} {how.format(key='y', value=x)}"
        raise ConfigError(f"{got}; wanted longitudes, to the east: {fix}", at=f"{at}.x")
    if "degrees" in (settings.coordinates, unit):
        _require_degrees(places, lines, pair, settings.csv, at, how)
        projection = LocalProjection.about(places, at, lines, settings.csv)
        if settings.coordinates is None:
            taken = f"{x!r} and {y!r} of {settings.csv!r} are taken for degrees, and projected to metres"
            about = f"(transverse Mercator about {projection.meridian_deg:.4g}° E)"
            fix = f"To state it: {how.format(key='coordinates', value='degrees')}, or metres"
            warnings.warn(f"{at}.coordinates: {taken} {about}. {fix}", DataWarning, stacklevel=2)
        return projection
    if _look_like_degrees(places):
        got = f"got columns {x!r} and {y!r} in {settings.csv!r} whose numbers look like longitudes and latitudes"
        wanted = f"wanted {how.format(key='coordinates', value='degrees')}, or metres"
        raise ConfigError(f"{got}; {wanted}", at=f"{at}.coordinates")
    return None


def _words(name: str) -> set[str]:
    """Words of a column's name, in lower case: decimalLongitude has decimal and longitude."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return set(re.findall(r"[^\W_]+", apart.lower())) | ({"deg"} if "°" in name else set())


def _require_degrees(
    places: Float[np.ndarray, "n 2"], lines: list[int], pair: tuple[str, str], csv: str, at: str, how: str
) -> None:
    # the map of a file with -179.99 may reach beyond -180, as may the next samples
    ranges = (("x", pair[0], "longitude", -360.0, 360.0), ("y", pair[1], "latitude", -90.0, 90.0))
    for values, (key, column, what, low, high) in zip(places.T, ranges, strict=True):
        for row in np.flatnonzero((values < low) | (values > high))[:1]:
            got = f"{csv}: line {lines[row]}, column {column!r}: got {values[row]:.10g}, which is not a {what}"
            wanted = f"wanted degrees from {low:g} to {high:g}, or {how.format(key='coordinates', value='metres')}"
            raise ConfigError(f"{got}; {wanted}", at=f"{at}.{key}")


def _look_like_degrees(places: Float[np.ndarray, "n 2"]) -> bool:
    """True for numbers in the range of degrees, mostly with four or more decimals, farther from 0 than their spread."""
    # metres with tenths of a millimetre far from their origin look alike, so callers may only ask, not convert
    low, high = places.min(axis=0), places.max(axis=0)
    if low[0] < -180.0 or high[0] > 360.0 or low[1] < -90.0 or high[1] > 90.0:
        return False
    scaled = places * 10.0 ** (_DECIMALS - 1)
    fine = (np.abs(scaled - np.round(scaled)) > 1e-6).mean(axis=0) > 0.5
    offset = np.where(low > 0.0, low, np.where(high < 0.0, -high, 0.0))
    return bool(fine.all() and (offset > high - low).any())
