"""Hyper-parameters of a belief: at the mode of the prior, or fitted to the data, of all factors together."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.fit_alone import Problem, fit_alone, maximised
from swarmbo.belief.gp.hyperparameters import (
    AdditiveHyperparameters,
    ExactGPSettings,
    FactorHyperparameters,
    Hyperparameters,
)
from swarmbo.belief.gp.observations import TOTAL, Observations, noise_ahead, standardisation, standardised_noise, units
from swarmbo.belief.gp.prior import (
    CLEAR_LEAD,
    MOST_PAIRS,
    TIED_FROM,
    WITHIN,
    HyperparameterPrior,
    Theta,
    packed,
    starting_thetas,
)
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES, KernelName
from swarmbo.spaces import Domain

if TYPE_CHECKING:
    from swarmbo.belief.gp.additive_prediction import AdditivePosterior


SETTLED_FROM = 500  # rows of a field's data, beyond which fits after the first draw no random starts
FITTED_TO = 1000  # largest number of rows in the fit of a field, which costs their number cubed, dozens of times
_SEARCHED = 250  # rows of the subset that chooses among several starts, if there are more than ``SETTLED_FROM``
_SUBSET_FROM = 300  # number of totals from which ``fit_sums`` is faster even for one sum; and the smallest subset
_FIELD_TOLERANCE = 1e7 * float(np.finfo(float).eps)  # default of L-BFGS-B; cheap, because a field's theta is short


def prior_hyperparameters(settings: AdditiveGPSettings, graph: FactorGraph) -> AdditiveHyperparameters:
    """Hyper-parameters of a sum at the mode of the prior, with scale 1."""
    prior, k, none = _joint_prior(settings, graph, is_mixed=True), len(graph.factors), np.zeros(0)
    no_data = Observations.of(np.zeros((0, len(graph.variables))), none, np.zeros((0, k)), np.zeros((0, 1 + k)))
    return _joint_hyperparameters(settings, graph, no_data, prior, prior.centre, np.zeros(k), np.ones(k))


def prior_field_hyperparameters(settings: ExactGPSettings, domain: Domain) -> Hyperparameters:
    """Hyper-parameters of a field at the mode of the prior, with scale 1."""
    prior = HyperparameterPrior.of_field(settings, domain)
    return _field_hyperparameters(settings, prior, prior.centre)


def fit_field(
    settings: ExactGPSettings,
    domain: Domain,
    data: Observations,
    rng: np.random.Generator,
    previous: Hyperparameters | None = None,
) -> Hyperparameters:
    """Hyper-parameters of one field at the best maximum found from the previous optimum, the prior's mode, and draws.

    Outcomes that do not vary only move the offset. With more than 500 rows, no random start is drawn after the first
    fit. Also, several starts are searched with every second, third or fourth row only (at least 250); the search with
    all rows starts at their best optimum. With more than 1,000 rows, a random 1,000 are used, and after the first fit
    the previous optimum is the only start.
    """
    from swarmbo.belief.gp.evidence import LogPosterior, maximise  # late: numba is slow to load

    prior = HyperparameterPrior.of_field(settings, domain)
    offset, scale, is_informative = standardisation(data.outcome)
    theta, mean = prior.centre, 0.0
    if is_informative:
        is_many, fitted_to = len(data) > FITTED_TO, data
        if is_many:
            fitted_to = data.take(np.sort(rng.choice(len(data), FITTED_TO, replace=False)))

        def given(rows: Observations) -> LogPosterior:
            z, noise = (rows.outcome - offset) / scale, standardised_noise(rows.noise, scale)
            scopes = [range(domain.n_dims)]
            return LogPosterior(prior, [settings.kernel], scopes, rows.U, z, noise, rounds=rows.rounds)

        log_posterior = given(fitted_to)
        starts = list[Theta]()
        if previous is not None and previous.has_scale:  # otherwise its unit is arbitrary
            one, ratio = previous.as_channel(), previous.scale / scale
            starts.append(packed(prior, one, [0], one.noise_variances, ratio))
        if not (is_many and starts):
            starts.append(prior.centre)
        if len(data) <= SETTLED_FROM or previous is None:
            starts += [prior.sample(rng) for _ in range(settings.restarts)]
        if len(starts) > 1 and len(data) > SETTLED_FROM:
            few = given(fitted_to.take(slice(None, None, len(fitted_to) // _SEARCHED)))
            starts = [maximise(few, starts, settings.max_iterations, _FIELD_TOLERANCE)[0]]
        theta, _ = maximise(log_posterior, starts, settings.max_iterations, _FIELD_TOLERANCE)
        mean = float(log_posterior.means(theta)[0])
    fitted = _field_hyperparameters(settings, prior, theta)
    noise = noise_ahead(fitted.noise_variance, data, scale, settings.noise_floor)
    return msgspec.structs.replace(fitted, noise_variance=noise, mean=mean, offset=offset, scale=scale)


def _field_hyperparameters(settings: ExactGPSettings, prior: HyperparameterPrior, theta: Theta) -> Hyperparameters:
    lengthscales, (outputscale,), (noise_variance,) = prior.unpack(theta)
    lengths, variances = tuple(lengthscales.tolist()), (float(outputscale), float(noise_variance))
    return Hyperparameters(settings.kernel, lengths, *variances, time=prior.time_correlation(theta))


def fit_together(
    beliefs: "Sequence[AdditivePosterior]",
    rngs: Sequence[np.random.Generator],
    warm: Sequence[AdditiveHyperparameters | None],
) -> list[AdditiveHyperparameters]:
    """Fit several beliefs (sums with totals, or factors with own outcomes); the fits are independent."""
    if not beliefs:
        return []
    if all((belief.observations.channel == TOTAL).any() for belief in beliefs):
        return fit_sums(beliefs, rngs, warm)
    return fit_alone(beliefs, rngs, warm)


def is_stackable(belief: "AdditivePosterior") -> bool:
    """True for a sum that ``fit_sums`` accepts: few factors with one of swarmbo's kernels, and no time axis."""
    k, t, kernels = len(belief.scopes), len(belief.observations), set(_kernels(belief))
    is_alike = belief.settings.time is None and len(kernels) == 1 and kernels <= set(KERNEL_NAMES)
    return is_alike and k < TIED_FROM and k * t**2 < MOST_PAIRS


