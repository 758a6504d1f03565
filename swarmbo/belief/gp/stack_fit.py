"""The evidence of stacks of latents in one compiled pass for each theta, and its maximum. Import it late.

What ``gp.evidence`` works out for one matrix of outcomes is done here for many small ones side by side; each latent
searches on its own. What is observed may also be a sum of latents that read some of the coordinates each. Besides
value and gradient there is the average information, the mean of the observed and the expected information about theta
(Gilmour, Thompson & Cullis 1995),

    A_ij = 1/2 αᵀ K_i K⁻¹ K_j α,        K_i = dK / dθ_i,  α = K⁻¹ (z - mean),

which needs products with vectors only and is never indefinite. With the prior's precision it makes steps of Newton's
kind, so a search takes a handful of evaluations where one that learns the curvature from gradients takes twenty. Of
a theta nothing is kept but slopes, covariances of all parts of a sum but the last, and, in place of the covariances,
their inverse: what fits into a core's cache.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
from jaxtyping import Bool, Float, Int
from numba.core import types
from scipy.linalg import blas, lapack
from scipy.spatial.distance import pdist

from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.boundary.compiling import LANES, compiled, read_only
from swarmbo.kernels import KernelName, correlation_and_slope
from swarmbo.kernels.compiled import CODES, GIVEN, radial
from swarmbo.kernels.threads import in_threads

_INDEX, _VECTOR, _MATRIX, _CUBE = read_only(1, types.int64), read_only(1), read_only(2), read_only(3)
_FUSED: Any = {"contract"}
_EPSILON = float(np.finfo(float).eps)
_ATTEMPTS = 12  # to mend a matrix, by ten times as much each time
_BLOCK = 4  # pivots eliminated at once: every entry of the matrix is read and written once for all of them
MANY = 700  # outcomes of a sum or a latent, from which on LAPACK inverts more quickly than ``inverted``
_PAIRS = 2**18  # of outcomes whose correlations are kept at once, where compiled code is handed them
_DAMPED, _LEAST, _MOST = 0.1, 1e-8, 1e8  # of a step at first, and within which bounds
_SLIGHT = 1e-4  # share of the promised rise that a step must bring


@dataclass(frozen=True, eq=False)
class Evaluated:
    """Log posterior density of b thetas, constant means at their optimum; its gradient and average information.

    ``information`` includes the prior's precision; ``mean`` has the profiled constant means, standardised.
    """

    value: Float[np.ndarray, " b"]
    gradient: Float[np.ndarray, "b p"]
    information: Float[np.ndarray, "b p p"]
    mean: Float[np.ndarray, " b"]

    def bent(self, moved: Float[np.ndarray, "b p"], before: Float[np.ndarray, "b p"]) -> "Evaluated":
        """With information that agrees, along the last step, with how the gradient changed.

        The average information leaves out what data and model disagree on. Steps that trust it alone go too far along
        ridges, and come back, again and again.

        Source: Nocedal & Wright 2006, eq. 6.19 (BFGS), of one step only.
        """
        bend = before - self.gradient
        along = (self.information @ moved[..., None])[..., 0]
        expected, seen = (moved * along).sum(axis=1), (moved * bend).sum(axis=1)
        is_bowl = seen > _SLIGHT * expected
        added = bend[:, :, None] * bend[:, None, :] / np.where(is_bowl, seen, 1.0)[:, None, None]
        removed = along[:, :, None] * along[:, None, :] / np.where(is_bowl, expected, 1.0)[:, None, None]
        information = np.where(is_bowl[:, None, None], self.information - removed + added, self.information)
        return Evaluated(self.value, self.gradient, information, self.mean)

    def put(self, rows: Int[np.ndarray, " s"], other: "Evaluated") -> None:
        """Write others over some rows."""
        self.value[rows], self.gradient[rows] = other.value, other.gradient
        self.information[rows], self.mean[rows] = other.information, other.mean

    def take(self, rows: Int[np.ndarray, " s"]) -> "Evaluated":
        """Some rows."""
        return Evaluated(self.value[rows], self.gradient[rows], self.information[rows], self.mean[rows])


@numba.njit(nogil=True, fastmath=_FUSED)
def inverted(A: Float[np.ndarray, "T T"], strip: Float[np.ndarray, "8 T"]) -> tuple[float, float]:
    """Put -A⁻¹ in the place of a positive definite matrix A, by elimination of four pivots at a time.

    Only the lower triangle of A means anything; its size is a multiple of four. Returns half the logarithm of the
    determinant, and the smallest pivot. Pivots are the squares of Cholesky's; where one is not above 0, nothing else
    means anything.

    Source: Goodnight 1979 (sweeps); Higham 2002, section 14.4 (for such matrices pivots need no search).
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


