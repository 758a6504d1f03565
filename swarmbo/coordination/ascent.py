"""Bounded gradient ascent of many independent problems side by side."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

Climbed = Callable[[Float[np.ndarray, "g m a"]], tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]]

_SUFFICIENT = 1e-4  # share of the rise promised by the gradient that a step must bring (Armijo)
_SHRINK = 0.25
_LARGEST_STEP = 1e10


def ascend(
    function: Climbed,
    X: Float[np.ndarray, "g m a"],
    low: Float[np.ndarray, "g 1 a"],
    high: Float[np.ndarray, "g 1 a"],
    steps: int,
    tolerance: float = 1e-9,
) -> tuple[Float[np.ndarray, "g m a"], Float[np.ndarray, "g m"]]:
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
        tolerance: Stop when no problem moved by more than this share of the box's sides.

    Returns:
        The best points and their values.
    """
    sides = np.where(high > low, high - low, 1.0)
    value, gradient = function(X)
    gradient = gradient * sides
    steepest = np.abs(gradient).max(axis=-1)
    step = 0.1 / np.maximum(steepest, 1e-300)
    for _ in range(steps):
        trial = np.clip(X + (step[..., None] * gradient) * sides, low, high)
        moved = (trial - X) / sides
        if np.abs(moved).max(initial=0.0) <= tolerance:
            break
        new_value, new_gradient = function(trial)
        new_gradient = new_gradient * sides
        accepted: Bool[np.ndarray, "g m"] = new_value >= value + _SUFFICIENT * (gradient * moved).sum(axis=-1)
        curvature = ((gradient - new_gradient) * moved).sum(axis=-1)
        square = (moved**2).sum(axis=-1)
        longer = np.where(curvature > 0.0, square / np.where(curvature > 0.0, curvature, 1.0), 4.0 * step)
        step = np.where(accepted, np.clip(longer, 1e-300, _LARGEST_STEP), _SHRINK * step)
        X = np.where(accepted[..., None], trial, X)
        gradient = np.where(accepted[..., None], new_gradient, gradient)
        value = np.where(accepted, new_value, value)
    return X, value
