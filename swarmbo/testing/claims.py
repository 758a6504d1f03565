"""Claims that hold also where Python runs without its assert statements."""

from typing import Any

import numpy as np


def claim(holds: object, otherwise: str) -> None:
    """Refuse a part that does not hold to a claim.

    Args:
        holds: Whether it does.
        otherwise: What is wrong if not.

    Raises:
        AssertionError: If not.
    """
    if not holds:
        raise AssertionError(otherwise)


def claim_offers(part: object, *names: str) -> None:
    """Refuse a part that lacks attributes or methods."""
    for name in names:
        claim(hasattr(part, name), f"{type(part).__name__} has no {name}")


def are_equal(one: Any, other: Any) -> bool:
    """Whether two nests of tables, sequences and arrays are equal to the bit, NaN to NaN."""
    try:
        np.testing.assert_equal(one, other)
    except AssertionError:
        return False
    return True


def are_close(one: Any, other: Any, tolerance: float = 1e-6) -> bool:
    """Whether arrays are equal up to rounding, against the largest entry."""
    one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if one.shape != other.shape:
        return False
    scale = max(1.0, float(np.abs(other).max(initial=0.0)))
    return bool((np.abs(one - other) <= tolerance * scale).all())
