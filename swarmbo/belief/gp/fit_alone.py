"""The fit of factors that are observed one by one: independent problems, searched side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, FactorHyperparameters
from swarmbo.belief.gp.observations import Observations, noise_ahead, standardisation, standardised_noise, units
from swarmbo.belief.gp.prior import HyperparameterPrior, packed, starting_thetas
from swarmbo.kernels import KernelName

if TYPE_CHECKING:
    from swarmbo.belief.gp.additive_prediction import AdditivePosterior
    from swarmbo.belief.gp.stack_fit import StackedLogPosterior

_BRISK = {"longest": 2.0, "apart": 0.3, "tolerance": 1e-5}  # a third fewer steps, to the same maxima
_AT_ONCE = 1024  # factors whose search goes side by side
_SKETCH = 32  # outcomes of a factor with twice as many, or more, that say where to look: they take 1/10 of the time


class Problem(NamedTuple):
    """One search: of one factor, or of a sum. If it goes on, the first of the starts is where an earlier fit ended."""

    place: tuple[int, int]  # of the fit, and of the factor in it
    prior: HyperparameterPrior
    data: Observations
    columns: Sequence[int]
    offset: float
    scale: float
    starts: list[Float[np.ndarray, " p"]]
    goes_on: bool


def fit_alone(
    beliefs: "Sequence[AdditivePosterior]",
    rngs: Sequence[np.random.Generator],
    warm: Sequence[AdditiveHyperparameters | None],
) -> list[AdditiveHyperparameters]:
    """Maximum a-posteriori hyper-parameters of each factor given its own outcomes, of several fits side by side."""
    settings, scopes, factors = beliefs[0].settings, beliefs[0].scopes, beliefs[0].graph.factors
    forms, known = settings.of_factors(factors), dict[tuple[object, int], HyperparameterPrior]()
    priors, alike = list[HyperparameterPrior](), dict[tuple[int, int, str, bool], list[Problem]]()
    for factor, form, size in zip(factors, forms, map(len, scopes), strict=True):
        if (form, size) not in known:
            model = settings.lengthscale_model([size], alone=True)
            known[form, size] = HyperparameterPrior.of(settings, [factor], [size], model, [form.noise_median])
        priors.append(known[form, size])
    units_of = [units(belief.totals, belief.factors)[:2] for belief in beliefs]
    told = [belief.observations.by_factor(len(scopes)) for belief in beliefs]
    for fit, ((offsets, scales), outcomes, rng, earlier) in enumerate(zip(units_of, told, rngs, warm, strict=True)):
        for i, (prior, form, own) in enumerate(zip(priors, forms, outcomes, strict=True)):
            size, scale = len(scopes[i]), float(scales[i])
            # drawn in any case: what comes next to a factor must not depend on whether the outcomes of another vary
            drawn = [prior.sample(rng) for _ in range(settings.restarts)]
            if standardisation(own.outcome)[2]:
                start = None  # and not in the arbitrary unit of an earlier fit to outcomes that did not differ
                is_alike = earlier is not None and i < len(earlier.scales) and len(earlier.lengthscales[i]) == size
                if earlier is not None and is_alike and earlier.scales[i] != 1.0:
                    start = packed(prior, earlier, [i], [earlier.noise_variances[i]], earlier.scales[i] / scale)
                starts, goes_on = starting_thetas(prior, drawn, start), start is not None
                problem = Problem((fit, i), prior, own, scopes[i], float(offsets[i]), scale, starts, goes_on)
                alike.setdefault((len(own), size, form.kernel, goes_on), []).append(problem)
    found = dict[tuple[int, int], tuple[Float[np.ndarray, " p"], float]]()
    for (_, _, kernel, _), problems in alike.items():
        for first in range(0, len(problems), _AT_ONCE):
            group = problems[first : first + _AT_ONCE]
            thetas, means = searched(group, kernel, settings.max_iterations)
            found |= {one.place: (theta, float(mean)) for one, theta, mean in zip(group, thetas, means, strict=True)}
    fitted = list[AdditiveHyperparameters]()
    for fit, ((offsets, scales), outcomes) in enumerate(zip(units_of, told, strict=True)):
        own = list[FactorHyperparameters]()
        for i, (form, prior, data) in enumerate(zip(forms, priors, outcomes, strict=True)):
            theta, mean = found.get((fit, i), (prior.centre, 0.0))
            scale, (lengths, (output,), (noise,)) = float(scales[i]), prior.unpack(theta)
            variances = float(output), noise_ahead(float(noise), data, scale, settings.noise_floor)
            constant, time = float(offsets[i]) + scale * mean, prior.time_correlation(theta)
            own.append(FactorHyperparameters(form.kernel, tuple(lengths.tolist()), *variances, constant, scale, time))
        fitted.append(AdditiveHyperparameters.of(own))
    return fitted


def searched(
    problems: Sequence[Problem], kernel: KernelName, max_iterations: int, **how: Any
) -> tuple[Float[np.ndarray, "g p"], Float[np.ndarray, " g"]]:
    """The best theta found for each of some problems alike, and its constant mean, standardised; as ``search``."""
    from swarmbo.belief.gp.stack_fit import StackedLogPosterior  # late: numba is slow to load

    offset, scale = (np.array(column)[:, None] for column in zip(*((p.offset, p.scale) for p in problems), strict=True))
    log_posterior = StackedLogPosterior(
        [problem.prior for problem in problems],
        kernel,
        np.array([problem.data.at(problem.columns) for problem in problems]),
        (np.array([problem.data.outcome for problem in problems]) - offset) / scale,
        standardised_noise(np.array([problem.data.noise for problem in problems]), scale),
        np.array([problem.data.rounds for problem in problems]),
    )
    starts = np.array([theta for problem in problems for theta in problem.starts])
    return search(log_posterior, starts, max_iterations, goes_on=problems[0].goes_on, **how)


def search(
    log_posterior: "StackedLogPosterior",
    starts: Float[np.ndarray, "b p"],
    max_iterations: int,
    *,
    goes_on: bool = False,
    follows_all: bool = False,
    part: Int[np.ndarray, "g m"] | Literal["thinned"] | None = "thinned",
) -> tuple[Float[np.ndarray, "g p"], Float[np.ndarray, " g"]]:
    """The best theta for each of some latents, and its mean: a part of many outcomes says where to look.

    Starts of one latent follow one another, as many for each. ``goes_on``: the first of them is where an earlier search
    ended; it is among those that all outcomes judge. ``follows_all``: all outcomes search on from each place that the
    part came to, not from the best of them only: a sum has more maxima than a part can tell apart. The ``part`` is of
    each its own, or every so manyth outcome.
    """
    from swarmbo.belief.gp.stack_fit import doubled, maximise_stacked  # late: numba is slow to load

    z, begun = log_posterior.z, None
    which, every = np.repeat(np.arange(len(z)), len(starts) // len(z)), z.shape[1] // _SKETCH
    rows = part if not isinstance(part, str) else slice(None, None, every) if every > 1 else None
    if rows is not None:
        own = starts.reshape(len(z), -1, starts.shape[1])
        n_known = int(goes_on and not follows_all and own.shape[1] > 1)
        sought = own[:, n_known:].reshape(-1, starts.shape[1])
        whose = np.repeat(np.arange(len(z)), own.shape[1] - n_known)
        some = log_posterior.thinned(rows)
        led, worth, _ = maximise_stacked(some, sought, whose, max_iterations, begun=None, **_BRISK)
        ends = led.reshape(own.shape[0], -1, own.shape[2])
        is_new = ~doubled(led, worth, ends.shape[1], _BRISK["apart"]).reshape(len(z), -1)
        if n_known:
            is_new &= (np.abs(ends - own[:, :1]) >= _BRISK["apart"]).any(axis=2)
        if goes_on:
            own, is_new = own[:, :1], np.concatenate([np.ones((len(z), 1), dtype=bool), is_new], axis=1)
            ends = np.concatenate([own, ends], axis=1)
        if follows_all:
            starts, which = ends.reshape(-1, ends.shape[2]), np.repeat(np.arange(len(z)), ends.shape[1])
        else:
            own, places = map(np.ascontiguousarray, np.nonzero(is_new))  # only the best of them goes on
            starts, which = ends[own, places], np.arange(len(z))
            all_begun = log_posterior(starts, own)
            best = np.lexsort((-all_begun.value, own))[np.searchsorted(own, which)]
            starts, begun = starts[best], all_begun.take(best)
    theta, value, mean = maximise_stacked(log_posterior, starts, which, max_iterations, begun=begun, **_BRISK)
    by_latent = value.reshape(len(z), -1)
    best = by_latent.argmax(axis=1) + by_latent.shape[1] * np.arange(len(z))
    return theta[best], mean[best]
