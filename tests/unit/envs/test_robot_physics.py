"""Robots with wheels on a terrain, tested on level ground, slopes and ground that they cannot drive."""

import sys
import warnings
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.spatial import KDTree

import swarmbo as sb
from swarmbo.errors import ConfigError, MissingPackageError
from swarmbo_envs import robot_team_v1
from swarmbo_envs.robot_team.rover_model import Terrain
from swarmbo_envs.robot_team.rovers import Follower
from swarmbo_envs.robot_team.settings import MujocoSettings

from .playing import at, played

pytestmark = pytest.mark.filterwarnings("ignore:.*may pass through each other:swarmbo.errors.DataWarning")
has_mujoco = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs the extra `mujoco`")
HILLS = {"gp": {"lengthscale_m": 80.0, "size_m": [300.0, 200.0]}}
QUICK = {"rover_m": 1.0, "terrain_cells": 48, "step_s": 0.02}


def make(**changed):
    physics = {"mujoco": {**QUICK, **changed.pop("rovers", {})}}
    given = {"field": HILLS, "robots": 1, "speed_m_s": 2.0, "round_time_s": 30.0, "max_sites": 200, "physics": physics}
    return robot_team_v1.parallel_env(**{**given, **changed})


def begun(**changed):
    env = make(**changed)
    env.reset(seed=0)
    return env


def ramp(tmp_path, degrees):
    """A plane of 100 m x 100 m that rises to the east."""
    path, rise = tmp_path / "ramp.csv", np.tan(np.radians(degrees))
    rows = [f"{x},{y},{x * rise}" for x in range(0, 101, 10) for y in range(0, 101, 10)]
    path.write_text("\n".join(["x,y,z", *rows]))
    return {"csv": str(path), "x": "x", "y": "y", "value": "z", "sites": "interpolated"}, {"relief_m": 100 * rise}


def integrated(follower, pose, seconds, step=0.1):
    """Poses of an ideal unicycle that follows the commands, by Euler's method."""
    poses, here = [pose], np.array(pose, dtype=float)
    for n in range(int(seconds / step)):
        speed, rate = follower.command(*here, seconds - n * step)
        here = here + step * np.array([speed * np.cos(here[2]), speed * np.sin(here[2]), rate])
        poses.append(tuple(here))
    return np.array(poses)


@given(
    st.lists(st.tuples(st.floats(-40, 40), st.floats(-40, 40)), min_size=1, max_size=5),
    st.floats(-3, 3),
    st.sampled_from([0.3, 1.0, 3.0]),
)
def test_a_follower_stays_near_its_route_and_reaches_its_end(places, heading, length):
    route = np.array([(0.0, 0.0), *places]).round(3)
    ways = np.hypot(*np.diff(route, axis=0).T)
    follower = Follower(route, 2.0, 0.5, length)
    poses = integrated(follower, (0.0, 0.0, heading), 60.0 + ways.sum() + 14.0 * len(ways))
    assert np.hypot(*(poses[-1, :2] - route[-1])) < 0.25 * length
    pieces = np.vstack([a + np.linspace(0, 1, 400)[:, None] * (b - a) for a, b in pairwise(route)])
    for pose in poses[::10]:
        assert np.hypot(*(pieces - pose[:2]).T).min() < 0.75 * length


def test_a_terrain_has_the_heights_of_the_field_or_the_requested_relief():
    env = robot_team_v1.parallel_env(field={"elevation": "jacksboro", "window": [0, 0, 30, 20]})
    field, places = env.field, env.sites()[37::50]
    own = Terrain.of(field, MujocoSettings(smoothing_cells=0, terrain_cells=1024))
    heights, truth = own.heights_at(places), field.value(places)
    np.testing.assert_allclose(heights - heights[0], truth - truth[0], atol=2.0)
    low = Terrain.of(field, MujocoSettings(relief_m=7.0))
    assert (low.heights.min(), low.heights.max()) == (0.0, 7.0)
    frame = low.upright(places[3], 1.0, 1.0)
    np.testing.assert_allclose(frame.T @ frame, np.eye(3), atol=1e-12)
    assert np.linalg.det(frame) > 0.0
    assert np.arctan2(frame[1, 0], frame[0, 0]) == pytest.approx(1.0)


@has_mujoco
def test_rovers_stand_on_the_ground_at_any_place():
    """Rows and columns of MuJoCo's height field match the map: a flipped or transposed one would be found here."""
    env = begun(robots=8, rovers={"relief_m": 12.0})
    rovers, episode = env._world.mover, env._current()
    for state, pose in zip(episode.engine, episode.poses, strict=True):
        place = state[1:4]  # the first entry is the time
        np.testing.assert_allclose(place[:2], pose[:2], atol=0.2)
        up = rovers.terrain.upright(pose[:2], 0.0, 0.5)[2, 2]
        assert place[2] - rovers.terrain.heights_at(place[None, :2])[0] == pytest.approx(0.2 / up, abs=0.03)


@has_mujoco
def test_on_level_ground_a_rover_drives_the_expected_time_and_distance():
    env = make(rovers={"relief_m": 0.01}, starts=[[50, 50]], battery_s=1000.0, round_time_s=50.0)
    env.reset(seed=3)
    _, _, _, _, infos = env.step(at(env, [90, 80]))
    info = infos["robot_0"]
    assert info["reached"]
    assert 50.0 - 0.5 < info["distance"] < 53.0  # it may start with a bend
    turn = np.pi / 0.5
    assert 50 / 2.0 < (1.0 - info["battery"]) * 1000.0 < 50 / 2.0 + turn + 3.0
    assert 0.0 < np.hypot(*(info["location"] - [90, 80])) < 0.5  # the true location of the rover
    assert info["measurement"] == env.field.value(info["location"][None])[0]


