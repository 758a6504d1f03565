"""Steps on a box: starts, exchange between neighbours, sums over a part, and spectral projected gradient ascent.

If agents exchange messages, each factor sends gradients to the owners of its shared variables in every step, and gets
their sums back. Sums over a tree of the part's agents then decide whether the step is accepted or shortened.

Source: Birgin, Martínez & Raydan 2000 (SPG2, monotone); Barzilai & Borwein 1988.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.boundary.rng import stream
from swarmbo.coordination import messages, requests
from swarmbo.coordination.agreement import BoxOutcome
from swarmbo.coordination.part import BoxView, Copies, LocalView, Rows
from swarmbo.graph import BoxFunctions, FactorStack
from swarmbo.graph.box_functions import Climbing, Points, Received, Values, by_factor

FEWEST = 16  # random points for the spread of values: too few would give an arbitrary spread
JointPoints = Float[np.ndarray, "m n"]


def tell_factors(
    view: LocalView, numbers: Mapping[str, float], below: float | None = None
) -> requests.Steps[dict[str, float]]:
    """Send a number in [0, ``below``) for each own variable to its factors' owners; return the received numbers."""
    graph = view.graph
    edges = ((f, x) for x in view.variables for f in graph.factors_of(x))
    outgoing = [requests.to_factor(graph, messages.Consensus(f, x, np.array([numbers[x]]))) for f, x in edges]
    received = yield requests.Send(outgoing, [("consensus", f, x) for f in view.factors for x in graph.scope(f)], below)
    return {str(x): float(message.entries[0]) for (_, _, x), message in received.items()}


def exchange(view: BoxView, points: Copies) -> requests.Steps[list[Received]]:
    """Let own factors publish numbers and receive sums, phase by phase; see :class:`BoxFunctions`."""
    received: list[list[np.ndarray]] = [[] for _ in view.stacks]
    for phase in range(view.functions.n_exchanges):
        rows = zip(view.stacks, points, received, strict=True)
        sums = yield requests.Exchange(view, [view.functions.published(*row) for row in rows], phase)
        for got, summed in zip(received, sums, strict=True):
            got.append(summed)
    return [tuple(phases) for phases in received]


def part_total(view: BoxView, Z: JointPoints) -> requests.Steps[Float[np.ndarray, " m"]]:
    """Sum of the part's factors at joint points."""
    points = view.take(Z)
    received = yield from exchange(view, points)
    totals = yield requests.AllReduce.of(view, len(Z), view.values(points, received))
    return totals[0]


def settled(view: BoxView, point: Float[np.ndarray, " n"], outcome: BoxOutcome) -> requests.Steps[BoxOutcome]:
    """Outcome with the own factors' values, and the own variables' values from the owners of their first factors."""
    graph, points = view.graph, view.take(point[None])
    received = yield from exchange(view, points)
    found = by_factor(view.stacks, view.values(points, received))
    values = {factor: float(value[0]) for factor, value in found.items()}
    edges = ((f, x) for f in view.factors for x in graph.scope(f) if graph.factors_of(x)[0] == f)
    outgoing = [requests.to_variable(graph, messages.Consensus(f, x, point[[view.column_of[x]]])) for f, x in edges]
    arrived = yield requests.Send(outgoing, [("consensus", graph.factors_of(x)[0], x) for x in view.variables])
    x = {str(x): float(message.entries[0]) for (_, _, x), message in arrived.items()}
    return outcome._replace(x=x, values=values)


def drawn_starts(
    functions: BoxFunctions, variables: Iterable[str], seed: int, n_given: int, n_random: int
) -> JointPoints:
    """Starts (m, n), on grids: given joint points, then points that are random in ``variables``, ``low`` elsewhere."""
    low, high = functions.low, functions.high
    column_of = functions.graph.column_of
    drawn = np.zeros((n_random, len(low)))
    for variable in variables:
        drawn[:, column_of[variable]] = stream(seed, "starts", variable=variable).random(n_random)
    starts = np.concatenate([np.clip(functions.starts[:n_given], low, high), low + drawn * (high - low)])
    for variable, levels in functions.levels.items():
        starts[:, column_of[variable]] = levels[np.abs(starts[:, column_of[variable], None] - levels).argmin(axis=1)]
    return starts


