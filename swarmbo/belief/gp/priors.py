"""The prior on hyper-parameters that keeps a handful of points from collapsing the fit.

The fit searches over theta = (log-lengthscale parameters, log outputscale, log noise variance), and the prior is one
multivariate normal over theta. Of the lengthscales only the parameters of ``LengthscaleModel`` are free: log l = base +
A theta_l, with A a column of ones for ``shared`` and the identity for the others.

The hierarchical prior is log l_j = c + δ_j with a common c ~ N(m, s²) and deviations δ_j ~ N(0, τ²). Its common part
need not be a parameter: maximising over c for fixed lengthscales gives, up to a constant, the same density as
integrating it out, which is N(m 1, s² 11ᵀ + τ² I) over log l.

The lengthscale of time, where there is one, comes last among the lengthscales and is independent of the others.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag

from swarmbo.belief.gp.hyperparameters import ExactGPSettings
from swarmbo.spaces import Domain

_LENGTHSCALE_RANGE = (
    5e-3,
    50.0,
)  # shares of a side: below, no two points of a run would be related; above, all is flat
TIME_RANGE = (0.05, 1e4)  # rounds: below, not even the last round counts; above, nothing is ever forgotten
_OUTPUTSCALE_RANGE = (1e-3, 1e3)
_NOISE_CEILING = 10.0


@dataclass(frozen=True, eq=False)
class HyperparameterPrior:
    """A normal prior over theta, cut off at bounds.

    Args:
        base: Added to A theta_l to give the log-lengthscales (d,), that of time last where there is one.
        lengthscale_map: A (d, q).
        centre: Mean and mode (q + 2,).
        covariance: Of theta (q + 2, q + 2).
        bounds: Lower and upper (q + 2, 2).
    """

    base: Float[np.ndarray, " d"]
    lengthscale_map: Float[np.ndarray, "d q"]
    centre: Float[np.ndarray, " p"]
    covariance: Float[np.ndarray, "p p"]
    bounds: Float[np.ndarray, "p 2"]

    @classmethod
    def of(cls, settings: ExactGPSettings, domain: Domain) -> "HyperparameterPrior":
        """The prior that settings describe on a domain."""
        d = domain.n_dims
        sides = domain.high - domain.low
        base = np.log(sides.max() / sides) if settings.equal_in == "physical" else np.zeros(d)
        q = 1 if settings.lengthscales == "shared" else d
        A = np.ones((d, 1)) if settings.lengthscales == "shared" else np.eye(d)
        spread, deviation = settings.lengthscale_log_std**2, settings.deviation_log_std**2
        time = settings.time
        n_times = int(time is not None)
        covariance = np.zeros((q + n_times + 2, q + n_times + 2))
        covariance[:q, :q] = {
            "shared": np.full((q, q), spread),
            "hierarchical": np.full((q, q), spread) + deviation * np.eye(q),
            "separate": spread * np.eye(q),
        }[settings.lengthscales]
        covariance[-2, -2] = settings.outputscale_log_std**2
        covariance[-1, -1] = settings.noise_log_std**2
        # wide enough that the longest side's lengthscale and its equals on shorter sides all fit
        reach = float(base.max())
        low, high = np.log(_LENGTHSCALE_RANGE)
        lengthscale_bounds, middle = [(low - reach, high)] * q, [np.log(settings.lengthscale_median * np.sqrt(d))] * q
        if time is not None:
            base, A = np.append(base, 0.0), block_diag(A, np.eye(1))
            covariance[q, q] = time.lengthscale_log_std**2
            lengthscale_bounds.append(tuple(np.log(TIME_RANGE)))
            middle.append(np.log(time.lengthscale_median))
        bounds = np.array(
            [
                *lengthscale_bounds,
                tuple(np.log(_OUTPUTSCALE_RANGE)),
                (np.log(settings.noise_floor), np.log(_NOISE_CEILING)),
            ]
        )
        centre = np.array([*middle, 0.0, np.log(settings.noise_median)])
        return cls(base, A, np.clip(centre, bounds[:, 0], bounds[:, 1]), covariance, bounds)

    def log_density(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """Log density of theta, without its constant, and the gradient."""
        weighted = np.linalg.solve(self.covariance, theta - self.centre)
        return -0.5 * float(weighted @ (theta - self.centre)), -weighted

    def sample(self, rng: np.random.Generator) -> Float[np.ndarray, " p"]:
        """A theta drawn from the prior, moved to the bounds where it lies outside."""
        theta = self.centre + np.linalg.cholesky(self.covariance) @ rng.standard_normal(self.centre.size)
        return np.clip(theta, self.bounds[:, 0], self.bounds[:, 1])

    def unpack(self, theta: Float[np.ndarray, " p"]) -> tuple[Float[np.ndarray, " d"], float, float]:
        """Lengthscales, outputscale and noise variance at theta."""
        lengthscales = np.exp(self.base + self.lengthscale_map @ theta[:-2])
        return lengthscales, float(np.exp(theta[-2])), float(np.exp(theta[-1]))

    def pack(
        self, lengthscales: Float[np.ndarray, " d"], outputscale: float, noise_variance: float
    ) -> Float[np.ndarray, " p"]:
        """The theta nearest to given hyper-parameters, within the bounds."""
        theta_l = np.linalg.pinv(self.lengthscale_map) @ (np.log(lengthscales) - self.base)
        floor = np.exp(self.bounds[-1, 0])
        theta = np.concatenate([theta_l, [np.log(outputscale), np.log(max(noise_variance, floor))]])
        return np.clip(theta, self.bounds[:, 0], self.bounds[:, 1])
