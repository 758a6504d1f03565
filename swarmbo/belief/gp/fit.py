"""Which hyper-parameters a belief takes: at its prior's mode, and fitted to its data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.evidence import LogPosterior, maximise
from swarmbo.belief.gp.hyperparameters import (
    AdditiveHyperparameters,
    ExactGPSettings,
    Hyperparameters,
    TimeAxis,
    TimeCorrelation,
)
from swarmbo.belief.gp.observations import TOTAL, Observations, standardised_noise
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.gp.standardising import standardisation
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KernelName
from swarmbo.spaces import Domain

if TYPE_CHECKING:
    from swarmbo.belief.gp.additive_prediction import AdditivePosterior

_SHORT_LENGTHSCALE = 0.15  # of a side
_FIELD_TOLERANCE = 1e7 * float(np.finfo(float).eps)  # L-BFGS-B's own; theta of a field is short, so it can be had


def prior_hyperparameters(settings: AdditiveGPSettings, graph: FactorGraph) -> AdditiveHyperparameters:
    """The mode of the prior, outcomes unscaled."""
    sizes = [len(scope) for scope in graph.scopes]
    model = settings.lengthscale_model(sizes, alone=False)
    medians = [settings.of_factor(factor).noise_median or settings.noise_median for factor in graph.factors]
    prior = HyperparameterPrior.of(settings, graph.factors, sizes, model, [*medians, settings.noise_median])
    return _hyperparameters(settings, graph.factors, prior, prior.centre)


def prior_field_hyperparameters(settings: ExactGPSettings, domain: Domain) -> Hyperparameters:
    """The mode of the prior of a field, outcomes unscaled."""
    prior = HyperparameterPrior.of_field(settings, domain)
    return _field_hyperparameters(settings, prior, prior.centre)


def fit_field(
    settings: ExactGPSettings,
    domain: Domain,
    data: Observations,
    rng: np.random.Generator,
    previous: Hyperparameters | None = None,
) -> Hyperparameters:
    """Hyper-parameters of one field at the best local maximum of the posterior found from several starts.

    Starts: the previous optimum (its variances moved to the new outcome scale), the prior's mode, and random draws from
    the prior. Outcomes that do not show their scale (none, one, constant ones) say nothing about the other
    hyper-parameters either: those stay at the prior's mode, and only the offset moves.

    Args:
        settings: Kernel, priors, effort.
        domain: Where the points lie.
        data: Outcomes of the field.
        rng: For the random starts.
        previous: The last optimum, if there is one.

    Returns:
        The hyper-parameters. Never raises on degenerate data.
    """
    prior = HyperparameterPrior.of_field(settings, domain)
    offset, scale, is_informative = standardisation(data.outcome)
    theta, mean = prior.centre, 0.0
    if is_informative:
        z = (data.outcome - offset) / scale
        scopes, fading = [range(domain.n_dims)], _fading(settings.time, data)
        log_posterior = LogPosterior(
            prior, [settings.kernel], scopes, data.U, z, standardised_noise(data.noise, scale), fading=fading
        )
        starts = [prior.centre, *(prior.sample(rng) for _ in range(settings.restarts))]
        if previous is not None:
            starts.insert(0, warm_start(prior, previous, scale))
        theta, _ = maximise(log_posterior, starts, settings.max_iterations, _FIELD_TOLERANCE)
        mean = float(log_posterior.means(theta)[0])
    fitted = _field_hyperparameters(settings, prior, theta)
    noise = _noise_ahead(fitted.noise_variance, data, scale, settings.noise_floor)
    return msgspec.structs.replace(fitted, noise_variance=noise, mean=mean, offset=offset, scale=scale)


def warm_start(prior: HyperparameterPrior, previous: Hyperparameters, scale: float) -> Float[np.ndarray, " p"]:
    """The last optimum of a field as a theta under a new outcome scale: its physical variances stay what they were.

    Args:
        prior: Whose bounds hold.
        previous: The last optimum.
        scale: The new outcome scale.
    """
    square = _square(previous.scale / scale)
    return prior.pack(
        np.array(previous.lengthscales),
        np.array([previous.outputscale * square]),
        np.array([previous.noise_variance * square]),
        None if previous.time is None else previous.time.lengthscale,
    )


def _noise_ahead(fitted: float, data: Observations, scale: float, floor: float) -> float:
    """Standardised noise variance of outcomes to come: as fitted, or where all were told, as these on average."""
    if not len(data) or np.isnan(data.noise).any():
        return fitted
    return max(float(standardised_noise(data.noise, scale).mean()), floor)


def _field_hyperparameters(
    settings: ExactGPSettings, prior: HyperparameterPrior, theta: Float[np.ndarray, " p"]
) -> Hyperparameters:
    lengthscales, (outputscale,), (noise_variance,) = prior.unpack(theta)
    time = prior.time_lengthscale(theta)
    return Hyperparameters(
        settings.kernel,
        tuple(lengthscales.tolist()),
        float(outputscale),
        float(noise_variance),
        time=None if settings.time is None or time is None else TimeCorrelation(settings.time.kernel, time),
    )


def units(
    totals: Float[np.ndarray, " t"], factors: Float[np.ndarray, "t k"]
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"], bool]:
    """Offset and scale of each factor's outcomes, and whether any outcomes showed theirs.

    Factors observed alone have each their own. Totals need a common one: their own standard deviation or, where they
    do not show it, that of the sum of independent factors. What is left of the mean of the totals is shared out evenly
    among factors that were not observed.

    Args:
        totals: Outcomes of the sum; NaN where not observed.
        factors: Outcomes by factor; NaN where not observed.
    """
    k = factors.shape[1]
    alone = [standardisation(column[~np.isnan(column)]) for column in factors.T]
    offsets, scales = np.array([part[0] for part in alone]), np.array([part[1] for part in alone])
    shown = [part[2] for part in alone]
    offset, scale, is_shown = standardisation(totals[~np.isnan(totals)])
    if np.isnan(totals).all():
        return offsets, scales, any(shown)
    unseen = np.isnan(factors).all(axis=0)
    if unseen.any():
        offsets[unseen] = (offset - offsets[~unseen].sum()) / unseen.sum()
    if not is_shown:
        largest = scales[shown].max(initial=0.0)
        scale = largest * float(np.sqrt(((scales[shown] / largest) ** 2).sum())) if largest else 1.0
    return offsets, np.full(k, scale), is_shown or any(shown)


def fit_additive(
    belief: "AdditivePosterior", rng: np.random.Generator, warm: AdditiveHyperparameters | None
) -> AdditiveHyperparameters:
    """Maximum a-posteriori hyper-parameters given all of a belief's data.

    Factors observed alone: each by itself, on its own outcomes. As soon as there are totals: all jointly.
    """
    data = belief.observations
    offsets, scales, is_shown = units(belief.totals, belief.factors)
    if (data.channel == TOTAL).any():
        return _fit_jointly(belief, data, offsets, scales, rng, warm, is_shown=is_shown)
    return _fit_alone(belief, data, offsets, scales, rng, warm)


def _fit_jointly(
    belief: "AdditivePosterior",
    data: Observations,
    offsets: Float[np.ndarray, " k"],
    scales: Float[np.ndarray, " k"],
    rng: np.random.Generator,
    warm: AdditiveHyperparameters | None,
    *,
    is_shown: bool,
) -> AdditiveHyperparameters:
    settings, factors = belief.settings, belief.graph.factors
    sizes, k, scale = [len(scope) for scope in belief.scopes], len(factors), float(scales[0])
    is_mixed = bool((data.channel != TOTAL).any())
    medians = [settings.of_factor(factor).noise_median or settings.noise_median for factor in factors]
    prior = HyperparameterPrior.of(
        settings,
        factors,
        sizes,
        settings.lengthscale_model(sizes, alone=False),
        [*medians, settings.noise_median] if is_mixed else [settings.noise_median],
    )
    theta, constants = prior.centre, offsets
    if is_shown:
        kernels: list[KernelName] = [settings.of_factor(factor).kernel or settings.kernel for factor in factors]
        z = (data.outcome - np.array([*offsets, offsets.sum()])[data.channel]) / scale
        channel = data.channel if is_mixed else None
        log_posterior = LogPosterior(
            prior,
            kernels,
            belief.scopes,
            data.U,
            z,
            standardised_noise(data.noise, scale),
            channel,
            _fading(settings.time, data),
        )
        start = None
        if warm is not None and [len(lengths) for lengths in warm.lengthscales] == sizes:
            tied = warm.in_one_unit()
            noises = [*tied.noise_variances, tied.total_noise_variance][0 if is_mixed else -1 :]
            start = _packed(prior, tied, range(k), noises, tied.scales[0] / scale)
        drawn = [prior.sample(rng) for _ in range(settings.restarts)]
        theta, _ = maximise(log_posterior, _starts(prior, drawn, start), settings.max_iterations)
        means = log_posterior.means(theta)
        constants = offsets + scale * (means if is_mixed else means / k)
    hyper = _hyperparameters(settings, factors, prior, theta)
    by_channel = [*zip(range(k), hyper.noise_variances, strict=True), (TOTAL, hyper.total_noise_variance)]
    *noises, of_total = (
        _noise_ahead(noise, data.of_channel(channel), scale, settings.noise_floor) for channel, noise in by_channel
    )
    noises = noises if is_mixed else [of_total] * k
    return msgspec.structs.replace(
        hyper,
        scales=tuple(scales.tolist()),
        constants=tuple(constants.tolist()),
        noise_variances=tuple(noises),
        total_noise_variance=of_total,
    )


def _fit_alone(
    belief: "AdditivePosterior",
    data: Observations,
    offsets: Float[np.ndarray, " k"],
    scales: Float[np.ndarray, " k"],
    rng: np.random.Generator,
    warm: AdditiveHyperparameters | None,
) -> AdditiveHyperparameters:
    settings = belief.settings
    parts: list[AdditiveHyperparameters] = []
    for i, (factor, scope) in enumerate(zip(belief.graph.factors, belief.scopes, strict=True)):
        own, size, scale = settings.of_factor(factor), len(scope), float(scales[i])
        model = settings.lengthscale_model([size], alone=True)
        alone = msgspec.structs.replace(settings, factors={factor: own})
        prior = HyperparameterPrior.of(alone, [factor], [size], model, [own.noise_median or settings.noise_median])
        theta, constant, data_of = prior.centre, float(offsets[i]), data.of_channel(i)
        # drawn in any case: what comes next to a factor must not depend on whether the outcomes of another vary
        drawn = [prior.sample(rng) for _ in range(settings.restarts)]
        if standardisation(data_of.outcome)[2]:
            U, z = data_of.U[:, list(scope)], (data_of.outcome - constant) / scale
            kernels: list[KernelName] = [own.kernel or settings.kernel]
            log_posterior = LogPosterior(
                prior,
                kernels,
                [range(size)],
                U,
                z,
                standardised_noise(data_of.noise, scale),
                fading=_fading(settings.time, data_of),
            )
            start = None
            if warm is not None and i < len(warm.scales) and len(warm.lengthscales[i]) == size:
                start = _packed(prior, warm, [i], [warm.noise_variances[i]], warm.scales[i] / scale)
            theta, _ = maximise(log_posterior, _starts(prior, drawn, start), settings.max_iterations)
            constant += scale * float(log_posterior.means(theta)[0])
        part = _hyperparameters(settings, [factor], prior, theta)
        noise = _noise_ahead(part.noise_variances[0], data_of, scale, settings.noise_floor)
        parts.append(msgspec.structs.replace(part, scales=(scale,), constants=(constant,), noise_variances=(noise,)))
    hyper = AdditiveHyperparameters(
        kernels=tuple(part.kernels[0] for part in parts),
        lengthscales=tuple(part.lengthscales[0] for part in parts),
        outputscales=tuple(part.outputscales[0] for part in parts),
        noise_variances=tuple(part.noise_variances[0] for part in parts),
        total_noise_variance=0.0,
        constants=tuple(part.constants[0] for part in parts),
        scales=tuple(part.scales[0] for part in parts),
        times=tuple(time for part in parts for time in part.times),
    )
    noise = sum(hyper.in_one_unit().noise_variances)  # a total that comes later has the noise of all its factors
    return msgspec.structs.replace(hyper, total_noise_variance=float(noise))


def _packed(
    prior: HyperparameterPrior,
    warm: AdditiveHyperparameters,
    factors: Sequence[int],
    noises: Sequence[float],
    ratio: float,
) -> Float[np.ndarray, " p"]:
    """Theta at an earlier optimum, in the unit of the present outcomes, which is ``ratio`` times smaller."""
    square = _square(ratio)
    lengths = np.concatenate([warm.lengthscale_array(i) for i in factors])
    outputs = np.array([warm.outputscales[i] for i in factors])
    times = [warm.times[i].lengthscale for i in factors] if warm.times else []
    time = float(np.exp(np.mean(np.log(times)))) if times else None
    return prior.pack(lengths, outputs * square, np.array(noises) * square, time)


def _square(ratio: float) -> float:
    """Of a ratio of scales; where they are further apart than this, bounds hold anyway."""
    return min(max(ratio, 1e-6), 1e6) ** 2


def _fading(time: TimeAxis | None, data: Observations) -> tuple[KernelName, Float[np.ndarray, " r"]] | None:
    return None if time is None else (time.kernel, data.moment)


def _starts(
    prior: HyperparameterPrior, drawn: Sequence[Float[np.ndarray, " p"]], warm: Float[np.ndarray, " p"] | None
) -> list[Float[np.ndarray, " p"]]:
    starts = [prior.centre] if warm is None else [warm]
    if warm is None or len(prior.sizes) == 1:
        # outcomes that look like noise to long lengthscales may be narrow peaks: that maximum is found from here only
        short = prior.centre.copy()
        short[: prior.n_lengthscales] = np.log(_SHORT_LENGTHSCALE)
        starts.append(short)
    return [*starts, *drawn]


def _hyperparameters(
    settings: AdditiveGPSettings, factors: Sequence[str], prior: HyperparameterPrior, theta: Float[np.ndarray, " p"]
) -> AdditiveHyperparameters:
    """Theta as hyper-parameters; one noise variance is that of totals and of factors alike."""
    k, time = len(factors), prior.time_lengthscale(theta)
    lengthscales, outputscales, noises = prior.unpack(theta)
    return AdditiveHyperparameters(
        kernels=tuple(settings.of_factor(factor).kernel or settings.kernel for factor in factors),
        lengthscales=tuple(tuple(part.tolist()) for part in np.split(lengthscales, np.cumsum(prior.sizes)[:-1])),
        outputscales=tuple(outputscales.tolist()),
        noise_variances=tuple(noises[:k].tolist()) if len(noises) > 1 else (float(noises[0]),) * k,
        total_noise_variance=float(noises[-1]),
        constants=(0.0,) * k,
        scales=(1.0,) * k,
        times=() if settings.time is None or time is None else (TimeCorrelation(settings.time.kernel, time),) * k,
    )
