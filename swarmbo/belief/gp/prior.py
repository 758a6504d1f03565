"""The prior on hyper-parameters that keeps a handful of outcomes from collapsing a fit.

A fit searches over theta = (log-lengthscale parameters, log-lengthscale of time, log outputscale of each latent, log
noise variance of each kind of outcome), and the prior is one multivariate normal over theta, cut off at bounds.

The hierarchical prior is log l_ij = m_i + s_i c + τ δ_ij with a common c and deviations δ, all standard normal: few
outcomes suffice to learn the common length, more to learn how lengthscales differ. The common part need not be a
parameter: maximising over c for fixed lengthscales gives, up to a constant, the same density as integrating it out,
which is normal over log l with covariance s sᵀ + τ² I. The lengthscale of time is independent of the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorForm
from swarmbo.belief.gp.hyperparameters import (
    AdditiveHyperparameters,
    ExactGPSettings,
    LengthscaleModel,
    TimeCorrelation,
)
from swarmbo.kernels import KernelName
from swarmbo.spaces import Domain

LENGTHSCALE_RANGE = (5e-3, 100.0)  # shares of a side: below, no two points are correlated; above, functions are flat
TIME_RANGE = (0.05, 1e4)  # rounds: below, not even the last round counts; above, nothing is ever forgotten
OUTPUTSCALE_RANGE = (1e-6, 1e3)
NOISE_CEILING = 10.0
MOST_PAIRS = 2**27  # limit of numbers stored for pairs of outcomes and factors, a gigabyte; above it, factor by factor
TIED_FROM = 512  # number of factors from which they share hyper-parameters: few totals cannot distinguish that many
PerLength = Float[np.ndarray, " d"]
PerLatent = Float[np.ndarray, " k"]
PerNoise = Float[np.ndarray, " c"]
Theta = Float[np.ndarray, " p"]  # natural logarithms of hyper-parameters


@dataclass(frozen=True, eq=False)
class Ties:
    """Common hyper-parameters of all factors with equal sizes and priors: for each, the index of its common value."""

    lengths: Int[np.ndarray, " d"]
    latents: Int[np.ndarray, " k"]
    noises: Int[np.ndarray, " c"]


@dataclass(frozen=True, eq=False)
class HyperparameterPrior:
    """A normal prior over theta, cut off at bounds. Log-lengthscales are ``base`` plus parameters, latent by latent."""

    sizes: tuple[int, ...]  # number of lengthscales of each latent, or of each group of factors with ``ties``
    base: Float[np.ndarray, " d"]
    is_shared: bool  # True: all lengthscales have one parameter, and differ by the base only
    time_kernel: KernelName | None  # None without a time axis
    centre: Theta  # mean and mode
    spreads: Theta  # standard deviations; for lengthscales with a common part, of this part
    deviation: float | None  # standard deviation of each lengthscale's own part; None: no common part
    bounds: Float[np.ndarray, "p 2"]
    ties: Ties | None = None  # None: no hyper-parameters are common

    @classmethod
    def of_field(cls, settings: ExactGPSettings, domain: Domain) -> "HyperparameterPrior":
        """The prior that settings describe for one latent over a domain."""
        d, sides = domain.n_dims, domain.high - domain.low
        base = np.log(sides.max() / sides) if settings.equal_in == "physical" else np.zeros(d)
        medians = np.full(d, np.log(settings.lengthscale_median * np.sqrt(d)))
        spreads, outputs = np.full(d, settings.lengthscale_log_std), [(1.0, settings.outputscale_log_std)]
        noises = [settings.noise_median]
        return cls._made(settings, [d], settings.lengthscales, medians, spreads, outputs, noises, base)

    @classmethod
    def of(
        cls,
        settings: AdditiveGPSettings,
        factors: Sequence[str],
        sizes: Sequence[int],
        model: LengthscaleModel,
        noise_medians: Sequence[float],
    ) -> "HyperparameterPrior":
        """The prior that settings describe for a sum. If there are >= 512, factors with equal sizes and priors share an
        outputscale, a noise variance, and one lengthscale for all of their variables.
        """
        k, forms = len(sizes), settings.of_factors(factors)
        firsts, counts, ties = list(range(k)), sizes, None  # first factor and number of lengthscales of each group
        if k >= TIED_FROM:
            places = dict[tuple[FactorForm, int], int]()
            alike = [places.setdefault(form, len(places)) for form in zip(forms, sizes, strict=True)]
            is_mixed = len(noise_medians) > 1
            ties = Ties(np.repeat(alike, sizes), np.array(alike), np.array([*alike, len(places)] if is_mixed else [0]))
            firsts = [alike.index(place) for place in range(len(places))]
            counts = [1] * len(places)
            noise_medians = [*(noise_medians[i] for i in firsts if is_mixed), noise_medians[-1]]
        medians = np.array([prior.lengthscale_log_median for prior in forms]) + 0.5 * np.log(sizes)
        spreads = np.array([prior.lengthscale_log_std for prior in forms])
        if model == "shared":
            medians = np.full(sum(counts), np.average(medians, weights=sizes))
            spreads = np.full(sum(counts), spreads.mean())
        else:
            medians, spreads = np.repeat(medians[firsts], counts), np.repeat(spreads[firsts], counts)
        outputs = [(forms[i].outputscale_median or 1.0 / k, forms[i].outputscale_log_std) for i in firsts]
        base = np.zeros(sum(counts))
        return cls._made(settings, counts, model, medians, spreads, outputs, noise_medians, base, ties)

    @classmethod
    def _made(
        cls,
        settings: ExactGPSettings | AdditiveGPSettings,
        sizes: Sequence[int],
        model: LengthscaleModel,
        medians: Float[np.ndarray, " d"],
        spreads: Float[np.ndarray, " d"],
        outputs: Sequence[tuple[float, float]],
        noise_medians: Sequence[float],
        base: Float[np.ndarray, " d"],
        ties: Ties | None = None,
    ) -> "HyperparameterPrior":
        """Prior from medians and standard deviations of logarithms; those of lengthscales have one per coordinate."""
        time, is_shared = settings.time, model == "shared"
        if is_shared:
            medians, spreads = medians[:1], spreads[:1]
        q, k, c = len(medians), len(outputs), len(noise_medians)
        # wide enough for the longest side's lengthscale and for equal physical lengths on shorter sides
        low, high = np.log(LENGTHSCALE_RANGE)
        bounds = np.array(
            [(low - float(base.max()), high)] * q
            + [tuple(np.log(TIME_RANGE))] * (time is not None)
            + [tuple(np.log(OUTPUTSCALE_RANGE))] * k
            + [(np.log(settings.noise_floor), np.log(NOISE_CEILING))] * c
        )
        times, time_stds = ([], []) if time is None else ([np.log(time.lengthscale_median)], [time.lengthscale_log_std])
        centre = np.concatenate([medians, times, np.log([median for median, _ in outputs]), np.log(noise_medians)])
        centre = np.clip(centre, bounds[:, 0], bounds[:, 1])
        own = {"separate": None, "shared": 0.0, "hierarchical": settings.deviation_log_std}[model]
        spreads = np.array([*spreads, *time_stds, *(std for _, std in outputs), *[settings.noise_log_std] * c])
        kernel = None if time is None else time.kernel
        return cls(tuple(sizes), base, is_shared, kernel, centre, spreads, own, bounds, ties)

    def noisy(self, theta: Theta) -> "tuple[HyperparameterPrior, Theta] | None":
        """Prior that expects much noise, and a start; None if theta has noise, or if the prior of the noise is narrow.

        Noise may look like short lengthscales. A search from there does not find the maximum with much noise, and a
        prior that expects nearly exact outcomes hides it.
        """
        first = self.n_lengthscales + (self.time_kernel is not None) + len(self.sizes)
        if theta[first:].max() > np.log(_LITTLE_NOISE) or self.spreads[first:].min() < _OPEN:
            return None
        centre, start = self.centre.copy(), self.centre.copy()
        centre[first:], start[first:] = np.maximum(centre[first:], np.log(_MUCH_NOISE)), np.log(_NOISIEST)
        return replace(self, centre=centre), start

    @property
    def n_lengthscales(self) -> int:
        """Number of lengthscale parameters, which come first in theta."""
        return 1 if self.is_shared else sum(self.sizes)

    @cached_property
    def precision(self) -> Float[np.ndarray, "p p"]:
        """Inverse covariance (p, p), quadratic in the number of latents: only a search over all of theta needs it."""
        covariance, q = np.diag(self.spreads**2), self.n_lengthscales
        if self.deviation is not None:
            covariance[:q, :q] = np.outer(self.spreads[:q], self.spreads[:q])
            covariance[range(q), range(q)] += self.deviation**2
        return np.linalg.inv(covariance)

    def log_density(self, theta: Theta) -> tuple[float, Theta]:
        """Log density of theta, without its constant, and the gradient."""
        weighted = self.precision @ (theta - self.centre)
        return -0.5 * float(weighted @ (theta - self.centre)), -weighted

    def sample(self, rng: np.random.Generator) -> Theta:
        """A theta drawn from the prior, moved to the bounds where it lies outside."""
        theta = self.centre + np.linalg.cholesky(np.linalg.inv(self.precision)) @ rng.standard_normal(len(self.centre))
        return np.clip(theta, self.bounds[:, 0], self.bounds[:, 1])

    def unpack(self, theta: Theta) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, " k"], Float[np.ndarray, " c"]]:
        """Lengthscales (latent after latent), outputscales and noise variances at theta."""
        q = self.n_lengthscales
        first = q + (self.time_kernel is not None)
        values = np.exp(theta[first:])
        lengths, outputs, noises = np.exp(self.base + theta[:q]), values[: len(self.sizes)], values[len(self.sizes) :]
        if (ties := self.ties) is None:
            return lengths, outputs, noises
        return lengths[ties.lengths], outputs[ties.latents], noises[ties.noises]

    def time_correlation(self, theta: Theta) -> TimeCorrelation | None:
        """Kernel over time at theta; None without a time axis."""
        if self.time_kernel is None:
            return None
        return TimeCorrelation(self.time_kernel, float(np.exp(theta[self.n_lengthscales])))

    def pack(
        self, lengthscales: PerLength, outputscales: PerLatent, noise_variances: PerNoise, log_time: float | None = None
    ) -> Theta:
        """The theta nearest to given hyper-parameters, within the bounds; time is by default at the prior's mode."""
        if (ties := self.ties) is not None:
            lengthscales = _geometric_means(lengthscales, ties.lengths)
            outputscales = _geometric_means(outputscales, ties.latents)
            noise_variances = _geometric_means(noise_variances, ties.noises)
        logs, q = np.log(lengthscales) - self.base, self.n_lengthscales
        times = [] if self.time_kernel is None else [self.centre[q] if log_time is None else log_time]
        floors = np.exp(self.bounds[len(self.bounds) - len(noise_variances) :, 0])
        lengths = [logs.mean()] if self.is_shared else logs
        noises = np.log(np.maximum(noise_variances, floors))
        theta = np.concatenate([lengths, times, np.log(outputscales), noises])
        return np.clip(theta, self.bounds[:, 0], self.bounds[:, 1])

    def gradient(
        self, by_lengthscale: PerLength, by_time: float | None, by_outputscale: PerLatent, by_noise: PerNoise
    ) -> Theta:
        """Gradient in theta, from derivatives in the logarithms of ``unpack``'s results and of the time lengthscale."""
        if (ties := self.ties) is not None:
            by_lengthscale = np.bincount(ties.lengths, by_lengthscale)
            by_outputscale, by_noise = np.bincount(ties.latents, by_outputscale), np.bincount(ties.noises, by_noise)
        lengthscales = by_lengthscale.sum(keepdims=True) if self.is_shared else by_lengthscale
        return np.concatenate([lengthscales, [] if by_time is None else [by_time], by_outputscale, by_noise])


