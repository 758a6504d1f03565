"""Compiled evaluation of the evidence of a latent or of a sum of latents, for one theta. Import it late.

With fewer than ``MANY`` outcomes, the matrix is inverted here, in blocks that fit into a core's cache; else by LAPACK.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numba.core import types
from scipy.linalg import blas, lapack

from swarmbo.belief.gp.cholesky import EPSILON
from swarmbo.boundary.compiling import LANES, compiled, inner, read_only
from swarmbo.kernels.compiled import GIVEN, radial

_INDEX, _VECTOR, _MATRIX, _CUBE = read_only(1, types.int64), read_only(1), read_only(2), read_only(3)
_FUSED: Any = {"contract"}
_BLOCK = 4  # pivots eliminated at once: every entry of the matrix is read and written once for all of them
_ROWS = 7  # number of work arrays of ``t`` numbers, besides one per coordinate
Workspace = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
MANY = 700  # number of outcomes from which LAPACK inverts more quickly than ``inverted``
ALL, FILL, FINISH = range(3)  # stages of ``evaluate``


@inner(fastmath=_FUSED)
def inverted(A: Float[np.ndarray, "T T"], strip: Float[np.ndarray, "13 T"]) -> tuple[float, float]:
    """Replace a positive definite A, whose size is a multiple of four, by -A⁻¹; only the lower triangle is used. Return
    half the log determinant, and the smallest pivot relative to A's diagonal; if it is not positive, all results are
    invalid. Source: Goodnight 1979 (sweeps); Higham 2002, section 14.4 (no search for pivots).
    """
    log_root, smallest = 0.0, np.inf
    columns, solved, block, own = strip[:_BLOCK], strip[_BLOCK : 2 * _BLOCK], strip[2 * _BLOCK :], strip[3 * _BLOCK]
    for i in range(len(A)):
        own[i] = A[i, i]
    for first in range(0, len(A), _BLOCK):
        beyond = first + _BLOCK
        for k in range(_BLOCK):
            for j in range(first):
                columns[k, j] = A[first + k, j]
            for m in range(_BLOCK):
                later, sooner = (k, m) if k > m else (m, k)
                block[k, m] = columns[k, first + m] = A[first + later, first + sooner]
        for i in range(beyond, len(A)):
            for k in range(_BLOCK):
                columns[k, i] = A[i, first + k]
        for k in range(_BLOCK):  # inverse of the block, by Gauss-Jordan elimination
            pivot = block[k, k]
            smallest = min(smallest, pivot / own[first + k])
            if not pivot > 0.0:
                return log_root, smallest
            log_root += 0.5 * math.log(pivot)
            block[k, k] = 1.0
            for m in range(_BLOCK):
                block[k, m] /= pivot
            for i in range(_BLOCK):
                if i != k:
                    share = block[i, k]
                    block[i, k] = 0.0
                    for m in range(_BLOCK):
                        block[i, m] -= share * block[k, m]
        for k in range(_BLOCK):
            b0, b1, b2, b3 = block[k, 0], block[k, 1], block[k, 2], block[k, 3]
            for i in range(len(A)):
                solved[k, i] = b0 * columns[0, i] + b1 * columns[1, i] + b2 * columns[2, i] + b3 * columns[3, i]
        for i in range(0, len(A), _BLOCK):  # four rows at once, so that columns are read once for all of them
            p, q, r, s = A[i], A[i + 1], A[i + 2], A[i + 3]
            p0, p1, p2, p3 = solved[0, i], solved[1, i], solved[2, i], solved[3, i]
            q0, q1, q2, q3 = solved[0, i + 1], solved[1, i + 1], solved[2, i + 1], solved[3, i + 1]
            r0, r1, r2, r3 = solved[0, i + 2], solved[1, i + 2], solved[2, i + 2], solved[3, i + 2]
            s0, s1, s2, s3 = solved[0, i + 3], solved[1, i + 3], solved[2, i + 3], solved[3, i + 3]
            for j in range(i + _BLOCK):
                c0, c1, c2, c3 = columns[0, j], columns[1, j], columns[2, j], columns[3, j]
                p[j] -= p0 * c0 + p1 * c1 + p2 * c2 + p3 * c3
                q[j] -= q0 * c0 + q1 * c1 + q2 * c2 + q3 * c3
                r[j] -= r0 * c0 + r1 * c1 + r2 * c2 + r3 * c3
                s[j] -= s0 * c0 + s1 * c1 + s2 * c2 + s3 * c3
        for k in range(_BLOCK):
            for j in range(first):
                A[first + k, j] = solved[k, j]
            for m in range(k + 1):
                A[first + k, first + m] = -block[k, m]
        for i in range(beyond, len(A)):
            for k in range(_BLOCK):
                A[i, first + k] = solved[k, i]
    return log_root, smallest


@inner()
def _summed(b: Float[np.ndarray, " t"]) -> float:
    summed = 0.0
    for i in range(len(b)):
        summed += b[i]
    return summed


@inner(fastmath=LANES)
def _times(A: Float[np.ndarray, "T T"], b: Float[np.ndarray, " t"], out: Float[np.ndarray, " t"]) -> None:
    """Put -A b into ``out``, for a symmetric matrix A whose lower triangle is known."""
    t = len(b)
    out[:] = 0.0
    for i in range(t):
        row, own, summed = A[i], b[i], 0.0
        for j in range(i):
            summed -= row[j] * b[j]
            out[j] -= row[j] * own
        out[i] += summed - row[i] * own


@inner(fastmath=LANES)
def _derivative(
    changes: Float[np.ndarray, " pairs"],
    own: float,
    alpha: Float[np.ndarray, " t"],
    A: Float[np.ndarray, "T T"],
    out: Float[np.ndarray, " t"],
) -> float:
    """Return half the sum of dK (alpha alphaᵀ - K⁻¹), and put dK alpha into ``out``: dK has ``own`` on its diagonal."""
    summed, offset = 0.0, 0
    out[:] = 0.0
    for i in range(len(alpha)):
        by, negative, change = alpha[i], A[i], changes[offset : offset + i]
        summed += 0.5 * own * (by * by + negative[i])
        row_sum = own * by
        for j in range(i):
            summed += change[j] * (by * alpha[j] + negative[j])
            row_sum += change[j] * alpha[j]
            out[j] += change[j] * by
        out[i] += row_sum
        offset += i
    return summed


@inner(fastmath=LANES)
def _correlate(
    kernel: int,
    ends: Int[np.ndarray, " k"],
    X: Float[np.ndarray, "a t"],
    log_outputs: Float[np.ndarray, " k1"],
    parts: Float[np.ndarray, "k pairs"],
    slopes: Float[np.ndarray, "k pairs"],
    squares: Float[np.ndarray, " pairs"],
) -> None:
    """Put the parts' covariances of pairs of outcomes, and their slopes, into arrays; ``squares`` is workspace."""
    first = 0
    for p in range(len(ends)):
        squares[:], offset = 0.0, 0
        for i in range(X.shape[1]):
            square = squares[offset : offset + i]
            for d in range(first, ends[p]):
                x, at = X[d], X[d, i]
                for j in range(i):
                    square[j] += (at - x[j]) ** 2
            offset += i
        radial(kernel, squares, math.exp(log_outputs[p]), parts[p], slopes[p])
        first = ends[p]


