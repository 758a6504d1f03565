"""Environments for reinforcement learning: drawn by seed, normalised, stepped in batches; saved policies."""

from types import SimpleNamespace

import numpy as np
import pettingzoo
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete
from pettingzoo.test import parallel_api_test, parallel_seed_test
from pettingzoo.test.max_cycles_test import max_cycles_test
from pettingzoo.utils import parallel_to_aec

import swarmbo as sb
import swarmbo_envs  # noqa: F401  registers the worlds
from swarmbo.errors import ConfigError, ShapeError, StateVersionError
from swarmbo.runs.scenario import make_environment, scenario_of
from swarmbo_envs.learning import Normalised, SavedPolicy
from swarmbo_envs.wlan_power.many import ManyWlans

GP = {"gp": {"lengthscale_m": 300.0, "size_m": [900.0, 600.0], "std": 2.0}}
LAKE = {"corners": [[300, 200], [500, 200], [500, 400], [300, 400]]}
FAMILIES = [
    ("robot_team-v0", {"field": GP, "max_sites": 100, "task": "map", "noise_std": 0.1}),
    ("robot_team-v1", {"field": GP, "max_sites": 100, "no_go": [LAKE], "battery_s": 900.0}),
    ("sensor_field-v0", {"sensors": 6, "field": {"plume": {}}, "task": "level", "level": 30.0}),
    ("sensor_field-v0", {"sensors": 6}),
    ("wlan_power-v0", {"noise_std": 1.0, "mobility_m": 1.0}),
    ("wlan_power-v0", {"observes": "losses", "outcomes": "total", "topology": {"generated": {"access_points": 4}}}),
    ("function-v0", {"function": "wells", "relative_noise": 0.1}),
    ("function-v0", {"moved": True, "failure_rate": 0.1}),
]


def families(*slow):
    """All families. Those at these positions are slow, and another family has the same environment."""
    return [pytest.param(*one, marks=[pytest.mark.slow] * (n in slow)) for n, one in enumerate(FAMILIES)]


def made(world, arguments, **more):
    return pettingzoo.make("parallel", f"swarmbo/{world}", **{"max_cycles": 4, **arguments, **more})


def of_family(world, arguments, **more):
    return made(world, {"worlds": "drawn", **arguments}, **more)


def played(env, seed, **options):
    """All returned values of an episode of random actions, as text."""
    results = [env.reset(seed=seed, options=options or None)]
    rng = np.random.default_rng(0)
    while env.agents:
        boxes = {agent: env.action_space(agent) for agent in env.agents}
        results.append(env.step({agent: rng.uniform(box.low, box.high) for agent, box in boxes.items()}))
        assert all(env.observation_space(agent).contains(seen) for agent, seen in results[-1][0].items())
    with np.printoptions(floatmode="unique", threshold=10**6):
        return repr(results)


@pytest.mark.parametrize(("world", "arguments"), families(0, 3))
def test_a_seed_always_draws_the_same_world_and_its_number_selects_it(world, arguments):
    env, other = of_family(world, arguments), of_family(world, arguments)
    first = played(env, 1)
    number = env.unwrapped.get_state()["arrays"]["world"].item()
    played(other, 2)
    assert played(other, 1) == first == played(env, 1, world=number)
    assert played(env, 1, world=number + 1) != first
    env.reset(seed=1)
    env.reset()  # the next episode after a seed is in another world
    assert env.unwrapped.get_state()["arrays"]["world"].item() != number


@pytest.mark.parametrize(("world", "arguments"), families(0, 2))
@pytest.mark.parametrize("reward", ["task", *(pytest.param(one, marks=pytest.mark.slow) for one in ("team", "own"))])
def test_drawn_worlds_keep_the_contract(world, arguments, reward):
    def make(**more):
        return of_family(world, arguments, reward=reward, **more)

    sb.testing.check_environment(lambda: make(max_cycles=6), cycles=6)
    parallel_seed_test(make, num_cycles=10)
    max_cycles_test(SimpleNamespace(parallel_env=make, env=lambda **more: parallel_to_aec(make(**more))))