def fit_jointly(
    belief: "AdditivePosterior", rng: np.random.Generator, warm: AdditiveHyperparameters | None
) -> AdditiveHyperparameters:
    """Maximum a-posteriori hyper-parameters of all factors jointly, as totals couple them.

    If outcomes do not vary, all but the constants stay at the prior's mode.
    """
    from swarmbo.belief.gp.evidence import LogPosterior, maximise  # late: numba is slow to load

    data = belief.observations
    offsets, scales, is_shown = units(belief.totals, belief.factors)
    settings, scale = belief.settings, float(scales[0])
    is_mixed = bool((data.channel != TOTAL).any())
    if len(data) >= _SUBSET_FROM and not is_mixed and is_stackable(belief):
        return fit_sums([belief], [rng], [warm])[0]
    prior = _joint_prior(belief.settings, belief.graph, is_mixed=is_mixed)
    theta, constants = prior.centre, offsets
    if is_shown:
        z = (data.outcome - np.array([*offsets, offsets.sum()])[data.channel]) / scale
        starts, is_warm = _joint_starts(belief, prior, warm, scale, rng)
        noise = standardised_noise(data.noise, scale)

        def given(rows: slice | Int[np.ndarray, " m"], prior: HyperparameterPrior = prior) -> LogPosterior:
            U, channel = data.U[rows], data.channel[rows] if is_mixed else None
            rest = z[rows], noise[rows], channel, data.rounds[rows]
            return LogPosterior(prior, _kernels(belief), belief.scopes, U, *rest)

        if len(starts) > is_warm and (subset := _subset(len(data), rng)) is not None:
            coarse, _ = maximise(given(subset), starts[is_warm:], settings.max_iterations)
            starts = [*starts[:is_warm], coarse]
        log_posterior = given(slice(None))
        theta, value = maximise(log_posterior, starts, settings.max_iterations)
        if np.isnan(noise).any() and (noisy := prior.noisy(theta)) is not None:
            expecting_noise, start = noisy
            with_noise = given(slice(None), expecting_noise)
            if with_noise(start)[0] > value - WITHIN * len(data):
                noisy_theta, noisy_value = maximise(with_noise, [start], settings.max_iterations)
                theta = noisy_theta if noisy_value > value + CLEAR_LEAD else theta
        means = log_posterior.means(theta)
        constants = offsets + scale * (means if is_mixed else means / len(offsets))
    return _joint_hyperparameters(settings, belief.graph, data, prior, theta, constants, scales)


