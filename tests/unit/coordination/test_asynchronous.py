"""Agreements by a deadline: agents decide in time despite losses, delays, repetitions, cuts and failed agents."""

import itertools
from functools import partial

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import swarmbo as sb
from swarmbo.coordination.deadline import Peer
from swarmbo.coordination.deadline_tables import DeadlineTableAgent, Terms, agree_by_deadline
from swarmbo.coordination.messages import Bundle, Choice, Codec, FromFactor, FromVariable, Label
from swarmbo.coordination.tables import Conflicts, sizes_of
from swarmbo.graph import FactorGraph
from swarmbo.transport import Cut, Envelope, Event, Faults, InProcess

from .example_tables import drawn, ring

AGENTS = [f"a{n}" for n in range(6)]
CHAIN = FactorGraph.from_scopes({f"f{n}": [f"x{n}", f"x{n + 1}"] for n in range(4)})
OWN_NAMES = {f"x{n}": f"x{n}" for n in range(6)}
OWNERS, NAMESAKES = {"f": "x", "g": "y"}, {"x": "x", "y": "y"}
BY_DEADLINE = sb.MaxSum(mode="asynchronous")
SLOW = pytest.mark.slow
agree = partial(agree_by_deadline, guesses=False)


@st.composite
def owned_graphs(draw, least=2, most_factors=5):
    """A small graph with a factor for each variable and some for two or three, and random owners."""
    n = draw(st.integers(least, 6))
    variables = [f"x{k}" for k in range(n)]
    scopes = {f"own{k}": [x] for k, x in enumerate(variables)}
    for k in range(draw(st.integers(least - 1, most_factors))):
        scopes[f"f{k}"] = list(draw(st.permutations(variables)))[: min(n, draw(st.integers(2, 3)))]
    agent = st.sampled_from(AGENTS[:n])
    return FactorGraph.from_scopes(scopes, {f: draw(agent) for f in scopes}, {x: draw(agent) for x in variables})


@st.composite
def problems(draw):
    """Tables that forbid some pairs."""
    graph, rng = draw(owned_graphs()), np.random.default_rng(draw(st.integers(0, 10**6)))
    sizes = {x: draw(st.integers(1, 4)) for x in graph.variables}
    tables = {f: rng.normal(size=[sizes[x] for x in graph.scope(f)]) for f in graph.factors}
    for f in graph.factors:
        scope = graph.scope(f)
        for i, j in itertools.combinations(range(len(scope)), 2):
            pairs = rng.random((sizes[scope[i]], sizes[scope[j]])) < draw(st.sampled_from([0.0, 0.3, 0.7]))
            others = [axis for axis in range(len(scope)) if axis not in (i, j)]
            tables[f] = np.where(np.expand_dims(pairs, others), -np.inf, tables[f])
    return graph, tables


PRESENCE = st.builds(Event, agent=st.sampled_from(AGENTS), round=st.just(0), step=st.integers(0, 25))
EVENTS = st.lists(PRESENCE, max_size=3).map(tuple)
PARTS = st.lists(st.sampled_from(AGENTS), min_size=1, max_size=3).map(lambda part: (tuple(part),))
SPANS = st.tuples(st.integers(0, 25), st.integers(0, 25)).map(lambda span: tuple(sorted(span)))


SCHEDULES = st.builds(
    Faults,
    loss=st.sampled_from([0.0, 0.3, 0.6, 0.9, 0.98]),
    delay=st.integers(0, 11),
    duplicate=st.sampled_from([0.0, 0.5]),
    reorder=st.sampled_from([0.0, 0.9]),
    bandwidth=st.none() | st.integers(20, 2000),
    cuts=st.lists(st.builds(Cut, parts=PARTS, steps=st.none() | SPANS), max_size=2).map(tuple),
    deaths=EVENTS,
    joins=EVENTS,
    seed=st.integers(0, 10**6),
)
METHODS = st.builds(
    sb.MaxSum,
    mode=st.just("asynchronous"),
    deadline=st.integers(1, 25),
    patience=st.integers(1, 10),
    threshold=st.sampled_from([0.0, 1e-2, 0.5]),
    damping=st.sampled_from([0.0, 0.5, 0.9]),
)


