"""Measurements read from a CSV file."""

import math
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.csv_rows import read_csv
from swarmbo.boundary.missing import is_fill, is_missing, marked
from swarmbo.boundary.values import is_plain
from swarmbo.errors import ConfigError, DataWarning
from swarmbo_envs.fields.degrees import coordinate_columns, cut, projection_of
from swarmbo_envs.fields.projection import LocalProjection
from swarmbo_envs.fields.settings import MeasuredSettings

_LARGEST = 1e12  # of coordinates and values; squares and products of a few stay far from overflow
_COORDINATES = ("x", "y")

Rows = list[tuple[int, list[str]]]  # with the numbers of their lines


@dataclass(frozen=True, eq=False)
class Measurements:
    """What a CSV file holds, in the order of its rows.

    Args:
        places: To the east and north (n, 2), m.
        values: What was measured (n,).
        times: When (n,); None without a column of times.
        projection: How longitudes and latitudes became metres; None where they are metres in the file.
    """

    places: Float[np.ndarray, "n 2"]
    values: Float[np.ndarray, " n"]
    times: Float[np.ndarray, " n"] | None
    projection: LocalProjection | None


def read_measurements(settings: MeasuredSettings, at: str) -> Measurements:
    """The rows of a file that have all numbers they should have, with places in metres.

    Args:
        settings: The file and its columns; which numbers stand for nothing, and what coordinates are.
        at: Path of the settings, for messages.

    Raises:
        ConfigError: If the file can't be read, a column is missing, a cell is neither a number below 1e12 nor empty,
            no row is whole, or coordinates are no metres and no degrees that one plane can show.

    Warns:
        DataWarning: If rows are left out, and how many for what; if coordinates are taken for degrees.
    """
    header, rows = _read(settings.csv, at)
    if not rows:
        raise ConfigError(f"{settings.csv!r} is empty; wanted a header line and rows of numbers", at=f"{at}.csv")
    x, y = coordinate_columns(settings, header, at)
    columns = {"x": x, "y": y, "value": settings.value}
    if settings.time is not None:
        columns["time"] = settings.time
    for key, name in columns.items():
        if name not in header:
            told = f"no column {name!r}; columns: {', '.join(header)}{cut(header)}"
            raise ConfigError(f"{told}; wanted one of them: --set environment.field.{key}=COLUMN", at=f"{at}.{key}")
    table = dict(zip(columns, _whole_rows(settings, columns, header, rows, at).T, strict=True))
    places = np.column_stack([table["x"], table["y"]])
    projection = projection_of(places, (x, y), settings, at)
    return Measurements(
        places if projection is None else projection.metres(places), table["value"], table.get("time"), projection
    )


def _whole_rows(
    settings: MeasuredSettings, columns: Mapping[str, str], header: list[str], rows: Rows, at: str
) -> Float[np.ndarray, "rows columns"]:
    """Numbers of all rows that have them all, one column each in the order given; the others are counted and told."""
    numbers = {
        key: np.array([_number(settings, row, header.index(name), line, name, f"{at}.{key}") for line, row in rows])
        for key, name in columns.items()
    }
    left_out, reasons, keep = np.zeros(len(rows), dtype=bool), list[str](), ""
    for key, name in columns.items():
        column = numbers[key]
        if (empty := np.isnan(column)).any():
            reasons.append(f"{empty.sum()} without a number in {name!r}")
        marks = marked(column, settings.missing, is_coordinate=key in _COORDINATES)
        counted = Counter(column[marks.rows].tolist()).items()
        reasons += [f"{count} with {number:.10g} in {name!r}" for number, count in counted]
        left_out |= empty | marks.rows
        if settings.missing is None and marks.rows.any():
            keep = " (missing = [] takes all numbers as they are)"
        for number, count in marks.doubtful.items():
            warnings.warn(
                f"{at}.missing: {name!r} of {settings.csv!r} holds {number:.10g} in {count} of {len(rows)} rows, which "
                f"may stand for nothing; it is taken as it is: missing = [{number:.10g}] leaves it out, missing = [] "
                "keeps all",
                DataWarning,
                stacklevel=2,
            )
    told = "; ".join(reasons)
    if left_out.all():
        raise ConfigError(f"no row of {settings.csv!r} is whole: {told}; wanted numbers in each column", at=f"{at}.csv")
    if left_out.any():
        warnings.warn(
            f"{at}.csv: {left_out.sum()} of {len(rows)} rows of {settings.csv!r} are left out: {told}{keep}",
            DataWarning,
            stacklevel=2,
        )
    return np.column_stack(list(numbers.values()))[~left_out]


def _read(path: str, at: str) -> tuple[list[str], Rows]:
    """The names of the columns, and the rows with the numbers of their lines."""
    if not path:
        raise ConfigError(
            "no file is given; wanted the path of a CSV file: --set environment.field.csv=FILE for the scenario "
            "'measured', field={'csv': FILE, ...} in Python",
            at=f"{at}.csv",
        )
    try:
        header, rows = read_csv(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"cannot read {path!r}: {reason}; wanted a CSV file", at=f"{at}.csv") from None
    return header, rows


def _number(settings: MeasuredSettings, row: list[str], column: int, line: int, name: str, at: str) -> float:
    """The number of a cell; NaN of one that has none."""
    text = row[column] if column < len(row) else ""
    if is_missing(text):
        return math.nan
    try:
        number = float(text) if is_plain(text) else math.inf
    except ValueError:
        number = math.inf
    if not math.isfinite(number):
        how = " (dates and clock times as time since the first: days, hours, …)" if at.endswith(".time") else ""
        raise ConfigError(f"line {line}, column {name!r}: got {text!r}; wanted a finite number{how}", at=at)
    if abs(number) >= _LARGEST and not (is_fill(number) if settings.missing is None else number in settings.missing):
        raise ConfigError(f"line {line}, column {name!r}: got {text!r}; wanted a number below 1e12 in size", at=at)
    return number
