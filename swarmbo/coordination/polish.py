"""Climbing from a joint point by messages between neighbours: a variable moves along the sum of its factors' slopes.

Every step costs one message from each factor to the owners of its variables (slopes), one back (the new values), and
one up and down a tree of each part's agents (the sum of values, which accepts or shortens the step).
"""

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.local_functions import LocalFunctions, exchange
from swarmbo.coordination.parts import Parts

_SUFFICIENT = 1e-4
_SHRINK = 0.25


def part_values(functions: LocalFunctions, parts: Parts, Z: Float[np.ndarray, "m n"]) -> Float[np.ndarray, "parts m"]:
    """The sum of each part's factors at joint points."""
    points = [stack.take(Z) for stack in parts.stacks]
    received = exchange(functions, parts.stacks, points)
    return parts.sums([functions.value(s, X, got) for s, X, got in zip(parts.stacks, points, received, strict=True)])


def part_gradients(
    functions: LocalFunctions, parts: Parts, Z: Float[np.ndarray, "m n"]
) -> tuple[Float[np.ndarray, "parts m"], Float[np.ndarray, "m n"]]:
    """The sum of each part's factors at joint points, and its slope by every variable as the factors see it."""
    points = [stack.take(Z) for stack in parts.stacks]
    received = exchange(functions, parts.stacks, points)
    both = [
        functions.value_and_gradient(stack, X, got)
        for stack, X, got in zip(parts.stacks, points, received, strict=True)
    ]
    if functions.n_exchanges:  # what is climbed is a model then, and its value not the sum's
        values = [functions.value(s, X, got) for s, X, got in zip(parts.stacks, points, received, strict=True)]
    else:
        values = [value for value, _ in both]
    return parts.sums(values), parts.scatter([gradient for _, gradient in both])


def polish(
    functions: LocalFunctions, parts: Parts, Z: Float[np.ndarray, "m n"], steps: int, tolerance: float = 1e-7
) -> tuple[Float[np.ndarray, "m n"], Float[np.ndarray, "parts m"], int]:
    """Spectral projected gradient ascent on the joint point, with one step length per part and start.

    Args:
        functions: What to climb.
        parts: Of its graph.
        Z: Joint points in the box.
        steps: At most this many.
        tolerance: Stop when no coordinate moves by more than this share of its side.

    Returns:
        The points, the sum of each part there, and the number of steps taken.
    """
    sides = np.where(functions.high > functions.low, functions.high - functions.low, 1.0)
    value, slope = part_gradients(functions, parts, Z)
    slope = slope * sides
    steepest = _by_part(parts, np.abs(slope), np.maximum)
    step = 0.05 / np.maximum(steepest, 1e-300)
    taken = 0
    for _ in range(steps):
        taken += 1
        trial = np.clip(Z + step.T[:, parts.of_variable] * slope * sides, functions.low, functions.high)
        moved = (trial - Z) / sides
        if np.abs(moved).max(initial=0.0) <= tolerance:
            break
        new_value, new_slope = part_gradients(functions, parts, trial)
        new_slope = new_slope * sides
        accepted = new_value >= value + _SUFFICIENT * _by_part(parts, slope * moved, np.add)
        curvature = _by_part(parts, (slope - new_slope) * moved, np.add)
        square = _by_part(parts, moved**2, np.add)
        longer = np.where(curvature > 0.0, square / np.where(curvature > 0.0, curvature, 1.0), 4.0 * step)
        step = np.where(accepted, np.clip(longer, 1e-300, 1e10), _SHRINK * step)
        keep = accepted.T[:, parts.of_variable]
        Z, slope, value = (
            np.where(keep, trial, Z),
            np.where(keep, new_slope, slope),
            np.where(accepted, new_value, value),
        )
    return Z, value, taken


def _by_part(parts: Parts, terms: Float[np.ndarray, "m n"], operation: np.ufunc) -> Float[np.ndarray, "parts m"]:
    out = np.zeros((parts.count, len(terms)))
    operation.at(out, parts.of_variable, terms.T)
    return out
