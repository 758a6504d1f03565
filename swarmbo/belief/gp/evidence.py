"""Evidence of hyper-parameters with its analytic gradient, and the maximum of evidence times prior. Import it late.

theta is as in ``gp.prior``. The correlation over time multiplies the covariances of all latents alike, so it multiplies
their sum. Constant means are profiled: at every theta they take their generalised-least-squares values, which maximise
the evidence; by the envelope theorem, the gradient is then the gradient at fixed means.

Matrices are stored as their pairs below the diagonal. A first compiled pass adds up the covariances of all factors.
Once the derivative of the evidence with respect to each covariance is known, a second pass computes derivatives with
respect to each factor's hyper-parameters. If groups of factors share hyper-parameters, sums for each group are enough.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numba.core import types
from scipy.linalg import lapack
from scipy.optimize import minimize
from scipy.spatial.distance import pdist

from swarmbo.belief.gp import cholesky, stack_evaluation
from swarmbo.belief.gp.hyperparameters import TOTAL, AdditiveHyperparameters
from swarmbo.belief.gp.prior import MOST_PAIRS, HyperparameterPrior, Theta
from swarmbo.boundary import compiling
from swarmbo.boundary.compiling import compiled, inner
from swarmbo.kernels import KernelName, correlation_and_slope
from swarmbo.kernels.compiled import CODES, GIVEN, radial

_CODES = compiling.read_only(1, types.int64)
_VECTOR, _MATRIX, _CUBE = map(compiling.read_only, (1, 2, 3))
_WORK, _OUT = types.float64[:, ::1], types.float64[::1]
_CACHED_PAIRS = 2**17  # number of factors' covariances that, with their slopes, stay in a core's cache between passes
_GROUPS = 8  # largest number of groups of factors with common hyper-parameters: each stores two numbers per pair
Vector = Float[np.ndarray, " t"]
Holds = Float[np.ndarray, "k t"]  # 1 for each outcome that a factor contributes to
PerFactor = Float[np.ndarray, " k"]
Pairs = Float[np.ndarray, " pairs"]  # of outcomes, below the diagonal


@inner(fastmath=compiling.LANES)
def _column(
    kernel: int,
    X: Float[np.ndarray, "a t"],
    column: int,
    output: float,
    holds: Vector,
    is_whole: Any,
    given: Float[np.ndarray, "o 2 pairs"],
    place: int,
    squares: Vector,
    near: Vector,
    slope: Vector,
) -> None:
    """Covariances and slopes of a factor between an outcome and all later ones; 0 for outcomes without the factor."""
    n = len(holds) - 1 - column
    if kernel >= GIVEN:
        for i in range(n):
            near[i] = output * given[kernel - GIVEN, 0, place + i]
            slope[i] = output * given[kernel - GIVEN, 1, place + i]
    else:
        square = squares[:n]
        square[:] = 0.0
        for d in range(len(X)):
            at, x = X[d, column], X[d, column + 1 :]
            for i in range(n):
                square[i] += (at - x[i]) ** 2
        radial(kernel, square, output, near, slope)
    if not is_whole:
        for i in range(n):
            near[i] *= holds[column + 1 + i]
            slope[i] *= holds[column + 1 + i]


@inner()
def _all_hold(holds: Vector) -> bool:
    for i in range(len(holds)):  # noqa: SIM110
        if not holds[i] > 0.0:
            return False
    return True


@compiled(
    types.void(_CODES, _CODES, _MATRIX, _VECTOR, _MATRIX, _CUBE, _WORK, types.float64[:, :, ::1], _OUT, _OUT),
    fastmath=compiling.LANES,
)
def add_covariances(
    kernels: Int[np.ndarray, " k"],
    ends: Int[np.ndarray, " k"],
    X: Float[np.ndarray, "d t"],
    outputs: PerFactor,
    holds: Float[np.ndarray, "k t"],
    given: Float[np.ndarray, "o 2 pairs"],
    work: Float[np.ndarray, "3 t"],
    kept: Float[np.ndarray, "n 2 pairs"],
    pairs: Pairs,
    gains: Float[np.ndarray, " n"],
) -> None:
    """Add the covariances of all factors to ``pairs`` of outcomes, those with the first outcome first. Coordinates in
    ``X`` are in lengthscales; those of factor f end before row ``ends[f]``. A user's kernel has the code ``GIVEN`` plus
    its index in ``given``. Each factor's covariances and slopes are put into ``kept`` unless it is empty. Derivatives
    with respect to a common log lengthscale are added to ``gains`` unless it is empty, as it must be for ``GIVEN``.
    """
    t, first = X.shape[1], 0
    squares, near, slope = work[0], work[1], work[2]
    for f in range(len(ends)):
        own, place, is_whole = X[first : ends[f]], 0, _all_hold(holds[f])
        for column in range(t - 1):
            n = t - 1 - column
            if holds[f, column] > 0.0:
                _column(
                    kernels[f], own, column, outputs[f], holds[f], is_whole, given, int(place), squares, near, slope
                )
                summed = pairs[place : place + n]
                for i in range(n):
                    summed[i] += near[i]
                if len(kept):  # numbers are copied one by one, as assignments of slices take long to compile
                    for i in range(n):
                        kept[f, 0, place + i], kept[f, 1, place + i] = near[i], slope[i]
                if len(gains):
                    gained = gains[place : place + n]
                    for i in range(n):
                        gained[i] += slope[i] * squares[i]
            place += n
        first = ends[f]


@compiled(
    types.void(_CODES, _CODES, _MATRIX, _VECTOR, _MATRIX, _CUBE, _WORK, _VECTOR, _OUT, _OUT), fastmath=compiling.LANES
)
def put_derivatives(
    kernels: Int[np.ndarray, " k"],
    ends: Int[np.ndarray, " k"],
    X: Float[np.ndarray, "d t"],
    outputs: PerFactor,
    holds: Float[np.ndarray, "k t"],
    given: Float[np.ndarray, "o 2 pairs"],
    work: Float[np.ndarray, "3 t"],
    W: Pairs,
    by_output: PerFactor,
    by_length: Float[np.ndarray, " d"],
) -> None:
    """Derivatives of the sum of all covariances with weights ``W``, in log outputscales and log lengthscales."""
    t, first = X.shape[1], 0
    squares, near, slope = work[0], work[1], work[2]
    for f in range(len(ends)):
        own, place, by_own, is_whole = X[first : ends[f]], 0, 0.0, _all_hold(holds[f])
        by_length[first : ends[f]] = 0.0
        for column in range(t - 1):
            n = t - 1 - column
            if holds[f, column] > 0.0:
                _column(
                    kernels[f], own, column, outputs[f], holds[f], is_whole, given, int(place), squares, near, slope
                )
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


def covariances(
    hyper: AdditiveHyperparameters, scopes: Sequence[Sequence[int]], U: Float[np.ndarray, "t n"], holds: Holds
) -> Float[np.ndarray, "t t"]:
    """Prior covariances of outcomes without noise, for equal scales, swarmbo's own kernels, and no time axis."""
    columns, lengths = np.concatenate([np.array(scope) for scope in scopes]), np.concatenate(hyper.lengthscales)
    codes, ends = np.array([CODES[kernel] for kernel in hyper.kernels]), np.cumsum([len(scope) for scope in scopes])
    t, outputs, nothing, work = len(U), np.array(hyper.outputscales), np.zeros((0, 2, 0)), np.empty((3, len(U)))
    pairs, K, above = np.zeros(t * (t - 1) // 2), np.zeros((t, t)), np.triu_indices(t, 1)
    X = U.T[columns] / lengths[:, None]
    add_covariances(codes, ends, X, outputs, holds, nothing, work, nothing, pairs, np.zeros(0))
    K[above] = pairs
    K += K.T
    K.flat[:: t + 1] = outputs @ holds
    return K


class LogPosterior:
    """Log posterior density of theta given outcomes of the total, of factors, or both; value and gradient. Outcomes
    without a ``channel`` are totals; ``known_noise`` is NaN where theta contains the noise; ``rounds`` have an effect
    with a time axis only. Source: Rasmussen & Williams 2006, eqs. 2.30 and 5.9; Kandasamy et al. 2015, section 3.3.
    """

    def __init__(
        self,
        prior: HyperparameterPrior,
        kernels: Sequence[KernelName],
        scopes: Sequence[Sequence[int]],
        U: Float[np.ndarray, "t n"],
        z: Vector,
        known_noise: Vector,
        channel: Int[np.ndarray, " t"] | None = None,
        rounds: Vector | None = None,
    ) -> None:
        self.prior, self.kernels, self.z, self.known_noise = prior, tuple(kernels), z, known_noise
        self._is_fitted = np.isnan(known_noise)
        t, k = len(z), len(scopes)
        self._cols, self._rows = np.triu_indices(t, 1)  # pairs below the diagonal, column by column
        self._places = self._rows + t * self._cols  # of the pairs in a matrix in Fortran order
        self._U = U.T[np.concatenate([np.array(scope) for scope in scopes])]  # (d, t)
        ends = np.cumsum([0, *map(len, scopes)])
        self._slices = [slice(start, end) for start, end in pairwise(ends.tolist())]
        rounds = np.zeros(t) if rounds is None else rounds
        self._rounds_between = np.abs(rounds[self._rows] - rounds[self._cols])  # for each pair of outcomes
        self._holds = np.ones((k, t))
        self._design = np.ones((t, 1))
        self._noise_of = np.zeros(t, dtype=int)
        if channel is not None:
            self._holds = np.array([(channel == TOTAL) | (channel == i) for i in range(k)], dtype=float)
            self._design = np.asfortranarray(self._holds.T)
            self._noise_of = np.where(channel == TOTAL, k, channel)
        # correlations of users' kernels are computed outside compiled code
        self._by_latent = [i for i, name in enumerate(kernels) if name not in CODES]
        self._codes = np.array([CODES.get(name, GIVEN) for name in kernels])
        self._codes[self._by_latent] += np.arange(len(self._by_latent))
        self._cache = np.zeros((k if k * len(self._rows) <= _CACHED_PAIRS else 0, 2, len(self._rows)))
        self._ends, self._groups = ends[1:], list[tuple[list[int], Any, Any, Any]]()
        if len(prior.sizes) <= _GROUPS and (prior.ties is not None or prior.is_shared) and not self._by_latent:
            latents = np.arange(k) if prior.ties is None else prior.ties.latents
            for group in range(len(prior.sizes)):
                members = np.flatnonzero(latents == group).tolist()
                places = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in members])
                sizes = np.cumsum([len(scopes[i]) for i in members])
                self._groups.append((members, sizes, places, self._holds[members]))
        is_plain = channel is None and prior.time_kernel is None and prior.ties is None and len(set(kernels)) == 1
        is_plain &= k * t**2 < MOST_PAIRS
        self._stacked: tuple[Any, ...] | None = None
        if is_plain and not self._by_latent:
            rows = (np.ascontiguousarray(own)[None] for own in (self._U, z, known_noise))
            self._stacked = int(self._codes[0]), self._ends, *rows, np.zeros((1, 3, 0))
            self._workspace = stack_evaluation.workspace_for(k, t, len(self._U) + k + 1, len(self._U))

    def __call__(self, theta: Theta) -> tuple[float, Theta]:
        """Value and gradient; constant means are at their optimum for this theta."""
        log_prior, prior_gradient = self.prior.log_density(theta)
        if (evaluated := self._evaluated(theta)) is not None:
            value, gradient, _ = evaluated
            d = len(self._U)
            by_theta = self.prior.gradient(gradient[:d], None, gradient[d:-1], gradient[-1:])
            return value + log_prior, by_theta + prior_gradient
        t = len(self.z)
        lengthscales, outputscales, noises = self.prior.unpack(theta)
        pairs, parts = self._covariances(lengthscales, outputscales)
        over_time, time_slope = self._time_correlation(theta)
        L, design, whitened = self._whitened(outputscales, noises, pairs, over_time)
        whitened = whitened - design @ _least_squares(design, whitened)
        alpha = cholesky.solve_lower(L, whitened, transposed=True)
        K_inverse, _ = lapack.dpotri(L, lower=1)
        value = -0.5 * float(whitened @ whitened) - float(np.log(L.diagonal()).sum()) - 0.5 * t * np.log(2.0 * np.pi)
        # W = alpha alphaᵀ - K⁻¹: pairs off the diagonal count twice, which cancels the factor 1/2
        # only the lower triangle of ``full``, in Fortran order, is valid
        full = np.multiply.outer(alpha, alpha).T - K_inverse
        W, W_diagonal = full.ravel(order="F")[self._places], full.diagonal()
        by_time = None if time_slope is None else float(pairs @ (W * time_slope))
        W = W if over_time is None else W * over_time
        by_output, by_length = self._derivatives(outputscales, parts, W)
        by_output = outputscales * (by_output + 0.5 * self._holds @ W_diagonal)
        by_noise = 0.5 * noises * np.bincount(self._noise_of, W_diagonal * self._is_fitted, minlength=len(noises))
        gradient = self.prior.gradient(by_length, by_time, by_output, by_noise)
        return value + log_prior, gradient + prior_gradient

    def means(self, theta: Theta) -> Float[np.ndarray, " c"]:
        """Constant means (c,), standardised; means that outcomes do not determine are shared evenly."""
        if (evaluated := self._evaluated(theta)) is not None:
            return evaluated[2]
        lengthscales, outputscales, noises = self.prior.unpack(theta)
        pairs, _ = self._covariances(lengthscales, outputscales)
        _, design, whitened = self._whitened(outputscales, noises, pairs, self._time_correlation(theta)[0])
        return _least_squares(design, whitened)

    def _evaluated(self, theta: Theta) -> tuple[float, Float[np.ndarray, " c"], Float[np.ndarray, "1"]] | None:
        """Log evidence, its gradient in the logarithms of hyper-parameters, and the mean, by ``stack_evaluation``."""
        if self._stacked is None:
            return None
        logs = np.log(np.concatenate(self.prior.unpack(theta)))[None]
        value, gradient, information = np.zeros(1), np.zeros(logs.shape), np.zeros((1, 0, 0))
        mean, is_sound = np.zeros(1), np.zeros(1, dtype=bool)
        first, nothing = np.zeros(1, dtype=np.int64), np.zeros(1)
        stack_evaluation.evaluate_one(
            *self._stacked, logs, first, nothing, value, gradient, information, mean, is_sound, work=self._workspace
        )
        return (float(value[0]), gradient[0], mean) if is_sound[0] else None

    def _time_correlation(self, theta: Theta) -> tuple[Pairs | None, Pairs | None]:
        """Correlation of the pairs over time, and its derivative with respect to the log time lengthscale."""
        if (time := self.prior.time_correlation(theta)) is None:
            return None, None
        r = self._rounds_between / time.lengthscale
        over_time, slope = correlation_and_slope(time.kernel, r)
        return over_time, slope * r**2

    def _whitened(
        self, outputscales: PerFactor, noises: Float[np.ndarray, " c"], pairs: Pairs, over_time: Pairs | None
    ) -> tuple[Float[np.ndarray, "t t"], Float[np.ndarray, "t c"], Vector]:
        """L, and L⁻¹ times the design and the outcomes."""
        t = len(self.z)
        K = np.zeros(t * t)
        K[self._places] = pairs if over_time is None else pairs * over_time
        noise = np.where(self._is_fitted, noises[self._noise_of], self.known_noise)
        K[:: t + 1] = outputscales @ self._holds + noise
        L, _ = cholesky.factorise_noisy(K.reshape(t, t, order="F"))
        return L, cholesky.solve_lower(L, self._design), cholesky.solve_lower(L, self.z)

    def _covariances(self, lengthscales: Float[np.ndarray, " d"], outputscales: PerFactor) -> tuple[Pairs, Any]:
        """Covariances of the pairs without noise and time, and arrays from which ``_derivatives`` are computed."""
        pairs, parts = np.zeros(len(self._rows)), list[tuple[np.ndarray, np.ndarray]]()
        nothing, work, X = np.zeros((0, 2, 0)), np.empty((3, len(self.z))), self._U / lengthscales[:, None]
        for own, ends, places, holds in self._groups:
            nears, gains = np.zeros(len(pairs)), np.zeros(len(pairs))
            fixed = self._codes[own], ends, X[places], np.ones(len(own)), holds, nothing, work, nothing
            add_covariances(*fixed, nears, gains)
            pairs += outputscales[own[0]] * nears
            parts.append((nears, gains))
        if self._groups:
            return pairs, parts
        given = np.zeros((len(self._by_latent), 2, len(pairs)))
        for row, i in enumerate(self._by_latent):
            given[row] = correlation_and_slope(self.kernels[i], pdist(X[self._slices[i]].T))
        fixed = self._codes, self._ends, X, outputscales, self._holds, given, work
        add_covariances(*fixed, self._cache, pairs, np.zeros(0))
        if len(self._cache):
            k = len(self._cache)
            fixed = GIVEN + np.arange(k), self._ends, X, np.ones(k), self._holds, self._cache, work
        return pairs, fixed

    def _derivatives(self, outputscales: PerFactor, parts: Any, W: Pairs) -> tuple[PerFactor, Float[np.ndarray, " d"]]:
        """Derivatives of the weighted sum of covariances in outputscales, and in the logarithms of lengthscales."""
        by_output, by_length = np.zeros(len(outputscales)), np.zeros(len(self._U))
        if not self._groups:
            put_derivatives(*parts, W, by_output, by_length)
            return by_output / outputscales, by_length
        for (own, _, places, _), (nears, gains) in zip(self._groups, parts, strict=True):
            by_output[own[0]] = nears @ W  # the prior adds up a group's derivatives, so the first gets their sum
            by_length[places[0]] = outputscales[own[0]] * (gains @ W)
        return by_output, by_length


def _least_squares(design: Float[np.ndarray, "t c"], target: Vector) -> Float[np.ndarray, " c"]:
    if design.shape[1] == 1:
        column = design[:, 0]
        return np.array([float(column @ target) / float(column @ column)])
    return np.linalg.lstsq(design, target, rcond=1e-10)[0]


def maximise(
    log_posterior: LogPosterior, starts: list[Theta], max_iterations: int, tolerance: float = 1e-6
) -> tuple[Theta, float]:
    """Best result of several local searches: theta and the log posterior there."""

    def loss(theta: Theta) -> tuple[float, Theta]:
        value, gradient = log_posterior(theta)
        return -value, -gradient

    bounds = log_posterior.prior.bounds.tolist()
    options: Any = {"maxiter": max_iterations, "ftol": tolerance, "maxcor": 10}
    best, best_loss = starts[0], np.inf
    for start in starts:
        result = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        if float(result.fun) < best_loss:  # the iterate counts whether or not the search says it converged
            best, best_loss = np.asarray(result.x), float(result.fun)
    return best, -best_loss
