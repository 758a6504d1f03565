"""Add-GP-UCB, DEC-HBO and DuMBO: their formulas, groups given and learned, and identities of papers."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.confidence_bounds import DECHBO, AddGPUCB
from swarmbo.acquisition.dumbo import DuMBO
from swarmbo.acquisition.penalties import PenalisedFunctions
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior, SampledStructure
from swarmbo.belief.model.model import learned_belief
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.graph.box_functions import exchange, total_value
from swarmbo.graph.groups import graph_of_groups, random_groups
from swarmbo.problem.data import Dataset
from swarmbo_envs.functions import get

from .conftest import OVERLAPPING, moments, play, team_on, value_at

BELIEF = AdditiveGPSettings(max_iterations=20)
DISJOINT = {"f": ["a", "b"], "g": ["c"], "h": ["d", "e"]}


def by_hand(model, U: np.ndarray, weights: dict[str, float]) -> np.ndarray:
    return sum(mean + weights[factor] * np.sqrt(var) for factor, (mean, var) in moments(model, U).items())


def test_add_gp_ucb_weighs_each_group_by_its_own_size(situation_of) -> None:
    situation, kind = situation_of(DISJOINT, t=15), AddGPUCB()
    model = kind.learn(situation, BELIEF, None)
    U = np.random.default_rng(0).random((6, 5))
    weights = {f: np.sqrt(0.2 * d * np.log(30)) for f, d in (("f", 2), ("g", 1), ("h", 2))}
    found = total_value(kind.local_functions(situation, model), U)
    np.testing.assert_allclose(found, by_hand(model, U, weights), rtol=1e-9)


@pytest.mark.parametrize("stays", [True, False])
def test_the_bound_of_one_factor_is_bolder_in_every_second_query_once_nothing_is_gained(stays, situation_of) -> None:
    situation = situation_of({"whole": ["a", "b"]}, t=12, pending=1)
    totals = situation.history.X.sum(axis=1)
    # the best of all comes in the middle, or each is better than the one before
    order = np.roll(np.argsort(totals), 6) if stays else np.argsort(totals)
    X, totals = situation.history.X[order], totals[order]
    weights = list[float]()
    for t, p in ((11, 0), (12, 0), (12, 1)):  # the last two are a batch
        known = Dataset(X[:t], totals[:t], situation.history.factors[:t])
        now = replace(situation, history=known, pending=situation.pending[:p])
        functions = DECHBO().local_functions(now, DECHBO().learn(now, BELIEF, None))
        weights.append(functions.sqrt_beta["whole"] / np.sqrt(0.2 * 2 * np.log(2 * t)))
    np.testing.assert_allclose(weights, [3.0, 1.0, 3.0] if stays else [1.0] * 3)


@pytest.mark.slow
def test_dec_hbo_leaves_wrong_basins_of_the_shekel_function() -> None:
    shekel = get("shekel")
    for seed in (31, 32):
        scopes = {"whole": shekel.variables}
        team = team_on(shekel, scopes, acquisition="dec-hbo", seed=seed, rounds=90, initial=10)
        play(team, partial(value_at, shekel), 90)
        # the paper's regret; that of the wrong basin is 8.1
        assert shekel.maximum - max(team.history.totals) < 1.43


@pytest.mark.parametrize(
    ("kind", "beta"),
    [
        (DECHBO(), 0.2 * 3 * np.log(24)),
        (DECHBO(exploration="theory", grid=10, delta=0.2), 2 * np.log(10.0**5 * 4 * np.pi**2 * 12**2 / 6 / 0.2)),
        (DECHBO(exploration_scale=3.0), 9 * 0.2 * 3 * np.log(24)),
    ],
)
def test_dec_hbo_weighs_all_factors_alike(kind, beta, situation_of) -> None:
    situation = situation_of()
    model = kind.learn(situation, BELIEF, None)
    U = np.random.default_rng(1).random((6, 5))
    expected = by_hand(model, U, dict.fromkeys(model.belief.graph.factors, np.sqrt(beta)))
    np.testing.assert_allclose(total_value(kind.local_functions(situation, model), U), expected, rtol=1e-9)


SAMPLED = AdditiveGPSettings(structure=SampledStructure(samples=4, burn_in=0, moves=2))


def test_a_team_decides_the_same_on_the_papers_lattice_with_and_without_messages() -> None:
    X = np.random.default_rng(0).random((12, 3))
    found = []
    for as_agents in (False, True):
        rules = {"acquisition": DECHBO(lattice="lemma-5"), "coordination": sb.RefinedMaxSum(levels=1)}
        transport, bounds = sb.InProcess(as_agents=as_agents), dict.fromkeys("xyz", (0.0, 1.0))
        team = sb.Team(None, bounds, belief=SAMPLED, transport=transport, seed=1, **rules)
        team.attach(X, np.sin(7.0 * X[:, 0] * X[:, 2]) + X[:, 1])
        found.append((team.ask().point, team.last_report))
    assert found[0] == found[1]
    point, report = found[0]
    assert point["y"] > 0.5  # the outcome rises with it
    assert report.status == "max_rounds"  # one level is never as fine as wanted


def test_the_lattice_of_lemma_5_grows_with_the_square_of_the_evaluations(situation_of) -> None:
    points = []
    for t in (3, 6, 12):
        situation = situation_of(t=t)
        rule = DECHBO(lattice="lemma-5", delta=0.2, derivative_a=2.0, derivative_b=0.5)
        functions = rule.local_functions(situation, rule.learn(situation, BELIEF, None))
        points.append(functions.lattice_points)
        wanted = 5 * 0.5 * t**2 * np.sqrt(np.log(2 * 4 * 2.0 / 0.2))  # d b t² r sqrt(log(2 |U| a / delta)), r = 1
        assert functions.lattice_points == np.ceil(wanted)
        assert PenalisedFunctions.made_of(functions, penalties={}).lattice_points == functions.lattice_points
        fine = sb.RefinedMaxSum(coarse_entries=2**24).grids(functions.graph, functions).resolution
        assert fine.coarse == min(max(33, np.ceil(wanted)), 256 - fine.starts)  # 256³ entries
        small = sb.RefinedMaxSum(points=5, coarse_entries=2**6).grids(functions.graph, functions).resolution
        assert small.coarse <= 4  # tables stay within what was allowed
    assert points[0] < points[1] < points[2]
    assert DECHBO().local_functions(situation_of(), DECHBO().learn(situation_of(), BELIEF, None)).lattice_points == 0


@pytest.mark.parametrize(
    ("groups", "outcomes", "why"),
    [
        ("given", "total", r"variable 'b' is in the factors 'f', 'g'.*dec-hbo"),
        ("learned", "per-factor", "'learned' with outcomes per factor; wanted 'given'"),
    ],
)
def test_groups_that_do_not_fit_are_refused_before_anything_is_evaluated(groups: Any, outcomes: Any, why: str) -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"]})
    with pytest.raises(ConfigError, match=why) as refusal:
        sb.Team(graph, dict.fromkeys("abc", (0.0, 1.0)), acquisition=AddGPUCB(groups=groups), outcomes=outcomes)
    assert refusal.value.at == "$.acquisition.groups"


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


def test_the_grouping_with_the_most_evidence_is_used(situation_of) -> None:
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
    h, U = situation.history, situation.domain.to_unit(situation.history.X)
    y = np.sin(6.0 * U[:, 0] * U[:, 3]) + np.cos(5.0 * U[:, 1] + 4.0 * U[:, 2])  # a with d, b with c
    kind = AddGPUCB(groups="learned", group_size=2, groupings=20)  # three ways to pair four variables
    model = kind.learn(replace(situation, history=Dataset(h.X, y, h.factors)), AdditiveGPSettings(), None)
    assert {frozenset(scope) for scope in model.belief.graph.scopes} == {frozenset("ad"), frozenset("bc")}
    assert model.belief.graph.variables == ("a", "b", "c", "d")


def test_groups_are_kept_until_a_new_choice_is_due(situation_of) -> None:
    kind = AddGPUCB(groups="learned", group_size=2, learn_every=5)
    settings, learned, seen = AdditiveGPSettings(max_iterations=5, refit_every=2), None, []
    for t in range(10, 21):
        learned = kind.learn(situation_of(t=t), settings, learned).learned
        seen.append((learned.decomposed_at, learned.fitted_at))
    decomposed, fitted = zip(*seen, strict=True)
    assert decomposed == (10,) * 5 + (15,) * 5 + (20,)
    assert fitted == (10, 10, 12, 12, 14, 15, 15, 17, 17, 19, 20)
    assert sorted(v for group in learned.scopes for v in group) == list("abcde")


def test_groups_chosen_without_data_are_chosen_again_with_the_first_evaluation(situation_of) -> None:
    kind = AddGPUCB(groups="learned")
    blind = kind.learn(situation_of(t=0), BELIEF, None).learned
    assert (blind.decomposed_at, kind.learn(situation_of(t=1), BELIEF, blind).learned.decomposed_at) == (0, 1)


def test_groups_that_equal_the_given_scopes_by_chance_do_not_have_the_priors_of_given_factors(situation_of) -> None:
    settings = AdditiveGPSettings(max_iterations=5, factors={"f": FactorPrior(kernel="rbf")})
    situation = situation_of({"f": ["a"], "g": ["b"]}, seed=1)  # two of five groupings are the scopes, in their order
    model = AddGPUCB(groups="learned", group_size=1).learn(situation, settings, None)
    assert model.belief.hyperparameters.kernels == ("matern52", "matern52")


RING = {f"f{i}": [f"x{i}", f"x{(i + 1) % 5}"] for i in range(5)}
OUTCOMES = st.sampled_from(["total", "per-factor"])
APART = {"f": ["a", "b"], "g": ["c", "d"], "h": ["e"]}


def sum_of_slopes(functions: BoxFunctions, U: np.ndarray) -> np.ndarray:
    """The factors' gradients at a consensus, added up by variable."""
    stacks = stacks_of(functions.graph)
    points = [stack.take(U) for stack in stacks]
    received = exchange(functions, stacks, points)
    out = np.zeros_like(U)
    for stack, X, got in zip(stacks, points, received, strict=True):
        np.add.at(out.T, stack.columns, np.moveaxis(functions.value_and_gradient(stack, X, got)[1], 1, 2))
    return out


