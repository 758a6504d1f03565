"""Posteriors of single factors in one compiled pass for each factor. Import it late: numba is slow to load.

The formulas are those of ``swarmbo.belief.gp.local_posterior``, and so are the results, but for rounding. A factor's
L⁻¹ is read block by block of its rows and only as far as the diagonal: with each row go its entry of v = L⁻¹ k for
eight points and, at once, its share of L⁻ᵀ v.
"""

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Int
from numba.core import types

from swarmbo.belief.gp.block_rows import ROWS, BlockRows, Wanted
from swarmbo.belief.gp.triangular_steps import POINTS, block
from swarmbo.boundary.compiling import compiled
from swarmbo.kernels import KernelName
from swarmbo.kernels.compiled import CODES, radial
from swarmbo.kernels.threads import in_threads

LANES: Any = {"contract", "reassoc", "nsz"}  # sums may be taken in lanes
_CODES = types.Array(types.int64, 1, "C", readonly=True)
_ADDRESSES = types.Array(types.uint64, 1, "C", readonly=True)
_unsigned: Any = np.uint64
_ROWS, _BYTES, _NONE = _unsigned(ROWS), _unsigned(8), _unsigned(0)
_NOWHERE = np.zeros(0, dtype=np.uint64)
MEAN, SLOPE, VARIANCE, GRADIENT = range(4)  # what is wanted; slopes are those of the mean alone


def _read(n_dims: int) -> Any:
    return types.Array(types.float64, n_dims, "C", readonly=True)  # takes writable arrays too


SIGNATURE = types.void(
    types.int64, _CODES, _CODES, _read(3), _read(2), types.boolean, _read(3), _read(2), _read(1),
    _read(2), _read(2), _ADDRESSES, _CODES,
    types.float64[:, ::1], types.float64[:, ::1], types.float64[:, :, ::1], types.float64[:, :, ::1],
)  # fmt: skip