@numba.njit(nogil=True)
def _summed(b: Float[np.ndarray, " t"]) -> float:
    summed = 0.0
    for i in range(len(b)):
        summed += b[i]
    return summed


@numba.njit(nogil=True, fastmath=LANES)
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
        types.int64, _INDEX, _CUBE, _MATRIX, _MATRIX, _CUBE, _MATRIX, _INDEX,
        _VECTOR, types.float64[::1], types.float64[:, ::1], types.float64[:, :, ::1], types.float64[::1],
        types.boolean[::1], types.float64[::1], types.int64,
    ),
    nogil=True, fastmath=LANES,
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
    room: Float[np.ndarray, " n"],
    stage: int,
) -> None:
    """Log evidence of sums, its gradient and average information, by the c logarithms in ``logs``.

    These are of a lengthscales, that of time where outcomes fade, k outputscales and the fitted noise variance. The
    coordinates of each of the k parts of a sum end at ``ends``; a latent that is observed by itself is one. Each row is
    of the sum ``which``, and something is ``added`` to the diagonal, so that it is not singular. Where the kernel is
    ``GIVEN``, of a latent that is observed by itself, ``given`` has for each pair of its outcomes the correlation, its
    slope, and what it gains with the logarithm of the lengthscale of time.

    The arrays from ``value`` on are overwritten; ``information`` of shape (b, 0, 0) is not wanted. A row is sound if
    the matrix was positive definite, to rounding; if not, nothing else means anything. Large arrays cost as much to
    allocate as to use: ``room`` of ``room_for`` saves that, empty room does not. Other stages than 0 leave the
    inverse of one row's matrix to the caller: 1 puts the matrix, 2 finds in its place the inverse, negative, and half
    the logarithm of the determinant as ``value``, and puts what makes the information, without it.
    """
    a, t, k = Ut.shape[1], Ut.shape[2], len(ends)
    c, T = logs.shape[1], t if stage else (t + _BLOCK - 1) // _BLOCK * _BLOCK
    o, last = c - k - 1, c - 2  # where outputscales begin and end
    n = t * (t - 1) // 2
    room = room if len(room) else np.empty(T * T + (2 * k + o - a) * n)
    A, strip = room[: T * T].reshape(T, T), np.zeros((2 * _BLOCK, T))
    # of pairs of outcomes, row after row of the lower triangle: half of what whole matrices take of a core's cache, and
    # one run for the kernel, whose loop is slow at the ends of runs
    slopes, parts, by_time = (
        room[T * T : T * T + k * n].reshape(k, n),
        room[T * T + k * n : T * T + 2 * k * n].reshape(k, n),
        room[T * T + 2 * k * n : T * T + (2 * k + o - a) * n].reshape(o - a, n),
    )
    X, noise, fitted = np.empty((a, t)), np.empty(t), np.empty(t)
    squares, ones = np.empty(n), np.ones(t)
    solved, of_ones, alpha, residual = np.empty(t), np.empty(t), np.empty(t), np.empty(t)
    # derivatives of K by the logarithms, times alpha; K⁻¹ times that
    D, E = room[len(room) - c * t :].reshape(c, t) if stage else np.empty((c, t)), np.empty((c, t))
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
            fitted[i] = 0.0 if is_known else free
            noise[i] = (known_noise[own, i] if is_known else free) + added[row]
            largest = max(largest, output + noise[i])
        log_root = value[row]
        if stage < 2:
            first = 0
            for p in range(k if kernel != GIVEN else 0):
                squares[:], begun = 0.0, 0
                for i in range(t):
                    square = squares[begun : begun + i]
                    for d in range(first, ends[p]):
                        x, at = X[d], X[d, i]
                        for j in range(i):
                            square[j] += (at - x[j]) ** 2
                    begun += i
                radial(kernel, squares, math.exp(theta[o + p]), parts[p], slopes[p])
                first = ends[p]
            if kernel == GIVEN:
                for j in range(n):
                    parts[0, j], slopes[0, j] = output * given[row, 0, j], output * given[row, 1, j]
                for d in range(o - a):
                    for j in range(n):
                        by_time[d, j] = output * given[row, 2, j]
            begun = 0
            for i in range(t):
                near, part = A[i, :i], parts[k - 1, begun : begun + i]
                for j in range(i):
                    near[j] = part[j]
                for p in range(k - 1):
                    part = parts[p, begun : begun + i]
                    for j in range(i):
                        near[j] += part[j]
                A[i, i] = output + noise[i]
                begun += i
            for i in range(t, T):
                A[i, :i], A[i, i] = 0.0, largest
            if stage == 1:
                continue
            log_root, smallest = inverted(A, strip)
            is_sound[row] = smallest > t * _EPSILON * largest
            if not is_sound[row]:
                continue
        log_root -= 0.5 * (T - t) * math.log(largest)
        _times(A, z[own], solved)
        _times(A, ones, of_ones)
        mean[row] = _summed(solved) / _summed(of_ones)
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
            out, own_output, summed, begun = D[o + p], math.exp(theta[o + p]), 0.0, 0
            out[:] = 0.0
            for i in range(t):
                by, negative, near, told = alpha[i], A[i], parts[p, begun : begun + i], own_output * alpha[i]
                summed += 0.5 * own_output * (by * by + negative[i])
                for j in range(i):
                    summed += near[j] * (by * alpha[j] + negative[j])
                    told += near[j] * alpha[j]
                    out[j] += near[j] * by
                out[i] += told
                begun += i
            gradient[row, o + p] = summed
            gradient[row, last] -= summed
            for i in range(t):
                D[last, i] -= out[i]
        p = 0
        for d in range(a):
            x, out, summed, begun = X[d], D[d], 0.0, 0
            out[:] = 0.0
            if d == ends[p]:
                p += 1
            for i in range(t):
                at, by, negative, slope, told = x[i], alpha[i], A[i], slopes[p, begun : begun + i], 0.0
                for j in range(i):
                    change = slope[j] * (at - x[j]) ** 2
                    summed += change * (by * alpha[j] + negative[j])
                    told += change * alpha[j]
                    out[j] += change * by
                out[i] += told
                begun += i
            gradient[row, d] = summed
        for d in range(a, o):
            out, summed, begun = D[d], 0.0, 0
            out[:] = 0.0
            for i in range(t):
                by, negative, changes, told = alpha[i], A[i], by_time[d - a, begun : begun + i], 0.0
                for j in range(i):
                    summed += changes[j] * (by * alpha[j] + negative[j])
                    told += changes[j] * alpha[j]
                    out[j] += changes[j] * by
                out[i] += told
                begun += i
            gradient[row, d] = summed
        if stage or information.shape[1] == 0:
            continue
        for d in range(c):
            _times(A, D[d], E[d])
        for d in range(c):
            for e in range(d + 1):
                summed = 0.0
                for i in range(t):
                    summed += D[d, i] * E[e, i]
                information[row, d, e] = information[row, e, d] = 0.5 * summed