def decide_in_time_without_clashes(problem, faults, method, with_default):
    graph, tables = problem
    default = dict.fromkeys(graph.variables, 0) if with_default else {}
    transport = faults.open(graph.agents)
    settled = agree(method, graph, tables, transport, default=default)
    links = settled.report.links
    assert links.clashes == 0
    assert transport.now == method.deadline == links.ticks
    failed = {a for a in graph.agents if any(not faults.is_present(a, 0, t) for t in range(method.deadline + 1))}
    decisions = settled.assignment
    acting = set(decisions)
    assert not any(graph.variable_owner(x) in failed for x in acting)
    assert {graph.variable_owner(x) for x in set(graph.variables) - acting} == set(links.without)
    sizes = sizes_of(graph, tables)
    assert all(0 <= decisions[x] < sizes[x] for x in acting)
    again = faults.open(graph.agents)
    chosen = agree_by_deadline(method, graph, tables, again, default=default).assignment
    assert set(chosen) == {x for x in graph.variables if graph.variable_owner(x) not in failed}
    assert all(chosen[x] == decisions[x] for x in acting)
    for f in graph.factors:  # no two chosen values forbid each other in the tables
        for x, y in itertools.combinations([x for x in graph.scope(f) if x in acting], 2):
            both = {x: decisions[x], y: decisions[y]}
            assert np.any(tables[f][tuple(both.get(v, slice(None)) for v in graph.scope(f))] > -np.inf)


@given(problems(), SCHEDULES, METHODS, st.booleans())
def test_any_schedule_of_faults_over_any_small_graph(problem, faults, method, with_default):
    decide_in_time_without_clashes(problem, faults, method, with_default)


@pytest.mark.slow
@given(problems(), SCHEDULES, METHODS, st.booleans())
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_ten_thousand_schedules(problem, faults, method, with_default):
    decide_in_time_without_clashes(problem, faults, method, with_default)


@given(problems(), METHODS, st.integers(0, 10**6))
def test_agents_with_skipped_ticks_that_are_asked_at_any_time_never_clash(problem, method, seed):
    """This includes decisions of failed and of disconnected agents."""
    graph, tables = problem
    rng = np.random.default_rng(seed)
    terms = terms_of(graph, tables, method)
    agents = agents_of(terms, tables)
    waiting = []
    for now in range(method.deadline + 3):
        for name, agent in agents.items():
            if rng.random() < 0.3:
                continue  # the agent was busy or failed
            inbox = [envelope for envelope in waiting if envelope.recipient == name and rng.random() < 0.6]
            waiting += agent.tick(now, inbox)
            if rng.random() < 0.05:
                agent.decided_values()
    decisions = {x: value for agent in agents.values() for x, value in agent.decided_values().items()}
    assert terms.conflicts.clashes(decisions) == 0
    assert set(decisions) == set(graph.variables)


def terms_of(graph, tables, method=BY_DEADLINE):
    return Terms(method, sizes_of(graph, tables), Conflicts.of(graph, tables), {})


def agents_of(terms, tables):
    owned = {a: terms.graph.factors_owned_by(a) for a in terms.graph.agents}
    return {a: DeadlineTableAgent(a, terms, {f: tables[f] for f in own}, 0) for a, own in owned.items()}


def ticked(agents, n_ticks, arrives=lambda envelope: True):
    """Tick all agents' clocks, over links without faults: the number of each tick, and the messages sent in it."""
    out = []
    for now in range(n_ticks):
        come = [envelope for envelope in out if arrives(envelope)]
        out = [e for name, a in agents.items() for e in a.tick(now, [x for x in come if x.recipient == name])]
        yield now, out


def share_of(value, tables, best):
    """Share of the gain of the best choice over the mean one."""
    mean = sum(table.mean() for table in tables.values())
    return (value - mean) / (best - mean)


