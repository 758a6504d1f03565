"""Functions of the papers that simulate: pushes, a rover's path, a network; each beside an oracle of its own."""

import numpy as np
import pytest

from swarmbo.errors import ConfigError
from swarmbo_envs.functions import get
from swarmbo_envs.functions.papers import moved_objects, path_value

NO_SQUARES = np.zeros((0, 2))
STEP = 0.01


def goal_of(seed):
    """The goal of a push, from three distances: no push touches the object if it is short and far away."""
    pytest.importorskip("Box2D")
    return get("push", seed=seed).terms["f"].keywords["goals"][0]


def pushed_along_a_line(start, duration):
    """Place of the object after a push along the x axis, in one dimension: hand and object stick while they touch."""
    hand, thing = 0.1 * 0.6 * 2.0, 0.05 * np.pi
    x, v, place, speed = -start + 0.0, 0.0, 0.0, 0.0
    for step in range(int(10 * duration) + 100):
        wanted = 30.0 * hand * (5.0 - v) if step < int(10 * duration) else 0.0
        v += STEP * wanted / hand
        if x + 0.3 >= place - 1.0 and v > speed:  # perfectly plastic
            v = speed = (hand * v + thing * speed) / (hand + thing)
        v -= np.sign(v) * min(abs(v), STEP * 2.0 / hand)
        speed -= np.sign(speed) * min(abs(speed), STEP * 5.0 / thing)
        if x + 0.3 >= place - 1.0 and v > speed:
            v = speed = (hand * v + thing * speed) / (hand + thing)
        x, place = x + STEP * v, place + STEP * speed
    return place


def test_a_push_that_does_not_touch_the_object_leaves_it_at_the_origin():
    goal = goal_of(3)
    value = get("push", seed=3).value(np.array([[5.0, 5.0, 1.0]]))
    assert value[0] == pytest.approx(5.0 - np.hypot(*goal), abs=1e-12)


@pytest.mark.parametrize("duration", [12.0, 20.0])
def test_a_push_along_a_line_moves_the_object_as_far_as_mechanics_in_one_dimension(duration):
    pytest.importorskip("Box2D")
    row = np.array([[-4.0, 0.0, 5.0, 0.0, duration, 0.0, 0.0]])
    end = moved_objects(row, np.zeros((1, 2)))[0]
    assert end[1] == pytest.approx(0.0, abs=1e-5)
    assert end[0] == pytest.approx(pushed_along_a_line(4.0, duration), abs=0.15)


def test_mirrored_pushes_move_the_object_to_mirrored_places():
    pytest.importorskip("Box2D")
    row = np.array([3.0, 1.0, -6.0, -3.0, 9.0, 0.4, 1.0])
    mirrored = row * [1, -1, 1, -1, 1, -1, -1]
    a, b = (moved_objects(one[None], np.zeros((1, 2)))[0] for one in (row, mirrored))
    assert np.hypot(*a) > 0.5
    np.testing.assert_allclose(b, a * [1, -1], atol=2e-3)


def test_two_robots_move_their_objects_and_are_two_agents():
    pytest.importorskip("Box2D")
    from swarmbo_envs import robot_push_v0

    f = get("push", n_variables=14)
    idle = np.array([[-5, -5, 0, 0, 2, 0, 0, 5, -5, 0, 0, 2, 0, 0]], dtype=float)
    assert f.value(idle)[0] == pytest.approx(0.0, abs=1e-9)
    below = np.array([[-1.6, 1.4, 8, 3, 8, 0.4, 0, 5, -5, 0, 0, 2, 0, 0]], dtype=float)
    assert f.value(below)[0] > 0.5
    env = robot_push_v0.parallel_env(variables=14)
    assert {agent: env.action_space(agent).shape for agent in env.possible_agents} == {"agent_0": (7,), "agent_1": (7,)}


def points_between(ends):
    return ((np.linspace(*ends, 30) + 0.1) / 1.2).ravel()[None]


@pytest.mark.parametrize("through", [False, True])
def test_a_straight_path_costs_its_length_and_twenty_times_what_lies_in_squares(through):
    line = points_between(([0.05, 0.05], [0.95, 0.95]))
    length = 0.9 * np.sqrt(2.0)
    assert path_value(line, NO_SQUARES, 0.025, through)[0] == pytest.approx(-0.05 * length, abs=1e-6)
    crossed = 0.05 * np.sqrt(2.0)
    with_square = path_value(line, np.array([[0.5, 0.5], [0.2, 0.8]]), 0.025, through)[0]
    assert with_square == pytest.approx(-0.05 * length - 20.0 * crossed, abs=0.06)


def test_a_path_that_misses_start_and_goal_costs_ten_times_the_distance_and_outside_costs_as_a_square():
    line = points_between(([0.1, 0.5], [0.9, 0.5]))
    missed = 0.05 + 0.45 + 0.05 + 0.45
    assert path_value(line, NO_SQUARES, 0.025, True)[0] == pytest.approx(-0.05 * 0.8 - 10.0 * missed, abs=1e-6)
    out = points_between(([0.5, 0.5], [1.05, 0.5]))
    missed = 0.45 + 0.45 + 0.1 + 0.45
    wanted = -0.05 * 0.55 - 20.0 * 0.05 - 10.0 * missed
    assert path_value(out, NO_SQUARES, 0.025, True)[0] == pytest.approx(wanted, abs=0.03)


def test_obstacles_are_drawn_by_the_seed_and_leave_start_and_goal_free():
    first, again, other = (get("rover", seed=seed).terms["f"].keywords["centres"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.shape == other.shape == (113, 2)
    assert not np.array_equal(first, other)
    for end in (0.05, 0.95):
        assert np.abs(first - end).max(axis=1).min() > 0.05


def test_a_network_that_hardly_learns_guesses_and_one_that_learns_is_as_good_as_logistic_regression():
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    f = get("network", data="iris", trainings=2)
    idle, able, rounded = f.value(np.array([[20, 20, -6, 16], [20, 20, -2, 8], [20.4, 19.6, -2, 8.3]]))
    linear = cross_val_score(LogisticRegression(max_iter=1000), *load_iris(return_X_y=True)).mean()
    assert idle < 0.75 < linear - 0.1 < able <= 1.0
    assert able == rounded
    assert able * 45 * 2 == pytest.approx(round(able * 45 * 2), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "settings"), [("push", {"n_variables": 5}), ("rover", {"n_variables": 9}), ("network", {"data": "mnist"})]
)
def test_other_sizes_and_data_are_refused_with_what_is_wanted(name, settings):
    with pytest.raises(ConfigError, match="wanted"):
        get(name, **settings)
