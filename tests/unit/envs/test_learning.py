"""Spaces for learning, saved policies, and many worlds in one call, against single worlds."""

import numpy as np
import pettingzoo
import pytest
from gymnasium.spaces import Box, Discrete
from pettingzoo.test import parallel_api_test, parallel_seed_test

import swarmbo_envs  # noqa: F401  registers the worlds
from swarmbo.errors import ConfigError, ShapeError
from swarmbo_envs.learning import Normalised, SavedPolicy
from swarmbo_envs.wlan_power.many import ManyWlans

GP = {"gp": {"lengthscale_m": 300.0, "size_m": [900.0, 600.0]}}
WORLDS = [
    ("robot_team-v0", {"field": GP, "max_sites": 100}),
    ("sensor_field-v0", {"sensors": 5, "field": GP}),
    ("wlan_power-v0", {"worlds": "drawn", "observes": "losses"}),
    ("function-v0", {"function": "hartmann", "agents": 1}),
    ("function-v0", {}),
]
BATCHES = [
    {"worlds": "drawn"},
    {"worlds": "drawn", "observes": "losses", "noise_std": 5.0, "failure_rate": 0.2},
    {"worlds": "drawn", "reward": "own", "utility": "proportional-fair", "noise_std": 1.0},
    {"reward": "team", "outcomes": "total", "failure_rate": 0.3, "noise_std": 2.0, "observes": "losses"},
    {"worlds": "drawn", "reward": "own", "outcomes": "total", "utility": "users-above", "rate_mbps": 50.0},
    {"worlds": "drawn", "interference": "all", "shadowing_db": 6.0, "topology": {"generated": {"users": 9}}},
    {"worlds": "drawn", "airtime": "full", "rate_cap_mbps": 40.0},
]


def made(world, arguments, **more):
    return pettingzoo.make("parallel", f"swarmbo/{world}", max_cycles=4, **arguments, **more)


@pytest.mark.parametrize(("world", "arguments"), WORLDS)
def test_normalised_worlds_are_the_same_worlds_in_equal_spaces(world, arguments):
    parallel_api_test(Normalised(made(world, arguments)), num_cycles=8)
    parallel_seed_test(lambda: Normalised(made(world, arguments)))
    env, plain = Normalised(made(world, arguments), reward_scale=0.1), made(world, arguments)
    seen, _ = env.reset(seed=1)
    raw, _ = plain.reset(seed=1)
    agents = env.possible_agents
    assert len({str(env.observation_space(agent)) for agent in agents}) == 1
    assert len({str(env.action_space(agent)) for agent in agents}) == 1
    assert env.observation_space(agents[0]) is env.observation_space(agents[0])
    rng = np.random.default_rng(0)
    while env.agents:
        for agent in env.agents:
            assert env.observation_space(agent).contains(seen[agent])
            box = plain.observation_space(agent)
            tame = box.high - box.low < 1e9
            share = (raw[agent] - box.low) / np.where(box.high > box.low, box.high - box.low, 1.0)
            np.testing.assert_allclose(seen[agent][: len(tame)][tame], (2 * share - 1)[tame], atol=1e-6)
        actions = {agent: rng.uniform(-1, 1, env.action_space(agent).shape) for agent in env.agents}
        boxes = {agent: plain.action_space(agent) for agent in env.agents}
        sent = {a: b.low + (actions[a][: b.shape[0]] + 1) / 2 * (b.high - b.low) for a, b in boxes.items()}
        seen, rewards, *_ = env.step(actions)
        raw, paid, *_ = plain.step(sent)
        np.testing.assert_allclose(list(rewards.values()), 0.1 * np.array(list(paid.values())), rtol=1e-9, atol=1e-12)


