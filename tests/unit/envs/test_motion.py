"""Paths of robots, their starts, and their radio links."""

from functools import partial

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import solve_ivp

from swarmbo_envs.fields.field import lattice, separated_sites
from swarmbo_envs.fields.world import RadioLinks
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.world import nearest_free_sites

LOW, HIGH = np.array([0.0, 0.0]), np.array([100.0, 60.0])

poses = st.tuples(st.floats(0, 100), st.floats(0, 60), st.floats(-np.pi, np.pi)).map(np.array)
goals = st.tuples(st.floats(0, 100), st.floats(0, 60)).map(np.array)
robots = st.builds(
    motion.Unicycle,
    speed_m_s=st.floats(0.5, 20),
    turn_rate_rad_s=st.floats(0.05, 5),
    low=st.just(LOW),
    high=st.just(HIGH),
)


def travel_time(robot, pose, goals):
    return robot.paths(pose, goals)[:, :, 0].sum(axis=1)


def drive(pose, path):
    """Integrate x' = v cos(heading), y' = v sin(heading), heading' = omega under the path's commands."""
    state, on_the_way = np.array(pose), [np.array(pose)]
    for duration, speed, rate in path:
        if duration > 1e-12:
            exact = {"rtol": 1e-10, "atol": 1e-10, "max_step": duration / 10}
            slopes = partial(lambda _, z, v, w: [v * np.cos(z[2]), v * np.sin(z[2]), w], v=speed, w=rate)
            solution = solve_ivp(slopes, (0, duration), state, **exact)
            state = solution.y[:, -1]
            on_the_way.extend(solution.y.T)
    return state, np.array(on_the_way)


@given(robots, poses, goals)
def test_the_integrated_commands_reach_the_goal_within_limits_and_on_the_map(robot, pose, goal):
    path = robot.paths(pose, goal[None])[0]
    end, on_the_way = drive(pose, path)
    assert np.isfinite(path).all()
    assert (path[:, 0] >= 0).all()
    assert ((path[:, 1] >= 0) & (path[:, 1] <= robot.speed_m_s)).all()
    assert (np.abs(path[:, 2]) <= robot.turn_rate_rad_s).all()
    np.testing.assert_allclose(end[:2], goal, atol=1e-5)
    assert (on_the_way[:, :2] >= LOW - 1e-4).all()
    assert (on_the_way[:, :2] <= HIGH + 1e-4).all()


@given(robots, poses, goals, st.floats(0, 1.2))
def test_a_cut_path_takes_the_given_time_and_ends_as_integrated(robot, pose, goal, share):
    path = robot.paths(pose, goal[None])[0]
    budget = share * path[:, 0].sum()
    part = motion.cut(path, budget)
    assert part[:, 0].sum() == pytest.approx(min(budget, path[:, 0].sum()), abs=1e-9)
    if share > 1.001:  # the path is unchanged
        np.testing.assert_array_equal(part, path)
    end, _ = drive(pose, part)
    there = motion.advance(pose, part)
    np.testing.assert_allclose(there[:2], end[:2], atol=1e-5)
    assert np.cos(there[2] - end[2]) == pytest.approx(1, abs=1e-8)


@given(robots, poses, goals)
def test_travel_time_lies_between_the_straight_line_and_turning_on_the_spot_first(robot, pose, goal):
    offset = goal - pose[:2]
    distance = np.hypot(*offset)
    turn = np.abs(np.angle(np.exp(1j * (np.arctan2(offset[1], offset[0]) - pose[2])))) if distance > 0 else 0.0
    time = travel_time(robot, pose, goal[None])[0]
    assert time >= distance / robot.speed_m_s - 1e-9
    assert time <= distance / robot.speed_m_s + turn / robot.turn_rate_rad_s + 1e-9


def test_an_arc_and_its_tangent_take_the_time_of_the_geometry():
    robot = motion.Unicycle(2.0, 0.5, LOW, HIGH)  # radius 4 m
    pose = np.array([50.0, 30.0, 0.0])
    goal = np.array([54.0, 44.0])  # a quarter circle to the left ends at (54, 34) heading north, then 10 m
    path = robot.paths(pose, goal[None])[0]
    np.testing.assert_allclose(path, [[np.pi, 2.0, 0.5], [5.0, 2.0, 0.0]], atol=1e-12)


def test_no_sampled_pair_of_arc_and_straight_is_quicker():
    """Brute force: full-speed arcs of every length to both sides, then straight to the goal if the heading fits."""
    robot = motion.Unicycle(3.0, 0.4, np.full(2, -1e3), np.full(2, 1e3))
    generator = np.random.default_rng(0)
    pose = np.array([3.0, -2.0, 0.7])
    for goal in generator.uniform(-40, 40, size=(20, 2)):
        found = travel_time(robot, pose, goal[None])[0]
        for rate in (0.4, -0.4):
            times = np.linspace(0, 2 * np.pi / 0.4, 4001)
            heading = pose[2] + rate * times
            x = pose[0] + 3.0 / rate * (np.sin(heading) - np.sin(pose[2]))
            y = pose[1] - 3.0 / rate * (np.cos(heading) - np.cos(pose[2]))
            distance = np.hypot(goal[0] - x, goal[1] - y)
            aside = np.angle(np.exp(1j * (np.arctan2(goal[1] - y, goal[0] - x) - heading)))
            aimed = np.abs(aside) * distance < 0.05
            if aimed.any():
                assert found <= (times + distance / 3.0)[aimed].min() + 0.05


