"""Worlds drawn by seed: the same seed gives the same bytes, other seeds other worlds, in the same spaces."""

from types import SimpleNamespace

import numpy as np
import pettingzoo
import pytest
from pettingzoo.test import parallel_seed_test
from pettingzoo.test.max_cycles_test import max_cycles_test
from pettingzoo.utils import parallel_to_aec

import swarmbo as sb
import swarmbo_envs  # noqa: F401  registers the worlds
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.runs.scenario import make_environment, scenario_of

GP = {"gp": {"lengthscale_m": 300.0, "size_m": [900.0, 600.0], "std": 2.0}}
LAKE = {"corners": [[300, 200], [500, 200], [500, 400], [300, 400]]}
WORLDS = [
    ("robot_team-v0", {"field": GP, "max_sites": 100, "task": "map", "noise_std": 0.1}),
    ("robot_team-v1", {"field": GP, "max_sites": 100, "no_go": [LAKE], "battery_s": 900.0}),
    ("sensor_field-v0", {"sensors": 6, "field": {"plume": {}}, "task": "level", "level": 30.0}),
    ("sensor_field-v0", {"sensors": 6}),
    ("wlan_power-v0", {"noise_std": 1.0, "mobility_m": 1.0}),
    ("wlan_power-v0", {"observes": "losses", "outcomes": "total"}),
    ("function-v0", {"function": "wells", "relative_noise": 0.1}),
    ("function-v0", {"moved": True, "failure_rate": 0.1}),
]


def made(world, arguments, **more):
    return pettingzoo.make("parallel", f"swarmbo/{world}", **{"max_cycles": 5, "worlds": "drawn", **arguments, **more})


def played(env, seed, **options):
    """All that an episode of random actions tells, as text."""
    told = [env.reset(seed=seed, options=options or None)]
    rng = np.random.default_rng(0)
    while env.agents:
        boxes = {agent: env.action_space(agent) for agent in env.agents}
        told.append(env.step({agent: rng.uniform(box.low, box.high) for agent, box in boxes.items()}))
        assert all(env.observation_space(agent).contains(seen) for agent, seen in told[-1][0].items())
    with np.printoptions(floatmode="unique", threshold=10**6):
        return repr(told)


@pytest.mark.parametrize(("world", "arguments"), WORLDS)
def test_a_seed_draws_one_world_and_a_number_picks_it(world, arguments):
    env, other = made(world, arguments), made(world, arguments)
    first = played(env, 1)
    number = env.unwrapped.get_state()["arrays"]["world"].item()
    played(other, 2)
    assert played(other, 1) == first == played(env, 1, world=number)
    assert played(env, 1, world=number + 1) != first
    env.reset(seed=1)
    env.reset()  # the next episode of a seed is in another world
    assert env.unwrapped.get_state()["arrays"]["world"].item() != number


@pytest.mark.parametrize(("world", "arguments"), WORLDS)
@pytest.mark.parametrize("reward", ["task", *(pytest.param(one, marks=pytest.mark.slow) for one in ("team", "own"))])
def test_drawn_worlds_keep_the_contract(world, arguments, reward):
    def make(**more):
        return made(world, arguments, reward=reward, **more)

    sb.testing.check_environment(lambda: make(max_cycles=6), cycles=6)
    parallel_seed_test(make)
    max_cycles_test(SimpleNamespace(parallel_env=make, env=lambda **more: parallel_to_aec(make(**more))))


@pytest.mark.parametrize(("world", "arguments"), WORLDS)
def test_a_state_that_is_not_whole_moves_nobody_into_its_world(world, arguments):
    env = made(world, arguments)
    env.reset(seed=3)
    saved = env.unwrapped.get_state()
    env.reset(seed=8)
    before = env.unwrapped.get_state()
    with pytest.raises(StateVersionError):
        env.unwrapped.set_state({**saved, "arrays": {"world": saved["arrays"]["world"]}})
    np.testing.assert_equal(env.unwrapped.get_state(), before)
    env.unwrapped.set_state(before)


