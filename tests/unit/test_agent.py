"""Agents decide as the fast path does, whatever the ownership, the links and the order of arrival."""

from collections.abc import Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from swarmbo.agent import Agent, solve_with_agents
from swarmbo.coordination import Exact, MaxSum, Solution
from swarmbo.coordination.tables import sizes_of
from swarmbo.errors import TransportError
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.transport import Envelope, InProcess, InProcessTransport, Routes

Tables = dict[str, np.ndarray]
Method = MaxSum | Exact

METHODS: list[Method] = [Exact(), MaxSum(rounds=1), MaxSum(rounds=7, damping=0.0), MaxSum(rounds=7, tolerance=0.3)]
ENTRIES = st.sampled_from([-np.inf, -1.5, -1.0, 0.0, 0.1, 1.0]) | st.floats(-3, 3)
AGENTS = ("ann", "bob", "cyd", "dan", "eve")


@st.composite
def problems(draw: st.DrawFn, most_variables: int = 6) -> tuple[FactorGraph, Tables]:
    n = draw(st.integers(1, most_variables))
    sizes = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    scope = st.lists(st.integers(0, n - 1), min_size=1, max_size=3, unique=True)
    scopes = {f"f{k}": s for k, s in enumerate(draw(st.lists(scope, min_size=1, max_size=6)))}
    names = {f: [f"x{v}" for v in s] for f, s in scopes.items()}
    agent = st.sampled_from(AGENTS)
    graph = FactorGraph.from_scopes(
        names,
        {f: draw(agent) for f in names},
        {x: draw(agent) for x in dict.fromkeys(x for s in names.values() for x in s)},
    )
    return graph, {f: draw(hnp.arrays(float, tuple(sizes[v] for v in s), elements=ENTRIES)) for f, s in scopes.items()}


@st.composite
def connected_links(draw: st.DrawFn) -> nx.Graph:
    """A random tree on the agents, and some links more."""
    order = draw(st.permutations(AGENTS))
    links = nx.Graph()
    links.add_nodes_from(order)
    for i in range(1, len(order)):
        links.add_edge(order[i], order[draw(st.integers(0, i - 1))])
    links.add_edges_from(draw(st.lists(st.tuples(st.sampled_from(AGENTS), st.sampled_from(AGENTS)), max_size=3)))
    return links


class LateAndShuffled(InProcessTransport):
    """Delivers everything, but in any order and up to some steps late."""

    def __init__(self, routes: Routes, seed: int) -> None:
        super().__init__(routes)
        self._rng = np.random.default_rng(seed)
        self._held: list[Envelope] = []

    def deliver(self) -> dict[str, list[Envelope]]:
        arrived = [*self._held, *(envelope for inbox in super().deliver().values() for envelope in inbox)]
        while arrived:
            late = self._rng.random(len(arrived)) < 0.5
            self._held = [envelope for envelope, is_late in zip(arrived, late, strict=True) if is_late]
            now = [arrived[i] for i in self._rng.permutation(len(arrived)) if not late[i]]
            if now:
                inboxes: dict[str, list[Envelope]] = {}
                for envelope in now:
                    inboxes.setdefault(envelope.recipient, []).append(envelope)
                return inboxes
        return {}


class Lossy(InProcessTransport):
    """Loses everything."""

    def deliver(self) -> dict[str, list[Envelope]]:
        super().deliver()
        return {}


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems(), links=st.none() | connected_links())
@settings(max_examples=40, deadline=None)
def test_agents_decide_and_report_as_the_fast_path_to_the_bit(
    method: Method, problem: tuple[FactorGraph, Tables], links: nx.Graph | None
) -> None:
    graph, tables = problem
    transport = InProcess().open(AGENTS, links)
    by_agents = solve_with_agents(method, graph, tables, transport)
    fast = method.solve(graph, tables, links)
    assert by_agents == fast
    assert np.float64(by_agents.value).tobytes() == np.float64(fast.value).tobytes()
    assert transport.traffic == by_agents.report.traffic


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems(most_variables=4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_the_order_of_arrival_does_not_matter(method: Method, problem: tuple[FactorGraph, Tables], seed: int) -> None:
    graph, tables = problem
    shuffled = solve_with_agents(method, graph, tables, LateAndShuffled(Routes(graph.agents), seed))
    assert shuffled == method.solve(graph, tables)


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems(most_variables=4), names=st.permutations(AGENTS))
@settings(max_examples=25, deadline=None)
def test_the_names_of_the_agents_do_not_matter(
    method: Method, problem: tuple[FactorGraph, Tables], names: Sequence[str]
) -> None:
    graph, tables = problem
    renamed = dict(zip(AGENTS, names, strict=True))
    other = FactorGraph.from_scopes(
        dict(zip(graph.factors, graph.scopes, strict=True)),
        {f: renamed[graph.owner(f)] for f in graph.factors},
        {x: renamed[graph.variable_owner(x)] for x in graph.variables},
    )
    one = solve_with_agents(method, graph, tables, InProcess().open(graph.agents))
    two = solve_with_agents(method, other, tables, InProcess().open(other.agents))
    assert one == two


@pytest.mark.parametrize("method", METHODS)
def test_one_agent_that_owns_everything_sends_nothing(method: Method) -> None:
    graph, tables = _triangle({"f": "ann", "g": "ann", "h": "ann"})
    solution = solve_with_agents(method, graph, tables, InProcess().open(graph.agents))
    assert solution.report.traffic == Traffic()
    assert solution.assignment == method.solve(graph, tables).assignment


