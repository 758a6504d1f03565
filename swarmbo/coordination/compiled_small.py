"""Passes over small tables and variables of few values: of two axes of 8 to 16 values, and of as many. Import it late.

Additions are those of ``swarmbo.coordination.updates`` in the same order, so results have the same bits.
"""

from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Int
from numba.core import types

from swarmbo.boundary.compiling import compiled
from swarmbo.coordination.small_steps import eight_by_eight, eight_values, few_values, small_table
from swarmbo.coordination.vector_steps import larger
from swarmbo.coordination.vectors import NARROW


def read_only(n_dims: int, of: Any = types.float64) -> Any:
    """The type of arrays that are only read, in C order; writable ones are taken too."""
    return types.Array(of, n_dims, "C", readonly=True)


READ, PLACES, WRITTEN = read_only(1), read_only(1, types.uint64), types.float64[::1]
unsigned: Any = np.uint64
_BYTES, _NARROW = unsigned(8), unsigned(NARROW)


@numba.njit(nogil=True)
def _eight_by_eight(table: int, said: Any, was: Any, put: Any, d: int, m: int, damping: float) -> float:
    return eight_by_eight(table, said, was, put, d, m, damping)


@numba.njit(nogil=True)
def _up_to_sixteen(table: int, said: Any, was: Any, put: Any, d: int, m: int, damping: float) -> float:
    return small_table(table, said, was, put, d, m, damping)


@numba.njit(nogil=True)
def _small_tables(
    renew: Any,
    tables: Float[np.ndarray, " n*joint"],
    sizes: Int[np.ndarray, " 2"],
    starts: Int[np.ndarray, " 2"],
    incoming: Float[np.ndarray, " entries"],
    previous: Float[np.ndarray, " entries"],
    spreads: Float[np.ndarray, " n"],
    damping: float,
    out: Float[np.ndarray, " entries"],
) -> float:
    """What :func:`swarmbo.coordination.compiled_updates.factor_pass` does.

    Each way to ``renew`` has a pass of its own: registers are too few for two of them in one.
    """
    largest, d, m = 0.0, sizes[0], sizes[1]
    said, was, put = (unsigned(incoming.ctypes.data), unsigned(previous.ctypes.data), unsigned(out.ctypes.data))
    table, one, other = unsigned(tables.ctypes.data), starts[0] * _BYTES, starts[1] * _BYTES
    for i in range(len(spreads)):
        heard, before, fresh = (said + one, said + other), (was + one, was + other), (put + one, put + other)
        change = renew(table, heard, before, fresh, d, m, damping)
        largest = larger(largest, change / spreads[i])
        table += d * m * _BYTES
        one += d * _BYTES
        other += m * _BYTES
    return largest


_OF_SMALL = types.float64(READ, PLACES, PLACES, READ, READ, READ, types.float64, WRITTEN)


@compiled(_OF_SMALL, nogil=True)
def eight_pass(tables: Any, sizes: Any, starts: Any, said: Any, was: Any, spreads: Any, damping: Any, out: Any) -> Any:
    """What :func:`swarmbo.coordination.compiled_updates.factor_pass` does, of tables of 8 x 8."""
    return _small_tables(_eight_by_eight, tables, sizes, starts, said, was, spreads, damping, out)


@compiled(_OF_SMALL, nogil=True)
def small_pass(tables: Any, sizes: Any, starts: Any, said: Any, was: Any, spreads: Any, damping: Any, out: Any) -> Any:
    """What :func:`swarmbo.coordination.compiled_updates.factor_pass` does, of two axes of 8 to 16 values."""
    return _small_tables(_up_to_sixteen, tables, sizes, starts, said, was, spreads, damping, out)


@compiled(types.void(read_only(2, types.int64), types.uint64, READ, WRITTEN, types.int64[::1]), nogil=True)
def small_variable_pass(
    starts: Int[np.ndarray, "n degree"],
    size: int,
    incoming: Float[np.ndarray, " entries"],
    outgoing: Float[np.ndarray, " entries"],
    choices: Int[np.ndarray, " n"],
) -> None:
    """What :func:`swarmbo.coordination.compiled_updates.variable_pass` does, of variables of 8 to 16 values."""
    n, degree = unsigned(starts.shape[0]), unsigned(starts.shape[1])
    heard, said = unsigned(incoming.ctypes.data), unsigned(outgoing.ctypes.data)
    edges = unsigned(starts.ctypes.data)
    for i in range(n):
        if size == _NARROW:
            choices[i] = eight_values(heard, said, edges, degree, size)
        else:
            choices[i] = few_values(heard, said, edges, degree, size)
        edges += degree * _BYTES
