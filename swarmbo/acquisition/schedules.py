"""Schedules of exploration weights: alpha and beta of fields, and beta of sums of confidence bounds.

``theory`` follows the papers' theorems; in practice it explores far too much. ``practical`` is 0.2 d log(2t), with d
by method, and ``annealed`` falls with the rounds; they carry no guarantee. ``paper`` is the choice of a paper's
authors if it differs. Schedules of fields assume a prior variance of at most 1. For functions t counts all evaluations,
the initial design included.
"""

import math
from dataclasses import dataclass
from typing import Literal

Exploration = Literal["annealed", "practical", "theory"]
GroupExploration = Literal["practical", "theory"]
NeighbourhoodExploration = Literal["practical", "paper", "theory"]
ContinuousExploration = Literal["practical", "theory", "theory-continuous"]

ANNEALED_FROM, ANNEALED_TO = 5.0, 1.0  # sqrt(beta), chosen on other seeds of the landscapes of docs/studies/fields.md


@dataclass(frozen=True)
class Progress:
    """Time and size of a decision."""

    round: int
    horizon: int | None
    n_data: int
    n_dims: int
    n_sites: int


def beta(kind: Exploration, progress: Progress, delta: float = 0.1) -> float:
    """Weight of the variance under the root in GP-UCB, mean + sqrt(beta variance): beta_t >= 0, without unit.

    ``annealed``: sqrt(beta) falls linearly from 5 in the first round to 1 in the last, so that a team with a fixed
    number of rounds explores first and exploits later; 3 throughout if the number is unknown. ``practical``: 0.2 d
    log(2t) with t measurements (Kandasamy et al. 2015, section 4). ``theory``: 2 log(|D| t^2 pi^2 / (6 delta))
    (Srinivas et al. 2010, theorem 1), delta its failure probability.

    Example:
        >>> progress = Progress(round=1, horizon=25, n_data=50, n_dims=2, n_sites=1000)
        >>> round(beta("practical", progress), 4), beta("annealed", progress)
        (1.8421, 25.0)
    """
    if kind == "practical":
        return practical_beta(progress.n_dims, progress.n_data)
    if kind == "theory":
        return finite_beta(math.log(progress.n_sites), 1, progress.n_data, delta)
    share = 0.5
    if progress.horizon is not None:
        share = min(1.0, (progress.round - 1) / max(progress.horizon - 1, 1))
    return (ANNEALED_FROM + share * (ANNEALED_TO - ANNEALED_FROM)) ** 2


def alpha(kind: Exploration, progress: Progress, batch_size: int, noise_ratio: float, delta: float = 0.1) -> float:
    """Weight of the information gain under the root in DB-GP-UCB: sum of means + sqrt(alpha gain), alpha_t >= 0.

    ``theory``: C1 |D_t| exp(2C) log(|D| t^2 pi^2 / (6 delta)) with C1 = 4 / log(1 + 1/s^2) (Daxberger & Low 2017,
    theorem 1), t counting batches. C must bound the information of a batch about any one point; the batch has |D_t|
    points of signal-to-noise ratio at most 1/s^2, so C = 0.5 log(1 + |D_t|/s^2) suffices.

    ``annealed`` and ``practical``: 2 beta_t / log(1 + 1/s^2) with that schedule's beta_t. Then a single point with
    prior variance gets exactly GP-UCB's bonus sqrt(beta_t). (The paper does not state the alpha of its experiments.)

    ``noise_ratio`` is s^2, the noise variance over the prior variance, > 0.
    """
    log_snr = math.log1p(1.0 / noise_ratio)
    if kind != "theory":
        return 2.0 * beta(kind, progress, delta) / log_snr
    # exp(2C) with C = 0.5 log(1 + |D_t|/s²)
    exp_2c = 1.0 + batch_size / noise_ratio
    union_bound = finite_beta(math.log(progress.n_sites), 1, progress.round, delta)
    return 2.0 / log_snr * batch_size * exp_2c * union_bound


def practical_beta(n_dims: float, t: int) -> float:
    """0.2 d log(2t) with d variables: those of a group, of the largest factor, or all (Kandasamy et al. 2015, section
    4.4; for DuMBO, its authors' program). At least one evaluation is counted.
    """
    return 0.2 * n_dims * math.log(2 * max(t, 1))


def group_beta(group_size: int, n_groups: int, n_dims: int, t: int, delta: float) -> float:
    """2 log(M pi² t² / (2 delta)) + 2 d log(D t³), floored at 0, with d the group's variables, M groups, D variables.

    Source: Kandasamy et al. 2015, theorem 5. The regret bound of that theorem is not proved: its proof takes the sum of
    the groups' variances to be at most the variance of the sum, which is false in general. The weight stands.
    """
    t = max(t, 1)
    union = 2.0 * math.log(n_groups * math.pi**2 * t**2 / (2.0 * delta))
    return max(union + 2.0 * group_size * math.log(n_dims * t**3), 0.0)


def finite_beta(log_n_points: float, n_factors: int, t: int, delta: float) -> float:
    """2 log(|D| |U| pi_t / delta) with pi_t = pi² t² / 6; |U| factors, 1 for GP-UCB and DuMBO (Hoang et al. 2018,
    theorem 1; Bardou et al. 2024, theorem 5.2, with one bound for the sum).
    """
    t = max(t, 1)
    return 2.0 * (log_n_points + math.log(n_factors * math.pi**2 * t**2 / (6.0 * delta)))


def continuous_beta(n_dims: int, n_factors: int, t: int, delta: float, a: float, b: float) -> float:
    """2 log(4 |U| pi_t / delta) + 2 d log(d t² b r sqrt(log(4 |U| a / delta))) on the cube [0, r]^d with r = 1.

    ``a`` and ``b`` are those of the assumption that a partial derivative of a factor exceeds L with probability at most
    a exp(-(L/b)²), with 4 |U| a > delta, b in units of the outcome per side of the domain.

    Source: Hoang et al. 2018, theorem 3 and lemma 6.
    """
    t = max(t, 1)
    union = 2.0 * math.log(4.0 * n_factors * math.pi**2 * t**2 / (6.0 * delta))
    points = lattice_points(n_dims, n_factors, t, delta / 2.0, a, b)
    return max(union + 2.0 * n_dims * math.log(points), 0.0)


def lattice_points(n_dims: int, n_factors: int, t: int, delta: float, a: float, b: float) -> float:
    """D b t² r sqrt(log(2 |U| a / delta)) points along each variable of the cube [0, r]^d with r = 1 (Hoang et al.
    2018, lemma 5, tau_t; lemma 6, the source of :func:`continuous_beta`, has delta / 2).
    """
    return n_dims * max(t, 1) ** 2 * b * math.sqrt(math.log(2.0 * n_factors * a / delta))
