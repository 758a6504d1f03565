"""Fits of factors with their own outcomes: independent problems, searched in parallel from several starts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp import observations
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, FactorHyperparameters
from swarmbo.belief.gp.prior import CLEAR_LEAD, WITHIN, HyperparameterPrior, Theta, packed, starting_thetas
from swarmbo.kernels import KernelName

if TYPE_CHECKING:
    from swarmbo.belief.gp.additive_prediction import AdditivePosterior
    from swarmbo.belief.gp.stack_fit import Evaluated, StackedLogPosterior

_COARSE: Any = {"longest": 2.0, "apart": 0.3, "tolerance": 1e-5}  # find the same maxima with a third fewer steps
_AT_ONCE = 1024  # factors that are searched in parallel
_SUBSET = 32  # smallest subset, of 64 outcomes or more, for a coarse search, which takes a tenth of the time
Thetas = Float[np.ndarray, "_b p"]
Rows = Int[np.ndarray, "_g m"] | slice


class Problem(NamedTuple):
    """One search, for a factor or a sum. If it ``is_warm``, the first start is the optimum of an earlier fit."""

    key: tuple[int, int]  # index of the fit, and of the factor in it
    prior: HyperparameterPrior
    data: observations.Observations
    columns: Sequence[int]
    offset: float
    scale: float
    starts: list[Theta]
    is_warm: bool


def fit_alone(
    beliefs: "Sequence[AdditivePosterior]",
    rngs: Sequence[np.random.Generator],
    warm: Sequence[AdditiveHyperparameters | None],
) -> list[AdditiveHyperparameters]:
    """Maximum a-posteriori hyper-parameters of each factor given its own outcomes, of several fits in parallel."""
    settings, scopes, factors = beliefs[0].settings, beliefs[0].scopes, beliefs[0].graph.factors
    forms, prior_of = settings.of_factors(factors), dict[tuple[object, int], HyperparameterPrior]()
    priors, by_form = list[HyperparameterPrior](), dict[tuple[int, int, str, bool], list[Problem]]()
    for factor, form, size in zip(factors, forms, map(len, scopes), strict=True):
        if (form, size) not in prior_of:
            model = settings.lengthscale_model([size], alone=True)
            prior_of[form, size] = HyperparameterPrior.of(settings, [factor], [size], model, [form.noise_median])
        priors.append(prior_of[form, size])
    units_of = [observations.units(belief.totals, belief.factors)[:2] for belief in beliefs]
    by_fit = [belief.observations.by_factor(len(scopes)) for belief in beliefs]
    for fit, ((offsets, scales), outcomes, rng, earlier) in enumerate(zip(units_of, by_fit, rngs, warm, strict=True)):
        for i, (prior, form, own) in enumerate(zip(priors, forms, outcomes, strict=True)):
            size, scale = len(scopes[i]), float(scales[i])
            # drawn in any case: a factor's draws must not depend on whether the outcomes of another vary
            draws = [prior.sample(rng) for _ in range(settings.restarts)]
            if observations.standardisation(own.outcome)[2]:
                start = None  # an earlier fit to outcomes that did not differ has an arbitrary unit, and is not used
                is_alike = earlier is not None and i < len(earlier.scales) and len(earlier.lengthscales[i]) == size
                if earlier is not None and is_alike and earlier.scales[i] != 1.0:
                    start = packed(prior, earlier, [i], [earlier.noise_variances[i]], earlier.scales[i] / scale)
                starts, is_warm = starting_thetas(prior, draws, start), start is not None
                problem = Problem((fit, i), prior, own, scopes[i], float(offsets[i]), scale, starts, is_warm)
                by_form.setdefault((len(own), size, form.kernel, is_warm), []).append(problem)
    results = dict[tuple[int, int], tuple[Theta, float]]()
    for (_, _, kernel, _), problems in by_form.items():
        for first in range(0, len(problems), _AT_ONCE):
            group = problems[first : first + _AT_ONCE]
            thetas, means = maximised(group, kernel, settings.max_iterations)
            results |= {own.key: (theta, float(mean)) for own, theta, mean in zip(group, thetas, means, strict=True)}
    fitted = list[AdditiveHyperparameters]()
    for fit, ((offsets, scales), outcomes) in enumerate(zip(units_of, by_fit, strict=True)):
        own = list[FactorHyperparameters]()
        for i, (form, prior, data) in enumerate(zip(forms, priors, outcomes, strict=True)):
            theta, mean = results.get((fit, i), (prior.centre, 0.0))
            scale, (lengths, (output,), (noise,)) = float(scales[i]), prior.unpack(theta)
            variances = float(output), observations.noise_ahead(float(noise), data, scale, settings.noise_floor)
            constant, time = float(offsets[i]) + scale * mean, prior.time_correlation(theta)
            own.append(FactorHyperparameters(form.kernel, tuple(lengths.tolist()), *variances, constant, scale, time))
        fitted.append(AdditiveHyperparameters.of(own))
    return fitted


def maximised(
    problems: Sequence[Problem], kernel: KernelName, max_iterations: int, **how: Any
) -> tuple[Float[np.ndarray, "g p"], Float[np.ndarray, " g"]]:
    """Best theta (g, p) found for each of g similar problems, and its standardised mean; see ``multi_start_search``.

    If it has little noise, a search with a prior that expects much noise follows. Its optimum must be clearly better.
    """
    priors = [problem.prior for problem in problems]
    starts = np.array([theta for problem in problems for theta in problem.starts])
    log_posterior, is_warm = _log_posterior(problems, priors, kernel), problems[0].is_warm
    theta, value, mean = multi_start_search(log_posterior, starts, max_iterations, is_warm=is_warm, **how)
    for i, (own, own_mean) in _noisy_optima(problems, kernel, theta, value, max_iterations).items():
        theta[i], mean[i] = own, own_mean
    return theta, mean


def _noisy_optima(
    problems: Sequence[Problem], kernel: KernelName, theta: Thetas, value: Float[np.ndarray, " g"], max_iterations: int
) -> dict[int, tuple[Theta, float]]:
    """Theta and mean, by index, of problems that a start with much noise explains clearly better than the optima."""
    from swarmbo.belief.gp.stack_fit import maximise_stacked  # late: numba is slow to load

    is_unknown = [np.isnan(problem.data.noise).any() for problem in problems]
    alternatives = [problem.prior.noisy(own) for problem, own in zip(problems, theta, strict=True)]
    noisy = [(i, *other) for i, other in enumerate(alternatives) if other is not None and is_unknown[i]]
    if not noisy:
        return {}
    log_posterior = _log_posterior([problems[i] for i, *_ in noisy], [prior for _, prior, _ in noisy], kernel)
    starts, earlier_values = np.array([start for *_, start in noisy]), value[[i for i, *_ in noisy]]
    evaluated = log_posterior(starts, np.arange(len(noisy)))
    open_ones = np.flatnonzero(evaluated.value > earlier_values - WITHIN * log_posterior.z.shape[1])
    if not len(open_ones):
        return {}
    options: Any = {"evaluated": evaluated.take(open_ones), **_COARSE}
    thetas, values, means = maximise_stacked(log_posterior, starts[open_ones], open_ones, max_iterations, **options)
    better = np.flatnonzero(values > earlier_values[open_ones] + CLEAR_LEAD)
    return {noisy[open_ones[n]][0]: (thetas[n], float(means[n])) for n in better}


def _log_posterior(
    problems: Sequence[Problem], priors: Sequence[HyperparameterPrior], kernel: KernelName
) -> "StackedLogPosterior":
    from swarmbo.belief.gp.stack_fit import StackedLogPosterior  # late: numba is slow to load

    offset, scale = (np.array(column)[:, None] for column in zip(*((p.offset, p.scale) for p in problems), strict=True))
    return StackedLogPosterior(
        priors,
        kernel,
        np.array([problem.data.at(problem.columns) for problem in problems]),
        (np.array([problem.data.outcome for problem in problems]) - offset) / scale,
        observations.standardised_noise(np.array([problem.data.noise for problem in problems]), scale),
        np.array([problem.data.rounds for problem in problems]),
    )


def multi_start_search(
    log_posterior: "StackedLogPosterior",
    starts: Thetas,
    max_iterations: int,
    *,
    is_warm: bool = False,
    from_all: bool = False,
    subset: Int[np.ndarray, "g m"] | Literal["thinned"] | None = "thinned",
) -> tuple[Float[np.ndarray, "g p"], Float[np.ndarray, " g"], Float[np.ndarray, " g"]]:
    """Best theta for each of g latents or sums, its value and mean; a coarse search on a subset of outcomes is first.

    Args:
        starts: Starts, latent by latent, the same number for each.
        is_warm: True if each first start is an earlier optimum; it is compared with ends of the coarse search.
        from_all: True: the search with all outcomes continues from every end of the coarse search; False: from the best
            end only. A sum has more maxima than a subset can distinguish.
        subset: Rows of each latent's subset; ``thinned``: evenly spaced outcomes; None: no coarse search.
    """
    from swarmbo.belief.gp.stack_fit import maximise_stacked  # late: numba is slow to load

    z, evaluated = log_posterior.z, None
    which, every = np.repeat(np.arange(len(z)), len(starts) // len(z)), z.shape[1] // _SUBSET
    rows = subset if not isinstance(subset, str) else slice(None, None, every) if every > 1 else None
    if rows is not None:
        starts, which, evaluated = _coarse_search(log_posterior, starts, rows, max_iterations, is_warm, from_all)
    theta, value, mean = maximise_stacked(log_posterior, starts, which, max_iterations, evaluated=evaluated, **_COARSE)
    by_latent = value.reshape(len(z), -1)
    best = by_latent.argmax(axis=1) + by_latent.shape[1] * np.arange(len(z))
    return theta[best], value[best], mean[best]


def _coarse_search(
    log_posterior: "StackedLogPosterior", starts: Thetas, rows: Rows, max_iterations: int, is_warm: bool, from_all: bool
) -> "tuple[Thetas, Int[np.ndarray, ' _e'], Evaluated | None]":
    """Ends of the coarse search from which the search with all outcomes continues, their latents, and evaluation."""
    from swarmbo.belief.gp.stack_fit import is_duplicate, maximise_stacked  # late: numba is slow to load

    g, gap = len(log_posterior.z), _COARSE["apart"]
    own = starts.reshape(g, -1, starts.shape[1])
    n_known = int(is_warm and not from_all and own.shape[1] > 1)
    tried, which = own[:, n_known:].reshape(-1, starts.shape[1]), np.repeat(np.arange(g), own.shape[1] - n_known)
    thetas, value, _ = maximise_stacked(log_posterior.on_subset(rows), tried, which, max_iterations, **_COARSE)
    ends = thetas.reshape(g, -1, own.shape[2])
    is_new = ~is_duplicate(thetas, value, ends.shape[1], gap).reshape(g, -1)
    if n_known:
        is_new &= (np.abs(ends - own[:, :1]) >= gap).any(axis=2)
    if is_warm:
        is_new = np.concatenate([np.ones((g, 1), dtype=bool), is_new], axis=1)
        ends = np.concatenate([own[:, :1], ends], axis=1)
    if from_all:
        return ends.reshape(-1, ends.shape[2]), np.repeat(np.arange(g), ends.shape[1]), None
    latents, places = map(np.ascontiguousarray, np.nonzero(is_new))
    candidates = ends[latents, places]
    evaluated = log_posterior(candidates, latents)
    best = np.lexsort((-evaluated.value, latents))[np.searchsorted(latents, np.arange(g))]
    return candidates[best], np.arange(g), evaluated.take(best)
