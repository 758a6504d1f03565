"""Posteriors of very many factors: at one point each, and roughly at hundreds. Import it late: numba is slow to load.

The formulas are those of ``swarmbo.belief.gp.compiled_posterior``, which has eight points side by side. At one point
that leaves seven eighths undone, so here entries of L⁻¹ lie side by side. Tables of hundreds of points only say where
to look: there sixteen points lie side by side in single precision, and so does L⁻¹, which then fits into a core's
fastest cache.
"""

from typing import Any

import numba
import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.block_rows import ROWS
from swarmbo.belief.gp.compiled_posterior import GRADIENT, LANES, MEAN, SIGNATURE, SLOPE, VARIANCE, predict
from swarmbo.belief.gp.triangular_steps import (
    ROUGH_POINTS,
    block_of_one,
    rough_apart,
    rough_block,
    rough_told,
    row_of,
)
from swarmbo.boundary.compiling import compiled
from swarmbo.kernels.compiled import radial, rough_radial

_unsigned: Any = np.uint64
_single: Any = np.float32
_ROWS, _BYTES, _HALF, _ONE = _unsigned(ROWS), _unsigned(8), _unsigned(4), _unsigned(1)
_STEEP = 1e3  # entry of L⁻¹ from which on single precision loses too many digits of a variance
_ZERO = _single(0.0)


@numba.njit(nogil=True, fastmath=LANES)
def _at_reference(
    kernel: int,
    reference: Float[np.ndarray, " a"],
    lengths: Float[np.ndarray, " a"],
    Zt: Float[np.ndarray, "a T"],
    weights: Float[np.ndarray, " T"],
    v: Float[np.ndarray, " a"],
    away: Float[np.ndarray, " T"],
    unused: Float[np.ndarray, " T"],
    out: Float[np.ndarray, " T"],
) -> None:
    """Covariances with the observations at the point of reference, which is put into ``v`` in lengthscales."""
    T = len(weights)
    away[:] = 0.0
    for d in range(len(v)):
        v[d] = reference[d] / lengths[d]
        for t in range(T):
            away[t] += (v[d] - Zt[d, t]) ** 2
    radial(kernel, away, 1.0, out, unused)
    for t in range(T):
        out[t] *= weights[t]


