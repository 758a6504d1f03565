"""Teams tune any PettingZoo environment, one joint action at a time."""

import math

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text
from pettingzoo import ParallelEnv
from pettingzoo.utils.wrappers import BaseParallelWrapper

import swarmbo as sb
from swarmbo.errors import ConfigError, ShapeError, StateVersionError

from .teams import Played

BOXES = {
    "tide": Box(np.array([-1.0, 0.0]), np.array([1.0, 4.0]), dtype=np.float64),
    "wind": Box(0.0, 2.0, (1,), dtype=np.float64),
    "rain": Box(-3.0, 0.0, (1,), dtype=np.float64),
}
SCOPES = {"tide": ["tide"], "wind": ["wind", "tide"], "rain": ["rain"]}
BOUNDS = {"tide[0]": (-1.0, 1.0), "tide[1]": (0.0, 4.0), "wind[0]": (0.0, 2.0), "rain[0]": (-3.0, 0.0)}


def rewards_of(actions):
    """Reward of each agent; the largest sum is 0, at tide = (0.5, 1), wind = 1.5 and rain = -1."""
    tide, wind, rain = (np.asarray(actions[agent], dtype=float) for agent in ("tide", "wind", "rain"))
    return {
        "tide": -((tide[0] - 0.5) ** 2) - (tide[1] - 1.0) ** 2,
        "wind": -((wind[0] - tide[0] - 1.0) ** 2),
        "rain": -((rain[0] + 1.0) ** 2),
    }


class Weather(Played):
    """An environment not written for swarmbo: it states no factors, and infos are empty."""

    def __init__(self, cycles=5, boxes=BOXES, leaves=None):
        super().__init__(boxes, cycles, leaves)
        self.max_cycles = cycles

    def pays(self, actions):
        middles = {agent: (box.low + box.high) / 2 for agent, box in self.spaces.items()}
        return {agent: reward for agent, reward in rewards_of(middles | actions).items() if agent in actions}


def reward_alone(observation, reward, info):
    return reward


def play(env, team, steps):
    """A user's loop, which resets an ended episode; returns all actions."""
    taken, (observations, infos) = [], env.reset(seed=0)
    for _ in range(steps):
        taken.append(team.act(observations, infos))
        step = env.step(taken[-1])
        team.observe(*step)
        observations, infos = env.reset() if not env.agents else (step[0], step[-1])
    return taken


def test_entries_of_actions_are_variables_of_their_agent_and_scopes_name_agents():
    team = sb.Team.for_env(Weather(), measurement=reward_alone, scopes=SCOPES)
    graph = team.graph
    assert graph.variables == tuple(BOUNDS)
    assert graph.variable_owners == ("tide", "tide", "wind", "rain")
    assert graph.factor_owners == graph.factors == ("tide", "wind", "rain")
    assert graph.scopes == (("tide[0]", "tide[1]"), ("wind[0]", "tide[0]", "tide[1]"), ("rain[0]",))
    assert np.stack([team.domain.low, team.domain.high], 1).tolist() == [list(pair) for pair in BOUNDS.values()]
    assert (team.outcomes, team.problem.structure, team.horizon) == ("per-factor", "known", None)


@pytest.mark.parametrize("scopes", [SCOPES, None])
def test_tuning_an_environment_equals_ask_and_tell_across_episodes(scopes):
    env = Weather(cycles=4)
    actor = sb.Team.for_env(env, measurement=lambda seen, reward, info: 10.0 * reward, scopes=scopes, seed=3)
    taken = play(env, actor, 14)
    owners = dict(zip(actor.graph.variables, actor.graph.variable_owners, strict=True))
    graph = None if scopes is None else actor.graph
    asker = sb.Team(graph, BOUNDS, outcomes=actor.outcomes, variable_owners=owners, seed=3)
    for actions in taken:
        point = asker.ask().point
        assert np.concatenate(list(actions.values())).tolist() == [point[variable] for variable in BOUNDS]
        told = {agent: 10.0 * reward for agent, reward in rewards_of(actions).items()}
        asker.tell(asker.last_query, math.fsum(told.values()) if scopes is None else told)
    assert actor.n_data == 14
    np.testing.assert_array_equal(actor.history.X, asker.history.X)


def test_the_best_configuration_of_a_wrapped_environment_is_found():
    env = BaseParallelWrapper(Weather())
    team = sb.Team.for_env(env, measurement=reward_alone, scopes=SCOPES, seed=0)
    play(env, team, 20)
    best = team.recommend().point
    found = {"tide": [best["tide[0]"], best["tide[1]"]], "wind": [best["wind[0]"]], "rain": [best["rain[0]"]]}
    assert sum(rewards_of(found).values()) > -0.01  # the worst is about -20


