"""The compiled form of max-sum's messages, and of a round: a pass over factors, one over variables. Import it late.

Additions are those of ``swarmbo.coordination.updates`` in the same order, so both forms give the same bits. Within a
pass arrays are known by their addresses, and lengths are unsigned: see ``swarmbo.coordination.vector_steps``.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Int
from numba.core import types

from swarmbo.boundary.compiling import compiled
from swarmbo.coordination.tables import Flat, Messages, Table, by_axis
from swarmbo.coordination.vector_steps import (
    LONG,
    LONGEST,
    larger,
    load,
    load_whole,
    long_row,
    narrow_rows,
    renewed,
    store,
    told,
    wide_rows,
)
from swarmbo.coordination.vectors import NARROW, WIDE

Whole = Any  # a whole number out of an array, as compiled code has it
unsigned: Any = np.uint64


def read_only(n_dims: int, of: Any = types.float64) -> Any:
    """The type of arrays that are only read, in C order; writable ones are taken too."""
    return types.Array(of, n_dims, "C", readonly=True)


READ, PLACES, WRITTEN = read_only(1), read_only(1, types.uint64), types.float64[::1]
_0, _1, _2, _3, _BYTES = unsigned(0), unsigned(1), unsigned(2), unsigned(3), unsigned(8)
_NARROW, _WIDE, _ROWS = unsigned(NARROW), unsigned(WIDE), unsigned(4)
_LONG, _LONGEST = unsigned(LONG), unsigned(LONGEST)


@numba.njit(nogil=True)
def _one_pass(table: int, along: int, others: int, rest: int, to_first: int, d: int, m: int) -> None:
    """The maximum of a table (d, m) plus ``others`` over its second axis, and plus ``along`` over its first.

    Long rows one after the other, as memory brings what is read in order soonest. Short ones four at a time: what a row
    costs beside its entries would be most of the time; and so the longest, with which all that is added and what was
    largest so far would be read from beyond the cache for each. The last four overlap those before.
    """
    for k in range(m):
        store(rest, k, -np.inf)
    if _LONG <= m <= _LONGEST:
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


@numba.njit(nogil=True)
def renewed_factor(
    table: Whole, sizes: int, starts: int, n_axes: int, said: int, was: int, put: int, damping: float, scratch: int
) -> float:
    """Renew the messages of one factor; its table is read once. All but ``n_axes`` and ``damping`` are addresses.

    Args:
        table: In C order.
        sizes: Of its axes, whole numbers.
        starts: For each axis where its message begins, whole numbers too.
        n_axes: How many there are.
        said: What variables say.
        was: What factors said before.
        put: The new messages are put here, normalised and damped.
        damping: Share of the last message in the new one.
        scratch: Overwritten; see :func:`new_scratch`.

    Returns:
        The largest change of an entry.
    """
    m, longest = _1, _1
    for axis in range(n_axes):
        m *= load_whole(sizes, axis)
        longest = max(longest, load_whole(sizes, axis))
    inner = m // load_whole(sizes, _0)
    fresh, summed = scratch, scratch + longest * _BYTES
    half, other_half = summed + inner * _BYTES, summed + _2 * inner * _BYTES
    change, before = 0.0, table
    for axis in range(n_axes):
        d, at = load_whole(sizes, axis), load_whole(starts, axis) * _BYTES
        m //= d
        if axis + _1 == n_axes:
            change = larger(change, _renew(before, was + at, put + at, d, damping))
        else:
            others = said + load_whole(starts, axis + _1) * _BYTES
            if axis + _2 < n_axes:  # all sums of one entry from each message, put in place from the end
                width = load_whole(sizes, axis + _1)
                for k in range(width):
                    store(summed, k, load(others, k))
                for other in range(axis + _2, n_axes):
                    size = load_whole(sizes, other)
                    message = said + load_whole(starts, other) * _BYTES
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
    return change


@compiled(
    types.float64(READ, PLACES, types.uint64[::1], READ, READ, READ, types.float64, WRITTEN, WRITTEN),
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
        starts: For each axis where its n messages begin, in ``incoming``, ``previous`` and ``out``; overwritten.
        incoming: The variables' messages.
        previous: The factors' last messages.
        spreads: The unit of each factor's changes.
        damping: Share of the last message in the new one.
        out: The new messages are put here, normalised and damped.
        scratch: Overwritten; see :func:`new_scratch`.

    Returns:
        The largest change.
    """
    n_axes, joint, largest = unsigned(len(sizes)), _1, 0.0
    for size in sizes:
        joint *= size
    said, was, put = (unsigned(incoming.ctypes.data), unsigned(previous.ctypes.data), unsigned(out.ctypes.data))
    lengths, places = unsigned(sizes.ctypes.data), unsigned(starts.ctypes.data)
    table, spare = unsigned(tables.ctypes.data), unsigned(scratch.ctypes.data)
    for i in range(len(spreads)):
        change = renewed_factor(table, lengths, places, n_axes, said, was, put, damping, spare)
        largest = larger(largest, change / spreads[i])
        table += joint * _BYTES
        for axis in range(n_axes):
            starts[axis] += sizes[axis]
    return largest


@numba.njit(nogil=True)
def renewed_variable(starts: int, degree: int, size: Whole, heard: int, said: int, sums: int) -> float:
    """Renew the messages of one variable. All but ``degree`` and ``size`` are addresses.

    Args:
        starts: Where the message of each of its factors begins, whole numbers, in the graph's order of factors.
        degree: How many there are.
        size: Number of values.
        heard: What factors say.
        said: What variables say is put here.
        sums: The sum of what its factors say is put here.

    Returns:
        The largest entry of the sum.
    """
    if size >= _NARROW:
        return told(heard, said, starts, degree, size, sums)
    highest = -np.inf
    for j in range(size):
        summed = 0.0
        for k in range(degree):
            place = load_whole(starts, k) + j
            store(said, place, summed)
            summed += load(heard, place)
        store(sums, j, summed)
        highest = larger(highest, summed)
        summed = 0.0
        for back in range(_1, degree):
            k = degree - back
            summed += load(heard, load_whole(starts, k) + j)
            at = load_whole(starts, k - _1) + j
            store(said, at, load(said, at) + summed)
    return highest


@compiled(
    types.void(read_only(2, types.int64), types.uint64, READ, WRITTEN, types.int64[::1], WRITTEN),
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
    n, degree = unsigned(starts.shape[0]), unsigned(starts.shape[1])
    heard, said = unsigned(incoming.ctypes.data), unsigned(outgoing.ctypes.data)
    edges, sums = unsigned(starts.ctypes.data), unsigned(scratch.ctypes.data)
    for i in range(n):
        highest = renewed_variable(edges, degree, size, heard, said, sums)
        edges += degree * _BYTES
        best = _0
        while best + _1 < size and load(sums, best) != highest:
            best += _1
        choices[i] = best


def new_scratch(shapes: Iterable[tuple[int, ...]]) -> Float[np.ndarray, " n"]:
    """What :func:`renewed_factor` and :func:`renewed_variable` may overwrite, where tables have such shapes."""
    return np.empty(max(max(shape) + 3 * prod(shape[1:]) for shape in shapes))


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
    sizes, places, flat = np.array(shape, dtype=np.uint64), starts.astype(np.uint64), tables.reshape(-1)
    return factor_pass(flat, sizes, places, incoming, previous, spreads, damping, out, new_scratch([shape]))


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
