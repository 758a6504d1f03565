import numpy as np
import pytest

from swarmbo.errors import ConfigError
from swarmbo_envs import robot_team_v0


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
    assert after.dtype == np.uint8
    assert after.shape == before.shape
    assert after.shape[2] == 3
    assert len(np.unique(after.reshape(-1, 3), axis=0)) > 200
    assert 0.002 < (before != after).any(axis=2).mean() < 0.5


def test_drawing_leaves_the_episode_and_pyplot_alone(make):
    import matplotlib.pyplot as plt

    one, other = make(render_mode="rgb_array"), make(render_mode="rgb_array")
    one.reset(seed=1)
    other.reset(seed=1)
    one.render()
    for env in (one, other):
        env.step({agent: np.array([10.0, 10.0]) for agent in env.agents})
    np.testing.assert_array_equal(one.state(), other.state())
    assert plt.get_fignums() == []


def test_text_has_a_digit_per_robot_at_its_place(make):
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


def test_without_a_render_mode_there_is_nothing_to_render(make):
    env = make()
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=r"\$\.render_mode: got None; wanted 'rgb_array'"):
        env.render()
