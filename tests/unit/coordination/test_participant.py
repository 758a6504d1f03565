"""Agents decide as the fast path does, whatever the ownership, the links and the order of arrival."""

import subprocess
import sys
from collections.abc import Sequence

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import swarmbo as sb
from swarmbo.coordination import Exact, MaxSum
from swarmbo.coordination.participant import Participant, maximise_with_agents, solve_with_agents
from swarmbo.coordination.tables import sizes_of
from swarmbo.errors import ConfigError, TransportError
from swarmbo.graph import FactorGraph
from swarmbo.testing.coordinator import Bowls
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


class Unruly(InProcessTransport):
    """Delivers everything, but in any order, up to some steps late, and some of it again, even decisions later."""

    def __init__(self, routes: Routes, seed: int) -> None:
        super().__init__(routes)
        self._rng = np.random.default_rng(seed)
        self._held: list[Envelope] = []
        self._seen: list[Envelope] = []
        self.repeated = 0

    def deliver(self) -> dict[str, list[Envelope]]:
        new = [envelope for inbox in super().deliver().values() for envelope in inbox]
        arrived = [*self._held, *new]
        self._seen += new
        while arrived:
            late = self._rng.random(len(arrived)) < 0.5
            self._held = [envelope for envelope, is_late in zip(arrived, late, strict=True) if is_late]
            now = [arrived[i] for i in self._rng.permutation(len(arrived)) if not late[i]]
            if now:
                again = [self._seen[i] for i in self._rng.integers(len(self._seen), size=self._rng.integers(4))]
                self.repeated += len(again)
                inboxes: dict[str, list[Envelope]] = {}
                for envelope in self._rng.permutation(np.array([*now, *again], dtype=object)):
                    inboxes.setdefault(envelope[1], []).append(Envelope(*envelope))
                return inboxes
        return {}


class Lossy(InProcessTransport):
    """Loses everything."""

    def deliver(self) -> dict[str, list[Envelope]]:
        super().deliver()
        return {}


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems(), links=st.none() | connected_links())
def test_agents_decide_and_report_as_the_fast_path_to_the_bit(
    method: Method, problem: tuple[FactorGraph, Tables], links: nx.Graph | None
) -> None:
    graph, tables = problem
    transport = InProcess().open(AGENTS, links)
    by_agents = solve_with_agents(method, graph, tables, transport)
    fast = method.solve(graph, tables, links)
    assert by_agents == fast
    assert np.float64(by_agents.value).tobytes() == np.float64(fast.value).tobytes()
    assert transport.traffic == by_agents.report.traffic  # also of relays that own nothing


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems(most_variables=4), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=12, deadline=None)
def test_order_delay_and_repetition_of_messages_do_not_matter(
    method: Method, problem: tuple[FactorGraph, Tables], seed: int
) -> None:
    graph, tables = problem
    transport = Unruly(Routes(graph.agents), seed)
    for decision in (1, 2):  # some of what the first one says arrives again in the second
        reversed_or_not = {
            f: table if decision == 1 else -np.where(table > -np.inf, table, 9.0) for f, table in tables.items()
        }
        unruly = solve_with_agents(method, graph, reversed_or_not, transport, decision)
        assert unruly == method.solve(graph, reversed_or_not)


SEARCHES: list[sb.ADMM | sb.RefinedMaxSum] = [
    sb.ADMM(rounds=4, starts=2, screened=4, polish_steps=4),
    sb.RefinedMaxSum(points=5, levels=4, rounds=5),
]


