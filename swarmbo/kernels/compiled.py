"""Compiled forms of swarmbo's own kernels, for many distances at once. Import it late: numba is slow to load."""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from llvmlite import ir
from numba.core import types

from swarmbo.boundary.compiling import inner, instructions
from swarmbo.kernels.registry import KERNEL_NAMES

Vector = Float[np.ndarray, " n"]
_FUSED: Any = {"contract"}
_LOG2_E, _LN2_HIGH, _LN2_LOW = 1.0 / math.log(2.0), 6.93147180369123816490e-01, 1.90821492927058770002e-10
_FAR = 700.0  # exp(-700) is 1e-304; larger arguments are cut there, so that no power of 2 leaves float64
_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13 = (1.0 / math.factorial(n) for n in range(1, 14))

CODES = {name: code for code, name in enumerate(KERNEL_NAMES)}  # codes of the compiled kernels
GIVEN = len(CODES)  # a user's own kernel: correlations and slopes come in arrays
_MATERN12, _MATERN32, _MATERN52 = CODES["matern12"], CODES["matern32"], CODES["matern52"]


@instructions(types.float64)
def _power_of_half(builder: Any, n: Any) -> Any:
    """2⁻ⁿ for an int32 n, 0 <= n < 1023: the biased exponent, 1023 - n, above 52 bits of 0 (IEEE 754)."""
    integer = ir.IntType(64)
    exponent = builder.sub(integer(1023), builder.sext(n, integer))
    return builder.bitcast(builder.shl(exponent, integer(52)), ir.DoubleType())


@inner(fastmath=_FUSED)
def fall(x: float) -> float:
    """exp(-x) for x >= 0, to two units in the last place, without branches or calls, so that loops vectorise.

    x is n ln 2 + r with |r| <= (ln 2) / 2, and exp(-r) its Taylor series up to the 13th power.
    """
    x = min(x, _FAR)
    # Cody and Waite: ln 2 in two parts, so that n ln 2 is subtracted without loss of digits
    n = np.int32(x * _LOG2_E + 0.5)
    r = (n * _LN2_HIGH - x) + n * _LN2_LOW
    series = 1.0 + r * (_1 + r * (_2 + r * (_3 + r * (_4 + r * (_5 + r * (_6 + r * (_7 + r * (
        _8 + r * (_9 + r * (_10 + r * (_11 + r * (_12 + r * _13))))))))))))  # fmt: skip
    return series * _power_of_half(n)


@inner(fastmath=_FUSED)
def radial(kernel: int, squares: Vector, outputscale: float, near: Vector, slope: Vector) -> None:
    """Put covariances s c(r) into ``near``, and slopes s w(r), 0 at a cusp, into ``slope``, given squares of r."""
    if kernel == _MATERN12:
        for i in range(len(squares)):
            r = math.sqrt(squares[i])
            near[i] = outputscale * fall(r)
            # the cusp: no derivative exists at 0, and 0 is the middle of its subdifferential
            slope[i] = near[i] / r if r > 0.0 else 0.0
    elif kernel == _MATERN32:
        for i in range(len(squares)):
            a = min(math.sqrt(3.0 * squares[i]), _FAR)
            down = outputscale * fall(a)
            near[i], slope[i] = (1.0 + a) * down, 3.0 * down
    elif kernel == _MATERN52:
        for i in range(len(squares)):
            a = min(math.sqrt(5.0 * squares[i]), _FAR)
            down = outputscale * fall(a)
            near[i], slope[i] = (1.0 + a * (1.0 + a / 3.0)) * down, (5.0 / 3.0) * (1.0 + a) * down
    else:
        for i in range(len(squares)):
            near[i] = slope[i] = outputscale * fall(0.5 * squares[i])
