"""Scopes, ownership and shape of factor graphs."""

from dataclasses import replace
from typing import Any

import networkx as nx
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.errors import ConfigError, OwnershipError
from swarmbo.graph import FactorGraph
from swarmbo.graph.groups import split_graph

SCOPES = {"f1": ["x1", "x3"], "f2": ["x2"]}


@st.composite
def scopes(draw: st.DrawFn) -> dict[str, list[str]]:
    variables = [f"x{i}" for i in range(draw(st.integers(1, 6)))]
    scope = st.lists(st.sampled_from(variables), min_size=1, max_size=3, unique=True)
    return {f"f{i}": s for i, s in enumerate(draw(st.lists(scope, min_size=1, max_size=7)))}


def test_variables_come_in_order_of_first_appearance() -> None:
    graph = FactorGraph.from_scopes(SCOPES)
    assert (graph.variables, graph.factors) == (("x1", "x3", "x2"), ("f1", "f2"))
    assert (graph.scope("f1"), graph.max_factor_size) == (("x1", "x3"), 2)
    with pytest.raises(KeyError, match=r"no factor 'g'.*f1"):
        graph.scope("g")


def test_given_owners_are_the_owners() -> None:
    graph = FactorGraph.from_scopes(SCOPES, {"f1": "b", "f2": "a"}, {"x1": "a", "x3": "c", "x2": "a"})
    assert graph.agents == ("a", "c", "b")
    assert (graph.owner("f1"), graph.variable_owner("x3")) == ("b", "c")
    assert graph.factors_owned_by("a") == ("f2",)
    assert graph.variables_owned_by("a") == ("x1", "x2")
    assert graph.factors_owned_by("c") == ()


@pytest.mark.parametrize(
    ("owners", "variable_owners", "of_factors", "of_variables"),
    [
        (None, None, "xy", "xyz"),  # each variable is an agent, and owns the factors that it comes first in
        ({"f": "a", "g": "b"}, None, "ab", "aab"),  # a variable belongs to the owner of its first factor
        (None, {"x": "a", "y": "b", "z": "b"}, "ab", "abb"),  # a factor belongs to the owner of its first variable
    ],
)
def test_owners_that_are_not_given_follow_from_scopes(owners, variable_owners, of_factors, of_variables) -> None:
    graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "x", "z"]}, owners, variable_owners)
    assert graph.factor_owners == tuple(of_factors)
    assert graph.variable_owners == tuple(of_variables)


