"""Max-sum's messages, compiled: a pass over factors, and one over variables. Import it late. The order of additions and
maxima is fixed, so a factor's messages are bit-identical, whatever other factors are computed with it.
"""

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Int
from llvmlite import ir
from numba.core import cgutils, types

from swarmbo.boundary.compiling import compiled, inner, instructions, read_only
from swarmbo.coordination.tables import Flat, Table

READ, PLACES, WRITTEN = read_only(1), read_only(1, types.int64), types.float64[::1]
SPARE, FLOW = types.UniTuple(WRITTEN, 4), types.Tuple((READ, READ, WRITTEN))
Places = Int[np.ndarray, " n"]
Spare = tuple[Flat, Flat, Flat, Flat]
Flow = tuple[Flat, Flat, Flat]  # messages of variables; previous and new messages of factors
Whole = Any  # an integer from an array in compiled code
_unsigned: Any = np.uint64  # for signed indices, compiled code would test whether they are negative


@instructions(types.float64)
def larger(builder: Any, a: Any, b: Any) -> Any:
    """The larger of two float64, neither NaN; the sign of zero is ignored, as vector instructions need."""
    kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()] * 2)
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.maxnum.f64")
    return builder.call(function, (a, b), fastmath=("nnan", "nsz"))


@inner(forceinline=True)  # a call takes as long as the work on a small table
def _maxima(
    table: Flat, at: Whole, along: Flat, start: Whole, others: Flat, rest: Flat, fresh: Flat, d: Whole, n: Whole
) -> None:
    """Write row maxima of a table (d, n) plus ``others`` to ``fresh``, and column maxima plus ``along`` to ``rest``."""
    # Rows are read once and in order, which is fastest in memory; the maxima over columns stay in the cache meanwhile.
    first, begin, width = _unsigned(at), _unsigned(start), _unsigned(n)
    for k in range(width):
        rest[k] = -np.inf
    # both maxima in one loop, as two loops would read the table twice
    for j in range(_unsigned(d)):
        own, best = along[begin + j], -np.inf
        for k in range(width):
            entry = table[first + k]
            best = larger(best, entry + others[k])
            rest[k] = larger(rest[k], entry + own)
        fresh[j] = best
        first += width


@inner(forceinline=True)
def _renew(fresh: Flat, at: Whole, previous: Flat, out: Flat, start: Whole, d: Whole, damping: float) -> float:
    first, begin, size = _unsigned(at), _unsigned(start), _unsigned(d)
    highest, change = -np.inf, 0.0
    for j in range(size):
        highest = larger(highest, fresh[first + j])
    if highest == -np.inf:  # all values are forbidden, and stay so
        highest = 0.0
    for j in range(size):
        old, new = previous[begin + j], fresh[first + j] - highest
        if damping != 0.0:  # 0 * -inf would be NaN
            new = damping * old + (1.0 - damping) * new
        out[begin + j] = new
        if new != old:  # the difference of two -inf would be NaN
            change = larger(change, abs(new - old))
    return change


@inner()
def renew_factor(
    tables: Flat,
    at: Whole,
    sizes: Places,
    starts: Places,
    first: Whole,
    n_axes: Whole,
    flow: Flow,
    damping: float,
    spare: Spare,
) -> float:
    """Write a factor's normalised and damped messages, max over all x_j but x_k of [F(x) + sum of q_j(x_j), j != k]
    (Hoang et al. 2018, m_{I->i}); return the largest change. The table is read once; ``spare`` is overwritten.
    """
    # a table over x_1 … x_a has rows by x_1 and columns by all others: one pass gives r_1 and the maximum over x_1,
    # which is a table with one axis less, for the next pass
    (fresh, summed, rest, half), (incoming, previous, out) = spare, flow
    joint = 1
    for axis in range(first, first + n_axes):
        joint *= sizes[axis]
    change, left, place = 0.0, tables, at
    for axis in range(first, first + n_axes - 1):
        d = sizes[axis]
        joint //= d
        # all sums of one entry from each message of the later axes, written from the end
        width = 1
        summed[0] = 0.0
        for other in range(axis + 1, first + n_axes):
            size, message = sizes[other], starts[other]
            for j in range(width - 1, -1, -1):
                so_far = summed[j]
                for k in range(size - 1, -1, -1):
                    summed[j * size + k] = so_far + incoming[message + k]
            width *= size
        _maxima(left, place, incoming, starts[axis], summed, rest, fresh, d, joint)
        change = larger(change, _renew(fresh, 0, previous, out, starts[axis], d, damping))
        left, place, rest, half = rest, 0, half, rest
    last = first + n_axes - 1
    return larger(change, _renew(left, place, previous, out, starts[last], sizes[last], damping))