@compiled(
    types.void(
        types.int64, _INDEX, _CUBE, _MATRIX, _MATRIX, _CUBE, _MATRIX, _INDEX,
        _VECTOR, types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1], types.float64[::1],
        types.boolean[::1], types.UniTuple(types.float64[:, ::1], 6), types.int64,
    ),
    fastmath=LANES,
)  # fmt: skip
def evaluate(
    kernel: int,
    ends: Int[np.ndarray, " k"],
    Ut: Float[np.ndarray, "g a t"],
    z: Float[np.ndarray, "g t"],
    known_noise: Float[np.ndarray, "g t"],
    given: Float[np.ndarray, "b 3 pairs"],
    logs: Float[np.ndarray, "b c"],
    which: Int[np.ndarray, " b"],
    added: Float[np.ndarray, " b"],
    value: Float[np.ndarray, " b"],
    gradient: Float[np.ndarray, "b c"],
    information: Float[np.ndarray, "b c c"],
    mean: Float[np.ndarray, " b"],
    is_sound: Float[np.ndarray, " b"],
    work: Workspace,
    stage: int,
) -> None:
    """Log evidence of sums, its gradient and average information, with respect to the c logarithms in ``logs``.

    These are logarithms of a lengthscales, the time lengthscale if there is a time axis, k outputscales and the fitted
    noise variance. The coordinates of each of the k parts of a sum end at ``ends``. Row b is for the sum ``which[b]``;
    the share ``added[b]`` of the diagonal is added to it. For a ``GIVEN`` kernel, ``given`` holds the correlation of
    each pair of outcomes, its slope, and its derivative with respect to the log time lengthscale.

    ``value`` and later arrays are overwritten; ``information`` of shape (b, 0, 0) is not computed. Rows that are not
    sound, because their matrix was not positive definite up to rounding, are invalid. Stage ``ALL`` does all of this.
    The other stages let the caller invert the matrix of one row: ``FILL`` writes the matrix into ``work``; ``FINISH``
    reads its negative inverse from ``work`` and half its log determinant from ``value``, and leaves the derivatives for
    the information in ``work``. ``work`` comes from ``workspace_for``.
    """
    a, t, k = Ut.shape[1], Ut.shape[2], len(ends)
    c, o, last = logs.shape[1], logs.shape[1] - k - 1, logs.shape[1] - 2  # o and last: the first and last outputscale
    A, strip, pairs, rows, D, E = work  # D: derivatives of K in the logarithms, times alpha; E: K⁻¹ D
    T, n = len(A), pairs.shape[1]
    # numbers about pairs of outcomes, row after row of the lower triangle: they take half of the cache that matrices
    # take, and the kernel has one long loop, which is faster than many short loops
    parts, slopes, by_time, squares = pairs[:k], pairs[k : 2 * k], pairs[2 * k :], pairs[len(pairs) - 1]
    noise, fitted, ones, solved, of_ones = rows[0], rows[1], rows[2], rows[3], rows[4]
    alpha, residual, X = rows[5], rows[6], rows[_ROWS:]
    ones[:] = 1.0
    for row in range(len(logs)):
        own, theta = which[row], logs[row]
        output, free = 0.0, math.exp(theta[c - 1])
        for p in range(k):
            output += math.exp(theta[o + p])
        for d in range(a):
            share = math.exp(-theta[d])
            for i in range(t):
                X[d, i] = share * Ut[own, d, i]
        largest = 0.0
        for i in range(t):
            is_known = not math.isnan(known_noise[own, i])
            residual[i], fitted[i] = z[own, i], 0.0 if is_known else free
            noise[i] = known_noise[own, i] if is_known else free
            noise[i] += added[row] * (output + noise[i])
            largest = output + noise[i] if output + noise[i] > largest else largest
        log_root = value[row]
        if stage != FINISH:
            if kernel == GIVEN:
                for j in range(n):
                    parts[0, j], slopes[0, j] = output * given[row, 0, j], output * given[row, 1, j]
                for d in range(o - a):
                    for j in range(n):
                        by_time[d, j] = output * given[row, 2, j]
            else:
                _correlate(kernel, ends, X, theta[o:], parts, slopes, squares)
            offset = 0
            for i in range(t):
                near, part = A[i, :i], parts[k - 1, offset : offset + i]
                for j in range(i):
                    near[j] = part[j]
                for p in range(k - 1):
                    part = parts[p, offset : offset + i]
                    for j in range(i):
                        near[j] += part[j]
                A[i, i] = output + noise[i]
                offset += i
            for i in range(t, T):
                A[i, :i], A[i, i] = 0.0, largest
            if stage == FILL:
                continue
            log_root, smallest = inverted(A, strip)
            is_sound[row] = smallest > t * EPSILON
            if not is_sound[row]:
                continue
        log_root -= 0.5 * (T - t) * math.log(largest)
        _times(A, residual, solved)
        _times(A, ones, of_ones)
        mean[row] = _summed(solved) / _summed(of_ones)
        known, explained, by_noise = 0.0, 0.0, 0.0
        for i in range(t):
            alpha[i] = solved[i] - mean[row] * of_ones[i]
            residual[i] = z[own, i] - mean[row]
            W = alpha[i] * alpha[i] + A[i, i]  # diagonal of alpha alphaᵀ - K⁻¹
            explained += residual[i] * alpha[i]
            known += noise[i] * W
            by_noise += fitted[i] * W
            D[last, i], D[c - 1, i] = residual[i] - noise[i] * alpha[i], fitted[i] * alpha[i]
        value[row] = -0.5 * explained - log_root - 0.5 * t * math.log(2.0 * math.pi)
        # sum of W times the prior's covariances: K without its noise, and the sum of K⁻¹ times K is t
        gradient[row, last], gradient[row, c - 1] = 0.5 * (explained - t - known), 0.5 * by_noise
        for p in range(k - 1):  # the last part gets what the other parts leave
            own_output = math.exp(theta[o + p])
            summed = _derivative(parts[p], own_output, alpha, A, D[o + p])
            gradient[row, o + p] = summed
            gradient[row, last] -= summed
            for i in range(t):
                D[last, i] -= D[o + p, i]
        p = 0
        for d in range(a):
            x, offset = X[d], 0
            if d == ends[p]:
                p += 1
            for i in range(t):
                at, slope, change = x[i], slopes[p, offset : offset + i], squares[offset : offset + i]
                for j in range(i):
                    change[j] = slope[j] * (at - x[j]) ** 2
                offset += i
            gradient[row, d] = _derivative(squares, 0.0, alpha, A, D[d])
        for d in range(a, o):
            gradient[row, d] = _derivative(by_time[d - a], 0.0, alpha, A, D[d])
        if stage != ALL or information.shape[1] == 0:
            continue
        for d in range(c):
            _times(A, D[d], E[d])
        for d in range(c):
            for e in range(d + 1):
                summed = 0.0
                for i in range(t):
                    summed += D[d, i] * E[e, i]
                information[row, d, e] = information[row, e, d] = 0.5 * summed