def test_an_arc_that_would_leave_the_map_is_not_driven():
    robot = motion.Unicycle(5.0, 0.5, LOW, HIGH)  # radius 10 m
    at_the_edge = np.array([50.0, 58.0, np.pi / 4])
    path = robot.paths(at_the_edge, np.array([[70.0, 55.0]]))[0]  # the arc to the right would bulge to y = 60.9
    assert path[0, 1] == 0  # turns on the spot
    free = motion.Unicycle(5.0, 0.5, np.full(2, -1e3), np.full(2, 1e3))
    assert free.paths(at_the_edge, np.array([[70.0, 55.0]]))[0, 0, 1] == 5.0


def test_staying_takes_no_time():
    robot = motion.Unicycle(5.0, 0.5, LOW, HIGH)
    assert travel_time(robot, np.array([10.0, 10.0, 2.0]), np.array([[10.0, 10.0]]))[0] == 0


def test_a_goal_straight_ahead_needs_no_turn_at_large_coordinates():
    low = np.array([180_000.0, 330_000.0])
    robot = motion.Unicycle(5.0, 0.5, low, low + 4000)
    pose = np.array([*(low + 1000), 0.3])
    goal = pose[:2] + 500 * np.array([np.cos(0.3), np.sin(0.3)])
    assert travel_time(robot, pose, goal[None])[0] == pytest.approx(100, abs=1e-6)


def test_the_travel_time_to_a_goal_does_not_depend_on_the_other_goals():
    robot = motion.Unicycle(5.0, 0.5, LOW, HIGH)
    pose = np.array([20.0, 20.0, 1.0])
    many = np.random.default_rng(1).uniform(LOW, HIGH, size=(200, 2))
    np.testing.assert_array_equal(
        travel_time(robot, pose, many), [travel_time(robot, pose, goal[None])[0] for goal in many]
    )


@given(robots, poses, goals)
def test_the_drawn_trail_has_the_length_of_the_path(robot, pose, goal):
    path = robot.paths(pose, goal[None])[0]
    trail = motion.trace(pose, path)
    drawn = np.hypot(*np.diff(trail, axis=0).T).sum()
    assert drawn == pytest.approx(motion.length(path), rel=0.005, abs=1e-6)
    np.testing.assert_allclose(trail[-1], goal, atol=1e-5)


@given(robots, poses, goals)
def test_a_drawn_trail_is_bit_identical_to_short_drives_one_after_another(robot, pose, goal):
    path, end = robot.paths(pose, goal[None])[0], pose
    driven = [pose[:2]]
    for segment in path:
        moves = segment[0] * segment[1] > 0
        pieces = motion._POINTS_PER_ARC if segment[2] and moves else 1
        for _ in range(pieces):
            end = motion.advance(end, segment[None] * [1 / pieces, 1.0, 1.0])
            driven += [end[:2]] if moves else []
    np.testing.assert_array_equal(motion.trace(pose, path), driven)


@given(robots, poses, st.floats(1.0, 200.0))
def test_goals_within_a_time_are_those_with_a_short_enough_path(robot, pose, time_s):
    goals = np.vstack([np.random.default_rng(0).uniform(LOW, HIGH, size=(100, 2)), pose[:2]])
    np.testing.assert_array_equal(robot.is_within(pose, goals, time_s), travel_time(robot, pose, goals) <= time_s)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(45, 3000))
def test_drawn_starts_are_distinct_sites_far_from_each_other(seed, robots, n_sites):
    sites = lattice(np.zeros(2), np.array([300.0, 200.0]), n_sites)
    robots = min(robots, len(sites))
    starts = separated_sites(np.random.default_rng(seed), sites, robots)
    assert {tuple(start) for start in starts} <= {tuple(site) for site in sites}
    assert len({tuple(start) for start in starts}) == robots
    if robots > 1 and len(sites) > 30 * robots:
        separation = np.hypot(*(starts[:, None] - starts[None]).transpose(2, 0, 1)) + 1e9 * np.eye(robots)
        assert separation.min() >= 0.5 * np.sqrt(300 * 200 / robots) * 0.8


def test_as_many_robots_as_sites_take_all_of_them():
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])  # on one line, so without an area
    starts = separated_sites(np.random.default_rng(0), sites, 3)
    assert sorted(starts.tolist()) == sites.tolist()


def test_starts_move_to_the_nearest_site_that_is_still_free():
    sites = np.array([[0.0, 0.0], [10.0, 0.0], [30.0, 0.0]])
    starts = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    np.testing.assert_array_equal(nearest_free_sites(starts, sites), sites)


places = st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=1, max_size=8)


@given(places, st.floats(1, 100))
def test_exactly_the_pairs_in_range_are_linked_with_their_distance(points, range_m):
    agents = [f"robot_{i}" for i in range(len(points))]
    graph = RadioLinks(agents).at(np.array(points, dtype=float), range_m)
    assert list(graph.nodes) == agents
    for i, one in enumerate(agents):
        for j, other in enumerate(agents[:i]):
            distance = np.linalg.norm(np.subtract(points[i], points[j]))
            assert graph.has_edge(one, other) == bool(distance <= range_m)
            if graph.has_edge(one, other):
                assert np.isclose(graph.edges[one, other]["distance"], distance)


def test_links_are_computed_again_after_a_move_and_are_read_only():
    agents, at = ["a", "b", "c"], np.array([[0.0, 0], [10, 0], [20, 0]])
    links = RadioLinks(agents)
    first = links.at(at, 10.0)
    assert links.at(at.copy(), 10.0) is first
    at[2, 0] = 8.0  # in place: the remembered positions must not change with it
    assert set(links.at(at, 10.0).edges) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert set(first.edges) == {("a", "b"), ("b", "c")}
    with pytest.raises(nx.NetworkXError, match="rozen"):
        first.add_edge("a", "c")
    assert set(links.at(at, [10.0, 9.0, 8.0]).edges) == {("a", "c"), ("b", "c")}
