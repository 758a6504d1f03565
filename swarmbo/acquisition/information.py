"""Acquisitions by the information at a place: plus its mean (peak), alone (map), or minus its distance to a level."""

import math

import numpy as np

from swarmbo.acquisition.chain_acquisition import ChainAcquisition, require_level
from swarmbo.acquisition.local_utility import LocalUtility
from swarmbo.acquisition.schedules import Exploration, alpha, beta
from swarmbo.acquisition.situation import Situation
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Positive, ProperFraction


@kind("acquisition", FIELD)
class DBGPUCB(ChainAcquisition, frozen=True, tag_field="kind", tag="db-gp-ucb"):
    """Distributed batch GP-UCB (Daxberger & Low 2017, eq. (5)): for the peak of a field.

    Agent n of the chain chooses location x_n of the batch by w_n = mean(x_n) + s_f sqrt(0.5 alpha log Psi_n|nB).
    Psi_n|nB is the conditional variance of the scaled residual at x_n, given the locations of the next B agents. The
    belief's prior variance is s_f^2 (1 in the paper). The sum of these roots replaces the root of a sum in eq. (2).

    The paper's regret bound does not hold with motion limits and shortlists; the schedule ``theory`` is for study.

    With prices, a measurement is worthwhile if w_n exceeds the best reachable mean by more than the price.

    Args:
        exploration: Schedule of alpha_t and beta_t (``swarmbo.acquisition.schedules``). ``practical`` has the lower
            cumulative regret, the score of the paper. ``annealed`` ends nearer to a landscape's summit if the number of
            rounds is fixed: docs/methods/acquisitions.md.
        exploration_scale: Factor on sqrt(alpha_t) and sqrt(beta_t), > 0.
        delta: Failure probability in the schedule ``theory``, in (0, 1).

    The other settings are those of ``ChainAcquisition``.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> line = np.linspace(0.0, 1.0, 21)[:, None]
        >>> for scale in (0.01, 10.0):
        ...     rule = sb.DBGPUCB(exploration_scale=scale)
        ...     team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], acquisition=rule)
        ...     team.attach(line[:9], -((line[:9, 0] - 0.2) ** 2))  # a peak at 0.2, nothing known beyond 0.4
        ...     points = team.ask({"a": line, "b": line}).points
        ...     print(all(abs(x[0] - 0.2) < 0.11 for x in points.values()), all(x[0] > 0.5 for x in points.values()))
        True False
        False True
    """

    exploration: Exploration = "practical"
    exploration_scale: Positive = 1.0
    delta: ProperFraction = 0.1

    goal = "peak"

    def sqrt_beta(self, situation: Situation) -> float:
        """Weight of the standard deviation when single locations are ranked by mean + weight x std."""
        return self.exploration_scale * math.sqrt(beta(self.exploration, situation.progress, self.delta))

    def utility(self, situation: Situation, n_agents: int | None = None) -> LocalUtility:
        """Utility of high means and informative locations; the best reachable mean is the utility of abstaining."""
        belief, n = situation.belief, len(situation.movers) if n_agents is None else n_agents
        noise_variance, _ = information_scale(situation, self.noise_ratio_floor)
        noise_ratio = noise_variance / belief.prior_variance
        weight = alpha(self.exploration, situation.progress, n, noise_ratio, self.delta)
        bonus = self.exploration_scale * math.sqrt(0.5 * weight * belief.prior_variance)
        idle, own_noise = situation.best_mean() if situation.prices else 0.0, belief.noise_variance
        sqrt_beta = self.sqrt_beta(situation)
        return LocalUtility(sqrt_beta, bonus, noise_variance, opt_out_utility=idle, neighbours_noise=own_noise)


@kind("acquisition", FIELD)
class Information(ChainAcquisition, frozen=True, tag_field="kind", tag="information"):
    """The information term of distributed batch GP-UCB alone (Daxberger & Low 2017, eq. (5)).

    w_n = s_f sqrt(log Psi_n|nB / log(1 + 1/s^2)), with Psi_n|nB as in ``DBGPUCB``. s_f^2 is the prior variance, and s^2
    is the ratio of noise variance to prior variance. w_n is in the unit of the field; at an unknown location it is s_f.
    With prices, a measurement is worthwhile if w_n exceeds the price. The settings are those of ``ChainAcquisition``.

    Example:
        >>> import swarmbo as sb
        >>> line = np.linspace(0.0, 1.0, 21)[:, None]
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], acquisition=sb.Information())
        >>> team.attach(line[:11], -10.0 * line[:11, 0])  # high values at 0; nothing known beyond 0.5
        >>> points = team.ask({"a": line, "b": line}).points
        >>> all(x[0] > 0.6 for x in points.values()), bool(points["a"][0] != points["b"][0])
        (True, True)
    """

    goal = "map"

    def utility(self, situation: Situation, n_agents: int | None = None) -> LocalUtility:
        """Utility of informative locations; means have no effect."""
        noise_variance, bonus = information_scale(situation, self.noise_ratio_floor)
        return LocalUtility(1.0, bonus, noise_variance, np.zeros_like, neighbours_noise=situation.belief.noise_variance)


def information_scale(situation: Situation, noise_ratio_floor: float) -> tuple[float, float]:
    """Noise variance for Psi, with a floor, and the weight of sqrt(log Psi) that gives unknown places the prior std."""
    prior = situation.belief.prior_variance
    noise_variance = max(situation.belief.noise_variance, noise_ratio_floor * prior)
    return noise_variance, math.sqrt(prior / math.log1p(prior / noise_variance))


@kind("acquisition", FIELD)
class Straddle(ChainAcquisition, frozen=True, tag_field="kind", tag="straddle"):
    """The straddle score, 1.96 std - |mean - level|, split over the chain (Bryan et al. 2005, section 4).

    In a batch, the term of ``Information`` replaces the standard deviation: w_n = width s_f sqrt(log Psi_n|nB / log(1 +
    1/s^2)) - |mean(x_n) - level|. w_n is positive if the level is within ``width`` standard deviations of the mean.
    With prices, a measurement is worthwhile if w_n exceeds the price. The other settings are those of
    ``ChainAcquisition``.

    Args:
        level: Level, in the unit of the field; None takes the world's level.
        width: Weight of the standard deviation, > 0.

    Example:
        >>> import swarmbo as sb
        >>> line = np.linspace(0.0, 1.0, 21)[:, None]
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], acquisition=sb.Straddle(level=0.7))
        >>> team.attach(line, line[:, 0])  # the field is x, so the question is open near 0.7 only
        >>> all(abs(x[0] - 0.7) < 0.11 for x in team.ask({"a": line, "b": line}).points.values())
        True
    """

    level: float | None = None
    width: Positive = 1.96

    goal = "level"

    def check_world(self, level: float | None) -> None:
        """Refuse a world without a level if the settings have no level.

        Raises:
            ConfigError: If neither states a level.
        """
        require_level(level, self.level)

    def utility(self, situation: Situation, n_agents: int | None = None) -> LocalUtility:
        """Uncertainty about whether the field exceeds the level."""
        level = require_level(situation.level, self.level)
        noise_variance, bonus = information_scale(situation, self.noise_ratio_floor)
        return LocalUtility(
            sqrt_beta=self.width,
            bonus=self.width * bonus,
            noise_variance=noise_variance,
            merit=lambda mean: -np.abs(mean - level),
            neighbours_noise=situation.belief.noise_variance,
        )
