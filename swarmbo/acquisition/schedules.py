"""How much exploring is worth: schedules of the weights alpha (DB-GP-UCB) and beta (GP-UCB) over time.

Theory is safe and far too cautious in practice; the practical schedules carry no guarantee. Both are in units of a
field whose prior variance is at most 1.
"""

import math
from typing import Literal

Exploration = Literal["practical", "theory"]


def beta(kind: Exploration, n_data: int, n_dims: int, n_sites: int, delta: float = 0.1) -> float:
    """The weight of the variance under the root in GP-UCB: mean + sqrt(beta variance).

    ``practical``: 0.2 d log(2t) (Kandasamy et al. 2015, section 4). ``theory``: 2 log(|D| t^2 pi^2 / (6 delta))
    (Srinivas et al. 2010, theorem 1, as quoted by Daxberger & Low 2017).

    Args:
        kind: Which schedule.
        n_data: Measurements so far t, >= 1.
        n_dims: Dimensions of a location, d.
        n_sites: Number of places to choose from, |D|.
        delta: Probability with which the bound may fail, in (0, 1).

    Returns:
        beta_t >= 0, without unit.

    Example:
        >>> round(beta("practical", n_data=50, n_dims=2, n_sites=1000), 4)
        1.8421
    """
    t = max(n_data, 1)
    if kind == "practical":
        return 0.2 * n_dims * math.log(2 * t)
    return 2.0 * math.log(n_sites * t**2 * math.pi**2 / (6.0 * delta))


def alpha(
    kind: Exploration,
    round_number: int,
    n_data: int,
    batch_size: int,
    n_dims: int,
    n_sites: int,
    noise_ratio: float,
    delta: float = 0.1,
) -> float:
    """The weight of the information gain under the root in DB-GP-UCB: sum of means + sqrt(alpha gain).

    ``theory``: C1 |D_t| exp(2C) log(|D| t^2 pi^2 / (6 delta)) with C1 = 4 / log(1 + 1/s^2) (Daxberger & Low 2017,
    theorem 1), t counting batches. C must bound what a batch can tell about any one point; the batch has |D_t|
    points of signal-to-noise ratio at most 1/s^2, so C = 0.5 log(1 + |D_t|/s^2) does.

    ``practical``: 2 beta_t / log(1 + 1/s^2) with the practical beta_t. Then a single point whose variance is still the
    prior's gets exactly GP-UCB's bonus sqrt(beta_t). (The paper does not say which alpha its experiments used.)

    Args:
        kind: Which schedule.
        round_number: t of the theory: 1 for the first batch.
        n_data: t of the practical schedule: measurements so far.
        batch_size: Points in the batch |D_t|.
        n_dims: Dimensions of a location.
        n_sites: Number of places to choose from |D|.
        noise_ratio: s^2, the noise variance over the prior variance, > 0.
        delta: Probability with which the bound may fail.

    Returns:
        alpha_t >= 0, without unit.
    """
    log_snr = math.log1p(1.0 / noise_ratio)
    if kind == "practical":
        return 2.0 * beta("practical", n_data, n_dims, n_sites, delta) / log_snr
    exp_2c = 1.0 + batch_size / noise_ratio
    union_bound = math.log(n_sites * round_number**2 * math.pi**2 / (6.0 * delta))
    return 4.0 / log_snr * batch_size * exp_2c * union_bound
