"""Which hyper-parameters an additive belief takes: at its prior's mode, and fitted to its data."""

from typing import TYPE_CHECKING

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.additive_fitting import AdditiveLogPosterior, AdditivePrior, maximise
from swarmbo.belief.additive_settings import AdditiveGPSettings, AdditiveHyperparameters
from swarmbo.belief.cholesky import factorise, solve_lower
from swarmbo.belief.conditioning import TOTAL, Observations, observation_covariance
from swarmbo.belief.fitting import standardisation
from swarmbo.graph import FactorGraph

if TYPE_CHECKING:
    from swarmbo.belief.additive import AdditiveGP


def prior_hyperparameters(settings: AdditiveGPSettings, graph: FactorGraph) -> AdditiveHyperparameters:
    """The mode of the prior, outcomes unscaled."""
    sizes = tuple(len(graph.scope(factor)) for factor in graph.factors)
    prior = AdditivePrior.of(settings, sizes)
    return _hyperparameters(settings, prior, prior.centre)


def _hyperparameters(
    settings: AdditiveGPSettings, prior: AdditivePrior, theta: Float[np.ndarray, " p"]
) -> AdditiveHyperparameters:
    k = len(prior.sizes)
    lengthscales, outputscales, noise_variance = prior.unpack(theta)
    return AdditiveHyperparameters(
        kernels=(settings.kernel,) * k,
        lengthscales=tuple(tuple(part.tolist()) for part in np.split(lengthscales, np.cumsum(prior.sizes)[:-1])),
        outputscales=tuple(outputscales.tolist()),
        noise_variances=(noise_variance,) * k,
        total_noise_variance=noise_variance,
        constants=(0.0,) * k,
        scales=(1.0,) * k,
    )


def fit_additive(
    belief: "AdditiveGP", rng: np.random.Generator, warm: AdditiveHyperparameters | None
) -> AdditiveHyperparameters:
    """Maximum a-posteriori hyper-parameters given all of a belief's data.

    Totals: jointly over all factors. Factors alone: each by itself, on its own outcomes. Mixed: shapes from the totals
    if there are more of them than of any factor, else from the factors; the constants from everything.
    """
    n_totals = int(np.isfinite(belief.totals).sum())
    n_factors = np.isfinite(belief.factors).sum(axis=0)
    if n_totals and n_totals >= n_factors.max(initial=0):
        return _with_constants(belief, _fit_totals(belief, rng, warm))
    hyper = _fit_factors(belief, rng, warm)
    if not n_totals:
        return hyper
    scale = float(np.sqrt(np.mean(np.square(hyper.scales))))  # tied factors share one unit
    ratios = (np.array(hyper.scales) / scale) ** 2
    noise = np.array(hyper.noise_variances) * ratios
    tied = msgspec.structs.replace(
        hyper,
        outputscales=tuple((np.array(hyper.outputscales) * ratios).tolist()),
        noise_variances=tuple(noise.tolist()),
        total_noise_variance=float(noise.sum()),
        scales=(scale,) * len(ratios),
    )
    return _with_constants(belief, tied)


def _starts(
    settings: AdditiveGPSettings,
    prior: AdditivePrior,
    rng: np.random.Generator,
    warm: Float[np.ndarray, " p"] | None,
) -> list[Float[np.ndarray, " p"]]:
    starts = [prior.centre] if warm is None else [warm]
    spread = np.linalg.cholesky(np.linalg.inv(prior.precision))
    for _ in range(settings.restarts):
        drawn = prior.centre + spread @ rng.standard_normal(len(prior.centre))
        starts.append(np.clip(drawn, prior.bounds[:, 0], prior.bounds[:, 1]))
    return starts


def _fit_totals(
    belief: "AdditiveGP", rng: np.random.Generator, warm: AdditiveHyperparameters | None
) -> AdditiveHyperparameters:
    settings, k = belief.settings, len(belief.scopes)
    sizes = tuple(map(len, belief.scopes))
    prior = AdditivePrior.of(settings, sizes)
    rows = np.isfinite(belief.totals)
    y = belief.totals[rows]
    offset, scale, is_informative = standardisation(y)
    theta = prior.centre
    kernels = (settings.kernel,) * k
    if is_informative:
        U, z = belief.domain.to_unit(belief.X[rows]), (y - offset) / scale
        log_posterior = AdditiveLogPosterior(prior, kernels, belief.scopes, U, z, belief.noise[rows] / scale**2)
        start = None
        if warm is not None and tuple(map(len, warm.lengthscales)) == sizes:
            ratio = float(np.clip(warm.scales[0] / scale, 1e-6, 1e6)) ** 2
            lengths = np.concatenate([np.array(part) for part in warm.lengthscales])
            outputs = np.array(warm.outputscales) * ratio
            start = prior.pack(lengths, outputs, warm.total_noise_variance * ratio)
        theta, _ = maximise(log_posterior, _starts(settings, prior, rng, start), settings.max_iterations)
    hyper = _hyperparameters(settings, prior, theta)
    return msgspec.structs.replace(hyper, scales=(scale,) * k, constants=(offset / k,) * k)


