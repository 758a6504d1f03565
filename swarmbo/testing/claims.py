"""Claims that are checked even if Python ignores assert statements; messages have the values got and wanted."""

import reprlib
from typing import Any, NoReturn

import numpy as np


def claim(holds: object, what: str, got: object, wanted: object) -> None:
    """Refuse a part that violates a claim; the message has the subject ``what``, the result, and the required one."""
    if not holds:
        refuse(what, got, wanted)


def refuse(what: str, got: object, wanted: object) -> NoReturn:
    """Raise the error of :func:`claim`."""
    raise AssertionError(f"{what}: got {_in_words(got)}; wanted {_in_words(wanted)}")


def claim_offers(part: object, *names: str) -> None:
    """Refuse a part that lacks attributes or methods."""
    missing = [name for name in names if not hasattr(part, name)]
    claim(not missing, type(part).__name__, f"no {', '.join(missing)}", f"an object with {', '.join(names)}")


def claim_equal(got: Any, expected: Any, what: str, wanted: str) -> None:
    """Refuse nested tables, sequences and arrays that are not bit-identical; NaN equals NaN."""
    try:
        np.testing.assert_equal(got, expected)
    except AssertionError as error:
        refuse(what, " ".join(str(error).split())[:300], wanted)


def claim_close(got: Any, expected: Any, what: str, wanted: str) -> None:
    """Refuse numbers that differ beyond rounding, relative to the largest finite expected one or 1. NaN equals NaN."""
    actual, wanted_values = np.asarray(got, dtype=float), np.asarray(expected, dtype=float)
    claim(actual.shape == wanted_values.shape, what, f"shape {actual.shape}", f"shape {wanted_values.shape}")
    scale = max(1.0, float(np.abs(wanted_values[np.isfinite(wanted_values)]).max(initial=0.0)))
    differ = (actual != wanted_values) & ~(np.isnan(actual) & np.isnan(wanted_values))  # -inf equals -inf
    differences = np.subtract(actual, wanted_values, where=differ, out=np.zeros(actual.shape))
    furthest = float(np.abs(differences).max(initial=0.0))
    claim(furthest <= 1e-6 * scale, what, f"a difference of {furthest:.3g}", wanted)


def claim_point(chosen: Any, low: np.ndarray, high: np.ndarray, where: str) -> np.ndarray:
    """Return the chosen point as an array; refuse a point outside the box."""
    point = np.asarray(chosen, dtype=float)
    claim(point.shape == low.shape, f"{where}: the shape of the point", point.shape, low.shape)
    inside = np.isfinite(point).all() and (point >= low - 1e-9).all() and (point <= high + 1e-9).all()
    claim(inside, f"{where}: the point", point.tolist(), f"numbers from {low.tolist()} to {high.tolist()}")
    return point


def _in_words(value: object) -> str:
    return value if isinstance(value, str) else reprlib.repr(value)