def slope_of_the_sum(functions: BoxFunctions, U: np.ndarray, step: float = 1e-6) -> np.ndarray:
    changes = [total_value(functions, U + e) - total_value(functions, U - e) for e in step * np.eye(U.shape[1])]
    return np.stack(changes, axis=1) / (2.0 * step)


@given(seed=st.integers(0, 10_000), scopes=st.sampled_from([RING, OVERLAPPING]), outcomes=OUTCOMES)
def test_where_agents_agree_coupled_slopes_add_up_to_that_of_the_acquisition(situation_of, seed, scopes, outcomes):
    situation, kind = situation_of(scopes, seed=seed, outcomes=outcomes, noise=3.0), DuMBO(coupled=True)
    functions = kind.local_functions(situation, kind.learn(situation, BELIEF, None))
    U = np.random.default_rng(seed).random((3, 5))
    exact = slope_of_the_sum(functions, U)
    np.testing.assert_allclose(sum_of_slopes(functions, U), exact, atol=2e-5 * np.abs(exact).max(), rtol=0)


def test_without_coupling_slopes_do_not_add_up_to_that_of_the_acquisition(situation_of) -> None:
    situation, kind = situation_of(RING, noise=3.0), DuMBO()
    functions = kind.local_functions(situation, kind.learn(situation, BELIEF, None))
    U = np.random.default_rng(0).random((3, 5))
    exact = slope_of_the_sum(functions, U)
    assert np.abs(sum_of_slopes(functions, U) - exact).max() > 0.01 * np.abs(exact).max()