def natural_penalty(values: Float[np.ndarray, " m"], n_given: int) -> float:
    """Standard deviation of a part's values, divided by the variance 1/12 of a uniform coordinate; 1 if all are equal.
    Given starts (the first ``n_given``) lie where the sum is large, so they count only if all other values are equal.
    """
    for seen in (values[n_given:], values):
        known = seen[np.isfinite(seen)]
        if len(known) and (spread := float(known.std())) > 4.0 * np.finfo(float).eps * float(np.abs(known).max()):
            return 12.0 * spread  # a uniform variable's variance is 1/12 of its squared side
    return 1.0


Penalty = Callable[[Points, Values, Points], Climbing]  # subtracts a penalty from values and gradients

_STILL = 1e-9  # largest move, in box widths, that ends an ascent
_SUFFICIENT = 1e-4  # share of the rise predicted by the gradient that a step must reach (Armijo)
_SHRINK = 0.25
_LARGEST_STEP = 1e100  # in squared box widths per unit of the outcome, which may be tiny
_NOWHERE = 1e-7  # root of the sum of squared moves, in box widths, that ends polishing
# steps over which `polish` measures the rise of the best sum
_STEPS = 4

Lengths = Float[np.ndarray, "*m"]  # one number for each problem
Polished = tuple[JointPoints, Float[np.ndarray, " m"], Float[np.ndarray, " m"]]


class Climbed(NamedTuple):
    """Best points, their values, step lengths (g, m) to continue with, and values and gradients without penalty."""

    X: Points
    value: Values
    step: Values
    known: Climbing


def climbed_by(functions: BoxFunctions, stack: FactorStack, received: Received) -> Callable[[Points], Climbing]:
    """Function for ``ascend``: values and gradients of a stack's factors at points, given fixed received sums."""
    return lambda X: functions.value_and_gradient(stack, X, received)


def ascend(
    function: Callable[[Points], Climbing],
    X: Points,
    low: Float[np.ndarray, "g 1 a"],
    high: Float[np.ndarray, "g 1 a"],
    steps: int,
    first_step: Values | None = None,
    penalty: Penalty | None = None,
    known: Climbing | None = None,
) -> Climbed:
    """Spectral projected gradient ascent on g x m problems; values never fall. ``steps`` counts evaluations after the
    first; to continue a climb, give its ``Climbed.known``. Rows are independent; each ends once no problem in it moves.
    """
    sides = np.where(high > low, high - low, 1.0)
    X = np.ascontiguousarray(X)  # sums along the last axis then have the same order for any number of rows
    known = function(X) if known is None else known
    value, gradient = known if penalty is None else penalty(X, *known)
    gradient = np.ascontiguousarray(gradient) * sides
    steepest = np.maximum(np.abs(gradient).max(axis=-1), 1e-300)
    step = 0.1 / steepest if first_step is None else np.minimum(first_step, 0.5 / steepest)
    active: Bool[np.ndarray, "g 1"] = np.ones((len(X), 1), dtype=bool)
    for _ in range(steps):
        trial = np.clip(X + (step[..., None] * gradient) * sides, low, high)
        moved = (trial - X) / sides
        active = active & (np.abs(moved).max(axis=(1, 2), initial=0.0) > _STILL)[:, None]
        if not active.any():
            break
        trial_values = function(trial)
        new_value, new_gradient = trial_values if penalty is None else penalty(trial, *trial_values)
        new_gradient = np.ascontiguousarray(new_gradient) * sides
        # Armijo: a step that gains less than this share of the predicted rise is refused, so values never fall
        sufficient = new_value >= value + _SUFFICIENT * (gradient * moved).sum(axis=-1)
        accepted: Bool[np.ndarray, "g m"] = active & sufficient
        curvature = ((gradient - new_gradient) * moved).sum(axis=-1)
        step = np.where(active, _next_step(step, accepted, curvature, (moved**2).sum(axis=-1)), step)
        here = accepted[..., None]
        X, gradient = np.where(here, trial, X), np.where(here, new_gradient, gradient)
        value = np.where(accepted, new_value, value)
        known = np.where(accepted, trial_values[0], known[0]), np.where(here, trial_values[1], known[1])
    return Climbed(X, value, step, known)


