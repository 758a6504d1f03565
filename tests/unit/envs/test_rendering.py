import numpy as np
import pytest

from swarmbo_envs import function_v0, robot_team_v0, sensor_field_v0
from swarmbo_envs.functions import AdditiveFunction


@pytest.fixture(params=["everywhere", "sites"])
def make(request, tmp_path):
    path = tmp_path / "grid.csv"
    path.write_text("x,y,v\n" + "".join(f"{x},{y},{x + y}\n" for x in range(0, 60, 10) for y in range(0, 50, 10)))
    sites = "only" if request.param == "sites" else "interpolated"
    table = {"csv": str(path), "x": "x", "y": "y", "value": "v", "unit": "mg", "sites": sites}
    return lambda **arguments: robot_team_v0.parallel_env(
        robots=3, field=table, starts=[[0, 0], [50, 40], [0, 40]], round_time_s=5.0, **arguments
    )


def test_a_frame_shows_the_field_and_changes_when_robots_drive(make):
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    np.testing.assert_array_equal(before, env.render())
    env.step({agent: np.array([20.0, 20.0]) for agent in env.agents})
    after = env.render()
    assert after.shape == before.shape
    assert after.shape[2] == 3
    assert len(np.unique(after.reshape(-1, 3), axis=0)) > 200
    assert 0.002 < (before != after).any(axis=2).mean() < 0.5


def test_drawing_does_not_change_the_episode_or_open_pyplot_figures(make):
    import matplotlib.pyplot as plt

    one, other = make(render_mode="rgb_array"), make(render_mode="rgb_array")
    one.reset(seed=1)
    other.reset(seed=1)
    one.render()
    for env in (one, other):
        env.step({agent: np.array([10.0, 10.0]) for agent in env.agents})
    np.testing.assert_array_equal(one.state(), other.state())
    assert plt.get_fignums() == []


def test_text_shows_a_digit_per_robot_at_its_place(make):
    env = make(render_mode="ansi")
    env.reset(seed=0)
    lines = env.render().splitlines()
    picture = lines[1:25]
    assert (picture[-1][0], picture[0][-1], picture[0][0]) == ("0", "1", "2")
    assert "robot_1: x 50.0 m, y 40.0 m" in "\n".join(lines)


def test_human_mode_writes_each_round_to_the_terminal_and_returns_nothing(make, capsys):
    env = make(render_mode="human")
    env.reset(seed=0)
    env.step({agent: np.array([20.0, 20.0]) for agent in env.agents})
    written = capsys.readouterr().out
    assert "round 0 of 25" in written
    assert "round 1 of 25" in written
    assert env.render() is None


NAME = r"$\nothing{ cost"


def field(folder):
    path = folder / f"{NAME}.csv"
    path.write_text(f"x,y,{NAME}$\n" + "".join(f"{x},{y},{x + y}\n" for x in (0, 50) for y in (0, 50, 100)))
    return {"csv": str(path), "x": "x", "y": "y", "value": f"{NAME}$", "unit": r"$\frac$"}


@pytest.mark.parametrize("world", ["robots", "sensors", "function"])
def test_dollars_in_names_and_units_are_drawn(world, tmp_path):
    if world == "function":
        function = AdditiveFunction.from_callable(lambda x: x, {"x": (0.0, 1.0)}, name=NAME + "$")
        env = function_v0.parallel_env(function=function, render_mode="rgb_array")
    else:
        make = robot_team_v0 if world == "robots" else sensor_field_v0
        env = make.parallel_env(field=field(tmp_path), render_mode="rgb_array", **{world: 2})
    env.reset(seed=0)
    assert np.ptp(env.render()) == 255
