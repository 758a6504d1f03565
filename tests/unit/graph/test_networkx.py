"""Graphs of networkx, in every form, wherever a factor graph is accepted; choices are those of brute force."""

import itertools
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.coordination.participant import solve_with_agents
from swarmbo.coordination.plan import traced
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.plotting.variables import factor_graph_figure
from swarmbo.transport import InProcess

Solve = Callable[..., sb.Solution]
SIZES = {"x": 2, "y": 3, "z": 4, "w": 2}
SOLVERS: list[Solve] = [
    sb.max_sum,
    sb.exact,
    lambda g, tables: sb.DSA().solve(g, tables, seed=3),
    sb.MGM(bound="mplp").solve,
    sb.MaxSum(mode="asynchronous").solve,
    lambda g, tables: traced(sb.MaxSum(), g, tables)[0],
    lambda g, tables: solve_with_agents(sb.MaxSum(), g, tables, InProcess().open(list("wxyz"))),
]


def entries(seed: int, *scope: str) -> np.ndarray:
    return np.random.default_rng([seed, len(scope)]).normal(size=[SIZES[x] for x in scope])


def brute_force(terms: list[tuple[tuple[str, ...], np.ndarray]]) -> tuple[float, dict[str, int]]:
    """The best sum of tables, each with its variables, over all joint choices."""
    names = list(dict.fromkeys(x for scope, _ in terms for x in scope))
    choices = (dict(zip(names, c, strict=True)) for c in itertools.product(*(range(SIZES[x]) for x in names)))
    scored = ((sum(float(t[tuple(c[x] for x in scope)]) for scope, t in terms), c) for c in choices)
    return max(scored, key=lambda pair: pair[0])


Made = tuple[Any, Any, list[tuple[tuple[str, ...], np.ndarray]]]


def of_factors(kind: str) -> Made:
    """Variables x, y, z and factors f (y, x), g (y, z), h (z), with axes in the order of their edges."""
    terms = [(("y", "x"), entries(0, "y", "x")), (("y", "z"), entries(1, "y", "z")), (("z",), entries(2, "z"))]
    tables = dict(zip("fgh", (table for _, table in terms), strict=True))
    g = nx.Graph()
    if kind != "inferred":
        is_factor = 0 if kind == "swapped" else 1
        g.add_nodes_from("xyz", bipartite=1 - is_factor)
        g.add_nodes_from("fgh", bipartite=is_factor)
    if kind == "axes":
        g.add_edge("f", "x", axis=1)
        g.add_edge("f", "y", axis=0)
    for factor, (scope, _) in zip("fgh", terms, strict=True):
        g.add_edges_from((factor, x) for x in scope)
    return g, tables, terms


def of_interactions(kind: str) -> Made:
    """A triangle x, y, z and a separate node w; nodes x and w have tables too."""
    scopes = [("x", "y"), ("z", "y"), ("x", "z"), ("x",), ("w",)]
    terms = [(scope, entries(i, *scope)) for i, scope in enumerate(scopes)]
    g = nx.Graph()
    g.add_nodes_from("wxyz")
    g.add_edges_from([("x", "y"), ("y", "z"), ("z", "x")])
    if kind == "attributes":  # axes as graph.edges has them
        for scope, table in terms:
            if len(scope) == 1:
                g.nodes[scope[0]]["table"] = table
            else:
                u, v = scope
                g.edges[u, v]["table"] = table if scope in g.edges() and (u, v) in list(g.edges) else table.T
        return g, None, terms
    tables: dict[Any, Any] = {scope if len(scope) == 2 else scope[0]: table for scope, table in terms}
    if kind == "numbers":
        number = {"x": 7, "y": 3, "z": np.int64(5), "w": (0, 1)}
        g = nx.relabel_nodes(g, number)
        keys = [tuple(number[x] for x in key) if isinstance(key, tuple) else number[key] for key in tables]
        tables = dict(zip(keys, tables.values(), strict=True))
        names = {x: str(node) for x, node in number.items()}
        SIZES.update({names[x]: SIZES[x] for x in "wxyz"})
        terms = [(tuple(names[x] for x in scope), table) for scope, table in terms]
    if kind == "np.str_":
        g = nx.relabel_nodes(g, {x: np.str_(x) for x in "wxyz"})
    return g, tables, terms


FORMS = [*((of_factors, kind) for kind in ("attribute", "swapped", "axes", "inferred"))]
FORMS += [*((of_interactions, kind) for kind in ("edges", "attributes", "numbers", "np.str_"))]