def test_measurements_receive_the_agents_step_and_agents_without_a_factor_are_not_measured():
    seen = []

    def measure(observation, reward, info):
        seen.append((float(observation[0]), reward, info))
        return 0.0

    env = Weather()
    team = sb.Team.for_env(env, measurement=measure, scopes={"wind": ["tide", "wind"]})
    taken = play(env, team, 2)
    assert seen == [(n + 1.0, rewards_of(actions)["wind"], {}) for n, actions in enumerate(taken)]
    assert all(actions["rain"].tolist() == [-1.5] for actions in taken)  # in no scope: the centre


def test_an_action_is_held_and_its_outcome_is_the_mean_of_the_steps():
    env = Weather(cycles=7)
    team = sb.Team.for_env(env, measurement=lambda seen, reward, info: seen[0], scopes={"rain": ["rain"]}, hold=3)
    taken = play(env, team, 14)
    held = [actions["tide"].tolist() + actions["rain"].tolist() for actions in taken]
    episode = [0, 0, 0, 1, 1, 1, 2]  # the seventh step ends the episode, and so the evaluation
    numbers = episode + [n + 3 for n in episode]
    assert [held.index(point) for point in held] == [numbers.index(n) for n in numbers]
    assert team.history.factors[:, 0].tolist() == [2.0, 5.0, 7.0] * 2


@pytest.mark.parametrize("how", ["begin", "load"])
def test_a_held_evaluation_is_cancelled_by_a_new_episode_or_a_loaded_state(how):
    env = Weather(cycles=9)
    team = sb.Team.for_env(env, measurement=lambda seen, reward, info: seen[0], hold=2)
    observations, infos = env.reset()
    actions = team.act(observations, infos)
    state = team.state_dict()
    team.observe(*env.step(actions))
    observations, infos = env.reset()
    if how == "begin":
        team.begin(infos)
    else:
        team.load_state_dict(state)
    for n_told in (0, 1):
        team.observe(*env.step(team.act(observations, infos)))
        assert team.n_data == n_told
    assert team.history.totals.tolist() == [3 * 1.5]  # mean of the rounds 1 and 2, for three agents


def test_a_held_action_does_not_change_if_the_environment_changes_its_copy():
    env = Weather(cycles=9)
    team = sb.Team.for_env(env, measurement=reward_alone, hold=2)
    observations, infos = env.reset()
    actions = team.act(observations, infos)
    kept = {agent: action.copy() for agent, action in actions.items()}
    team.observe(*env.step(actions))
    for action in actions.values():
        action[:] = 0.0
    np.testing.assert_equal(team.act(observations, infos), kept)


@pytest.mark.filterwarnings("ignore:outcome of .rain.*counts as missing")
@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf, 1e61])
@pytest.mark.parametrize("scopes", [SCOPES, None])
def test_a_measurement_that_is_not_finite_or_extremely_large_counts_as_failed(bad, scopes):
    env = Weather(cycles=8)

    def measure(seen, reward, info):
        is_rain = reward == rewards_of(env.acted[-1])["rain"]
        return bad if is_rain and seen[0] == 2 else reward

    team = sb.Team.for_env(env, measurement=measure, scopes=scopes)
    play(env, team, 3)
    held = sb.Team.for_env(env, measurement=measure, scopes=scopes, hold=4)
    play(env, held, 8)
    assert (held.failures, len(held.history)) == (1, 2)  # one failed step fails the evaluation of four
    assert team.failures == 1
    if scopes:
        assert np.isnan(team.history.factors).tolist() == [[False] * 3, [False, False, True], [False] * 3]
    else:
        assert team.n_data == 2


def test_an_agent_that_left_does_not_act_and_factors_with_its_action_fail():
    env = Weather(cycles=3, leaves={"tide": 1})
    team = sb.Team.for_env(env, measurement=reward_alone, scopes=SCOPES)
    taken = play(env, team, 3)
    assert [set(actions) for actions in taken] == [set(BOXES), {"wind", "rain"}, {"wind", "rain"}]
    failed = np.isnan(team.history.factors)
    assert failed.tolist() == [[False] * 3, [True, True, False], [True, True, False]]
    total = sb.Team.for_env(env, measurement=reward_alone)
    play(env, total, 3)
    assert (total.n_data, total.failures) == (1, 2)


