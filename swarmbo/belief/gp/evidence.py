"""The evidence of hyper-parameters with its analytic gradient, and its maximum together with a prior's.

theta is that of ``gp.prior``. Time multiplies the covariance of all latents alike, so it is worked in after their sum.
Constant means are profiled: at every theta they take their generalised-least-squares values, the maximum of the
evidence over them; by the envelope theorem the gradient is then that at fixed means. Matrices are kept as their pairs
below the diagonal, half the work of whole ones.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import lapack
from scipy.optimize import minimize

from swarmbo.belief.gp.cholesky import factorise, solve_lower, solve_lower_transposed
from swarmbo.belief.gp.hyperparameters import TOTAL
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.kernels import KernelName, correlation_and_slope


class LogPosterior:
    """Log posterior density of theta given outcomes of the total, of factors, or both; value and gradient.

    Args:
        prior: Of theta; one noise variance, or one per factor and one of totals.
        kernels: Of each factor.
        scopes: Columns of U that each factor sees.
        U: Points (t, n) in the unit cube.
        z: Standardised outcomes (t,).
        known_noise: Noise variances (t,) that were told, standardised; NaN where theta has it.
        channel: ``TOTAL`` or a factor's index, for each outcome; None if all are totals.
        fading: The kernel over time, and the round (t,) of each outcome; None where nothing fades.

    Source: Rasmussen & Williams 2006, eqs. 2.30 and 5.9; Kandasamy et al. 2015, section 3.3 for the sum.
    """

    def __init__(
        self,
        prior: HyperparameterPrior,
        kernels: Sequence[KernelName],
        scopes: Sequence[Sequence[int]],
        U: Float[np.ndarray, "t n"],
        z: Float[np.ndarray, " t"],
        known_noise: Float[np.ndarray, " t"],
        channel: Int[np.ndarray, " t"] | None = None,
        decay: tuple[KernelName, Float[np.ndarray, " t"]] | None = None,
    ) -> None:
        self.prior, self.kernels, self.z, self.known_noise = prior, tuple(kernels), z, known_noise
        self._is_fitted = np.isnan(known_noise)
        t, k = len(z), len(scopes)
        self._cols, self._rows = np.triu_indices(t, 1)  # pairs below the diagonal, column by column
        self._places = self._rows + t * self._cols  # of the pairs in a matrix in Fortran order
        self._U = U.T[np.concatenate([np.array(scope) for scope in scopes])]  # (d, t)
        ends = np.cumsum([0, *map(len, scopes)])
        self._slices = [slice(start, end) for start, end in pairwise(ends.tolist())]
        self._time_kernel, rounds = (None, np.zeros(t)) if decay is None else decay
        self._apart = np.abs(rounds[self._rows] - rounds[self._cols])  # rounds between the two of a pair
        self._holds = np.ones((k, t))
        self._shared: Float[np.ndarray, "k pairs"] | None = None
        self._design = np.ones((t, 1))
        self._noise_of = np.zeros(t, dtype=int)
        if channel is not None:
            self._holds = np.array([(channel == TOTAL) | (channel == i) for i in range(k)], dtype=float)
            self._shared = self._holds[:, self._rows] * self._holds[:, self._cols]
            self._design = np.asfortranarray(self._holds.T)
            self._noise_of = np.where(channel == TOTAL, k, channel)

    @cached_property
    def _squares(self) -> Float[np.ndarray, "d pairs"]:
        squares = np.subtract(self._U[:, self._rows], self._U[:, self._cols])
        squares *= squares
        return squares

    def __call__(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """Value and gradient; constant means are at their optimum for this theta."""
        t = len(self.z)
        lengthscales, outputscales, noises = self.prior.unpack(theta)
        pairs, radial = self._covariances(lengthscales, outputscales)
        left, left_slope = self._left(theta)
        L = self._factor(outputscales, noises, pairs, left)
        whitened = solve_lower(L, self.z)
        design = solve_lower(L, self._design)
        whitened = whitened - design @ _least_squares(design, whitened)
        alpha = solve_lower_transposed(L, whitened)
        K_inverse, _ = lapack.dpotri(L, lower=1)
        value = -0.5 * float(whitened @ whitened) - float(np.log(L.diagonal()).sum()) - 0.5 * t * np.log(2.0 * np.pi)
        # W = alpha alphaᵀ - K⁻¹: pairs off the diagonal count twice, which takes the half away
        full = (
            np.multiply.outer(alpha, alpha).T - K_inverse
        )  # only its lower triangle, in Fortran order, means anything
        W, W_diagonal = full.ravel(order="F")[self._places], full.diagonal()
        by_time = None if left_slope is None else float(pairs @ (W * left_slope))
        W = W if left is None else W * left
        by_output, by_length = self._derivatives(lengthscales, outputscales, radial, W)
        by_output = outputscales * (by_output + 0.5 * self._holds @ W_diagonal)
        by_noise = 0.5 * noises * np.bincount(self._noise_of, W_diagonal * self._is_fitted, minlength=len(noises))
        gradient = self.prior.gradient(by_length, by_time, by_output, by_noise)
        log_prior, prior_gradient = self.prior.log_density(theta)
        return value + log_prior, gradient + prior_gradient

    def evidence(self, theta: Float[np.ndarray, " p"]) -> float:
        """Log evidence alone."""
        return self(theta)[0] - self.prior.log_density(theta)[0]

    def means(self, theta: Float[np.ndarray, " p"]) -> Float[np.ndarray, " c"]:
        """The profiled constant means, standardised: of the total, or of each factor where their outcomes are known.

        By generalised least squares. What outcomes can't tell apart is shared out evenly.
        """
        lengthscales, outputscales, noises = self.prior.unpack(theta)
        pairs, _ = self._covariances(lengthscales, outputscales)
        L = self._factor(outputscales, noises, pairs, self._left(theta)[0])
        return _least_squares(solve_lower(L, self._design), solve_lower(L, self.z))

    def _left(
        self, theta: Float[np.ndarray, " p"]
    ) -> tuple[Float[np.ndarray, " pairs"] | None, Float[np.ndarray, " pairs"] | None]:
        """Correlation of the pairs over time, and its derivative by the logarithm of the lengthscale of time."""
        lengthscale = self.prior.time_lengthscale(theta)
        if self._time_kernel is None or lengthscale is None:
            return None, None
        r = self._apart / lengthscale
        left, slope = correlation_and_slope(self._time_kernel, r)
        return left, slope * r**2

    def _factor(
        self,
        outputscales: Float[np.ndarray, " k"],
        noises: Float[np.ndarray, " c"],
        pairs: Float[np.ndarray, " pairs"],
        left: Float[np.ndarray, " pairs"] | None,
    ) -> Float[np.ndarray, "t t"]:
        t = len(self.z)
        K = np.zeros(t * t)
        K[self._places] = pairs if left is None else pairs * left
        noise = np.where(self._is_fitted, noises[self._noise_of], self.known_noise)
        K[:: t + 1] = outputscales @ self._holds + noise
        return factorise(K.reshape(t, t, order="F"))[0]

    def _covariances(
        self, lengthscales: Float[np.ndarray, " d"], outputscales: Float[np.ndarray, " k"]
    ) -> tuple[Float[np.ndarray, " pairs"], Any]:
        """Covariances of the pairs, noise and time left out, and what their derivatives are made of."""
        radial = self._radial(lengthscales**-2.0)
        return outputscales @ radial[0], radial

    def _derivatives(
        self,
        lengthscales: Float[np.ndarray, " d"],
        outputscales: Float[np.ndarray, " k"],
        radial: Any,
        W: Float[np.ndarray, " pairs"],
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " d"]]:
        """Of the covariances, weighted and summed: by outputscales, and by the logarithms of lengthscales."""
        C, slopes = radial
        slopes *= W
        by_length = [
            output * (self._squares[own] @ weights)
            for own, output, weights in zip(self._slices, outputscales, slopes, strict=True)
        ]
        return C @ W, np.concatenate(by_length) * lengthscales**-2.0

    def _radial(self, inverse_squares: Float[np.ndarray, " d"]) -> tuple[np.ndarray, np.ndarray]:
        """Correlations and slopes of each factor at the pairs; 0 where the two outcomes do not share it."""
        r = np.array([inverse_squares[own] @ self._squares[own] for own in self._slices])
        np.sqrt(r, out=r)
        if len(set(self.kernels)) == 1:
            C, slopes = correlation_and_slope(self.kernels[0], r)
        else:
            pairs = [correlation_and_slope(name, row) for name, row in zip(self.kernels, r, strict=True)]
            C, slopes = np.array([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])
        if self._shared is not None:
            C, slopes = C * self._shared, slopes * self._shared
        return C, slopes


def _least_squares(design: Float[np.ndarray, "t c"], target: Float[np.ndarray, " t"]) -> Float[np.ndarray, " c"]:
    if design.shape[1] == 1:
        column = design[:, 0]
        return np.array([float(column @ target) / float(column @ column)])
    return np.linalg.lstsq(design, target, rcond=1e-10)[0]


def maximise(
    log_posterior: LogPosterior,
    starts: list[Float[np.ndarray, " p"]],
    max_iterations: int,
    tolerance: float = 1e-6,
) -> tuple[Float[np.ndarray, " p"], float]:
    """The best of several local searches: theta and the log posterior there.

    Args:
        log_posterior: To be maximised.
        starts: Of L-BFGS-B.
        max_iterations: Per start.
        tolerance: Relative gain of an iteration below which a search ends.
    """

    def loss(theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        value, gradient = log_posterior(theta)
        return -value, -gradient

    best, best_loss = starts[0], np.inf
    for start in starts:
        result = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=log_posterior.prior.bounds.tolist(),
            options={"maxiter": max_iterations, "ftol": tolerance, "maxcor": 10},
        )
        if float(result.fun) < best_loss:  # the iterate counts whether or not the search says it converged
            best, best_loss = np.asarray(result.x), float(result.fun)
    return best, -best_loss
