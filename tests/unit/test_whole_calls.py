"""A call on a team does all of its work or none, and calls run one at a time, also with errors and threads."""

import copy
import pickle
import sys
import threading
from functools import partial

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.belief import ExactGP
from swarmbo.deciding.central_driver import CountedExchanges
from swarmbo.errors import BudgetError, ConfigError, SwarmboError
from swarmbo_envs import function_v0

from .teams import CHAIN, CUBE, ask_and_tell

FUSED = {"kind": "fused", "n_features": 20}
READINGS = {"kind": "fused", "method": "readings"}


class StoppedError(Exception):
    """Exception of a user's part."""


def field_team(**settings):
    return sb.Team.for_field(["a", "b", "c"], [0.0, 0.0], [1.0, 1.0], seed=1, **settings)


def joint_team(**settings):
    return sb.Team(CHAIN, CUBE, seed=1, **{"initial": 2, "acquisition": "dec-hbo", **settings})


def play(team, n_rounds):
    ask_and_tell(team, n_rounds, lambda at: -float(sum(x**2 for x in (at if team.problem.is_field else at.values()))))
    return team


def content_of(team):
    """Comparable content of a team's state, and results of its last calls."""
    state = team.state_dict()
    arrays = {name: (array.shape, array.tobytes()) for name, array in state["arrays"].items()}
    return repr(state["json"]), arrays, team.last_query, team.last_report, team.last_sharing


@pytest.mark.parametrize("belief", ["exact", FUSED, {"kind": "exact", "time": {}}], ids=["exact", "fused", "fading"])
def test_a_refused_ask_leaves_a_field_team_unchanged(belief):
    team = play(field_team(belief=belief, coordination={"kind": "exact", "table_budget": 2}), 0)
    before = content_of(team)
    for _ in range(2):
        with pytest.raises(BudgetError):
            team.ask()
        assert content_of(team) == before
        assert team.round == 0
    kept = play(field_team(belief=belief, coordination="exact"), 2)
    twin = sb.Team.from_state_dict(kept.state_dict())
    with pytest.raises(SwarmboError):
        kept.ask(prices={"a": -1.0})
    assert kept.ask().point == twin.ask().point


@pytest.mark.parametrize(
    ("error", "count"), [(StoppedError, None), (KeyboardInterrupt, 3), (SystemExit, 3), (MemoryError, None)]
)
def test_an_ask_that_ends_in_any_exception_leaves_a_joint_team_unchanged(error, count, monkeypatch):
    team = play(joint_team(acquisition="thompson"), 4)
    twin, before = sb.Team.from_state_dict(team.state_dict()), content_of(team)
    maximise, calls = sb.ADMM.maximise, []

    def stops_at_last(self, *args):
        calls.append(1)
        if len(calls) == (count or 1):
            raise error
        return maximise(self, *args)

    monkeypatch.setattr(sb.ADMM, "maximise", stops_at_last)
    with pytest.raises(error):
        team.ask(count)
    assert len(calls) == (count or 1)
    assert content_of(team) == before
    assert team.ask().point == twin.ask().point


@pytest.mark.parametrize(("error", "belief"), [(StoppedError, "exact"), (KeyboardInterrupt, FUSED)])
def test_a_field_team_interrupted_in_a_decision_is_unchanged(error, belief, monkeypatch):
    team = play(field_team(belief=belief), 2)
    before = content_of(team)

    def stops(*args, **kwargs):
        raise error

    with monkeypatch.context() as changed:
        changed.setattr(sb.Exact, "solve", stops)
        with pytest.raises(error):
            team.ask()
    assert content_of(team) == before
    assert team.ask().id == "q00003"


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("place", [(ExactGP, "fit"), (CountedExchanges, "fuse")])
def test_data_whose_learning_is_interrupted_do_not_count_twice(error, place, monkeypatch):
    team = play(field_team(belief=READINGS), 1)
    query, before = team.ask(), content_of(team)

    def stops(*args, **kwargs):
        raise error

    for _ in range(2):
        with monkeypatch.context() as changed:
            changed.setattr(*place, stops)
            with pytest.raises(error):
                team.tell(query, {"a": 1.0, "b": 2.0, "c": None})
        assert content_of(team) == before
    team.tell(query, {"a": 1.0, "b": 2.0, "c": None})
    assert {name: len(view.y) for name, view in team.belief.agents.items()} == {"a": 2, "b": 2, "c": 1}


