"""Numbers that mark missing measurements, such as -9999."""

import math
import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

_WORDS = frozenset({"", "-", "--", ".", "?", "na", "n/a", "#n/a", "<na>", "nan", "null", "none", "missing"})
_NINES = re.compile(r"-9{2,}(\.9+)?|9{3,}(\.9+)?")
_WHOLE = (-32768.0, -32767.0, -2147483648.0, 2147483647.0)  # the ends of integers of two and four bytes
_FILL = (1e20, 1e30, 9.969209968386869e36, 3.4028234663852886e38, 1.7976931348623157e308)  # of NetCDF, GRIB and rasters
_LEAST_POSITIVE = 9999.0
_POSITIVE_SPREADS = 3.0


KEEP_ALL = " (missing = [] takes all numbers as they are)"


def doubt(number: float) -> str:
    """Sentences on a number that may be a mark or a measurement."""
    fix = f"missing = [{number:.10g}] leaves it out, missing = [] keeps all"
    return f"It may mark a gap, but is used as a value. {fix}"


def is_missing(cell: str) -> bool:
    """True if a cell is empty, or has a word for nothing: NA, nan, null, none, missing, -, ? and the like."""
    return cell.strip().lower() in _WORDS


def is_fill(number: float) -> bool:
    """True if a number is a fill value of data formats, beyond any measurement."""
    return any(math.isclose(abs(number), fill, rel_tol=1e-6) for fill in _FILL)


@dataclass(frozen=True, eq=False)
class Marked:
    """Mask of values in a column that surely mark missing numbers, and counts of doubtful ones, which are kept."""

    rows: Bool[np.ndarray, " n"]
    doubtful: dict[float, int]


def marked(numbers: Float[np.ndarray, " n"], missing: list[float] | None, *, is_coordinate: bool) -> Marked:
    """Find marks for missing numbers: the stated ones, or common marks that are far from the other numbers.

    Common are -99, -999, -9999 and so on, with nines behind the point too, and the same from 999 on without the sign;
    the least numbers of two-byte and four-byte integers; and fill values, which are always marks. Another negative
    number is a mark if it is farther from the others than their range or, but for coordinates, if no other number is
    negative. A positive number is a mark from 9999 on, at three times that distance. Others outside the range are
    doubtful.
    """
    if missing is not None:
        return Marked(np.isin(numbers, missing), {})
    fill = np.array([is_fill(number) for number in numbers])
    usual = np.array([bool(_NINES.fullmatch(f"{number:.10g}")) or number in _WHOLE for number in numbers]) & ~fill
    others = numbers[~usual & ~fill & np.isfinite(numbers)]
    rows, doubtful = fill, dict[float, int]()
    for number, count in Counter(numbers[usual].tolist()).items():
        if others.size and others.min() <= number <= others.max():
            continue
        if others.size and _stands_apart(number, float(others.min()), float(others.max()), is_coordinate):
            rows = rows | (numbers == number)
        else:
            doubtful[number] = count
    return Marked(rows, doubtful)


def _stands_apart(number: float, low: float, high: float, is_coordinate: bool) -> bool:
    if number < 0.0:
        return (low >= 0.0 and not is_coordinate) or low - number > high - low
    return number >= _LEAST_POSITIVE and number - high > _POSITIVE_SPREADS * (high - low)
