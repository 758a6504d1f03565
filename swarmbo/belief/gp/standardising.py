"""The unit in which a belief reckons outcomes."""

import numpy as np
from jaxtyping import Float

_SCALE_FLOOR = 1e-60  # below it the square of the scale leaves float64
_EPSILON = float(np.finfo(float).eps)


def standardisation(y: Float[np.ndarray, " n"]) -> tuple[float, float, bool]:
    """Offset and scale with y = offset + scale z, where z has mean 0 and standard deviation 1.

    Outcomes that are constant up to rounding, and a single outcome, do not show their scale: it is 1 then, in the
    unit of the outcome.

    Args:
        y: Outcomes.

    Returns:
        The offset (0 without outcomes), the scale, and whether the outcomes showed it.
    """
    largest = float(np.abs(y).max(initial=0.0))
    if largest == 0.0:
        return 0.0, 1.0, False
    share = y / largest  # the mean and the squares of large outcomes would overflow
    offset = largest * float(share.mean())
    std = float(share.std())
    if std <= 64.0 * _EPSILON or std * largest < _SCALE_FLOOR:
        return offset, 1.0, False
    return offset, largest * std, True
