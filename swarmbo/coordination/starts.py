"""Joint points to start from, and what their values say of the scale of a sum."""

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.rng import stream
from swarmbo.coordination.local_functions import LocalFunctions

FEWEST = 16  # random points by which the spread of values is judged: the spread of one is 0, of a few anything


def joint_starts(
    functions: LocalFunctions, variables: Iterable[str], seed: int, n_given: int, n_random: int
) -> Float[np.ndarray, "m n"]:
    """Joint points that are looked at for starts: the given ones, then random ones that everyone can draw.

    Args:
        functions: For the box, and the points that are given.
        variables: Only their columns are drawn; others are 0.
        seed: Of the draws, one stream for each variable.
        n_given: Most of the given ones.
        n_random: How many random ones; the first ones are the same, however many there are.
    """
    low, high = functions.low, functions.high
    given = np.clip(functions.starts[:n_given], low, high)
    place = {variable: i for i, variable in enumerate(functions.graph.variables)}
    drawn = np.zeros((n_random, len(low)))
    for variable in variables:
        drawn[:, place[variable]] = stream(seed, "starts", variable=variable).random(n_random)
    return np.concatenate([given, low + drawn * (high - low)])


def natural_penalty(values: Float[np.ndarray, " m"], n_given: int) -> float:
    """The spread of a part's values over the squared spread of its box, whatever their unit.

    Args:
        values: At the starts that were given, then at random points of the box.
        n_given: How many were given. They lie where the sum is large and would bias the spread, so they count only
            where it is flat at all random points.

    Returns:
        Above 0: 1 where every value is the same, for then any penalty will do.
    """
    for seen in (values[n_given:], values):
        known = seen[np.isfinite(seen)]
        if len(known) and (spread := float(known.std())) > 4.0 * np.finfo(float).eps * float(np.abs(known).max()):
            return 12.0 * spread  # a uniform variable's variance is 1/12 of its squared side
    return 1.0
