import gymnasium
import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError, ShapeError
from swarmbo_envs import robot_team_v0

from .teams import Played, drive

FIELD = {"gp": {"lengthscale_m": 300.0, "std": 10.0, "mean": 50.0, "size_m": [1000.0, 800.0], "seed": 3}}
KINDS = ["exact", "max-sum", "independent", "greedy", "random", "lawn-mower"]


def bowl(x: np.ndarray) -> float:
    return 5.0 - float(((x - np.array([0.3, -0.2])) ** 2).sum())


def field_team(**settings) -> sb.Team:
    return sb.Team.for_field(["a", "b", "c"], low=[-1.0, -1.0], high=[1.0, 1.0], **{"seed": 1, "rounds": 8, **settings})


def answer(query: sb.Query) -> dict[str, float]:
    return {agent: bowl(point) for agent, point in query.points.items()}


def world(**settings):
    return robot_team_v0.parallel_env(**{"field": FIELD, "robots": 3, "max_cycles": 5, "noise_std": 0.1, **settings})


def play(env, team, rounds=None):
    return [actions for actions, _ in drive(env, team, rounds, seed=4)]


@pytest.mark.parametrize("coordination", KINDS)
def test_every_kind_of_coordination_completes_a_pettingzoo_loop(coordination):
    env = world()
    team = sb.Team.for_env(env, coordination=coordination, seed=2)
    history = play(env, team)
    assert len(history) == 5
    assert team.belief.n_data == 3 * 6  # once at reset, and once per round
    for actions in history:
        for agent, action in actions.items():
            assert env.action_space(agent).contains(action)


@pytest.mark.parametrize("coordination", ["max-sum", pytest.param("exact", marks=pytest.mark.slow)])
def test_agents_that_exchange_messages_decide_like_the_central_computation(coordination):
    runs = []
    for as_agents in (False, True):
        env = world()
        team = sb.Team.for_env(env, coordination=coordination, transport=sb.InProcess(as_agents=as_agents), seed=2)
        runs.append((play(env, team), team.last_report))
    for one, other in zip(runs[0][0], runs[1][0], strict=True):
        assert all((one[agent] == other[agent]).all() for agent in one)
    assert runs[0][1] == runs[1][1]
    assert runs[0][1].messages > 0


def test_ask_and_tell_find_the_maximum_of_a_bowl():
    team = field_team()
    for _ in range(8):
        query = team.ask()
        team.tell(query, answer(query))
    best = team.recommend()
    assert 5.0 - bowl(np.array(best.location)) < 1e-2
    assert abs(best.mean - bowl(np.array(best.location))) < max(4 * best.std, 0.05)


def test_measurements_count_at_their_reported_locations():
    team = field_team()
    query = team.ask()
    with pytest.raises(ShapeError, match="location of 'a'"):
        team.tell(query, {"a": 3.0}, locations={"a": np.array([np.nan, 0.0])})
    team.tell(query, {"a": 3.0}, locations={"a": np.array([0.25, 0.5])})
    team.tell(query, {"b": 2.0}, locations={"b": np.array([0.75, 0.5])})
    team.give_up(query)
    assert team.belief.X.tolist() == [[0.25, 0.5], [0.75, 0.5]]
    assert team.history.X[0, :4].tolist() == [0.25, 0.5, 0.75, 0.5]


def test_a_team_continues_if_robots_fail_or_report_nothing():
    env = world(failure_rate=0.5, max_cycles=8)
    team = sb.Team.for_env(env, seed=1)
    (observations, infos), received = env.reset(seed=0), 0
    while env.agents:
        observations, rewards, terminations, truncations, infos = env.step(team.act(observations, infos))
        infos = {agent: info for agent, info in infos.items() if agent != "robot_1"}
        received += sum("measurement" in info for info in infos.values())
        team.observe(observations, rewards, terminations, truncations, infos)
    assert team.failures > 8
    assert received < team.belief.n_data <= received + 3


def test_the_recommendation_is_none_without_data_and_otherwise_a_site():
    env = world()
    team = sb.Team.for_env(env)
    assert team.recommend() is None
    play(env, team)
    sites = env.unwrapped.sites()
    recommendation = team.recommend()
    assert np.abs(sites - np.array(recommendation.location)).sum(axis=1).min() == 0
    assert np.isclose(recommendation.mean, team.belief.posterior(sites)[0].max())


def test_choices_are_relayed_from_agent_to_agent():
    env = world(robots=3, starts=[[0.0, 0.0], [400.0, 0.0], [800.0, 0.0]], radio_range_m=450.0)
    team = sb.Team.for_env(env)
    _, infos = env.reset(seed=0)
    team.act(dict.fromkeys(env.agents), infos)
    choices = team.sent["choices"]  # up a path of three robots and back, twice; messages are counted per hop
    assert (choices.messages, choices.transmissions) == (8, 8)


class Dial(Played):
    """An environment with only spaces and infos: each agent turns three dials."""

    def __init__(self, sizes=(3, 3), dtype=np.float32, leaves=None):
        boxes = [gymnasium.spaces.Box(-1, 1, (size,), dtype) for size in sizes]
        super().__init__(dict(zip("pq", boxes, strict=True)), leaves=leaves)

    def tells(self, actions):
        return {a: {"measurement": -float(np.square(x - 0.25).sum()), "location": x} for a, x in actions.items()}


