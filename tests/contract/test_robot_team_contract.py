"""The robot team keeps PettingZoo's contract and ours, on every kind of field."""

import copy
import json
import pickle

import numpy as np
import pettingzoo
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, render_test, seed_test
from pettingzoo.test.max_cycles_test import max_cycles_test
from pettingzoo.utils.conversions import aec_to_parallel

import swarmbo as sb
import swarmbo_envs
from swarmbo.errors import StateVersionError
from swarmbo_envs import robot_team_v0

FIELDS = ["elevation", "only", "interpolated", "gp"]


@pytest.fixture(params=FIELDS)
def arguments(request, tmp_path):
    """Keyword arguments of a small world; every measurement succeeds, since PettingZoo holds NaN unequal to itself."""
    path = tmp_path / "grid.csv"
    rows = [f"{x},{y},{np.sin(x / 9) + y / 50}" for x in range(0, 120, 10) for y in range(0, 120, 10)]
    path.write_text("\n".join(["x,y,v", *rows]))
    table = {"csv": str(path), "x": "x", "y": "y", "value": "v"}
    return {
        "elevation": {"field": {"elevation": "jacksboro", "window": [0, 0, 20, 20]}, "noise_std": 3.0},
        "only": {"field": {**table, "sites": "only"}, "round_time_s": 60.0, "noise_std": 0.1},
        "interpolated": {"field": {**table, "sites": "interpolated"}, "noise_std": 0.1, "travel_cost": 0.01},
        "gp": {"field": {"gp": {"lengthscale_m": 400.0, "size_m": [900, 700]}}, "max_sites": 100},
    }[request.param]


@pytest.fixture
def module(arguments):
    """The world with these arguments, as the kind of module that PettingZoo's tests take."""

    class Module:
        @staticmethod
        def parallel_env(**more):
            return robot_team_v0.parallel_env(**{**arguments, **more})

        @staticmethod
        def env(**more):
            return robot_team_v0.env(**{**arguments, **more})

    return Module


def rollout(env, seed=None, rounds=None):
    """Everything an episode returns; it goes on from where it stands if no seed is given."""
    generator = np.random.default_rng(0)
    told = [] if seed is None else [env.reset(seed=seed)]
    while env.agents and (rounds is None or len(told) < rounds):
        box = env.action_space(env.agents[0])
        actions = {agent: generator.uniform(box.low, box.high) for agent in env.agents}
        told.append(env.step(actions))
        told.append(env.state())
    return told


def assert_same(one, other):
    np.testing.assert_equal(one, other)  # equal to the bit, NaN included


def test_it_keeps_the_contract_also_where_measurements_fail(module):
    for failure_rate in (0.0, 0.2):
        sb.testing.check_environment(lambda rate=failure_rate: module.parallel_env(failure_rate=rate, max_cycles=12))


def test_pettingzoo_aec_api(module):
    api_test(module.env(), num_cycles=20)


def test_pettingzoo_seeds(module):
    seed_test(module.env, num_cycles=20)
    parallel_seed_test(module.parallel_env, num_cycles=20)


def test_pettingzoo_max_cycles(module):
    max_cycles_test(module)


def test_pettingzoo_render(module):
    render_test(module.env)


def test_another_seed_gives_another_episode(module):
    one, other = (rollout(module.parallel_env(), seed=seed) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(one[2::2], other[2::2], strict=True))


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_in_mid_episode_goes_on_alike_and_leaves_the_original_alone(module, copier):
    env = module.parallel_env(failure_rate=0.2)
    rollout(env, seed=5, rounds=9)
    copied = copier(env)
    state = env.state()
    ahead = rollout(copied)
    assert_same(env.state(), state)
    assert_same(rollout(env), ahead)
    assert_same(env.reset(), copied.reset())


def test_a_written_state_goes_on_alike_in_another_environment(module):
    env = module.parallel_env(failure_rate=0.2)
    rollout(env, seed=5, rounds=9)
    state = env.get_state()
    plain = json.loads(json.dumps(state["json"]))
    arrays = {name: np.array(array) for name, array in state["arrays"].items()}
    ahead = rollout(env)
    fresh = module.parallel_env(failure_rate=0.2)
    fresh.set_state({"json": plain, "arrays": arrays})
    assert_same(rollout(fresh), ahead)
    assert_same(fresh.reset(), env.reset())
    assert fresh.agents == fresh.possible_agents


