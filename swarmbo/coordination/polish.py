"""Climbing from joint points by messages between neighbours: a variable moves along the sum of its factors' slopes.

Every step costs one message from each factor to the owners of its shared variables (slopes), one back (their sum), and
one up and down a tree of the part's agents (sums that accept or shorten the step).
"""

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.box_steps import exchange
from swarmbo.coordination.messages import Slope
from swarmbo.coordination.requests import AllReduce, Reduce, Steps
from swarmbo.coordination.view import BoxView

_SUFFICIENT = 1e-4  # share of the rise promised by the slope that a step must bring (Armijo)
_SHRINK = 0.25
_LARGEST_STEP = 1e10
_NOWHERE = 1e-7  # sides of the box
_STEPS = 4  # that are looked back on

Looked = tuple[list[Float[np.ndarray, "_g m"]], Float[np.ndarray, "m n"]]
Polished = tuple[Float[np.ndarray, "m n"], Float[np.ndarray, " m"], Float[np.ndarray, " m"]]


def polish(
    view: BoxView, Z: Float[np.ndarray, "m n"], steps: int, tolerance: float = _NOWHERE, least: float = 0.0
) -> Steps[Polished]:
    """Spectral projected gradient ascent on joint points of a part, each with a step length of its own.

    The sum at a point never falls: a step that brings too little is shortened and tried again.

    Source: Birgin, Martínez & Raydan 2000 (SPG2, monotone); Barzilai & Borwein 1988.

    Args:
        view: Of the part.
        Z: Joint points in the box.
        steps: At most this many.
        tolerance: Stop when no point moves by more than this length, in sides of the box, in a step that brings enough
            and is as long as the one before it says; the first step's length, or a shortened one's, tells nothing.
        least: Stop too when four steps have raised the best sum by less than this share of all that it rose.

    Returns:
        The points, and the part's sum there after and before.
    """
    low, high, sides = view.functions.low, view.functions.high, view.sides
    values, slope = yield from _look(view, Z)
    value, square = yield AllReduce.of(view, len(Z), values, view.by_variable(slope**2))
    before, reached = value, [value.max()]
    step, is_told = 0.1 / np.maximum(np.sqrt(square), 1e-300), np.zeros(len(Z), dtype=bool)
    for _ in range(steps):
        trial = np.clip(Z + step[:, None] * slope * sides, low, high)
        moved = (trial - Z) / sides
        values, new_slope = yield from _look(view, trial)
        sums = map(view.by_variable, (slope * moved, (slope - new_slope) * moved, moved**2))
        new_value, promised, curvature, square = yield AllReduce.of(view, len(Z), values, *sums)
        accepted = new_value >= value + _SUFFICIENT * promised
        longer = np.where(curvature > 0.0, square / np.where(curvature > 0.0, curvature, 1.0), 4.0 * step)
        step = np.where(accepted, np.clip(longer, 1e-300, _LARGEST_STEP), _SHRINK * step)
        keep = accepted[:, None]
        Z, slope, value = (
            np.where(keep, trial, Z),
            np.where(keep, new_slope, slope),
            np.where(accepted, new_value, value),
        )
        little = np.where(accepted & is_told, tolerance, min(tolerance, _NOWHERE))
        reached.append(value.max())
        is_done = len(reached) > _STEPS and reached[-1] - reached[-1 - _STEPS] < least * (reached[-1] - reached[0])
        if is_done or (square <= little**2).all():
            break
        is_told = accepted
    return Z, value, before


def _look(view: BoxView, Z: Float[np.ndarray, "m n"]) -> Steps[Looked]:
    """The own factors' values at joint points, and the slopes of the part's sum by variable, in sides of the box."""
    functions, points = view.functions, view.take(Z)
    received = yield from exchange(view, points)
    both = [functions.value_and_gradient(*row) for row in zip(view.stacks, points, received, strict=True)]
    # where neighbours matter, what a factor climbs is a model, and its value not its term of the sum
    values = view.values(points, received) if functions.n_exchanges else [value for value, _ in both]
    slope = yield Reduce(view, Slope, [gradient for _, gradient in both], len(Z))
    return values, slope * view.sides