def test_any_environment_that_reports_measurements_is_accepted():
    env = Dial()
    team = sb.Team.for_env(env, seed=0, rounds=12)
    play(env, team, rounds=12)
    assert team.belief.n_data == 24
    assert np.abs(np.array(team.recommend().location) - 0.25).max() < 0.2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sizes": (1, 2)}, "different action spaces"),
        ({"sizes": (2, 3)}, "different action spaces"),
        ({"dtype": np.int32}, "wanted a finite float Box"),
    ],
)
def test_action_spaces_that_are_not_locations_of_one_field_are_refused(settings, words):
    with pytest.raises(ConfigError, match=words):
        sb.Team.for_env(Dial(**settings))


def test_an_agent_that_left_gets_no_action():
    env = Dial(leaves={"q": 2})
    team = sb.Team.for_env(env, rounds=4)
    history = play(env, team, rounds=4)
    assert [set(actions) for actions in history] == [{"p", "q"}, {"p", "q"}, {"p"}, {"p"}]


@pytest.mark.parametrize("coordination", ["exact", "greedy", "max-sum"])
def test_decisions_do_not_depend_on_the_order_of_observations(coordination):
    decisions = []
    for reverse in (False, True):
        env = world()
        team = sb.Team.for_env(env, coordination=coordination)
        observations, infos = env.reset(seed=0)
        decisions.append(team.act(dict(sorted(observations.items(), reverse=reverse)), infos))
    assert all((decisions[0][agent] == decisions[1][agent]).all() for agent in decisions[0])


@pytest.mark.parametrize("acquisition", ["auto", "thompson", "targeted-variance"])
def test_with_exact_the_order_of_candidates_matters_only_among_equally_good_choices(acquisition):
    rng, teams = np.random.default_rng(2), [field_team(acquisition=acquisition) for _ in range(2)]
    for _ in range(6):
        places = {agent: rng.uniform(-1.0, 1.0, (30, 2)) for agent in "abc"}  # different, so agents cannot swap theirs
        query, same = (team.ask({agent: rng.permutation(own) for agent, own in places.items()}) for team in teams)
        assert query == same
        for team in teams:
            team.tell(query.id, answer(query))


def test_queries_are_equal_or_differ():
    first, second = (field_team().ask(2) for _ in range(2))
    assert (first[0] == second[0], first[0] != second[0]) == (True, False)
    assert (first[0] == second[1], first[0] != second[1]) == (False, True)
    assert first[0] != first[0].id


@pytest.mark.parametrize("number", [np.float32(1.5), np.int64(2), np.array(1.5), 3])
def test_outcomes_may_be_numbers_of_any_type(number):
    team = field_team()
    team.tell(team.ask(), {"a": number, "b": None, "c": None})
    assert (team.belief.n_data, team.failures) == (1, 2)


def test_arrays_of_the_caller_may_be_reused():
    team = field_team(coordination="random")
    places = {agent: np.array([[0.5, 0.5]]) for agent in "abc"}
    query = team.ask(places)
    for array in places.values():
        array[:] = -7.0
    assert query.points["a"].tolist() == [0.5, 0.5]
    query.points["a"] -= 100.0
    where = np.array([0.1, 0.2])
    team.tell(query, {"b": 1.0, "a": 2.0}, locations={"b": where})
    where[:] = 9.0
    team.give_up(query)
    assert team.belief.X.tolist() == [[0.5, 0.5], [0.1, 0.2]]
    assert team.state_dict()["json"]["positions"]["b"] == [0.1, 0.2]


def test_data_attached_before_the_first_round_do_not_replace_the_start():
    env = world()
    team = sb.Team.for_env(env)
    team.attach([[1.0, 1.0]], [50.0])
    team.act(*env.reset(seed=0))
    assert team.belief.n_data == 4


def test_a_further_episode_begins_at_its_own_start():
    env = world()
    team = sb.Team.for_env(env)
    play(env, team)
    observations, infos = env.reset(seed=9)
    team.begin(infos)
    team.act(observations, infos)
    starts = team.state_dict()["json"]["starts"]
    assert all(np.allclose(starts[agent], infos[agent]["location"]) for agent in infos)
    assert (team.belief.n_data, team.round) == (3 * 6 + 3, 1)


def test_recommendation_lies_in_the_box_and_comes_from_a_fitted_belief():
    team = field_team()
    team.attach([[5.0, 5.0], [0.0, 0.0], [0.5, -0.5]], [5000.0, 3000.0, 3500.0])
    recommendation = team.recommend()
    assert np.abs(recommendation.location).max() <= 1.0
    assert recommendation.std > 1.0  # an unfitted belief would have the scale 1


LATTICE = np.array([(x, y) for x in np.linspace(-1, 1, 9) for y in np.linspace(-1, 1, 9)])


@pytest.mark.parametrize(("agents", "places", "served"), [("abcdefgh", LATTICE, 8), ("abcde", LATTICE[:3], 3)])
def test_agents_with_the_same_candidates_get_different_ones_while_there_are_any(agents, places, served):
    team = sb.Team.for_field(list(agents), low=[-1.0, -1.0], high=[1.0, 1.0])
    query = team.ask(dict.fromkeys(agents, places))
    assert len({tuple(point) for point in query.points.values()}) == len(query.points) == served
    assert team.last_report.status == "exact"
    assert np.isfinite(team.last_report.value)


def test_agents_without_links_do_not_negotiate():
    team = field_team()
    links = nx.Graph()
    links.add_nodes_from("abc")
    team.ask(links=links)
    assert team.last_report.status == "exact"
    assert "agreement" not in team.sent  # no negotiation; choices are still sent, through a base station
    assert team.sent["choices"].messages == team.last_report.messages > 0
    team.ask()
    assert team.sent["agreement"].messages > 0