@compiled(SIGNATURE, nogil=True, fastmath=LANES)
def predict_few(
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
    """What ``predict`` does, point after point."""
    g, m, a = U.shape
    most = (alpha.shape[1] + ROWS - 1) // ROWS * ROWS
    k, slope, w = np.empty(most), np.empty(most), np.empty(most)
    apart, x, v = np.empty(most), np.empty(a), np.empty(a)
    at_reference, one = np.zeros(most), np.zeros((3, 1))
    for f in range(g):
        kernel, T, weight, own_alpha = kernels[f], counts[f], weights[f], alpha[f]
        n_rows = (T + ROWS - 1) // ROWS * ROWS
        k[T:n_rows] = 0.0
        if is_contrast:
            _at_reference(
                kernel, reference[f], lengths[f], Zt[f, :, :T], weight[:T], v, apart[:T], slope[:T], at_reference[:T]
            )
        for p in range(m):
            apart[:] = 0.0
            for d in range(a):
                x[d] = U[f, p, d] / lengths[f, d]
                for t in range(T):
                    apart[t] += (x[d] - Zt[f, d, t]) ** 2
            radial(kernel, apart[:T], 1.0, k[:T], slope[:T])
            told = 0.0
            for t in range(T):
                k[t] = weight[t] * k[t] - at_reference[t]
                told += own_alpha[t] * k[t]
            mean[f, p] = told
            if wanted == MEAN:
                continue
            w[:n_rows], square = 0.0, 0.0
            if wanted != SLOPE:
                width = _unsigned(0)
                at, out = _unsigned(k.ctypes.data), _unsigned(w.ctypes.data)
                for b in range(n_rows // ROWS):
                    width += _ROWS
                    rows = blocks[b] + _unsigned(places[f]) * _ROWS * width * _BYTES
                    square += block_of_one(rows, width, at, out, wanted == GRADIENT)
            one[:] = 0.0
            if is_contrast:
                for d in range(a):
                    one[0, 0] += (x[d] - v[d]) ** 2
                radial(kernel, one[0], outputs[f], one[1], one[2])
            if wanted != SLOPE:
                prior = 2.0 * (outputs[f] - one[1, 0]) if is_contrast else outputs[f]
                var[f, p] = max(prior - square, 0.0)
            if wanted == VARIANCE:
                continue
            for d in range(a):
                by_mean, by_var = 0.0, 0.0
                for t in range(T):
                    pull = weight[t] * slope[t] * (Zt[f, d, t] - x[d])
                    by_mean += pull * own_alpha[t]
                    by_var += pull * w[t]
                own = one[2, 0] * (x[d] - v[d]) if is_contrast else 0.0
                dmean[f, p, d] = by_mean / lengths[f, d]
                dvar[f, p, d] = 2.0 * (own - by_var) / lengths[f, d]


@compiled(SIGNATURE, nogil=True, fastmath=LANES)
def predict_roughly(
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
    """What ``predict`` does of means and variances, in single precision where that will do."""
    g, m, a = U.shape
    most = (alpha.shape[1] + ROWS - 1) // ROWS * ROWS
    n_blocks = most // ROWS
    entries = np.empty(ROWS * ROWS * n_blocks * (n_blocks + 1) // 2, dtype=np.float32)
    K, apart = np.zeros((most, ROUGH_POINTS), dtype=np.float32), np.empty((most, ROUGH_POINTS), dtype=np.float32)
    squares, x = np.empty(ROUGH_POINTS, dtype=np.float32), np.empty((a, ROUGH_POINTS), dtype=np.float32)
    told, away_from = np.empty(ROUGH_POINTS, dtype=np.float32), np.empty(ROUGH_POINTS, dtype=np.float32)
    Z, weight = np.empty((a, most), dtype=np.float32), np.empty(most, dtype=np.float32)
    own_alpha, shift = np.empty(most, dtype=np.float32), np.zeros(most, dtype=np.float32)
    v, away, at_reference, unused = np.zeros(a), np.empty(most), np.zeros(most), np.empty(most)
    near_one, own_v = np.zeros(ROUGH_POINTS, dtype=np.float32), np.empty(a, dtype=np.float32)
    for f in range(g):
        kernel, T = kernels[f], counts[f]
        n_rows = (T + ROWS - 1) // ROWS * ROWS
        steepest = 0.0
        for i in range(T):
            steepest = max(steepest, row_of(blocks, places[f], i)[i])
        if steepest > _STEEP:
            own = slice(f, f + 1)
            predict(
                wanted, kernels[own], counts[own], U[own], reference[own], is_contrast, Zt[own], lengths[own],
                outputs[own], weights[own], alpha[own], blocks, places[own], mean[own], var[own], dmean[own], dvar[own],
            )  # fmt: skip
            continue
        begun = 0
        for i in range(n_rows):
            row = row_of(blocks, places[f], i)
            for j in range(len(row)):
                entries[begun + j] = _single(row[j])
            begun += len(row)
        if is_contrast:
            _at_reference(
                kernel, reference[f], lengths[f], Zt[f, :, :T], weights[f, :T], v, away[:T], unused[:T],
                at_reference[:T],
            )  # fmt: skip
        for d in range(a):
            own_v[d] = _single(v[d])
        for t in range(T):
            weight[t], own_alpha[t] = _single(weights[f, t]), _single(alpha[f, t])
            shift[t] = _single(at_reference[t])
            for d in range(a):
                Z[d, t] = _single(Zt[f, d, t])
        K[T:n_rows] = _ZERO
        for start in range(0, m, ROUGH_POINTS):
            apart[:] = _ZERO
            for d in range(a):
                for p in range(ROUGH_POINTS):  # beyond the last point, that one again
                    x[d, p] = _single(U[f, min(start + p, m - 1), d] / lengths[f, d])
            some, n = _unsigned(T), T * ROUGH_POINTS
            rough_apart(
                _unsigned(x.ctypes.data), _unsigned(Z.ctypes.data), _unsigned(most), _unsigned(a), some,
                _unsigned(apart.ctypes.data),
            )  # fmt: skip
            rough_radial(kernel, apart.reshape(-1)[:n], K.reshape(-1)[:n])
            told[:], squares[:] = _ZERO, _ZERO
            at = _unsigned(K.ctypes.data)
            rough_told(
                at, some, _unsigned(weight.ctypes.data), _unsigned(shift.ctypes.data),
                _unsigned(own_alpha.ctypes.data), _unsigned(told.ctypes.data),
            )  # fmt: skip
            n_points = min(ROUGH_POINTS, m - start)
            for p in range(n_points):
                mean[f, start + p] = told[p]
            if wanted == MEAN:
                continue
            rows, width = _unsigned(entries.ctypes.data), _unsigned(0)
            out = _unsigned(squares.ctypes.data)
            for _ in range(n_rows // ROWS):
                width += _ROWS
                rough_block(rows, width, width, at, out)
                rows += _ROWS * width * _HALF
            if is_contrast:
                away_from[:] = _ZERO
                rough_apart(
                    _unsigned(x.ctypes.data), _unsigned(own_v.ctypes.data), _ONE, _unsigned(a), _ONE,
                    _unsigned(away_from.ctypes.data),
                )  # fmt: skip
                rough_radial(kernel, away_from, near_one)
            for p in range(n_points):
                prior = 2.0 * outputs[f] * (1.0 - near_one[p]) if is_contrast else outputs[f]
                var[f, start + p] = max(prior - squares[p], 0.0)