@pytest.mark.parametrize(("world", "arguments"), families(0, 3))
def test_an_incomplete_state_changes_nothing(world, arguments):
    env = of_family(world, arguments)
    env.reset(seed=3)
    saved = env.unwrapped.get_state()
    env.reset(seed=8)
    before = env.unwrapped.get_state()
    with pytest.raises(StateVersionError):
        env.unwrapped.set_state({**saved, "arrays": {"world": saved["arrays"]["world"]}})
    np.testing.assert_equal(env.unwrapped.get_state(), before)
    env.unwrapped.set_state(before)


def test_a_state_in_drawn_shadowing_depends_on_the_places_and_not_on_their_file(tmp_path):
    text = "kind,x_m,y_m\naccess_point,0,0\naccess_point,60,0\nuser,5,0\nuser,40,0\n"
    files = {name: tmp_path / name for name in ("one.csv", "moved.csv", "other.csv")}
    for name, file in files.items():
        file.write_text(text.replace("5", "20") if name == "other.csv" else text)
    worlds = [
        of_family("wlan_power-v0", {"topology": {"csv": str(file)}, "shadowing_db": 3.0}) for file in files.values()
    ]
    first, moved, other = (world.unwrapped for world in worlds)
    first.reset(seed=1)
    moved.set_state(first.get_state())
    np.testing.assert_equal(moved.get_state(), first.get_state())
    with pytest.raises(StateVersionError, match=r"another environment \(\$\.topology: "):
        other.set_state(first.get_state())


def test_draws_have_the_spread_of_the_prior_and_differ_from_each_other():
    env = of_family("robot_team-v0", {"field": GP, "max_sites": 100})
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


def test_no_draw_of_a_plume_exceeds_the_observation_space():
    """Seed 12 has a low plume; half of the other draws exceed its maximum."""
    env = of_family("sensor_field-v0", {"sensors": 2, "field": {"plume": {"seed": 12}}}).unwrapped
    highest = env.observation_space("sensor_0").high[2]
    tops = []
    for number in range(6):
        env.reset(options={"world": number})
        tops.append(max(env.field.value(env.field.sites, n).max() for n in range(0, 100, 5)))
    assert max(tops) < highest < 3.0 * max(tops)


def test_an_access_point_observes_its_neighbours_and_losses():
    env = of_family("wlan_power-v0", {"observes": "losses"})
    for seed in range(5):
        observations, _ = env.reset(seed=seed)
        world = env.unwrapped
        loss, serving = world.network.loss_db, world.network.serving
        for i, seen in enumerate(observations.values()):
            neighbours = np.flatnonzero(world.hears[i])
            parts = np.split(seen, [3, 7, 9, 13])
            assert parts[2][0] == (serving == i).sum()
            empty = 4 - len(neighbours)
            np.testing.assert_array_equal(parts[1], [13.0] * len(neighbours) + [1.0] * empty)
            if parts[2][0]:
                np.testing.assert_allclose(parts[2][1], loss[i, serving == i].mean())
                np.testing.assert_allclose(
                    parts[3], [*loss[neighbours][:, serving == i].mean(axis=1), *[300.0] * empty]
                )
            out = [loss[i, serving == j].mean() if (serving == j).any() else 300.0 for j in neighbours]
            np.testing.assert_allclose(parts[4], [*out, *[300.0] * empty])


def test_a_team_is_made_for_the_drawn_world():
    with pytest.raises(Exception, match="reset"):
        sb.Team.for_env(of_family("wlan_power-v0", {}))
    tables = {"name": "drawn", "environment": {"id": "swarmbo/wlan_power-v0", "worlds": "drawn"}, "rounds": 3}
    worlds = [make_environment(scenario_of({**tables, "seed": seed})).unwrapped for seed in (4, 5)]
    scopes = [world.factor_graph()["scopes"] for world in worlds]
    env = of_family("wlan_power-v0", {})
    env.reset(seed=4)
    assert scopes[0] == env.unwrapped.factor_graph()["scopes"] != scopes[1]


