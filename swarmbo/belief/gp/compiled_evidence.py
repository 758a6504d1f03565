"""The evidence of stacks of latents in one compiled pass for each theta. Import it late: numba is slow to load.

The formulas are those of ``swarmbo.belief.gp.stacked_evidence``, and so are the results, but for rounding. What is
observed may also be a sum of latents that read some of the coordinates each. Of a theta nothing is kept but slopes,
covariances of all parts of a sum but the last, and, in place of the covariances, their inverse: what fits into a core's
cache.
"""

import math
from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
from jaxtyping import Bool, Float, Int
from numba.core import types

from swarmbo.belief.gp.evidence import LogPosterior
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.gp.stacked_evidence import Evaluated, StackedLogPosterior
from swarmbo.boundary.compiling import compiled
from swarmbo.kernels import KernelName
from swarmbo.kernels.compiled import CODES, radial
from swarmbo.kernels.threads import in_threads

_FUSED: Any = {"contract"}
_LANES: Any = {"contract", "reassoc", "nsz"}  # sums may be taken in lanes
_EPSILON = float(np.finfo(float).eps)
_ATTEMPTS = 12  # to mend a matrix, by ten times as much each time
_BLOCK = 4  # pivots eliminated at once: every entry of the matrix is read and written once for all of them


def _read(n_dims: int, of: Any = types.float64) -> Any:
    return types.Array(of, n_dims, "C", readonly=True)  # takes writable arrays too


@numba.njit(nogil=True, fastmath=_FUSED)
def inverted(A: Float[np.ndarray, "T T"], strip: Float[np.ndarray, "8 T"]) -> tuple[float, float]:
    """Put -A⁻¹ in the place of a positive definite matrix A, by elimination of four pivots at a time.

    Source: Goodnight 1979 (sweeps); Higham 2002, section 14.4 (for such matrices pivots need no search).

    Args:
        A: Only its lower triangle is read and written; T is a multiple of four.
        strip: Overwritten.

    Returns:
        Half the logarithm of the determinant, and the smallest pivot. They are the squares of Cholesky's; where one is
        not above 0, nothing else means anything.
    """
    log_root, smallest = 0.0, np.inf
    columns, solved, block = strip[:_BLOCK], strip[_BLOCK:], np.empty((_BLOCK, _BLOCK))
    for first in range(0, len(A), _BLOCK):
        beyond = first + _BLOCK
        for k in range(_BLOCK):
            for j in range(first):
                columns[k, j] = A[first + k, j]
            for m in range(_BLOCK):
                block[k, m] = columns[k, first + m] = A[first + max(k, m), first + min(k, m)]
        for i in range(beyond, len(A)):
            for k in range(_BLOCK):
                columns[k, i] = A[i, first + k]
        for k in range(_BLOCK):  # the block's own inverse, by Gauss and Jordan
            pivot = block[k, k]
            smallest = min(smallest, pivot)
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
            b0, b1, b2, b3 = block[k]
            for i in range(len(A)):
                solved[k, i] = b0 * columns[0, i] + b1 * columns[1, i] + b2 * columns[2, i] + b3 * columns[3, i]
        for i in range(len(A)):
            s0, s1, s2, s3 = solved[0, i], solved[1, i], solved[2, i], solved[3, i]
            row = A[i]
            for j in range(i + 1):
                row[j] -= s0 * columns[0, j] + s1 * columns[1, j] + s2 * columns[2, j] + s3 * columns[3, j]
        for k in range(_BLOCK):
            for j in range(first):
                A[first + k, j] = solved[k, j]
            for m in range(k + 1):
                A[first + k, first + m] = -block[k, m]
        for i in range(beyond, len(A)):
            for k in range(_BLOCK):
                A[i, first + k] = solved[k, i]
    return log_root, smallest


@numba.njit(nogil=True, fastmath=_LANES)
def _times(A: Float[np.ndarray, "T T"], b: Float[np.ndarray, "t"], out: Float[np.ndarray, "t"]) -> None:
    """Put -A b into ``out``, for a symmetric matrix A of which the lower triangle is known."""
    t = len(b)
    out[:] = 0.0
    for i in range(t):
        row, own, summed = A[i], b[i], 0.0
        for j in range(i):
            summed -= row[j] * b[j]
            out[j] -= row[j] * own
        out[i] += summed - row[i] * own


