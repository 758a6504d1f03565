"""Sums of upper confidence bounds: Add-GP-UCB of disjoint groups of variables, DEC-HBO of factors that may overlap."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import schedules
from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.box_functions import (
    BeliefFunctions,
    ContrastFunctions,
    Received,
)
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, SampledStructure
from swarmbo.belief.model.joint_situation import JointSituation, OutcomeMode
from swarmbo.belief.model.model import Learned, Model, given_out, learned_belief
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorStack
from swarmbo.graph.groups import check_disjoint, graph_of_groups, random_groups
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Positive, ProperFraction, within


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfidenceBounds(BeliefFunctions):
    """The local functions mu_i + sqrt(beta_i) sigma_i, which Add-GP-UCB and DEC-HBO maximise in sum.

    Args:
        sqrt_beta: Weight of each factor's standard deviation.
        lattice_points: Least number of points along each variable for coordination methods with a lattice.
    """

    sqrt_beta: Mapping[str, float]
    lattice_points: int = 0

    def merit(
        self, stack: FactorStack, mean: Float[np.ndarray, "g m"], std: Float[np.ndarray, "g m"]
    ) -> tuple[Float[np.ndarray, "g m"], Any, Any]:
        """Upper confidence bound."""
        weights = np.array([self.sqrt_beta[factor] for factor in stack.factors])[:, None]
        return mean + weights * std, 1.0, weights


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastBounds(ContrastFunctions):
    """The local functions mean + weight x std of f_i(u) - f_i(reference).

    ``weight`` is multiplied by the root of a factor's number of variables.
    """

    weight: float

    def merit(
        self, stack: FactorStack, mean: Float[np.ndarray, "g m"], std: Float[np.ndarray, "g m"]
    ) -> tuple[Float[np.ndarray, "g m"], Any, Any]:
        """Upper confidence bound of the difference."""
        weight = self.weight * float(np.sqrt(stack.size))
        return mean + weight * std, 1.0, weight

    def rough_value(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Each factor's bound to some digits, for tables that guide a search; much faster with many factors."""
        self.check_owned(stack)
        return self._merit_of(stack, self.belief.local_contrast(stack, U, self.reference, rough=True))[0]


_AT = "$.belief.structure"


@kind("acquisition", FUNCTION)
class AddGPUCB(Acquisition, frozen=True, tag="add-gp-ucb"):
    """Sum over disjoint groups of mu_j + sqrt(beta) sigma_j (Kandasamy et al. 2015, eq. (9) and algorithm 1).

    With ``groups = "learned"``, the scopes of the team's graph are not used. Every ``learn_every`` evaluations the
    variables are divided at random into groups of ``group_size``, ``groupings`` times. Hyper-parameters are fitted to
    each grouping, and the one with the largest evidence is taken (section 4.3; the authors' program tries five
    permutations). The paper shares one scale and one bandwidth over all groups: ``lengthscales = "shared"`` in the
    belief's settings is similar.

    No bound on the regret is claimed. The proof of the paper's theorem 5 assumes that the sum of the groups' variances
    is at most the variance of the sum, which is false in general.

    Args:
        groups: ``given``: the scopes of the team's graph, which must not overlap. ``learned``: see above.
        group_size: Variables in a learned group, >= 1.
        groupings: Random groupings compared, >= 1.
        learn_every: Evaluations, >= 1, after which groups are learned again.
        exploration: Schedule of beta. ``practical``: 0.2 d log(2t), d the size of the group, as in the paper's
            experiments. ``theory``: theorem 5's, with each group's own d.
        exploration_scale: Factor on sqrt(beta), > 0; 1 is the paper's.
        delta: Failure probability in ``theory``, in (0, 1).

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> rule, X = sb.AddGPUCB(groups="learned", group_size=2), np.random.default_rng(0).random((30, 3))
        >>> team = sb.Team(None, {name: (0.0, 1.0) for name in "xyz"}, acquisition=rule)
        >>> team.attach(X, np.sin(7.0 * X[:, 0] * X[:, 2]) + X[:, 1])
        >>> sorted(map(sorted, team.model.belief.graph.scopes))
        [['x', 'z'], ['y']]
    """

    groups: Literal["given", "learned"] = "given"
    group_size: Count = 4
    groupings: Count = 5
    learn_every: Count = 25
    exploration: schedules.GroupExploration = "practical"
    exploration_scale: Positive = 1.0
    delta: ProperFraction = 0.1

    def learn(self, situation: JointSituation, belief_settings: AdditiveGPSettings, previous: Learned | None) -> Model:
        """Model of the history over the team's groups or learned ones.

        Raises:
            ConfigError: If given groups overlap, or groups are to be learned from outcomes of single factors.
        """
        if self.groups == "given":
            check_disjoint(situation.graph)
            return super().learn(situation, belief_settings, previous)
        if situation.outcomes == "per-factor":
            raise ConfigError(
                "got 'learned' with outcomes per factor; wanted 'given': outcomes per factor belong to given factors",
                at="$.acquisition.groups",
            )
        n = len(situation.history)
        if previous is None or previous.scopes is None or self._is_due(n, previous.decomposed_at):
            belief, learned = self._best_grouping(situation, belief_settings)
        else:
            graph = graph_of_groups(situation.graph, previous.scopes)
            belief, learned = learned_belief(situation, graph, situation.history, belief_settings, previous)
        return Model(given_out(belief, situation), learned)

    def _is_due(self, n: int, decomposed_at: int) -> bool:
        chosen_blindly = decomposed_at == 0 and n > 0
        return chosen_blindly or n - decomposed_at >= self.learn_every

    def _best_grouping(
        self, situation: JointSituation, belief_settings: AdditiveGPSettings
    ) -> tuple[AdditiveGP, Learned]:
        n, found = len(situation.history), list[tuple[float, AdditiveGP, Learned]]()
        for i in range(self.groupings):
            rng = stream(situation.seed, "add-gp-ucb", "grouping", evaluations=n, candidate=i)
            groups = random_groups(situation.graph, self.group_size, rng)
            graph = graph_of_groups(situation.graph, groups)
            belief, learned = learned_belief(situation, graph, situation.history, belief_settings, None)
            learned = msgspec.structs.replace(learned, scopes=groups, decomposed_at=n)
            found.append((belief.log_evidence(), belief, learned))
        _, belief, learned = max(found, key=lambda entry: entry[0])
        return belief, learned

    def local_functions(self, situation: JointSituation, model: Model) -> ConfidenceBounds:
        """Upper confidence bounds of the groups."""
        graph, t = model.belief.graph, model.belief.n_data
        sizes = {factor: len(graph.scope(factor)) for factor in graph.factors}
        if self.exploration == "practical":
            betas = {factor: schedules.practical_beta(size, t) for factor, size in sizes.items()}
        else:
            n_groups, n_dims = len(sizes), len(graph.variables)
            betas = {
                factor: schedules.group_beta(size, n_groups, n_dims, t, self.delta) for factor, size in sizes.items()
            }
        weights = {factor: self.exploration_scale * math.sqrt(beta) for factor, beta in betas.items()}
        return ConfidenceBounds.on_cube(model.belief, sqrt_beta=weights)


