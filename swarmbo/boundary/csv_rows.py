"""CSV files as text cells."""

import csv
import math
import os
from io import TextIOWrapper
from typing import NamedTuple

from swarmbo.boundary.files import open_regular
from swarmbo.boundary.values import is_plain
from swarmbo.errors import ConfigError


class CsvRows(NamedTuple):
    """Content of a CSV file: columns, and line number and cells (perhaps fewer) of each row that is not empty."""

    header: list[str]
    rows: list[tuple[int, list[str]]]


def read_csv(path: str | os.PathLike[str]) -> CsvRows:
    """Read the cells of a file, without surrounding space; a ValueError if it is no CSV file in UTF-8."""
    with open_regular(path) as raw, TextIOWrapper(raw, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, skipinitialspace=True)
        try:
            header = [name.strip() for name in next(reader, [])]
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
        except csv.Error as error:
            raise ValueError(f"line {reader.line_num}: {error}") from error
    return CsvRows(header, [(number, row) for number, row in lines if any(row)])


def read_table(path: str | os.PathLike[str], at: str) -> CsvRows:
    """Read the cells of a file that a setting names."""
    try:
        return read_csv(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"cannot read {path!r}: {reason}; wanted a CSV file", at=at) from None


def finite(cell: str) -> float:
    """Finite number of a cell; NaN if it has none."""
    try:
        number = float(cell) if is_plain(cell) else math.nan
    except ValueError:
        number = math.nan
    return number if math.isfinite(number) else math.nan


def other_separator(header: list[str]) -> str | None:
    """Separator of the columns of a file, if it is not a comma."""
    return next((mark for mark in ";\t|" if mark in header[0]), None) if len(header) == 1 else None
