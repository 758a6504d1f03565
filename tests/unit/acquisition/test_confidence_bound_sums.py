"""Add-GP-UCB and DEC-HBO: their formulas, groups given and learned."""

import numpy as np
import pytest

from swarmbo.acquisition.add_gp_ucb import AddGPUCB
from swarmbo.acquisition.dec_hbo import DECHBO
from swarmbo.acquisition.groupings import graph_of_groups, random_groups
from swarmbo.acquisition.joint_situation import History
from swarmbo.acquisition.model import learned_belief
from swarmbo.belief.additive_settings import AdditiveGPSettings
from swarmbo.coordination.local_functions import total_value
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.rng import stream

BELIEF = AdditiveGPSettings(max_iterations=20)
DISJOINT = {"f": ["a", "b"], "g": ["c"], "h": ["d", "e"]}


def by_hand(model, U: np.ndarray, weights: dict[str, float]) -> np.ndarray:
    graph, X = model.belief.graph, model.belief.domain.from_unit(U)
    place = {variable: i for i, variable in enumerate(graph.variables)}
    total = np.zeros(len(U))
    for factor in graph.factors:
        mean, var = model.belief.factor_posterior(factor, X[:, [place[v] for v in graph.scope(factor)]])
        total += mean + weights[factor] * np.sqrt(var)
    return total


def test_add_gp_ucb_weighs_each_group_by_its_own_size(situation_of) -> None:
    situation, kind = situation_of(DISJOINT, t=15), AddGPUCB()
    model = kind.learn(situation, BELIEF, None)
    U = np.random.default_rng(0).random((6, 5))
    weights = {f: np.sqrt(0.2 * d * np.log(30)) for f, d in (("f", 2), ("g", 1), ("h", 2))}
    np.testing.assert_allclose(
        total_value(kind.local_functions(situation, model), U), by_hand(model, U, weights), rtol=1e-9
    )


@pytest.mark.parametrize(
    ("kind", "beta"),
    [
        (DECHBO(), 0.2 * 3 * np.log(24)),
        (DECHBO(beta="theory", grid=10, delta=0.2), 2 * np.log(10.0**5 * 4 * np.pi**2 * 12**2 / 6 / 0.2)),
        (DECHBO(exploration_scale=3.0), 9 * 0.2 * 3 * np.log(24)),
    ],
)
def test_dec_hbo_weighs_all_factors_alike(kind, beta, situation_of) -> None:
    situation = situation_of()
    model = kind.learn(situation, BELIEF, None)
    U = np.random.default_rng(1).random((6, 5))
    expected = by_hand(model, U, dict.fromkeys(model.belief.graph.factors, np.sqrt(beta)))
    np.testing.assert_allclose(total_value(kind.local_functions(situation, model), U), expected, rtol=1e-9)


def test_groups_that_overlap_are_refused_with_the_variable_and_a_way_out(situation_of) -> None:
    with pytest.raises(ConfigError, match=r"variable 'b' is in the factors 'f', 'g'.*dec-hbo") as refusal:
        AddGPUCB().learn(situation_of(), BELIEF, None)
    assert refusal.value.at == "$.acquisition.groups"


def test_groups_are_not_learned_from_outcomes_of_given_factors(situation_of) -> None:
    with pytest.raises(ConfigError, match="outcomes per factor"):
        AddGPUCB(groups="learned").learn(situation_of(outcomes="per-factor"), BELIEF, None)


def test_random_groups_partition_the_variables_and_differ(situation_of) -> None:
    graph = situation_of().graph
    drawn = {random_groups(graph, 2, np.random.default_rng(seed)) for seed in range(20)}
    assert len(drawn) > 10
    for groups in drawn:
        assert [len(group) for group in groups] == [2, 2, 1]
        assert sorted(v for group in groups for v in group) == sorted(graph.variables)


def test_a_graph_of_groups_keeps_variables_and_owners_and_avoids_their_names() -> None:
    scopes = {"f": ["group_0", "x"], "g": ["y"]}
    graph = FactorGraph.from_scopes(scopes, owners={"f": "ann", "g": "bob"})
    grouped = graph_of_groups(graph, [("y", "group_0"), ("x",)])
    assert grouped.variables == ("group_0", "x", "y")
    assert grouped.variable_owners == ("ann", "ann", "bob")
    assert grouped.factor_owners == ("bob", "ann")
    assert grouped.scopes == (("y", "group_0"), ("x",))
    assert not set(grouped.factors) & set(grouped.variables)
    assert grouped.is_forest
    assert [part.variables for part in grouped.components] == [("y", "group_0"), ("x",)]


def test_of_the_groupings_tried_the_one_with_the_most_evidence_is_taken(situation_of) -> None:
    situation, kind = situation_of(t=20), AddGPUCB(groups="learned", group_size=2, groupings=4)
    model = kind.learn(situation, BELIEF, None)
    evidences = []
    for i in range(4):
        groups = random_groups(situation.graph, 2, stream(0, "add-gp-ucb", "grouping", evaluations=20, candidate=i))
        graph = graph_of_groups(situation.graph, groups)
        evidences.append(learned_belief(situation, graph, situation.history, BELIEF, None)[0].log_evidence())
    assert model.belief.log_evidence() == max(evidences) > min(evidences)


def test_groups_that_explain_the_data_are_found(situation_of) -> None:
    situation = situation_of({"f": ["a", "b"], "g": ["c", "d"]}, t=60)
    rng = np.random.default_rng(0)
    X = situation.domain.from_unit(rng.random((60, 4)))
    U = situation.domain.to_unit(X)
    y = np.sin(6.0 * U[:, 0] * U[:, 3]) + np.cos(5.0 * U[:, 1] + 4.0 * U[:, 2])  # a with d, b with c
    situation = type(situation)(**{**vars(situation), "history": History(X, y, np.full((60, 2), np.nan))})
    kind = AddGPUCB(groups="learned", group_size=2, groupings=20)  # three ways to pair four variables
    model = kind.learn(situation, AdditiveGPSettings(), None)
    assert {frozenset(scope) for scope in model.belief.graph.scopes} == {frozenset("ad"), frozenset("bc")}
    assert model.belief.graph.variables == ("a", "b", "c", "d")


def test_groups_stay_until_they_are_due(situation_of) -> None:
    kind = AddGPUCB(groups="learned", group_size=2, learn_every=5)
    settings = AdditiveGPSettings(max_iterations=5, refit_every=2)
    learned, seen = None, []
    for t in range(10, 21):
        learned = kind.learn(situation_of(t=t), settings, learned).learned
        seen.append((t, learned.decomposed_at, learned.fitted_at))
    assert [(t, at) for t, at, _ in seen] == [(t, 10 + 5 * ((t - 10) // 5)) for t in range(10, 21)]
    assert [fitted for _, _, fitted in seen] == [10, 10, 12, 12, 14, 15, 15, 17, 17, 19, 20]
    assert learned is not None
    assert sorted(v for group in learned.scopes for v in group) == list("abcde")


def test_groups_chosen_without_data_are_chosen_again_with_the_first(situation_of) -> None:
    kind = AddGPUCB(groups="learned")
    blind = kind.learn(situation_of(t=0), BELIEF, None).learned
    assert (blind.decomposed_at, kind.learn(situation_of(t=1), BELIEF, blind).learned.decomposed_at) == (0, 1)