def test_a_finished_episode_stays_finished_when_restored(module):
    env = module.parallel_env(max_cycles=2)
    rollout(env, seed=0)
    fresh = module.parallel_env(max_cycles=2)
    fresh.set_state(env.get_state())
    assert fresh.agents == []
    assert_same(fresh.state(), env.state())


def test_restored_environments_draw_the_same_picture(module):
    env = module.parallel_env(render_mode="rgb_array")
    rollout(env, seed=5, rounds=5)
    fresh = module.parallel_env(render_mode="rgb_array")
    fresh.set_state(env.get_state())
    np.testing.assert_array_equal(fresh.render(), env.render())


def test_aec_and_parallel_interfaces_tell_the_same(module):
    parallel, aec = module.parallel_env(max_cycles=6), module.env(max_cycles=6)
    observations, infos = parallel.reset(seed=2)
    aec.reset(seed=2)
    generator = np.random.default_rng(0)
    rewards = dict.fromkeys(parallel.agents, 0)
    over = False
    while not over:
        box = parallel.action_space("robot_0")
        actions = {agent: generator.uniform(box.low, box.high) for agent in parallel.agents}
        for agent, action in actions.items():
            assert aec.agent_selection == agent
            observation, reward, _, truncated, info = aec.last()
            assert_same((observation, reward, info), (observations[agent], rewards[agent], infos[agent]))
            assert not truncated
            aec.step(action)
        observations, rewards, _, truncations, infos = parallel.step(actions)
        over = not parallel.agents
    assert all(truncations.values())
    for agent in parallel.possible_agents:
        assert_same(aec.last(), (observations[agent], rewards[agent], False, True, infos[agent]))
        aec.step(None)
    assert aec.agents == []


def test_the_aec_form_copies_in_mid_episode(module):
    env = module.env()
    env.reset(seed=0)
    for agent in env.agent_iter(6):
        env.step(env.action_space(agent).low)
    copied = copy.deepcopy(env)
    for one in (env, copied):
        for agent in one.agent_iter(4):
            one.step(one.action_space(agent).high)
    assert_same(env.last(), copied.last())


def test_round_trip_to_aec_and_back_passes(module):
    parallel_api_test(aec_to_parallel(module.env()), num_cycles=5)


def test_spaces_are_equal_and_a_reward_is_the_outcome_less_the_cost(module):
    env = module.parallel_env(failure_rate=0.3)
    assert all(env.action_space(agent) == env.action_space("robot_0") for agent in env.possible_agents)
    for _, rewards, _, _, infos in rollout(env, seed=3)[1::2]:
        for agent, info in infos.items():
            outcome = 0.0 if np.isnan(info["measurement"]) else info["measurement"]
            assert rewards[agent] == outcome - info["cost"]


def test_all_agents_are_truncated_together(module):
    env = module.parallel_env(max_cycles=3)
    told = rollout(env, seed=0)[1::2]
    assert [set(truncations.values()) for _, _, _, truncations, _ in told] == [{False}, {False}, {True}]
    assert env.agents == []
    assert env.step({}) == ({}, {}, {}, {}, {})
    assert len(env.interaction_graph()) == 4


def test_states_of_other_worlds_and_versions_are_refused(module):
    env = module.parallel_env()
    env.reset(seed=0)
    state = env.get_state()
    with pytest.raises(StateVersionError, match=r"another world \(\$\.robots: 4, here 3\); use the same arguments"):
        module.parallel_env(robots=3).set_state(state)
    with pytest.raises(StateVersionError, match="version 99; wanted 2"):
        env.set_state({"json": {**state["json"], "version": 99}, "arrays": state["arrays"]})


def test_registering_again_is_silent_and_make_builds_both_forms(arguments):
    assert swarmbo_envs.register_all() == swarmbo_envs.register_all()
    assert "swarmbo/robot_team-v0" in swarmbo_envs.register_all()
    parallel = pettingzoo.make("parallel", "swarmbo/robot_team-v0", **arguments, max_cycles=7)
    assert parallel.unwrapped.max_cycles == 7
    aec = pettingzoo.make("aec", "swarmbo/robot_team-v0", **arguments)
    aec.reset(seed=0)
    assert aec.agents == parallel.possible_agents
    assert parallel.metadata["name"] == str(parallel) == "robot_team_v0"
