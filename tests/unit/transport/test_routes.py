"""Shortest paths over radio links."""

import itertools
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, strategies as st

from swarmbo.errors import ConfigError, TransportError
from swarmbo.transport import Routes


def test_without_links_all_agents_are_in_range() -> None:
    routes = Routes(["b", "a", "c"])
    assert routes.hops("a", "c") == 1
    assert routes.hops("a", "a") == 0
    assert routes.hops_from("a") == {"a": 0, "b": 1, "c": 1}


@given(st.integers(2, 7), st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_hops_are_shortest_path_lengths_and_paths_follow_links(n: int, pairs: set[tuple[int, int]]) -> None:
    links = nx.Graph()
    links.add_nodes_from("abcdefg"[:n])
    links.add_edges_from(("abcdefg"[u], "abcdefg"[v]) for u, v in pairs if u < n and v < n)
    routes = Routes("abcdefg"[:n], links)
    lengths = dict(nx.all_pairs_shortest_path_length(links))
    assert {u: routes.hops_from(u) for u in links} == lengths
    for u in links:
        for v in links:
            if v in lengths[u]:
                path = routes.path(u, v)
                assert routes.hops(u, v) == lengths[u][v] == len(path) - 1
                assert (path[0], path[-1]) == (u, v)
                assert all(links.has_edge(*step) for step in itertools.pairwise(path))
            else:
                with pytest.raises(TransportError, match="no path of links"):
                    routes.hops(u, v)


@given(st.integers(2, 70), st.floats(0.02, 0.5), st.integers(0, 50))
def test_among_equally_short_paths_the_first_by_name_is_taken(n: int, p: float, seed: int) -> None:
    links = nx.relabel_nodes(nx.fast_gnp_random_graph(n, p, seed), {i: f"r{i}" for i in range(n)})
    routes = Routes(links, links)
    towards, queue = {"r0": "r0"}, ["r0"]
    for node in queue:  # breadth-first search
        for other in sorted(set(links[node]) - set(towards)):
            towards[other] = node
            queue.append(other)
    for node in queue:
        path = [node]
        while path[-1] != "r0":
            path.append(towards[path[-1]])
        assert routes.path(node, "r0") == tuple(path)


def test_nodes_that_are_not_agents_relay_but_neither_send_nor_receive() -> None:
    routes = Routes(["a", "b"], nx.Graph([("a", "mast"), ("mast", "b")]))
    assert routes.path("a", "b") == ("a", "mast", "b")
    assert routes.agents == ("a", "b")
    for pair in [("a", "mast"), ("mast", "a")]:
        with pytest.raises(TransportError, match="unknown agent 'mast'"):
            routes.hops(*pair)
    assert routes.hops_from("a") == {"a": 0, "b": 2}


def test_an_agent_without_links_has_no_path_to_others() -> None:
    with pytest.raises(TransportError, match=r"no path of links from 'c' to 'a'.* separate parts"):
        Routes(["a", "b", "c"], nx.Graph([("a", "b")])).hops("c", "a")


@pytest.mark.parametrize("pair", [("a", "nobody"), ("nobody", "a")])
def test_unknown_agents_are_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(TransportError, match="unknown agent 'nobody'"):
        Routes(["a", "b"]).hops(*pair)


@pytest.mark.parametrize("links", ["ab", {"a": ["b"]}, nx.DiGraph([("a", "b")])])
def test_links_that_are_not_an_undirected_graph_are_refused(links: Any) -> None:
    with pytest.raises(ConfigError, match="wanted an undirected networkx"):
        Routes("ab", links)
