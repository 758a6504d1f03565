"""All environments are registered, keep PettingZoo's and swarmbo's contracts, and refuse states of others."""

import copy
import importlib
import inspect
import pickle
import subprocess
import sys

import numpy as np
import pettingzoo
import pytest
from gymnasium.utils.env_checker import data_equivalence
from pettingzoo.test import api_test, parallel_seed_test, render_test, seed_test, state_test
from pettingzoo.test.max_cycles_test import max_cycles_test

import swarmbo as sb
import swarmbo_envs
from swarmbo.errors import ConfigError, StateVersionError
from swarmbo_envs import robot_push_v0, robot_team_v0, robot_team_v1, sensor_field_v0, wlan_power_v0

from .conftest import SMALL, TRIANGLE, WORLDS, SmallWorld, kinds, random_actions, worlds


@pytest.fixture(params=worlds(), ids=" ".join)
def module(request, tmp_path):
    return SmallWorld(*request.param, tmp_path)


@pytest.fixture(params=kinds(), ids=" ".join)
def kind(request, tmp_path):
    return SmallWorld(*request.param, tmp_path)


def test_every_registered_environment_is_tested():
    versions = [name if "_v" in name else f"{name}_v0" for name in WORLDS]
    assert {f"swarmbo/{name.replace('_v', '-v')}" for name in versions} == set(IDS)


def test_environments_keep_the_contract_also_with_failing_measurements(module):
    sb.testing.check_environment(lambda: module.parallel_env(failure_rate=0.2, max_cycles=6), cycles=6)


# PettingZoo only warns about agents with different numbers of variables and neighbours
@pytest.mark.filterwarnings(
    "ignore:Agents have different",
    "ignore:Observations are different shapes",
    "ignore:Observation is not a NumPy array",
    "ignore:(Observation|Action) space for each agent probably",
)
def test_pettingzoo_aec_api(kind):
    if kind.name == "robot_push":
        pytest.skip("PettingZoo's test asks for zeros, and no push lasts for zero seconds")
    api_test(kind.env(), num_cycles=10)


def test_pettingzoo_seeds(kind):
    """The test compares infos, where a NaN would not equal itself. Failed measurements are left out instead."""
    seed_test(lambda: kind.env(failure_rate=0.4), num_cycles=6)
    parallel_seed_test(lambda: kind.parallel_env(failure_rate=0.4), num_cycles=6)


def test_a_pickled_copy_continues_an_episode_identically(module):
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


def test_callers_can_change_returned_places_without_effect_on_the_environment(kind):
    env = kind.parallel_env()
    env.reset(seed=0)

    def places():
        returned = {name: getattr(env, name)() for name in ("state", "sites", "standpoints") if hasattr(env, name)}
        returned |= {"candidates": env.candidates(env.agents[0])} if hasattr(env, "candidates") else {}
        truth, standing = env.ground_truth(), returned.pop("standpoints", {})
        return returned | standing | ({} if truth is None else {"points": truth.points, "best": truth.argmax})

    before = copy.deepcopy(places())
    for mine in places().values():
        mine += 1.0
    np.testing.assert_equal(places(), before)


@pytest.mark.parametrize("kind", kinds("function", "wlan_power"), indirect=True, ids=" ".join)
def test_a_state_after_a_query_by_number_can_be_continued(kind):
    env, fresh, rng = kind.parallel_env(noise_std=1.0), kind.parallel_env(noise_std=1.0), np.random.default_rng(3)
    env.reset(seed=4)
    for number in (3, 1):
        env.at_query(number)
        env.step(random_actions(env, rng))
    fresh.set_state(env.get_state())
    actions = random_actions(env, rng)
    assert data_equivalence(fresh.step(actions), env.step(actions))
    np.testing.assert_equal(fresh.get_state(), env.get_state())


CAMEL = "function", {"function": "camel"}
WLAN = "wlan_power", {"topology": TRIANGLE}
CHANNELS = "wlan_power", {"topology": SMALL, "channels": [1, 6, 11]}
ROBOTS = "robot_team", {"field": {"gp": {}}, "robots": 2}
SENSORS = "sensor_field", {"field": {"gp": {}}, "sensors": 4}