@pytest.mark.parametrize(
    ("world", "arguments", "match"),
    [
        ("robot_team-v0", {}, "has a seed"),
        ("sensor_field-v0", {"field": {"survey": "oxford-ph"}}, "has a seed"),
        ("function-v0", {}, "moved = true"),
        ("function-v0", {"function": "trimodal"}, "seed changes terms, not scopes"),
        ("wlan_power-v0", {"topology": {"access_points": [[0, 0]], "users": [[1, 1]]}}, "generated topology"),
        ("wlan_power-v0", {"channels": [1, 6]}, "none, with drawn worlds"),
    ],
)
def test_environments_that_cannot_be_drawn_are_refused(world, arguments, match):
    with pytest.raises(ConfigError, match=match):
        of_family(world, arguments)


def test_a_world_can_be_selected_only_if_worlds_are_drawn():
    env = of_family("function-v0", {}, worlds="fixed")
    with pytest.raises(ConfigError, match="worlds = 'drawn'"):
        env.reset(options={"world": 3})
    with pytest.raises(ConfigError, match="world"):
        of_family("function-v0", {"moved": True}).reset(options={"world": -1})


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


@pytest.mark.parametrize(("world", "arguments"), WORLDS)
def test_normalised_environments_behave_the_same_with_equal_spaces(world, arguments):
    parallel_api_test(Normalised(made(world, arguments)), num_cycles=8)
    parallel_seed_test(lambda: Normalised(made(world, arguments)), num_cycles=10)
    env, plain = Normalised(made(world, arguments), reward_scale=0.1), made(world, arguments)
    seen, _ = env.reset(seed=1)
    raw, _ = plain.reset(seed=1)
    agents = env.possible_agents
    assert len({str(env.observation_space(agent)) for agent in agents}) == 1
    assert len({str(env.action_space(agent)) for agent in agents}) == 1
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


def test_unbounded_measurements_are_observed_on_a_logarithmic_scale():
    env = Normalised(made("wlan_power-v0", {}))
    seen, _ = env.reset(seed=0)
    assert {own[1] for own in seen.values()} == {-1.0}  # none yet
    seen, *_, infos = env.step({agent: [1.0] for agent in env.agents})
    measured = np.array([info["measurement"] for info in infos.values()])
    np.testing.assert_allclose([own[1] for own in seen.values()], np.log1p(measured) / np.log1p(1e12), rtol=1e-6)


def test_levels_are_evenly_spaced_and_need_actions_of_one_number():
    env = Normalised(made("wlan_power-v0", {}), levels=4)
    assert env.action_space("ap_0") == Discrete(4)
    env.reset(seed=0)
    *_, infos = env.step({agent: i % 4 for i, agent in enumerate(env.agents)})
    np.testing.assert_allclose([info["location"][0] for info in infos.values()], np.tile([1.0, 9.0, 17.0, 25.0], 3))
    for wrong in (1, 0, 2.5):
        with pytest.raises(ConfigError, match=r"\$\.levels: got .*; wanted an integer >= 2"):
            Normalised(made("wlan_power-v0", {}), levels=wrong)
    for odd in (4, -1, 1.5):
        with pytest.raises(ConfigError, match=r"\$\.actions\.ap_0: got .*; wanted (at most 3|an integer >= 0)"):
            env.step(dict.fromkeys(env.agents, odd))
    for scale in (np.nan, "much"):
        with pytest.raises(ConfigError, match=r"\$\.reward_scale: got .*; wanted a finite number"):
            Normalised(made("wlan_power-v0", {}), reward_scale=scale)
    with pytest.raises(ConfigError, match=r"\$\.env: got .*; wanted a PettingZoo ParallelEnv"):
        Normalised(pettingzoo.make("aec", "swarmbo/wlan_power-v0"))
    with pytest.raises(ConfigError, match="one number"):
        Normalised(made("robot_team-v0", {}), levels=3)
    robots = Normalised(made("robot_team-v0", {"robots": 2}))
    robots.reset(seed=0)
    for wrong in (0.5, [0.5], [0.5, 0.5, 0.5], "much", None):
        with pytest.raises(ConfigError, match=r"\$\.actions\.robot_1: got .*; wanted 2 numbers from -1 to 1"):
            robots.step({"robot_0": [0.0, 0.0], "robot_1": wrong})
    with pytest.raises(ConfigError, match=r"\$\.actions: got \['nobody'\]; wanted some of "):
        robots.step({"robot_0": [0.0, 0.0], "nobody": [0.0, 0.0]})
    with pytest.raises(ConfigError, match="without channels"):
        Normalised(made("wlan_power-v0", {"channels": [1, 6]}))