@compiled(
    types.void(
        types.int64, _read(1, types.int64), _read(3), _read(2), _read(2), _read(2), _read(1, types.int64), _read(1),
        types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1], types.float64[::1], types.boolean[::1],
    ),
    nogil=True, fastmath=_LANES,
)  # fmt: skip
def evaluate(
    kernel: int,
    ends: Int[np.ndarray, " k"],
    Ut: Float[np.ndarray, "g a t"],
    z: Float[np.ndarray, "g t"],
    known_noise: Float[np.ndarray, "g t"],
    logs: Float[np.ndarray, "b c"],
    which: Int[np.ndarray, " b"],
    added: Float[np.ndarray, " b"],
    value: Float[np.ndarray, " b"],
    gradient: Float[np.ndarray, "b c"],
    information: Float[np.ndarray, "b c c"],
    mean: Float[np.ndarray, " b"],
    is_sound: Float[np.ndarray, " b"],
) -> None:
    """Log evidence of sums, its gradient and average information, by the c = a + k + 1 logarithms that follow.

    Args:
        kernel: Its code, see ``swarmbo.kernels.compiled``.
        ends: Where the coordinates of each of the k parts of a sum end; a latent that is observed by itself is one.
        Ut: Points as each sum reads them, coordinate by coordinate.
        z: Standardised outcomes.
        known_noise: Noise variances; NaN where the fitted one holds.
        logs: Of a lengthscales, k outputscales and the fitted noise variance.
        which: Of which sum each row is.
        added: To the diagonal of each matrix, so that it is not singular.
        value: The log evidence is put here, the constant mean at its optimum.
        gradient: By ``logs``.
        information: Likewise; (b, 0, 0) where it is not wanted.
        mean: The constant means.
        is_sound: Whether the matrix was positive definite, to rounding; if not, nothing else means anything.
    """
    a, t, k = Ut.shape[1], Ut.shape[2], len(ends)
    c, last, T = a + k + 1, a + k - 1, (t + _BLOCK - 1) // _BLOCK * _BLOCK
    A, strip = np.zeros((T, T)), np.zeros((2 * _BLOCK, T))
    slopes, parts = np.empty((k, t, t)), np.empty((k - 1, t, t))
    X, noise, fitted = np.empty((a, t)), np.empty(t), np.empty(t)
    squares, ones = np.empty(t), np.ones(t)
    solved, of_ones, alpha, residual = np.empty(t), np.empty(t), np.empty(t), np.empty(t)
    D, E = np.empty((c, t)), np.empty((c, t))  # derivatives of K by the logarithms, times alpha; K⁻¹ times that
    for row in range(len(logs)):
        own, theta = which[row], logs[row]
        output, free = 0.0, math.exp(theta[c - 1])
        for p in range(k):
            output += math.exp(theta[a + p])
        for d in range(a):
            share = math.exp(-theta[d])
            for i in range(t):
                X[d, i] = share * Ut[own, d, i]
        largest = 0.0
        for i in range(t):
            is_known = not math.isnan(known_noise[own, i])
            fitted[i] = 0.0 if is_known else free
            noise[i] = (known_noise[own, i] if is_known else free) + added[row]
            largest = max(largest, output + noise[i])
        for i in range(t):
            near, square, first = A[i, :i], squares[:i], 0
            for p in range(k):
                square[:] = 0.0
                for d in range(first, ends[p]):
                    x, at = X[d], X[d, i]
                    for j in range(i):
                        square[j] += (at - x[j]) ** 2
                part = near if p == k - 1 else parts[p, i, :i]
                radial(kernel, square, math.exp(theta[a + p]), part, slopes[p, i, :i])
                first = ends[p]
            for p in range(k - 1):
                part = parts[p, i]
                for j in range(i):
                    near[j] += part[j]
            A[i, i] = output + noise[i]
        for i in range(t, T):
            A[i, :i], A[i, i] = 0.0, largest
        log_root, smallest = inverted(A, strip)
        is_sound[row] = smallest > t * _EPSILON * largest
        if not is_sound[row]:
            continue
        log_root -= 0.5 * (T - t) * math.log(largest)
        _times(A, z[own], solved)
        _times(A, ones, of_ones)
        mean[row] = solved.sum() / of_ones.sum()
        known, explained, by_noise = 0.0, 0.0, 0.0
        for i in range(t):
            alpha[i] = solved[i] - mean[row] * of_ones[i]
            residual[i] = z[own, i] - mean[row]
            W = alpha[i] * alpha[i] + A[i, i]  # of (alpha alphaᵀ - K⁻¹)
            explained += residual[i] * alpha[i]
            known += noise[i] * W
            by_noise += fitted[i] * W
            D[last, i], D[c - 1, i] = residual[i] - noise[i] * alpha[i], fitted[i] * alpha[i]
        value[row] = -0.5 * explained - log_root - 0.5 * t * math.log(2.0 * math.pi)
        # sum of W times the prior's covariances: K without its noise, and the sum of K⁻¹ times K is t
        gradient[row, last], gradient[row, c - 1] = 0.5 * (explained - t - known), 0.5 * by_noise
        for p in range(k - 1):  # of the last part what the others leave
            out, own_output, summed = D[a + p], math.exp(theta[a + p]), 0.0
            out[:] = 0.0
            for i in range(t):
                by, negative, near, told = alpha[i], A[i], parts[p, i], own_output * alpha[i]
                summed += 0.5 * own_output * (by * by + negative[i])
                for j in range(i):
                    summed += near[j] * (by * alpha[j] + negative[j])
                    told += near[j] * alpha[j]
                    out[j] += near[j] * by
                out[i] += told
            gradient[row, a + p] = summed
            gradient[row, last] -= summed
            D[last] -= out
        p = 0
        for d in range(a):
            x, out, summed = X[d], D[d], 0.0
            out[:] = 0.0
            if d == ends[p]:
                p += 1
            for i in range(t):
                at, by, negative, slope, told = x[i], alpha[i], A[i], slopes[p, i], 0.0
                for j in range(i):
                    change = slope[j] * (at - x[j]) ** 2
                    summed += change * (by * alpha[j] + negative[j])
                    told += change * alpha[j]
                    out[j] += change * by
                out[i] += told
            gradient[row, d] = summed
        if information.shape[1] == 0:
            continue
        for d in range(c):
            _times(A, D[d], E[d])
        for d in range(c):
            for e in range(d + 1):
                summed = 0.0
                for i in range(t):
                    summed += D[d, i] * E[e, i]
                information[row, d, e] = information[row, e, d] = 0.5 * summed


