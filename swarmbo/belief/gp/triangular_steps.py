"""Products with rows of a triangular matrix in explicit vector instructions: compilers do not keep sums in registers.

The lanes of a register hold eight points, so nothing is added up across lanes, and each entry of the matrix is read
once for all of them. Arrays are passed as addresses, because numba would count references to arrays.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from llvmlite import binding, ir
from numba.core import cgutils, types

from swarmbo.belief.gp.cholesky import ROWS
from swarmbo.boundary.compiling import inner, instructions

POINTS = 8  # in parallel
_IN_FLIGHT = 8 if binding.get_host_cpu_features().get("avx512f") else 4  # rows at once: their sums stay in registers
_DOUBLE, _INT, _LANE = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_EIGHT = ir.VectorType(_DOUBLE, POINTS)
_FUSED = ("contract",)
_unsigned: Any = np.uint64
_ROWS, _BYTES, _ONE = _unsigned(ROWS), _unsigned(8), _unsigned(1)  # numba converts mixed types of integers to floats


@instructions(types.void)
def block(builder: Any, matrix: Any, n: Any, points: Any, squares: Any, pulled: Any, is_pulled: Any) -> None:
    """Products of a block of rows of a triangular matrix with eight vectors, and sums of their squares.

    The intrinsic takes the address of the first row, the number n of entries of each row, and the addresses of vectors
    k (n, 8 points), of eight sums of squares, and of vectors w (n, 8 points); and whether w is wanted (``is_pulled``).
    With v the products of rows and k, it adds v² to the sums and, for each row, v times the row to w.
    """
    starts, v = _products(builder, matrix, n, points, squares)
    with builder.if_then(is_pulled), cgutils.for_range(builder, n, intp=_INT) as loop:
        place = _entry(builder, pulled, builder.mul(loop.index, _INT(POINTS)))
        w = _load(builder, place)
        for start, own in zip(starts, v, strict=True):
            entry = _spread(builder, builder.load(builder.gep(start, [loop.index])))
            w = _added(builder, w, entry, own)
        _put(builder, w, place)


def _products(builder: Any, matrix: Any, n: Any, points: Any, squares: Any) -> tuple[list[Any], list[Any]]:
    """Starts of rows, and products of rows with the vectors of points; adds the products' squares to ``squares``."""
    starts = [_entry(builder, matrix, builder.mul(n, _INT(row))) for row in range(ROWS)]
    place, v = _entry(builder, squares, _INT(0)), list[Any]()
    for first in range(0, ROWS, _IN_FLIGHT):
        own = starts[first : first + _IN_FLIGHT]
        nothing = ir.Constant(_EIGHT, [0.0] * POINTS)
        sums = [cgutils.alloca_once_value(builder, nothing) for _ in own]
        with cgutils.for_range(builder, n, intp=_INT) as loop:
            k = _load(builder, _entry(builder, points, builder.mul(loop.index, _INT(POINTS))))
            for start, total in zip(own, sums, strict=True):
                entry = _spread(builder, builder.load(builder.gep(start, [loop.index])))
                builder.store(_added(builder, builder.load(total), entry, k), total)
        v.extend(builder.load(total) for total in sums)
    square = _load(builder, place)
    for own in v:
        square = _added(builder, square, own, own)
    _put(builder, square, place)
    return starts, v


def _entry(builder: Any, address: Any, place: Any) -> Any:
    return builder.gep(builder.inttoptr(address, _DOUBLE.as_pointer()), [place])


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, _EIGHT.as_pointer()), align=4)


def _put(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, _EIGHT.as_pointer()), align=4)


def _spread(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(_EIGHT, ir.Undefined)
    all_lanes = ir.Constant(ir.VectorType(_LANE, POINTS), [0] * POINTS)
    return builder.shuffle_vector(builder.insert_element(nothing, number, _LANE(0)), nothing, all_lanes)


def _added(builder: Any, total: Any, one: Any, other: Any) -> Any:
    return builder.fadd(total, builder.fmul(one, other, flags=_FUSED), flags=_FUSED)


@instructions(types.CPointer(types.float64))
def _at(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _DOUBLE.as_pointer())


@inner()
def row_of(blocks: Int[np.ndarray, " n"], matrix: int, row: int) -> Float[np.ndarray, " w"]:
    """Entries of one row of a matrix of ``BlockRows``, to be read and written; their number is not known."""
    block, own = _unsigned(row) // _ROWS, _unsigned(row) % _ROWS
    width = (block + _ONE) * _ROWS
    return _at(blocks[block] + (_unsigned(matrix) * _ROWS + own) * width * _BYTES)
