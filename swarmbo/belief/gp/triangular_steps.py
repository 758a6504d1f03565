"""Products with rows of a triangular matrix in vector instructions, written out: compilers keep no sums in registers.

Eight points go side by side in the lanes of a register, so nothing is added up across lanes, and each entry of the
matrix is read once for all of them. Everything is known by its address, as in ``swarmbo.coordination.vector_steps``.
"""

from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Int
from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from swarmbo.belief.gp.block_rows import ROWS

POINTS = 8  # side by side
_IN_FLIGHT = 8 if binding.get_host_cpu_features().get("avx512f") else 4  # rows at once: their sums stay in registers
_DOUBLE, _INT, _LANE = ir.DoubleType(), ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(_DOUBLE, POINTS)
_FUSED = ("contract",)
_unsigned: Any = np.uint64
_ROWS, _BYTES, _ONE = _unsigned(ROWS), _unsigned(8), _unsigned(1)  # compiled code makes floats of mixed integers


@intrinsic
def _block(
    _typing: Any, matrix: Any, apart: Any, n: Any, points: Any, squares: Any, pulled: Any, is_pulled: Any
) -> Any:
    """Some rows of a triangular matrix, as many as a block has.

    The intrinsic takes the address of the first row, how many entries lie between rows, how many of each are looked at,
    and the addresses of vectors k (that many times eight points, the points of an entry after one another), of eight
    sums of squares, and of vectors w like k; last whether w is wanted. With v the products of rows and k, it adds v² to
    the sums, and row by row v times the row to w.
    """

    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        matrix, apart, n, points, squares, pulled, is_pulled = arguments
        starts = [_doubles(builder, matrix, builder.mul(apart, _INT(row))) for row in range(ROWS)]
        place, v = _doubles(builder, squares, _INT(0)), list[Any]()
        for first in range(0, ROWS, _IN_FLIGHT):
            own = starts[first : first + _IN_FLIGHT]
            sums = [cgutils.alloca_once_value(builder, ir.Constant(_VECTOR, [0.0] * POINTS)) for _ in own]
            with cgutils.for_range(builder, n, intp=_INT) as loop:
                k = _load(builder, _doubles(builder, points, builder.mul(loop.index, _INT(POINTS))))
                for start, total in zip(own, sums, strict=True):
                    entry = _spread(builder, builder.load(builder.gep(start, [loop.index])))
                    builder.store(_added(builder, builder.load(total), entry, k), total)
            v.extend(builder.load(total) for total in sums)
        square = _load(builder, place)
        for own in v:
            square = _added(builder, square, own, own)
        _put(builder, square, place)
        with builder.if_then(is_pulled), cgutils.for_range(builder, n, intp=_INT) as loop:
            place = _doubles(builder, pulled, builder.mul(loop.index, _INT(POINTS)))
            w = _load(builder, place)
            for start, own in zip(starts, v, strict=True):
                entry = _spread(builder, builder.load(builder.gep(start, [loop.index])))
                w = _added(builder, w, entry, own)
            _put(builder, w, place)
        return context.get_dummy_value()

    return types.void(matrix, apart, n, points, squares, pulled, is_pulled), emit


def _doubles(builder: Any, address: Any, place: Any) -> Any:
    return builder.gep(builder.inttoptr(address, _DOUBLE.as_pointer()), [place])


def _load(builder: Any, pointer: Any) -> Any:
    return builder.load(builder.bitcast(pointer, _VECTOR.as_pointer()), align=8)


def _put(builder: Any, vector: Any, pointer: Any) -> None:
    builder.store(vector, builder.bitcast(pointer, _VECTOR.as_pointer()), align=8)


def _spread(builder: Any, number: Any) -> Any:
    nothing, all_lanes = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.VectorType(_LANE, POINTS), [0] * POINTS)
    return builder.shuffle_vector(builder.insert_element(nothing, number, _LANE(0)), nothing, all_lanes)


def _added(builder: Any, total: Any, one: Any, other: Any) -> Any:
    return builder.fadd(total, builder.fmul(one, other, flags=_FUSED), flags=_FUSED)


block: Any = _block  # called without the first argument, which numba supplies


@intrinsic
def _entries(_typing: Any, address: Any) -> Any:
    """A pointer to the numbers at an address."""

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], _DOUBLE.as_pointer())

    return types.CPointer(types.float64)(address), emit


_at: Any = _entries
_array: Any = vars(numba)["carray"]


@numba.njit(nogil=True)
def row_of(blocks: Int[np.ndarray, " n"], matrix: int, row: int) -> Float[np.ndarray, " w"]:
    """A row of a matrix of some ``BlockRows``, to be read and written, as far as its block reaches.

    Args:
        blocks: Where each block begins.
        matrix: Which.
        row: Which.
    """
    block, own = _unsigned(row) // _ROWS, _unsigned(row) % _ROWS
    width = (block + _ONE) * _ROWS
    address = blocks[block] + (_unsigned(matrix) * _ROWS + own) * width * _BYTES
    return _array(_at(address), (np.int64(width),))