def test_the_acquisition_is_that_of_the_paper_with_and_without_coupling(situation_of) -> None:
    situation = situation_of(OVERLAPPING, t=20)
    U = np.random.default_rng(5).random((6, 5))
    model = DuMBO().learn(situation, BELIEF, None)
    own = moments(model, U)
    # eq. (8) by hand: f is next to g; g next to f and i; h next to i; i next to g and h
    neighbours = {"f": "fg", "g": "fgi", "h": "hi", "i": "ghi"}
    spread = sum(np.sqrt(sum(own[k][1] / len(neighbours[k]) ** 2 for k in neighbours[i])) for i in neighbours)
    means = sum(mean for mean, _ in own.values())
    # by hand too: the sum of the four roots, squared, over the four variances, if all are 1
    excess = (np.sqrt(13 / 36) + np.sqrt(17 / 36) + np.sqrt(13 / 36) + np.sqrt(17 / 36)) ** 2 / 4
    for (exploration, d), coupled in itertools.product((("paper", 5), ("practical", 5 / excess)), (False, True)):
        functions = DuMBO(coupled=coupled, exploration=exploration).local_functions(situation, model)
        expected = means + np.sqrt(0.2 * d * np.log(2 * 20)) * spread
        np.testing.assert_allclose(total_value(functions, U), expected, rtol=1e-9)


