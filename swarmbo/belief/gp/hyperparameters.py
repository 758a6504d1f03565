"""Settings of exact Gaussian processes, and their fitted hyper-parameters."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.kernels import Covariance, KernelName, KernelSettings, correlation, require_kernel
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Count, Fraction, NonNegative, Positive, Whole, require, within

TOTAL = -1  # channel of an outcome of the sum; a factor's own outcomes have its index as channel
Scopes = Sequence[Sequence[int]]  # coordinates that each latent reads
LengthscaleModel = Literal["shared", "hierarchical", "separate"]


class TimeAxis(KernelSettings, frozen=True):
    """Kernel over time, multiplied by the kernel over locations, so that old data of a changing field lose weight.

    Times are counted in rounds. The lengthscale is fitted with the other hyper-parameters.

    Args:
        kernel: Covariance function over time. ``matern12`` suits fields that change erratically; ``matern32`` and
            smoother kernels suit fields that drift.
        lengthscale_median: Median > 0 of the prior on the lengthscale in time, in rounds.
        lengthscale_log_std: Standard deviation of the lengthscale's prior, in natural logarithms, > 0.

    Example:
        >>> from swarmbo.belief.gp.exact import ExactGP
        >>> from swarmbo.spaces import Domain
        >>> settings = ExactGPSettings(time=TimeAxis(lengthscale_median=5.0))
        >>> belief = ExactGP.create(settings, Domain(np.zeros(1), np.ones(1))).update([[0.5]], [1.0])  # of round 0
        >>> soon, late = (belief.at(now).posterior([[0.5]])[1][0] for now in (1.0, 50.0))
        >>> bool(soon < 0.5 * belief.prior_variance), bool(late > 0.99 * belief.prior_variance)
        (True, True)
    """

    kernel: KernelName = "matern32"
    lengthscale_median: Positive = 10.0
    lengthscale_log_std: Positive = 1.0


@kind("belief", FIELD)
class ExactGPSettings(KernelSettings, frozen=True, tag_field="kind", tag="exact"):
    """Settings of an exact Gaussian process with fitted hyper-parameters.

    All priors are log-normal. Lengths are shares of the domain's sides. Variances are relative to the outcomes'
    variance at the last fit.

    Args:
        kernel: Covariance function.
        lengthscales: ``shared``: one for all coordinates. ``hierarchical``: a common one times a small deviation per
            coordinate. ``separate``: an independent one per coordinate.
        equal_in: Meaning of equal lengthscales. ``side``: an equal share of each side of the domain. ``physical``: an
            equal physical length, for coordinates of one unit on a domain of unequal sides.
        lengthscale_median: Median > 0 of the prior on the (common) lengthscale; it is multiplied by √d for d
            dimensions. The default suits maps: on a square, 95 % of the prior is between 0.05 and 0.84 sides.
        lengthscale_log_std: Standard deviation of the lengthscale's prior, in natural logarithms, 1e-6 to 100.
        deviation_log_std: Log standard deviation of the deviations, 1e-4 to 100; only for ``hierarchical``.
        outputscale_log_std: Log standard deviation of the prior on the outputscale (prior variance), whose median is 1.
        noise_median: Median > 0 of the prior on the noise variance. The default allows for variations of a field
            between samples; for noise-free functions, use 1e-3 with ``noise_log_std`` 1.5.
        noise_log_std: Standard deviation of the noise variance's prior, in natural logarithms, > 0.
        noise_floor: Smallest noise variance that a fit may choose, in (0, 1].
        time: Time axis of the belief; None: the field does not change.
        refit_every: Number of updates with data, >= 1, from one fit to the next. With more than 1,000 measurements,
            fits use 1,000 of them and are rarer (``ExactGP.needs_fit``).
        restarts: Random starts of each fit, >= 0, drawn from the prior, besides the prior's mode and the last optimum.
        max_iterations: Iterations of L-BFGS-B per start, >= 1.

    Example:
        >>> from swarmbo.belief.gp.exact import ExactGP
        >>> from swarmbo.spaces import Domain
        >>> domain = Domain(np.zeros(2), np.array([100.0, 50.0]))  # coordinates of one unit, unequal sides
        >>> settings = ExactGPSettings(lengthscales="shared", equal_in="physical")
        >>> belief = ExactGP.create(settings, domain).update([[10.0, 10.0], [90.0, 40.0]], [1.0, 3.0])
        >>> shares = belief.fit(np.random.default_rng(0)).hyperparameters.lengthscales
        >>> bool(np.isclose(shares[0] * 100.0, shares[1] * 50.0))
        True
    """

    kernel: KernelName = "matern52"
    lengthscales: LengthscaleModel = "hierarchical"
    equal_in: Literal["side", "physical"] = "side"
    lengthscale_median: Positive = 0.15
    lengthscale_log_std: Annotated[float, within(1e-6, 100)] = 0.7
    deviation_log_std: Annotated[float, within(1e-4, 100)] = 0.3
    outputscale_log_std: Positive = 1.0
    noise_median: Positive = 1e-2
    noise_log_std: Positive = 2.0
    noise_floor: Fraction = 1e-6
    time: TimeAxis | None = None
    refit_every: Count = 1
    restarts: Whole = 2
    max_iterations: Count = 100


class TimeCorrelation(KernelSettings, frozen=True):
    """The kernel over time of a belief with a time axis.

    Args:
        kernel: Covariance function.
        lengthscale: Lengthscale in time, in rounds, > 0.

    Example:
        >>> fading = TimeCorrelation("matern12", lengthscale=5.0)
        >>> fading.between(np.array([0.0, 5.0, 50.0]), np.array(0.0)).round(4).tolist()  # exp(-rounds / 5)
        [1.0, 0.3679, 0.0]
    """

    kernel: KernelName
    lengthscale: Positive

    def between(self, one: Float[np.ndarray, "*_"], other: Float[np.ndarray, "*_"]) -> Float[np.ndarray, "*_"]:
        """Correlation of the field between rounds, for two arrays of rounds that are broadcast."""
        return correlation(self.kernel, np.abs(one - other) / self.lengthscale)


class Hyperparameters(KernelSettings, frozen=True):
    """Hyper-parameters of a belief about a field; with the data, they determine it.

    A physical outcome is offset + scale * (mean + f + noise), where f has the prior variance ``outputscale``.
    """

    kernel: KernelName
    lengthscales: tuple[float, ...]  # one per coordinate, in shares of the domain's sides
    outputscale: Positive
    noise_variance: NonNegative  # of standardised outcomes, like ``outputscale`` and ``mean``
    mean: float = 0.0
    offset: float = 0.0
    scale: Positive = 1.0
    time: TimeCorrelation | None = None  # None for a field that does not change

    def __post_init__(self) -> None:
        super().__post_init__()
        is_length = len(self.lengthscales) > 0 and all(0.0 < length < math.inf for length in self.lengthscales)
        require(self, "lengthscales", lambda _: is_length, "finite numbers > 0, one per coordinate")

    @property
    def has_scale(self) -> bool:
        """True if the scale was fitted to outcomes that vary; else it is 1, whatever their unit."""
        return (self.mean, self.scale) != (0.0, 1.0)

    @property
    def prior(self) -> Covariance:
        """Covariance function of standardised outcomes over the unit cube, and over rounds."""
        return self.as_channel().covariance(0)

    def as_channel(self) -> "AdditiveHyperparameters":
        """Hyper-parameters of a sum of one factor, for the same model."""
        variances, constant = (self.outputscale, self.noise_variance), self.offset + self.scale * self.mean
        own = FactorHyperparameters(self.kernel, self.lengthscales, *variances, constant, self.scale, self.time)
        return AdditiveHyperparameters.of([own], self.noise_variance)


class FactorHyperparameters(NamedTuple):
    """One factor's part of ``AdditiveHyperparameters``."""

    kernel: KernelName
    lengthscales: tuple[float, ...]
    outputscale: float
    noise_variance: float
    constant: float
    scale: float
    time: TimeCorrelation | None = None