@pytest.mark.parametrize("seed", range(8))
def test_on_a_tree_without_faults_the_optimum_is_found(seed):
    tables = drawn(CHAIN, seed)
    settled = agree(BY_DEADLINE, CHAIN, tables, InProcess().open(CHAIN.agents))
    best = sb.exact(CHAIN, tables)
    assert settled.assignment == best.assignment
    assert settled.report.value == pytest.approx(best.value)
    assert (settled.report.status, settled.report.rounds) == ("deadline", 20)


LOOP = FactorGraph.from_scopes({f"f{n}": [f"x{n}", f"x{(n + 1) % 5}", f"x{(n + 2) % 5}"] for n in range(5)})


def test_decisions_are_revised_for_better_ones_if_no_values_forbid_each_other():
    """Agents revise sequentially, so without faults no agent gains by changing its decision alone."""
    long = sb.MaxSum(mode="asynchronous", deadline=90)
    for seed in range(3):
        tables = drawn(LOOP, seed)
        found = agree(long, LOOP, tables, InProcess().open(LOOP.agents))
        for x in LOOP.variables:
            for other in range(4):
                changed = {**found.assignment, x: other}
                value = sum(tables[f][tuple(changed[y] for y in LOOP.scope(f))] for f in LOOP.factors)
                assert value <= found.report.value + 1e-9


@pytest.mark.parametrize(
    ("faults", "least"),
    [pytest.param(Faults(loss=0.5, delay=5), 0.9, id="bad"), pytest.param(Faults(), 0.97, id="clean", marks=SLOW)],
)
def test_on_loops_the_best_of_several_joint_choices_is_nearly_the_optimum(faults, least):
    """Mean share of the optimum over eight draws; with messages and decisions only it is 0.92 and 0.85."""
    shares = []
    for seed in range(8):
        tables = drawn(LOOP, seed)
        method = sb.MaxSum(mode="asynchronous", deadline=80, patience=26)
        found = agree(method, LOOP, tables, faults.open(LOOP.agents, seed=seed)).report.value
        shares.append(share_of(found, tables, sb.exact(LOOP, tables).value))
    assert np.mean(shares) >= least


RING = FactorGraph.from_scopes(ring(6))


@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.4, delay=2, reorder=0.5)], ids=["clean", "faults"])
def test_values_of_factors_are_relayed_until_all_agents_know_them_and_choose_alike(faults):
    """On a ring, half of the factors reach an agent only by relay."""
    tables = drawn(RING, 1)
    terms = terms_of(RING, tables, sb.MaxSum(mode="asynchronous", deadline=100, patience=30))
    agents, inboxes, transport = agents_of(terms, tables), {}, faults.open(RING.agents)
    for now in range(terms.schedule.decided + 1):
        for name, agent in agents.items():
            for envelope in agent.tick(now, inboxes.get(name, [])):
                transport.send(envelope)
        inboxes = transport.deliver()
    known = [agent._joint_starts for agent in agents.values()]  # pyright: ignore[reportPrivateUsage]
    assert all(set(starts._values) == set(RING.factors) for starts in known)  # pyright: ignore[reportPrivateUsage]
    assert all(starts._best == known[0]._best for starts in known)  # pyright: ignore[reportPrivateUsage]
    assert not any(agent.refused for agent in agents.values())


@pytest.mark.parametrize("deadline", [1, 2, 3])
def test_in_a_few_ticks_on_loops_agents_decide_at_least_by_their_own_factors(deadline):
    """The share of the optimum; if all agents start at their first values it is 0.05 to 0.7."""
    scopes = ring(6) | {f"g{n}": [f"x{n}"] for n in range(6)}
    graph = FactorGraph.from_scopes(scopes, owners={f: f"x{f[1:]}" for f in scopes}, variable_owners=OWN_NAMES)
    method, shares = sb.MaxSum(mode="asynchronous", deadline=deadline), []
    for seed in range(8):
        tables = {f: (3.0 if f[0] == "g" else 1.0) * table for f, table in drawn(graph, seed).items()}
        found = agree(method, graph, tables, InProcess().open(graph.agents)).report.value
        shares.append(share_of(found, tables, sb.exact(graph, tables).value))
    assert np.mean(shares) >= 0.8


