"""Hyper-parameters of a sum of Gaussian processes from outcomes of the total: joint maximum a posteriori.

theta = (log-lengthscale parameters, log outputscale of each factor, log noise variance). The constant mean is profiled,
as in ``swarmbo.belief.fitting``. Matrices are kept as their pairs below the diagonal, half the work of whole ones.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import lapack
from scipy.optimize import minimize

from swarmbo.belief.additive_settings import AdditiveGPSettings
from swarmbo.belief.cholesky import factorise, solve_lower, solve_lower_transposed
from swarmbo.kernels import KernelName, correlation, correlation_slope

LENGTHSCALE_RANGE = (5e-3, 100.0)  # shares of a side
OUTPUTSCALE_RANGE = (1e-6, 1e3)
NOISE_CEILING = 10.0

Scopes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class AdditivePrior:
    """A normal prior over theta, cut off at bounds.

    Args:
        sizes: Number of variables of each factor.
        is_shared: Whether all lengthscales are one.
        centre: Mean and mode (p,).
        precision: Inverse covariance (p, p).
        bounds: Lower and upper (p, 2).
    """

    sizes: tuple[int, ...]
    is_shared: bool
    centre: Float[np.ndarray, " p"]
    precision: Float[np.ndarray, "p p"]
    bounds: Float[np.ndarray, "p 2"]

    @classmethod
    def of(cls, settings: AdditiveGPSettings, sizes: tuple[int, ...]) -> "AdditivePrior":
        """The prior that settings describe for factors of given sizes."""
        k, d = len(sizes), sum(sizes)
        is_shared = settings.lengthscales == "shared"
        q = 1 if is_shared else d
        medians = np.concatenate([np.full(a, settings.lengthscale_log_median + 0.5 * np.log(a)) for a in sizes])
        spread, deviation = settings.lengthscale_log_std**2, settings.deviation_log_std**2
        covariance = np.zeros((q + k + 1, q + k + 1))
        covariance[:q, :q] = {
            "shared": np.full((q, q), spread),
            "hierarchical": np.full((q, q), spread) + deviation * np.eye(q),
            "separate": spread * np.eye(q),
        }[settings.lengthscales]
        covariance[range(q, q + k), range(q, q + k)] = settings.outputscale_log_std**2
        covariance[-1, -1] = settings.noise_log_std**2
        centre = np.concatenate(
            [
                [medians.mean()] if is_shared else medians,
                np.full(k, -np.log(k)),
                [np.log(settings.noise_median)],
            ]
        )
        bounds = np.array(
            [tuple(np.log(LENGTHSCALE_RANGE))] * q
            + [tuple(np.log(OUTPUTSCALE_RANGE))] * k
            + [(np.log(settings.noise_floor), np.log(NOISE_CEILING))]
        )
        centre = np.clip(centre, bounds[:, 0], bounds[:, 1])
        return cls(sizes, is_shared, centre, np.linalg.inv(covariance), bounds)

    def log_density(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """Log density of theta, without its constant, and the gradient."""
        weighted = self.precision @ (theta - self.centre)
        return -0.5 * float(weighted @ (theta - self.centre)), -weighted

    def unpack(self, theta: Float[np.ndarray, " p"]) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " k"], float]:
        """Lengthscales (factor after factor), outputscales and noise variance at theta."""
        k = len(self.sizes)
        values = np.exp(theta)
        lengthscales = np.full(sum(self.sizes), values[0]) if self.is_shared else values[: -k - 1]
        return lengthscales, values[-k - 1 : -1], float(values[-1])

    def pack(
        self, lengthscales: Float[np.ndarray, " d"], outputscales: Float[np.ndarray, " k"], noise_variance: float
    ) -> Float[np.ndarray, " p"]:
        """The theta nearest to given hyper-parameters, within the bounds."""
        logs = np.log(lengthscales)
        theta = np.concatenate([[logs.mean()] if self.is_shared else logs, np.log(outputscales)])
        theta = np.append(theta, np.log(max(noise_variance, np.exp(self.bounds[-1, 0]))))
        return np.clip(theta, self.bounds[:, 0], self.bounds[:, 1])

    def by_lengthscale(self, gradient: Float[np.ndarray, " d"]) -> Float[np.ndarray, " q"]:
        """Derivatives by the lengthscale parameters, from those by the logarithms of all lengthscales."""
        return gradient.sum(keepdims=True) if self.is_shared else gradient


class AdditiveLogPosterior:
    """Log posterior density of theta given totals; value and gradient.

    Args:
        prior: Of theta.
        kernels: Of each factor.
        scopes: Columns of U that each factor sees.
        U: Points (t, n) in the unit cube.
        z: Standardised totals (t,).
        extra_noise: Known variances (t,) on top of the fitted one, standardised.

    Source: Rasmussen & Williams 2006, eqs. 2.30 and 5.9; Kandasamy et al. 2015, section 3.3 for the sum.
    """

    def __init__(
        self,
        prior: AdditivePrior,
        kernels: tuple[KernelName, ...],
        scopes: Scopes,
        U: Float[np.ndarray, "t n"],
        z: Float[np.ndarray, " t"],
        extra_noise: Float[np.ndarray, " t"],
    ) -> None:
        self.prior, self.kernels, self.z, self.extra_noise = prior, kernels, z, extra_noise
        self._rows, self._cols = np.tril_indices(len(z), -1)
        columns = np.concatenate([np.array(scope) for scope in scopes])
        self._squares = (U.T[columns][:, self._rows] - U.T[columns][:, self._cols]) ** 2  # (d, pairs)
        self._starts = np.cumsum([0, *map(len, scopes)])[:-1]
        self._factor_of = np.repeat(np.arange(len(scopes)), [len(scope) for scope in scopes])
        self._one_kernel: KernelName | None = kernels[0] if len(set(kernels)) == 1 else None

    def __call__(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """Value and gradient; the constant mean is at its optimum for this theta."""
        t = len(self.z)
        lengthscales, outputscales, noise_variance = self.prior.unpack(theta)
        scaled = self._squares * (lengthscales**-2.0)[:, None]
        r = np.sqrt(np.add.reduceat(scaled, self._starts, axis=0))  # (k, pairs)
        C, slopes = self._radial(r)
        K = np.zeros((t, t), order="F")
        K[self._rows, self._cols] = outputscales @ C
        diagonal = outputscales.sum() + noise_variance + self.extra_noise
        K.flat[:: t + 1] = diagonal
        K[self._cols, self._rows] = K[self._rows, self._cols]
        L, _ = factorise(K)
        whitened_ones, whitened = solve_lower(L, np.ones(t)), solve_lower(L, self.z)
        mean = float(whitened_ones @ whitened) / float(whitened_ones @ whitened_ones)
        whitened = whitened - mean * whitened_ones
        alpha = solve_lower_transposed(L, whitened)
        K_inverse, _ = lapack.dpotri(L, lower=1)
        trace_part = float(alpha @ alpha) - float(K_inverse.diagonal().sum())
        value = -0.5 * float(whitened @ whitened) - float(np.log(L.diagonal()).sum()) - 0.5 * t * np.log(2.0 * np.pi)
        W = alpha[self._rows] * alpha[self._cols] - K_inverse[self._rows, self._cols]  # off-diagonal pairs count twice
        by_output = outputscales * (C @ W + 0.5 * trace_part)
        weights = slopes * W
        by_length = np.array([scaled[j] @ weights[i] for j, i in enumerate(self._factor_of)])
        by_length *= outputscales[self._factor_of]
        gradient = np.concatenate(
            [self.prior.by_lengthscale(by_length), by_output, [0.5 * noise_variance * trace_part]]
        )
        log_prior, prior_gradient = self.prior.log_density(theta)
        return value + log_prior, gradient + prior_gradient

    def evidence(self, theta: Float[np.ndarray, " p"]) -> float:
        """Log evidence alone."""
        return self(theta)[0] - self.prior.log_density(theta)[0]

    def _radial(self, r: Float[np.ndarray, "k pairs"]) -> tuple[np.ndarray, np.ndarray]:
        if self._one_kernel is not None:
            return correlation(self._one_kernel, r), correlation_slope(self._one_kernel, r)
        C = np.array([correlation(name, row) for name, row in zip(self.kernels, r, strict=True)])
        return C, np.array([correlation_slope(name, row) for name, row in zip(self.kernels, r, strict=True)])


def maximise(
    log_posterior: AdditiveLogPosterior, starts: list[Float[np.ndarray, " p"]], max_iterations: int
) -> tuple[Float[np.ndarray, " p"], float]:
    """The best of several local searches: theta and the log posterior there."""

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
            options={"maxiter": max_iterations, "ftol": 1e-6, "maxcor": 10},
        )
        if float(result.fun) < best_loss:  # the iterate counts whether or not the search says it converged
            best, best_loss = np.asarray(result.x), float(result.fun)
    return best, -best_loss
