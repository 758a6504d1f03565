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


def units(
    totals: Float[np.ndarray, " t"], factors: Float[np.ndarray, "t k"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], bool]:
    """Offset and scale of each factor's outcomes, and whether any outcomes showed theirs.

    Factors observed alone have each their own. Totals need a common one: their own standard deviation or, where they
    do not show it, that of the sum of independent factors. What is left of the mean of the totals is shared out evenly
    among factors that were not observed.

    Args:
        totals: Outcomes of the sum; NaN where not observed.
        factors: Outcomes by factor; NaN where not observed.
    """
    k = factors.shape[1]
    alone = [standardisation(column[~np.isnan(column)]) for column in factors.T]
    offsets, scales = np.array([part[0] for part in alone]), np.array([part[1] for part in alone])
    shown = [part[2] for part in alone]
    offset, scale, is_shown = standardisation(totals[~np.isnan(totals)])
    if np.isnan(totals).all():
        return offsets, scales, any(shown)
    unseen = np.isnan(factors).all(axis=0)
    if unseen.any():
        offsets[unseen] = (offset - offsets[~unseen].sum()) / unseen.sum()
    if not is_shown:
        largest = scales[shown].max(initial=0.0)
        scale = largest * float(np.sqrt(((scales[shown] / largest) ** 2).sum())) if largest else 1.0
    return offsets, np.full(k, scale), is_shown or any(shown)