@pytest.mark.parametrize(
    ("world", "agent", "action", "message"),
    [
        (CAMEL, "agent_1", None, "got no action"),
        (CAMEL, "agent_9", [0.0], "not live"),
        (CAMEL, "agent_1", [np.nan], r"got \[nan\]"),
        (CAMEL, "agent_1", [5.0], r"wanted values of .* variables from \[-2.0\] to \[2.0\]"),
        (CAMEL, "agent_0", [0.0, 1.0], r"got shape \(2,\); wanted values .* of shape \(1,\)"),
        (WLAN, "ap_2", [26.0], r"got \[26.0\]; wanted \[power in dBm\] from \[1.0\] to \[25.0\]"),
        (WLAN, "ap_2", [5.0, 6.0], r"got shape \(2,\); wanted \[power in dBm\], of shape \(1,\)"),
        (WLAN, "ap_2", ["loud"], r"got \['loud'\]; wanted \[power in dBm\]"),
        (CHANNELS, "ap_2", [5.0], r"got \[5.0\]; wanted a table"),
        (CHANNELS, "ap_2", {"power": [5.0]}, r"got \['power'\]; wanted \['power', 'channel'\]"),
        (CHANNELS, "ap_2.channel", {"power": [5.0], "channel": 3}, "got 3; wanted at most 2"),
        (CHANNELS, "ap_2.channel", {"power": [5.0], "channel": 0.5}, "got 0.5"),
        (CHANNELS, "ap_2.power", {"power": [26.0], "channel": 0}, r"got \[26.0\]; wanted \[power\] from"),
        (ROBOTS, "robot_1", [-1.0, 0.0], r"got \[-1\.0, 0\.0\]; wanted \[x, y\] from \[0\.0, 0\.0\] to"),
        (ROBOTS, "robot_1", [1.0], r"got shape \(1,\); wanted \[x, y\]"),
        (SENSORS, "sensor_2", [1.0, 2.0], r"got shape \(2,\); wanted \[x, y, sample: 0 to 1\]"),
        (SENSORS, "sensor_2", [1e5, 0.0, 1.0], r"got \[100000\.0, 0\.0, 1\.0\]; wanted \[x, y, sample"),
    ],
)
def test_a_wrong_action_is_refused_with_its_agent_and_changes_nothing(world, agent, action, message):
    name, arguments = world
    env = importlib.import_module(f"swarmbo_envs.{name}_v0").parallel_env(**arguments)
    env.reset(seed=0)
    before = env.get_state()
    actions = {**random_actions(env, np.random.default_rng(0)), agent.partition(".")[0]: action}
    with pytest.raises(ConfigError, match=rf"\$\.actions\.{agent}: .*{message}"):
        env.step({agent: action for agent, action in actions.items() if action is not None})
    np.testing.assert_equal(env.get_state(), before)


def test_pettingzoo_max_cycles(kind):
    max_cycles_test(kind)


def test_pettingzoo_state(kind):
    state_test(kind.env(), kind.parallel_env())


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_pettingzoo_render(name, tmp_path):
    """Ten pictures of one environment of each kind."""
    render_test(SmallWorld(name, next(iter(WORLDS[name])), tmp_path).env)