def room_for(k: int, t: int, c: int, n_times: int = 0) -> Float[np.ndarray, " n"]:
    """Room that ``evaluate`` needs for t outcomes of a sum of k parts, by c logarithms."""
    T = (t + _BLOCK - 1) // _BLOCK * _BLOCK
    return np.empty(T * T + (2 * k + n_times) * t * (t - 1) // 2 + c * t)


def evaluate_one(*told: Any, room: Float[np.ndarray, " n"]) -> None:
    """As ``evaluate`` of one row; from ``MANY`` outcomes on LAPACK inverts the matrix, in half the time."""
    *_, z, _, _, logs, _, _, value, _, information, _, is_sound = told
    t, c = z.shape[1], logs.shape[1]
    if t < MANY:
        evaluate(*told, room, 0)
        return
    evaluate(*told, room, 1)
    A = room[: t * t].reshape(t, t).T  # its upper triangle is known, in LAPACK's order
    largest = float(A.diagonal().max())
    A, info = lapack.dpotrf(A, lower=0, clean=0, overwrite_a=1)
    roots = A.diagonal()
    is_sound[0] = info == 0 and float(roots.min()) ** 2 > t * _EPSILON * largest
    if not is_sound[0]:
        return
    value[0] = np.log(roots).sum()
    lapack.dpotri(A, lower=0, overwrite_c=1)
    A *= -1.0
    evaluate(*told, room, 2)
    if information.size:
        D = room[len(room) - c * t :].reshape(c, t).T
        information[0] = -0.5 * (D.T @ blas.dsymm(1.0, A, D, lower=0))


class StackedLogPosterior:
    """Log posterior densities of the hyper-parameters of g latents, or of g sums, each given t outcomes of its own.

    To the diagonal of a matrix that is singular to rounding something is added. Priors, all of one form, are of theta;
    those of several latents are of their sum. Points are as each latent reads them, or all latents of a sum in turn.
    ``known_noise`` is NaN where theta has it; ``decay`` has the kernel over time and the round of each outcome. Sums
    have no kernel of a user's own, and do not fade.

    Source: Rasmussen & Williams 2006, eqs. 2.30 and 5.9; Gilmour et al. 1995 for the average information.
    """

    def __init__(
        self,
        priors: Sequence[HyperparameterPrior],
        kernel: KernelName,
        U: Float[np.ndarray, "g t a"],
        z: Float[np.ndarray, "g t"],
        known_noise: Float[np.ndarray, "g t"],
        decay: tuple[KernelName, Float[np.ndarray, "g t"]] | None = None,
    ) -> None:
        self.priors, self.kernel, self._U, self._decay = priors, kernel, U, decay
        self.z, self._known_noise = np.ascontiguousarray(z), np.ascontiguousarray(known_noise)
        self._centre = np.array([prior.centre for prior in priors])
        self._precision = np.array([prior.precision for prior in priors])
        self.bounds = np.array([prior.bounds for prior in priors])
        self._code = CODES.get(kernel, GIVEN) if decay is None else GIVEN
        if self._code == GIVEN:  # pairs come column after column, and are wanted row after row
            t = z.shape[1]
            places = np.zeros((t, t), dtype=np.int64)
            places[np.triu_indices(t, 1)] = np.arange(t * (t - 1) // 2)
            self._order = places.T[np.tril_indices(t, -1)]
        self._Ut, self._ends = np.ascontiguousarray(np.swapaxes(U, 1, 2)), np.cumsum(priors[0].sizes)
        q, a, rest = priors[0].n_lengthscales, U.shape[2], len(priors[0].centre) - priors[0].n_lengthscales
        lengths = np.ones((a, 1)) if priors[0].is_shared else np.eye(a)
        # logarithms by theta
        self._of_theta = np.block([[lengths, np.zeros((a, rest))], [np.zeros((rest, q)), np.eye(rest)]])

    def thinned(self, rows: slice | Int[np.ndarray, "g m"]) -> "StackedLogPosterior":
        """Given a part of the outcomes: the same of each, or of each its own."""
        whose = slice(None) if isinstance(rows, slice) else np.arange(len(self.z))[:, None]
        decay = None if self._decay is None else (self._decay[0], self._decay[1][whose, rows])
        U, z, noise = (of[whose, rows] for of in (self._U, self.z, self._known_noise))
        return StackedLogPosterior(self.priors, self.kernel, U, z, noise, decay)

    def __call__(self, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"]) -> Evaluated:
        """Worth of some thetas."""
        found, is_sound = self._evaluated(theta, which, np.zeros(len(theta)))
        if is_sound.all():
            return found
        (singular,) = np.nonzero(~is_sound)
        outputs = np.exp(theta[:, -1 - len(self._ends) :]).sum(axis=1)  # the noise variance included
        level = self.z.shape[1] * _EPSILON * np.maximum(outputs, np.nan_to_num(self._known_noise[which]).max(axis=1))
        for attempt in range(_ATTEMPTS):
            if not len(singular):
                return found
            added = level[singular] * 10.0**attempt
            mended, is_sound = self._evaluated(theta[singular], which[singular], added)
            found.put(singular[is_sound], mended.take(np.flatnonzero(is_sound)))
            singular = singular[~is_sound]
        if len(singular):
            raise ValueError(
                "the matrix is no covariance matrix: its negative eigenvalues are larger than rounding errors"
            )
        return found

    def _evaluated(
        self, theta: Float[np.ndarray, "b p"], which: Int[np.ndarray, " b"], added: Float[np.ndarray, " b"]
    ) -> tuple[Evaluated, Bool[np.ndarray, " b"]]:
        """Worth of some thetas, something added to the diagonals, and whether it means anything."""
        (b, _), (c, _), (_, a, t), by = theta.shape, self._of_theta.shape, self._Ut.shape, self._of_theta
        logs = theta @ by.T
        logs[:, :a] += self.priors[0].base
        value, gradient, information = np.zeros(b), np.zeros((b, c)), np.zeros((b, c, c))
        mean, is_sound = np.zeros(b), np.zeros(b, dtype=bool)

        def put(rows: slice) -> None:
            told = (
                self._code, self._ends, self._Ut, self.z, self._known_noise, self._given(logs[rows], which[rows]),
                logs[rows], which[rows], added[rows], value[rows], gradient[rows], information[rows], mean[rows],
                is_sound[rows],
            )  # fmt: skip
            if t < MANY:
                evaluate(*told, np.empty(0), 0)
                return
            room = self._room if b == 1 else self._new_room()
            for row in range(len(told[6])):
                evaluate_one(*told[:5], *(own[row : row + 1] for own in told[5:]), room=room)

        if self._code == GIVEN:
            size = max(1, _PAIRS // t**2)
            for start in range(0, b, size):
                put(slice(start, start + size))
        else:
            in_threads(b, put)
        if self.priors[0].is_shared:  # else theta has these logarithms in this order
            gradient, information = gradient @ by, by.T @ information @ by
        away, precision = theta - self._centre[which], self._precision[which]
        weighted = (precision @ away[..., None])[..., 0]
        value -= 0.5 * (away * weighted).sum(axis=1)
        return Evaluated(value, gradient - weighted, information + precision, mean), is_sound

    def _new_room(self) -> Float[np.ndarray, " n"]:
        (c, _), a, k, t = self._of_theta.shape, self._Ut.shape[1], len(self._ends), self.z.shape[1]
        return room_for(k, t, c, c - a - k - 1)

    @cached_property
    def _room(self) -> Float[np.ndarray, " n"]:
        return self._new_room()

    def _given(self, logs: Float[np.ndarray, "b c"], which: Int[np.ndarray, " b"]) -> Float[np.ndarray, "b 3 _n"]:
        """Correlations of pairs of outcomes, their slopes and what they gain with a longer memory."""
        if self._code != GIVEN:
            return np.zeros((len(logs), 3, 0))
        a, t = self._U.shape[2], self.z.shape[1]
        out = np.zeros((len(logs), 3, t * (t - 1) // 2))
        scaled = self._U[which] / np.exp(logs[:, None, :a])
        r = np.array([pdist(points) for points in scaled]).reshape(len(logs), -1)
        out[:, 0], out[:, 1] = correlation_and_slope(self.kernel, r)
        if self._decay is not None:
            name, rounds = self._decay
            apart = np.array([pdist(own[:, None]) for own in rounds[which]]).reshape(len(logs), -1)
            apart /= np.exp(logs[:, a : a + 1])
            left, fall = correlation_and_slope(name, apart)
            out[:, 2] = out[:, 0] * fall * apart**2
            out[:, :2] *= left[:, None]
        return np.ascontiguousarray(out[:, :, self._order])


def maximise_stacked(
    log_posterior: StackedLogPosterior,
    starts: Float[np.ndarray, "b p"],
    which: Int[np.ndarray, " b"],
    max_iterations: int,
    tolerance: float = 1e-6,
    *,
    longest: float = 1.0,
    apart: float = 0.0,
    begun: Evaluated | None = None,
) -> tuple[Float[np.ndarray, "b p"], Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Local searches side by side: damped Newton steps within bounds. The result of one does not depend on the others.

    A step solves the information, damped, for the gradient, in those coordinates that a bound does not hold back. It is
    damped less after it brought what it promised, and more after it brought little or none. A search ends when the gain
    that its undamped step promises, or that of an accepted one, is below ``tolerance``, relative to the value. No step
    is ``longest`` in natural logarithms: the quadratic model knows nothing of what lies further. Of two searches of a
    latent that come nearer than ``apart`` in all coordinates, only the one further up goes on.

    Starts of one latent (``which``) follow one another, as many for each; ``begun`` is what they are worth, if known.
    Returns thetas, the log posterior there, and the profiled means.

    Source: Nocedal & Wright 2006, section 4.1 for the damping, 16.7 for projection on bounds.
    """
    low, high = log_posterior.bounds[which, :, 0], log_posterior.bounds[which, :, 1]
    theta = np.clip(starts, low, high)
    now, damping = log_posterior(theta, which) if begun is None else begun, np.full(len(theta), _DAMPED)
    active, n_starts = np.arange(len(theta)), len(theta) // len(set(which.tolist()))
    for _ in range(max_iterations):
        if apart > 0.0 and n_starts > 1:
            active = active[~doubled(theta, now.value, n_starts, apart)[active]]
        at, gradient, information = theta[active], now.gradient[active], now.information[active]
        lowest, highest = low[active], high[active]
        held = ((at <= lowest) & (gradient < 0.0)) | ((at >= highest) & (gradient > 0.0))
        unit = tolerance * np.maximum(np.abs(now.value[active]), 1.0)
        undamped, step = _steps(gradient, information, held, damping[active], longest)
        goes_on = 0.5 * (undamped * gradient).sum(axis=1) > unit
        if not goes_on.any():
            break
        trial, active = np.clip(at + step, lowest, highest), active[goes_on]
        at, unit, gradient, information, trial = (rows[goes_on] for rows in (at, unit, gradient, information, trial))
        moved = trial - at
        promised = (gradient * moved).sum(axis=1) - 0.5 * np.einsum("bi,bij,bj->b", moved, information, moved)
        tried = log_posterior(trial, which[active])
        gain = tried.value - now.value[active]
        accepted = gain > _SLIGHT * np.maximum(promised, 0.0)
        ratio = gain / np.where(promised > 0.0, promised, np.inf)
        change = np.where(ratio > 0.75, 0.1, np.where(ratio > 0.25, 1.0, 10.0))
        least = np.where(accepted, _LEAST, _DAMPED)
        damping[active] = np.clip(damping[active] * change, least, _MOST)
        up = np.flatnonzero(accepted)
        theta[active[up]] = trial[up]
        now.put(active[up], tried.take(up).bent(moved[up], gradient[up]))
        is_flat = accepted & (np.abs(gain) <= unit) | (np.abs(moved).max(axis=1) <= _EPSILON)
        active = active[~is_flat]
        if not len(active):
            break
    return theta, now.value, now.mean


def doubled(
    theta: Float[np.ndarray, "b p"], value: Float[np.ndarray, " b"], n_starts: int, apart: float
) -> Bool[np.ndarray, " b"]:
    """Whether another search of the same latent is near, and further up; of equal ones the first counts as that."""
    own, values = theta.reshape(-1, n_starts, theta.shape[1]), value.reshape(-1, n_starts)
    is_near = np.abs(own[:, :, None] - own[:, None]).max(axis=-1) < apart
    is_first = np.tri(n_starts, k=-1, dtype=bool)  # [i, j]: j comes before i
    one, other = values[:, :, None], values[:, None]
    return (is_near & ((other > one) | (other == one) & is_first)).any(axis=-1).ravel()


def _steps(
    gradient: Float[np.ndarray, "b p"],
    information: Float[np.ndarray, "b p p"],
    held: Bool[np.ndarray, "b p"],
    damping: Float[np.ndarray, " b"],
    longest: float,
) -> Float[np.ndarray, "2 b p"]:
    """The undamped and the damped step of each search; none in coordinates that are held."""
    places = np.arange(gradient.shape[1])
    matrix = np.repeat(np.where(held[:, :, None] | held[:, None, :], 0.0, information)[None], 2, axis=0)
    matrix[0][:, places, places] = diagonal = information[:, places, places]
    matrix[1][:, places, places] = diagonal * (1.0 + damping[:, None])
    step = np.linalg.solve(matrix, np.where(held, 0.0, gradient)[..., None])[..., 0]
    return step * np.minimum(1.0, longest / np.maximum(np.abs(step).max(axis=2), 1e-300))[..., None]