@pytest.mark.parametrize(("make", "kind"), FORMS)
@pytest.mark.parametrize("solve", [sb.exact, sb.max_sum])
def test_every_form_of_graph_is_solved_as_by_brute_force(make: Callable[[str], Made], kind: str, solve: Solve) -> None:
    g, tables, terms = make(kind)
    best, choice = brute_force(terms)
    solution = solve(g) if tables is None else solve(g, tables)
    assert solution.value == pytest.approx(best)
    assert solution.assignment == choice
    assert all(type(name) is str for name in solution.assignment)


@pytest.mark.parametrize("solve", SOLVERS)
def test_every_solver_accepts_a_graph_of_networkx(solve: Solve) -> None:
    g, tables, terms = of_interactions("edges")
    solution, (best, _) = solve(g, tables), brute_force(terms)
    chosen = solution.assignment
    assert solution.value == pytest.approx(sum(t[tuple(chosen[x] for x in scope)] for scope, t in terms))
    assert solution.value <= best + 1e-9
    assert solution.upper_bound is None or solution.upper_bound >= best - 1e-9


def test_the_axes_of_an_edge_s_table_are_those_of_its_key() -> None:
    g, table = nx.Graph([("x", "y")]), np.array([[0.0, 5.0, 1.0], [2.0, 3.0, 4.0]])
    there, back = sb.exact(g, {("x", "y"): table}), sb.exact(g, {("y", "x"): table.T})
    assert there.assignment == back.assignment == {"x": 0, "y": 1}


def test_a_table_may_be_of_a_clique() -> None:
    g, table = nx.complete_graph(["x", "y", "w"]), entries(3, "w", "x", "y")
    solution = sb.max_sum(g, {("w", "x", "y"): table, "y": entries(4, "y")})
    best, choice = brute_force([(("w", "x", "y"), table), (("y",), entries(4, "y"))])
    assert (solution.assignment, solution.value) == (choice, pytest.approx(best))


LINE: Any = nx.Graph([("x", "y"), ("y", "z")])
PAIR = np.zeros((2, 2))