@has_mujoco
@pytest.mark.parametrize(("degrees", "friction", "climbs"), [(12, 1.0, True), (25, 1.0, True), (12, 0.1, False)])
def test_rovers_climb_slopes_only_up_to_the_friction_of_their_wheels(tmp_path, degrees, friction, climbs):
    """No vehicle climbs a slope whose tangent exceeds its friction. Well below that, a rover must climb it."""
    field, relief = ramp(tmp_path, degrees)
    env = begun(field=field, starts=[[30, 50]], round_time_s=40.0, rovers={"friction": friction, **relief})
    info = env.step(at(env, [60, 50]))[4]["robot_0"]
    assert info["reached"] == climbs
    assert ("failure" in info) != climbs
    assert ("measurement" in info) == climbs


@has_mujoco
def test_a_rover_that_tips_over_fails_and_is_set_upright_at_its_place():
    env = begun(starts=[[100, 100]], rovers={"relief_m": 1.0})
    env._current().engine[0, 4:8] = [0.0, 1.0, 0.0, 0.0]  # upside down
    result = env.step(at(env, [130, 100]))
    info = result[4]["robot_0"]
    assert (info["failure"], info["reached"], result[1]["robot_0"]) == ("tipped over", False, 0.0)
    assert "measurement" not in info
    assert np.hypot(*(info["location"] - [100, 100])) < 1.0
    assert env.step(at(env, [130, 100]))[4]["robot_0"]["reached"]


@has_mujoco
def test_a_rover_with_an_empty_battery_is_carried_home_and_charged():
    env = begun(starts=[[100, 100]], bases=[[40, 100]], battery_s=60.0, rovers={"relief_m": 0.01})
    env._current().batteries[0] = 6.0
    info = env.step(at(env, [40, 100]))[4]["robot_0"]
    assert (info["failure"], info["battery"]) == ("battery empty", 1.0)
    np.testing.assert_array_equal(info["location"], [40, 100])


@has_mujoco
def test_rovers_keep_away_from_the_whole_path_of_another_because_its_times_are_uncertain():
    """Two robots with exact timing both get through here. The second rover stops before the path of the first."""
    kind = {"robots": 2, "starts": [[50, 100], [200, 10]], "separation_m": 20.0, "round_time_s": 150.0}
    env = begun(**kind, rovers={"relief_m": 0.01})
    infos = list(env.step(at(env, [250, 100], [200, 190]))[4].values())
    assert [info["reached"] for info in infos] == [True, False]
    assert KDTree(infos[0]["path"]).query(infos[1]["path"])[0].min() > 20.0
    ideal = make(**kind, physics="kinematic")
    ideal.reset(seed=0)
    assert all(info["reached"] for info in ideal.step(at(ideal, [250, 100], [200, 190]))[4].values())


@has_mujoco
def test_rovers_keep_their_length_from_no_go_regions():
    lake = {"no_go": [{"corners": [[100, 50], [150, 50], [150, 150], [100, 150]]}], "route_cells": 300}
    beside = np.array([[153.0, 100.0]])
    assert not make(**lake, rovers={"rover_m": 5.0}).ground.is_free(beside)[0]
    assert make(**lake, physics="kinematic").ground.is_free(beside)[0]


@has_mujoco
def test_invalid_physics_is_refused():
    with pytest.raises(ConfigError, match=r"rovers of 30 m on a map of 200 m; wanted a map of at least 600 m"):
        make(rovers={"rover_m": 30.0})
    with pytest.raises(ConfigError, match=r"too fast for rovers of 1 m and steps of 0\.02 s; wanted at most 10 m/s"):
        make(speed_m_s=20.0)
    with pytest.raises(ConfigError, match="steps in a round"):
        make(round_time_s=1e5)
    with pytest.raises(ConfigError, match=r"\$\.wind: got .*; wanted no current"):
        make(wind=[0.5, 0.0])
    with pytest.raises(ConfigError, match=r"\$\.physics"):
        make(physics="newton")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingPackageError, match=r"\$\.physics: .*'mujoco' needs .*pip install \"swarmbo\[muj"):
        make()


@has_mujoco
@pytest.mark.parametrize(
    ("robots", "separation_m", "warnings_expected"), [(2, 0.0, 1), (2, 1.4, 1), (2, 1.5, 0), (1, 0.0, 0)]
)
def test_a_warning_says_that_rovers_may_pass_through_each_other(robots, separation_m, warnings_expected):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        make(robots=robots, separation_m=separation_m)
    assert (
        len([w for w in found if "separation_m = 1.5 or more keeps them apart" in str(w.message)]) == warnings_expected
    )


@has_mujoco
def test_a_team_runs_with_either_physics():
    kind = {"field": {"elevation": "jacksboro", "window": [200, 128, 12, 12]}, "robots": 2, "max_cycles": 2}
    reached = {}
    for physics in ("kinematic", "mujoco"):
        env = robot_team_v1.parallel_env(**kind, physics=physics)
        team = sb.Team.for_env(env, seed=0)
        *_, infos = played(env, team)
        reached[physics] = [info["location"] for info in infos.values()]
    gap = np.hypot(*np.subtract(reached["kinematic"], reached["mujoco"]).T)
    assert (gap > 0.0).all()
    assert team.recommend() is not None