def test_measurements_without_limits_are_seen_by_their_order_of_magnitude():
    env = Normalised(made("wlan_power-v0", {}))
    seen, _ = env.reset(seed=0)
    assert {own[1] for own in seen.values()} == {-1.0}  # none yet
    seen, *_, infos = env.step({agent: [1.0] for agent in env.agents})
    told = np.array([info["measurement"] for info in infos.values()])
    np.testing.assert_allclose([own[1] for own in seen.values()], np.log1p(told) / np.log1p(1e12), rtol=1e-6)


def test_levels_are_evenly_spaced_and_only_of_single_numbers():
    env = Normalised(made("wlan_power-v0", {}), levels=4)
    assert env.action_space("ap_0") == Discrete(4)
    env.reset(seed=0)
    *_, infos = env.step({agent: i % 4 for i, agent in enumerate(env.agents)})
    np.testing.assert_allclose([info["location"][0] for info in infos.values()], np.tile([1.0, 9.0, 17.0, 25.0], 3))
    for wrong in (1, 0):
        with pytest.raises(ConfigError, match="2 or more"):
            Normalised(made("wlan_power-v0", {}), levels=wrong)
    with pytest.raises(ConfigError, match="one number"):
        Normalised(made("robot_team-v0", {}), levels=3)
    with pytest.raises(ConfigError, match="no channels"):
        Normalised(made("wlan_power-v0", {"channels": [1, 6]}))


@pytest.mark.parametrize("levels", [0, 5])
def test_a_saved_policy_is_its_network(levels, tmp_path):
    rng = np.random.default_rng(0)
    shapes = [(7, 6), (6, 5 if levels else 1)]
    W, b = [rng.normal(size=shape) for shape in shapes], [rng.normal(size=shape[1]) for shape in shapes]
    np.savez(tmp_path / "p.npz", W0=W[0], b0=b[0], W1=W[1], b1=b[1], levels=levels)
    policy, env = SavedPolicy(tmp_path / "p.npz"), made("wlan_power-v0", {"worlds": "drawn"})
    seen, _ = env.reset(seed=0)
    policy.begin(env, 0)
    actions, scaled = policy.act(seen), Normalised(env).seen(seen)
    for agent, own in scaled.items():
        assert isinstance(env.action_space(agent), Box)
        out = np.tanh(own @ W[0] + b[0]) @ W[1] + b[1]
        wanted = 1.0 + 24.0 * (out.argmax() / 4 if levels else (np.clip(out[0], -1, 1) + 1) / 2)
        np.testing.assert_allclose(actions[agent], [wanted], rtol=1e-9)


@pytest.mark.parametrize("arguments", BATCHES)
def test_many_worlds_are_each_the_single_one(arguments):
    many, seeds, rng = ManyWlans(max_cycles=4, **arguments), [3, 1, 7], np.random.default_rng(0)
    singles = [made("wlan_power-v0", arguments) for _ in seeds]
    begun, over = many.reset(seeds), False
    for row, env, seed in zip(begun, singles, seeds, strict=True):
        np.testing.assert_allclose(row, list(env.reset(seed=seed)[0].values()), rtol=1e-12)
    rounds = 0
    while not over:
        powers, rounds = rng.uniform(1.0, 25.0, begun.shape[:2]), rounds + 1
        observations, rewards, over = many.step(powers)
        for number, env in enumerate(singles):
            seen, paid, *_ = env.step({f"ap_{i}": [p] for i, p in enumerate(powers[number])})
            np.testing.assert_allclose(observations[number], list(seen.values()), rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(rewards[number], list(paid.values()), rtol=1e-12, atol=1e-12)
    assert rounds == 4


@pytest.mark.parametrize("wrong", [{"mobility_m": 1.0}, {"utility": "cell-minimum"}, {"channels": [1, 6]}])
def test_worlds_that_cannot_be_stepped_together_are_refused(wrong):
    with pytest.raises(ConfigError, match="one by one"):
        ManyWlans(**wrong)
    worlds = ManyWlans()
    worlds.reset([0])
    with pytest.raises(ShapeError, match=r"\(1, 12\)"):
        worlds.step(np.zeros((1, 11)))
