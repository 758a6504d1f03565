"""Bounded gradient ascent of many independent problems side by side."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Climbable = Callable[[Float[np.ndarray, "g m a"]], tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]]

_SUFFICIENT = 1e-4  # share of the rise promised by the gradient that a step must bring (Armijo)
_SHRINK = 0.25
_LARGEST_STEP = 1e10


class Climbed(NamedTuple):
    """The best points (g, m, a), their values (g, m), and the step lengths (g, m) to go on with."""

    X: Float[np.ndarray, "g m a"]
    value: Float[np.ndarray, "g m"]
    step: Float[np.ndarray, "g m"]


def ascend(
    function: Climbable,
    X: Float[np.ndarray, "g m a"],
    low: Float[np.ndarray, "g 1 a"],
    high: Float[np.ndarray, "g 1 a"],
    steps: int,
    tolerance: float = 1e-9,
    first_step: Float[np.ndarray, "g m"] | None = None,
) -> Climbed:
    """Spectral projected gradient ascent, every one of the g x m problems with a step of its own.

    A step goes along the projected gradient, in coordinates scaled by the sides of the box, with the length of Barzilai
    and Borwein; a step that brings too little is shortened and tried again. Values never fall.

    Source: Birgin, Martínez & Raydan 2000 (SPG2, monotone); Barzilai & Borwein 1988.

    Args:
        function: Values (g, m) and gradients (g, m, a) at points (g, m, a).
        X: Where to start, in the box.
        low: Lower corners.
        high: Upper corners.
        steps: Evaluations of the function after the first.
        tolerance: A row of problems is left as it is once none of them moves by more than this share of the box's
            sides. Rows never wait for one another, so what comes out for one does not depend on which others there are.
        first_step: Of an earlier climb of nearly the same functions, in sides of the box per slope; by default a tenth
            of the box along the steepest coordinate. The first step never goes beyond half the box.
    """
    sides = np.where(high > low, high - low, 1.0)
    X = np.ascontiguousarray(X)  # sums along the last axis then run in one order, however many rows there are
    value, gradient = function(X)
    gradient = np.ascontiguousarray(gradient) * sides
    steepest = np.abs(gradient).max(axis=-1)
    steepest = np.maximum(steepest, 1e-300)
    step = 0.1 / steepest if first_step is None else np.minimum(first_step, 0.5 / steepest)
    active: Bool[np.ndarray, "g 1"] = np.ones((len(X), 1), dtype=bool)
    for _ in range(steps):
        trial = np.clip(X + (step[..., None] * gradient) * sides, low, high)
        moved = (trial - X) / sides
        active = active & (np.abs(moved).max(axis=(1, 2), initial=0.0) > tolerance)[:, None]
        if not active.any():
            break
        new_value, new_gradient = function(trial)
        new_gradient = np.ascontiguousarray(new_gradient) * sides
        sufficient = new_value >= value + _SUFFICIENT * (gradient * moved).sum(axis=-1)
        accepted: Bool[np.ndarray, "g m"] = active & sufficient
        curvature = ((gradient - new_gradient) * moved).sum(axis=-1)
        square = (moved**2).sum(axis=-1)
        longer = np.where(curvature > 0.0, square / np.where(curvature > 0.0, curvature, 1.0), 4.0 * step)
        step = np.where(active, np.where(accepted, np.clip(longer, 1e-300, _LARGEST_STEP), _SHRINK * step), step)
        X = np.where(accepted[..., None], trial, X)
        gradient = np.where(accepted[..., None], new_gradient, gradient)
        value = np.where(accepted, new_value, value)
    return Climbed(X, value, step)
