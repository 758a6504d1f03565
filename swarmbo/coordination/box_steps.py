"""Steps shared by methods on a box: starts, exchange between neighbours, sums over a part, and reporting a result."""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import BoxOutcome
from swarmbo.coordination.local_functions import LocalFunctions, Received, by_factor
from swarmbo.coordination.messages import Consensus
from swarmbo.coordination.requests import AllReduce, Exchange, Send, Steps, to_factor, to_variable
from swarmbo.coordination.view import BoxView, Copies, LocalView

FEWEST = 16  # random points for the spread of values: too few would give an arbitrary spread


def tell_factors(view: LocalView, numbers: Mapping[str, float], below: float | None = None) -> Steps[dict[str, float]]:
    """Send a number of each own variable, in [0, ``below``), to its factors' owners, and return those received."""
    graph = view.graph
    letters = [
        to_factor(graph, Consensus(f, x, np.array([numbers[x]]))) for x in view.variables for f in graph.factors_of(x)
    ]
    heard = yield Send(letters, [("consensus", f, x) for f in view.factors for x in graph.scope(f)], below)
    return {str(x): float(message.entries[0]) for (_, _, x), message in heard.items()}


def tell_variables(view: BoxView, point: Float[np.ndarray, " n"]) -> Steps[dict[str, float]]:
    """Send each variable's value from its first factor to its owner, and return those of the own variables."""
    graph, place = view.graph, view.place
    letters = [
        to_variable(graph, Consensus(f, x, point[[place[x]]]))
        for f in view.factors
        for x in graph.scope(f)
        if graph.factors_of(x)[0] == f
    ]
    heard = yield Send(letters, [("consensus", graph.factors_of(x)[0], x) for x in view.variables])
    return {str(x): float(message.entries[0]) for (_, _, x), message in heard.items()}


def exchange(view: BoxView, points: Copies) -> Steps[list[Received]]:
    """Let the own factors publish and receive, phase by phase; see :class:`LocalFunctions`."""
    received: list[list[np.ndarray]] = [[] for _ in view.stacks]
    for phase in range(view.functions.n_exchanges):
        rows = zip(view.stacks, points, received, strict=True)
        sums = yield Exchange(view, [view.functions.published(*row) for row in rows], phase)
        for got, summed in zip(received, sums, strict=True):
            got.append(summed)
    return [tuple(phases) for phases in received]


def part_total(view: BoxView, Z: Float[np.ndarray, "m n"]) -> Steps[Float[np.ndarray, " m"]]:
    """Sum of the part's factors at joint points."""
    points = view.take(Z)
    received = yield from exchange(view, points)
    totals = yield AllReduce.of(view, len(Z), view.values(points, received))
    return totals[0]


def settled(view: BoxView, point: Float[np.ndarray, " n"], outcome: BoxOutcome) -> Steps[BoxOutcome]:
    """Send the agreed values to the owners of variables, and add the own factors' values to the outcome."""
    points = view.take(point[None])
    received = yield from exchange(view, points)
    found = by_factor(view.stacks, view.values(points, received))
    values = {factor: float(value[0]) for factor, value in found.items()}
    x = yield from tell_variables(view, point)
    return outcome._replace(x=x, values=values)


def drawn_starts(
    functions: LocalFunctions, variables: Iterable[str], seed: int, n_given: int, n_random: int
) -> Float[np.ndarray, "m n"]:
    """Joint points that are candidates for starts: given ones, then random ones, which every agent can draw.

    Each variable has its own random stream, so the first random points do not depend on ``n_random``. Columns of
    variables that are not named are 0.
    """
    low, high = functions.low, functions.high
    given = np.clip(functions.starts[:n_given], low, high)
    place = {variable: i for i, variable in enumerate(functions.graph.variables)}
    drawn = np.zeros((n_random, len(low)))
    for variable in variables:
        drawn[:, place[variable]] = stream(seed, "starts", variable=variable).random(n_random)
    return np.concatenate([given, low + drawn * (high - low)])


def natural_penalty(values: Float[np.ndarray, " m"], n_given: int) -> float:
    """Spread of a part's values over the squared spread of its box; always above 0, and 1 if all values are equal.

    The first ``n_given`` values are at given starts. These lie where the sum is large and would bias the spread, so
    they count only if the sum is flat at all random points.
    """
    for seen in (values[n_given:], values):
        known = seen[np.isfinite(seen)]
        if len(known) and (spread := float(known.std())) > 4.0 * np.finfo(float).eps * float(np.abs(known).max()):
            return 12.0 * spread  # a uniform variable's variance is 1/12 of its squared side
    return 1.0
