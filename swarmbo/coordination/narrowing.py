"""Joint points assembled by max-sum from a few values of each variable, which approach the best so far.

No random joint point suits more than a few of very many factors, so screening whole points gains nothing. First every
variable has the same lattice over its side of the box, and its coordinates of given points. The lattice includes both
ends, as the unexplored edge is often best. On each further level it has its last value, ever nearer neighbours on
either side, and at first some random values, which may lead to another maximum. A level is one table a factor, and some
rounds of messages.
"""

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.coordination.box_steps import exchange
from swarmbo.coordination.methods.max_sum import MaxSum
from swarmbo.coordination.refinement import coarse_values, tabulated
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.view import BoxView

MOST = 17  # values of a variable on the first level; fewer were found to miss the maximum more often
_GIVEN = 3  # of them from given points, at most a quarter
_LEVELS = (
    (0.5, 4),
    (0.3, 4),
    (0.1, 0),
)  # distance of neighbours as a share of the lattice's spacing, and number of random values
_FIRST, _LATER = MaxSum(rounds=50), MaxSum(rounds=20)  # choices between maxima take more rounds than those within one


def narrowed(view: BoxView, seed: int, n_values: int) -> Steps[Float[np.ndarray, "m n"]]:
    """Joint points assembled on each level, the last first, then given points; ``n_values`` is at least 7."""
    low, high, graph = view.functions.low, view.functions.high, view.graph
    given = np.clip(view.functions.starts[: min(_GIVEN, n_values // 4)], low, high)
    n_lattice = n_values - len(given)
    spacing = (high - low) / (n_lattice - 1)
    columns = [view.place[variable] for variable in graph.variables]
    rng = stream(seed, "starts", variable=graph.variables[0])
    pool = coarse_values(low, high, given, n_lattice).T
    out = [(yield from put_together(view, pool, _FIRST, rough=True))]
    for share, n_random in _LEVELS:
        x = out[0]
        drawn = np.broadcast_to(x, (n_random, len(x))).copy()
        drawn[:, columns] = rng.random((n_random, len(columns)))
        drawn[:, columns] = low[columns] + drawn[:, columns] * (high - low)[columns]
        near = np.clip(x + share * np.array([[0.0], [-1.0], [1.0]]) * spacing, low, high)
        pool = np.concatenate([near, drawn])
        out.insert(0, (yield from put_together(view, pool, _LATER, rough=True)))
    return np.concatenate([np.array(out), given])


def put_together(
    view: BoxView, pool: Float[np.ndarray, "c n"], method: MaxSum, *, rough: bool = False
) -> Steps[Float[np.ndarray, " n"]]:
    """Assemble a point from the joint points' values of each variable; neighbours' numbers are those at the first
    point.
    """
    graph, out = view.graph, pool[0].copy()
    received = yield from exchange(view, view.take(pool[:1]))
    built = yield from tabulated(view, pool.T, received, rough=rough)
    sizes = dict.fromkeys(graph.variables, len(pool))
    found = yield from method.flooded(view, built, sizes, 0.0 if graph.is_forest else method.damping)
    columns = [view.place[variable] for variable in graph.variables]
    out[columns] = pool[found.best, columns]
    return out
