"""The compiled form of a round of max-sum: a pass over factors, one over variables. Import it late: numba is slow.

Additions are those of ``swarmbo.coordination.updates`` in the same order, so both forms give the same bits. Within a
pass arrays are known by their addresses, and lengths are unsigned: see ``swarmbo.coordination.vector_steps``.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Int
from numba.core import types

from swarmbo.coordination.tables import Table
from swarmbo.coordination.updates import Flat, Kernels, Messages, by_axis
from swarmbo.coordination.vector_steps import (
    LONG,
    NARROW,
    WIDE,
    larger,
    load,
    long_row,
    narrow_rows,
    renewed,
    store,
    told,
    wide_rows,
)


def _read_only(n_dims: int, of: Any = types.float64) -> Any:
    return types.Array(of, n_dims, "C", readonly=True)  # takes writable arrays too


_READ, _PLACES, _WRITTEN = _read_only(1), _read_only(1, types.uint64), types.float64[::1]
_unsigned: Any = np.uint64
_0, _1, _3, _BYTES = _unsigned(0), _unsigned(1), _unsigned(3), _unsigned(8)
_NARROW, _WIDE, _ROWS = _unsigned(NARROW), _unsigned(WIDE), _unsigned(4)
_LONG = _unsigned(LONG)


@numba.njit(nogil=True)
def _one_pass(table: int, along: int, others: int, rest: int, to_first: int, d: int, m: int) -> None:
    """The maximum of a table (d, m) plus ``others`` over its second axis, and plus ``along`` over its first.

    Long rows one after the other, as memory brings what is read in order soonest. Short ones four at a time: what a row
    costs beside its entries would be most of the time. The last four overlap those before.
    """
    for k in range(m):
        store(rest, k, -np.inf)
    if m >= _LONG:
        for j in range(d):
            long_row(table + j * m * _BYTES, along + j * _BYTES, others, rest, to_first + j * _BYTES, m)
    elif m >= _NARROW and d >= _ROWS:
        for four in range((d + _3) // _ROWS):
            j = min(four * _ROWS, d - _ROWS)
            row, own, out = table + j * m * _BYTES, along + j * _BYTES, to_first + j * _BYTES
            if m >= _WIDE:
                wide_rows(row, own, others, rest, out, m)
            else:
                narrow_rows(row, own, others, rest, out, m)
    else:
        for j in range(d):
            best, own_entry = -np.inf, load(along, j)
            for k in range(m):
                entry = load(table, j * m + k)
                best = larger(best, entry + load(others, k))
                store(rest, k, larger(load(rest, k), entry + own_entry))
            store(to_first, j, best)


@numba.njit(nogil=True)
def _renew(fresh: int, previous: int, out: int, d: int, damping: float) -> float:
    """Put one message in its place, normalised and damped; its largest change."""
    if d >= _NARROW:
        return renewed(fresh, previous, out, d, damping)
    highest, change = -np.inf, 0.0
    for j in range(d):
        highest = larger(highest, load(fresh, j))
    if highest == -np.inf:
        highest = 0.0
    for j in range(d):
        old, new = load(previous, j), load(fresh, j) - highest
        if damping != 0.0:
            new = damping * old + (1.0 - damping) * new
        store(out, j, new)
        if new != old:
            change = larger(change, abs(new - old))
    return change


@numba.njit(
    types.float64(_READ, _PLACES, _PLACES, _READ, _READ, _READ, types.float64, _WRITTEN, _WRITTEN),
    cache=True,
    nogil=True,
)
def factor_pass(
    tables: Float[np.ndarray, " n*joint"],
    sizes: Int[np.ndarray, " a"],
    starts: Int[np.ndarray, " a"],
    incoming: Float[np.ndarray, " entries"],
    previous: Float[np.ndarray, " entries"],
    spreads: Float[np.ndarray, " n"],
    damping: float,
    out: Float[np.ndarray, " entries"],
    scratch: Float[np.ndarray, " scratch"],
) -> float:
    """Renew the messages of n factors of one shape: each table is read once, and its messages are done with it.

    Args:
        tables: n tables of ``a`` axes, in C order.
        sizes: Of the axes.
        starts: For each axis where its n messages begin, in ``incoming``, ``previous`` and ``out``.
        incoming: The variables' messages.
        previous: The factors' last messages.
        spreads: The unit of each factor's changes.
        damping: Share of the last message in the new one.
        out: The new messages are put here, normalised and damped.
        scratch: Overwritten; of the longest axis and three times all axes but the first.

    Returns:
        The largest change.
    """
    n_axes, joint, longest = _unsigned(len(sizes)), _1, _1
    for size in sizes:
        joint *= size
        longest = max(longest, size)
    inner = joint // sizes[0]
    said, was, put = (_unsigned(incoming.ctypes.data), _unsigned(previous.ctypes.data), _unsigned(out.ctypes.data))
    fresh = _unsigned(scratch.ctypes.data)
    summed = fresh + longest * _BYTES
    half, other_half = summed + inner * _BYTES, summed + _unsigned(2) * inner * _BYTES
    table = _unsigned(tables.ctypes.data)
    largest = 0.0
    for i in range(_unsigned(len(spreads))):
        change, m, before = 0.0, joint, table
        for axis in range(n_axes):
            d = sizes[axis]
            m //= d
            at = (starts[axis] + i * d) * _BYTES
            if axis + _1 == n_axes:
                change = larger(change, _renew(before, was + at, put + at, d, damping))
            else:
                others = said + (starts[axis + _1] + i * sizes[axis + _1]) * _BYTES
                if axis + _1 + _1 < n_axes:  # all sums of one entry from each message, put in place from the end
                    width = sizes[axis + _1]
                    for k in range(width):
                        store(summed, k, load(others, k))
                    for other in range(axis + _1 + _1, n_axes):
                        size = sizes[other]
                        message = said + (starts[other] + i * size) * _BYTES
                        for back in range(width):
                            j = width - _1 - back
                            so_far = load(summed, j)
                            for k_back in range(size):
                                k = size - _1 - k_back
                                store(summed, j * size + k, so_far + load(message, k))
                        width *= size
                    others = summed
                rest = half if before != half else other_half
                _one_pass(before, said + at, others, rest, fresh, d, m)
                change = larger(change, _renew(fresh, was + at, put + at, d, damping))
                before = rest
        table += joint * _BYTES
        largest = larger(largest, change / spreads[i])
    return largest


@numba.njit(nogil=True)
def _tell(heard: int, said: int, starts: Int[np.ndarray, "n degree"], i: int, size: int, sums: int) -> float:
    """What :func:`swarmbo.coordination.vector_steps.told` does, for few values."""
    degree, highest = _unsigned(starts.shape[1]), -np.inf
    for j in range(size):
        summed = 0.0
        for k in range(degree):
            store(said, _unsigned(starts[i, k]) + j, summed)
            summed += load(heard, _unsigned(starts[i, k]) + j)
        store(sums, j, summed)
        highest = larger(highest, summed)
        summed = 0.0
        for back in range(_1, degree):
            k = degree - back
            summed += load(heard, _unsigned(starts[i, k]) + j)
            at = _unsigned(starts[i, k - _1]) + j
            store(said, at, load(said, at) + summed)
    return highest


@numba.njit(
    types.void(_read_only(2, types.int64), types.uint64, _READ, _WRITTEN, types.int64[::1], _WRITTEN),
    cache=True,
    nogil=True,
)
def variable_pass(
    starts: Int[np.ndarray, "n degree"],
    size: int,
    incoming: Float[np.ndarray, " entries"],
    outgoing: Float[np.ndarray, " entries"],
    choices: Int[np.ndarray, " n"],
    scratch: Float[np.ndarray, " size"],
) -> None:
    """What n variables of one degree and size tell their factors, and which value each would choose by itself.

    Args:
        starts: Where the message of each factor to each variable begins, in the graph's order of factors.
        size: Number of values.
        incoming: The factors' messages.
        outgoing: The variables' messages are put here.
        choices: The index of the largest sum of all messages is put here, of equal ones the lowest.
        scratch: Overwritten.
    """
    n, degree = _unsigned(starts.shape[0]), _unsigned(starts.shape[1])
    heard, said = _unsigned(incoming.ctypes.data), _unsigned(outgoing.ctypes.data)
    edges, sums = _unsigned(starts.ctypes.data), _unsigned(scratch.ctypes.data)
    for i in range(n):
        if size >= _NARROW:
            highest = told(heard, said, edges, degree, size, sums)
        else:
            highest = _tell(heard, said, starts, i, size, sums)
        edges += degree * _BYTES
        best = _0
        while best + _1 < size and load(sums, best) != highest:
            best += _1
        choices[i] = best


def renew_factors(
    tables: Table,
    starts: Int[np.ndarray, " a"],
    incoming: Flat,
    previous: Flat,
    spreads: Float[np.ndarray, " n"],
    damping: float,
    out: Flat,
) -> float:
    """What :func:`swarmbo.coordination.updates.renew_factors` does."""
    shape = tables.shape[1:]
    scratch = np.empty(max(shape) + 3 * prod(shape[1:]))
    sizes, places = np.array(shape, dtype=np.uint64), starts.astype(np.uint64)
    return factor_pass(tables.reshape(-1), sizes, places, incoming, previous, spreads, damping, out, scratch)


def renew_variables(starts: Int[np.ndarray, "n degree"], size: int, incoming: Flat, out: Flat) -> Int[np.ndarray, " n"]:
    """What :func:`swarmbo.coordination.updates.renew_variables` does."""
    choices = np.empty(len(starts), dtype=np.int64)
    variable_pass(starts, size, incoming, out, choices, np.empty(size))
    return choices


def normalised_messages(tables: Table, incoming: Sequence[Messages]) -> list[Messages]:
    """What :func:`swarmbo.coordination.updates.normalised_messages` does."""
    starts = np.cumsum([0, *(message.size for message in incoming)])[:-1]
    entries = np.concatenate([np.ravel(message) for message in incoming])
    out, units = np.empty_like(entries), np.ones(len(tables))
    renew_factors(tables, starts, entries, entries, units, 0.0, out)
    return by_axis(out, starts, tables)


COMPILED = Kernels(normalised_messages, renew_factors, renew_variables)
