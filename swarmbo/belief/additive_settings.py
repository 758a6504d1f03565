"""What an additive Gaussian process is told to be (settings), and what it was fitted to be (hyper-parameters)."""

import math

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.hyperparameters import LengthscaleModel
from swarmbo.kernels import KernelName
from swarmbo.settings import Settings, require


class AdditiveGPSettings(Settings, frozen=True, tag_field="kind", tag="additive"):
    """Settings of a sum of Gaussian processes, one per factor, with hyper-parameters fitted jointly.

    All priors are normal in the logarithm. Lengths are shares of the sides of the domain; variances are relative to the
    variance of the outcomes.

    Args:
        kernel: Covariance function of every factor.
        lengthscales: ``shared``: one for all variables of all factors. ``hierarchical``: a common one times a small
            deviation per factor and variable. ``separate``: independent ones. Where factors are observed one by one,
            each factor is fitted by itself and this holds within it.
        lengthscale_log_median: Median of the prior on the (common) lengthscale of a one-dimensional factor, as a
            logarithm; (log d) / 2 is added for factors of d variables.
        lengthscale_log_std: Its standard deviation, > 0.
        deviation_log_std: Standard deviation > 0 of the deviations; ``hierarchical`` only.
        outputscale_log_std: Of the prior on each factor's outputscale, > 0. Its median is 1 / number of factors.
        noise_median: Median > 0 of the prior on the noise variance.
        noise_log_std: Its standard deviation in natural logarithms, > 0.
        noise_floor: Smallest noise variance that a fit may choose, in (0, 1].
        refit_every: Refit when this many outcomes, >= 1, came since the last fit.
        restarts: Random starts, >= 0, drawn from the prior for each fit besides the prior's mode.
        max_iterations: Of L-BFGS-B per start, >= 1.
    """

    kernel: KernelName = "matern52"
    lengthscales: LengthscaleModel = "hierarchical"
    lengthscale_log_median: float = math.sqrt(2.0)
    lengthscale_log_std: float = math.sqrt(3.0)
    deviation_log_std: float = 0.3
    outputscale_log_std: float = 1.0
    noise_median: float = 1e-3
    noise_log_std: float = 1.5
    noise_floor: float = 1e-6
    refit_every: int = 3
    restarts: int = 0
    max_iterations: int = 60

    def __post_init__(self) -> None:
        for field in (
            "lengthscale_log_std",
            "deviation_log_std",
            "outputscale_log_std",
            "noise_median",
            "noise_log_std",
        ):
            require(self, field, lambda value: value > 0.0, "a number > 0")
        require(self, "lengthscale_log_median", lambda value: abs(value) <= 10.0, "a number from -10 to 10")
        require(self, "noise_floor", lambda value: 0.0 < value <= 1.0, "a number in (0, 1]")
        require(self, "refit_every", lambda value: value >= 1, "an integer >= 1")
        require(self, "restarts", lambda value: value >= 0, "an integer >= 0")
        require(self, "max_iterations", lambda value: value >= 1, "an integer >= 1")


class AdditiveHyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that turns data into a posterior; with the data, enough to rebuild a belief.

    The outcome of factor i is ``constants[i] + scales[i] * (f_i + noise_i)``, f_i a zero-mean Gaussian process. The
    total is the sum of the constants and scaled f_i, with noise of its own; then all scales are equal.

    Args:
        kernels: Covariance function of each factor.
        lengthscales: For each factor one per variable of its scope, > 0, in shares of the domain's sides.
        outputscales: Prior variance > 0 of each f_i.
        noise_variances: Of each factor's outcomes, >= 0, in the square of its scale.
        total_noise_variance: Of the totals, >= 0, in the square of the common scale.
        constants: Prior mean of each factor, in the unit of the outcome.
        scales: > 0, in the unit of the outcome.
    """

    kernels: tuple[KernelName, ...]
    lengthscales: tuple[tuple[float, ...], ...]
    outputscales: tuple[float, ...]
    noise_variances: tuple[float, ...]
    total_noise_variance: float
    constants: tuple[float, ...]
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        flat = [length for lengths in self.lengthscales for length in lengths]
        if not all(0.0 < length < math.inf for length in flat):
            require(self, "lengthscales", lambda _: False, "finite numbers > 0, one per variable of each scope")
        for field in ("outputscales", "scales"):
            require(self, field, lambda v: all(0.0 < x < math.inf for x in v), "finite numbers > 0, one per factor")
        require(self, "noise_variances", lambda v: all(0.0 <= x < math.inf for x in v), "finite numbers >= 0")
        require(self, "total_noise_variance", lambda v: v >= 0.0, "a number >= 0")
        require(self, "constants", lambda v: all(math.isfinite(x) for x in v), "finite numbers, one per factor")

    @property
    def constant(self) -> float:
        """Prior mean of the total."""
        return float(np.sum(self.constants))

    def lengthscale_array(self, factor: int) -> Float[np.ndarray, " a"]:
        """Lengthscales of one factor, in scope order."""
        return np.array(self.lengthscales[factor])
