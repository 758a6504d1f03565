"""The compiled form of one pass of the factor update. Import it late: numba takes about a second."""

from typing import Any

import numba
import numpy as np
from jaxtyping import Float
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


@intrinsic
def _larger(_typing: Any, a: Any, b: Any) -> Any:
    """The larger of two float64, neither of them NaN; -inf is fine.

    ``max(a, b)`` compiles to a comparison that must respect NaN and the sign of zero, which keeps LLVM from using
    vector instructions. ``llvm.maxnum`` with the flags nnan and nsz says that neither matters here.
    """
    if a != types.float64 or b != types.float64:
        raise TypeError("_larger() takes two float64")

    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        double = ir.DoubleType()
        signature = ir.FunctionType(double, [double, double])
        function = builder.module.declare_intrinsic("llvm.maxnum", [double], signature)
        return builder.call(function, arguments, fastmath=("nnan", "nsz"))

    return types.float64(types.float64, types.float64), emit


def _read_only(n_dims: int) -> types.Array:
    return types.Array(types.float64, n_dims, "C", readonly=True)  # takes writable arrays too


larger: Any = _larger  # called with two arguments: numba supplies the first


@numba.njit(
    types.void(_read_only(3), _read_only(2), _read_only(2), types.float64[:, ::1], types.float64[:, ::1]),
    cache=True,
    nogil=True,
)
def _fill(
    tables: Float[np.ndarray, "n d m"],
    along: Float[np.ndarray, "n d"],
    others: Float[np.ndarray, "n m"],
    to_first: Float[np.ndarray, "n d"],
    rest: Float[np.ndarray, "n m"],
) -> None:
    n, d, m = tables.shape
    for i in range(n):
        for k in range(m):
            rest[i, k] = -np.inf
        for j in range(d):
            best = -np.inf
            own = along[i, j]
            for k in range(m):
                entry = tables[i, j, k]
                best = larger(best, entry + others[i, k])
                rest[i, k] = larger(rest[i, k], entry + own)
            to_first[i, j] = best


def numba_one_pass(
    tables: Float[np.ndarray, "n d m"], along: Float[np.ndarray, "n d"], others: Float[np.ndarray, "n m"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n m"]]:
    """What :func:`swarmbo.coordination.updates.numpy_one_pass` gives, reading each table once.

    Args:
        tables: n tables, C-ordered.
        along: Added along the first axis.
        others: Added along the second axis.

    Returns:
        The maximum of ``tables + others`` over the second axis, and of ``tables + along`` over the first.
    """
    to_first, rest = np.empty(along.shape), np.empty(others.shape)
    _fill(tables, np.ascontiguousarray(along), np.ascontiguousarray(others), to_first, rest)
    return to_first, rest
