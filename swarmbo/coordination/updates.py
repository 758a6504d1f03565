"""Formulas of max-sum: messages of factors and of variables, many of equal shape at once; changes, damping."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.flooding import Kernels
from swarmbo.coordination.tables import Edge, Flat, Messages, Table, Vector, by_axis
from swarmbo.graph import FactorGraph

COMPILED_FROM = 2**24  # entries to be read in all, about 50 ms in NumPy; loading numba takes about a second, once


def kernels_for(n_entries: int) -> Kernels:
    """Kernels for so many table entries to be read: compiled ones if that pays."""
    if n_entries < COMPILED_FROM:
        return NUMPY
    from swarmbo.coordination.compiled_passes import COMPILED  # late: numba is slow to load

    return COMPILED


def factor_messages(tables: Table, incoming: Sequence[Messages]) -> list[Messages]:
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


def normalised_messages(tables: Table, incoming: Sequence[Messages]) -> list[Messages]:
    """Normalised messages of factors; see :func:`factor_messages`."""
    return [normalised(messages) for messages in factor_messages(tables, incoming)]


def renew_factors(
    tables: Table,
    starts: Int[np.ndarray, " a"],
    incoming: Flat,
    previous: Flat,
    spreads: Float[np.ndarray, " n"],
    damping: float,
    out: Flat,
) -> float:
    """Renew the messages of n factors of one shape into ``out``, normalised and damped; the largest change.

    For each axis, n messages begin at ``starts``. Changes are in units of ``spreads``.
    """
    renewed = normalised_messages(tables, by_axis(incoming, starts, tables))
    largest = 0.0
    for before, new, place in zip(
        by_axis(previous, starts, tables), renewed, by_axis(out, starts, tables), strict=True
    ):
        place[:] = damped(before, new, damping)
        # in units of the factor's spread, or the tolerance would depend on the unit of the tables
        largest = max(largest, float((largest_changes(before, place) / spreads).max()))
    return largest


def renew_variables(starts: Int[np.ndarray, "n degree"], size: int, incoming: Flat, out: Flat) -> Int[np.ndarray, " n"]:
    """Renew the messages of n variables of one degree and size into ``out``, and return each variable's best value.

    ``starts`` has the index at which each message begins, in the graph's order of factors.
    """
    entries = starts[:, :, None] + np.arange(size)
    said = incoming[entries]
    out[entries] = variable_messages(said)
    return beliefs(said).argmax(axis=1)


def variable_messages(incoming: Float[np.ndarray, "n degree d"]) -> Float[np.ndarray, "n degree d"]:
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


def beliefs(incoming: Float[np.ndarray, "n degree d"]) -> Float[np.ndarray, "n d"]:
    """Sum of all factors' messages to each variable, added from the first to the last factor."""
    return np.add.accumulate(incoming, axis=1)[:, -1]


def normalised(messages: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
    """Messages less their maximum; those that forbid every value stay as they are."""
    if messages.ndim == 1:  # one message: much quicker without arrays of one
        highest = float(messages.max())
        return messages - highest if highest > -np.inf else messages
    highest = messages.max(axis=-1, keepdims=True)
    return messages - np.where(highest > -np.inf, highest, 0.0)


def damped(
    previous: Float[np.ndarray, "*n d"], new: Float[np.ndarray, "*n d"], damping: float
) -> Float[np.ndarray, "*n d"]:
    """Share ``damping`` in [0, 1) of the previous messages, plus the rest of the new ones.

    A value that was forbidden once stays so: the variables' messages forbid ever more as rounds pass, so the new
    message forbids it too.
    """
    return new if damping == 0.0 else damping * previous + (1.0 - damping) * new


def largest_changes(previous: Float[np.ndarray, "*n d"], new: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n"]:
    """Largest absolute change of each message; infinite if a value has become forbidden."""
    changes = np.zeros_like(new)
    np.subtract(new, previous, out=changes, where=new != previous)
    return np.abs(changes).max(axis=-1)


def messages_of_factor(
    graph: FactorGraph, factor: str, table: Table, from_variables: Mapping[Edge, Vector], kernels: Kernels
) -> dict[str, Vector]:
    """One factor's messages by variable, normalised; variables without a message count as zero."""
    incoming = [
        from_variables[factor, variable][None] if (factor, variable) in from_variables else np.zeros((1, size))
        for variable, size in zip(graph.scope(factor), table.shape, strict=True)
    ]
    outgoing = kernels.messages(table[None], incoming)
    return {variable: message[0] for variable, message in zip(graph.scope(factor), outgoing, strict=True)}


def messages_of_variable(
    graph: FactorGraph, variable: str, size: int, from_factors: Mapping[Edge, Vector]
) -> dict[str, Vector]:
    """One variable's messages by factor; factors without a message count as zero."""
    factors, silent = graph.factors_of(variable), np.zeros(size)
    if len(factors) == 1:
        return {factors[0]: silent}
    incoming = np.array([from_factors.get((factor, variable), silent) for factor in factors])
    return dict(zip(factors, variable_messages(incoming[None])[0], strict=True))


def _outer_sum(messages: Sequence[Messages]) -> Float[np.ndarray, "n joint"]:
    """Sums of one entry from each message: (n, product of the d_k)."""
    summed = messages[0]
    for message in messages[1:]:
        summed = (summed[:, :, None] + message[:, None, :]).reshape(len(summed), -1)
    return summed


NUMPY = Kernels(normalised_messages, renew_factors, renew_variables)
