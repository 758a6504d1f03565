"""Messages from factors to their variables: the kernel of max-sum, for a group of factors of equal shape."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.tables import Table

Messages = Float[np.ndarray, "n d"]


def factor_messages(tables: Table, incoming: Sequence[Messages]) -> list[Messages]:
    """For every factor and each of its variables: the best the factor can do, given that variable's value.

    r_k(x_k) = max over the other variables of [F(x) + sum over j != k of q_j(x_j)] (Farinelli et al. 2008; facts of
    DEC-HBO, step 2). A table over x_1 … x_a is read as x_1 against all others: one pass gives r_1 and the maximum over
    x_1, a table of one axis less, on which the rest recurses. Additions are taken in this one order, so the numba form
    gives the same bits.

    Args:
        tables: Tables of n factors, (n, d_1, …, d_a).
        incoming: For each axis k the variables' messages (n, d_k).

    Returns:
        For each axis k the messages (n, d_k), not normalised.
    """
    n = len(tables)
    outgoing: list[Messages] = []
    rest = tables
    for axis in range(len(incoming) - 1):
        others = _outer_sum(incoming[axis + 1 :])
        rest = rest.reshape(n, incoming[axis].shape[1], -1)
        outgoing.append((rest + others[:, None, :]).max(axis=2))
        rest = (rest + incoming[axis][:, :, None]).max(axis=1)
    outgoing.append(rest.reshape(n, -1).copy())
    return outgoing


def _outer_sum(messages: Sequence[Messages]) -> Messages:
    """All sums of one entry from each message: (n, product of the d_k)."""
    summed = messages[0]
    for message in messages[1:]:
        summed = (summed[:, :, None] + message[:, None, :]).reshape(len(summed), -1)
    return summed