@pytest.mark.parametrize("method", METHODS)
def test_on_a_line_of_links_messages_are_relayed_and_hops_counted(method: Method) -> None:
    graph, tables = _triangle({"f": "ann", "g": "bob", "h": "cyd"})
    line = nx.path_graph(["ann", "bob", "cyd"])
    heard = method.solve(graph, tables)
    relayed = method.solve(graph, tables, line)
    assert relayed.assignment == heard.assignment
    assert heard.report.traffic.transmissions == heard.report.messages
    assert relayed.report.traffic.transmissions > relayed.report.messages


@pytest.mark.parametrize("method", METHODS)
def test_nodes_of_the_links_that_own_nothing_relay_alike_in_both_ways(method: Method) -> None:
    graph, tables = _triangle({"f": "ann", "g": "bob", "h": "cyd"})
    links = nx.Graph([("ann", "idle"), ("idle", "bob"), ("idle", "mast"), ("mast", "cyd")])
    transport = InProcess().open([*graph.agents, "idle"], links)  # one relay is known as an agent, the other is not
    by_agents = solve_with_agents(method, graph, tables, transport)
    assert by_agents == method.solve(graph, tables, links)
    assert transport.traffic == by_agents.report.traffic
    assert by_agents.report.traffic.transmissions >= 2 * by_agents.report.messages  # two or three hops each


@pytest.mark.parametrize("method", METHODS)
def test_agents_that_must_talk_but_have_no_path_are_refused_by_both_ways(method: Method) -> None:
    graph, tables = _triangle({"f": "ann", "g": "bob", "h": "cyd"})
    links = nx.Graph([("ann", "bob")])
    with pytest.raises(TransportError, match="no path"):
        method.solve(graph, tables, links)
    with pytest.raises(TransportError, match="no path"):
        solve_with_agents(method, graph, tables, InProcess().open(graph.agents, links))


@pytest.mark.parametrize("method", METHODS)
def test_parts_out_of_radio_contact_are_fine_when_they_share_nothing(method: Method) -> None:
    graph = FactorGraph.from_scopes({"f": ["w", "x"], "g": ["y", "z"]})
    tables = {"f": np.eye(2), "g": np.eye(3)}
    links = nx.Graph([("w", "x"), ("y", "z")])
    transport = InProcess().open(graph.agents, links)
    assert solve_with_agents(method, graph, tables, transport) == method.solve(graph, tables, links)


@pytest.mark.parametrize("method", METHODS)
def test_lost_messages_are_an_error_and_not_a_wrong_answer(method: Method) -> None:
    graph, tables = _triangle({"f": "ann", "g": "bob", "h": "cyd"})
    with pytest.raises(TransportError, match="still waits"):
        solve_with_agents(method, graph, tables, Lossy(Routes(graph.agents)))


def test_a_transport_used_twice_reports_each_solve_by_itself() -> None:
    graph, tables = _triangle({"f": "ann", "g": "bob", "h": "cyd"})
    transport = InProcess().open(graph.agents)
    first, second = (solve_with_agents(Exact(), graph, tables, transport) for _ in range(2))
    assert first == second
    assert transport.traffic.bytes == 2 * first.report.bytes


def test_an_agent_is_given_its_own_tables_only_and_starts_by_itself() -> None:
    graph, tables = _triangle({"f": "ann", "g": "bob", "h": "cyd"})
    plan = MaxSum().plan(graph, sizes_of(graph, tables), Routes(graph.agents))
    ann = Agent("ann", plan, {"f": tables["f"]})
    outbox = ann.step([])
    assert outbox
    assert all(envelope.sender == "ann" and envelope.recipient in ("bob", "cyd") for envelope in outbox)
    assert not ann.is_finished
    assert ann.step([]) == []


def test_large_tables_take_the_compiled_form_in_both_ways_with_equal_bits() -> None:
    rng = np.random.default_rng(0)
    graph, _ = _triangle({"f": "ann", "g": "bob", "h": "cyd"})
    tables = {f: rng.normal(size=(600, 600)) for f in graph.factors}
    method = MaxSum(rounds=50)  # 50 rounds of 360,000 entries an agent: above the threshold for both
    by_agents: Solution = solve_with_agents(method, graph, tables, InProcess().open(graph.agents))
    assert by_agents == method.solve(graph, tables)


def _triangle(owners: dict[str, str]) -> tuple[FactorGraph, Tables]:
    rng = np.random.default_rng(1)
    scopes = {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]}
    graph = FactorGraph.from_scopes(scopes, owners, dict(zip("xyz", owners.values(), strict=True)))
    return graph, {f: rng.normal(size=(4, 4)) for f in scopes}


@pytest.mark.parametrize("rounds", [1, 3, 20])
def test_agents_on_loops_follow_the_fast_path_through_many_close_calls(rounds: int) -> None:
    """A dense loop of five agents with real tables: the best is now a middle round, now the last decoding."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        graph = FactorGraph.from_scopes({f"f{i}": [f"x{i}", f"x{(i + 1) % 5}"] for i in range(5)})
        tables = {f: rng.normal(size=(4, 4)) for f in graph.factors}
        method = MaxSum(rounds=rounds, tolerance=0.05)
        assert solve_with_agents(method, graph, tables, InProcess().open(graph.agents)) == method.solve(graph, tables)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scopes", [{"f": ["x", "y"]}, {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]}])
def test_indices_that_take_more_than_one_byte_are_counted_as_long_as_they_are(
    method: Method, scopes: dict[str, list[str]]
) -> None:
    graph = FactorGraph.from_scopes(scopes)
    sizes = {"x": 300, "y": 2, "z": 300}
    tables = {f: np.add.outer(*(np.arange(float(sizes[x])) for x in scope)) for f, scope in scopes.items()}
    solution = solve_with_agents(method, graph, tables, InProcess().open(graph.agents))
    assert solution.assignment == {x: sizes[x] - 1 for x in graph.variables}
    assert solution == method.solve(graph, tables)
