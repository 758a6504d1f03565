"""Maximum a-posteriori hyper-parameters: log evidence plus log prior, with the analytic gradient.

The constant mean is profiled: at every theta it takes its generalised-least-squares value m = (1ᵀK⁻¹z) / (1ᵀK⁻¹1), the
maximum of the evidence over m. By the envelope theorem the gradient is then that at fixed m.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import lapack
from scipy.optimize import Bounds, minimize

from swarmbo.belief.gp.cholesky import factorise, solve_lower, solve_lower_transposed
from swarmbo.belief.gp.hyperparameters import ExactGPSettings, Hyperparameters, TimeCorrelation
from swarmbo.belief.gp.priors import HyperparameterPrior
from swarmbo.kernels import correlation_and_slopes
from swarmbo.spaces import Domain

_SCALE_FLOOR = 1e-60  # below it the square of the scale leaves float64
_EPSILON = float(np.finfo(float).eps)


def standardisation(y: Float[np.ndarray, " n"]) -> tuple[float, float, bool]:
    """Offset and scale with y = offset + scale z, where z has mean 0 and standard deviation 1.

    Outcomes that are constant up to rounding, and a single outcome, do not show their scale: it is 1 then, in the
    unit of the outcome.

    Args:
        y: Outcomes.

    Returns:
        The offset (0 without outcomes), the scale, and whether the outcomes showed it.
    """
    largest = float(np.abs(y).max(initial=0.0))
    if largest == 0.0:
        return 0.0, 1.0, False
    share = y / largest  # the mean and the squares of large outcomes would overflow
    offset = largest * float(share.mean())
    std = float(share.std())
    if std <= 64.0 * _EPSILON or std * largest < _SCALE_FLOOR:
        return offset, 1.0, False
    return offset, largest * std, True


def profiled_mean(L: Float[np.ndarray, "n n"], z: Float[np.ndarray, " n"]) -> float:
    """Constant mean by generalised least squares, (1ᵀK⁻¹z) / (1ᵀK⁻¹1) with K = L Lᵀ; 0 without data.

    Source: Rasmussen & Williams 2006, eq. 2.43, in the limit of a flat prior on the mean.

    Args:
        L: Lower Cholesky factor of the covariance of the outcomes.
        z: Outcomes.
    """
    if z.size == 0:
        return 0.0
    ones = solve_lower(L, np.ones(z.size))
    return float(ones @ solve_lower(L, z)) / float(ones @ ones)


@dataclass(frozen=True, eq=False)
class LogPosterior:
    """Log posterior density of theta = (log-lengthscale parameters, log outputscale, log noise variance), given data.

    Args:
        settings: Which kernel.
        prior: Of theta.
        U: Points (n, d) in the unit cube, their times last where the belief has a time axis.
        z: Standardised outcomes (n,).
    """

    settings: ExactGPSettings
    prior: HyperparameterPrior
    U: Float[np.ndarray, "n d"]
    z: Float[np.ndarray, " n"]
    squares: Float[np.ndarray, "d n*n"]

    @classmethod
    def of(
        cls,
        settings: ExactGPSettings,
        prior: HyperparameterPrior,
        U: Float[np.ndarray, "n d"],
        z: Float[np.ndarray, " n"],
    ) -> "LogPosterior":
        """Precompute the squared differences of coordinates, which no hyper-parameter changes."""
        squares = (U.T[:, :, None] - U.T[:, None, :]) ** 2
        return cls(settings, prior, U, z, squares.reshape(U.shape[1], -1))

    def __call__(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """Value and gradient.

        With α = K⁻¹(z - m) and W = ααᵀ - K⁻¹ the evidence has gradient ½ tr(W dK/dθ), a sum of elementwise products.

        Source: Rasmussen & Williams 2006, eqs. 2.30 and 5.9.
        """
        n = self.z.size
        lengthscales, outputscale, noise_variance = self.prior.unpack(theta)
        weights, time = lengthscales**-2.0, self.settings.time
        near, slopes = correlation_and_slopes(
            self.settings.kernel, None if time is None else time.kernel, weights, self.squares
        )
        K = outputscale * near.reshape(n, n)
        K.flat[:: n + 1] += noise_variance
        L, jitter = factorise(K)
        # one right-hand side at a time: for two, BLAS starts its threads, which at these sizes only wait for each other
        whitened_ones, whitened = solve_lower(L, np.ones(n)), solve_lower(L, self.z)
        mean = float(whitened_ones @ whitened) / float(whitened_ones @ whitened_ones)
        whitened = whitened - mean * whitened_ones
        alpha = solve_lower_transposed(L, whitened)
        K_inverse, _ = lapack.dpotri(L, lower=1)  # only its lower triangle is filled in; the upper one stays 0
        trace = float(K_inverse.diagonal().sum())
        value = (
            -0.5 * float(whitened @ whitened) - float(np.log(L.diagonal()).sum()) - 0.5 * n * float(np.log(2.0 * np.pi))
        )
        # W off the diagonal counts twice; on it the derivatives with respect to lengthscales are 0
        W = (np.tril(np.multiply.outer(alpha, alpha)) - K_inverse).ravel()
        parts = [self.squares[rows] @ (W * slope) for rows, slope in slopes]
        by_lengthscale = outputscale * weights * np.concatenate(parts)
        noise_part = noise_variance * (float(alpha @ alpha) - trace)
        fixed = jitter * (float(alpha @ alpha) - trace)  # jitter belongs to neither derivative
        by_outputscale = 0.5 * (float(whitened @ whitened) - n - noise_part - fixed)
        gradient = np.concatenate([self.prior.lengthscale_map.T @ by_lengthscale, [by_outputscale, 0.5 * noise_part]])
        log_prior, prior_gradient = self.prior.log_density(theta)
        return value + log_prior, gradient + prior_gradient


def fit_hyperparameters(
    settings: ExactGPSettings,
    domain: Domain,
    U: Float[np.ndarray, "n d"],
    y: Float[np.ndarray, " n"],
    rng: np.random.Generator,
    previous: Hyperparameters | None = None,
) -> Hyperparameters:
    """Hyper-parameters at the best local maximum of the posterior found from several starts.

    Starts: the previous optimum (its variances moved to the new outcome scale), the prior's mode, and random draws from
    the prior. Outcomes that do not show their scale (none, one, constant ones) say nothing about the other
    hyper-parameters either: those stay at the prior's mode, and only the offset moves.

    Args:
        settings: Kernel, priors, effort.
        domain: Where the points lie.
        U: Points (n, d) in the unit cube, their times last where the belief has a time axis.
        y: Outcomes (n,), physical, finite.
        rng: For the random starts.
        previous: The last optimum, if there is one.

    Returns:
        The hyper-parameters. Never raises on degenerate data.
    """
    prior = HyperparameterPrior.of(settings, domain)
    offset, scale, is_informative = standardisation(y)
    theta = prior.centre
    if is_informative:
        log_posterior = LogPosterior.of(settings, prior, U, (y - offset) / scale)
        starts = [prior.centre, *(prior.sample(rng) for _ in range(settings.restarts))]
        if previous is not None:
            starts.insert(0, warm_start(prior, previous, scale))
        theta = _maximise(log_posterior, starts, settings.max_iterations)
    return hyperparameters_at(settings, prior, theta, offset, scale)


def hyperparameters_at(
    settings: ExactGPSettings,
    prior: HyperparameterPrior,
    theta: Float[np.ndarray, " p"],
    offset: float = 0.0,
    scale: float = 1.0,
) -> Hyperparameters:
    """The hyper-parameters that a theta stands for.

    Args:
        settings: Of the belief.
        prior: That theta belongs to.
        theta: See the top of ``priors``.
        offset: Of outcomes.
        scale: Of outcomes.
    """
    lengthscales, outputscale, noise_variance = prior.unpack(theta)
    places, time = lengthscales.tolist(), None
    if settings.time is not None:
        time = TimeCorrelation(settings.time.kernel, places.pop())
    return Hyperparameters(
        settings.kernel, tuple(places), outputscale, noise_variance, offset=offset, scale=scale, time=time
    )


def warm_start(prior: HyperparameterPrior, previous: Hyperparameters, scale: float) -> Float[np.ndarray, " p"]:
    """The last optimum as a theta under a new outcome scale: its physical variances stay what they were.

    Args:
        prior: Whose bounds hold.
        previous: The last optimum.
        scale: The new outcome scale.
    """
    ratio = float(np.clip(previous.scale / scale, 1e-6, 1e6)) ** 2  # further apart, the bounds hold anyway
    return prior.pack(previous.prior.lengthscales, previous.outputscale * ratio, previous.noise_variance * ratio)


def _maximise(
    log_posterior: LogPosterior, starts: list[Float[np.ndarray, " p"]], max_iterations: int
) -> Float[np.ndarray, " p"]:
    def loss(theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        value, gradient = log_posterior(theta)
        return -value, -gradient

    bounds = Bounds(log_posterior.prior.bounds[:, 0], log_posterior.prior.bounds[:, 1])
    best, best_loss = starts[0], np.inf
    for start in starts:
        result = minimize(
            loss,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iterations},
        )
        if float(result.fun) < best_loss:  # the iterate counts whether or not the search says it converged
            best, best_loss = np.asarray(result.x), float(result.fun)
    return best
