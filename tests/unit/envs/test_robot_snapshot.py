import json

import numpy as np
import pytest

from swarmbo.errors import ConfigError, StateVersionError
from swarmbo_envs import robot_team_v0

DRAW = {"lengthscale_m": 300.0, "size_m": [900.0, 700.0]}
ARGUMENTS = {"robots": 2, "field": {"gp": DRAW}, "max_sites": 50, "max_cycles": 6}


def world(**changed):
    return robot_team_v0.parallel_env(**{**ARGUMENTS, **changed})


def state_after(env, rounds=2):
    env.reset(seed=3)
    for _ in range(rounds):
        env.step({agent: np.array([400.0, 300.0]) for agent in env.agents})
    return env.get_state()


@pytest.fixture
def state():
    return state_after(world())


@pytest.fixture
def soil(tmp_path):
    def write(name="soil.csv", value=1.0, x=0.0, **more):
        path = tmp_path / name
        path.write_text(f"x,y,v\n{x},0,{value}\n900,0,2\n0,900,3\n900,900,4\n")
        return {"csv": str(path), "x": "x", "y": "y", "value": "v", **more}

    return write


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"max_cycles": 7}, r"\$\.max_cycles: 6, here 7"),
        ({"noise_std": 0.5}, r"\$\.noise_std: 0\.0, here 0\.5"),
        ({"speed_m_s": 4}, r"\$\.speed_m_s: 5\.0, here 4\.0"),
        ({"starts": [[1, 2], [3, 4]]}, r"\$\.starts: None, here \[\[1\.0, 2\.0\], \[3\.0, 4\.0\]\]"),
        ({"field": {"gp": {**DRAW, "std": 2.0}}}, r"\$\.field\.gp\.std: 1\.0, here 2\.0"),
        ({"field": {"gp": {**DRAW, "seed": 1}}, "travel_cost": 1.0}, r"\.gp\.seed: 0, here 1; \$\.travel_cost"),
        ({"field": None}, r"\$\.field\.elevation: None, here 'jacksboro'"),
    ],
)
def test_a_state_from_other_settings_is_refused_with_the_differences(state, changed, message):
    env = world(**changed)
    env.reset(seed=9)
    before = env.get_state()
    with pytest.raises(StateVersionError, match=rf"got a state of another environment .*{message}"):
        env.set_state(state)
    np.testing.assert_equal(env.get_state(), before)


@pytest.mark.parametrize(
    "same", [{"render_mode": "ansi"}, {"field": {"gp": {**DRAW, "mean": 0, "seed": 0}}}, {"speed_m_s": 5}]
)
def test_explicit_defaults_and_render_mode_do_not_make_another_environment(state, same):
    env = world(**same)
    env.set_state(state)
    np.testing.assert_equal(env.get_state(), state)


def test_starts_and_windows_compare_equal_after_a_state_was_written_to_a_file():
    arguments = {"field": {"elevation": "jacksboro", "window": (0, 0, 20, 20)}, "starts": [(400, 300), (20, 30)]}
    state = state_after(world(**arguments))
    env = world(**arguments)
    env.set_state({"json": json.loads(json.dumps(state["json"])), "arrays": state["arrays"]})
    np.testing.assert_equal(env.get_state(), state)


@pytest.mark.parametrize("sites", ["only", "interpolated"])
def test_a_csv_file_is_identified_by_its_data_and_not_by_its_path(soil, sites):
    state = state_after(world(field=soil(sites=sites)))
    moved = world(field=soil("moved.csv", sites=sites))
    moved.set_state(state)
    np.testing.assert_equal(moved.get_state(), state)
    for change in ({"value": 1.5}, {"x": 1.0}):
        with pytest.raises(StateVersionError, match=r"environment \(\$\.field\.csv: 'data \w+', here 'data \w+'\)"):
            world(field=soil(sites=sites, **change)).set_state(state)


@pytest.mark.parametrize(
    ("part", "name", "change"),
    [
        ("json", "round", lambda number: number + 1),
        ("arrays", "poses", lambda poses: poses * np.nan),
        ("arrays", "samples", lambda samples: samples[1:]),
        ("arrays", "samples", lambda samples: samples[::-1]),
        ("arrays", "trails", lambda trails: trails[1:]),
        ("arrays", "trail_ends", lambda ends: ends[::-1]),
        ("arrays", "trail_ends", lambda ends: None),
    ],
)
def test_invalid_states_are_refused_and_change_nothing(state, part, name, change):
    env = world()
    env.reset(seed=9)
    before = env.get_state()
    with pytest.raises(StateVersionError, match="not valid"):
        env.set_state({**state, part: {**state[part], name: change(state[part][name])}})
    np.testing.assert_equal(env.get_state(), before)


def test_max_cycles_may_be_set_and_counts_as_a_setting(state):
    env = world()
    env.max_cycles = 7
    assert env.max_cycles == env.settings.max_cycles == 7
    with pytest.raises(StateVersionError, match=r"max_cycles: 6, here 7"):
        env.set_state(state)
    with pytest.raises(ConfigError, match=r"\$\.max_cycles: got 0; wanted an integer >= 1"):
        env.max_cycles = 0
    env.max_cycles = 6
    env.set_state(state)
    np.testing.assert_equal(env.get_state(), state)


def test_a_seed_beyond_64_bits_is_kept():
    env, fresh = world(), world()
    env.reset(seed=2**70)
    fresh.set_state(env.get_state())
    np.testing.assert_equal(fresh.reset(), env.reset())