class CompiledLogPosterior(StackedLogPosterior):
    """What ``StackedLogPosterior`` is, compiled, for kernels that are swarmbo's own and outcomes that do not fade.

    A matrix that is singular to rounding is left to NumPy, which adds to its diagonal; of sums that is done here.

    Args:
        priors: Of theta, one each; all of one form. Those of several latents are of their sum.
        kernel: Of all.
        U: Points (g, t, a) in the unit cube, as each latent reads them, or all latents of a sum in turn.
        z: Standardised outcomes (g, t).
        known_noise: Noise variances (g, t) that were told, standardised; NaN where theta has it.
    """

    def __init__(
        self,
        priors: Sequence[HyperparameterPrior],
        kernel: KernelName,
        U: Float[np.ndarray, "g t a"],
        z: Float[np.ndarray, "g t"],
        known_noise: Float[np.ndarray, "g t"],
    ) -> None:
        super().__init__(priors, kernel, U, np.ascontiguousarray(z), np.ascontiguousarray(known_noise))
        self._code, self._Ut = CODES[kernel], np.ascontiguousarray(np.swapaxes(U, 1, 2))
        self._ends = np.cumsum(priors[0].sizes)
        q, a, rest = priors[0].n_lengthscales, U.shape[2], len(self._ends) + 1
        lengths = np.ones((a, 1)) if priors[0].is_shared else np.eye(a)
        # logarithms by theta
        self._of_theta = np.block([[lengths, np.zeros((a, rest))], [np.zeros((rest, q)), np.eye(rest)]])

    def __call__(self, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"]) -> Evaluated:
        """Worth of some thetas; see ``StackedLogPosterior``."""
        found, is_sound = self._evaluated(theta, which, np.zeros(len(theta)))
        if is_sound.all():
            return found
        (singular,) = np.nonzero(~is_sound)
        if len(self._ends) == 1:
            found.put(singular, super().__call__(theta[singular], which[singular]))
            return found
        outputs = np.exp(theta[:, -1 - len(self._ends) :]).sum(axis=1)  # the noise variance included
        level = self._z.shape[1] * _EPSILON * np.maximum(outputs, np.nan_to_num(self._known_noise[which]).max(axis=1))
        for attempt in range(_ATTEMPTS):
            added = level[singular] * 10.0**attempt
            mended, is_sound = self._evaluated(theta[singular], which[singular], added)
            found.put(singular[is_sound], mended.take(np.flatnonzero(is_sound)))
            singular = singular[~is_sound]
            if not len(singular):
                return found
        raise ValueError("matrix is no covariance matrix: its negative eigenvalues are not rounding errors")

    def _evaluated(
        self, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"], added: Float[np.ndarray, " b"]
    ) -> tuple[Evaluated, Bool[np.ndarray, " b"]]:
        """Worth of some thetas, something added to the diagonals, and whether it means anything."""
        (b, _), (c, _), by = theta.shape, self._of_theta.shape, self._of_theta
        logs = theta @ by.T
        logs[:, : self._Ut.shape[1]] += self._first.base
        value, gradient, information = np.zeros(b), np.zeros((b, c)), np.zeros((b, c, c))
        mean, is_sound = np.zeros(b), np.zeros(b, dtype=bool)

        def put(rows: slice) -> None:
            evaluate(
                self._code, self._ends, self._Ut, self._z, self._known_noise, logs[rows], which[rows], added[rows],
                value[rows], gradient[rows], information[rows], mean[rows], is_sound[rows],
            )  # fmt: skip

        in_threads(b, put)
        return self.with_prior(Evaluated(value, gradient @ by, by.T @ information @ by, mean), theta, which), is_sound


class OneSumPosterior(LogPosterior):
    """What ``LogPosterior`` is, of the totals of one sum whose factors have one kernel that is swarmbo's own.

    A matrix that is singular to rounding is left to NumPy, which adds to its diagonal.

    Args:
        prior: Of theta; one noise variance, nothing tied.
        kernels: Of each factor, all one.
        scopes: Columns of U that each factor sees.
        U: Points (t, n) in the unit cube.
        z: Standardised outcomes (t,).
        known_noise: Noise variances (t,) that were told, standardised; NaN where theta has it.
    """

    def __init__(
        self,
        prior: HyperparameterPrior,
        kernels: Sequence[KernelName],
        scopes: Sequence[Sequence[int]],
        U: Float[np.ndarray, "t n"],
        z: Float[np.ndarray, " t"],
        known_noise: Float[np.ndarray, " t"],
    ) -> None:
        super().__init__(prior, kernels, scopes, U, z, known_noise)
        ends = np.cumsum([len(scope) for scope in scopes])
        points, outcomes, noise = (np.ascontiguousarray(rows)[None] for rows in (self._U, z, known_noise))
        self._given = CODES[kernels[0]], ends, points, outcomes, noise

    def __call__(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """Value and gradient; constant means are at their optimum for this theta."""
        value, gradient, _, is_sound = self._evaluated(theta)
        if not is_sound:
            return super().__call__(theta)
        d, (log_prior, by_prior) = len(self._U), self.prior.log_density(theta)
        by_theta = self.prior.gradient(gradient[:d], None, gradient[d:-1], gradient[-1:])
        return value + log_prior, by_theta + by_prior

    def means(self, theta: Float[np.ndarray, " p"]) -> Float[np.ndarray, " c"]:
        """The profiled constant mean, standardised."""
        _, _, mean, is_sound = self._evaluated(theta)
        return mean if is_sound else super().means(theta)

    def _evaluated(
        self, theta: Float[np.ndarray, " p"]
    ) -> tuple[float, Float[np.ndarray, " c"], Float[np.ndarray, "1"], bool]:
        """Log evidence, its gradient by the logarithms of hyper-parameters, the mean, and whether these are sound."""
        logs = np.log(np.concatenate(self.prior.unpack(theta)))[None]
        value, gradient, information = np.zeros(1), np.zeros(logs.shape), np.zeros((1, 0, 0))
        mean, is_sound = np.zeros(1), np.zeros(1, dtype=bool)
        evaluate(
            *self._given, logs, np.zeros(1, dtype=np.int64), np.zeros(1), value, gradient, information, mean, is_sound
        )
        return float(value[0]), gradient[0], mean, bool(is_sound[0])
