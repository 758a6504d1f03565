"""What all agents know: when messages on a tree are final, and the tree over the agents that sums run on."""

import networkx as nx
import pytest
from hypothesis import given, strategies as st

from swarmbo.coordination.part import Part
from swarmbo.errors import TransportError
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes

GRAPH = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d"]})


@st.composite
def trees(draw: st.DrawFn) -> FactorGraph:
    """One connected part without loops: each new factor shares one variable with those before."""
    scopes: dict[str, list[str]] = {}
    n = 1
    for k in range(draw(st.integers(1, 8))):
        n_new = draw(st.integers(0, 2))
        shared = f"x{draw(st.integers(0, n - 1))}"
        scopes[f"f{k}"] = draw(st.permutations([shared, *(f"x{n + i}" for i in range(n_new))]))
        n += n_new
    return FactorGraph.from_scopes(scopes)


@given(trees())
def test_rounds_are_half_the_longest_path_rounded_up(graph: FactorGraph) -> None:
    assert len(Part(graph, 0, Routes(graph.agents)).levels) == -(-nx.diameter(graph.to_networkx()) // 2)


@given(trees())
def test_every_message_is_sent_once_and_after_all_that_it_depends_on(graph: FactorGraph) -> None:
    from_variables: set[tuple[str, str]] = set()
    from_factors: set[tuple[str, str]] = set()
    for level in Part(graph, 0, Routes(graph.agents)).levels:
        for x, factors in level.from_variables:
            for f in factors:
                assert (x, f) not in from_variables
                assert all((g, x) in from_factors for g in graph.factors_of(x) if g != f)
        from_variables.update((x, f) for x, factors in level.from_variables for f in factors)
        for f, variables in level.from_factors:
            for x in variables:
                assert (f, x) not in from_factors
                assert all((y, f) in from_variables for y in graph.scope(f) if y != x)
        from_factors.update((f, x) for f, variables in level.from_factors for x in variables)
    assert from_factors == {(f, x) for f in graph.factors for x in graph.scope(f)}
    assert from_variables == {(x, f) for f in graph.factors for x in graph.scope(f) if len(graph.scope(f)) > 1}


def test_where_everyone_hears_everyone_it_is_a_star_round_the_first_agent() -> None:
    tree = Part(GRAPH, 0, Routes(GRAPH.agents)).tree
    assert tree.parent == {"a": None, "b": "a", "c": "a", "d": "a"}
    assert tree.children["a"] == ("b", "c", "d")
    assert tree.factors == {"a": ("f", "g", "h"), "b": ("g",), "c": ("h",), "d": ()}


def test_it_follows_the_links_and_skips_agents_that_only_relay() -> None:
    links = nx.Graph([("a", "mast"), ("mast", "d"), ("d", "c"), ("c", "b")])
    tree = Part(GRAPH, 0, Routes(GRAPH.agents, links)).tree
    assert tree.parent == {"a": None, "b": "c", "c": "d", "d": "a"}
    assert tree.factors["d"] == ("g", "h")


def test_agents_out_of_reach_are_refused() -> None:
    with pytest.raises(TransportError):
        _ = Part(GRAPH, 0, Routes(GRAPH.agents, nx.Graph([("a", "b"), ("c", "d")]))).tree
