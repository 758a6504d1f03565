"""Measurements read from a CSV file."""

import csv
import math
from collections.abc import Mapping
from io import TextIOWrapper

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError
from swarmbo.files import open_regular

_LARGEST = 1e12  # of coordinates and values; squares and products of a few stay far from overflow


def read_columns(path: str, columns: Mapping[str, str], at: str) -> Float[np.ndarray, "rows columns"]:
    """Numbers of all rows of a file with one header line.

    Args:
        path: Of the file.
        columns: For each setting that names a column, the column.
        at: Path of the settings, for messages.

    Returns:
        One column each, in the order given.

    Raises:
        ConfigError: If the file can't be read, a column is missing, or a cell is not a number below 1e12.
    """
    if not path:
        raise ConfigError(
            "no file is given; wanted the path of a CSV file: --set environment.field.csv=FILE for the scenario "
            "'measured', field={'csv': FILE, ...} in Python",
            at=f"{at}.csv",
        )
    try:
        with open_regular(path) as raw, TextIOWrapper(raw, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, skipinitialspace=True)
            header = [name.strip() for name in next(reader, [])]
            for key, name in columns.items():
                if header and name not in header:
                    raise ConfigError(
                        f"no column {name!r}; columns: {', '.join(header)}{_cut(header)}", at=f"{at}.{key}"
                    )
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"cannot read {path!r}: {reason}; wanted a CSV file", at=f"{at}.csv") from None
    if not rows:
        raise ConfigError(f"{path!r} is empty; wanted a header line and rows of numbers", at=f"{at}.csv")
    return np.array(
        [
            [_number(row, header.index(name), line, name, f"{at}.{key}") for line, row in rows]
            for key, name in columns.items()
        ]
    ).T


def _cut(header: list[str]) -> str:
    """What to do about a header that something else than commas divides."""
    other = next((mark for mark in ";\t|" if mark in header[0]), None) if len(header) == 1 else None
    return "" if other is None else f"; got {other!r} between columns, wanted commas (and points in numbers)"


def _number(row: list[str], column: int, line: int, name: str, at: str) -> float:
    text = row[column].strip() if column < len(row) else ""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        how = " (dates and clock times as time since the first: days, hours, …)" if at.endswith(".time") else ""
        raise ConfigError(f"line {line}, column {name!r}: got {text!r}; wanted a finite number{how}", at=at)
    if abs(number) >= _LARGEST:
        raise ConfigError(f"line {line}, column {name!r}: got {text!r}; wanted a number below 1e12 in size", at=at)
    return number
