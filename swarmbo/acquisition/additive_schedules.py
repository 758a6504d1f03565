"""The weight beta of the papers that maximise sums of upper confidence bounds, mean + sqrt(beta) std, by name.

``theory`` is what the papers' theorems ask for; it is far too cautious in practice. ``practical`` is 0.2 d log(2t) with
d as each method says, and carries no guarantee; ``paper`` is what a paper's authors run where that differs. t counts
evaluations so far, the initial design included.
"""

import math
from typing import Literal

GroupExploration = Literal["practical", "theory"]
NeighbourhoodExploration = Literal["practical", "paper", "theory"]
ContinuousExploration = Literal["practical", "theory", "theory-continuous"]


def practical_beta(n_dims: float, t: int) -> float:
    """0.2 d log(2t), with at least one evaluation counted.

    Args:
        n_dims: d, of whatever the bound is over: a group, the largest factor, or all variables (DuMBO).
        t: Evaluations so far.

    Source:
        Kandasamy et al. 2015, section 4.4; DuMBO: its authors' program, with all variables for d.

    Example:
        >>> round(practical_beta(4, 50), 4)
        3.6841
    """
    return 0.2 * n_dims * math.log(2 * max(t, 1))


def group_beta(group_size: int, n_groups: int, n_dims: int, t: int, delta: float) -> float:
    """2 log(M pi² t² / (2 delta)) + 2 d log(D t³), floored at 0.

    Args:
        group_size: d, variables of the group.
        n_groups: M.
        n_dims: D, all variables.
        t: Evaluations so far.
        delta: Probability with which the bound may fail, in (0, 1).

    Source:
        Kandasamy et al. 2015, theorem 5. The regret bound of that theorem is not proved: its proof takes the sum of
        the groups' variances to be at most the variance of the sum, which is false in general. The weight stands.
    """
    t = max(t, 1)
    union = 2.0 * math.log(n_groups * math.pi**2 * t**2 / (2.0 * delta))
    return max(union + 2.0 * group_size * math.log(n_dims * t**3), 0.0)


def finite_beta(log_n_points: float, n_factors: int, t: int, delta: float) -> float:
    """2 log(|D| |U| pi_t / delta) with pi_t = pi² t² / 6.

    Args:
        log_n_points: log |D|, natural logarithm of the number of points of the (discretised) domain.
        n_factors: |U|; 1 gives the weight of GP-UCB, which is DuMBO's.
        t: Evaluations so far.
        delta: Probability with which the bound may fail, in (0, 1).

    Source:
        Hoang et al. 2018, theorem 1; Bardou et al. 2024, theorem 5.2, with one bound for the sum.

    Example:
        >>> round(finite_beta(math.log(1000), 1, 50, 0.1), 4)
        35.0642
    """
    t = max(t, 1)
    return 2.0 * (log_n_points + math.log(n_factors * math.pi**2 * t**2 / (6.0 * delta)))


def continuous_beta(n_dims: int, n_factors: int, t: int, delta: float, a: float, b: float) -> float:
    """2 log(4 |U| pi_t / delta) + 2 d log(d t² b r sqrt(log(4 |U| a / delta))) on the cube [0, r]^d with r = 1.

    Args:
        n_dims: d, all variables.
        n_factors: |U|.
        t: Evaluations so far.
        delta: Probability with which the bound may fail, in (0, 1).
        a: Of the assumption that a partial derivative of a factor exceeds L with probability at most a exp(-(L/b)²);
            4 |U| a > delta.
        b: As ``a``, in units of the outcome per side of the domain.

    Source:
        Hoang et al. 2018, theorem 3 and lemma 6.
    """
    t = max(t, 1)
    union = 2.0 * math.log(4.0 * n_factors * math.pi**2 * t**2 / (6.0 * delta))
    points = _lattice_points(n_dims, n_factors, t, delta / 2.0, a, b)
    return max(union + 2.0 * n_dims * math.log(points), 0.0)


def growing_lattice(n_dims: int, n_factors: int, t: int, delta: float, a: float, b: float) -> int:
    """D b t² r sqrt(log(2 |U| a / delta)) points along each variable of the cube [0, r]^d with r = 1, rounded up.

    Args:
        n_dims: d, all variables.
        n_factors: |U|.
        t: Evaluations so far.
        delta: Probability with which the bound may fail, in (0, 1).
        a: As in :func:`continuous_beta`.
        b: As ``a``.

    Source:
        Hoang et al. 2018, lemma 5, tau_t. Lemma 6, of which :func:`continuous_beta` is, applies it with delta / 2.

    Example:
        >>> [growing_lattice(2, 1, t, 0.1, 1.0, 1.0) for t in (1, 3, 10)]
        [4, 32, 347]
    """
    return math.ceil(_lattice_points(n_dims, n_factors, max(t, 1), delta, a, b))


def _lattice_points(n_dims: int, n_factors: int, t: int, delta: float, a: float, b: float) -> float:
    """tau_t of lemma 5, before it is rounded up."""
    return n_dims * t**2 * b * math.sqrt(math.log(2.0 * n_factors * a / delta))
