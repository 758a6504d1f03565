"""The WLAN does as it says, whatever is told, and whatever its users do."""

import pytest

from swarmbo_envs import wlan_power_v0

from .conftest import WORLDS, SmallWorld


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