@pytest.mark.parametrize("levels", [0, 5])
def test_a_saved_policy_acts_by_its_network(levels, tmp_path):
    rng = np.random.default_rng(0)
    shapes = [(7, 6), (6, 5 if levels else 1)]
    W, b = [rng.normal(size=shape) for shape in shapes], [rng.normal(size=shape[1]) for shape in shapes]
    np.savez(tmp_path / "p.npz", W0=W[0], b0=b[0], W1=W[1], b1=b[1], levels=levels)
    policy, env = SavedPolicy(tmp_path / "p.npz"), made("wlan_power-v0", {"worlds": "drawn"})
    seen, _ = env.reset(seed=0)
    policy.begin(env, 0)
    actions, scaled = policy.act(seen), Normalised(env).scaled_observations(seen)
    for agent, own in scaled.items():
        out = np.tanh(own @ W[0] + b[0]) @ W[1] + b[1]
        wanted = 1.0 + 24.0 * (out.argmax() / 4 if levels else (np.clip(out[0], -1, 1) + 1) / 2)
        np.testing.assert_allclose(actions[agent], [wanted], rtol=1e-9)


def test_a_file_without_a_network_for_the_environment_is_refused(tmp_path):
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    (tmp_path / "text.npz").write_text("W0")
    np.savez(tmp_path / "pickled.npz", W0=np.array([{}], dtype=object), b0=np.zeros(1), levels=0)
    np.savez(tmp_path / "no_weights.npz", b0=np.zeros(1), levels=0)
    (tmp_path / "torn.npz").write_bytes((tmp_path / "no_weights.npz").read_bytes()[:-30])
    (tmp_path / "empty.npz").touch()
    np.save(tmp_path / "one.npy", np.zeros(3))
    square = {"W0": np.ones((7, 3)), "levels": 3}
    np.savez(tmp_path / "bias.npz", **square, b0=np.zeros(4))
    np.savez(tmp_path / "chain.npz", **square, b0=np.zeros(3), W1=np.ones((4, 3)), b1=np.zeros(3))
    np.savez(tmp_path / "flat.npz", W0=np.ones(7), b0=np.zeros(1), levels=3)
    np.savez(tmp_path / "letters.npz", W0=np.full((7, 3), "a"), b0=np.zeros(3), levels=3)
    for name in (
        *("bias.npz", "chain.npz", "flat.npz", "letters.npz"),
        "none.npz",
        "other.npz",
        "text.npz",
        "pickled.npz",
        "no_weights.npz",
        "torn.npz",
        "empty.npz",
        "one.npy",
    ):
        with pytest.raises(
            ConfigError, match=r"\$\.file: got .*\.np.*; wanted arrays W0, b0, W1, … and levels"
        ) as error:
            SavedPolicy(tmp_path / name)
        assert str(error.value).count("wanted") == 1
    np.savez_compressed(tmp_path / "small.npz", W0=np.zeros((3, 1)), b0=np.zeros(1), levels=0)
    with pytest.raises(ConfigError, match="got a network of 3 inputs; wanted 7"):
        SavedPolicy(tmp_path / "small.npz").begin(made("wlan_power-v0", {}), 0)


@pytest.mark.parametrize("arguments", BATCHES)
def test_a_batch_of_worlds_equals_single_worlds(arguments):
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
    with pytest.raises(ResetNeeded, match="reset"):
        worlds.step(np.zeros((1, 12)))
    with pytest.raises(ConfigError, match="got no seed"):
        worlds.reset([])
    worlds.reset([0])
    for powers in (np.zeros((1, 11)), np.full((1, 12), np.nan)):
        with pytest.raises(ShapeError, match=r"\(1, 12\)"):
            worlds.step(powers)
