"""Where searches for hyper-parameters start: at earlier optima, in the unit of the present outcomes, and elsewhere."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, Hyperparameters
from swarmbo.belief.gp.prior import HyperparameterPrior

_SHORT_LENGTHSCALE = 0.15  # of a side


def warm_start(prior: HyperparameterPrior, previous: Hyperparameters, scale: float) -> Float[np.ndarray, " p"]:
    """The last optimum of a field as a theta under a new outcome scale: its physical variances stay what they were.

    Args:
        prior: Whose bounds hold.
        previous: The last optimum.
        scale: The new outcome scale.
    """
    square = squared(previous.scale / scale)
    return prior.pack(
        np.array(previous.lengthscales),
        np.array([previous.outputscale * square]),
        np.array([previous.noise_variance * square]),
        None if previous.time is None else previous.time.lengthscale,
    )


def packed(
    prior: HyperparameterPrior,
    warm: AdditiveHyperparameters,
    factors: Sequence[int],
    noises: Sequence[float],
    ratio: float,
) -> Float[np.ndarray, " p"]:
    """Theta at an earlier optimum, in the unit of the present outcomes, which is ``ratio`` times smaller."""
    square = squared(ratio)
    lengths = np.concatenate([warm.lengthscale_array(i) for i in factors])
    outputs = np.array([warm.outputscales[i] for i in factors])
    times = [warm.times[i].lengthscale for i in factors] if warm.times else []
    time = float(np.exp(np.mean(np.log(times)))) if times else None
    return prior.pack(lengths, outputs * square, np.array(noises) * square, time)


def squared(ratio: float) -> float:
    """Of a ratio of scales; where they are further apart than this, bounds hold anyway."""
    return min(max(ratio, 1e-6), 1e6) ** 2


def starting_thetas(
    prior: HyperparameterPrior, drawn: Sequence[Float[np.ndarray, " p"]], warm: Float[np.ndarray, " p"] | None
) -> list[Float[np.ndarray, " p"]]:
    """The prior's mode or an earlier optimum, a short lengthscale, and those drawn."""
    starts = [prior.centre] if warm is None else [warm]
    if warm is None or (len(prior.sizes) == 1 and prior.ties is None):
        # outcomes that look like noise to long lengthscales may be narrow peaks: that maximum is found from here only
        short = prior.centre.copy()
        short[: prior.n_lengthscales] = np.log(_SHORT_LENGTHSCALE)
        starts.append(short)
    return [*starts, *drawn]
