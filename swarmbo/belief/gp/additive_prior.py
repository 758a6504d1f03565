"""The prior on the hyper-parameters of a sum of Gaussian processes.

log l_ij = m_i + s_i c + τ δ_ij with a common c and deviations δ, all standard normal (``hierarchical``), so that a
handful of outcomes can say how long lengthscales are before it can say which is longer. As in ``gp.priors``
the common part is integrated out: it need not be a parameter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.hyperparameters import LengthscaleModel
from swarmbo.belief.gp.priors import TIME_RANGE

LENGTHSCALE_RANGE = (5e-3, 100.0)  # shares of a side
OUTPUTSCALE_RANGE = (1e-6, 1e3)
NOISE_CEILING = 10.0


@dataclass(frozen=True, eq=False)
class AdditivePrior:
    """A normal prior over theta, cut off at bounds.

    theta = (log-lengthscales, log outputscales, log noise variances, and with a time axis the log-lengthscale of it).

    Args:
        sizes: Number of variables of each factor.
        is_shared: Whether all lengthscales are one.
        centre: Mean and mode (p,).
        precision: Inverse covariance (p, p).
        bounds: Lower and upper (p, 2).
        has_time: Whether the lengthscale of time comes last.
    """

    sizes: tuple[int, ...]
    is_shared: bool
    centre: Float[np.ndarray, " p"]
    precision: Float[np.ndarray, "p p"]
    bounds: Float[np.ndarray, "p 2"]
    has_time: bool = False

    @classmethod
    def of(
        cls,
        settings: AdditiveGPSettings,
        factors: Sequence[str],
        sizes: Sequence[int],
        model: LengthscaleModel,
        noise_medians: Sequence[float],
    ) -> "AdditivePrior":
        """The prior that settings describe.

        Args:
            settings: Medians and standard deviations.
            factors: Names, for what single ones have of their own.
            sizes: Number of variables of each.
            model: How lengthscales hang together.
            noise_medians: One per noise variance.
        """
        k, d, c = len(sizes), sum(sizes), len(noise_medians)
        own = [settings.of_factor(factor) for factor in factors]
        is_shared = model == "shared"
        medians = np.array(
            [
                settings.lengthscale_log_median
                if prior.lengthscale_log_median is None
                else prior.lengthscale_log_median
                for prior in own
            ]
        ) + 0.5 * np.log(sizes)
        spreads = np.array([prior.lengthscale_log_std or settings.lengthscale_log_std for prior in own])
        if is_shared:
            q, medians, spreads = 1, np.array([np.average(medians, weights=sizes)]), spreads.mean(keepdims=True)
        else:
            q, medians, spreads = d, np.repeat(medians, sizes), np.repeat(spreads, sizes)
        time = settings.time
        p = q + k + c + (time is not None)
        covariance = np.zeros((p, p))
        covariance[:q, :q] = np.diag(spreads**2) if model == "separate" else np.outer(spreads, spreads)
        if model == "hierarchical":
            covariance[range(q), range(q)] += settings.deviation_log_std**2
        outputs = [1.0 / k if prior.outputscale_median is None else prior.outputscale_median for prior in own]
        covariance[range(q, q + k), range(q, q + k)] = [
            (prior.outputscale_log_std or settings.outputscale_log_std) ** 2 for prior in own
        ]
        covariance[range(q + k, q + k + c), range(q + k, q + k + c)] = settings.noise_log_std**2
        bounds = np.array(
            [tuple(np.log(LENGTHSCALE_RANGE))] * q
            + [tuple(np.log(OUTPUTSCALE_RANGE))] * k
            + [(np.log(settings.noise_floor), np.log(NOISE_CEILING))] * c
            + [tuple(np.log(TIME_RANGE))] * (time is not None)
        )
        centre = np.concatenate([medians, np.log(outputs), np.log(noise_medians)])
        if time is not None:
            covariance[-1, -1] = time.lengthscale_log_std**2
            centre = np.append(centre, np.log(time.lengthscale_median))
        centre = np.clip(centre, bounds[:, 0], bounds[:, 1])
        return cls(tuple(sizes), is_shared, centre, np.linalg.inv(covariance), bounds, time is not None)

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscale parameters, which come first in theta."""
        return 1 if self.is_shared else sum(self.sizes)

    def log_density(self, theta: Float[np.ndarray, " p"]) -> tuple[float, Float[np.ndarray, " p"]]:
        """Log density of theta, without its constant, and the gradient."""
        weighted = self.precision @ (theta - self.centre)
        return -0.5 * float(weighted @ (theta - self.centre)), -weighted

    def sample(self, rng: np.random.Generator) -> Float[np.ndarray, " p"]:
        """A theta drawn from the prior, moved to the bounds where it lies outside."""
        theta = self.centre + np.linalg.cholesky(np.linalg.inv(self.precision)) @ rng.standard_normal(len(self.centre))
        return np.clip(theta, self.bounds[:, 0], self.bounds[:, 1])

    def unpack(
        self, theta: Float[np.ndarray, " p"]
    ) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " k"], Float[np.ndarray, " c"]]:
        """Lengthscales (factor after factor), outputscales and noise variances at theta."""
        q, k = self.n_lengthscales, len(self.sizes)
        values = np.exp(theta)
        lengthscales = np.full(sum(self.sizes), values[0]) if self.is_shared else values[:q]
        return lengthscales, values[q : q + k], values[q + k : len(values) - self.has_time]

    def pace(self, theta: Float[np.ndarray, " p"]) -> float | None:
        """Lengthscale of time at theta, in rounds; None where there is no time axis."""
        return float(np.exp(theta[-1])) if self.has_time else None

    def pack(
        self,
        lengthscales: Float[np.ndarray, " d"],
        outputscales: Float[np.ndarray, " k"],
        noise_variances: Float[np.ndarray, " c"],
        pace: float | None = None,
    ) -> Float[np.ndarray, " p"]:
        """The theta nearest to given hyper-parameters, within the bounds; of time by default the prior's mode."""
        logs = np.log(lengthscales)
        ends = len(self.bounds) - self.has_time
        floors = np.exp(self.bounds[ends - len(noise_variances) : ends, 0])
        theta = np.concatenate(
            [
                [logs.mean()] if self.is_shared else logs,
                np.log(outputscales),
                np.log(np.maximum(noise_variances, floors)),
                self.centre[ends:] if pace is None else [np.log(pace)] * self.has_time,
            ]
        )
        return np.clip(theta, self.bounds[:, 0], self.bounds[:, 1])

    def by_lengthscale(self, gradient: Float[np.ndarray, " d"]) -> Float[np.ndarray, " q"]:
        """Derivatives by the lengthscale parameters, from those by the logarithms of all lengthscales."""
        return gradient.sum(keepdims=True) if self.is_shared else gradient
