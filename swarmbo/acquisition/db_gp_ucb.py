"""Distributed batch GP-UCB: one local function per robot for a joint batch (Daxberger & Low 2017)."""

import math

from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.local_utility import LocalUtility
from swarmbo.acquisition.schedules import Exploration, alpha, beta
from swarmbo.acquisition.situation import Situation
from swarmbo.records import Goal
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Positive, ProperFraction


@kind("acquisition", FIELD)
class DBGPUCB(ChainAcquisition, frozen=True, tag_field="kind", tag="db-gp-ucb"):
    """Distributed batch GP-UCB (Daxberger & Low 2017, eq. (5)): for the peak of a field.

    Robot n owns block n of the batch and the local acquisition w_n = mean(x_n) + s_f sqrt(0.5 alpha log Psi_n|nB).
    Psi_n|nB is the conditional variance of its scaled residual given those of the next B robots of the chain. The
    belief's prior variance is s_f^2 (1 in the paper). The sum of roots replaces the root of the sum of the batch rule,
    eq. (2).

    Motion limits and shortlists void the paper's regret bound; the theory schedule is for study.

    With prices, a measurement is worthwhile if w_n exceeds the best reachable mean by more than the price.

    Args:
        exploration: Schedule of alpha_t and beta_t (see ``swarmbo.acquisition.schedules``). ``practical`` has the lower
            cumulative regret, the paper's score; with a fixed number of rounds, ``annealed`` ends nearer to the summit
            of a landscape: docs/methods/acquisitions.md.
        exploration_scale: Factor on sqrt(alpha_t) and sqrt(beta_t), > 0.
        delta: Failure probability in the theory schedule, in (0, 1).

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

    def aim(self, level: float | None) -> Goal:
        """The peak."""
        return "peak"

    def sqrt_beta(self, situation: Situation) -> float:
        """Weight of the standard deviation in the ranking of single locations, mean + weight x std."""
        return self.exploration_scale * math.sqrt(beta(self.exploration, situation.progress, self.delta))

    def utility(self, situation: Situation, n_agents: int | None = None) -> LocalUtility:
        """Utility of high means and informative locations; idle agents have the best reachable mean."""
        belief, n = situation.belief, len(situation.movers) if n_agents is None else n_agents
        noise_variance = max(belief.noise_variance, self.noise_ratio_floor * belief.prior_variance)
        noise_ratio = noise_variance / belief.prior_variance
        weight = alpha(self.exploration, situation.progress, n, noise_ratio, self.delta)
        bonus = self.exploration_scale * math.sqrt(0.5 * weight * belief.prior_variance)
        opt_out_utility = situation.best_mean() if situation.prices else 0.0
        return LocalUtility(
            self.sqrt_beta(situation),
            bonus,
            noise_variance,
            opt_out_utility=opt_out_utility,
            neighbours_noise=belief.noise_variance,
        )