def _fit_factors(
    belief: "AdditiveGP", rng: np.random.Generator, warm: AdditiveHyperparameters | None
) -> AdditiveHyperparameters:
    settings, k = belief.settings, len(belief.scopes)
    parts: list[AdditiveHyperparameters] = []
    constants: list[float] = []
    for i, scope in enumerate(belief.scopes):
        prior = AdditivePrior.of(settings, (len(scope),))
        rows = np.isfinite(belief.factors[:, i])
        y = belief.factors[rows, i]
        offset, scale, is_informative = standardisation(y)
        theta, mean = prior.centre, 0.0
        if is_informative:
            U = belief.domain.to_unit(belief.X[rows])[:, list(scope)]
            z, noise = (y - offset) / scale, belief.noise[rows] / scale**2
            local = (tuple(range(len(scope))),)
            log_posterior = AdditiveLogPosterior(prior, (settings.kernel,), local, U, z, noise)
            start = None
            if warm is not None and i < len(warm.scales) and len(warm.lengthscales[i]) == len(scope):
                ratio = float(np.clip(warm.scales[i] / scale, 1e-6, 1e6)) ** 2
                outputs = np.array([warm.outputscales[i]]) * ratio
                start = prior.pack(np.array(warm.lengthscales[i]), outputs, warm.noise_variances[i] * ratio)
            theta, _ = maximise(log_posterior, _starts(settings, prior, rng, start), settings.max_iterations)
            mean = _own_mean(_hyperparameters(settings, prior, theta), local, U, z, noise)
        parts.append(msgspec.structs.replace(_hyperparameters(settings, prior, theta), scales=(scale,)))
        constants.append(offset + scale * mean)
    return AdditiveHyperparameters(
        kernels=(settings.kernel,) * k,
        lengthscales=tuple(part.lengthscales[0] for part in parts),
        outputscales=tuple(part.outputscales[0] for part in parts),
        noise_variances=tuple(part.noise_variances[0] for part in parts),
        total_noise_variance=float(sum(part.total_noise_variance for part in parts)),
        constants=tuple(constants),
        scales=tuple(part.scales[0] for part in parts),
    )


def _own_mean(
    hyper: AdditiveHyperparameters,
    scopes: tuple[tuple[int, ...], ...],
    U: Float[np.ndarray, "t a"],
    z: Float[np.ndarray, " t"],
    noise: Float[np.ndarray, " t"],
) -> float:
    data = Observations(U, np.full(len(z), TOTAL), z, noise)
    K = observation_covariance(hyper, scopes, data)
    K.flat[:: len(z) + 1] += hyper.total_noise_variance + noise
    L, _ = factorise(K)
    ones = solve_lower(L, np.ones(len(z)))
    return float(ones @ solve_lower(L, z)) / float(ones @ ones)


def _with_constants(belief: "AdditiveGP", hyper: AdditiveHyperparameters) -> AdditiveHyperparameters:
    """Constants by generalised least squares; what totals alone can't tell apart is shared out evenly."""
    k, scale = len(hyper.scales), hyper.scales[0]
    data = belief.observations
    known = np.isfinite(data.outcome)
    data = Observations(data.U[known], data.channel[known], data.outcome[known], data.noise[known])
    if not len(data.outcome):
        return hyper
    K = observation_covariance(hyper, belief.scopes, data)
    noise = np.array([*hyper.noise_variances, hyper.total_noise_variance])[data.channel] + data.noise / scale**2
    K.flat[:: len(noise) + 1] += noise
    L, _ = factorise(K)
    design = np.array([(data.channel == TOTAL) | (data.channel == i) for i in range(k)], dtype=float).T
    whitened = solve_lower(L, np.asfortranarray(design))
    centre = float(np.mean(data.outcome))
    share = centre / k if (data.channel == TOTAL).all() else 0.0
    shifted = data.outcome - design @ np.full(k, share)
    constants, *_ = np.linalg.lstsq(whitened, solve_lower(L, shifted / scale), rcond=1e-10)
    return msgspec.structs.replace(hyper, constants=tuple((share + scale * constants).tolist()))