def test_an_agent_that_is_asked_before_its_first_tick_decides_by_its_own_factors():
    tables = drawn(LOOP, 0)
    for name, agent in agents_of(terms_of(LOOP, tables), tables).items():
        (f,), ((x, word),) = LOOP.factors_owned_by(name), agent.decided_values().items()
        others = tuple(axis for axis, y in enumerate(LOOP.scope(f)) if y != x)
        assert word == tables[f].max(axis=others).argmax()


@pytest.mark.parametrize(("has_default", "least"), [(True, 0.75), (False, 0.86)], ids=["default", "none"])
def test_on_loops_a_silent_agent_is_assumed_at_its_default_or_at_the_best_value_for_each_factor(has_default, least):
    """The share of the survivors' optimum; if failed agents are assumed at their last decisions it is 0.6 and 0.82."""
    shares = []
    for seed in range(10):
        tables, gone, left = drawn(LOOP, seed), LOOP.agents[seed % 5], {}
        faults = Faults(loss=0.1, seed=seed, deaths=(Event(agent=gone, round=0, step=20),))
        method, default = sb.MaxSum(mode="asynchronous", deadline=40), dict.fromkeys(LOOP.variables, 0)
        given = default if has_default else {}
        chosen = agree(method, LOOP, tables, faults.open(LOOP.agents), default=given).assignment
        assert chosen.keys() == {x for x in LOOP.variables if LOOP.variable_owner(x) != gone}
        for f in LOOP.factors:
            axes = tuple(i for i, x in enumerate(LOOP.scope(f)) if x not in chosen)
            if has_default:
                left[f] = tables[f].take(0, axis=axes[0]) if axes else tables[f]
            elif LOOP.owner(f) != gone:
                left[f] = tables[f].max(axis=axes)
        scopes = {f: [x for x in LOOP.scope(f) if x in chosen] for f in left}
        best = sb.exact(FactorGraph.from_scopes(scopes), left).value
        shares.append(share_of(sum(left[f][tuple(chosen[x] for x in scopes[f])] for f in left), left, best))
    assert np.mean(shares) >= least


@pytest.mark.parametrize("deadline", [1, 3, 5, 8, 12, 60])
def test_neighbours_never_revise_their_decisions_at_the_same_time(deadline):
    """Not even if there are fewer ticks than turns."""
    for graph in (CHAIN, LOOP):
        tables = drawn(graph, 0)
        terms = terms_of(graph, tables, sb.MaxSum(mode="asynchronous", deadline=deadline))
        for now in range(deadline + 1):
            moving = [x for x in graph.variables if terms.schedule.has_turn(x, now)]
            assert all(set(moving) & set(graph.scope(f)) <= {x} for x in moving for f in graph.factors_of(x))


def test_a_decision_is_final_if_values_forbid_each_other():
    tables = drawn(LOOP, 0)
    tables["f0"][0, 0] = -np.inf
    agents, decisions = agents_of(terms_of(LOOP, tables), tables), {}
    for _ in ticked(agents, BY_DEADLINE.deadline + 1):
        for agent in agents.values():
            for x, word in agent._decided.items():  # pyright: ignore[reportPrivateUsage]
                assert decisions.setdefault(x, word) == word


@pytest.mark.parametrize("is_received", [True, False])
def test_a_decision_waits_one_slot_for_an_earlier_colour_that_is_silent(is_received):
    """No two of three variables may have their first value; the last 18 of 27 ticks are for decisions, six for each."""
    graph = FactorGraph.from_scopes({f"f{i}{j}": [f"x{i}", f"x{j}"] for i, j in ((0, 1), (0, 2), (1, 2))})
    tables = dict.fromkeys(graph.factors, np.diag([-np.inf, 0.0]))
    terms = terms_of(graph, tables, sb.MaxSum(mode="asynchronous", deadline=27, patience=99))
    agents, decided_at = agents_of(terms, tables), {}
    for now, _ in ticked(agents, 28, lambda e: is_received or (e.sender, e.recipient) != ("x0", "x1")):
        for agent in agents.values():
            for x in agent._decided:  # pyright: ignore[reportPrivateUsage]
                decided_at.setdefault((agent.name, x), now)
    assert [decided_at[f"x{i}", f"x{i}"] for i in range(2)] == [9, 15 if is_received else 21]


