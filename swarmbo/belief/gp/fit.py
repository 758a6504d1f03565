"""Which hyper-parameters a belief takes: at its prior's mode, and fitted to its data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.evidence import LogPosterior, maximise
from swarmbo.belief.gp.fit_alone import fit_alone
from swarmbo.belief.gp.hyperparameters import (
    AdditiveHyperparameters,
    ExactGPSettings,
    Hyperparameters,
    TimeAxis,
    TimeCorrelation,
    is_compiled,
)
from swarmbo.belief.gp.observations import TOTAL, Observations, noise_ahead, standardised_noise
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.gp.standardising import standardisation
from swarmbo.belief.gp.starts import packed, starting_thetas, warm_start
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KernelName
from swarmbo.spaces import Domain

if TYPE_CHECKING:
    from swarmbo.belief.gp.additive_prediction import AdditivePosterior

SETTLED_FROM = 500  # rows of a field's data, beyond which fits after the first draw no starts
FITTED_TO = 1000  # rows of a field's data at most: a fit costs their number cubed, dozens of times
_FIELD_TOLERANCE = 1e7 * float(np.finfo(float).eps)  # L-BFGS-B's own; theta of a field is short, so it can be had


def prior_hyperparameters(settings: AdditiveGPSettings, graph: FactorGraph) -> AdditiveHyperparameters:
    """The mode of the prior, outcomes unscaled."""
    sizes = [len(scope) for scope in graph.scopes]
    model = settings.lengthscale_model(sizes, alone=False)
    medians = [form.noise_median or settings.noise_median for form in settings.of_factors(graph.factors)]
    prior = HyperparameterPrior.of(settings, graph.factors, sizes, model, [*medians, settings.noise_median])
    return _hyperparameters(settings, graph.factors, sizes, prior, prior.centre)


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

    Where there is a previous optimum, no start is drawn for more than 500 rows. Of more than 1,000 rows as many are
    taken at random, and such a fit starts from the previous optimum alone. Offset and scale of the outcomes, and what
    noise was told, are those of all rows.

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
        is_many, fitted_to = len(data) > FITTED_TO, data
        if is_many:
            fitted_to = data.take(np.sort(rng.choice(len(data), FITTED_TO, replace=False)))
        z = (fitted_to.outcome - offset) / scale
        scopes, fading = [range(domain.n_dims)], _fading(settings.time, fitted_to)
        log_posterior = LogPosterior(
            prior, [settings.kernel], scopes, fitted_to.U, z, standardised_noise(fitted_to.noise, scale), fading=fading
        )
        starts = [] if previous is None else [warm_start(prior, previous, scale)]
        if not (is_many and starts):
            starts.append(prior.centre)
        if len(data) <= SETTLED_FROM or previous is None:
            starts += [prior.sample(rng) for _ in range(settings.restarts)]
        theta, _ = maximise(log_posterior, starts, settings.max_iterations, _FIELD_TOLERANCE)
        mean = float(log_posterior.means(theta)[0])
    fitted = _field_hyperparameters(settings, prior, theta)
    noise = noise_ahead(fitted.noise_variance, data, scale, settings.noise_floor)
    return msgspec.structs.replace(fitted, noise_variance=noise, mean=mean, offset=offset, scale=scale)


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
    return fit_alone(belief, data, offsets, scales, rng, warm)


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
    medians = [form.noise_median or settings.noise_median for form in settings.of_factors(factors)]
    prior = HyperparameterPrior.of(
        settings,
        factors,
        sizes,
        settings.lengthscale_model(sizes, alone=False),
        [*medians, settings.noise_median] if is_mixed else [settings.noise_median],
    )
    theta, constants = prior.centre, offsets
    if is_shown:
        kernels: list[KernelName] = [form.kernel or settings.kernel for form in settings.of_factors(factors)]
        z = (data.outcome - np.array([*offsets, offsets.sum()])[data.channel]) / scale
        channel = data.channel if is_mixed else None
        noise, fading = standardised_noise(data.noise, scale), _fading(settings.time, data)
        if is_compiled(kernels) and channel is None:
            from swarmbo.belief.gp.compiled_sum import CompiledSumPosterior  # late: numba is slow to load

            log_posterior = CompiledSumPosterior(prior, kernels, belief.scopes, data.U, z, noise, fading=fading)
        else:
            log_posterior = LogPosterior(prior, kernels, belief.scopes, data.U, z, noise, channel, fading)
        start = None
        if warm is not None and [len(lengths) for lengths in warm.lengthscales] == sizes:
            coupled = warm.in_one_unit()
            noises = [*coupled.noise_variances, coupled.total_noise_variance][0 if is_mixed else -1 :]
            start = packed(prior, coupled, range(k), noises, coupled.scales[0] / scale)
        drawn = [prior.sample(rng) for _ in range(settings.restarts)]
        theta, _ = maximise(log_posterior, starting_thetas(prior, drawn, start), settings.max_iterations)
        means = log_posterior.means(theta)
        constants = offsets + scale * (means if is_mixed else means / k)
    hyper = _hyperparameters(settings, factors, sizes, prior, theta)
    fitted, outcomes = (
        [*hyper.noise_variances, hyper.total_noise_variance],
        [*data.by_factor(k), data.of_channel(TOTAL)],
    )
    *noises, of_total = (
        noise_ahead(noise, own, scale, settings.noise_floor) for noise, own in zip(fitted, outcomes, strict=True)
    )
    noises = noises if is_mixed else [of_total] * k
    return msgspec.structs.replace(
        hyper,
        scales=tuple(scales.tolist()),
        constants=tuple(constants.tolist()),
        noise_variances=tuple(noises),
        total_noise_variance=of_total,
    )


def _fading(time: TimeAxis | None, data: Observations) -> tuple[KernelName, Float[np.ndarray, " r"]] | None:
    return None if time is None else (time.kernel, data.rounds)


def _hyperparameters(
    settings: AdditiveGPSettings,
    factors: Sequence[str],
    sizes: Sequence[int],
    prior: HyperparameterPrior,
    theta: Float[np.ndarray, " p"],
) -> AdditiveHyperparameters:
    """Theta as hyper-parameters; one noise variance is that of totals and of factors alike."""
    k, time = len(factors), prior.time_lengthscale(theta)
    lengthscales, outputscales, noises = prior.unpack(theta)
    return AdditiveHyperparameters(
        kernels=tuple(form.kernel or settings.kernel for form in settings.of_factors(factors)),
        lengthscales=tuple(tuple(part.tolist()) for part in np.split(lengthscales, np.cumsum(sizes)[:-1])),
        outputscales=tuple(outputscales.tolist()),
        noise_variances=tuple(noises[:k].tolist()) if len(noises) > 1 else (float(noises[0]),) * k,
        total_noise_variance=float(noises[-1]),
        constants=(0.0,) * k,
        scales=(1.0,) * k,
        times=() if settings.time is None or time is None else (TimeCorrelation(settings.time.kernel, time),) * k,
    )
