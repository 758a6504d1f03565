"""Sums of upper confidence bounds: Add-GP-UCB of disjoint groups of variables, DEC-HBO of factors that may overlap."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import numpy as np

from swarmbo.acquisition import schedules
from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.box_functions import BeliefFunctions, ContrastFunctions
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, SampledStructure
from swarmbo.belief.model.joint_situation import JointSituation, OutcomeMode
from swarmbo.belief.model.model import Learned, Model, given_out, learned_belief
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph, FactorStack
from swarmbo.graph.box_functions import Values
from swarmbo.graph.groups import graph_of_groups, random_groups
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Positive, ProperFraction, within


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfidenceBounds(BeliefFunctions):
    """The local functions mu_i + sqrt(beta_i) sigma_i, which Add-GP-UCB and DEC-HBO maximise in sum."""

    sqrt_beta: Mapping[str, float]  # weight of each factor's standard deviation

    def merit(self, stack: FactorStack, mean: Values, std: Values) -> tuple[Values, Any, Any]:
        """Upper confidence bound."""
        weights = np.array([self.sqrt_beta[factor] for factor in stack.factors])[:, None]
        return mean + weights * std, 1.0, weights


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastBounds(ContrastFunctions):
    """The local functions mean + w std of f_i(u) - f_i(reference), with w = ``weight`` x root of the factor's size."""

    weight: float

    def merit(self, stack: FactorStack, mean: Values, std: Values) -> tuple[Values, Any, Any]:
        """Upper confidence bound of the difference."""
        weight = self.weight * float(np.sqrt(stack.size))
        return mean + weight * std, 1.0, weight


_AT = "$.belief.structure"


@kind("acquisition", FUNCTION)
class AddGPUCB(Acquisition, frozen=True, tag="add-gp-ucb"):
    """Sum over disjoint groups of mu_j + sqrt(beta) sigma_j (Kandasamy et al. 2015, eq. (9) and algorithm 1).

    With ``groups = "learned"``, the scopes of the team's graph are not used. Every ``learn_every`` evaluations, the
    variables are divided at random into groups of ``group_size``, in ``groupings`` ways. Hyper-parameters are fitted to
    each division, and the one with the largest evidence is taken (section 4.3; the authors' program tries five). In the
    paper, all groups have one scale and one bandwidth, as with ``lengthscales = "shared"`` in the belief.

    No bound on the regret is claimed. The proof of the paper's theorem 5 assumes that the sum of the groups' variances
    is at most the variance of the sum, which is false in general.

    Args:
        groups: ``given``: scopes of the team's graph, which must not overlap. ``learned``: groups found as above.
        group_size: Number of variables in a learned group, >= 1.
        groupings: Number of random divisions that are compared, >= 1.
        learn_every: Number of evaluations, >= 1, after which groups are learned again.
        exploration: Schedule of beta. ``practical``: 0.2 d log(2t), as in the paper's experiments, with d variables in
            the group and t evaluations. ``theory``: that of theorem 5, for each group's d.
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
        """Model of the history, with the scopes of the team's graph or with learned groups."""
        if self.groups == "given":
            return super().learn(situation, belief_settings, previous)
        n = len(situation.history)
        if previous is not None and previous.scopes is not None:
            was_blind = previous.decomposed_at == 0 and n > 0
            if not was_blind and n - previous.decomposed_at < self.learn_every:
                graph = graph_of_groups(situation.graph, previous.scopes)
                belief, learned = learned_belief(situation, graph, situation.history, belief_settings, previous)
                return Model(given_out(belief, situation), learned)
        tried = list[tuple[AdditiveGP, Learned]]()
        for i in range(self.groupings):
            rng = stream(situation.seed, "add-gp-ucb", "grouping", evaluations=n, candidate=i)
            groups = random_groups(situation.graph, self.group_size, rng)
            graph = graph_of_groups(situation.graph, groups)
            belief, learned = learned_belief(situation, graph, situation.history, belief_settings, None)
            tried.append((belief, msgspec.structs.replace(learned, scopes=groups, decomposed_at=n)))
        belief, learned = max(tried, key=lambda one: one[0].log_evidence())
        return Model(given_out(belief, situation), learned)

    def local_functions(self, situation: JointSituation, model: Model) -> ConfidenceBounds:
        """Upper confidence bounds of the groups."""
        graph, t = model.belief.graph, model.belief.n_data
        sizes = {factor: len(graph.scope(factor)) for factor in graph.factors}
        if self.exploration == "practical":
            betas = {factor: schedules.practical_beta(size, t) for factor, size in sizes.items()}
        else:
            common = len(sizes), len(graph.variables), t, self.delta
            betas = {factor: schedules.group_beta(size, *common) for factor, size in sizes.items()}
        weights = {factor: self.exploration_scale * math.sqrt(beta) for factor, beta in betas.items()}
        return ConfidenceBounds.on_cube(model.belief.by_factor_ahead, sqrt_beta=weights)