def test_outcomes_are_sent_only_in_steps_with_a_decision():
    env = Weather()
    team = sb.Team.for_env(env, measurement=lambda seen, reward, info: seen[0], scopes=SCOPES, hold=2)
    observations, infos = env.reset(seed=0)
    told = []
    for _ in range(4):
        step = env.step(team.act(observations, infos))
        observations, infos = step[0], step[4]
        team.observe(*step)
        told.append(team.last_sharing.messages > 0)
    assert told == [False, False, True, False]  # news are sent before the next decision


def test_an_agent_that_leaves_while_its_action_is_held_counts_until_it_left():
    env = Weather(cycles=4, leaves={"rain": 1})
    team = sb.Team.for_env(env, measurement=lambda seen, reward, info: seen[0], scopes=SCOPES, hold=3)
    taken = play(env, team, 3)
    assert [set(actions) for actions in taken] == [set(BOXES), {"tide", "wind"}, {"tide", "wind"}]
    assert team.history.factors.tolist() == [[2.0, 2.0, 1.0]]


def test_outcomes_count_at_the_rounded_actions():
    boxes = {agent: Box(*np.float16([box.low, box.high]), dtype=np.float16) for agent, box in BOXES.items()}
    env = Weather(boxes=boxes)
    team = sb.Team.for_env(env, measurement=reward_alone)
    play(env, team, 1)
    acted = np.concatenate(list(env.acted[0].values())).astype(float)
    assert team.history.X[0].tolist() == acted.tolist()
    assert team.history.X[0].tolist() != list(team.last_query.point.values())


@pytest.mark.parametrize("hold", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_a_saved_team_continues_bit_identically(hold):
    arguments = {"measurement": reward_alone, "scopes": SCOPES, "seed": 1, "initial": 3, "hold": hold}
    env, again = Weather(), Weather()
    team = sb.Team.for_env(env, **arguments)
    play(env, team, 5 * hold)
    twin = sb.Team.for_env(again, **arguments).load_state_dict(team.state_dict())
    np.testing.assert_equal(play(again, twin, 4), play(env, team, 4))
    with pytest.raises(StateVersionError, match="structure"):
        sb.Team.for_env(again, measurement=reward_alone).load_state_dict(team.state_dict())


def test_a_state_saved_during_a_step_learns_its_outcomes():
    env = Weather()
    team = sb.Team.for_env(env, measurement=reward_alone, scopes=SCOPES)
    actions = team.act(*env.reset())
    twin = sb.Team.for_env(env, measurement=reward_alone, scopes=SCOPES).load_state_dict(team.state_dict())
    step = env.step(actions)
    twin.observe(*step)
    team.observe(*step)
    np.testing.assert_array_equal(twin.history.factors, team.history.factors)
    np.testing.assert_array_equal(twin.history.X, team.history.X)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (Discrete(1), r"got Discrete\(1\) .* wanted 2 to 10,000 different"),
        (MultiDiscrete([3, 1]), "got MultiDiscrete"),
        (MultiDiscrete([[3, 2]]), "got MultiDiscrete.*; wanted a finite Box with one axis"),
        (MultiBinary(3), r"got MultiBinary\(3\); wanted a finite Box with one axis, Discrete, M"),
        (Dict({"mode": Discrete(2), "word": Text(3)}), "got Text.*; wanted a finite Box"),
        (Dict({}), "got Dict"),
        (Box(0.0, 1.0, (2, 2)), ".*wanted a finite Box with one axis"),
        (Box(0.0, np.inf, (1,)), r"got Box\(0.0, inf.*; wanted a finite Box"),
        (Box(1.0, 1.0, (1,)), "got Box.*wanted a number above low"),
        (Box(0.0, 1.0, (0,)), ""),
    ],
)
def test_action_spaces_that_give_no_variables_are_refused(box, message):
    with pytest.raises(ConfigError, match=rf"\$\.environment: action space of 'wind': {message}"):
        sb.Team.for_env(Weather(boxes={**BOXES, "wind": box}), measurement=reward_alone)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measurement": 3.0}, r"\$\.measurement: got 3.0; wanted a function of \(observation, reward, info\)"),
        ({"hold": 0}, r"\$\.hold: got 0; wanted an integer >= 1"),
        ({"hold": 1.5}, r"\$\.hold: got 1\.5; wanted an integer >= 1"),
        ({"measurement": None, "scopes": SCOPES}, r"\$\.measurement: got scopes or hold without a measurement"),
        ({"measurement": None, "hold": 2}, r"\$\.measurement: got scopes or hold without a measurement"),
        ({"scopes": {"snow": ["rain"]}}, r"\$\.scopes\.snow: got \['snow'\]; wanted some of \['tide'"),
        ({"scopes": {"rain": ["rain", "snow"]}}, r"\$\.scopes\.rain: got \['snow'\]"),
        ({"scopes": {"rain": "rain"}}, r"\$\.scopes\.rain: got the string 'rain'; wanted a list of agents"),
        ({"scopes": [["rain"]]}, r"\$\.scopes: got \[\['rain'\]\]"),
        ({"scopes": {}}, r"\$\.scopes: got no factors"),
        ({"scopes": {"rain": []}}, r"\$\.scopes\.rain: got \[\]"),
        ({"scopes": {"rain": ["rain", "rain"]}}, r"\$\.scopes\.rain: got .* no name twice"),
        ({"acquisition": "db-gp-ucb"}, "not for agents that set the variables"),
    ],
)
def test_wrong_arguments_are_refused_with_their_path(arguments, message):
    with pytest.raises(ConfigError, match=message):
        sb.Team.for_env(Weather(), **{"measurement": reward_alone} | arguments)