def fit_sums(
    beliefs: "Sequence[AdditivePosterior]",
    rngs: Sequence[np.random.Generator],
    warm: Sequence[AdditiveHyperparameters | None],
) -> list[AdditiveHyperparameters]:
    """Maximum a-posteriori hyper-parameters of several ``is_stackable`` sums given totals, fitted in parallel."""
    units_of = [units(belief.totals, belief.factors) for belief in beliefs]
    priors = [_joint_prior(belief.settings, belief.graph, is_mixed=False) for belief in beliefs]
    thetas, constants = [prior.centre for prior in priors], [offsets for offsets, _, _ in units_of]
    by_form = dict[tuple[Any, ...], list[tuple[Problem, Int[np.ndarray, " m"] | None]]]()
    for fit, (belief, rng, earlier, prior) in enumerate(zip(beliefs, rngs, warm, priors, strict=True)):
        data, (offsets, scales, is_shown) = belief.observations, units_of[fit]
        if is_shown:
            starts, is_warm = _joint_starts(belief, prior, earlier, float(scales[0]), rng)
            subset = _subset(len(data), rng) if len(starts) > is_warm else None
            columns, unit = [column for scope in belief.scopes for column in scope], (offsets.sum(), scales[0])
            form = len(data), prior.sizes, prior.is_shared, _kernels(belief)[0], is_warm
            problem = Problem((fit, TOTAL), prior, data, columns, *unit, starts, is_warm)
            by_form.setdefault(form, []).append((problem, subset))
    for (t, _, _, kernel, _), similar in by_form.items():
        problems, subsets = [problem for problem, _ in similar], [subset for _, subset in similar if subset is not None]
        max_iterations = beliefs[problems[0].key[0]].settings.max_iterations
        options: dict[str, Any] = {"from_all": True}
        if t >= _SUBSET_FROM:
            options = {"subset": np.array(subsets) if subsets else None}
        for problem, theta, mean in zip(problems, *maximised(problems, kernel, max_iterations, **options), strict=True):
            fit, _ = problem.key
            thetas[fit], constants[fit] = theta, constants[fit] + problem.scale * mean / len(constants[fit])
    return [
        _joint_hyperparameters(belief.settings, belief.graph, belief.observations, prior, theta, own, scales)
        for belief, prior, theta, own, (_, scales, _) in zip(beliefs, priors, thetas, constants, units_of, strict=True)
    ]


def _subset(t: int, rng: np.random.Generator) -> Int[np.ndarray, " m"] | None:
    """Rows of a random subset of t outcomes for a coarse search; None if there are few."""
    size = max(_SUBSET_FROM, t * 4 // 9)  # its steps cost a tenth of those with all t, and find the same maxima
    return np.sort(rng.choice(t, size, replace=False)) if t >= 1.5 * size else None


def _kernels(belief: "AdditivePosterior") -> list[KernelName]:
    return [form.kernel for form in belief.settings.of_factors(belief.graph.factors)]


def _joint_prior(settings: AdditiveGPSettings, graph: FactorGraph, *, is_mixed: bool) -> HyperparameterPrior:
    sizes = [len(scope) for scope in graph.scopes]
    medians = [form.noise_median for form in settings.of_factors(graph.factors)] if is_mixed else []
    model = settings.lengthscale_model(sizes, alone=False)
    return HyperparameterPrior.of(settings, graph.factors, sizes, model, [*medians, settings.noise_median])


def _joint_starts(
    belief: "AdditivePosterior",
    prior: HyperparameterPrior,
    warm: AdditiveHyperparameters | None,
    scale: float,
    rng: np.random.Generator,
) -> tuple[list[Theta], bool]:
    """Starts of the searches, and True if the first of them is an earlier optimum."""
    sizes, start = [len(scope) for scope in belief.scopes], None
    is_alike = warm is not None and [len(lengths) for lengths in warm.lengthscales] == sizes
    if warm is not None and is_alike and warm.common_scale != 1.0:
        coupled = warm.in_one_unit()
        noises = [*coupled.noise_variances, coupled.total_noise_variance][-len(prior.unpack(prior.centre)[2]) :]
        start = packed(prior, coupled, range(len(sizes)), noises, coupled.scales[0] / scale)
    drawn = [prior.sample(rng) for _ in range(belief.settings.restarts)]
    return starting_thetas(prior, drawn, start), start is not None


def _joint_hyperparameters(
    settings: AdditiveGPSettings,
    graph: FactorGraph,
    data: Observations,
    prior: HyperparameterPrior,
    theta: Theta,
    constants: Float[np.ndarray, " k"],
    scales: Float[np.ndarray, " k"],
) -> AdditiveHyperparameters:
    """Hyper-parameters at theta; noise variances are those of future outcomes (``noise_ahead``)."""
    k, time = len(graph.factors), prior.time_correlation(theta)
    lengthscales, outputscales, fitted = prior.unpack(theta)
    by_channel = [data.of_channel(TOTAL)]
    if len(fitted) > 1:  # factors have their own noise
        by_channel = [*(data.by_factor(k) if len(data) else [data] * k), *by_channel]
    pairs = zip(fitted, by_channel, strict=True)
    noises = [noise_ahead(float(noise), outcomes, float(scales[0]), settings.noise_floor) for noise, outcomes in pairs]
    columns = zip(
        settings.of_factors(graph.factors),
        np.split(lengthscales, np.cumsum([len(scope) for scope in graph.scopes])[:-1]),
        outputscales.tolist(),
        noises[:k] if len(noises) > 1 else noises * k,
        constants.tolist(),
        scales.tolist(),
        strict=True,
    )
    factors = (
        FactorHyperparameters(form.kernel, tuple(lengths.tolist()), output, noise, constant, scale, time)
        for form, lengths, output, noise, constant, scale in columns
    )
    return AdditiveHyperparameters.of(factors, noises[-1])
