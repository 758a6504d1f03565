"""The fit of factors that totals tie together: one search over the hyper-parameters of all."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.fit_alone import search
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, TimeAxis, TimeCorrelation
from swarmbo.belief.gp.observations import TOTAL, Observations, noise_ahead, standardised_noise, units
from swarmbo.belief.gp.prior import HyperparameterPrior, packed, starting_thetas
from swarmbo.kernels import KernelName

if TYPE_CHECKING:
    from swarmbo.belief.gp.additive_prediction import AdditivePosterior


def fit_jointly(
    belief: "AdditivePosterior", rng: np.random.Generator, warm: AdditiveHyperparameters | None
) -> AdditiveHyperparameters:
    """Maximum a-posteriori hyper-parameters of all factors together: totals tie them.

    Where outcomes do not show their scale, all but constants stay at the prior's mode.
    """
    from swarmbo.belief.gp.evidence import LogPosterior, maximise  # late: numba is slow to load

    data = belief.observations
    offsets, scales, is_shown = units(belief.totals, belief.factors)
    settings, k, scale = belief.settings, len(belief.graph.factors), float(scales[0])
    is_mixed = bool((data.channel != TOTAL).any())
    prior = _joint_prior(belief, is_mixed=is_mixed)
    theta, constants = prior.centre, offsets
    if is_shown:
        z = (data.outcome - np.array([*offsets, offsets.sum()])[data.channel]) / scale
        starts, _ = _joint_starts(belief, prior, warm, scale, rng, is_mixed=is_mixed)
        log_posterior = LogPosterior(
            prior,
            _kernels(belief),
            belief.scopes,
            data.U,
            z,
            standardised_noise(data.noise, scale),
            data.channel if is_mixed else None,
            decay_of(settings.time, data),
        )
        theta, _ = maximise(log_posterior, starts, settings.max_iterations)
        means = log_posterior.means(theta)
        constants = offsets + scale * (means if is_mixed else means / k)
    return _joint_hyperparameters(belief, data, prior, theta, constants, scales, is_mixed=is_mixed)


def fit_sums(
    beliefs: "Sequence[AdditivePosterior]",
    rngs: Sequence[np.random.Generator],
    warm: Sequence[AdditiveHyperparameters | None],
) -> list[AdditiveHyperparameters]:
    """Maximum a-posteriori hyper-parameters of several sums of which totals are told, side by side in compiled code.

    Each has fewer than ``TIED_FROM`` factors, all with one kernel that is swarmbo's own, and nothing fades.
    """
    from swarmbo.belief.gp.stack_fit import StackedLogPosterior  # late: numba is slow to load

    found, alike = dict[int, AdditiveHyperparameters](), dict[tuple[Any, ...], list[_Sum]]()
    for place, (belief, rng, earlier) in enumerate(zip(beliefs, rngs, warm, strict=True)):
        data, prior = belief.observations, _joint_prior(belief, is_mixed=False)
        offsets, scales, is_shown = units(belief.totals, belief.factors)
        if is_shown:
            starts, goes_on = _joint_starts(belief, prior, earlier, float(scales[0]), rng, is_mixed=False)
            form = len(data), prior.sizes, prior.is_shared, _kernels(belief)[0], goes_on
            alike.setdefault(form, []).append(_Sum(place, prior, data, offsets, scales, starts))
        else:
            found[place] = _joint_hyperparameters(belief, data, prior, prior.centre, offsets, scales, is_mixed=False)
    for (_, _, _, kernel, goes_on), sums in alike.items():
        units_of = np.array([one.scales[0] for one in sums])[:, None]
        columns = [np.concatenate([np.array(scope) for scope in beliefs[one.place].scopes]) for one in sums]
        searched = StackedLogPosterior(
            [one.prior for one in sums],
            kernel,
            np.array([one.data.U[:, own] for one, own in zip(sums, columns, strict=True)]),
            (np.array([one.data.outcome - one.offsets.sum() for one in sums])) / units_of,
            standardised_noise(np.array([one.data.noise for one in sums]), units_of),
        )
        starts = np.array([theta for one in sums for theta in one.starts])
        most = beliefs[sums[0].place].settings.max_iterations
        thetas, means = search(searched, starts, most, goes_on=goes_on, follows_all=True)
        for one, theta, mean in zip(sums, thetas, means, strict=True):
            belief, constants = beliefs[one.place], one.offsets + one.scales[0] * mean / len(one.offsets)
            found[one.place] = _joint_hyperparameters(
                belief, one.data, one.prior, theta, constants, one.scales, is_mixed=False
            )
    return [found[place] for place in range(len(beliefs))]


class _Sum(NamedTuple):
    place: int
    prior: HyperparameterPrior
    data: Observations
    offsets: Float[np.ndarray, " k"]
    scales: Float[np.ndarray, " k"]
    starts: list[Float[np.ndarray, " p"]]


def _kernels(belief: "AdditivePosterior") -> list[KernelName]:
    return [form.kernel for form in belief.settings.of_factors(belief.graph.factors)]


def _joint_prior(belief: "AdditivePosterior", *, is_mixed: bool) -> HyperparameterPrior:
    settings, factors, sizes = belief.settings, belief.graph.factors, [len(scope) for scope in belief.scopes]
    medians = [form.noise_median for form in settings.of_factors(factors)]
    noises = [*medians, settings.noise_median] if is_mixed else [settings.noise_median]
    return HyperparameterPrior.of(settings, factors, sizes, settings.lengthscale_model(sizes, alone=False), noises)


def _joint_starts(
    belief: "AdditivePosterior",
    prior: HyperparameterPrior,
    warm: AdditiveHyperparameters | None,
    scale: float,
    rng: np.random.Generator,
    *,
    is_mixed: bool,
) -> tuple[list[Float[np.ndarray, " p"]], bool]:
    """Starts of the searches, and True if the first of them goes on from an earlier optimum."""
    sizes, start = [len(scope) for scope in belief.scopes], None
    if warm is not None and [len(lengths) for lengths in warm.lengthscales] == sizes:
        coupled = warm.in_one_unit()
        noises = [*coupled.noise_variances, coupled.total_noise_variance][0 if is_mixed else -1 :]
        start = packed(prior, coupled, range(len(sizes)), noises, coupled.scales[0] / scale)
    drawn = [prior.sample(rng) for _ in range(belief.settings.restarts)]
    return starting_thetas(prior, drawn, start), start is not None


def _joint_hyperparameters(
    belief: "AdditivePosterior",
    data: Observations,
    prior: HyperparameterPrior,
    theta: Float[np.ndarray, " p"],
    constants: Float[np.ndarray, " k"],
    scales: Float[np.ndarray, " k"],
    *,
    is_mixed: bool,
) -> AdditiveHyperparameters:
    settings, factors, sizes = belief.settings, belief.graph.factors, [len(scope) for scope in belief.scopes]
    fitted, own = prior.unpack(theta)[2], [*data.by_factor(len(factors)), data.of_channel(TOTAL)]
    *noises, of_total = (
        noise_ahead(float(noise), outcomes, float(scales[0]), settings.noise_floor)
        for noise, outcomes in zip(fitted if is_mixed else fitted.repeat(len(own)), own, strict=True)
    )
    noises = [*noises, of_total] if is_mixed else [of_total]
    return hyperparameters_at(settings, factors, sizes, prior, theta, noises, constants, scales)


def decay_of(time: TimeAxis | None, data: Observations) -> tuple[KernelName, Float[np.ndarray, " r"]] | None:
    """The kernel over time, and the round of each outcome; None where nothing fades."""
    return None if time is None else (time.kernel, data.rounds)


def hyperparameters_at(
    settings: AdditiveGPSettings,
    factors: Sequence[str],
    sizes: Sequence[int],
    prior: HyperparameterPrior,
    theta: Float[np.ndarray, " p"],
    noises: Sequence[float] = (),
    constants: Float[np.ndarray, " k"] | None = None,
    scales: Float[np.ndarray, " k"] | None = None,
) -> AdditiveHyperparameters:
    """Theta as hyper-parameters; one noise variance is that of totals and of factors alike, by default theta's."""
    k, time = len(factors), prior.time_lengthscale(theta)
    lengthscales, outputscales, fitted = prior.unpack(theta)
    noises = noises or fitted.tolist()
    return AdditiveHyperparameters(
        kernels=tuple(form.kernel for form in settings.of_factors(factors)),
        lengthscales=tuple(tuple(part.tolist()) for part in np.split(lengthscales, np.cumsum(sizes)[:-1])),
        outputscales=tuple(outputscales.tolist()),
        noise_variances=tuple(noises[:k]) if len(noises) > 1 else (noises[0],) * k,
        total_noise_variance=noises[-1],
        constants=(0.0,) * k if constants is None else tuple(constants.tolist()),
        scales=(1.0,) * k if scales is None else tuple(scales.tolist()),
        times=() if settings.time is None or time is None else (TimeCorrelation(settings.time.kernel, time),) * k,
    )