def unruly_searches(method: sb.ADMM | sb.RefinedMaxSum, seed: int) -> tuple[bool, int]:
    """Whether agents agree on two boxes, one after the other, as the fast path does; how many messages came again."""
    scopes = {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"], "k": ["v", "w"]}
    graph = FactorGraph.from_scopes(scopes)
    transport, same = Unruly(Routes(graph.agents), seed), True
    for decision, low in ((1, 0.0), (2, 0.35)):
        bowls = Bowls(graph, np.full(5, low), np.ones(5), np.empty((0, 5)))
        unruly, fast = (
            maximise_with_agents(method, bowls, transport, seed, decision),
            method.maximise(bowls, None, seed),
        )
        same = same and (unruly.point.tobytes(), unruly.report) == (fast.point.tobytes(), fast.report)
    return same, transport.repeated


@pytest.mark.parametrize("method", SEARCHES)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=6, deadline=None)
def test_nor_do_they_where_domains_are_continuous(method: sb.ADMM | sb.RefinedMaxSum, seed: int) -> None:
    same, repeated = unruly_searches(method, seed)
    assert same
    assert repeated > 0


@pytest.mark.thorough
def test_nor_do_they_where_python_leaves_asserts_out() -> None:
    subprocess.run([sys.executable, "-O", __file__], check=True, timeout=100.0)


@pytest.mark.parametrize("place", [0, 5, 12, -1])
def test_a_message_that_was_changed_on_the_way_is_refused_by_name(place: int) -> None:
    class Mangling(InProcessTransport):
        def send(self, envelope: Envelope) -> None:
            mangled = bytearray(envelope.payload)
            mangled[place] ^= 1
            super().send(envelope._replace(payload=bytes(mangled)))

    graph, tables = _triangle()
    with pytest.raises(TransportError, match=r"from '\w+' to '\w+': got \d+ bytes with checksum .* changed in transit"):
        solve_with_agents(MaxSum(), graph, tables, Mangling(Routes(graph.agents)))


def test_what_an_agent_had_already_changes_nothing_and_what_is_of_the_future_is_refused() -> None:
    graph, tables = _triangle()
    plan = MaxSum().plan(graph, sizes_of(graph, tables), Routes(graph.agents))
    said = [e for e in Participant.of("bob", plan, {"g": tables["g"]}, decision=4).tick(0.0) if e.recipient == "ann"]
    ann = Participant.of("ann", plan, {"f": tables["f"]}, decision=4)
    assert ann.tick(0.0, [*said, *said])
    assert ann.tick(0.0, said) == []
    later = Participant.of("ann", plan, {"f": tables["f"]}, decision=5)
    assert later.tick(0.0, said) == Participant.of("ann", plan, {"f": tables["f"]}, decision=5).tick(0.0)
    with pytest.raises(TransportError, match="of decision 4 while deciding 3; hold it back"):
        Participant.of("ann", plan, {"f": tables["f"]}, decision=3).tick(0.0, said)


@pytest.mark.parametrize("decision", [-1, 2**32])
def test_a_number_of_a_decision_that_fits_no_label_is_refused(decision: int) -> None:
    graph, tables = _triangle()
    with pytest.raises(ConfigError, match=rf"got decision {decision}; wanted 0 to 4294967295"):
        solve_with_agents(MaxSum(), graph, tables, InProcess().open(graph.agents), decision=decision)


@pytest.mark.parametrize("method", METHODS)
@given(problem=problems(most_variables=4), names=st.permutations(AGENTS))
@settings(max_examples=12, deadline=None)
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
def test_agents_that_must_talk_but_have_no_path_are_refused_by_both_ways(method: Method) -> None:
    graph, tables = _triangle()
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
    graph, tables = _triangle()
    with pytest.raises(TransportError, match="still waits"):
        solve_with_agents(method, graph, tables, Lossy(Routes(graph.agents)))


def _triangle() -> tuple[FactorGraph, Tables]:
    rng, owners = np.random.default_rng(1), ("ann", "bob", "cyd")
    scopes = {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]}
    graph = FactorGraph.from_scopes(
        scopes, dict(zip("fgh", owners, strict=True)), dict(zip("xyz", owners, strict=True))
    )
    return graph, {f: rng.normal(size=(4, 4)) for f in scopes}


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


if __name__ == "__main__":  # what a test runs without assert statements
    wrong = [(method, seed) for method in SEARCHES for seed in range(3) if not unruly_searches(method, seed)[0]]
    sys.exit(f"another answer by {wrong}" if wrong else 0)