def workspace_for(k: int, t: int, c: int, a: int) -> Workspace:
    """Workspace that ``evaluate`` needs for t outcomes of a sum of k parts with a coordinates, and for c logarithms."""
    T, n_pairs = t if t >= MANY else (t + _BLOCK - 1) // _BLOCK * _BLOCK, k + c - a
    shapes = (3 * _BLOCK + 1, T), (n_pairs, t * (t - 1) // 2), (_ROWS + a, t), (c, t), (c, t)
    strip, pairs, rows, D, E = map(np.empty, shapes)
    # zeros, because LAPACK leaves one triangle unchanged, and NumPy would warn of invalid numbers there
    return np.zeros((T, T)), strip, pairs, rows, D, E


def evaluate_one(*arguments: Any, work: Workspace) -> None:
    """Evaluate one row as ``evaluate`` does; with ``MANY`` outcomes or more, by LAPACK, in half the time."""
    *_, z, _, _, _, _, _, value, _, information, _, is_sound = arguments
    t = z.shape[1]
    if t < MANY:
        evaluate(*arguments, work, ALL)
        return
    evaluate(*arguments, work, FILL)
    A = work[0].T  # its upper triangle is known, in LAPACK's order
    diagonal = A.diagonal().copy()
    A, info = lapack.dpotrf(A, lower=0, clean=0, overwrite_a=1)
    roots = A.diagonal()
    is_sound[0] = info == 0 and (roots**2 / diagonal).min() > t * EPSILON
    if not is_sound[0]:
        return
    value[0] = np.log(roots).sum()
    lapack.dpotri(A, lower=0, overwrite_c=1)
    A *= -1.0
    evaluate(*arguments, work, FINISH)
    if information.size:
        D = work[4].T
        information[0] = -0.5 * (D.T @ blas.dsymm(1.0, A, D, lower=0))
