"""Add-GP-UCB: upper confidence bounds of disjoint groups of variables, in sum (Kandasamy et al. 2015)."""

import math
from typing import Literal

import msgspec

from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.confidence_bounds import ConfidenceBounds
from swarmbo.acquisition.schedules import GroupExploration, group_beta, practical_beta
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.groupings import check_disjoint, graph_of_groups, random_groups
from swarmbo.belief.model.joint_situation import JointSituation, OutcomeMode
from swarmbo.belief.model.model import Learned, Model, given_out, learned_belief
from swarmbo.belief.structure import SampledStructure
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import Count, Positive, ProperFraction

_AT = "$.belief.structure"


@kind("acquisition", FUNCTION)
class AddGPUCB(Acquisition, frozen=True, tag="add-gp-ucb"):
    """Sum over disjoint groups of mu_j + sqrt(beta) sigma_j (Kandasamy et al. 2015, eq. (9) and algorithm 1).

    With ``groups = "learned"`` the scopes of the team's graph are not used. Every ``learn_every`` evaluations the
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
    exploration: GroupExploration = "practical"
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
                "got 'learned' with outcomes per factor; wanted 'given': those are the outcomes of given factors",
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
            betas = {factor: practical_beta(size, t) for factor, size in sizes.items()}
        else:
            n_groups, n_dims = len(sizes), len(graph.variables)
            betas = {factor: group_beta(size, n_groups, n_dims, t, self.delta) for factor, size in sizes.items()}
        weights = {factor: self.exploration_scale * math.sqrt(beta) for factor, beta in betas.items()}
        return ConfidenceBounds.on_cube(model.belief, sqrt_beta=weights)


def check_structure(settings: AdditiveGPSettings, acquisition: Acquisition, outcomes: OutcomeMode) -> None:
    """Refuse a learned structure that contradicts the outcomes or the acquisition."""
    structure = settings.structure
    if structure is None:
        return
    if outcomes == "per-factor":
        raise ConfigError("got outcomes per factor; wanted totals: those outcomes are of given factors", at=_AT)
    if isinstance(acquisition, AddGPUCB):
        kind = structure.__struct_config__.tag
        if acquisition.groups == "learned":
            raise ConfigError(f"got {kind!r}, and 'learned' in $.acquisition.groups; wanted one of them", at=_AT)
        is_disjoint = isinstance(structure, SampledStructure) and structure.samples == 1
        if not is_disjoint:
            wanted = "sampled with samples = 1, or kind = 'dec-hbo', where scopes may overlap"
            raise ConfigError(f"got {kind!r}, whose scopes overlap, for Add-GP-UCB; wanted {wanted}", at=_AT)