def _geometric_means(values: Float[np.ndarray, " n"], places: Int[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
    """Geometric mean of the values of each index in ``places``; 0 (no noise) counts as the smallest positive float."""
    logs = np.log(np.maximum(values, np.finfo(float).tiny))
    return np.exp(np.bincount(places, logs) / np.bincount(places))


_SHORT_LENGTHSCALE = 0.15  # of a side
_LITTLE_NOISE, _MUCH_NOISE, _NOISIEST = 0.01, 0.1, 0.5  # noise variances, of outcomes of variance 1
_OPEN = 1.0  # least log standard deviation of a noise that much noise may replace
CLEAR_LEAD = 5.0  # nats by which much noise must explain outcomes better than little noise
WITHIN = 0.5  # nats per outcome that a search with much noise may gain


def packed(
    prior: HyperparameterPrior,
    warm: AdditiveHyperparameters,
    factors: Sequence[int],
    noises: Sequence[float],
    ratio: float,
) -> Theta:
    """Theta at an earlier optimum, in the unit of the present outcomes, which is ``ratio`` times smaller."""
    square = min(max(ratio, 1e-6), 1e6) ** 2  # for more extreme ratios, the prior's bounds apply anyway
    lengths = np.concatenate([warm.lengthscales[i] for i in factors])
    outputs = np.array([warm.outputscales[i] for i in factors])
    times = [warm.times[i].lengthscale for i in factors] if warm.times else []
    log_time = float(np.mean(np.log(times))) if times else None
    return prior.pack(lengths, outputs * square, np.array(noises) * square, log_time)


def starting_thetas(prior: HyperparameterPrior, drawn: Sequence[Theta], warm: Theta | None) -> list[Theta]:
    """Starts: an earlier optimum or else the prior's mode, one with short lengthscales, and those drawn."""
    starts = [prior.centre] if warm is None else [warm]
    if warm is None or (len(prior.sizes) == 1 and prior.ties is None):
        # narrow peaks look like noise to long lengthscales: only this start leads to their maximum
        short = prior.centre.copy()
        short[: prior.n_lengthscales] = np.log(_SHORT_LENGTHSCALE)
        starts.append(short)
    return [*starts, *drawn]