def test_with_losses_and_delays_a_tree_is_solved_nearly_always():
    patient, n_found = sb.MaxSum(mode="asynchronous", deadline=40, patience=12), 0
    for seed in range(20):
        tables, transport = drawn(CHAIN, seed), Faults(loss=0.3, delay=2, seed=seed).open(CHAIN.agents)
        found = agree(patient, CHAIN, tables, transport).assignment
        n_found += found == sb.exact(CHAIN, tables).assignment
    assert n_found >= 18


def test_a_silent_neighbour_is_assumed_at_its_default():
    """The best x is 0 if y is 0, and 1 if y is at its default, 2."""
    graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y"]}, owners=OWNERS, variable_owners=NAMESAKES)
    tables = {"f": np.array([[5.0, 0.0, 0.0], [0.0, 0.0, 3.0]]), "g": np.array([1.0, 0.0, 0.0])}
    failed = Faults(deaths=(Event(agent="y", round=0),))
    for default, wanted in (({"y": 2}, 1), ({}, 0)):
        settled = agree(BY_DEADLINE, graph, tables, failed.open(graph.agents), default=default)
        assert settled.assignment == {"x": wanted}
        assert (settled.report.links.silent, settled.report.links.without) == (("y",), ("y",))
        assert settled.report.value is None


def test_agents_without_links_decide_independently():
    apart = nx.Graph()
    apart.add_nodes_from(CHAIN.agents)
    settled = agree(BY_DEADLINE, CHAIN, drawn(CHAIN, 0), InProcess().open(CHAIN.agents, apart))
    assert set(settled.assignment) == set(CHAIN.variables)
    assert settled.report.traffic.messages == 0
    assert settled.report.links.silent == CHAIN.agents


def test_an_agent_that_receives_no_decision_abstains_rather_than_risk_a_clash():
    graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y"]}, owners=OWNERS, variable_owners=NAMESAKES)
    tables = {"f": np.where(np.eye(2), -np.inf, 0.0), "g": np.zeros(2)}
    cut = Faults(cuts=(Cut(parts=(("x",),)),))
    settled = agree(BY_DEADLINE, graph, tables, cut.open(graph.agents))
    assert set(settled.assignment) == {"x"}
    assert settled.report.links.without == ("y",)
    guessed = agree_by_deadline(BY_DEADLINE, graph, tables, cut.open(graph.agents))  # with guesses it takes a value
    assert (guessed.assignment, guessed.report.status) == ({"x": 0, "y": 0}, "infeasible")
    assert (guessed.report.links.without, guessed.report.links.clashes) == ((), 1)
    solution = sb.MaxSum(mode="asynchronous").solve(graph, tables)  # without the cut both find a value
    assert solution.assignment["x"] != solution.assignment["y"]


def test_a_constraint_on_three_variables_is_not_enforced_but_counted_and_reported():
    graph = FactorGraph.from_scopes({"f": ["x", "y", "z"]})
    table = np.zeros((2, 2, 2))
    table[0, 0, 0] = -np.inf
    apart = Faults(loss=0.0, cuts=(Cut(parts=(("x",),)),))
    assert Conflicts.of(graph, {"f": table}).forbidden == {}
    settled = agree(BY_DEADLINE, graph, {"f": table}, apart.open(graph.agents))
    assert settled.report.status in {"deadline", "infeasible"}
    assert (settled.report.status == "infeasible") == (settled.report.violated == ("f",))