def test_on_a_complete_graph_the_deviation_is_the_root_of_the_sum_of_all_variances(situation_of) -> None:
    scopes = {f"f{i}{j}": ["all", f"x{i}", f"x{j}"] for i, j in itertools.combinations(range(3), 2)}
    situation, kind = situation_of(scopes, t=15), DuMBO(exploration="paper", exploration_scale=2.0)
    model = kind.learn(situation, BELIEF, None)
    U = np.random.default_rng(6).random((5, 4))
    own = moments(model, U)
    mean, var = (sum(parts) for parts in zip(*own.values(), strict=True))
    bound = mean + 2.0 * np.sqrt(0.2 * 4 * np.log(30)) * np.sqrt(var)
    np.testing.assert_allclose(total_value(kind.local_functions(situation, model), U), bound, rtol=1e-9)


def test_on_disjoint_factors_dumbo_is_add_gp_ucb_except_for_the_weight(situation_of) -> None:
    situation = situation_of(APART, t=15)
    model = DuMBO().learn(situation, BELIEF, None)
    dumbo = DuMBO(exploration="theory").local_functions(situation, model)
    bounds = AddGPUCB().local_functions(situation, model)
    same_weight = replace(bounds, sqrt_beta=dict.fromkeys(bounds.graph.factors, dumbo.sqrt_beta))
    U = np.random.default_rng(7).random((5, 5))
    np.testing.assert_allclose(total_value(dumbo, U), total_value(same_weight, U), rtol=1e-12)
    for stack in stacks_of(dumbo.graph):
        zeros = (np.zeros((len(stack.factors), 5)),)
        slopes = [f.value_and_gradient(stack, stack.take(U), zeros)[1] for f in (dumbo, same_weight)]
        np.testing.assert_allclose(*slopes, rtol=1e-10, atol=1e-12)


def test_before_anything_was_received_neighbours_count_as_certain(situation_of) -> None:
    situation, kind = situation_of(OVERLAPPING), DuMBO(coupled=True)
    functions = kind.local_functions(situation, kind.learn(situation, BELIEF, None))
    for stack in stacks_of(functions.graph):
        X = np.random.default_rng(8).random((len(stack.factors), 4, stack.size))
        nothing = tuple(np.zeros((len(stack.factors), 4)) for _ in range(2))
        assert np.array_equal(functions.value(stack, X, ()), functions.value(stack, X, nothing))
        before, after = (functions.value_and_gradient(stack, X, received) for received in ((), nothing))
        assert all(map(np.array_equal, before, after))


def regret_on_powells_function(outcomes: str, seed: int, n: int, **settings) -> float:
    """Regret after n evaluations."""
    function = get("powell")
    scopes = {f: [function.variables[j] for j in s] for f, s in function.scopes.items()}
    rule = DuMBO(**settings)
    team = team_on(function, scopes, acquisition=rule, outcomes=outcomes, seed=seed, rounds=n, initial=10)

    def outcome(point):
        values = function.factor_values(np.array([[point[v] for v in function.variables]]))[0]
        return dict(zip(scopes, values, strict=True)) if outcomes == "per-factor" else values.sum()

    return -max(value_at(function, point) for point in play(team, outcome, n))


@pytest.mark.slow
@pytest.mark.parametrize(("outcomes", "at_most"), [("total", 1000.0), ("per-factor", 469.0)])
def test_the_regret_on_the_powell_function_is_near_that_of_the_paper(outcomes, at_most) -> None:
    # the paper has 496 and 469, means of five runs; with totals, regrets of seeds differ by a factor of ten
    found = [regret_on_powells_function(outcomes, seed, 150) for seed in range(3)]
    assert np.median(found) <= at_most
    assert regret_on_powells_function(outcomes, 1, 150, exploration="paper") > 1.5 * at_most