def common_scale(scales: Sequence[float]) -> float:
    """Root mean square of scales; exactly their value if all are equal."""
    if all(scale == scales[0] for scale in scales):
        return scales[0]
    largest = max(scales)  # squares of large scales may overflow
    return largest * float(np.sqrt(np.mean((np.array(scales) / largest) ** 2)))


class AdditiveHyperparameters(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hyper-parameters of a belief about a sum; with the data, they determine it.

    The outcome of factor i is ``constants[i] + scales[i] * (f_i + noise_i)``, f_i a zero-mean Gaussian process. The
    total is the sum of the constants and scaled f_i, with noise of its own, in the unit of the common scale: the root
    mean square of ``scales``, which are equal where totals were fitted.
    """

    kernels: tuple[KernelName, ...]
    lengthscales: tuple[tuple[float, ...], ...]  # in scope order, in shares of the domain's sides
    outputscales: tuple[float, ...]  # prior variance of each f_i
    noise_variances: tuple[float, ...]  # of each factor's outcomes, in the square of its scale
    total_noise_variance: float  # in the square of the common scale
    constants: tuple[float, ...]  # prior means, in the unit of the outcome
    scales: tuple[float, ...]  # in the unit of the outcome
    times: tuple[TimeCorrelation, ...] = ()  # one per factor; empty for a function that does not change

    def __post_init__(self) -> None:
        require_kernel(self, "kernels")
        are_lengths = all(0.0 < length < math.inf for lengths in self.lengthscales for length in lengths)
        require(self, "lengthscales", lambda _: are_lengths, "finite numbers > 0, one per variable of each scope")
        for field in ("outputscales", "scales"):
            require(self, field, lambda v: all(0.0 < x < math.inf for x in v), "finite numbers > 0, one per factor")
        require(self, "noise_variances", lambda v: all(0.0 <= x < math.inf for x in v), "finite numbers >= 0")
        require(self, "total_noise_variance", lambda v: v >= 0.0, "a number >= 0")
        require(self, "constants", lambda v: all(math.isfinite(x) for x in v), "finite numbers, one per factor")
        for field in ("kernels", "outputscales", "noise_variances", "constants", "scales"):
            require(self, field, lambda v: len(v) == len(self.lengthscales), "one per factor")
        require(self, "times", lambda v: len(v) in (0, len(self.lengthscales)), "one per factor, or none")

    @classmethod
    def of(
        cls, factors: Iterable[FactorHyperparameters], total_noise_variance: float | None = None
    ) -> "AdditiveHyperparameters":
        """Hyper-parameters of some factors; by default, the noise variance of a total is the sum of theirs."""
        kernels, lengthscales, outputs, noises, constants, scales, times = zip(*factors, strict=True)
        times = () if None in times else times
        hyper = cls(kernels, lengthscales, outputs, noises, total_noise_variance or 0.0, constants, scales, times)
        if total_noise_variance is not None:
            return hyper
        return msgspec.structs.replace(hyper, total_noise_variance=math.fsum(hyper.in_one_unit().noise_variances))

    def factor(self, i: int) -> FactorHyperparameters:
        """Hyper-parameters of one factor."""
        variances, time = (self.outputscales[i], self.noise_variances[i]), self.times[i] if self.times else None
        unit = self.constants[i], self.scales[i]
        return FactorHyperparameters(self.kernels[i], self.lengthscales[i], *variances, *unit, time)

    @property
    def constant(self) -> float:
        """Prior mean of the total."""
        return float(np.sum(self.constants))

    @property
    def common_scale(self) -> float:
        """Scale of the total's outcomes."""
        return common_scale(self.scales)

    def constant_of(self, channel: int) -> float:
        """Prior mean of the outcomes of a factor, or of the total (-1), in their unit."""
        return self.constant if channel < 0 else self.constants[channel]

    def scale_of(self, channel: int) -> float:
        """Unit of the standardised outcomes of a factor, or of the total (-1)."""
        return self.common_scale if channel < 0 else self.scales[channel]

    def mixed(self, other: "AdditiveHyperparameters", is_own: Sequence[bool]) -> "AdditiveHyperparameters":
        """Hyper-parameters of the factors marked by ``is_own``, with those of ``other`` for the rest."""
        return self.of((self if own else other).factor(j) for j, own in enumerate(is_own)) if any(is_own) else other

    def in_one_unit(self) -> "AdditiveHyperparameters":
        """The same model with all scales equal to the common scale, as totals require."""
        common = self.common_scale
        if all(scale == common for scale in self.scales):
            return self
        ratios, scales = (np.array(self.scales) / common) ** 2, (common,) * len(self.scales)
        variances = self.outputscales, self.noise_variances
        outputs, noises = (tuple((np.array(own) * ratios).tolist()) for own in variances)
        return msgspec.structs.replace(self, outputscales=outputs, noise_variances=noises, scales=scales)

    def covariance(self, factor: int) -> Covariance:
        """Covariance function of one standardised factor over the unit cube, and over rounds."""
        lengths, output = self.lengthscales[factor], self.outputscales[factor]
        if not self.times:
            return Covariance(self.kernels[factor], np.array(lengths), output)
        time = self.times[factor]
        return Covariance(self.kernels[factor], np.array([*lengths, time.lengthscale]), output, time.kernel)