def test_repeated_messages_change_nothing():
    tables = drawn(CHAIN, 3)
    clean = agree(BY_DEADLINE, CHAIN, tables, InProcess().open(CHAIN.agents))
    twice = agree(BY_DEADLINE, CHAIN, tables, Faults(duplicate=0.999).open(CHAIN.agents))
    assert twice.assignment == clean.assignment
    assert twice.report.traffic == clean.report.traffic


def test_once_messages_no_longer_change_only_signs_of_life_are_sent():
    tables, method = drawn(CHAIN, 0, size=30), sb.MaxSum(mode="asynchronous", deadline=200, patience=20)
    agents = agents_of(terms_of(CHAIN, tables, method), tables)
    sent = [sum(len(envelope.payload) for envelope in out) for _, out in ticked(agents, 90)]
    assert sum(sent[40:60]) < 0.1 * sum(sent[:20])
    assert sum(sent[40:60]) > 0


@pytest.mark.parametrize("hops", [1, 3])
def test_a_distant_agent_behind_lossy_links_is_not_silent_and_a_failed_one_is_named(hops):
    graph = FactorGraph.from_scopes({"f": ["x", "y"]}, variable_owners={"x": "a", "y": "b"}, owners={"f": "a"})
    names = ["a", *(f"relay{n}" for n in range(hops - 1)), "b"]
    tables, links = {"f": np.zeros((2, 2))}, nx.path_graph(names, nx.Graph)
    method = sb.MaxSum(mode="asynchronous", deadline=60)

    def silent(faults: Faults, seed: int) -> tuple[str, ...]:
        transport = faults.open(names, links, seed=seed)
        return agree(method, graph, tables, transport).report.links.silent

    assert [silent(Faults(loss=0.3), seed) for seed in range(15)] == [()] * 15
    gone = Faults(loss=0.3, deaths=(Event(agent="b", round=0, step=2),))
    assert [silent(gone, seed) for seed in range(3)] == [("b",)] * 3


def test_an_agent_without_news_sends_more_often_over_lossy_links():
    def n_sent(newest: int, earlier: int) -> int:
        one = Peer(patience=6)
        one.receive(Bundle(0, newest, earlier, (), ()), now=0)
        return sum(one.next_bundle(now) is not None for now in range(12))

    assert n_sent(newest=32, earlier=2**32 - 1) == n_sent(newest=-1, earlier=0) == 12 / 2
    assert n_sent(newest=32, earlier=0x55555555) == 12


def test_invalid_messages_and_those_that_the_sender_may_not_send_are_dropped_and_counted():
    tables = drawn(CHAIN, 0)
    (agent, *_), other = agents_of(terms_of(CHAIN, tables), tables).values(), CHAIN.variable_owner("x1")
    before, fine = received_by(agent), np.ones(4)
    messages = [
        *(FromVariable("f0", "x1", bad) for bad in (np.full(4, np.nan), np.zeros(5), np.full(4, np.inf))),
        FromVariable("f9", "x1", fine),
        FromVariable("f0", "x0", fine),  # its own
        FromFactor("f0", "x0", fine),  # its own
        Choice("x0", 1),  # its own
        *(Choice(x, value) for x, value in (("x1", 99), ("x1", -2), ("x9", 0))),
    ]
    inbox = [(other, b"nonsense"), (other, Codec.encode(Choice("x1", 1), Label(0, 0)))]  # no bundle
    for sender, number, decision in ((other, 9, 7), ("stranger", 0, 0)):
        bundle = Bundle(number, -1, 0, (5,), (Choice("x1", 1),))
        inbox.append((sender, Codec.encode(bundle, Label(decision, number))))
    for number, message in enumerate(messages):
        inbox.append((other, Codec.encode(Bundle(number, -1, 0, (5,), (message,)), Label(0, number))))
    for sender, payload in inbox:
        agent._receive_all(0, [Envelope(sender, agent.name, payload)])  # pyright: ignore[reportPrivateUsage]
    assert agent.refused == {other: len(messages)}
    assert received_by(agent) == before


