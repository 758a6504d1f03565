"""Hyper-parameters of a belief: those at its prior's mode, and those fitted to its data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.fit_alone import fit_alone
from swarmbo.belief.gp.fit_jointly import decay_of, fit_jointly, fit_sums, hyperparameters_at
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, ExactGPSettings, Hyperparameters, TimeCorrelation
from swarmbo.belief.gp.observations import TOTAL, Observations, noise_ahead, standardisation, standardised_noise
from swarmbo.belief.gp.prior import HyperparameterPrior, warm_start
from swarmbo.graph import FactorGraph
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
    medians = [form.noise_median for form in settings.of_factors(graph.factors)]
    prior = HyperparameterPrior.of(settings, graph.factors, sizes, model, [*medians, settings.noise_median])
    return hyperparameters_at(settings, graph.factors, sizes, prior, prior.centre)


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
    """
    from swarmbo.belief.gp.evidence import LogPosterior, maximise  # late: numba is slow to load

    prior = HyperparameterPrior.of_field(settings, domain)
    offset, scale, is_informative = standardisation(data.outcome)
    theta, mean = prior.centre, 0.0
    if is_informative:
        is_many, fitted_to = len(data) > FITTED_TO, data
        if is_many:
            fitted_to = data.take(np.sort(rng.choice(len(data), FITTED_TO, replace=False)))
        z = (fitted_to.outcome - offset) / scale
        scopes, decay = [range(domain.n_dims)], decay_of(settings.time, fitted_to)
        log_posterior = LogPosterior(
            prior, [settings.kernel], scopes, fitted_to.U, z, standardised_noise(fitted_to.noise, scale), decay=decay
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


def fit_additive(
    belief: "AdditivePosterior", rng: np.random.Generator, warm: AdditiveHyperparameters | None
) -> AdditiveHyperparameters:
    """Maximum a-posteriori hyper-parameters: of factors observed alone each by itself, with any totals all jointly."""
    if (belief.observations.channel == TOTAL).any():
        return fit_jointly(belief, rng, warm)
    return fit_together([belief], [rng], [warm])[0]


def fit_together(
    beliefs: "Sequence[AdditivePosterior]",
    rngs: Sequence[np.random.Generator],
    warm: Sequence[AdditiveHyperparameters | None],
) -> list[AdditiveHyperparameters]:
    """Fits side by side, as by ``fit_additive`` to the bit: of sums with totals, or of factors observed alone."""
    if not beliefs:
        return []
    if all((belief.observations.channel == TOTAL).any() for belief in beliefs):
        return fit_sums(beliefs, rngs, warm)
    return fit_alone(beliefs, rngs, warm)