@pytest.mark.slow
@pytest.mark.parametrize("world", worlds("function", "wlan_power"), ids=" ".join)
def test_all_settings_have_a_picture(world, tmp_path):
    env = SmallWorld(*world, tmp_path).parallel_env(render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.dtype == np.uint8
    assert picture.std() > 0.0


def test_a_state_of_another_environment_is_refused(kind):
    env = kind.parallel_env(failure_rate=0.2)
    env.reset(seed=5)
    with pytest.raises(StateVersionError, match=r"another environment \(\$\.failure_rate: 0\.2, here 0\.3\)"):
        kind.parallel_env(failure_rate=0.3).set_state(env.get_state())


def test_an_invalid_state_is_refused_and_changes_nothing(kind):
    env = kind.parallel_env()
    env.reset(seed=5)
    state = env.get_state()
    plain, arrays, (name, array) = state["json"], state["arrays"], next(iter(state["arrays"].items()))
    wrong = {"seed": -1}, {"round": "two"}, {"round": -1}, {"running": 0}, {"world": None}, {"world": 3}, {"surplus": 1}
    broken = [{**state, "json": {**plain, **one}} for one in wrong]
    broken += [{**state, "json": {key: plain[key] for key in plain if key != "seed"}}, {**state, "arrays": {}}]
    for one in (array[..., None], array.astype(str), [[1.0], [2.0, 3.0]]):
        broken.append({**state, "arrays": {**arrays, name: one}})
    for one in broken:
        with pytest.raises(StateVersionError, match=r"got a .* state that is not valid"):
            env.set_state(one)
    for one in (None, {}, {"json": {}}, {"json": 3, "arrays": {}}, {"arrays": {}}):
        with pytest.raises(StateVersionError, match=r"got no .* state; wanted .* of get_state\(\)"):
            env.set_state(one)
    with pytest.raises(StateVersionError, match="version 99; wanted"):
        env.set_state({**state, "json": {**plain, "version": 99}})
    np.testing.assert_equal(env.get_state(), state)


FIELDS = ("robot_team", "robot_team_v1", "sensor_field")


def rollout(env, seed, rounds):
    """All returned values of some rounds of an episode."""
    generator, results = np.random.default_rng(0), [env.reset(seed=seed)]
    for _ in range(rounds):
        results += [env.step(random_actions(env, generator)), env.state()]
    return results


@pytest.mark.parametrize("kind", kinds(*FIELDS), indirect=True, ids=" ".join)
def test_another_seed_gives_another_episode(kind):
    one, other = (rollout(kind.parallel_env(), seed, 3) for seed in (0, 1))
    assert any(not np.array_equal(a, b) for a, b in zip(one[2::2], other[2::2], strict=True))


@pytest.mark.parametrize("module", worlds(*FIELDS), indirect=True, ids=" ".join)
def test_a_restored_finished_episode_stays_finished_and_the_next_episode_is_the_same(module):
    env = module.parallel_env(max_cycles=2)
    rollout(env, 0, 2)
    fresh = module.parallel_env(max_cycles=2)
    fresh.set_state(env.get_state())
    assert fresh.agents == []
    assert fresh.step({}) == ({}, {}, {}, {}, {})
    assert len(fresh.interaction_graph()) == len(fresh.possible_agents)
    np.testing.assert_equal(fresh.state(), env.state())
    np.testing.assert_equal(fresh.reset(), env.reset())
    assert fresh.agents == fresh.possible_agents


@pytest.mark.thorough
@pytest.mark.parametrize("kind", kinds("robot_team", "sensor_field"), indirect=True, ids=" ".join)
def test_restored_environments_draw_the_same_picture(kind):
    env = kind.parallel_env(render_mode="rgb_array")
    rollout(env, 5, 2)
    fresh = kind.parallel_env(render_mode="rgb_array")
    fresh.set_state(env.get_state())
    picture = env.render()
    assert picture.std() > 0.0
    np.testing.assert_array_equal(fresh.render(), picture)


NAMES = ("function-v0", "robot_push-v0", "robot_team-v0", "robot_team-v1", "sensor_field-v0", "wlan_power-v0")
IDS = [f"swarmbo/{name}" for name in NAMES]


def test_importing_the_package_registers_every_environment_in_both_forms():
    program = (
        "import pettingzoo, swarmbo_envs; "
        "print(sorted(i for i in pettingzoo.parallel_registry if i.startswith('swarmbo/'))); "
        "print(sorted(i for i in pettingzoo.aec_registry if i.startswith('swarmbo/')))"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == f"{IDS}\n{IDS}\n"
    assert not result.stderr


def test_registering_again_gives_no_warning_and_replaces_nothing(monkeypatch):
    mine = pettingzoo.EnvSpec(id=IDS[1], entry_point="somewhere:else")
    monkeypatch.setitem(pettingzoo.parallel_registry, IDS[1], mine)
    assert swarmbo_envs.register_all() == IDS
    assert pettingzoo.parallel_registry[IDS[1]] is mine


@pytest.mark.parametrize("identifier", IDS)
def test_environments_are_made_by_name_in_both_forms(identifier):
    env = pettingzoo.make("parallel", identifier, max_cycles=4)
    assert env.unwrapped.max_cycles == 4
    assert f"swarmbo/{env}" == f"swarmbo/{env.metadata['name']}" == identifier.replace("-", "_")
    assert pettingzoo.make("aec", identifier, max_cycles=4).possible_agents == env.possible_agents


class DerivedEnv(robot_team_v1.parallel_env):
    def __init__(self, depth=3):
        super().__init__(robots=np.int64(2), speed_m_s=np.array([1.0, depth]), starts=[np.zeros(2), (9.0, 9.0)])


@pytest.mark.parametrize("version", [robot_push_v0, robot_team_v0, robot_team_v1, sensor_field_v0, wlan_power_v0])
def test_help_shows_the_arguments_of_an_environment_and_their_defaults(version):
    made, parameters = version.parallel_env().settings, inspect.signature(version.parallel_env).parameters
    assert list(parameters) == list(made.__struct_fields__)
    other = {name for name, one in parameters.items() if one.default != getattr(made, name)}
    assert other <= {"field", "departures", "parameters", "types"}
    assert {one.kind for one in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_a_derived_environment_has_its_own_arguments_and_accepts_numpy_numbers():
    assert list(inspect.signature(DerivedEnv).parameters) == ["depth"]
    assert DerivedEnv(depth=4).settings.speed_m_s == [1.0, 4.0]
