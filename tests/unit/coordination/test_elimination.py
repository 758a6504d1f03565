"""Orders of elimination, the tables they join, and one step."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.coordination.methods import exact as elimination
from swarmbo.coordination.methods.exact import buckets_of, eliminate, elimination_steps, largest_clique
from swarmbo.graph import FactorGraph


def chain(n: int, order: int) -> FactorGraph:
    return FactorGraph.from_scopes({f"f{i}": [f"x{j}" for j in range(i, i + order + 1)] for i in range(n - order)})


def min_fill_from_scratch(graph: FactorGraph, sizes: dict[str, int]) -> tuple[str, ...]:
    """The rule as it stands: every cost anew at every step."""
    links = nx.Graph()
    links.add_nodes_from(graph.variables)
    links.add_edges_from(pair for scope in graph.scopes for pair in itertools.combinations(scope, 2))

    def cost(variable: str) -> tuple[int, int, int]:
        around = list(links[variable])
        missing = sum(not links.has_edge(*pair) for pair in itertools.combinations(around, 2))
        return missing, math.prod(sizes[x] for x in around), graph.variables.index(variable)

    order: list[str] = []
    while links:
        variable = min(links, key=cost)
        links.add_edges_from(list(itertools.combinations(links[variable], 2)))
        links.remove_node(variable)
        order.append(variable)
    return tuple(order)


@given(seed=st.integers(0, 10_000), n=st.integers(4, 14))
def test_costs_that_are_kept_are_those_of_the_links_as_they_are(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    scopes = {f"f{i}": [f"x{v}" for v in rng.choice(n, size=int(rng.integers(2, 4)), replace=False)] for i in range(n)}
    graph = FactorGraph.from_scopes(scopes)
    sizes = {x: int(rng.integers(2, 6)) for x in graph.variables}
    assert elimination._min_fill_order(graph, sizes) == min_fill_from_scratch(graph, sizes)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_chain_is_swept_from_end_to_end_with_tables_over_b_plus_one(order: int) -> None:
    graph = chain(9, order)
    sizes = dict.fromkeys(graph.variables, 5)
    sweep = elimination_steps(graph, sizes)
    assert tuple(sweep) == graph.variables
    assert largest_clique(sweep, sizes)[0] == 5 ** (order + 1)


def test_a_star_with_its_hub_first_is_not_swept_in_the_graphs_order() -> None:
    graph = FactorGraph.from_scopes({f"f{i}": ["hub", f"x{i}"] for i in range(8)})
    sizes = dict.fromkeys(graph.variables, 10)
    assert largest_clique(buckets_of(graph, graph.variables), sizes)[0] == 10**9
    assert largest_clique(elimination_steps(graph, sizes), sizes)[0] == 100


def test_a_ring_needs_three_variables_at_a_time() -> None:
    graph = FactorGraph.from_scopes({f"f{i}": [f"x{i}", f"x{(i + 1) % 7}"] for i in range(7)})
    sizes = dict.fromkeys(graph.variables, 4)
    assert largest_clique(elimination_steps(graph, sizes), sizes)[0] == 64


@given(st.permutations(range(6)), st.integers(0, 2**32 - 1))
def test_every_factor_is_joined_once_and_results_go_to_a_later_step_that_knows_their_scope(
    places: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scopes = {f"f{k}": [f"x{v}" for v in rng.choice(6, size=rng.integers(1, 4), replace=False)] for k in range(5)}
    graph = FactorGraph.from_scopes(scopes)
    order = [f"x{i}" for i in places if f"x{i}" in graph.variables]
    buckets = buckets_of(graph, order)
    assert sorted(f for bucket in buckets.values() for f in bucket.factors) == sorted(graph.factors)
    for variable, bucket in buckets.items():
        if bucket.parent is None:
            assert bucket.scope == ()
            continue
        above = buckets[bucket.parent]
        assert variable in above.children
        assert set(bucket.scope) <= {above.variable, *above.scope}
        assert order.index(variable) < order.index(bucket.parent)


@pytest.mark.parametrize("block", [1, 7, 2**14])
def test_a_step_is_the_maximum_of_the_joined_sum_whatever_the_block(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elimination, "BLOCK", block)
    rng = np.random.default_rng(0)
    graph = FactorGraph.from_scopes({"f": ["y", "x"], "g": ["x", "z", "w"], "h": ["x"]})
    sizes = {"x": 5, "y": 2, "z": 3, "w": 4}
    bucket = buckets_of(graph, ["x", "w", "y", "z"])["x"]
    assert bucket.scope == ("w", "y", "z")
    tables = {f: rng.normal(size=[sizes[x] for x in graph.scope(f)]) for f in graph.factors}
    tables["g"][2] = -np.inf
    got = eliminate(bucket, [(graph.scope(f), tables[f]) for f in bucket.factors], sizes)
    joined = np.einsum("yx,xzw->xwyz", tables["f"], np.ones((5, 3, 4)))
    joined = joined + tables["g"].transpose(0, 2, 1)[:, :, None, :] + tables["h"][:, None, None, None]
    assert got.shape == (4, 2, 3)
    assert np.allclose(got, joined.max(axis=0), atol=1e-12)


def test_cost_counts_the_numbers_of_values_not_only_of_variables() -> None:
    graph = FactorGraph.from_scopes({"f": ["s", "a"], "g": ["s", "b"]})
    sizes = {"s": 2, "a": 100, "b": 100}  # s first would join a and b
    assert largest_clique(elimination_steps(graph, sizes), sizes)[0] == 200


def test_between_orders_with_equally_large_tables_the_graphs_own_is_kept() -> None:
    stars = {f"{leaf}{i}": [f"hub{i}", f"{leaf}_end{i}"] for i in range(3) for leaf in "ab"}  # min-fill: ends first
    graph = FactorGraph.from_scopes({"triple": ["p", "q", "r"]} | stars)
    sizes = dict.fromkeys(graph.variables, 10)
    assert tuple(elimination_steps(graph, sizes)) == graph.variables