def pulled_to(centre: Points, weight: Float[np.ndarray, " g #m a"]) -> Penalty:
    """Penalty of the augmented Lagrangian of factors, phi(x) - weight/2 |x - centre|², with centre z - u (Boyd et al.
    2011, section 3.1.1, in scaled form; Bardou et al. 2024, eq. 10).
    """

    def lagrangian(X: Points, value: Values, gradient: Points) -> Climbing:
        gap = X - centre
        return value - 0.5 * (weight * gap**2).sum(axis=-1), gradient - weight * gap

    return lagrangian


def polish(
    view: BoxView, Z: JointPoints, steps: int, tolerance: float = _NOWHERE, least: float = 0.0
) -> requests.Steps[Polished]:
    """Ascend from joint points; return the points and their sums after and before. It ends if the second of two
    accepted steps is at most ``tolerance`` box widths, or four raise the best sum by less than ``least`` of its rise.
    """
    low, high, sides = view.functions.low, view.functions.high, view.functions.sides
    values, slope = yield from _evaluated(view, Z)
    value, square = yield requests.AllReduce.of(view, len(Z), values, view.by_variable(slope**2))
    first_value, reached = value, [max(value.max(), -1e200)]
    step, was_accepted = 0.1 / np.maximum(np.sqrt(square), 1e-300), np.zeros(len(Z), dtype=bool)
    for _ in range(steps):
        trial = np.clip(Z + step[:, None] * slope * sides, low, high)
        moved = (trial - Z) / sides
        values, new_slope = yield from _evaluated(view, trial)
        sums = map(view.by_variable, (slope * moved, (slope - new_slope) * moved, moved**2))
        new_value, promised, curvature, square = yield requests.AllReduce.of(view, len(Z), values, *sums)
        accepted = new_value >= value + _SUFFICIENT * promised
        step = _next_step(step, accepted, curvature, square)
        Z, slope = (np.where(accepted[:, None], new, old) for new, old in ((trial, Z), (new_slope, slope)))
        value = np.where(accepted, new_value, value)
        limit = np.where(accepted & was_accepted, tolerance, min(tolerance, _NOWHERE))
        reached.append(max(value.max(), -1e200))  # the difference of two infinite sums is NaN
        is_done = len(reached) > _STEPS and reached[-1] - reached[-1 - _STEPS] < least * (reached[-1] - reached[0])
        if is_done or (square <= limit**2).all():
            break
        was_accepted = accepted
    return Z, value, first_value


def _evaluated(view: BoxView, Z: JointPoints) -> requests.Steps[tuple[Rows, JointPoints]]:
    """Values of own factors at joint points, and gradients (m, n) of the part's sum, per box width."""
    functions, points = view.functions, view.take(Z)
    received = yield from exchange(view, points)
    both = [functions.value_and_gradient(*row) for row in zip(view.stacks, points, received, strict=True)]
    # if neighbours matter, a factor climbs a model, whose value is not the factor's term of the sum
    values = view.values(points, received) if functions.n_exchanges else [value for value, _ in both]
    slope = yield requests.Reduce(view, messages.Slope, [gradient for _, gradient in both], len(Z))
    return values, slope * view.functions.sides


def _next_step(step: Lengths, accepted: Bool[np.ndarray, "*m"], curvature: Lengths, square: Lengths) -> Lengths:
    """Step length of Barzilai and Borwein after an accepted step; a shorter length after a refused one."""
    # the length is undefined where the function curves upwards: the step then grows
    longer = np.where(curvature > 0.0, square / np.where(curvature > 0.0, curvature, 1.0), 4.0 * step)
    return np.where(accepted, np.clip(longer, 1e-300, _LARGEST_STEP), _SHRINK * step)