def received_by(agent):
    """Messages and decisions that an agent has received."""
    messages = agent._from_variables, agent._from_factors  # pyright: ignore[reportPrivateUsage]
    return [array.tolist() for array in messages], dict(agent._decided)  # pyright: ignore[reportPrivateUsage]


def test_a_bundle_with_any_number_counts_as_the_newest():
    ordinary, enormous = Peer(patience=6), Peer(patience=6)
    for one, number in ((ordinary, 1000), (enormous, 2**62)):
        for sent_number in (0, 1, number, number - 1):
            one.receive(Bundle(sent_number, -1, 0, (), ()), now=0)
    answers = [one.next_bundle(now=0) for one in (ordinary, enormous)]
    assert [bundle.newest for bundle in answers] == [1000, 2**62]
    assert [bundle.earlier for bundle in answers] == [1, 1]


def test_an_acknowledgement_reaches_32_bundles_back_and_no_further():
    one = Peer(patience=6)
    for number in (33, 1, 0):
        one.receive(Bundle(number, -1, 0, (), ()), 0)
    answer = one.next_bundle(0)
    assert (answer.newest, answer.earlier) == (33, 1 << 31)


def test_the_asynchronous_mode_has_no_bound_and_no_plan():
    with pytest.raises(ValueError, match="bound"):
        sb.MaxSum(mode="asynchronous", bound="mplp")
    with pytest.raises(sb.errors.ConfigError, match=r"\$\.coordination\.mode"):
        BY_DEADLINE.plan(CHAIN, dict.fromkeys(CHAIN.variables, 2), InProcess().open(CHAIN.agents).routes)


def test_an_agent_that_no_other_waits_for_waits_for_a_decision_until_the_deadline():
    scopes = {"f": ["x", "y"], "g": ["p", "q"], "h": ["q", "r"], "k": ["r", "p"]}  # the triangle has a third colour
    owners = {"f": "b", "g": "c", "h": "c", "k": "c"}
    graph = FactorGraph.from_scopes(scopes, owners, {"x": "a", "y": "b", "p": "c", "q": "c", "r": "c"})
    forbids = np.array([[-np.inf, 5.0, 0.0], [5.0, -np.inf, 0.0]])  # the last value is safe, but of low utility
    tables = {"f": forbids} | dict.fromkeys(["g", "h", "k"], np.zeros((2, 2)))
    terms = terms_of(graph, tables)
    agent = DeadlineTableAgent("b", terms, {"f": forbids})
    late = terms.start("y") + terms.slot + 1
    for now in range(late):
        agent.tick(now)
    word = Bundle(0, -1, 0, (1,), (Choice("x", 0),))
    agent.tick(late, [Envelope("a", "b", Codec.encode(word, Label(0, 0)))])
    assert late < BY_DEADLINE.deadline
    assert agent.decided_values() == {"y": 1}


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
def test_a_message_whose_entries_have_become_equal_is_sent_in_any_unit(unit: float):
    """Once y is decided, f has no preference for x; an outdated one would weigh as much as h."""
    graph = FactorGraph.from_scopes(
        {"g": ["y"], "f": ["y", "x"], "h": ["x"]}, {"g": "c", "f": "a", "h": "b"}, {"y": "c", "x": "b"}
    )
    tables = {"g": np.array([1.0, 0.0]), "f": np.array([[0.0, 0.0], [2.0, 0.0]]), "h": np.array([0.0, 1.0])}
    solution = sb.MaxSum(mode="asynchronous").solve(graph, {f: unit * table for f, table in tables.items()})
    assert solution.value == 2.0 * unit


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", [1, 3, 7])
def test_large_utilities_without_spread_do_not_overflow(seed: int):
    graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"], "u": ["x"]})
    rng = np.random.default_rng(seed)
    tables = {factor: np.round(3.0 * rng.normal(size=(2, 2))) * 2.0**53 for factor in "fgh"} | {"u": np.full(2, 9e16)}
    solution = sb.MaxSum(mode="asynchronous").solve(graph, tables)
    assert solution.value == sb.exact(graph, tables).value
