"""The tree over the agents that sums run on."""

import networkx as nx
import pytest

from swarmbo.coordination.spanning_tree import spanning_tree
from swarmbo.errors import TransportError
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes

GRAPH = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d"]})


def test_where_everyone_hears_everyone_it_is_a_star_round_the_first_agent() -> None:
    tree = spanning_tree(GRAPH, Routes(GRAPH.agents))
    assert tree.parent == {"a": None, "b": "a", "c": "a", "d": "a"}
    assert tree.children["a"] == ("b", "c", "d")
    assert tree.factors == {"a": ("f", "g", "h"), "b": ("g",), "c": ("h",), "d": ()}


def test_it_follows_the_links_and_skips_agents_that_only_relay() -> None:
    links = nx.Graph([("a", "mast"), ("mast", "d"), ("d", "c"), ("c", "b")])
    tree = spanning_tree(GRAPH, Routes(GRAPH.agents, links))
    assert tree.parent == {"a": None, "b": "c", "c": "d", "d": "a"}
    assert tree.factors["d"] == ("g", "h")


def test_agents_out_of_reach_are_refused() -> None:
    with pytest.raises(TransportError):
        spanning_tree(GRAPH, Routes(GRAPH.agents, nx.Graph([("a", "b"), ("c", "d")])))
