"""Queries with some factors told: the other factors are pending, and their points are not asked again."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import Matern

import swarmbo as sb
from swarmbo.belief import AdditiveGP
from swarmbo.belief.model.incumbents import incumbent, means_at_pending, means_of
from swarmbo.deciding.joint import Rank
from swarmbo.errors import ConfigError, UnknownQueryError

from .teams import ask_and_tell

APART = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y", "z"]})
CHAIN = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "w"]})
PLACES = np.random.default_rng(5).random((7, 2))
RULES = ["expected-improvement", "dec-hbo", "dumbo", "auto", "thompson", "add-gp-ucb"]


def factors_at(graph, point):
    return {f: -sum((point[v] - 0.2 * (i + 1)) ** 2 for i, v in enumerate(graph.scope(f))) for f in graph.factors}


def team_of(graph, n_rounds=6, **settings):
    bounds = dict.fromkeys(graph.variables, (0.0, 1.0))
    made = sb.Team(graph, bounds, **{"outcomes": "per-factor", "initial": 4, "seed": 2, **settings})
    ask_and_tell(made, n_rounds, partial(factors_at, graph))
    return made


def variance_by_scikit_learn(belief, index, X, places):
    """Posterior variance of one factor by scikit-learn, given outcomes at X (t, a) of the unit cube."""
    h = belief.hyperparameters
    kernel = h.outputscales[index] * Matern(length_scale=h.lengthscales[index], nu=2.5)
    process = GaussianProcessRegressor(kernel, alpha=h.noise_variances[index], optimizer=None)
    process.fit(X, np.zeros(len(X)))
    return (process.predict(places, return_std=True)[1] * h.scales[index]) ** 2


@pytest.mark.parametrize("rule", RULES)
def test_pending_and_told_factors_reduce_the_variance_by_one_row_each(rule):
    team = team_of(APART, acquisition=rule, belief={"kind": "additive", "kernel": "matern52"})
    query = team.ask()
    team.tell(query, {"f": factors_at(APART, query.point)["f"]})
    for again in (team, sb.Team.from_state_dict(team.state_dict())):
        belief = again.model.belief
        done = belief.domain.to_unit(again.history.X)
        assert len(done) == 7
        for index, (factor, columns) in enumerate({"f": [0], "g": [1, 2]}.items()):
            wanted = variance_by_scikit_learn(belief, index, done[:, columns], PLACES[:, : len(columns)])
            got = belief.factor_posterior(factor, PLACES[:, : len(columns)])[1]
            np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-9)


def test_an_evaluation_with_a_missing_factor_is_not_the_incumbent():
    X = np.array([[0.2, 0.3, 0.4, 0.5], [0.7, 0.6, 0.8, 0.9]])
    belief = AdditiveGP(CHAIN, outcomes="per-factor").update(X, factors=[[1.0, 1.0, 1.0], [50.0, np.nan, 50.0]])
    np.testing.assert_array_equal(incumbent(belief), X[0])
    np.testing.assert_array_equal(incumbent(belief.update(X[1:], factors=[[50.0] * 3])), X[1])


def test_if_no_evaluation_is_complete_the_incumbent_has_the_largest_known_outcomes():
    X = np.array([[0.2, 0.3, 0.4, 0.5], [0.7, 0.6, 0.8, 0.9]])
    belief = AdditiveGP(CHAIN, outcomes="per-factor").update(X, factors=[[1.0, np.nan, 1.0], [50.0, np.nan, 50.0]])
    np.testing.assert_array_equal(incumbent(belief), X[1])


def test_a_better_pending_point_is_to_be_beaten_and_searches_start_from_evaluated_ones():
    X = np.random.default_rng(0).random((30, 4))
    factors = -np.column_stack([((X[:, i : i + 2] - 0.5) ** 2).sum(axis=1) for i in range(3)])
    belief = AdditiveGP(CHAIN, outcomes="per-factor").update(X, factors=factors).fit(np.random.default_rng(1))
    best = np.full(4, 0.5)
    rank = Rank(belief.condition_on_pending(best[None]))
    ((_, part),) = rank.parts()
    means = [means_of(rank.belief, part.factors), means_at_pending(rank.belief, part.factors)]
    found = rank.ranking([(part, np.hstack(means).sum(axis=0))])
    np.testing.assert_array_equal(found.beaten, best)
    np.testing.assert_array_equal(found.points[0], X[factors.sum(axis=1).argmax()])


@pytest.mark.parametrize(("outcomes", "told"), [("total", ["g"]), ("per-factor", ["f"]), ("per-factor", ["g", "h"])])
def test_pending_factors_give_the_variance_of_told_ones(outcomes, told):
    team = team_of(CHAIN, acquisition="dec-hbo", outcomes=outcomes)
    query = team.ask()
    values = factors_at(CHAIN, query.point)
    team.tell(query, {factor: values[factor] for factor in told})
    assert team.history.awaited.tolist()[-1] == [factor not in told for factor in CHAIN.factors]
    waiting = team.model.belief
    point = np.array([list(query.point.values())])
    later = waiting.update(point, factors=[[np.nan if factor in told else values[factor] for factor in CHAIN.factors]])
    X = np.random.default_rng(0).random((9, 4))
    np.testing.assert_allclose(waiting.posterior(X)[1], later.posterior(X)[1], rtol=1e-6, atol=1e-10)
    for factor, columns in {"f": [0, 1], "g": [1, 2], "h": [2, 3]}.items():
        got, wanted = (belief.factor_posterior(factor, X[:, columns])[1] for belief in (waiting, later))
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-10)
    assert waiting.n_pending == 1
    team.tell(query, {factor: values[factor] for factor in CHAIN.factors if factor not in told})
    assert team.model.belief.n_pending == 0
    assert not team.history.awaited.any()


def test_pending_points_keep_their_rounds_if_some_are_partly_told():
    team = team_of(APART, acquisition="dec-hbo", belief=sb.AdditiveGPSettings(time=sb.TimeAxis()))
    queries = team.ask(3)
    round_of = {tuple(query.point.values()): number for number, query in enumerate(queries, start=7)}
    team.tell(queries[0], {"f": 0.0})
    out = team._learner.situation(team._log, None).out
    assert [round_of[tuple(point)] for point in out.points.tolist()] == out.rounds.tolist() == [8, 9, 7]


def test_pending_points_keep_their_rounds_if_the_rounds_of_the_history_are_unknown():
    team = team_of(APART, n_rounds=2)
    team.ask(2)
    now = team._learner.situation(team._log, None)
    rounds = np.array([3.0, 4.0])
    now = replace(now, history=replace(now.history, rounds=None), pending_rounds=rounds)
    assert now.out.rounds is not None
    assert now.out.rounds.tolist() == [3.0, 4.0]
    partly = np.zeros_like(now.history.awaited)
    partly[0, 0] = True
    assert replace(now, history=replace(now.history, awaited=partly)).out.rounds is None  # not known for all


@pytest.mark.parametrize(("graph", "rule"), list(zip([APART, CHAIN] * 2, RULES, strict=False)))
def test_queries_keep_a_distance_from_pending_factors(graph, rule):
    team, out = team_of(graph, acquisition=rule), []
    for _ in range(3):
        query = team.ask()
        for factor, place in out:
            columns = graph.scope(factor)
            assert max(abs(query.point[v] - place[v]) for v in columns) > 1e-9, factor
        team.tell(query, {"f": factors_at(graph, query.point)["f"]})
        out += [(factor, query.point) for factor in graph.factors if factor != "f"]


def test_a_repeated_point_is_moved_in_the_variables_of_the_pending_factor(monkeypatch):
    corner = np.array([1.0, 0.0, 0.5])
    monkeypatch.setattr(sb.Random, "decide_joint", lambda *_: (corner, sb.SolveReport("exact")))
    team = team_of(APART, n_rounds=0, coordination="random", acquisition="dec-hbo", initial=1)
    team.tell(team.ask(), {"f": 0.0, "g": 0.0})
    first = team.ask()
    assert list(first.point.values()) == corner.tolist()
    team.tell(first, {"f": 1.0})
    second = team.ask().point
    gap = np.abs(np.array([second["y"], second["z"]]) - corner[1:])
    assert 1e-9 < gap.max() <= 1e-2


def test_with_totals_recommendations_change_no_query_after_a_partial_outcome():
    plain, with_recommendations = team_of(CHAIN, outcomes="total"), team_of(CHAIN, outcomes="total")
    for team in (plain, with_recommendations):
        team.tell(team.ask(), {"f": -0.1})
    for _ in range(2):
        with_recommendations.recommend()
        assert with_recommendations.ask(2) == plain.ask(2)
        assert with_recommendations.model.belief.n_data == 7
        assert not with_recommendations.model.belief.known.flags.writeable


TYPES = {"x": sb.Categorical([0.1, 0.5, 0.9]), "y": sb.Real(0.0, 1.0, step=0.25), "z": (0.0, 1.0), "w": (0.0, 1.0)}


@pytest.mark.parametrize(
    "settings",
    [
        {"acquisition": "dec-hbo"},
        {"acquisition": "dumbo", "outcomes": "per-factor"},
        {"outcomes": "per-factor"},  # transforms
        {"bounds": TYPES, "outcomes": "total"},  # several models of totals, which alternate
        {"graph": None},
        {"acquisition": "egp-ts", "belief": {"kind": "ensemble", "n_features": 20}},
        {"limits": {"q": (None, 0.9)}, "outcomes": "per-factor"},
    ],
    ids=lambda given: "-".join(given),
)
def test_a_recommendation_does_not_depend_on_pending_points(settings):
    given = {"graph": APART if settings.get("outcomes") == "per-factor" else CHAIN, "outcomes": "total"} | settings
    graph, rng, pending = given.pop("graph"), np.random.default_rng(0), list[sb.Query]()
    bounds = given.pop("bounds", dict.fromkeys("xyz" if graph is APART else "xyzw", (0.0, 1.0)))
    team = sb.Team(graph, bounds, initial=4, seed=2, **given)
    for _ in range(6):
        before = team.recommend()
        team.expect({v: 0.1 if v == "x" else 0.25 for v in team.graph.variables})
        assert team.recommend() == before
        for query in pending[1:]:  # one query is always pending
            told = factors_at(APART if graph is APART else CHAIN, query.point)
            limited = {"constraints": {"q": query.point["x"]}} if "limits" in settings else {}
            team.tell(query, told if given["outcomes"] == "per-factor" else sum(told.values()), **limited)
        pending = pending[:1]
        before = team.recommend()
        for _ in range(int(rng.integers(1, 4))):
            pending.append(team.ask())
            assert team.recommend() == before


def test_a_recommendation_with_pending_points_changes_no_decision_and_fits_once(monkeypatch):
    fits, fit = [], AdditiveGP.fit
    monkeypatch.setattr(AdditiveGP, "fit", lambda *args, **given: fits.append(1) or fit(*args, **given))
    team = team_of(APART, 8, acquisition="dec-hbo")
    twin = sb.Team.from_state_dict(team.state_dict())
    fits.clear()
    team.recommend()
    n_fits = len(fits)
    assert [team.ask() for _ in range(3)] == [(twin.ask(), team.recommend())[0] for _ in range(3)]
    assert len(fits) == 2 * n_fits  # without pending points, a recommendation and the next query need one fit


@settings(max_examples=6, deadline=None)
@given(st.lists(st.sampled_from(["f", "g", "h"]), min_size=3, max_size=3, unique=True), st.integers(1, 2))
def test_pending_factors_are_those_asked_and_neither_told_nor_given_up(order, cut):
    team = team_of(CHAIN, n_rounds=4, acquisition="dec-hbo")
    queries = [team.ask() for _ in range(2)]
    for factor in order[:cut]:
        team.tell(queries[0], {factor: 1.0})
    out = team._learner.situation(team._log, None).out
    assert out.points.tolist() == [list(queries[i].point.values()) for i in (1, 0)]
    assert out.awaited.tolist() == [[True] * 3, [factor not in order[:cut] for factor in CHAIN.factors]]
    for factor in order[cut:]:
        team.tell(queries[0], {factor: 1.0})
    assert team._learner.situation(team._log, None).out.points.tolist() == [list(queries[1].point.values())]
    team.tell(queries[1], {order[0]: 1.0})
    assert team.model.belief.n_pending == 1
    team.begin({})
    assert team.model.belief.n_pending == 0
    assert not team.history.awaited.any()


def test_pending_outcomes_do_not_count_in_the_box_of_their_factor():
    """They count once they are told; the box of a factor that was told reacts at once."""
    team = team_of(APART, n_rounds=8)
    before = team._learner.situation(team._log, None)
    query = team.ask()
    team.tell(query, {"f": -100.0})
    after = team._learner.situation(team._log, None)
    assert after.steps("f").sum() == before.steps("f").sum() + 1
    assert after.steps("g").sum() == before.steps("g").sum()
    team.tell(query, {"g": -100.0})
    assert team._learner.situation(team._log, None).steps("g").sum() == before.steps("g").sum() + 1


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_an_ensemble_conditions_on_pending_factors(outcomes):
    belief = {"kind": "ensemble", "kernels": ["matern52"], "lengthscales": [0.3], "n_features": 64}
    team = team_of(APART, belief=belief, acquisition="egp-ts", outcomes=outcomes)
    query = team.ask()
    team.tell(query, {"f": factors_at(APART, query.point)["f"]})
    model, point = team.model, np.array([list(query.point.values())])
    without_pending = model.ensemble.condition_on_pending(point[:0])
    assert model.posterior(point)[1][0] ** 2 < without_pending.posterior(point)[1][0] - 1e-9
    alone = point[:, 1:]
    assert model.belief.factor_posterior("g", alone)[1][0] < 1e-2 * np.square(model.belief.hyperparameters.scales[1])
    np.testing.assert_array_equal(model.awaited, [[False, True]])


@pytest.mark.parametrize("peer", ["isotropic-gp", "random", "sobol"])
def test_baselines_that_see_totals_continue_while_factors_are_pending(peer):
    team = team_of(APART, coordination=peer)
    for _ in range(4):
        team.tell(team.ask(), {"g": 0.5})
    asked = team.history.X[-4:]
    assert min(np.abs(a - b).max() for a, b in itertools.combinations(asked, 2)) > 1e-6


def test_expected_points_are_pending_and_given_up_queries_have_not_failed():
    bounds = dict.fromkeys("xy", (0.0, 1.0))
    team, other = (sb.Team(None, bounds, seed=3, initial=3) for _ in range(2))
    for one in (team, other):
        for number in range(5):
            one.tell(one.ask(), -float(number))
    free = other.ask().point
    theirs = team.expect(free)  # another program evaluates there
    asked = team.ask()
    assert abs(asked.point["x"] - free["x"]) + abs(asked.point["y"] - free["y"]) > 1e-6
    team.give_up(asked)
    assert list(team.pending) == [theirs]
    team.tell(theirs, 0.5)
    assert (team.n_data, team.failures, team.pending) == (6, 0, {})
    assert not team.history.chosen[-1]
    with pytest.raises(UnknownQueryError):
        team.give_up(theirs)
    with pytest.raises(ConfigError, match=r"\$\.point\.x: got 2\.0; wanted a number from 0 to 1"):
        team.expect({"x": 2.0, "y": 0.0})
    for evaluated in (team.expect, lambda point: team.tell(team.ask(), 0.0, point=point)):
        with pytest.raises(ConfigError, match=r"\$\.point: got 'z'; wanted a value for each of \['x', 'y'\]"):
            evaluated({"x": 0.5, "y": 0.0, "z": 1.0})
    with pytest.raises(ConfigError, match="attach what others measured"):
        sb.Team.for_field(["a"], [0.0], [1.0]).expect({"a": 0.5})
