"""Compiled passes over whole graphs have the decisions and traffic of Python message by message."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.coordination import MaxSum, Solution
from swarmbo.coordination.messages import Codec, FromFactor, text_widths
from swarmbo.coordination.participant import solve_with_agents
from swarmbo.graph import FactorGraph
from swarmbo.transport import InProcess

from .example_tables import NO, Problem, by_agents

AGENTS = ["ann", "bob", "é" * 40, "d" * 300]  # names of every width that MessagePack distinguishes
seeds, kinds = st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.2, 0.7])


def draw(seed: int, n_factors: int, *, loops: int, largest: int, forbidden: float) -> Problem:
    """A connected graph in which factors share variables with earlier ones; tables with ties."""
    rng, variables, scopes = np.random.default_rng(seed), ["x0"], dict[str, list[str]]()
    for i in range(n_factors):
        fresh = [f"x{len(variables) + k}" for k in range(rng.integers(0, 4))]
        scope = [*rng.choice(variables, min(len(variables), 1 + (i >= n_factors - loops)), replace=False), *fresh]
        scopes[f"f{i}"] = [str(x) for x in rng.permutation(scope)]
        variables += fresh
    names = sorted({x for scope in scopes.values() for x in scope})
    owners = ({one: str(rng.choice(AGENTS)) for one in ones} for ones in (scopes, names))
    graph = FactorGraph.from_scopes(scopes, *owners)
    sizes = {x: int(rng.integers(1, largest + 1)) for x in graph.variables}
    tables = {f: rng.integers(-3, 4, [sizes[x] for x in graph.scope(f)]) / 3.0 for f in graph.factors}
    return graph, {f: np.where(rng.random(table.shape) < forbidden, NO, table) for f, table in tables.items()}


def decided(method: MaxSum, problem: Problem, is_relayed: bool) -> Solution:
    """The solution by compiled passes; assert that it is bit-identical message by message."""
    links = nx.path_graph(AGENTS) if is_relayed else None
    found = method.solve(*problem, links)
    assert repr(by_agents(method, *problem, links)) == repr(found)
    return found


@given(seeds, st.integers(1, 12), kinds, st.booleans())
@settings(deadline=None, max_examples=25)  # the first call compiles
def test_a_compiled_pass_over_a_tree_decides_and_counts_as_message_by_message(
    seed: int, n_factors: int, forbidden: float, is_relayed: bool
) -> None:
    graph, tables = draw(seed, n_factors, loops=0, largest=6, forbidden=forbidden)
    assert graph.is_forest
    found = decided(MaxSum(), (graph, tables), is_relayed)
    assert found.report.rounds == -(-nx.diameter(graph.to_networkx()) // 2)


@given(seeds, st.integers(2, 10), kinds, st.booleans(), st.integers(1, 4))
def test_the_last_choices_on_loops_are_those_of_variable_after_variable(
    seed: int, n_factors: int, forbidden: float, is_relayed: bool, rounds: int
) -> None:
    problem = draw(seed, n_factors, loops=3, largest=5, forbidden=forbidden)
    decided(MaxSum(rounds=rounds, repairs=2), problem, is_relayed)


# names, numbers of values and indices of every width that MessagePack distinguishes
OWNERS = {"f": "a", "g": "b" * 40, "ß" * 20: "c" * 300, "i": "a"}
SCOPES = {"f": ["x", "y"], "g": ["y", "z" * 31], "ß" * 20: ["z" * 31, "x", "ü" * 20], "i": ["x"]}
SIZES = {"x": 2, "y": 31, "z" * 31: 32, "ü" * 20: 300}
GRAPH = FactorGraph.from_scopes(SCOPES, OWNERS, dict(zip(SIZES, ["a", "b" * 40, "a", "a"], strict=True)))
LINKS = {
    "all in range": None,
    "relayed": nx.path_graph(GRAPH.agents),
    "relayed by an agent that owns nothing": nx.path_graph([*GRAPH.agents[:2], "relay", *GRAPH.agents[2:]]),
}


@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
@pytest.mark.parametrize("forbidden", [0.0, 0.5, 0.999])
def test_traffic_of_rounds_comparisons_choices_and_repairs_is_what_agents_send(
    links: nx.Graph | None, forbidden: float
) -> None:
    rng = np.random.default_rng(3)
    tables = {f: rng.normal(size=[SIZES[x] for x in GRAPH.scope(f)]) for f in GRAPH.factors}
    for table in tables.values():
        table[rng.random(table.shape) < forbidden] = -np.inf
    method, transport = MaxSum(rounds=9, repairs=4, bound="mplp"), InProcess().open(GRAPH.agents, links)
    by_messages = solve_with_agents(method, GRAPH, tables, transport)
    assert by_messages == method.solve(GRAPH, tables, links)
    assert by_messages.report.traffic == transport.traffic


@pytest.mark.parametrize("length", [0, 1, 31, 32, 255, 256, 2**16 - 1, 2**16])
def test_widths_of_names_are_those_of_messagepack(length: int) -> None:
    entries = np.zeros(0)
    without = Codec.size(FromFactor("", "x", entries))
    assert text_widths(["n" * length]).tolist() == [Codec.size(FromFactor("n" * length, "x", entries)) - without]
