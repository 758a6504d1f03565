"""Steps that methods on a box have in common: what neighbours publish, sums over a part, and how a result is told."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.agreement import BoxOutcome
from swarmbo.coordination.local_functions import Received, by_factor
from swarmbo.coordination.messages import Consensus
from swarmbo.coordination.requests import AllReduce, Exchange, Send, Steps, to_factor, to_variable
from swarmbo.coordination.view import BoxView, Copies, LocalView


def tell_factors(view: LocalView, numbers: Mapping[str, float], below: float | None = None) -> Steps[dict[str, float]]:
    """Owners of variables tell those of factors a number; what comes back is that of the own factors' variables.

    Args:
        view: Own factors and variables.
        numbers: Of own variables.
        below: They are at least 0 and less than this; None: any.
    """
    graph = view.graph
    letters = [
        to_factor(graph, Consensus(f, x, np.array([numbers[x]]))) for x in view.variables for f in graph.factors_of(x)
    ]
    heard = yield Send(letters, [("consensus", f, x) for f in view.factors for x in graph.scope(f)], below)
    return {str(x): float(message.entries[0]) for (_, _, x), message in heard.items()}


def tell_variables(view: BoxView, point: Float[np.ndarray, " n"]) -> Steps[dict[str, float]]:
    """The first factor of each variable tells its owner the value; what comes back is that of the own variables."""
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
    """The sum of the part's factors at joint points."""
    points = view.take(Z)
    received = yield from exchange(view, points)
    totals = yield AllReduce.of(view, len(Z), view.values(points, received))
    return totals[0]


def settled(view: BoxView, point: Float[np.ndarray, " n"], outcome: BoxOutcome) -> Steps[BoxOutcome]:
    """Tell the owners of variables what was agreed, and note the own factors' values there."""
    points = view.take(point[None])
    received = yield from exchange(view, points)
    found = by_factor(view.stacks, view.values(points, received))
    values = {factor: float(value[0]) for factor, value in found.items()}
    x = yield from tell_variables(view, point)
    return outcome._replace(x=x, values=values)
