"""DEC-HBO: upper confidence bounds of factors that may overlap, in sum (Hoang et al. 2018)."""

import math

from swarmbo.acquisition.additive_schedules import ContinuousBetaName, continuous_beta, finite_beta, practical_beta
from swarmbo.acquisition.confidence_bounds import ConfidenceBounds
from swarmbo.acquisition.joint_situation import JointSituation
from swarmbo.acquisition.model import JointAcquisition, Model
from swarmbo.settings import require


class DECHBO(JointAcquisition, frozen=True, tag="dec-hbo"):
    """Sum over factors of mu_i + sqrt(beta) sigma_i (Hoang et al. 2018, eq. (2)).

    The sum of the sigma_i is at least the standard deviation of the sum, so this explores more than GP-UCB would. The
    paper's bound on the regret needs a kernel with a constant variance of its own at every point; for the kernels here
    its constant is infinite, and nothing is claimed. The factors are the team's, or with ``belief.structure`` those of
    sampled partitions, of which the paper averages the acquisitions.

    Args:
        beta: ``theory``: theorem 1's, for a finite domain. ``theory-continuous``: lemma 6's. ``practical``:
            0.2 d log(2t) with d the size of the largest factor; the paper does not say what its experiments used.
        exploration_scale: Factor on sqrt(beta), > 0.
        delta: Failure probability in both theories, in (0, 1).
        grid: Points along each variable, >= 2, that make the domain finite in ``theory``.
        derivative_a: a of the continuous theory's assumption that a partial derivative of a factor exceeds L with
            probability at most a exp(-(L/b)²), >= 1.
        derivative_b: b of that, > 0, in units of the outcome per side of the domain.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> X, stds = np.random.default_rng(0).random((12, 3)), []
        >>> for scale in (0.01, 10.0):  # from greedy to curious
        ...     rule = sb.DECHBO(exploration_scale=scale)
        ...     team = sb.Team(graph, {name: (0.0, 1.0) for name in "xyz"}, acquisition=rule)
        ...     team.attach(X, -((X[:, 0] - X[:, 1]) ** 2) - (X[:, 1] - X[:, 2]) ** 2)
        ...     stds.append(team.ask().std)
        >>> stds[1] > 2.0 * stds[0]
        True
    """

    beta: ContinuousBetaName = "practical"
    exploration_scale: float = 1.0
    delta: float = 0.1
    grid: int = 100
    derivative_a: float = 1.0
    derivative_b: float = 1.0

    def __post_init__(self) -> None:
        require(self, "exploration_scale", lambda v: v > 0.0, "a number > 0")
        require(self, "delta", lambda v: 0.0 < v < 1.0, "a number between 0 and 1")
        require(self, "grid", lambda v: v >= 2, "an integer >= 2")
        require(self, "derivative_a", lambda v: v >= 1.0, "a number >= 1")
        require(self, "derivative_b", lambda v: v > 0.0, "a number > 0")

    def local_functions(self, situation: JointSituation, model: Model) -> ConfidenceBounds:
        """The factors' upper confidence bounds, all with the same weight."""
        graph, t = model.belief.graph, model.belief.n_data
        n_dims, n_factors = len(graph.variables), len(graph.factors)
        if self.beta == "practical":
            beta = practical_beta(graph.max_factor_size, t)
        elif self.beta == "theory":
            beta = finite_beta(n_dims * math.log(self.grid), n_factors, t, self.delta)
        else:
            beta = continuous_beta(n_dims, n_factors, t, self.delta, self.derivative_a, self.derivative_b)
        weights = dict.fromkeys(graph.factors, self.exploration_scale * math.sqrt(beta))
        return ConfidenceBounds.on_cube(model.belief, sqrt_beta=weights)