@pytest.mark.parametrize(
    ("owners", "variable_owners", "says"),
    [
        ({"f1": "a"}, None, "factor 'f2' has no owner"),
        ({"f1": "a", "f2": "a", "f3": "a"}, None, "'f3'"),
        ({"f1": ["a", "b"], "f2": "a"}, None, "exactly one owner"),
        (None, {"x1": "a", "x2": "a"}, "variable 'x3' has no owner"),
        (None, {"x1": "a", "x2": "a", "x3": "a", "x4": "a"}, "'x4'"),
        ({"f1": "", "f2": "a"}, None, "factor 'f1' is owned by ''"),
    ],
)
def test_missing_and_unknown_owners_are_refused(owners, variable_owners, says) -> None:
    with pytest.raises(OwnershipError, match=says):
        FactorGraph.from_scopes(SCOPES, owners, variable_owners)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({}, "no factors"),
        ({"f": []}, r"\$\.scopes\.f: got \[\]"),
        ({"f": ["x", "x"]}, "no name twice"),
        ({"f": "xy"}, "got .xy.; wanted a list of names, at least one variable"),
        ({"f": [1, 2]}, "got the name 1; wanted a string"),
        ({"x": ["x"]}, "both a factor and a variable"),
    ],
)
def test_malformed_scopes_are_refused(wrong: dict[str, list[str]], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        FactorGraph.from_scopes(wrong)


@given(scopes())
def test_neighbours_share_a_variable_and_exclude_the_factor_itself(given_scopes: dict[str, list[str]]) -> None:
    graph = FactorGraph.from_scopes(given_scopes)
    for f in graph.factors:
        expected = [g for g in graph.factors if g != f and set(graph.scope(f)) & set(graph.scope(g))]
        assert list(graph.neighbours(f)) == expected


@given(scopes())
def test_forest_and_parts_agree_with_networkx(given_scopes: dict[str, list[str]]) -> None:
    graph = FactorGraph.from_scopes(given_scopes)
    g = graph.to_networkx()
    assert graph.is_forest == nx.is_forest(g)
    parts = {frozenset([*part.factors, *part.variables]) for part in graph.components}
    assert parts == {frozenset(part) for part in nx.connected_components(g)}
    assert sorted(f for part in graph.components for f in part.factors) == sorted(graph.factors)


def test_the_work_to_check_owners_grows_with_the_number_of_factors_and_not_with_its_square(steps_of_names) -> None:
    def check(names: list[str]) -> None:
        FactorGraph.from_scopes({name: ["x"] for name in names}, dict.fromkeys(names, "a"))

    assert steps_of_names(check, 1000) < 20 * steps_of_names(check, 100)


@pytest.mark.parametrize("kinds", [(0, 0), (1, 1), (0, 1)])
def test_different_nodes_of_the_same_text_are_refused_and_not_merged(kinds: tuple[int, int]) -> None:
    g = nx.Graph()
    g.add_node(1, bipartite=kinds[0])
    g.add_node("1", bipartite=kinds[1])
    g.add_nodes_from(["x"], bipartite=0)
    g.add_nodes_from(["f"], bipartite=1)
    for node, kind in zip((1, "1"), kinds, strict=True):
        g.add_edge(node, "f" if kind == 0 else "x")
    with pytest.raises(ConfigError, match="nodes 1 and '1' would both be named '1'"):
        FactorGraph.from_networkx(g)


@given(scopes())
def test_networkx_and_back_is_the_same_graph(given_scopes: dict[str, list[str]]) -> None:
    graph = FactorGraph.from_scopes(given_scopes)
    assert FactorGraph.from_networkx(graph.to_networkx()) == graph
    owners = {f: f"a{len(f)}" for f in graph.factors}, {x: f"a{i % 3}" for i, x in enumerate(graph.variables)}
    owned = FactorGraph.from_scopes(given_scopes, *owners)
    assert FactorGraph.from_networkx(owned.to_networkx()) == owned
    assert hash(FactorGraph.from_networkx(owned.to_networkx())) == hash(owned)


def test_networkx_graphs_that_are_not_factor_graphs_are_refused() -> None:
    with pytest.raises(ConfigError, match="bipartite=None"):
        FactorGraph.from_networkx(nx.path_graph(2))
    g = nx.Graph()
    g.add_nodes_from(["x", "y"], bipartite=0)
    g.add_node("f", bipartite=1)
    g.add_edge("f", "x")
    with pytest.raises(ConfigError, match="'y' is in no scope"):
        FactorGraph.from_networkx(g)
    g.add_edge("x", "y")
    with pytest.raises(ConfigError, match="two nodes of one kind"):
        FactorGraph.from_networkx(g)


def test_a_graph_of_lists_is_that_of_tuples_and_does_not_change() -> None:
    scopes, joined = [["x", "y"], ["z"]], [["y", "z"]]
    graph = FactorGraph(["f", "g"], scopes, ["a", "b"], ["x", "y", "z"], ["a", "a", "b"], joined)
    scopes[0].reverse()
    same = FactorGraph(("f", "g"), (("x", "y"), ("z",)), ("a", "b"), ("x", "y", "z"), ("a", "a", "b"), (("y", "z"),))
    assert (graph, hash(graph)) == (same, hash(same))
    assert replace(graph, joined=(group for group in joined)) == same


@pytest.mark.parametrize(
    ("joined", "says"),
    [
        ([["x", "q"]], r"joined\[0\]: got \['q'\]"),
        (None, r"^\$\.joined: got None; wanted a list of groups of variables"),
        ({("x", "y")}, r"^\$\.joined: got \{\('x', 'y'\)\}; wanted a list of groups"),
        ([{"x", "y"}], r"^\$\.joined\[0\]: got \{.*\}; wanted a list of names"),
        (["xy"], "wanted a list of names"),
        ([["x", "x"]], "no name twice"),
        ([[]], "got "),
    ],
)
def test_joined_sets_have_different_variables_of_the_graph(joined, says) -> None:
    with pytest.raises(ConfigError, match=says):
        FactorGraph(("f",), (("x", "y"),), ("a",), ("x", "y"), ("a", "a"), joined)


@pytest.mark.parametrize("field", ["scopes", "factor_owners", "variable_owners"])
@pytest.mark.parametrize("wrong", [None, 5, "ab", {("x", "y")}])
def test_scopes_and_owners_have_an_order(field: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^\$\.{field}: got .*; wanted one for each of \d (factors|variables)"):
        replace(FactorGraph.from_scopes({"f": ["x", "y"]}), **{field: wrong})


def test_parts_keep_their_joined_sets_and_a_graph_of_networkx_has_none() -> None:
    graph = replace(FactorGraph.from_scopes({"f": ["x"], "g": ["y"], "h": ["z"]}), joined=(("x", "y"),))
    assert [part.joined for part in graph.components] == [(("x", "y"),), ()]
    assert [part.is_forest for part in graph.components] == [True, True]
    assert FactorGraph.from_networkx(graph.to_networkx()) == replace(graph, joined=())


def test_a_group_that_is_partly_in_a_graph_joins_its_variables_there() -> None:
    graph = FactorGraph.from_scopes({"f": ["x"], "g": ["y"], "h": ["z"]})
    graph = replace(graph, joined=(("z", "x", "y"), ("y", "z")))
    part = graph.of(["f", "g"])
    assert part.joined == (("x", "y"),)
    assert part.components == (part,)


def test_parts_keep_their_owners() -> None:
    graph = FactorGraph.from_scopes(SCOPES, {"f1": "a", "f2": "b"}, {"x1": "c", "x3": "a", "x2": "c"})
    first, second = graph.components
    assert (first.owner("f1"), first.variable_owner("x1"), second.variable_owner("x2")) == ("a", "c", "c")


def sums(query):
    return sum(value for value in query.point.values() if isinstance(value, float))


def with_choices(name):
    graph = sb.FactorGraph.from_scopes({"a=2": ["a", name], "h": ["a", "b"]})
    return sb.Team(graph, {"a": sb.Categorical([1, 2, 3]), name: (0.0, 1.0), "b": (0.0, 1.0)}, initial=2, seed=0)


def with_a_limit(name):
    return sb.Team(None, {name: (0.0, 1.0), "b": (0.0, 1.0)}, limits={"load": (None, 0.5)}, initial=3, seed=0)


def with_a_budget(name):
    graph = sb.FactorGraph.from_scopes({"limit 0": [name], "h": ["b"]})
    rule = sb.Linear(weights={name: 1.0, "b": 1.0}, at_most=1.0)
    bounds = dict.fromkeys(graph.variables, (0.0, 1.0))
    return sb.Team(graph, bounds, outcomes="per-factor", constraints=[rule], initial=2, seed=0)


@pytest.mark.parametrize(("make", "name"), [(with_choices, "a=1"), (with_a_limit, "limit"), (with_a_budget, "limit 1")])
def test_names_of_variables_and_factors_are_free(make, name):
    team = make(name)
    for _ in range(8):
        query = team.ask()
        value = sums(query)
        by_factor = {"limit 0": query.point[name], "h": query.point["b"]}
        load = {"constraints": {"load": value}} if make is with_a_limit else {}
        team.tell(query, by_factor if make is with_a_budget else value, **load)
    assert set(team.recommend().point) == set(query.point)


@pytest.mark.parametrize("acquisition", ["auto", "information"])
def test_names_of_agents_in_a_field_are_free(acquisition):
    team = sb.Team.for_field(["a", "w_a", "route_a"], [0.0], [1.0], acquisition=acquisition, seed=0)
    for _ in range(3):
        query = team.ask()
        team.tell(query, {agent: float(x[0]) for agent, x in query.points.items()})
    assert set(query.points) == {"a", "w_a", "route_a"}


def test_parts_of_factors_have_names_that_no_variable_has():
    graph = sb.FactorGraph.from_scopes({"f": ["x", "f(x)"], "g": ["x"]})
    assert split_graph(graph, {"f"}, shared_outcomes=False).factors == ("f(x)'", "f(f(x))", "g")


def test_sets_that_a_constraint_couples_make_no_loop_and_hide_none() -> None:
    looped = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["x", "y"], "h": ["z"]})
    for graph in (looped, FactorGraph.from_scopes({"f": ["x", "y"], "h": ["z"]})):
        joined = replace(graph, joined=(("x", "z"),))
        assert (len(joined.components), joined.is_forest) == (1, graph is not looped)
