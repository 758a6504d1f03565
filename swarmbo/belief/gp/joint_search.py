"""The hyper-parameters of latents that outcomes tie together: which code works out what they are worth."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.evidence import LogPosterior, maximise
from swarmbo.belief.gp.hyperparameters import COMPILED_FROM, is_compiled, is_compiled_sum
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.kernels import KernelName

_GROUPS = 8  # of factors that have hyper-parameters in common, at most: for each two numbers a pair are kept
_MOST_COORDINATES = 512  # with lengthscales of their own, of factors that compiled code takes all at once


def search_jointly(
    prior: HyperparameterPrior,
    kernels: Sequence[KernelName],
    scopes: Sequence[Sequence[int]],
    U: Float[np.ndarray, "t n"],
    z: Float[np.ndarray, " t"],
    known_noise: Float[np.ndarray, " t"],
    starts: Sequence[Float[np.ndarray, " p"]],
    max_iterations: int,
    *,
    channel: Int[np.ndarray, " t"] | None = None,
    decay: tuple[KernelName, Float[np.ndarray, " t"]] | None = None,
) -> tuple[Float[np.ndarray, " p"], float, Float[np.ndarray, " c"]]:
    """The best theta that searches from some starts come to, the log posterior there, and the profiled means.

    Searches learn the curvature from gradients. Steps by the average information would take a third of the evaluations,
    but it trusts noise first: where outcomes contradict the start, they end on hills that take narrow peaks for noise.

    Args:
        prior: As ``LogPosterior`` takes it, like all that follow but starts and iterations.
        kernels: Of each factor.
        scopes: Columns of U that each factor sees.
        U: Points in the unit cube.
        z: Standardised outcomes.
        known_noise: Noise variances that were told; NaN where theta has it.
        starts: Of searches.
        max_iterations: Of each search.
        channel: Of each outcome; None if all are totals.
        fading: The kernel over time, and rounds.
    """
    n_coordinates, is_much = sum(map(len, scopes)), is_compiled_sum(kernels, scopes, len(z))
    has_few = len(prior.sizes) <= _GROUPS and (prior.ties is not None or prior.is_shared)
    data = (prior, kernels, scopes, U, z, known_noise)  # numba is slow to load, so what needs it is imported late
    if channel is not None:
        log_posterior = LogPosterior(*data, channel, decay)
    elif has_few and n_coordinates >= COMPILED_FROM and (is_much or is_compiled(kernels)):
        from swarmbo.belief.gp.compiled_sum import TiedSumPosterior

        log_posterior = TiedSumPosterior(*data, decay=decay)
    elif decay is None and prior.ties is None and is_much and n_coordinates <= _MOST_COORDINATES:
        from swarmbo.belief.gp.compiled_evidence import OneSumPosterior

        log_posterior = OneSumPosterior(*data)
    elif is_compiled(kernels):
        from swarmbo.belief.gp.compiled_sum import CompiledSumPosterior

        log_posterior = CompiledSumPosterior(*data, decay=decay)
    else:
        log_posterior = LogPosterior(*data, decay=decay)
    theta, value = maximise(log_posterior, list(starts), max_iterations)
    return theta, value, log_posterior.means(theta)