@numba.njit(nogil=True)
def _solved(
    blocks: Int[np.ndarray, " n"],
    place: int,
    n_rows: int,
    K: Float[np.ndarray, "T 8"],
    squares: Float[np.ndarray, " 8"],
    W: Float[np.ndarray, "T 8"],
    has_gradient: bool,
) -> None:
    """|L⁻¹ k|² of eight points and, where gradients are wanted, L⁻ᵀ L⁻¹ k; L⁻¹ is that of a place in the blocks."""
    squares[:], W[:n_rows] = 0.0, 0.0
    k, s, w = _unsigned(K.ctypes.data), _unsigned(squares.ctypes.data), _unsigned(W.ctypes.data)
    width = _NONE
    for b in range(n_rows // ROWS):
        width += _ROWS
        block(blocks[b] + _unsigned(place) * _ROWS * width * _BYTES, width, width, k, s, w, has_gradient)


@compiled(SIGNATURE, nogil=True, fastmath=LANES)
def predict(
    wanted: int,
    kernels: Int[np.ndarray, " g"],
    counts: Int[np.ndarray, " g"],
    U: Float[np.ndarray, "g m a"],
    reference: Float[np.ndarray, "g a"],
    is_contrast: bool,
    Zt: Float[np.ndarray, "g a T"],
    lengths: Float[np.ndarray, "g a"],
    outputs: Float[np.ndarray, " g"],
    weights: Float[np.ndarray, "g T"],
    alpha: Float[np.ndarray, "g T"],
    blocks: Int[np.ndarray, " n"],
    places: Int[np.ndarray, " g"],
    mean: Float[np.ndarray, "g m"],
    var: Float[np.ndarray, "g m"],
    dmean: Float[np.ndarray, "g m a"],
    dvar: Float[np.ndarray, "g m a"],
) -> None:
    """Posterior of factors at points of their own, or of the difference to a point of reference; standardised.

    Args:
        wanted: ``MEAN``, ``SLOPE``, ``VARIANCE`` or ``GRADIENT``; only what is wanted is put into the last four.
        kernels: Codes, see ``swarmbo.kernels.compiled``.
        counts: How many observations each factor has; what lies beyond is padding.
        U: Points of the unit cube.
        reference: One for each factor.
        is_contrast: Whether the difference to it is asked for.
        Zt: Observed points, in lengthscales, coordinate by coordinate.
        lengths: Lengthscales.
        outputs: Outputscales.
        weights: By which correlations with observations become covariances.
        alpha: Weights of the mean.
        blocks: Where those of the rows of all L⁻¹ begin.
        places: Of each factor's L⁻¹ among them.
        mean: Prior means not included.
        var: Not below 0.
        dmean: By coordinates of the unit cube.
        dvar: Likewise.
    """
    g, m, a = U.shape
    most = (alpha.shape[1] + ROWS - 1) // ROWS * ROWS
    K, S = np.empty((most, POINTS)), np.empty((most, POINTS))
    W, apart = np.empty((most, POINTS)), np.empty((most, POINTS))
    squares, x, pulls = np.empty(POINTS), np.empty((a, POINTS)), np.empty((2, POINTS))
    v, away, at_reference, unused = np.empty(a), np.empty(most), np.zeros(most), np.empty(most)
    one, near_one, slope_one = np.zeros(POINTS), np.zeros(POINTS), np.zeros(POINTS)
    for f in range(g):
        kernel, T, weight, own_alpha = kernels[f], counts[f], weights[f], alpha[f]
        n_rows = (T + ROWS - 1) // ROWS * ROWS
        K[T:n_rows] = 0.0
        if is_contrast:
            away[:] = 0.0
            for d in range(a):
                v[d] = reference[f, d] / lengths[f, d]
                for t in range(T):
                    away[t] += (v[d] - Zt[f, d, t]) ** 2
            radial(kernel, away[:T], 1.0, at_reference, unused)
            for t in range(T):
                at_reference[t] *= weight[t]
        for start in range(0, m, POINTS):
            apart[:] = 0.0
            for d in range(a):
                for p in range(POINTS):  # beyond the last point, that one again
                    x[d, p] = U[f, min(start + p, m - 1), d] / lengths[f, d]
                for t in range(T):
                    for p in range(POINTS):
                        apart[t, p] += (x[d, p] - Zt[f, d, t]) ** 2
            radial(kernel, apart.reshape(-1)[: T * POINTS], 1.0, K.reshape(-1), S.reshape(-1))
            pulls[0] = 0.0
            for t in range(T):
                for p in range(POINTS):
                    K[t, p] = weight[t] * K[t, p] - at_reference[t]
                    pulls[0, p] += own_alpha[t] * K[t, p]
            n_points = min(POINTS, m - start)
            mean[f, start : start + n_points] = pulls[0, :n_points]
            if wanted == MEAN:
                continue
            if wanted == SLOPE:
                W[:T] = 0.0
            else:
                _solved(blocks, places[f], n_rows, K, squares, W, wanted == GRADIENT)
            if is_contrast:
                one[:] = 0.0
                for d in range(a):
                    one += (x[d] - v[d]) ** 2
                radial(kernel, one, outputs[f], near_one, slope_one)
            if wanted != SLOPE:
                for p in range(n_points):
                    prior = 2.0 * (outputs[f] - near_one[p]) if is_contrast else outputs[f]
                    var[f, start + p] = max(prior - squares[p], 0.0)
            if wanted == VARIANCE:
                continue
            for d in range(a):
                pulls[:] = 0.0
                for t in range(T):
                    for p in range(POINTS):
                        pull = weight[t] * S[t, p] * (Zt[f, d, t] - x[d, p])
                        pulls[0, p] += pull * own_alpha[t]
                        pulls[1, p] += pull * W[t, p]
                for p in range(n_points):
                    own = slope_one[p] * (x[d, p] - v[d]) if is_contrast else 0.0
                    dmean[f, start + p, d] = pulls[0, p] / lengths[f, d]
                    dvar[f, start + p, d] = 2.0 * (own - pulls[1, p]) / lengths[f, d]


def predicted(
    kernels: Sequence[KernelName],
    counts: Int[np.ndarray, " g"],
    U: Float[np.ndarray, "g m a"],
    reference: Float[np.ndarray, "g 1 a"] | None,
    Zt: Float[np.ndarray, "g a T"],
    lengths: Float[np.ndarray, "g a"],
    outputs: Float[np.ndarray, " g"],
    weights: Float[np.ndarray, "g T"],
    alpha: Float[np.ndarray, "g T"],
    inverse: BlockRows,
    places: Int[np.ndarray, " g"],
    wanted: Wanted,
    kernel: Any = predict,
) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"], Float[np.ndarray, "g m a"]]:
    """Mean, variance and their gradients, as ``predict`` has them; what is not wanted is zero.

    Args:
        kernels: By name; the others are as there.
        counts: Of observations.
        U: Points of the unit cube.
        reference: None: the factors themselves are asked for, not the difference to what they are there.
        Zt: Observed points.
        lengths: Lengthscales.
        outputs: Outputscales.
        weights: Of correlations.
        alpha: Of the mean.
        inverse: L⁻¹ of some factors, or one of all.
        places: Of each factor's own among them.
        wanted: ``slope``: the mean and its gradient; ``gradient``: all.
        kernel: What works it out: ``predict``, or another one of its signature.
    """
    (g, m, a), whole = U.shape, np.ascontiguousarray
    mean, var, dmean, dvar = np.zeros((g, m)), np.zeros((g, m)), np.zeros((g, m, a)), np.zeros((g, m, a))
    code = {"mean": MEAN, "slope": SLOPE, "variance": VARIANCE, "gradient": GRADIENT}[wanted]
    names, points = np.array([CODES[name] for name in kernels]), whole(U)
    away = np.zeros((g, a)) if reference is None else whole(reference[:, 0])
    Zt, lengths, outputs, weights, alpha = map(whole, (Zt, lengths, outputs, weights, alpha))
    blocks = inverse.addresses if code >= VARIANCE else _NOWHERE  # to look them up takes as long as a few means

    def put(rows: slice) -> None:
        kernel(
            code, names[rows], counts[rows], points[rows], away[rows], reference is not None,
            Zt[rows], lengths[rows], outputs[rows], weights[rows], alpha[rows], blocks, places[rows],
            mean[rows], var[rows], dmean[rows], dvar[rows],
        )  # fmt: skip

    in_threads(g, put)
    return mean, var, dmean, dvar
