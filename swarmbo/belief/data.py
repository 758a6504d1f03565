"""Checks of points and outcomes at the boundary of a belief."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.errors import ShapeError

_LARGEST_OUTCOME = 1e60  # beyond it squares of standardised outcomes may leave float64


def checked_points(X: ArrayLike, n_dims: int) -> Float[np.ndarray, "m d"]:
    """A copy of points as floats.

    Args:
        X: Points, one a row.
        n_dims: Number of coordinates d.

    Raises:
        ShapeError: If the shape is not (m, d), or a coordinate is not finite; it names the row.
    """
    points = np.array(X, dtype=float)
    if points.ndim != 2 or points.shape[1] != n_dims:
        raise ShapeError(f"X: got shape {points.shape}; wanted (m, {n_dims}), one point a row")
    if not (finite := np.isfinite(points).all(axis=1)).all():
        row = int(np.argmin(finite))
        raise ShapeError(f"X[{row}]: got {points[row].tolist()}; wanted finite coordinates")
    return points


def checked_outcomes(y: ArrayLike, n_points: int) -> Float[np.ndarray, " n"]:
    """A copy of outcomes as floats.

    Args:
        y: One a point.
        n_points: Number of points.

    Raises:
        ShapeError: If there is not one a point, or one is not finite or beyond 1e60; it names the row.
    """
    outcomes = np.array(y, dtype=float)
    if outcomes.shape != (n_points,):
        raise ShapeError(f"y: got shape {outcomes.shape} for {n_points} points; wanted ({n_points},)")
    if not (usable := np.abs(outcomes) < _LARGEST_OUTCOME).all():  # a NaN compares false
        row = int(np.argmin(usable))
        raise ShapeError(
            f"y[{row}]: got {outcomes[row]}; wanted a finite number below {_LARGEST_OUTCOME:g} in size; "
            "leave failed measurements out"
        )
    return outcomes
