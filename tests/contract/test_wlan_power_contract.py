"""The WLAN does as it says, whatever is told, and whatever its users do."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo_envs import wlan_power_v0

from .conftest import TRIANGLE, WORLDS, SmallWorld


@pytest.fixture(params=WORLDS["wlan_power"])
def module(request, tmp_path):
    return SmallWorld("wlan_power", request.param, tmp_path)


def test_an_agent_sees_its_own_power_its_outcome_and_the_powers_of_those_it_hears_only():
    env = wlan_power_v0.parallel_env(
        topology={"access_points": [[0, 0], [60, 0], [160, 0], [140, 5]], "users": [[5, 0]]}
    )
    env.reset(seed=0)
    powers = dict(zip(env.possible_agents, [3.0, 5.0, 7.0, 11.0], strict=True))
    observations, _, _, _, infos = env.step({agent: [power] for agent, power in powers.items()})
    for agent, seen in observations.items():
        neighbours = sorted(env.interaction_graph()[agent])
        expected = [powers[agent], infos[agent]["measurement"], 1 - 1 / 60, *(powers[other] for other in neighbours)]
        assert seen.tolist() == pytest.approx(expected)
    assert len(observations["ap_0"]) == 4  # those at 140 and 160 m are too far


def test_every_agent_owns_its_power_and_the_factor_of_its_users(module):
    env = module.parallel_env()
    told, links = env.factor_graph(), env.interaction_graph()
    for i, agent in enumerate(env.possible_agents):
        assert told["variable_owners"][f"power_{i}"] == told["owners"][f"capacity_{i}"] == agent
        others = {told["variable_owners"][variable] for variable in told["scopes"][f"capacity_{i}"]} - {agent}
        assert others == set(links[agent])
    powers = {variable: ends for variable, ends in told["bounds"].items() if variable.startswith("power")}
    assert set(powers.values()) == {(1.0, 25.0)}
    assert len(powers) == len(env.possible_agents)


def test_a_team_sets_its_powers(module):
    env = module.parallel_env(max_cycles=4)
    observations, infos = env.reset(seed=0)
    team = sb.Team.for_env(env, seed=0, rounds=4)
    team.begin(infos)
    while env.agents:
        observations, rewards, ended, cut, infos = env.step(team.act(observations, infos))
        team.observe(observations, rewards, ended, cut, infos)
    point = team.recommend().point
    assert set(point) == set(env.variables)
    assert all(1.0 <= value <= 25.0 for variable, value in point.items() if variable.startswith("power"))
    assert {value for variable, value in point.items() if variable.startswith("channel")} <= {*env.settings.channels}


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"ap_0": [5.0], "ap_1": [5.0]}, r"\$\.actions\.ap_2: got no action"),
        ({"ap_2": [np.nan]}, r"\$\.actions\.ap_2: got \[nan\]"),
        ({"ap_2": [26.0]}, r"got \[26.0\]; wanted \[power in dBm\] from \[1.0\] to \[25.0\]"),
        ({"ap_2": [5.0, 6.0]}, r"got shape \(2,\); wanted \[power in dBm\], of shape \(1,\)"),
        ({"ap_2": ["loud"]}, r"got \['loud'\]; wanted \[power in dBm\]"),
        ({"ap_2": [5.0], "ap_9": [5.0]}, "not live"),
    ],
)
def test_wrong_actions_are_refused_and_nothing_happens(actions, message):
    env = wlan_power_v0.parallel_env(topology=TRIANGLE)
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=message):
        env.step({"ap_0": [5.0], "ap_1": [5.0]} | actions)
    assert env.get_state()["json"]["round"] == 0
