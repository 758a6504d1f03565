"""The WLAN keeps PettingZoo's contract and ours, whatever is told, and whatever its users do."""

import numpy as np
import pettingzoo
import pytest
from pettingzoo.test import api_test, parallel_seed_test, render_test, seed_test
from pettingzoo.test.max_cycles_test import max_cycles_test

import swarmbo as sb
import swarmbo_envs
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo_envs import wlan_power_v0

SMALL = {"generated": {"access_points": 4, "users": 9, "area_m": [150.0, 150.0]}}
TRIANGLE = {"access_points": [[0, 0], [60, 0], [30, 50]], "users": [[5, 5], [40, 0], [30, 40]], "serving": [0, 1, 1]}
WORLDS = {
    "per factor": {"noise_std": 3.0},
    "totals": {"topology": SMALL, "outcomes": "total", "noise_std": 3.0},
    "all disturb": {"topology": SMALL, "interference": "all", "shadowing_db": 4.0},
    "users walk and leave": {"mobility_m": 5.0, "leave_rate": 0.1, "return_rate": 0.3, "departures": [[2, 7]]},
    "nobody at one of them": {"topology": TRIANGLE, "noise_std": 1.0},
}


@pytest.fixture(params=WORLDS)
def module(request):
    class Module:
        @staticmethod
        def parallel_env(**more):
            return wlan_power_v0.parallel_env(**{**WORLDS[request.param], **more})

        @staticmethod
        def env(**more):
            return wlan_power_v0.env(**{**WORLDS[request.param], **more})

    return Module


def rollout(env, seed):
    """What every step of an episode returns."""
    generator = np.random.default_rng(0)
    env.reset(seed=seed)
    while env.agents:
        boxes = {agent: env.action_space(agent) for agent in env.agents}
        yield env.step({agent: generator.uniform(box.low, box.high) for agent, box in boxes.items()})


# agents hear different numbers of others; PettingZoo remarks on it and goes on
own_sizes = pytest.mark.filterwarnings("ignore:Agents have different", "ignore:Observations are different shapes")


@own_sizes
def test_pettingzoo_aec_api(module):
    api_test(module.env(), num_cycles=20)


def test_it_keeps_the_contract_also_where_measurements_fail(module):
    for failure_rate in (0.0, 0.2):
        sb.testing.check_environment(lambda rate=failure_rate: module.parallel_env(failure_rate=rate, max_cycles=12))


def test_pettingzoo_seeds(module):
    seed_test(module.env, num_cycles=20)
    parallel_seed_test(module.parallel_env, num_cycles=20)


def test_pettingzoo_max_cycles(module):
    max_cycles_test(module)


def test_pettingzoo_render(module):
    render_test(module.env)


def test_a_state_of_another_world_is_refused(module):
    env = module.parallel_env(failure_rate=0.2)
    env.reset(seed=5)
    with pytest.raises(StateVersionError, match=r"another WLAN \(it differs in failure_rate\)"):
        module.parallel_env(failure_rate=0.3).set_state(env.get_state())


def test_rewards_add_up_to_the_outcome(module):
    env = module.parallel_env(failure_rate=0.3)
    for _, rewards, _, _, infos in rollout(env, seed=3):
        outcomes = [info["measurement"] for info in infos.values()]
        total = outcomes[0] if env.settings.outcomes == "total" else np.nansum(outcomes)
        assert sum(rewards.values()) == pytest.approx(0.0 if np.isnan(total) else total)
        for info in infos.values():
            assert ("error" in info) == bool(np.isnan(info["measurement"]))
            assert ("factors" in info) == (env.settings.outcomes == "per-factor")


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
    assert set(told["bounds"].values()) == {(1.0, 25.0)}


@own_sizes
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
    assert all(1.0 <= power <= 25.0 for power in point.values())


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ({"ap_0": [5.0], "ap_1": [5.0]}, r"\$\.actions\.ap_2: got no action"),
        ({"ap_2": [np.nan]}, r"\$\.actions\.ap_2: got \[nan\]"),
        ({"ap_2": [26.0]}, r"got \[26.0\]; wanted a power from 1 to 25 dBm"),
        ({"ap_2": [5.0, 6.0]}, r"got shape \(2,\); wanted \(1,\)"),
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


def test_pettingzoo_makes_it_by_name():
    swarmbo_envs.register_all()
    env = pettingzoo.make("parallel", "swarmbo/wlan_power-v0", topology=TRIANGLE, max_cycles=7)
    assert env.unwrapped.max_cycles == 7
    assert str(env) == env.metadata["name"] == "wlan_power_v0"