def test_draws_are_of_the_family_and_unlike_each_other():
    env = made("robot_team-v0", WORLDS[0][1])
    places, drawn = np.random.default_rng(0).uniform([0, 0], [900, 600], (40, 2)), []
    for seed in range(30):
        env.reset(seed=seed)
        drawn.append(env.unwrapped.field.value(places))
    drawn = np.array(drawn)
    assert np.sqrt((drawn**2).mean()) == pytest.approx(2.0, rel=0.15)
    assert np.abs(np.corrcoef(drawn)[np.triu_indices(30, 1)]).mean() < 0.5
    fixed = pettingzoo.make("parallel", "swarmbo/robot_team-v0", field={"gp": {**GP["gp"], "seed": 77}})
    env.reset(options={"world": 77})
    np.testing.assert_array_equal(env.unwrapped.field.value(places), fixed.unwrapped.field.value(places))


def test_no_draw_of_a_plume_exceeds_what_is_shown():
    """Seed 12 has a low plume; half of the others rise above its own maximum."""
    env = made("sensor_field-v0", {"sensors": 2, "field": {"plume": {"seed": 12}}}).unwrapped
    highest = env.observation_space("sensor_0").high[2]
    tops = []
    for number in range(6):
        env.reset(options={"world": number})
        tops.append(max(env.field.at(n).value(env.field.sites).max() for n in range(0, 100, 5)))
    assert max(tops) < highest < 3.0 * max(tops)


def test_an_access_point_observes_its_neighbours_and_losses():
    env = made("wlan_power-v0", {"observes": "losses"})
    for seed in range(5):
        observations, _ = env.reset(seed=seed)
        world = env.unwrapped
        loss, serving = world.network.loss_db, world.network.serving
        for i, seen in enumerate(observations.values()):
            heard = np.flatnonzero(world.hears[i])
            parts = np.split(seen, [3, 7, 9, 13])
            assert parts[2][0] == (serving == i).sum()
            empty = 4 - len(heard)
            np.testing.assert_array_equal(parts[1], [13.0] * len(heard) + [1.0] * empty)
            if parts[2][0]:
                np.testing.assert_allclose(parts[2][1], loss[i, serving == i].mean())
                np.testing.assert_allclose(parts[3], [*loss[heard][:, serving == i].mean(axis=1), *[300.0] * empty])
            out = [loss[i, serving == j].mean() if (serving == j).any() else 300.0 for j in heard]
            np.testing.assert_allclose(parts[4], [*out, *[300.0] * empty])


def test_a_team_is_made_for_the_drawn_world():
    with pytest.raises(Exception, match="reset"):
        sb.Team.for_env(made("wlan_power-v0", {}))
    tables = {"name": "drawn", "environment": {"id": "swarmbo/wlan_power-v0", "worlds": "drawn"}, "rounds": 3}
    worlds = [make_environment(scenario_of({**tables, "seed": seed})).unwrapped for seed in (4, 5)]
    scopes = [world.factor_graph()["scopes"] for world in worlds]
    env = made("wlan_power-v0", {})
    env.reset(seed=4)
    assert scopes[0] == env.unwrapped.factor_graph()["scopes"] != scopes[1]


@pytest.mark.parametrize(
    ("world", "arguments", "match"),
    [
        ("robot_team-v0", {}, "has a seed"),
        ("sensor_field-v0", {"field": {"survey": "oxford-ph"}}, "has a seed"),
        ("function-v0", {}, "moved = true"),
        ("function-v0", {"function": "trimodal"}, "same factors"),
        ("wlan_power-v0", {"topology": {"access_points": [[0, 0]], "users": [[1, 1]]}}, "generated topology"),
        ("wlan_power-v0", {"channels": [1, 6]}, "none, with drawn worlds"),
    ],
)
def test_worlds_that_are_no_family_are_refused(world, arguments, match):
    with pytest.raises(ConfigError, match=match):
        made(world, arguments)


def test_a_world_is_picked_only_where_worlds_are_drawn():
    env = made("function-v0", {}, worlds="fixed")
    with pytest.raises(ConfigError, match="worlds = 'drawn'"):
        env.reset(options={"world": 3})
    with pytest.raises(ConfigError, match="world"):
        made("function-v0", {"moved": True}).reset(options={"world": -1})