def check_groups(acquisition: Acquisition, graph: FactorGraph, outcomes: OutcomeMode, *, is_learned: bool) -> None:
    """Refuse overlapping groups of Add-GP-UCB unless they are learned, and learned groups with outcomes per factor."""
    if not isinstance(acquisition, AddGPUCB):
        return
    if acquisition.groups == "learned" and outcomes == "per-factor":
        wanted = "'given': outcomes per factor belong to given factors"
        raise ConfigError(f"got 'learned' with outcomes per factor; wanted {wanted}", at="$.acquisition.groups")
    shared = (variable for variable in graph.variables if len(graph.factors_of(variable)) > 1)
    if acquisition.groups == "given" and not is_learned and (variable := next(shared, None)) is not None:
        fix = "take groups = 'learned', or kind = 'dec-hbo', where factors may overlap"
        got = f"variable {variable!r} is in the factors {', '.join(map(repr, graph.factors_of(variable)))}"
        wanted = f"wanted groups that share no variable, as Add-GP-UCB needs: {fix}"
        raise ConfigError(f"{got}; {wanted}", at="$.acquisition.groups")


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
        if not (isinstance(structure, SampledStructure) and structure.samples == 1):
            wanted = "sampled with samples = 1, or kind = 'dec-hbo', where scopes may overlap"
            raise ConfigError(f"got {kind!r}, whose scopes overlap, for Add-GP-UCB; wanted {wanted}", at=_AT)


_BOLDER = 3.0  # factor on the weight in every second bound of one factor once stalled
_STUCK = 3  # evaluations in a row without a gain
_GAIN = 1e-3  # share of the spread of all outcomes: smaller gains do not count


@kind("acquisition", FUNCTION)
class DECHBO(Acquisition, frozen=True, tag="dec-hbo"):
    """Sum over factors of mu_i + sqrt(beta) sigma_i (Hoang et al. 2018, eq. (2)).

    The sum of the sigma_i is at least the standard deviation of the sum, so DEC-HBO explores more than GP-UCB. The
    paper's regret bound needs a kernel with additional constant variance at every point. The kernels here have none, so
    no bound is claimed. The factors are those of the team's graph or, with ``belief.structure``, learned ones. The
    paper averages the acquisitions of sampled partitions (appendix B). Here their covariances are averaged, and the
    acquisition is computed from the resulting belief: see docs/methods/beliefs.md.

    In unexplored regions, the bound of one factor may lie below a local maximum that is known. So with one factor and
    the schedule ``practical``, every second bound has 3 times the weight after 3 evaluations in a row without a gain.

    The paper's agents agree by max-sum on a growing grid. Teams here agree by ``admm`` by default, which finds the same
    maxima with factors of any size: docs/studies/agreement.md. For the paper's method, set ``lattice = "lemma-5"``, and
    ``coordination = "refined-max-sum"`` with ``levels = 1``, so that nothing is refined.

    Args:
        exploration: Schedule of beta. ``theory``: that of theorem 1, for a finite domain. ``theory-continuous``: that
            of lemma 6. ``practical``: 0.2 d log(2t), with d variables in the largest factor and t evaluations. The
            paper does not state the schedule of its experiments.
        exploration_scale: Factor on sqrt(beta), > 0.
        delta: Failure probability in both ``theory`` schedules, in (0, 1).
        grid: Points along each variable, >= 2, in the finite domain of ``theory``.
        derivative_a: a >= 1 in the assumption of ``theory-continuous``: a factor's partial derivative exceeds L with
            probability at most a exp(-(L/b)²).
        derivative_b: b > 0 in the same assumption, in units of the outcome per side of the domain.
        lattice: Points along each variable. ``settings``: as in the settings of the coordination method. ``lemma-5``:
            at least d b t² sqrt(log(2 |U| a / delta)) for d variables and |U| factors, unless tables are then too large
            (``coarse_entries`` of ``refined-max-sum``). Methods without a lattice ignore it.

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
        """Upper confidence bounds of the factors, with one weight for all."""
        belief = model.belief
        graph, t = belief.graph, belief.n_data
        n_dims, n_factors = len(graph.variables), len(graph.factors)
        smooth = n_dims, n_factors, t, self.delta, self.derivative_a, self.derivative_b
        if self.exploration == "practical":
            beta = schedules.practical_beta(graph.max_factor_size, t)
        elif self.exploration == "theory":
            beta = schedules.finite_beta(n_dims * math.log(self.grid), n_factors, t, self.delta)
        else:
            beta = schedules.continuous_beta(*smooth)
        points = math.ceil(schedules.lattice_points(*smooth)) if self.lattice == "lemma-5" else 0
        is_second = (t + len(situation.pending)) % 2 == 1  # in a batch, too
        boldness = _BOLDER if self.exploration == "practical" and is_second and _is_stalled(belief) else 1.0
        weights = dict.fromkeys(graph.factors, boldness * self.exploration_scale * math.sqrt(beta))
        return ConfidenceBounds.on_cube(belief.by_factor_ahead, sqrt_beta=weights, lattice_points=points)


def _is_stalled(belief: AdditiveGP) -> bool:
    """True if the posterior means of the last evaluations of one factor gained nothing."""
    if len(belief.graph.factors) > 1 or belief.has_time or belief.eligible.sum() <= _STUCK:
        return False
    means = belief.posterior_mean(belief.X[belief.eligible])
    earlier, best = float(means[:-_STUCK].max()), float(means.max())
    return best - earlier <= _GAIN * (best - float(np.median(means)))
