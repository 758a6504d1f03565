import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo_envs.fields.field import lattice, spread
from swarmbo_envs.fields.world import RadioLinks
from swarmbo_envs.robot_team.world import nearest_free_sites


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(45, 3000))
def test_drawn_starts_are_different_sites_apart_from_each_other(seed, robots, n_sites):
    sites = lattice(np.zeros(2), np.array([300.0, 200.0]), n_sites)
    robots = min(robots, len(sites))
    starts = spread(np.random.default_rng(seed), sites, robots)
    assert {tuple(start) for start in starts} <= {tuple(site) for site in sites}
    assert len({tuple(start) for start in starts}) == robots
    if robots > 1 and len(sites) > 30 * robots:
        separation = np.hypot(*(starts[:, None] - starts[None]).transpose(2, 0, 1)) + 1e9 * np.eye(robots)
        assert separation.min() >= 0.5 * np.sqrt(300 * 200 / robots) * 0.8


def test_as_many_robots_as_sites_take_all_of_them():
    sites = np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 0.0]])  # on one line: no area at all
    starts = spread(np.random.default_rng(0), sites, 3)
    assert sorted(starts.tolist()) == sites.tolist()


def test_starts_move_to_the_nearest_site_that_nobody_before_took():
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


def test_links_are_worked_out_anew_once_somebody_has_moved_and_are_nobody_s_to_change():
    agents, at = ["a", "b", "c"], np.array([[0.0, 0], [10, 0], [20, 0]])
    links = RadioLinks(agents)
    first = links.at(at, 10.0)
    assert links.at(at.copy(), 10.0) is first
    at[2, 0] = 8.0  # in place: what was seen before has not moved along
    assert set(links.at(at, 10.0).edges) == {("a", "b"), ("a", "c"), ("b", "c")}
    assert set(first.edges) == {("a", "b"), ("b", "c")}
    with pytest.raises(nx.NetworkXError, match="rozen"):
        first.add_edge("a", "c")
    assert set(links.at(at, [10.0, 9.0, 8.0]).edges) == {("a", "c"), ("b", "c")}
