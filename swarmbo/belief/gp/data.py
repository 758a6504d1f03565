"""Checks of points and outcomes at the boundary of a belief."""

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.errors import ShapeError


def checked_points(X: ArrayLike, n_dims: int) -> Float[np.ndarray, "m d"]:
    """A copy of points (m, d) as finite floats."""
    points = np.array(X, dtype=float)
    if points.ndim != 2 or points.shape[1] != n_dims:
        raise ShapeError(f"X: got shape {points.shape}; wanted (m, {n_dims}), one point a row")
    if not (finite := np.isfinite(points).all(axis=1)).all():
        row = int(np.argmin(finite))
        raise ShapeError(f"X[{row}]: got {points[row].tolist()}; wanted finite coordinates")
    return points


def checked_outcomes(y: ArrayLike, n_points: int) -> Float[np.ndarray, " n"]:
    """A copy of outcomes as finite floats below 1e60 in size, one a point."""
    outcomes = np.array(y, dtype=float)
    if outcomes.shape != (n_points,):
        raise ShapeError(f"y: got shape {outcomes.shape} for {n_points} points; wanted ({n_points},)")
    wanted = f"a finite number below {LARGEST_OUTCOME:g} in size; leave failed measurements out"
    _refuse("y", outcomes, ~(np.abs(outcomes) < LARGEST_OUTCOME), wanted)  # a NaN compares false
    return outcomes


def checked_partial_outcomes(name: str, y: ArrayLike | None, shape: tuple[int, ...]) -> Float[np.ndarray, "..."]:
    """A copy of outcomes as floats; NaN was not observed, None: none was."""
    if y is None:
        return np.full(shape, np.nan)
    outcomes = np.array(y, dtype=float)
    if outcomes.shape != shape:
        raise ShapeError(f"{name}: got shape {outcomes.shape}; wanted {shape}")
    wanted = f"a number below {LARGEST_OUTCOME:g} in size, or NaN where a measurement failed"
    _refuse(name, outcomes, ~np.isnan(outcomes) & ~(np.abs(outcomes) < LARGEST_OUTCOME), wanted)
    return outcomes


def checked_noise(
    noise_variance: ArrayLike | float | None, n_points: int, n_factors: int = 1
) -> Float[np.ndarray, "n c"]:
    """Noise variances (n, 1 + k) that are known, the total's first; NaN where they are not.

    One may be given for all points; one for each (n,), of all its outcomes; one for each factor's (n, k); or of totals
    too (n, 1 + k). NaN is not known, None: none is.
    """
    given = np.array(np.nan if noise_variance is None else noise_variance, dtype=float)
    n, k = n_points, n_factors
    if given.shape not in ((), (n,), (n, k), (n, 1 + k)):
        wanted = f"({n},)" if k == 1 else f"({n},), ({n}, {k}) or ({n}, {1 + k})"
        raise ShapeError(f"noise_variance: got shape {given.shape} for {n} points; wanted {wanted}")
    refused = ~np.isnan(given) & ~((given >= 0.0) & (given < LARGEST_OUTCOME**2))
    _refuse("noise_variance", given, refused, "a finite number >= 0, or NaN for the fitted one")
    if given.ndim < 2:
        return np.broadcast_to(given.reshape(-1, 1), (n, 1 + k)).copy()
    return given if given.shape[1] == 1 + k else np.column_stack([np.full(n, np.nan), given])


def checked_rounds(rounds: ArrayLike | float, n_points: int) -> Float[np.ndarray, " n"]:
    """A copy of rounds as finite floats, one a point; one may be given for all."""
    rounds = np.array(rounds, dtype=float)
    if rounds.shape not in ((), (n_points,)):
        raise ShapeError(f"rounds: got shape {rounds.shape} for {n_points} points; wanted ({n_points},)")
    rounds = np.full(n_points, rounds)
    _refuse("rounds", rounds, ~np.isfinite(rounds), "a finite number of rounds")
    return rounds


def checked_evaluations(
    X: ArrayLike,
    y: ArrayLike | None,
    totals: ArrayLike | None,
    factors: ArrayLike | None,
    noise_variance: ArrayLike | float | None,
    n_dims: int,
    n_factors: int,
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, " n"], Float[np.ndarray, "n k"], Float[np.ndarray, "n c"]]:
    """Copies of points, totals (n,), outcomes by factor (n, k) and noise variances (see ``checked_noise``).

    ``y`` holds totals or outcomes by factor, as the number of axes says; None where the next two are given.
    """
    points = checked_points(X, n_dims)
    if y is not None:
        if totals is not None or factors is not None:
            raise ShapeError("y: got it together with totals or factors; wanted either y, or totals and factors")
        totals, factors = (y, None) if np.ndim(y) == 1 else (None, y)
    return (
        points,
        checked_partial_outcomes("totals", totals, (len(points),)),
        checked_partial_outcomes("factors", factors, (len(points), n_factors)),
        checked_noise(noise_variance, len(points), n_factors),
    )


def _refuse(name: str, given: Float[np.ndarray, "..."], refused: Bool[np.ndarray, "..."], wanted: str) -> None:
    if refused.any():
        place = tuple(np.argwhere(refused)[0].tolist())
        at = "".join(f"[{index}]" for index in place)
        raise ShapeError(f"{name}{at}: got {given[place]}; wanted {wanted}")
