import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo_envs.fields.world import RadioLinks

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
