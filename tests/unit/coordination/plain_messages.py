"""Max-sum's messages in NumPy, many of equal shape at once: the plain form that compiled code is held to."""

from collections.abc import Sequence

import numpy as np

from swarmbo.coordination.flooding import damped, largest_changes

Messages = np.ndarray  # (n, d)


def factor_messages(tables: np.ndarray, incoming: Sequence[Messages]) -> list[Messages]:
    """Messages (n, d_k) of n factors to each variable, not normalised, given the variables' messages.

    r_k(x_k) = max over the other variables of [F(x) + sum over j != k of q_j(x_j)] (Hoang et al. 2018, eq. of
    m_{I->i}). A table over x_1 … x_a is read as x_1 against all others: one pass gives r_1 and the maximum over x_1, a
    table of one axis less, on which the rest recurses. Additions are taken in this one order.
    """
    n = len(tables)
    outgoing: list[Messages] = []
    rest = tables
    for axis in range(len(incoming) - 1):
        along, others = incoming[axis], _outer_sum(incoming[axis + 1 :])
        rest = rest.reshape(n, along.shape[1], -1)
        outgoing.append((rest + others[:, None, :]).max(axis=2))
        rest = (rest + along[:, :, None]).max(axis=1)
    outgoing.append(rest.reshape(n, -1).copy())
    return outgoing


def renew_factors(
    tables: np.ndarray,
    starts: np.ndarray,
    incoming: np.ndarray,
    previous: np.ndarray,
    spreads: np.ndarray,
    damping: float,
    out: np.ndarray,
) -> float:
    """Renew the messages of n factors of one shape into ``out``, normalised and damped; the largest change.

    For each axis, n messages begin at ``starts``. Changes are in units of ``spreads``.
    """
    renewed = [normalised(messages) for messages in factor_messages(tables, by_axis(incoming, starts, tables))]
    largest = 0.0
    for before, new, place in zip(
        by_axis(previous, starts, tables), renewed, by_axis(out, starts, tables), strict=True
    ):
        place[:] = damped(before, new, damping)
        # in units of the factor's spread, or the tolerance would depend on the unit of the tables
        largest = max(largest, float((largest_changes(before, place) / spreads).max()))
    return largest


def renew_variables(starts: np.ndarray, size: int, incoming: np.ndarray, out: np.ndarray) -> np.ndarray:
    """Renew the messages of n variables of one degree and size into ``out``, and return each variable's best value.

    ``starts`` has the index at which each message begins, in the graph's order of factors.
    """
    entries = starts[:, :, None] + np.arange(size)
    said = incoming[entries]
    out[entries] = variable_messages(said)
    return beliefs(said).argmax(axis=1)


def variable_messages(incoming: np.ndarray) -> np.ndarray:
    """Messages of n variables of one degree to their factors: the sum of the other factors' messages.

    Added as (sum of those before) + (sum of those after), never as total less own, which would be inf - inf if a
    combination is forbidden.
    """
    degree = incoming.shape[1]
    outgoing = np.zeros_like(incoming)
    # one pass forwards and one back: 2 additions a message, whatever the degree
    for k in range(1, degree):
        np.add(outgoing[:, k - 1], incoming[:, k - 1], out=outgoing[:, k])
    after = np.zeros_like(incoming[:, 0])
    for k in range(degree - 2, -1, -1):
        after = after + incoming[:, k + 1]
        outgoing[:, k] += after
    return outgoing


def beliefs(incoming: np.ndarray) -> np.ndarray:
    """Sum of all factors' messages to each variable, added from the first to the last factor."""
    return np.add.accumulate(incoming, axis=1)[:, -1]


def normalised(messages: np.ndarray) -> np.ndarray:
    """Messages less their maximum; those that forbid every value stay as they are."""
    highest = messages.max(axis=-1, keepdims=True)
    return messages - np.where(highest > -np.inf, highest, 0.0)


def _outer_sum(messages: Sequence[Messages]) -> np.ndarray:
    """Sums of one entry from each message: (n, product of the d_k)."""
    summed = messages[0]
    for message in messages[1:]:
        summed = (summed[:, :, None] + message[:, None, :]).reshape(len(summed), -1)
    return summed


def by_axis(entries: np.ndarray, starts: np.ndarray, tables: np.ndarray) -> list[Messages]:
    """Messages by axis, of factors of one shape, whose messages lie end to end from ``starts`` on."""
    n, *shape = tables.shape
    ends = zip(starts.tolist(), shape, strict=True)
    return [entries[start : start + n * size].reshape(n, size) for start, size in ends]
