"""Properties of all teams, in a field and in a function."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError, ConflictError, ShapeError, StateVersionError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.spaces import Domain

from .teams import CHAIN

BOUNDS = dict.fromkeys("xyz", (-1.0, 1.0))


def function(**settings):
    more = {"outcomes": "per-factor", "initial": 2, "acquisition": "dec-hbo", "seed": 3}
    return sb.Team(CHAIN, BOUNDS, **more | settings)


def field(**settings):
    return sb.Team.for_field(["a", "b"], low=[-1.0, -1.0], high=[1.0, 1.0], **{"seed": 3, **settings})


def fused(**settings):
    return field(belief={"kind": "fused", "n_features": 20}, **settings)


KINDS = pytest.mark.parametrize("make", [function, field, fused])
BOTH = pytest.mark.parametrize("make", [function, field])


def outcomes(team, query):
    """Outcome of each channel for a query: a bowl in its variables."""
    return {c: -float((place**2).sum()) for c, place in team.problem.places_of(query.point).items()}


def played(team, rounds=3):
    for _ in range(rounds):
        query = team.ask()
        team.tell(query, outcomes(team, query))
    return team


@KINDS
def test_a_batch_equals_queries_asked_one_after_another(make):
    team, twin = played(make()), played(make())
    batch = team.ask(3)
    assert batch == [twin.ask() for _ in range(3)]
    assert len({query.id for query in batch}) == 3
    assert list(batch[0].point) == list(team.graph.variables)
    for agent, own in batch[0].points.items():
        assert own.tolist() == [batch[0].point[variable] for variable in team.graph.variables_owned_by(agent)]
    points = np.array([list(query.point.values()) for query in batch])
    assert min(np.abs(points[i] - points[j]).max() for i in range(3) for j in range(i)) > 1e-3
    assert [len(team.ask(1)), team.round] == [1, 7]


def test_locations_of_a_batch_are_apart():
    team = played(field())
    places = np.array([place for query in team.ask(3) for place in query.points.values()])
    gaps = [np.linalg.norm(places[i] - places[j]) for i in range(6) for j in range(i)]
    assert min(gaps) > 0.05
    stds = [max(query.stds.values()) for query in field().ask(4)]
    assert stds[-1] < stds[0] + 1e-9


def test_a_batch_in_a_field_respects_candidates_agents_and_prices():
    team = field()
    places = {"a": [[0.0, 0.0], [0.5, 0.5], [-0.5, 0.5]], "b": [[0.9, 0.9]]}
    for queries in (team.ask(2, places, agents=["a"]), team.ask(2, candidates=places, agents=["a"])):
        assert [list(query.points) for query in queries] == [["a"], ["a"]]
        assert all(query.points["a"].tolist() in places["a"] for query in queries)
    played(team, 2)
    assert team.ask(2, places, prices={"a": 1e6, "b": 1e6})[1].points == {}


@KINDS
def test_outcomes_may_be_told_in_any_order_and_in_parts(make):
    orders = []
    for backwards in (False, True):
        team = make()
        batch = team.ask(3)
        for query in reversed(batch) if backwards else batch:
            for channel, outcome in sorted(outcomes(team, query).items(), reverse=backwards):
                team.tell(query.id, {channel: outcome})
        assert team.state_dict()["json"]["log"]["open"] == {}
        orders.append(team.history)
    rows = [sorted(map(tuple, np.column_stack([told.X, told.factors]).tolist())) for told in orders]
    assert rows[0] == rows[1]


@KINDS
def test_unexpected_outcomes_are_refused_and_change_nothing(make):
    team = make()
    query = team.ask()
    told = outcomes(team, query)
    first, *rest = told
    with pytest.raises(UnknownQueryError, match="'q00099' is not pending"):
        team.tell("q00099", told)
    with pytest.raises(UnknownQueryError, match=r"got .*zeppelin.*; wanted some of"):
        team.tell(query, {**told, "zeppelin": 1.0})
    team.tell(query, {first: told[first]})
    with pytest.raises(ConflictError, match="recorded before"):
        team.tell(query, {**told, first: 7.0})
    with pytest.raises(ShapeError, match="outcome of"):
        team.tell(query, dict.fromkeys(rest, "high"))
    team.tell(query, {channel: told[channel] for channel in rest})
    assert np.isfinite(team.history.factors).all()
    assert (len(team.history), team.failures) == (1, 0)


@KINDS
def test_with_failed_outcomes_that_are_not_told_count_as_failed(make):
    team = make()
    query = team.ask()
    first, second = team.problem.channels
    team.tell(query, {first: 1.0}, failed=True)
    assert team.history.failed.tolist() == [[False, True]]
    team.tell(team.ask(), {first: None, second: float("nan")})
    team.tell(team.ask(), failed=True)
    assert (team.failures, team.state_dict()["json"]["log"]["open"]) == (5, {})


@KINDS
def test_attached_data_are_learned_and_marked(make):
    team = make()
    n = 3 if make is function else 2
    values = [[1.0, 2.0], [np.nan, np.nan]] if make is function else [1.0, np.inf]
    team.attach(np.zeros((2, n)), values)
    assert (team.n_data, team.failures) == (1, 1)
    assert team.history.attached.tolist() == [True, True]
    with pytest.raises(ShapeError, match="wanted"):
        team.attach(np.zeros((2, n + 2)), values)
    with pytest.raises(ShapeError, match="wanted arrays of numbers"):
        team.attach([["here"] * n] * 2, values)
    played(team)
    assert team.history.attached.tolist() == [True, True, False, False, False]


def test_the_state_of_a_team_with_another_problem_is_refused():
    for one, other in ((function(), field()), (field(), function()), (field(), fused())):
        with pytest.raises(StateVersionError, match="got a state with other"):
            one.load_state_dict(other.state_dict())


def test_arguments_for_the_other_kind_of_problem_are_refused_in_one_line():
    one, other = function(), field()
    query, places = one.ask(), other.ask()
    for call, words in (
        (lambda: one.tell(query, {"f": 1.0}, locations={"x": [0.0]}), r"\$\.locations: .*point = "),
        (lambda: other.tell(places, {"a": 1.0}, point={"a[0]": 0.0}), r"\$\.point: .*locations = "),
        (lambda: one.ask(candidates={"x": [[0.0]]}), "wanted none"),
        (lambda: one.ask(agents=["x"]), "wanted none"),
        (lambda: one.ask(2, prices={"x": 1.0}), "wanted none"),
        (lambda: field(initial=3), r"\$\.initial: "),
        (lambda: sb.Team(one.problem, BOUNDS), r"\$\.graph: got a Problem|\$\.bounds: unknown argument"),
        (lambda: field(coordination="admm"), "not for agents that each measure"),
        (lambda: function(coordination="max-sum"), "not for agents that set"),
    ):
        with pytest.raises(ConfigError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)


@BOTH
@pytest.mark.parametrize("count", [1.5, "3", 0, -1, True, 10**9])
def test_a_batch_size_that_is_not_an_integer_or_too_large_is_refused(make, count):
    team, wanted = make(), "at most 10,000" if count == 10**9 else "an integer >= 1"
    with pytest.raises(ConfigError, match=rf"\$\.count: got .*; wanted {wanted}"):
        team.ask(count)
    assert (len(team.ask(np.int64(2))), team.round) == (2, 2)


@BOTH
def test_a_new_episode_gives_up_pending_queries_without_failures(make):
    team = played(make())
    query, other = team.ask(2)
    told = outcomes(team, query)
    first = next(iter(told))
    team.tell(query, {first: told[first]})
    known = int(np.isfinite(team.history.factors).sum())
    team.begin({})
    assert (team.failures, team.history.failed.any(), int(np.isfinite(team.history.factors).sum())) == (0, False, known)
    for gone in (query, other):
        with pytest.raises(UnknownQueryError, match="not pending"):
            team.tell(gone, told)
    assert team.round == (0 if team.problem.is_field else 5)


def test_a_team_accepts_a_problem():
    problem = Problem.of_field(["a", "b"], Domain(np.full(2, -1.0), np.ones(2)))
    assert sb.Team(problem, seed=3).ask() == field().ask()
    problem = Problem.of(CHAIN, BOUNDS, outcomes="per-factor")
    assert sb.Team(problem, seed=3, initial=2, acquisition="dec-hbo").ask() == function().ask()
