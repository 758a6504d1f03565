"""Known noise of outcomes: told, attached, reported by environments, shared, logged and saved."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.spaces import Box

import swarmbo as sb
from swarmbo.belief.model.warping import Warp
from swarmbo.errors import ConfigError, ShapeError, UnknownQueryError
from swarmbo.runs.recording import record_reset, record_round
from swarmbo.testing import check_environment
from swarmbo.worlds import Report

from .teams import CHAIN, CUBE, Played, saved


def field_team(**changes):
    return sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[2.0, 3.0], seed=1, **changes)


def function_team(outcomes="total", **changes):
    return sb.Team(CHAIN, CUBE, outcomes=outcomes, initial=4, seed=1, **changes)


def depth(x):
    return float(np.sin(2.0 * x[0]) + x[1])


def told_field(team, rounds=3, noise=None):
    for query in team.ask(rounds):
        team.tell(query, {agent: depth(x) for agent, x in query.points.items()}, noise_std=noise)
    return team


def test_stated_noise_reaches_the_belief_and_the_history():
    team = field_team()
    for query in team.ask(3):
        team.tell(query, {a: 40.0 * depth(x) for a, x in query.points.items()}, noise_std={"a": 2.0, "b": 60.0})
    team.attach([[0.3, 0.4], [1.7, 2.2]], [36.0, 80.0], noise_std=[8.0, np.nan])
    team.refit()
    belief, history = team.belief, team.history
    std = np.sqrt(belief.noise[:, 1])
    assert sorted(std[np.isfinite(std)].tolist()) == pytest.approx([2.0] * 3 + [8.0] + [60.0] * 3)
    np.testing.assert_array_equal(history.noise_std[:3, 1:], [[2.0, 60.0]] * 3)
    np.testing.assert_array_equal(history.noise_std[3:, 1], [8.0, np.nan])


CI = pytest.param("covariance-intersection", marks=pytest.mark.slow)


@pytest.mark.parametrize("method", ["readings", "experts", "consensus", CI])
def test_agents_with_local_beliefs_receive_noise_with_measurements(method):
    def team(noise):
        return told_field(field_team(belief={"kind": "fused", "method": method, "steps": 12}), noise=noise)

    with_noise, without_noise = team({"a": 0.05, "b": 3.0}), team(None)
    for agent in ("a", "b"):
        own = with_noise.belief.agents[agent]
        np.testing.assert_array_equal(own.noise, [0.05**2 if agent == "a" else 9.0] * 3)
    place = np.array([next(iter(with_noise.history.X[:, 2:]))])  # where b, whose noise is large, measured first
    variances = [each.belief.views.by_agent["a"].posterior(place)[1][0] for each in (with_noise, without_noise)]
    assert variances[0] > 2.0 * variances[1]
    assert saved(with_noise).ask().point == with_noise.ask().point


def test_known_noise_takes_nine_bytes_per_flooded_measurement_and_none_in_consensus():
    def sharing(method, noise):
        team = field_team(belief={"kind": "fused", "method": method, "steps": 12})
        query = team.ask()
        team.tell(query, {agent: depth(x) for agent, x in query.points.items()}, noise_std=noise)
        team.ask()
        return team.sent["sharing"]

    assert sharing("readings", 0.1).bytes == sharing("readings", None).bytes + 2 * 9
    assert sharing("consensus", 0.1) == sharing("consensus", None)


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_known_noise_of_a_sum_stays_with_its_outcome_and_is_saved(outcomes):
    team = function_team(outcomes)
    for step, query in enumerate(team.ask(6)):
        x, y, z = query.point.values()
        parts = {"f": x * y, "g": (y - z) ** 2}
        if outcomes == "total":
            team.tell(query, sum(parts.values()), noise_std=0.1 * step)
        else:
            team.tell(query, {"f": parts["f"]}, noise_std=0.1 * step)
            team.tell(query, {"g": parts["g"]}, noise_std={"g": None})
    known = 0.1 * np.arange(6)
    column = 0 if outcomes == "total" else 1
    np.testing.assert_array_equal(team.history.noise_std[:, column], known)
    assert np.isnan(team.history.noise_std[:, 2]).all()
    loaded = saved(team)
    np.testing.assert_array_equal(loaded.history.noise_std, team.history.noise_std)
    assert loaded.ask().point == team.ask().point


def test_variances_of_all_factors_add_up_to_the_variance_of_the_total():
    team = function_team()
    query = team.ask()
    team.tell(query, {"f": 1.0, "g": 2.0}, noise_std={"f": 0.3, "g": 0.4})
    team.attach([[0.1, 0.2, 0.3]], [[1.0, 2.0]], noise_std=[[0.6, np.nan]])
    team.attach([[0.1, 0.2, 0.3]], [3.0])
    np.testing.assert_allclose(team.history.noise_std, [[0.5, 0.3, 0.4], [np.nan, 0.6, np.nan], [np.nan] * 3])
    assert team.history.totals.tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("acquisition", ["auto", "dec-hbo", "thompson", "expected-improvement", "egp-ts"])
@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_an_outcome_with_very_large_noise_has_no_effect(acquisition, outcomes):
    """An outlier changes the recommendation, unless the team knows its very large noise."""
    belief = sb.EnsembleSettings(n_features=20) if acquisition == "egp-ts" else sb.AdditiveGPSettings()
    X = np.random.default_rng(3).random((14, 3))
    parts = np.column_stack([-((X[:, 0] - X[:, 1]) ** 2), -((X[:, 1] - X[:, 2]) ** 2)])
    wild = parts.copy()
    wild[5] += 2.0
    y, noise = (wild, np.full((14, 2), 0.01)) if outcomes == "per-factor" else (wild.sum(axis=1), np.full(14, 0.01))
    noise[5] = 10.0
    best = []
    for std in (noise, None):
        team = function_team(outcomes, belief=belief, acquisition=acquisition)
        team.attach(X, y, noise_std=std)
        best.append(np.array(team.recommend().location))
    np.testing.assert_allclose(best[1], X[5])
    assert (np.abs(best[0] - X[5]) > 0.01).any()


def test_noise_of_transformed_totals_is_in_their_unit():
    graph = sb.FactorGraph.from_scopes({"f": ["a", "b"], "g": ["c", "d"]})
    X = np.random.default_rng(0).random((40, 4))
    y = -(((4.0 * X - 1.5) ** 2).sum(axis=1) ** 3)
    std, team = np.linspace(1e-3, 2e-3, 40), sb.Team(graph, dict.fromkeys("abcd", (0.0, 1.0)))
    team.attach(X, y, noise_std=std)
    model = team.model
    assert model.warp.kind == "power"
    wanted = (model.warp.forward(y + std) - model.warp.forward(y - std)) / 2.0
    np.testing.assert_allclose(np.sqrt(model.belief.noise[:, 0]), wanted, rtol=1e-2)


def test_noise_of_totals_is_that_of_the_only_factor():
    X = np.random.default_rng(0).random((20, 2))
    team = sb.Team(sb.FactorGraph.from_scopes({"f": ["a", "b"]}), dict.fromkeys("ab", (0.0, 1.0)))
    team.attach(X, np.sin(6.0 * X[:, 0] * X[:, 1]), noise_std=0.2)
    hyper = team.model.belief.hyperparameters
    assert hyper.noise_variances[0] * hyper.scales[0] ** 2 == pytest.approx(0.04)


@pytest.mark.parametrize("kind", ["power", "log"])
def test_noise_of_a_transformed_outcome_is_exact_for_small_noise(kind):
    y = np.array([-30.0, -4.0, -2.0, -1.0, -0.5])
    warp = Warp.fitted(kind, y, 0.5)
    std = warp.noise_std(y, np.array([0.01, 0.01, np.nan, 1e-3, 1e-4]))
    drawn = warp.forward(y + np.array([0.01, 0.01, 0.0, 1e-3, 1e-4]) * np.random.default_rng(0).normal(size=(40000, 5)))
    np.testing.assert_allclose(std[[0, 1, 3, 4]], drawn.std(axis=0)[[0, 1, 3, 4]], rtol=0.03)
    assert np.isnan(std[2])


def test_invalid_noise_is_refused_and_nothing_is_learned():
    team, query = field_team(), None
    query = team.ask()
    told = {agent: depth(x) for agent, x in query.points.items()}
    for noise, message in ((-1.0, "got -1.0; wanted a finite number >= 0"), ({"a": "small"}, "of 'a': got 'small'")):
        with pytest.raises(ShapeError, match=message):
            team.tell(query, told, noise_std=noise)
    with pytest.raises(UnknownQueryError, match=r"noise_std of \['b'\] without outcomes"):
        team.tell(query, {"a": 1.0}, noise_std={"b": 1.0})
    with pytest.raises(ShapeError, match=r"noise_std\[1\]: got -2.0"):
        team.attach([[0.1, 0.1], [0.2, 0.2]], [1.0, 2.0], noise_std=[1.0, -2.0])
    with pytest.raises(ShapeError, match=r"got shape \(3,\) for 2 points; wanted a number, \(2,\)$"):
        team.attach([[0.1, 0.1], [0.2, 0.2]], [1.0, 2.0], noise_std=[1.0, 2.0, 3.0])
    assert team.n_data == 0
    total = function_team()
    with pytest.raises(ConfigError, match="of a total; wanted a number"):
        total.tell(total.ask(), 1.0, noise_std={"f": 1.0})


class Sensors(Played):
    """Two sensors in one field, or of two factors, that report their noise."""

    def __init__(self, noise, told):
        super().__init__({agent: Box(0.0, 1.0, (1,), np.float64) for agent in "ab"}, cycles=8)
        self.noise, self.told = noise, told

    def tells(self, actions):
        y = {agent: float(np.sin(3.0 * x[0])) + 0.1 * self.rng.normal() for agent, x in actions.items()}
        told = {}
        for agent, factor in zip(actions, "fg", strict=True):
            value, noise = sum(y.values()) if self.told == "total" else y[agent], self.noise[agent]
            by_factor = {"factors": {factor: value}, "noise_std": {factor: noise}}
            told[agent] = by_factor if self.told == "per-factor" else {"measurement": value, "noise_std": noise}
            told[agent]["location"] = actions[agent]
        return told


class Factors(Sensors):
    """The same sensors as agents of a function."""

    def factor_graph(self):
        owners = {"variable_owners": {"x": "a", "y": "b"}, "owners": {"f": "a", "g": "b"}}
        bounds = dict.fromkeys("xy", (0.0, 1.0))
        return {"bounds": bounds, "scopes": {"f": ["x", "y"], "g": ["y"]}, "outcomes": self.told, **owners}


def world(noise, told):
    return (Sensors if told == "field" else Factors)(noise, told)


@pytest.mark.parametrize("told", ["field", "total", "per-factor"])
def test_noise_that_an_environment_reports_is_used_and_logged(told):
    env = world({"a": 0.1, "b": 0.4}, told)
    check_environment(lambda: world({"a": 0.1, "b": 0.4}, told))
    team = sb.Team.for_env(env, seed=0)
    observations, infos = env.reset(seed=0)
    record = record_reset(team, infos, None)
    actions = team.act(observations, infos)
    step = env.step(actions)
    team.observe(*step)
    record = record_round(record, team, actions, step[-1], [], None)
    known = {"field": [np.nan, 0.1, 0.4], "total": [0.1, np.nan, np.nan], "per-factor": [np.sqrt(0.17), 0.1, 0.4]}
    np.testing.assert_allclose(team.history.noise_std, [known[told]])
    if told == "field":
        assert [sample.noise_std for sample in record.samples] == [0.1, 0.4]
    else:
        assert record.joint.noise_std == (0.1 if told == "total" else {"f": 0.1, "g": 0.4})
        assert record.best.std == pytest.approx(record.joint.known_noise)


def test_invalid_noise_that_an_environment_reports_counts_as_unknown():
    for nonsense in (-1.0, "small", np.nan, np.inf, None, {"f": -1.0}):
        report = Report.of({"measurement": 1.0, "noise_std": nonsense})
        assert np.isnan(report.noise_std)
        assert report.factor_noise == {}
    with pytest.raises(AssertionError, match="noise_std"):
        check_environment(lambda: Sensors({"a": -0.1, "b": 0.4}, "field"))


def test_rows_with_unknown_noise_can_follow_rows_with_known_noise():
    team = function_team()
    team.attach([[0.1, 0.2, 0.3]], [1.0], noise_std=0.5)
    known = team.history
    both = known.then(replace(known, noise_std=None))
    np.testing.assert_array_equal(both.noise_std[:, 0], [0.5, np.nan])
    assert both.begins_with(known)
    assert not replace(both, noise_std=None).begins_with(known)


def test_tables_state_noise_in_columns():
    rows = [{"x": 0.1 * i, "y": 0.5, "z": 0.5, "f": 1.0, "g": 2.0, "sd": 0.1 * i, "sd_g": 1.0} for i in range(3)]
    team = function_team("per-factor")
    team.attach(rows, noise_std={"f": "sd", "g": "sd_g"})
    np.testing.assert_allclose(team.history.noise_std[:, 1:], [[0.1 * i, 1.0] for i in range(3)])
    long = [{"x": 0.1, "y": 0.5, "z": 0.5, "factor": f, "value": 1.0, "sd": s} for f, s in (("f", 0.2), ("g", None))]
    team.attach(long, noise_std="sd")
    np.testing.assert_array_equal(team.history.noise_std[3, 1:], [0.2, np.nan])
    with pytest.raises(ConfigError, match="no column 'std'; columns"):
        team.attach(rows, noise_std="std")
    field = field_team()
    field.attach([{"x": 0.1, "y": 0.2, "value": 1.0, "sd": 0.3, "agent": "b"}], noise_std="sd")
    np.testing.assert_array_equal(field.history.noise_std[0], [np.nan, np.nan, 0.3])


@pytest.mark.parametrize("unknown", [None, np.nan, np.float32("nan"), {"a": np.nan, "b": None}])
def test_noise_that_is_not_known_may_be_told_as_none_or_nan(unknown):
    team = field_team()
    query = team.ask()
    with pytest.raises(ShapeError, match=r"got inf; wanted a finite number >= 0 and < 1e\+60, or None or NaN"):
        team.tell(query, {"a": 1.0}, noise_std=np.inf)
    team.tell(query, {"a": 1.0, "b": 2.0}, noise_std=unknown)
    assert np.isnan(team.history.noise_std).all()


def test_a_table_s_column_noise_std_is_read_by_default():
    rows = [{"x": 0.1, "y": 0.2, "value": 1.0, "noise_std": 0.5}, {"x": 0.9, "y": 0.2, "value": 2.0}]
    for stated, known in ((None, [0.5, np.nan]), (0.3, [0.3, 0.3]), (np.nan, [np.nan, np.nan])):
        team = sb.Team.for_field(["a"], [0.0, 0.0], [1.0, 1.0])
        team.attach(rows, noise_std=stated)
        np.testing.assert_array_equal(team.history.noise_std[:, 1], known)
    with pytest.raises(ShapeError, match=r"noise_std\[0\]: got -0.5; wanted a finite number >= 0"):
        team.attach([rows[0] | {"noise_std": -0.5}])
    factors = function_team("per-factor")
    row = {"x": 0.1, "y": 0.2, "z": 0.3, "factor": "f", "value": 1.0, "noise_std": 0.5}
    factors.attach([row, row | {"factor": "g", "noise_std": 0.7}])
    np.testing.assert_array_equal(factors.history.noise_std[:, 1:], [[0.5, 0.7]])
    own = sb.Team(None, {"x": (0.0, 1.0), "noise_std": (0.0, 1.0)})
    own.attach([{"x": 0.1, "noise_std": 0.2, "total": 1.0}])
    assert np.isnan(own.history.noise_std[:, 0]).all()
