"""How much exploring is worth: schedules of the weights beta (GP-UCB) and alpha (DB-GP-UCB) over time.

Theory is safe and far too cautious in practice; the other schedules carry no guarantee. All are in units of a
field whose prior variance is at most 1.
"""

import math
from dataclasses import dataclass
from typing import Literal

from swarmbo.acquisition.additive_schedules import practical_beta

Exploration = Literal["annealed", "practical", "theory"]

ANNEALED_FROM, ANNEALED_TO = 5.0, 1.0  # of sqrt(beta): chosen on the landscapes of docs/comparison.md, other seeds


@dataclass(frozen=True)
class Progress:
    """When and over what a decision is made.

    Args:
        round: 1 for the first decision.
        horizon: Rounds planned; None if unknown.
        n_data: Measurements so far.
        n_dims: Dimensions of a location, d.
        n_sites: Number of places to choose from, |D|.
    """

    round: int
    horizon: int | None
    n_data: int
    n_dims: int
    n_sites: int


def beta(kind: Exploration, progress: Progress, delta: float = 0.1) -> float:
    """The weight of the variance under the root in GP-UCB: mean + sqrt(beta variance).

    ``annealed``: sqrt(beta) falls evenly from 5 in the first round to 1 in the last, so that a team with a fixed
    number of rounds looks around first and then closes in; 3 throughout where the number is unknown.
    ``practical``: 0.2 d log(2t) with t measurements (Kandasamy et al. 2015, section 4).
    ``theory``: 2 log(|D| t^2 pi^2 / (6 delta)) (Srinivas et al. 2010, theorem 1).

    Args:
        kind: Which schedule.
        progress: When and over what.
        delta: Probability with which the bound of the theory may fail, in (0, 1).

    Returns:
        beta_t >= 0, without unit.

    Example:
        >>> progress = Progress(round=1, horizon=25, n_data=50, n_dims=2, n_sites=1000)
        >>> round(beta("practical", progress), 4), beta("annealed", progress)
        (1.8421, 25.0)
    """
    t = max(progress.n_data, 1)
    if kind == "practical":
        return practical_beta(progress.n_dims, t)
    if kind == "theory":
        return 2.0 * math.log(progress.n_sites * t**2 * math.pi**2 / (6.0 * delta))
    share = 0.5
    if progress.horizon is not None:
        share = min(1.0, (progress.round - 1) / max(progress.horizon - 1, 1))
    return (ANNEALED_FROM + share * (ANNEALED_TO - ANNEALED_FROM)) ** 2


def alpha(kind: Exploration, progress: Progress, batch_size: int, noise_ratio: float, delta: float = 0.1) -> float:
    """The weight of the information gain under the root in DB-GP-UCB: sum of means + sqrt(alpha gain).

    ``theory``: C1 |D_t| exp(2C) log(|D| t^2 pi^2 / (6 delta)) with C1 = 4 / log(1 + 1/s^2) (Daxberger & Low 2017,
    theorem 1), t counting batches. C must bound what a batch can tell about any one point; the batch has |D_t|
    points of signal-to-noise ratio at most 1/s^2, so C = 0.5 log(1 + |D_t|/s^2) does.

    ``annealed`` and ``practical``: 2 beta_t / log(1 + 1/s^2) with that schedule's beta_t. Then a single point whose
    variance is still the prior's gets exactly GP-UCB's bonus sqrt(beta_t). (The paper does not say which alpha its
    experiments used.)

    Args:
        kind: Which schedule.
        progress: When and over what.
        batch_size: Points in the batch |D_t|.
        noise_ratio: s^2, the noise variance over the prior variance, > 0.
        delta: Probability with which the bound of the theory may fail.

    Returns:
        alpha_t >= 0, without unit.
    """
    log_snr = math.log1p(1.0 / noise_ratio)
    if kind != "theory":
        return 2.0 * beta(kind, progress, delta) / log_snr
    exp_2c = 1.0 + batch_size / noise_ratio
    union_bound = math.log(progress.n_sites * progress.round**2 * math.pi**2 / (6.0 * delta))
    return 4.0 / log_snr * batch_size * exp_2c * union_bound