def test_an_environment_without_named_agents_and_a_state_without_measurement_are_refused():
    at = r"\$\.environment\.possible_agents"
    with pytest.raises(ConfigError, match=r"\$\.environment: got .*, which has no agents; wanted .* possible_agents"):
        sb.Team.for_env(Weather(boxes={}), measurement=reward_alone)
    for names in ([0, 1], [("a", 0)]):
        with pytest.raises(ConfigError, match=rf"{at}: got the name .*; wanted a string"):
            sb.Team.for_env(Weather(boxes=dict.fromkeys(names, BOXES["wind"])), measurement=reward_alone)
    state = sb.Team.for_env(Weather(), measurement=reward_alone).state_dict()
    with pytest.raises(ConfigError, match=r"without factor_graph\(\).*load_state_dict"):
        sb.Team.from_state_dict(state, Weather())


@pytest.mark.parametrize("word", ["much", [1.0, 2.0], {"reward": 1.0}])
def test_measurements_that_are_not_numbers_are_refused(word):
    env = Weather()
    team = sb.Team.for_env(env, measurement=lambda seen, reward, info: word)
    with pytest.raises(ShapeError, match=r"outcome of 'tide': got .*; wanted a number, or None if it failed"):
        play(env, team, 1)


class Scenario(ParallelEnv):
    """A scenario of VMAS, with a batch of one."""

    metadata, render_mode = {"name": "vmas"}, None

    def __init__(self, name):
        self.batch = pytest.importorskip("vmas").make_env(name, num_envs=1, max_steps=4, seed=0, dict_spaces=True)
        self.boxes = {
            name: Box(own.low, own.high) for name, own in self.batch.action_space.items()
        }  # spaces of VMAS are gym's
        self.possible_agents = list(self.boxes)

    def action_space(self, agent):
        return self.boxes[agent]

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        seen = self.batch.reset(seed=seed)
        return {agent: seen[agent][0] for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        import torch

        agents, acted = self.agents, {agent: torch.tensor(action)[None] for agent, action in actions.items()}
        seen, rewards, done, _ = self.batch.step(acted)
        is_over = bool(done[0])
        self.agents = [] if is_over else agents
        told = {agent: (seen[agent][0], float(rewards[agent]), False, is_over, {}) for agent in agents}
        return tuple({agent: own[i] for agent, own in told.items()} for i in range(5))


@pytest.mark.mpe
@pytest.mark.filterwarnings("ignore")  # warnings of these packages
@pytest.mark.parametrize(
    "name",
    [
        "mpe2.simple_spread_v3",
        "mpe2.simple_reference_v3",
        "pettingzoo.sisl.multiwalker_v9",
        "pettingzoo.sisl.pursuit_v5",
        "vmas balance",
        "vmas navigation",
    ],
)
def test_an_episode_of_other_libraries_is_one_evaluation_of_the_mean_sum_of_rewards(name, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    module, _, scenario = name.partition(" ")
    more = {"continuous_actions": True} if "spread" in module else {}
    env = Scenario(scenario) if scenario else pytest.importorskip(module).parallel_env(max_cycles=4, **more)
    team, sums = sb.Team.for_env(env, measurement=reward_alone, hold=4, seed=0), []
    for _ in range(12):
        observations, infos = env.reset(seed=1)
        team.begin(infos)
        while env.agents:
            actions = team.act(observations, infos)
            assert all(env.action_space(agent).contains(action) for agent, action in actions.items())
            observations, rewards, *_, infos = step = env.step(actions)
            team.observe(*step)
            sums.append(sum(rewards.values()))
    np.testing.assert_allclose(team.history.totals, np.reshape(sums, (12, 4)).mean(axis=1), rtol=1e-9)
    assert np.ptp(team.history.totals) > 0.0
    assert len(np.unique(team.history.X, axis=0)) > 2
