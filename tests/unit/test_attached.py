"""Attached evaluations are data for models, and count as neither successes nor failures of a search."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.acquisition.trust_region import Restarts, TrustRegion
from swarmbo.baselines.turbo import TurboRegion

from .teams import CHAIN, tell

GRAPHS = {
    "shared": CHAIN,
    "one factor": sb.FactorGraph.from_scopes({"f": ["x", "y"]}),
    "apart": sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]}),
}


def value(x):
    return -float(((np.asarray(x) - 0.4) ** 2).sum())


def team_of(name, outcomes="total", **more):
    graph = GRAPHS[name]
    bounds = dict.fromkeys(graph.variables, (0.0, 1.0))
    return sb.Team(graph, bounds, outcomes=outcomes, seed=4, **{"initial": 5, **more})


def told(team, query):
    scopes = dict(zip(team.graph.factors, team.graph.scopes, strict=True))
    tell(team, query, lambda point: {f: value([point[v] for v in scope]) for f, scope in scopes.items()})


def attach(team, X):
    """Attach bad outcomes, none of which can be the incumbent's."""
    k = len(team.graph.factors)
    team.attach(X, np.full((len(X), k) if team.outcomes == "per-factor" else len(X), -9.0))


def box_of(team):
    """Bounds of the box in which the next decision is made."""
    functions = team.acquisition.local_functions(team._learner.situation(team._log, None), team.model)
    return functions.low, functions.high


@pytest.mark.parametrize(
    ("name", "outcomes"),
    [
        ("apart", "per-factor"),
        pytest.param("one factor", "total", marks=pytest.mark.slow),
        pytest.param("shared", "total", marks=pytest.mark.thorough),
    ],
)
def test_attached_points_do_not_shrink_the_box(name, outcomes):
    """Before, thirty attached bad points halved the box down to its smallest side."""
    rule = {"kind": "auto", "box": {"initial": 0.4, "successes": 99, "failures": 7}}  # more than the number of steps
    rng, n = np.random.default_rng(1), len(GRAPHS[name].variables)
    for when in ("first", "between", "one by one", "while pending"):
        team = team_of(name, outcomes, acquisition=rule)
        if when == "first":
            attach(team, rng.random((30, n)))
        for _ in range(6):
            query = team.ask()
            if when == "while pending":
                attach(team, rng.random((5, n)))
            told(team, query)
            if when == "one by one":
                for x in rng.random((5, n)):
                    attach(team, x[None])
        if when == "between":
            attach(team, rng.random((30, n)))
        low, high = box_of(team)
        assert (high - low).max() > 0.15, when
        assert team.history.attached.sum() == 30


@given(st.data())
def test_attached_points_change_no_box_restart_or_region(data):
    """Attached outcomes are worse than all requested ones, and come at any time."""
    asked = np.array(data.draw(st.lists(st.one_of(st.floats(-5.0, 5.0), st.just(np.nan)), min_size=4, max_size=40)))
    places = sorted(data.draw(st.lists(st.integers(0, len(asked)), max_size=12)))
    mixed, is_own = np.insert(asked, places, -99.0), np.insert(np.ones(len(asked), dtype=bool), places, False)
    chosen = np.cumsum(is_own) * is_own > 3  # after a design of three
    box, region = TrustRegion(failures=2), TurboRegion(failures=2, fresh=2)
    if np.isfinite(asked[:3]).any():
        assert box.state(mixed, steps=chosen).side == box.state(asked, 3).side
    after = np.arange(len(asked)) >= 3
    one, other = region.replay(mixed, chosen, chosen, 2), region.replay(asked, after, after, 2)
    if np.isfinite(asked[:3]).any() and not other.restarts:
        assert (one.length, one.n_fresh) == (other.length, other.n_fresh)
    restarts = Restarts(after=4, gain=0.0)
    alone = restarts.is_due(asked, since=0, start=3, patience=1)
    assert restarts.is_due(mixed, since=0, start=0, patience=1, steps=chosen) == alone or not np.isfinite(asked).any()


def test_a_good_attached_point_becomes_the_incumbent():
    steps = np.array([False, False, True, True])
    assert TrustRegion(failures=2).state(np.array([0.0, 9.0, 1.0, 2.0]), steps=steps).side == 0.2
    team = team_of("one factor", acquisition="auto")
    for _ in range(6):
        told(team, team.ask())
    team.attach([[0.91, 0.07]], [50.0])
    assert list(team.recommend().point.values()) == [0.91, 0.07]
    low, high = box_of(team)
    assert (low <= [0.91, 0.07]).all()
    assert (high >= [0.91, 0.07]).all()


def test_attached_points_do_not_restart_a_search():
    rule = {"kind": "auto", "restarts": {"after": 3, "fresh": 2}}
    team, kept = team_of("one factor", acquisition=rule), team_of("one factor", acquisition=rule)
    rng = np.random.default_rng(0)
    for _ in range(7):
        told(team, team.ask())
    for _ in range(4):
        attach(team, rng.random((6, 2)))
        assert team.model.learned.restarted_at == 0
    kept.load_state_dict(team.state_dict())
    assert kept.model.learned.restarted_at == 0


def test_the_history_marks_attached_and_chosen_rows_also_after_loading():
    team = team_of("apart", "per-factor", initial=3)
    team.attach([[0.1, 0.2]], [[1.0, 2.0]])
    first, second, third = team.ask(), team.ask(), team.ask()
    team.attach([[0.3, 0.2], [0.4, 0.4]], [[1.0, 2.0], [np.nan, 1.0]])
    told(team, third)
    told(team, first)
    team.tell(second, {"g": 1.0})
    resumed = sb.Team.from_state_dict(team.state_dict())
    for again in (team, resumed):
        assert again.history.attached.tolist() == [True, True, True, False, False, False]
        assert again.history.chosen.tolist() == [False, False, False, True, False, False]  # in the order of telling
        assert again.history.awaited.tolist() == [[False, False]] * 5 + [[True, False]]
    assert team.ask().point == resumed.ask().point


def test_attached_points_do_not_change_generations_of_cma_es():
    pytest.importorskip("cma")
    alone, given_more = (team_of("one factor", coordination="cma-es") for _ in range(2))
    for number in range(9):
        query, same = alone.ask(), given_more.ask()
        assert query.point == same.point
        told(alone, query)
        told(given_more, same)
        if number >= 4:  # an earlier one would count for the initial design
            attach(given_more, np.random.default_rng(number).random((3, 2)))


def test_reading_the_belief_fits_it_to_attached_data_and_changes_no_decision_or_state():
    """Before, it kept the prior's hyper-parameters until a decision, so a map's error was twice that of ``refit``."""
    X = np.random.default_rng(3).random((40, 2))
    y = np.sin(9.0 * X[:, 0]) + X[:, 1]
    there = np.random.default_rng(4).random((50, 2))
    read, other = (sb.Team.for_field(["a", "b"], [0.0, 0.0], [1.0, 1.0], aim="map", seed=2) for _ in range(2))
    for part in (slice(20), slice(20, 40)):
        for team in (read, other):
            team.attach(X[part], y[part])
        seen = read.belief.posterior(there)
        assert read.belief is read.belief
    assert str(read.state_dict()) == str(other.state_dict())
    query, same = read.ask(), other.ask()
    assert query.point == same.point
    np.testing.assert_array_equal(seen, other.belief.posterior(there))
