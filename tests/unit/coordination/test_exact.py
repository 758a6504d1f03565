"""Exact: orders of elimination, sizes of joined tables, one step, budgets, and counted traffic."""

import itertools
import math

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.coordination import Exact, exact
from swarmbo.coordination.methods import exact as elimination
from swarmbo.coordination.methods.exact import Bucket, buckets_of, eliminate, elimination_steps
from swarmbo.errors import BudgetError
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes

from .example_tables import ring


def chain(n: int, order: int) -> FactorGraph:
    return FactorGraph.from_scopes({f"f{i}": [f"x{j}" for j in range(i, i + order + 1)] for i in range(n - order)})


def min_fill_from_scratch(graph: FactorGraph, sizes: dict[str, int]) -> tuple[str, ...]:
    """The plain rule: all costs are computed again at every step."""
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
def test_cached_costs_are_those_of_the_current_links(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    scopes = {f"f{i}": [f"x{v}" for v in rng.choice(n, size=int(rng.integers(2, 4)), replace=False)] for i in range(n)}
    graph = FactorGraph.from_scopes(scopes)
    sizes = {x: int(rng.integers(2, 6)) for x in graph.variables}
    assert elimination._min_fill_order(graph, sizes) == min_fill_from_scratch(graph, sizes)


def entries_of(buckets: dict[str, Bucket]) -> int:
    return max(bucket.entries for bucket in buckets.values())


@pytest.mark.parametrize("order", [1, 2, 3])
def test_a_chain_is_swept_from_end_to_end_with_tables_over_b_plus_one(order: int) -> None:
    graph = chain(9, order)
    sizes = dict.fromkeys(graph.variables, 5)
    sweep = elimination_steps(graph, sizes)
    assert tuple(sweep) == graph.variables
    assert entries_of(sweep) == 5 ** (order + 1)


class Read(dict[str, int]):
    """Numbers of values that count how often they are read."""

    reads = 0

    def __getitem__(self, variable: str) -> int:
        self.reads += 1
        return super().__getitem__(variable)


def test_the_work_to_order_a_star_grows_with_its_leaves_and_not_with_their_square() -> None:
    reads = list[int]()
    for n in (100, 200):
        graph = FactorGraph.from_scopes({f"f{i}": ["hub", f"x{i}"] for i in range(n)})
        sizes = Read(dict.fromkeys(graph.variables, 5))
        assert entries_of(elimination_steps(graph, sizes)) == 25
        reads.append(sizes.reads)
    assert reads[1] < 2.1 * reads[0]


STAR = {f"f{i}": ["hub", f"x{i}"] for i in range(8)}


@pytest.mark.parametrize(
    ("scopes", "sizes", "largest"),
    [(STAR, {}, 10**2), (ring(7), {}, 10**3), (ring(4), {"x0": 2, "x2": 2}, 40)],
    ids=["a star whose hub comes first", "a ring", "numbers of values"],
)
def test_the_largest_table_is_as_small_as_possible(scopes: dict[str, list[str]], sizes: dict[str, int], largest: int):
    graph = FactorGraph.from_scopes(scopes)
    sizes = dict.fromkeys(graph.variables, 10) | sizes
    assert entries_of(elimination_steps(graph, sizes)) == largest


@pytest.mark.parametrize("block", [1, 7, 2**14])
def test_a_step_is_the_maximum_of_the_joined_sum_whatever_the_block(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(elimination, "BLOCK", block)
    rng = np.random.default_rng(0)
    graph = FactorGraph.from_scopes({"f": ["y", "x"], "g": ["x", "z", "w"], "h": ["x"]})
    sizes = {"x": 5, "y": 2, "z": 3, "w": 4}
    bucket = buckets_of(graph, ["x", "w", "y", "z"], sizes)["x"]
    assert bucket.scope == ("w", "y", "z")
    tables = {f: rng.normal(size=[sizes[x] for x in graph.scope(f)]) for f in graph.factors}
    tables["g"][2] = -np.inf
    got = eliminate(bucket, [(graph.scope(f), tables[f]) for f in bucket.factors], sizes)
    joined = np.einsum("yx,xzw->xwyz", tables["f"], np.ones((5, 3, 4)))
    joined = joined + tables["g"].transpose(0, 2, 1)[:, :, None, :] + tables["h"][:, None, None, None]
    assert got.shape == (4, 2, 3)
    assert np.allclose(got, joined.max(axis=0), atol=1e-12)


def test_among_orders_with_equally_large_tables_that_of_the_graph_is_kept() -> None:
    stars = {f"{leaf}{i}": [f"hub{i}", f"{leaf}_end{i}"] for i in range(3) for leaf in "ab"}  # min-fill: ends first
    graph = FactorGraph.from_scopes({"triple": ["p", "q", "r"]} | stars)
    sizes = dict.fromkeys(graph.variables, 10)
    assert tuple(elimination_steps(graph, sizes)) == graph.variables


SCOPES = {"f": ["a", "b", "c"], "g": ["b", "c", "d"]}
CHAIN = FactorGraph.from_scopes(SCOPES)
TABLES = {"f": np.zeros((3, 4, 5)), "g": np.zeros((4, 5, 6))}


def test_the_budget_is_the_entries_of_the_largest_step() -> None:
    assert exact(CHAIN, TABLES, table_budget=120).value == 0.0
    with pytest.raises(BudgetError, match=r"4 x 5 x 6 = 120 entries .* over b, c, d; the .* 119 entries\. Raise"):
        exact(CHAIN, TABLES, table_budget=119)


@pytest.mark.parametrize(("size", "entries", "mebibytes"), [(10**9, 360, 355), (10**200, 8000, 7995)])
def test_a_table_with_more_entries_than_any_float_is_refused_like_other_large_tables(
    size: int, entries: int, mebibytes: int
) -> None:
    graph = FactorGraph.from_scopes({f"f{i}_{j}": [f"x{i}", f"x{j}"] for i, j in itertools.combinations(range(40), 2)})
    with pytest.raises(BudgetError) as refused:
        Exact().plan(graph, dict.fromkeys(graph.variables, size), Routes(graph.agents))
    wanted = f" x … = about 10^{entries} entries (about 10^{mebibytes} MiB) over x0, x1, x2, x3, x4, x5, x6, x7, …"
    assert wanted in str(refused.value)
    assert "the budget is 16,777,216 entries" in str(refused.value)


@pytest.mark.parametrize("n", [64, 65])
def test_a_table_with_more_axes_than_numpy_has_is_refused(n: int) -> None:
    graph = FactorGraph.from_scopes(
        {f"{x}-{y}": [x, y] for x, y in itertools.combinations([f"x{i}" for i in range(n)], 2)}
    )
    tables = dict.fromkeys(graph.factors, np.ones((1, 1)))
    if n > 64:
        with pytest.raises(BudgetError, match=r"of 65 variables; NumPy's limit is 64\. Use max-sum"):
            exact(graph, tables)
    else:
        assert exact(graph, tables).value == len(graph.factors)


def test_ties_go_to_the_lowest_indices() -> None:
    assert exact(CHAIN, TABLES).assignment == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_a_sweep_up_and_down_the_chain_is_counted_in_rounds_and_messages() -> None:
    report = exact(CHAIN, TABLES).report
    assert (report.rounds, report.messages) == (6, 6)  # each of three links of the chain once up and once down
    tables = 8 * (4 * 5 + 5 * 6 + 6)
    assert tables < report.bytes < tables + 6 * 32


@pytest.mark.parametrize(("actors", "rounds"), [("aaaa", 0), ("aabb", 2), ("abab", 6), ("abbc", 4)])
def test_steps_that_stay_with_one_agent_do_not_count_as_rounds(actors: str, rounds: int) -> None:
    graph = FactorGraph.from_scopes(SCOPES, variable_owners=dict(zip("abcd", actors, strict=True)))
    report = exact(graph, TABLES).report
    assert (report.rounds, report.messages) == (rounds, rounds)


def test_rounds_are_those_of_the_path_with_most_steps_to_another_agent() -> None:
    scopes = {"f": ["p", "r"], "g": ["q", "r"], "h": ["r", "s"]}  # p and q are eliminated into r, and r into s
    tables = dict.fromkeys(scopes, np.zeros((2, 2)))
    for actors, rounds in [("baaa", 2), ("abaa", 2), ("bcaa", 2), ("abac", 4), ("bcad", 4), ("aaaa", 0)]:
        graph = FactorGraph.from_scopes(scopes, variable_owners=dict(zip("pqrs", actors, strict=True)))
        assert exact(graph, tables).report.rounds == rounds, actors


def test_a_factor_of_an_agent_without_variables_is_sent_once_to_the_agent_that_joins_it() -> None:
    base = FactorGraph.from_scopes(SCOPES, {"f": "base", "g": "b"}, {x: x for x in "abcd"})
    at_home, away = exact(CHAIN, TABLES).report, exact(base, TABLES).report
    assert away.messages == at_home.messages + 1
    assert away.bytes > at_home.bytes + TABLES["f"].nbytes