@pytest.mark.parametrize("make", [joint_team, field_team])
def test_data_that_a_team_hands_out_cannot_be_changed(make):
    team, X = make(), np.full((2, 3 if make is joint_team else 2), 0.5)
    team.attach(X, y := np.ones(2))
    for column in vars(team.history).values():
        assert column is None or not column.flags.writeable
    X *= 0.1
    y *= 0.1  # arrays of the user stay the user's
    assert (team.history.X[:, :2] == 0.5).all()
    assert np.nanmax([*team.history.totals, *team.history.factors.ravel()]) == 1.0


def test_a_refused_round_of_an_environment_can_be_repeated():
    env = function_v0.parallel_env(function="camel")
    team = sb.Team.for_env(env, initial=1, acquisition="dec-hbo")
    observations, infos = env.reset(seed=0)
    team.begin(infos)
    team.observe(*env.step(team.act(observations, infos)))
    first, before = team.act(observations), content_of(team)
    links = nx.DiGraph([("agent_0", "agent_1")])
    env.unwrapped.interaction_graph = lambda: links
    with pytest.raises(ConfigError, match="directed"):
        team.act(observations)
    del env.unwrapped.interaction_graph
    assert content_of(team) == before
    team.observe(*env.step(first))
    assert team.n_data == 2


def in_threads(n, work):
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001  asserted below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


@pytest.fixture
def busy(monkeypatch):
    """Make threads alternate as often as possible."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_no_outcome_of_four_threads_is_lost(busy):
    team = joint_team(coordination="sobol", initial=400)
    queries = team.ask(400)
    in_threads(4, lambda number: [team.tell(query, 1.0) for query in queries[number::4]])
    assert (team.n_data, len(team.history)) == (400, 400)
    told = {tuple(x) for x in team.history.X.tolist()}
    assert told == {tuple(query.point.values()) for query in queries}


def pickled(team):
    return pickle.loads(pickle.dumps(team))


@pytest.mark.parametrize("make", [field_team, joint_team])
def test_threads_may_ask_tell_attach_save_and_copy_at_once(make, busy):
    team, n = make(coordination="random"), 3
    version = team.state_dict()["json"]["version"]
    dims = 2 if team.problem.is_field else 3

    def work(number):
        for _ in range(12):
            play(team, 1)
            team.attach(np.full((1, dims), 0.1 * number), [1.0])
            for other in (copy.deepcopy(team), pickled(team), sb.Team.from_state_dict(team.state_dict())):
                assert other.state_dict()["json"]["version"] == version

    in_threads(n, work)
    assert team.n_data == n * 12 * ((3 if team.problem.is_field else 1) + 1)
    assert team.state_dict()["json"]["log"]["asked"] == n * 12


@pytest.mark.parametrize(
    ("make", "copied"),
    [
        (field_team, copy.deepcopy),
        (joint_team, pickled),
        (partial(field_team, belief=FUSED), pickled),
        (partial(field_team, belief=READINGS), copy.deepcopy),
    ],
)
def test_a_copy_continues_independently_with_its_own_lock(make, copied):
    team = play(make(), 3)
    other = copied(team)
    assert other.lock is not team.lock
    with team.lock:  # as if another thread were within a call
        in_threads(1, lambda _: play(other, 2))
    assert content_of(other) != content_of(team)
    play(team, 2)
    assert content_of(other)[0] == content_of(team)[0]


def test_a_team_pickled_with_its_environment_acts_in_the_copy():
    env = function_v0.parallel_env(function="camel")
    team = sb.Team.for_env(env)
    other_env, other = pickle.loads(pickle.dumps((env, team)))
    assert other.world._env is other_env
    assert copy.deepcopy((env, team))[1].world._env is not env
