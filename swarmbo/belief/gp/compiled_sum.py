"""The evidence of totals of many factors, one after the other, compiled. Import it late: numba is slow to load.

All that is kept are the pairs of outcomes, whatever the number of factors: a first pass adds up their covariances, and
a second, once it is known how the evidence depends on each pair, works out what each factor has to do with it.
"""

from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Int
from numba.core import types

from swarmbo.belief.gp.evidence import LogPosterior
from swarmbo.kernels.compiled import CODES, radial

_LANES: Any = {"contract", "reassoc", "nsz"}  # sums may be taken in lanes
_CODES = types.Array(types.int64, 1, "C", readonly=True)
_VECTOR, _MATRIX = (types.Array(types.float64, n, "C", readonly=True) for n in (1, 2))
_OUT = types.float64[::1]


@numba.njit(nogil=True, fastmath=_LANES)
def _squares(X: Float[np.ndarray, "a t"], column: int, out: Float[np.ndarray, " rows"]) -> None:
    """Squared distances of an outcome's point from those of all later ones."""
    out[:] = 0.0
    for d in range(len(X)):
        at, x = X[d, column], X[d, column + 1 :]
        for i in range(len(out)):
            out[i] += (at - x[i]) ** 2


@numba.njit(types.void(_CODES, _CODES, _MATRIX, _VECTOR, _OUT), cache=True, nogil=True, fastmath=_LANES)
def add_covariances(
    kernels: Int[np.ndarray, " k"],
    ends: Int[np.ndarray, " k"],
    X: Float[np.ndarray, "d t"],
    outputs: Float[np.ndarray, " k"],
    pairs: Float[np.ndarray, " pairs"],
) -> None:
    """Add the covariances of all factors to the pairs of outcomes.

    Args:
        kernels: Codes, see ``swarmbo.kernels.compiled``.
        ends: Where the coordinates of each factor end.
        X: Points, in lengthscales, factor after factor and coordinate by coordinate.
        outputs: Outputscales.
        pairs: Those with the first outcome, in the order of the others; then those of the second with all later ones.
    """
    t, first = X.shape[1], 0
    squares, near, slope = np.empty(t), np.empty(t), np.empty(t)
    for f in range(len(ends)):
        own, place = X[first : ends[f]], 0
        for column in range(t - 1):
            n = t - 1 - column
            _squares(own, column, squares[:n])
            radial(kernels[f], squares[:n], outputs[f], near, slope)
            summed = pairs[place : place + n]
            for i in range(n):
                summed[i] += near[i]
            place += n
        first = ends[f]


@numba.njit(types.void(_CODES, _CODES, _MATRIX, _VECTOR, _VECTOR, _OUT, _OUT), cache=True, nogil=True, fastmath=_LANES)
def put_derivatives(
    kernels: Int[np.ndarray, " k"],
    ends: Int[np.ndarray, " k"],
    X: Float[np.ndarray, "d t"],
    outputs: Float[np.ndarray, " k"],
    W: Float[np.ndarray, " pairs"],
    by_output: Float[np.ndarray, " k"],
    by_length: Float[np.ndarray, " d"],
) -> None:
    """Derivatives of the weighted sum of all covariances.

    Args:
        kernels: Like the next three as in ``add_covariances``.
        ends: As there.
        X: As there.
        outputs: As there.
        W: Weights of the pairs.
        by_output: By the logarithms of outputscales; put here.
        by_length: By those of lengthscales; put here.
    """
    t, first = X.shape[1], 0
    squares, near, slope = np.empty(t), np.empty(t), np.empty(t)
    for f in range(len(ends)):
        own, place, by_own = X[first : ends[f]], 0, 0.0
        by_length[first : ends[f]] = 0.0
        for column in range(t - 1):
            n = t - 1 - column
            _squares(own, column, squares[:n])
            radial(kernels[f], squares[:n], outputs[f], near, slope)
            weights = W[place : place + n]
            for i in range(n):
                by_own += near[i] * weights[i]
                slope[i] *= weights[i]
            for d in range(first, ends[f]):
                at, x, by = X[d, column], X[d, column + 1 :], 0.0
                for i in range(n):
                    by += slope[i] * (at - x[i]) ** 2
                by_length[d] += by
            place += n
        by_output[f] = by_own
        first = ends[f]


class CompiledSumPosterior(LogPosterior):
    """What ``LogPosterior`` is, of totals alone and with kernels that are swarmbo's own, but for rounding."""

    def _covariances(
        self, lengthscales: Float[np.ndarray, " d"], outputscales: Float[np.ndarray, " k"]
    ) -> tuple[Float[np.ndarray, " pairs"], Any]:
        pairs, X = np.zeros(len(self._rows)), self._U / lengthscales[:, None]
        kernels = np.array([CODES[kernel] for kernel in self.kernels])
        ends = np.array([own.stop for own in self._slices])
        add_covariances(kernels, ends, X, outputscales, pairs)
        return pairs, (kernels, ends, X)

    def _derivatives(
        self,
        lengthscales: Float[np.ndarray, " d"],
        outputscales: Float[np.ndarray, " k"],
        radial: Any,
        W: Float[np.ndarray, " pairs"],
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " d"]]:
        by_output, by_length = np.empty(len(outputscales)), np.empty(len(lengthscales))
        kernels, ends, X = radial
        put_derivatives(kernels, ends, X, outputscales, W, by_output, by_length)
        return by_output / outputscales, by_length
