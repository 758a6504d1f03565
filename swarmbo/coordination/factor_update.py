"""Messages from factors to their variables: the kernel of max-sum, for a group of factors of equal shape."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.coordination.tables import Table

Messages = Float[np.ndarray, "n d"]

# (tables (n, d, m), along (n, d), others (n, m)) -> max of tables + others over m, max of tables + along over d
OnePass = Callable[[Table, Messages, Messages], tuple[Messages, Messages]]

COMPILED_FROM = 2**24  # entries to be read in all, about 50 ms in NumPy; loading numba takes about a second, once


def one_pass_for(n_entries: int) -> OnePass:
    """The form to use when so many table entries are going to be read: both give the same bits."""
    if n_entries < COMPILED_FROM:
        return numpy_one_pass
    from swarmbo.coordination.factor_update_numba import numba_one_pass  # late: numba is slow to load

    return numba_one_pass


def factor_messages(tables: Table, incoming: Sequence[Messages], one_pass: OnePass | None = None) -> list[Messages]:
    """For every factor and each of its variables: the best the factor can do, given that variable's value.

    r_k(x_k) = max over the other variables of [F(x) + sum over j != k of q_j(x_j)] (Hoang et al. 2018, eq. of
    m_{I->i}). A table over x_1 … x_a is read as x_1 against all others: one pass gives r_1 and the maximum over x_1, a
    table of one axis less, on which the rest recurses. Additions are taken in this one order.

    Args:
        tables: Tables of n factors, (n, d_1, …, d_a), in C order.
        incoming: For each axis k the variables' messages (n, d_k).
        one_pass: The form of the inner pass; :func:`numpy_one_pass` by default.

    Returns:
        For each axis k the messages (n, d_k), not normalised.
    """
    n = len(tables)
    one_pass = one_pass or numpy_one_pass
    outgoing: list[Messages] = []
    rest = tables
    for axis in range(len(incoming) - 1):
        along = incoming[axis]
        to_first, rest = one_pass(rest.reshape(n, along.shape[1], -1), along, _outer_sum(incoming[axis + 1 :]))
        outgoing.append(to_first)
    outgoing.append(rest.reshape(n, -1).copy())
    return outgoing


def numpy_one_pass(tables: Table, along: Messages, others: Messages) -> tuple[Messages, Messages]:
    """The plain form: two sums, two maxima."""
    return (tables + others[:, None, :]).max(axis=2), (tables + along[:, :, None]).max(axis=1)


def _outer_sum(messages: Sequence[Messages]) -> Messages:
    """All sums of one entry from each message: (n, product of the d_k)."""
    summed = messages[0]
    for message in messages[1:]:
        summed = (summed[:, :, None] + message[:, None, :]).reshape(len(summed), -1)
    return summed
