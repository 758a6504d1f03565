"""Worlds over a field keep PettingZoo's contract and ours, on every kind of field."""

import copy

import numpy as np
import pytest

from .conftest import SmallWorld, kinds, random_actions, worlds

FIELDS = ("robot_team", "robot_team_v1", "sensor_field")


@pytest.fixture(params=worlds(*FIELDS), ids=" ".join)
def module(request, tmp_path):
    return SmallWorld(*request.param, tmp_path)


@pytest.fixture(params=kinds(*FIELDS), ids=" ".join)
def kind(request, tmp_path):
    return SmallWorld(*request.param, tmp_path)


def rollout(env, seed=None, rounds=None):
    """Everything an episode returns; it goes on from where it stands if no seed is given."""
    generator = np.random.default_rng(0)
    told = [] if seed is None else [env.reset(seed=seed)]
    while env.agents and (rounds is None or len(told) < rounds):
        told.append(env.step(random_actions(env, generator)))
        told.append(env.state())
    return told


def assert_same(one, other):
    np.testing.assert_equal(one, other)  # equal to the bit, NaN included


def test_another_seed_gives_another_episode(kind):
    one, other = (rollout(kind.parallel_env(), seed=seed, rounds=6) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(one[2::2], other[2::2], strict=True))


def test_a_finished_episode_stays_finished_when_restored_and_the_next_one_is_the_same(module):
    env = module.parallel_env(max_cycles=2)
    rollout(env, seed=0)
    fresh = module.parallel_env(max_cycles=2)
    fresh.set_state(env.get_state())
    assert fresh.agents == []
    assert fresh.step({}) == ({}, {}, {}, {}, {})
    assert len(fresh.interaction_graph()) == len(fresh.possible_agents)
    assert_same(fresh.state(), env.state())
    assert_same(fresh.reset(), env.reset())
    assert fresh.agents == fresh.possible_agents


@pytest.mark.thorough
def test_restored_environments_draw_the_same_picture(kind):
    env = kind.parallel_env(render_mode="rgb_array")
    rollout(env, seed=5, rounds=4)
    fresh = kind.parallel_env(render_mode="rgb_array")
    fresh.set_state(env.get_state())
    picture = env.render()
    assert picture.std() > 0.0
    np.testing.assert_array_equal(fresh.render(), picture)


def test_aec_and_parallel_interfaces_tell_the_same(kind):
    parallel, aec = kind.parallel_env(max_cycles=6), kind.env(max_cycles=6)
    observations, infos = parallel.reset(seed=2)
    aec.reset(seed=2)
    generator = np.random.default_rng(0)
    rewards = dict.fromkeys(parallel.agents, 0)
    over = False
    while not over:
        actions = random_actions(parallel, generator)
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


def test_the_aec_form_copies_in_mid_episode(kind):
    env = kind.env()
    env.reset(seed=0)
    for agent in env.agent_iter(6):
        env.step(env.action_space(agent).low)
    copied = copy.deepcopy(env)
    for one in (env, copied):
        for agent in one.agent_iter(4):
            one.step(one.action_space(agent).high)
    assert_same(env.last(), copied.last())