def check_structure(settings: AdditiveGPSettings, acquisition: Acquisition, outcomes: OutcomeMode) -> None:
    """Refuse a learned structure that contradicts the outcomes or the acquisition."""
    structure = settings.structure
    if structure is None:
        return
    if outcomes == "per-factor":
        raise ConfigError("got outcomes per factor; wanted totals: outcomes per factor belong to given factors", at=_AT)
    if isinstance(acquisition, AddGPUCB):
        kind = structure.__struct_config__.tag
        if acquisition.groups == "learned":
            raise ConfigError(f"got {kind!r}, and 'learned' in $.acquisition.groups; wanted one of them", at=_AT)
        is_disjoint = isinstance(structure, SampledStructure) and structure.samples == 1
        if not is_disjoint:
            wanted = "sampled with samples = 1, or kind = 'dec-hbo', where scopes may overlap"
            raise ConfigError(f"got {kind!r}, whose scopes overlap, for Add-GP-UCB; wanted {wanted}", at=_AT)


_BOLDER = 3.0  # factor on the weight in every second bound of one factor once stalled
_STUCK = 3  # evaluations in a row without a gain
_GAIN = 1e-3  # of the spread of all outcomes: smaller gains do not count


@kind("acquisition", FUNCTION)
class DECHBO(Acquisition, frozen=True, tag="dec-hbo"):
    """Sum over factors of mu_i + sqrt(beta) sigma_i (Hoang et al. 2018, eq. (2)).

    The sum of the sigma_i is at least the standard deviation of the sum, so this explores more than GP-UCB would. The
    paper's regret bound needs a kernel with an additional constant variance at every point; for the kernels here its
    constant is infinite, and no bound is claimed. The factors are the team's, or with ``belief.structure`` those of
    sampled partitions. The paper averages the acquisitions of the samples (appendix B); here their covariances are
    averaged, and the bound is that of the resulting belief: see docs/methods/beliefs.md.

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

    exploration: schedules.ContinuousExploration = "practical"
    exploration_scale: Positive = 1.0
    delta: ProperFraction = 0.1
    grid: Annotated[int, within(2)] = 100
    derivative_a: Annotated[float, within(1)] = 1.0
    derivative_b: Positive = 1.0
    lattice: Literal["settings", "lemma-5"] = "settings"

    def local_functions(self, situation: JointSituation, model: Model) -> ConfidenceBounds:
        """Upper confidence bounds of the factors, all with the same weight."""
        belief = model.belief
        graph, t = belief.graph, belief.n_data
        n_dims, n_factors = len(graph.variables), len(graph.factors)
        if self.exploration == "practical":
            beta = schedules.practical_beta(graph.max_factor_size, t)
        elif self.exploration == "theory":
            beta = schedules.finite_beta(n_dims * math.log(self.grid), n_factors, t, self.delta)
        else:
            beta = schedules.continuous_beta(n_dims, n_factors, t, self.delta, self.derivative_a, self.derivative_b)
        points = 0
        if self.lattice == "lemma-5":
            points = schedules.growing_lattice(n_dims, n_factors, t, self.delta, self.derivative_a, self.derivative_b)
        boldness = _BOLDER if self.exploration == "practical" and _is_stuck(belief) and t % 2 else 1.0
        weights = dict.fromkeys(graph.factors, boldness * self.exploration_scale * math.sqrt(beta))
        return ConfidenceBounds.on_cube(belief, sqrt_beta=weights, lattice_points=points)


def _is_stuck(belief: AdditiveGP) -> bool:
    """True if the posterior means of the last evaluations of one factor gained nothing."""
    if len(belief.graph.factors) > 1 or belief.has_time or belief.n_data <= _STUCK:
        return False
    means = belief.posterior_mean(belief.X[belief.known])
    earlier, best = float(means[:-_STUCK].max()), float(means.max())
    return best - earlier <= _GAIN * (best - float(np.median(means)))
