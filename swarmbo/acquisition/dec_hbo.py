"""DEC-HBO: upper confidence bounds of factors that may overlap, in sum (Hoang et al. 2018)."""

import math
from typing import Annotated, Literal

import numpy as np

from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.averaged_bounds import AveragedBounds, Sampled, sampled_beliefs
from swarmbo.acquisition.confidence_bounds import ConfidenceBounds
from swarmbo.acquisition.schedules import (
    ContinuousExploration,
    continuous_beta,
    finite_beta,
    growing_lattice,
    practical_beta,
)
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.model.incumbents import known
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Model
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Positive, ProperFraction, within

_BOLDER = 3.0  # factor on the weight in every second bound of one factor once stalled
_STUCK = 3  # evaluations in a row without a gain
_GAIN = 1e-3  # of the spread of all outcomes: smaller gains do not count


@kind("acquisition", FUNCTION)
class DECHBO(Acquisition, frozen=True, tag="dec-hbo"):
    """Sum over factors of mu_i + sqrt(beta) sigma_i (Hoang et al. 2018, eq. (2)).

    The sum of the sigma_i is at least the standard deviation of the sum, so this explores more than GP-UCB would. The
    paper's regret bound needs a kernel with an additional constant variance at every point; for the kernels here its
    constant is infinite, and no bound is claimed. The factors are the team's, or with ``belief.structure`` those of
    sampled partitions. The paper averages the acquisitions of the samples (appendix B); by default their covariances
    are averaged here, and the bound is that of the resulting belief: see docs/methods/beliefs.md.

    The bound of one factor may lie below a local maximum wherever nothing was measured. So with one factor every second
    bound has three times the weight, once the posterior means of three evaluations in a row gained nothing.

    The paper agrees by max-sum on a grid that grows. Here teams agree by ``admm`` by default, which finds the same
    maxima and takes factors of any size: docs/studies/agreement.md. The paper's method is
    ``coordination = "refined-max-sum"`` with ``lattice = "lemma-5"`` here, and ``levels = 1`` there, so that nothing is
    refined.

    Args:
        exploration: Schedule of beta. ``theory``: theorem 1's, for a finite domain. ``theory-continuous``: lemma 6's.
            ``practical``: 0.2 d log(2t) with d the size of the largest factor; the paper does not state the one of its
            experiments.
        exploration_scale: Factor on sqrt(beta), > 0.
        delta: Failure probability in both theories, in (0, 1).
        grid: Points along each variable, >= 2, that make the domain finite in ``theory``.
        derivative_a: a of the continuous theory's assumption that a partial derivative of a factor exceeds L with
            probability at most a exp(-(L/b)²), >= 1.
        derivative_b: b of that, > 0, in units of the outcome per side of the domain.
        average: Averaged quantity with sampled partitions: ``covariances``; or, as in the paper, ``acquisitions``. Then
            every sample has its own belief, fitted again for every decision, and a beta for its own factors. In both
            cases the team's expectations and recommendations come from the team's one belief.
        lattice: ``settings``: points along each variable as in the settings of the coordination method. ``lemma-5``:
            these or, if more, d b t² sqrt(log(2 |U| a / delta)), limited by the size of tables (``coarse_entries`` of
            ``refined-max-sum``). Coordination methods without a lattice ignore it.

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

    exploration: ContinuousExploration = "practical"
    exploration_scale: Positive = 1.0
    delta: ProperFraction = 0.1
    grid: Annotated[int, within(2)] = 100
    derivative_a: Annotated[float, within(1)] = 1.0
    derivative_b: Positive = 1.0
    average: Literal["covariances", "acquisitions"] = "covariances"
    lattice: Literal["settings", "lemma-5"] = "settings"

    def local_functions(self, situation: JointSituation, model: Model) -> ConfidenceBounds | AveragedBounds:
        """Upper confidence bounds of the factors, all with the same weight."""
        structure = model.learned.structure
        if self.average == "covariances" or structure is None or not structure.samples:
            return self._bounds(model.belief)
        whole = self._bounds(model.belief)
        samples = [
            Sampled(self._bounds(belief), share, names)
            for belief, share, names in sampled_beliefs(model.belief, structure.samples, situation)
        ]
        return AveragedBounds(
            graph=whole.graph,
            low=whole.low,
            high=whole.high,
            starts=whole.starts,
            samples=samples,
            lattice_points=max(sample.bounds.lattice_points for sample in samples),
        )

    def _bounds(self, belief: AdditiveGP) -> ConfidenceBounds:
        graph, t = belief.graph, belief.n_data
        n_dims, n_factors = len(graph.variables), len(graph.factors)
        if self.exploration == "practical":
            beta = practical_beta(graph.max_factor_size, t)
        elif self.exploration == "theory":
            beta = finite_beta(n_dims * math.log(self.grid), n_factors, t, self.delta)
        else:
            beta = continuous_beta(n_dims, n_factors, t, self.delta, self.derivative_a, self.derivative_b)
        points = 0
        if self.lattice == "lemma-5":
            points = growing_lattice(n_dims, n_factors, t, self.delta, self.derivative_a, self.derivative_b)
        boldness = _BOLDER if self.exploration == "practical" and _is_stuck(belief) and t % 2 else 1.0
        weights = dict.fromkeys(graph.factors, boldness * self.exploration_scale * math.sqrt(beta))
        return ConfidenceBounds.on_cube(belief, sqrt_beta=weights, lattice_points=points)


def _is_stuck(belief: AdditiveGP) -> bool:
    """True if the posterior means of the last evaluations of one factor gained nothing."""
    if len(belief.graph.factors) > 1 or belief.has_time or belief.n_data <= _STUCK:
        return False
    means = belief.posterior_mean(belief.X[known(belief)])
    earlier, best = float(means[:-_STUCK].max()), float(means.max())
    return best - earlier <= _GAIN * (best - float(np.median(means)))