@pytest.mark.parametrize(
    ("g", "tables", "says"),
    [
        (nx.path_graph(2), [np.eye(2)], r"^tables: got \[array.*; wanted \{factor: array\}"),
        (nx.path_graph(2), {(0, 1): "abc"}, r"^table of 'f\(0,1\)': got 'abc'; wanted an array of numbers"),
        (nx.path_graph(2), {(0, 1): [[0], [1, 2]]}, r"^table of 'f\(0,1\)': got \[\[0\], \[1, 2\]\]; wanted an array"),
        (LINE, {("x", "y"): PAIR}, r"edge \('y', 'z'\) has no table"),
        (LINE, {("x", "y"): PAIR, ("y", "z"): PAIR, ("x", "z"): PAIR}, "is neither a node nor an edge"),
        (LINE, {("x", "y"): PAIR, ("y", "x"): PAIR, ("y", "z"): PAIR}, "two tables for 'y' - 'x'"),
        (nx.path_graph(2), {(0, 1): PAIR, 1: np.zeros(2), "1": np.zeros(2)}, "two tables for 1"),
        (LINE, {("x", "y"): PAIR, ("y", "z"): np.zeros((3, 2))}, "'y' has 2 values .* but 3"),
        (nx.compose(LINE, nx.empty_graph(["w"])), {("x", "y"): PAIR, ("y", "z"): PAIR}, "'w' has no edge and no table"),
        (LINE, None, "has no table"),
        (LINE, {"x": np.zeros(2)}, "has no table"),
        (nx.Graph([("f", "x"), ("f", "y")]), {"f": np.zeros(2)}, "got 1 axes; wanted 2"),
    ],
)
def test_tables_that_do_not_fit_are_refused(g: Any, tables: Any, says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        sb.max_sum(g, tables)


@pytest.mark.parametrize(
    ("g", "says"),
    [
        (nx.DiGraph([("x", "y")]), "got a DiGraph; wanted an undirected graph"),
        (nx.MultiGraph([("x", "y"), ("x", "y")]), "got a MultiGraph"),
        (nx.Graph([("x", "y"), ("x", "x")]), "'x' has an edge to itself"),
        (nx.Graph([(0, 0), (0, 1)]), "node 0 has an edge to itself"),
        (nx.Graph([(1, 2), ("1", 2)]), "nodes 1 and '1' would both be named '1'"),
        (nx.Graph(), "without nodes"),
        ({"f": ["x"]}, r"wanted a FactorGraph \(FactorGraph.from_scopes\), or a graph of networkx"),
    ],
)
def test_graphs_that_do_not_define_factors_are_refused_in_the_same_way_everywhere(g: Any, says: str) -> None:
    tables, bounds = {("x", "y"): PAIR}, {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    for call in (
        lambda: sb.exact(g, tables),
        lambda: sb.Team(g, bounds),
        lambda: sb.Problem.of(g, bounds),
        lambda: sb.AdditiveGP(g, bounds),
    ):
        with pytest.raises(ConfigError, match=says):
            call()


def test_edges_or_cliques_or_named_nodes_are_factors() -> None:
    g = nx.complete_graph(["x", "y", "z"])
    g.add_edge("z", "v")
    g.add_node("w")
    read = sb.FactorGraph.from_networkx
    assert read(g, "edges").factors == ("f(x,y)", "f(x,z)", "f(y,z)", "f(z,v)", "f(w)")
    assert read(g, factors="cliques").scopes == (("x", "y", "z"), ("z", "v"), ("w",))
    assert read(nx.star_graph(["f", "x", "y"]), factors=["f"]).scopes == (("x", "y"),)
    with pytest.raises(ConfigError, match="wanted 'edges', 'cliques' or the factors' nodes"):
        read(g, "nodes")
    with pytest.raises(ConfigError, match=r"got \['q'\]; wanted some of \['x', "):
        read(g, ["q"])
    with pytest.raises(ConfigError, match=r"\$.factors: got 5; wanted a list of names"):
        read(g, 5)


@pytest.mark.parametrize("kind", ["attribute", "inferred", "swapped", "edges", "numbers"])
def test_a_team_and_agents_accept_every_form_and_decide_as_with_scopes(kind: str) -> None:
    bounds: dict[Any, tuple[float, float]] = dict.fromkeys("xyz", (0.0, 1.0))
    if kind in ("edges", "numbers"):
        scopes = {"f(x,y)": ["x", "y"], "f(y,z)": ["y", "z"]}
        g = LINE.copy()
        if kind == "numbers":
            g, bounds = nx.path_graph(3), dict.fromkeys(range(3), (0.0, 1.0))
            scopes = {"f(0,1)": ["0", "1"], "f(1,2)": ["1", "2"]}
    else:
        g, scopes = of_factors(kind)[0], {"f": ["y", "x"], "g": ["y", "z"], "h": ["z"]}
    graph = sb.FactorGraph.from_scopes(scopes)
    named = {str(x): pair for x, pair in bounds.items()}
    team, same = sb.Team(g, bounds, seed=2, initial=2), sb.Team(graph, named, seed=2, initial=2)
    for _ in range(3):
        query, other = team.ask(), same.ask()
        assert query.point == other.point
        outcome = -sum((value - 0.3) ** 2 for value in query.point.values())
        team.tell(query, outcome)
        same.tell(other, outcome)
    assert sb.Problem.of(g, bounds).graph == graph
    first = graph.agents[0]
    assert sb.Agent(first, sb.Problem.of(g, bounds), seed=2).tick(0, ()) is not None
    assert sb.AdditiveGP(g, bounds).graph == graph


def test_owners_on_nodes_and_edges_are_kept() -> None:
    g = nx.path_graph(["x", "y", "z"])
    nx.set_node_attributes(g, {"x": "left", "y": "left", "z": "right"}, "owner")
    graph = sb.Problem.of(g, dict.fromkeys("xyz", (0.0, 1.0))).graph
    assert (graph.variable_owners, graph.factor_owners) == (("left", "left", "right"), ("left", "left"))
    g.edges["y", "z"]["owner"] = "right"
    assert sb.FactorGraph.from_networkx(g, "edges").factor_owners == ("left", "right")


def test_a_graph_of_networkx_is_drawn() -> None:
    texts = {text.get_text() for text in factor_graph_figure(LINE).axes[0].texts}
    assert {"x", "y", "z"} <= texts


@pytest.mark.parametrize("axes", [(0, 0), (1, None), (5, None), ("a", "b"), (np.nan, 0), ([0], [1])])
def test_edges_without_a_clear_order_of_axes_are_refused(axes: Any) -> None:
    g: Any = nx.Graph()
    for variable, axis in zip("xy", axes, strict=True):
        g.add_edge("f", variable, **({} if axis is None else {"axis": axis}))
    with pytest.raises(ConfigError, match=r"node 'f' has edges with axis = .*; wanted different numbers, or none"):
        sb.exact(g, {"f": np.eye(2)})


def test_owners_in_addition_to_a_graph_are_refused_and_not_ignored() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    with pytest.raises(ConfigError, match=r"\$\.variable_owners: got {'x': 'robot'} and a graph; wanted none"):
        sb.Team(graph, {"x": (0.0, 1.0)}, variable_owners={"x": "robot"})
    assert sb.Team(graph, {"x": (0.0, 1.0)}, variable_owners={"x": "x"}).agents == ("x",)
    assert sb.Team(None, {"x": (0.0, 1.0)}, variable_owners={"x": "robot"}).agents == ("robot",)
