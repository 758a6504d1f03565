"""All worlds keep PettingZoo's contract and ours, and refuse states of other worlds."""

import pickle

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo.test import api_test, parallel_seed_test, render_test, seed_test
from pettingzoo.test.max_cycles_test import max_cycles_test

import swarmbo as sb
from swarmbo.errors import StateVersionError

from .conftest import WORLDS, SmallWorld, kinds, random_actions, worlds


@pytest.fixture(params=worlds(), ids=" ".join)
def module(request, tmp_path):
    return SmallWorld(*request.param, tmp_path)


@pytest.fixture(params=kinds(), ids=" ".join)
def kind(request, tmp_path):
    return SmallWorld(*request.param, tmp_path)


def test_it_keeps_the_contract_also_where_measurements_fail(module):
    sb.testing.check_environment(lambda: module.parallel_env(failure_rate=0.2, max_cycles=6))


# agents own and hear different numbers of others; PettingZoo remarks on it and goes on
@pytest.mark.filterwarnings(
    "ignore:Agents have different",
    "ignore:Observations are different shapes",
    "ignore:Observation is not a NumPy array",
    "ignore:(Observation|Action) space for each agent probably",
)
def test_pettingzoo_aec_api(kind):
    if kind.name == "robot_push":
        pytest.skip("PettingZoo's test asks for zeros, and no push lasts for zero seconds")
    api_test(kind.env(), num_cycles=20)


def test_pettingzoo_seeds(kind):
    """It compares infos, and NaN is not equal to itself: what failed is left out of them."""
    seed_test(lambda: kind.env(failure_rate=0.4), num_cycles=10)
    parallel_seed_test(lambda: kind.parallel_env(failure_rate=0.4), num_cycles=10)


def test_a_pickled_copy_goes_on_alike_in_mid_episode(module):
    env, rng = module.parallel_env(failure_rate=0.3, max_cycles=9), np.random.default_rng(3)
    env.reset(seed=4)
    actions = [random_actions(env, rng) for _ in range(6)]
    for action in actions[:3]:
        env.step(action)
    other = pickle.loads(pickle.dumps(env))
    ahead = [other.step(action) for action in actions[3:]]
    for step, action in zip(ahead, actions[3:], strict=True):
        assert data_equivalence(step, env.step(action))
    np.testing.assert_equal(other.get_state(), env.get_state())
    assert data_equivalence(other.reset(), env.reset())


def test_pettingzoo_max_cycles(kind):
    max_cycles_test(kind)


@pytest.mark.thorough
@pytest.mark.parametrize("name", WORLDS)
def test_pettingzoo_render(name, tmp_path):
    """Ten pictures of one world of each kind."""
    render_test(SmallWorld(name, next(iter(WORLDS[name])), tmp_path).env)


@pytest.mark.thorough
@pytest.mark.parametrize("world", worlds("function", "wlan_power"), ids=" ".join)
def test_all_settings_have_a_picture(world, tmp_path):
    env = SmallWorld(*world, tmp_path).parallel_env(render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.std() > 0.0


def test_a_state_of_another_world_is_refused(kind):
    env = kind.parallel_env(failure_rate=0.2)
    env.reset(seed=5)
    with pytest.raises(StateVersionError, match=r"another environment \(\$\.failure_rate: 0\.2, here 0\.3\)"):
        kind.parallel_env(failure_rate=0.3).set_state(env.get_state())


def test_a_state_that_is_none_or_not_whole_is_refused(kind):
    env = kind.parallel_env()
    env.reset(seed=5)
    state = env.get_state()
    for broken in ({}, {**state, "arrays": {}}):
        with pytest.raises(StateVersionError, match=r"state.*; wanted .*get_state\(\)"):
            env.set_state(broken)
    with pytest.raises(StateVersionError, match="version 99; wanted"):
        env.set_state({**state, "json": {**state["json"], "version": 99}})