@compiled(types.float64(READ, PLACES, types.int64[::1], READ, FLOW, types.float64, SPARE))
def _factor_pass(
    tables: Flat, sizes: Places, starts: Places, spreads: Flat, flow: Flow, damping: float, spare: Spare
) -> float:
    """Loop of :func:`renew_factors`; ``starts`` is overwritten."""
    n_axes, joint, largest = len(sizes), len(tables) // len(spreads), 0.0
    for i in range(len(spreads)):
        change = renew_factor(tables, i * joint, sizes, starts, 0, n_axes, flow, damping, spare)
        if change > 0.0:
            largest = max(largest, change / spreads[i] if spreads[i] > 0.0 else np.inf)
        for axis in range(n_axes):
            starts[axis] += sizes[axis]
    return largest


@inner(forceinline=True)
def renew_variable(
    starts: Places, first: Whole, degree: Whole, d: Whole, incoming: Flat, outgoing: Flat, spare: Spare
) -> None:
    """Write the messages of a variable, at ``starts[first:]``; ``spare[0]`` receives the sum of all."""
    # a message adds the sum of messages before it and the sum of those after it: the total less its own would be
    # inf - inf where a combination is forbidden
    sums, after, _, _ = spare
    size = _unsigned(d)
    for j in range(size):
        sums[j] = after[j] = 0.0
    for edge in range(first, first + degree):
        at = _unsigned(starts[edge])
        for j in range(size):
            so_far = sums[j]
            outgoing[at + j] = so_far
            sums[j] = so_far + incoming[at + j]
    for edge in range(first + degree - 1, first, -1):
        at, before = _unsigned(starts[edge]), _unsigned(starts[edge - 1])
        for j in range(size):
            so_far = after[j] = after[j] + incoming[at + j]
            outgoing[before + j] += so_far


@compiled(types.void(PLACES, types.int64, types.int64, READ, WRITTEN, types.int64[::1], SPARE))
def _variable_pass(
    starts: Places, degree: Whole, size: Whole, incoming: Flat, outgoing: Flat, choices: Places, spare: Spare
) -> None:
    for i in range(len(choices)):
        renew_variable(starts, i * degree, degree, size, incoming, outgoing, spare)
        best, most = 0, spare[0][0]
        for j in range(1, size):
            if spare[0][j] > most:  # of equal values the first
                best, most = j, spare[0][j]
        choices[i] = best


def new_spare(shapes: Iterable[tuple[int, ...]]) -> Spare:
    """Work arrays of :func:`renew_factor` and :func:`renew_variable`, for tables of some shapes."""
    most = max(max(*shape, prod(shape[1:])) for shape in shapes)
    return np.empty(most), np.empty(most), np.empty(most), np.empty(most)


def renew_factors(
    tables: Table, starts: Places, incoming: Flat, previous: Flat, spreads: Flat, damping: float, out: Flat
) -> float:
    """Write the messages of n factors of one shape, at ``starts`` for each axis; return the largest change / spread."""
    shape, flat = tables.shape[1:], tables.reshape(-1)
    flow = incoming, previous, out
    return _factor_pass(flat, np.array(shape), starts.copy(), spreads, flow, damping, new_spare([shape]))


def renew_variables(starts: Int[np.ndarray, "n degree"], size: int, incoming: Flat, out: Flat) -> Int[np.ndarray, " n"]:
    """Write the messages of n variables, each at its ``starts``, and return each variable's best value."""
    choices = np.empty(len(starts), dtype=np.int64)
    _variable_pass(starts.reshape(-1), starts.shape[1], size, incoming, out, choices, new_spare([(size,)]))
    return choices
