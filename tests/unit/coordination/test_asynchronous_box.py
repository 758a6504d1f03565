"""Joint points by a deadline: agents decide in time despite losses, delays, repetitions, cuts and failed agents."""

import itertools
from dataclasses import dataclass, field, replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import swarmbo as sb
from swarmbo.coordination.deadline_box import BoxTerms, DeadlineBoxAgent, maximise_by_deadline
from swarmbo.coordination.messages import Bundle, Codec, Label, Offer, Published, Pull, Runs, Utility, Valued
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.testing.coordinator import Bowls
from swarmbo.transport import Cut, Envelope, Event, Faults, InProcess

from .test_asynchronous import CHAIN, SCHEDULES, owned_graphs

BY_DEADLINE = sb.ADMM(mode="asynchronous")


@dataclass(frozen=True, eq=False)
class Hills(Bowls):
    """Bowls with waves, which may forbid a part of the box, and in which neighbours may exchange numbers."""

    phases: int = 0
    forbids: bool = False

    @property
    def n_exchanges(self):
        return self.phases

    def published(self, stack, U, received):
        return np.cos(U).sum(axis=-1) + sum(received, np.zeros(U.shape[:2]))

    def value_and_gradient(self, stack, U, received):
        value, gradient = super().value_and_gradient(stack, U, ())
        value = value + 0.2 * np.sin(12.0 * U).sum(axis=-1) + 0.1 * sum(received, np.zeros(U.shape[:2]))
        if self.forbids:
            value = np.where(U.min(axis=-1) < 0.2, -np.inf, value)
        return value, gradient + 2.4 * np.cos(12.0 * U)


@st.composite
def problems(draw):
    """Functions on a box, of which some starts may be known."""
    graph = draw(owned_graphs(least=1))
    n = len(graph.variables)
    low = np.array([draw(st.sampled_from([0.0, 0.3])) for _ in range(n)])
    high = low + np.array([draw(st.sampled_from([0.0, 0.1, 0.7])) for _ in range(n)])
    starts = low + np.random.default_rng(n).random((draw(st.integers(0, 3)), n)) * (high - low)
    return Hills(graph, low, high, starts, phases=draw(st.integers(0, 2)), forbids=draw(st.booleans()))


METHODS = st.builds(
    sb.ADMM,
    mode=st.just("asynchronous"),
    deadline=st.integers(1, 25),
    patience=st.integers(1, 10),
    threshold=st.sampled_from([0.0, 1e-2, 0.5]),
    starts=st.integers(1, 4),
    inner_steps=st.just(2),
)


def decide_in_time_and_in_the_box(functions, faults, method, shares):
    graph = functions.graph
    transport = faults.open(graph.agents)
    agreement = maximise_by_deadline(method, functions, transport, seed=1, shares=shares)
    assert transport.now == method.deadline == agreement.report.links.ticks
    assert (functions.low <= agreement.point).all()
    assert (agreement.point <= functions.high).all()
    failed = {a for a in graph.agents if any(not faults.is_present(a, 0, t) for t in range(method.deadline + 1))}
    assert failed <= set(agreement.report.links.silent)
    standing = functions.starts[0] if len(functions.starts) else (functions.low + functions.high) / 2
    for i, x in enumerate(graph.variables):
        if graph.variable_owner(x) in failed:
            assert agreement.point[i] == standing[i]


@given(problems(), SCHEDULES, METHODS, st.booleans())
def test_any_schedule_of_faults_over_any_small_graph(functions, faults, method, shares):
    decide_in_time_and_in_the_box(functions, faults, method, shares)


@pytest.mark.slow
@given(problems(), SCHEDULES, METHODS, st.booleans())
@settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
def test_ten_thousand_schedules(functions, faults, method, shares):
    decide_in_time_and_in_the_box(functions, faults, method, shares)


def hills(graph, seed=0, n_starts=2):
    n = len(graph.variables)
    starts = np.random.default_rng(seed).random((n_starts, n))
    return Hills(graph, np.zeros(n), np.ones(n), starts)


def best_of(functions, k=24):
    """The maximum on a grid by elimination, for a chain of pairs."""
    grid, graph = np.linspace(0.0, 1.0, k), functions.graph
    pairs = np.array(list(itertools.product(grid, grid)))
    message = np.zeros(k)
    for f in graph.factors[::-1]:
        table = functions.value(stacks_of(graph, [f])[0], pairs[None], ())[0].reshape(k, k)
        message = (table + message).max(axis=1)
    return message.max()


@pytest.mark.parametrize("seed", range(3))
def test_without_faults_the_value_is_near_the_best_of_a_grid_and_never_below_the_first_start(seed):
    functions = hills(CHAIN, seed)
    agreement = BY_DEADLINE.maximise(functions)
    start = total_value(functions, functions.starts[:1])[0]
    assert agreement.value >= start
    assert agreement.value - start >= 0.95 * (best_of(functions) - start)
    assert agreement.value == pytest.approx(total_value(functions, agreement.point[None])[0])
    assert (agreement.report.status, agreement.report.rounds) == ("deadline", 60)


@pytest.mark.parametrize("starts", [1, 12])
def test_without_faults_no_agent_gains_by_a_small_step_alone(starts):
    functions = hills(CHAIN)
    rough = sb.ADMM(mode="asynchronous", deadline=120, starts=starts, inner_steps=1, penalty=100.0)
    agreement = rough.maximise(functions)
    for step in (-0.1, -0.01, -0.003, 0.003, 0.01, 0.1):
        moved = np.clip(agreement.point + step * np.eye(5), 0.0, 1.0)
        assert (total_value(functions, moved) <= agreement.value + 1e-5).all()


def test_with_lost_and_late_messages_the_result_is_nearly_as_good():
    functions = hills(CHAIN)
    mean = total_value(functions, np.random.default_rng(0).random((500, 5))).mean()
    best = best_of(functions)
    for seed in range(4):
        transport = Faults(loss=0.5, delay=3, seed=seed).open(CHAIN.agents)
        found = maximise_by_deadline(sb.ADMM(mode="asynchronous", deadline=100), functions, transport).value
        assert found - mean >= 0.85 * (best - mean)


@dataclass(frozen=True, eq=False)
class Wells(Bowls):
    """Factors are best near 0.8, second best near 0.2, and strongly penalise differences between variables."""

    def value_and_gradient(self, stack, U, received):
        near = [(height, np.exp(-20.0 * (U - at) ** 2), at) for height, at in ((0.5, 0.2), (1.0, 0.8))]
        apart = U - U.mean(axis=-1, keepdims=True)
        value = sum(height * bump for height, bump, _ in near).sum(axis=-1) - 25.0 * (apart**2).sum(axis=-1)
        return value, sum(-40.0 * height * (U - at) * bump for height, bump, at in near) - 50.0 * apart


@pytest.mark.parametrize("faults", [Faults(), Faults(loss=0.3, delay=2)], ids=["clean", "faults"])
def test_agents_move_together_if_none_gains_by_moving_alone(faults):
    wells = Wells(CHAIN, np.zeros(5), np.ones(5), np.full((1, 5), 0.2))  # the best evaluation, which all know
    for i in range(5):  # each agent loses by moving alone
        moved = np.where(np.arange(5) == i, np.linspace(0.25, 1.0, 50)[:, None], 0.2)
        assert (total_value(wells, moved) < total_value(wells, wells.starts)[0]).all()
    method = sb.ADMM(mode="asynchronous", deadline=80)
    found = maximise_by_deadline(method, wells, faults.open(CHAIN.agents))
    np.testing.assert_allclose(found.point, 0.8, atol=0.1)


def test_the_factor_of_a_failed_agent_is_evaluated_by_owners_of_its_variables_if_they_know_it():
    """f pulls x to 0.3; g, of the failed agent, pulls x elsewhere; y stays where it stands."""
    graph = FactorGraph.from_scopes({"f": ["x"], "g": ["x", "y"]}, {"f": "f", "g": "g"}, {"x": "f", "y": "g"})
    bowls = Bowls(graph, np.zeros(2), np.ones(2), starts=np.array([[0.9, 0.8]]))
    failed = Faults(deaths=(Event(agent="g", round=0),))
    found = [maximise_by_deadline(BY_DEADLINE, bowls, failed.open("fg"), shares=shares) for shares in (False, True)]
    assert [agreement.report.links.silent for agreement in found] == [("g",), ("g",)]
    x = np.linspace(0.0, 1.0, 1001)
    whole = total_value(bowls, np.stack([x, np.full_like(x, 0.8)], axis=1))
    alone, shared = (agreement.point for agreement in found)
    assert alone == pytest.approx([0.3, 0.8], abs=0.01)
    assert shared == pytest.approx([x[whole.argmax()], 0.8], abs=0.02)


@dataclass(frozen=True, eq=False)
class Waves(Bowls):
    """The best value of a variable depends on the other variables of its factor."""

    def value_and_gradient(self, stack, U, received):
        slope = 7.0 * np.arange(1, U.shape[-1] + 1) + stack.columns[:, None, :]
        phase = (slope * U).sum(axis=-1)
        value = np.sin(phase) - 0.3 * ((U - 0.5) ** 2).sum(axis=-1)
        return value, np.cos(phase)[..., None] * slope - 0.6 * (U - 0.5)


def test_an_agent_that_fails_during_a_decision_is_assumed_where_it_stands_and_not_at_its_last_target():
    """The gain relative to a failure that is known from the start; with the last target assumed it is 0.5."""
    shares, method = [], sb.ADMM(mode="asynchronous", deadline=60)
    for seed in range(2, 5):  # the owner of a middle variable fails; no other agent knows its factor
        start = np.random.default_rng(seed).random((1, 5))
        waves, gone = Waves(CHAIN, np.zeros(5), np.ones(5), start), CHAIN.agents[seed - 1]
        dies = Faults(deaths=(Event(agent=gone, round=0, step=25),))
        found = maximise_by_deadline(method, waves, dies.open(CHAIN.agents)).value
        away = Faults(deaths=(Event(agent=gone, round=0),))
        known = maximise_by_deadline(method, waves, away.open(CHAIN.agents)).value
        standing = total_value(waves, start)[0]
        shares.append((found - standing) / (known - standing))
    assert np.mean(shares) >= 0.75


def test_owners_of_two_variables_of_a_failed_agents_factor_send_each_other_their_points():
    scopes = {"f": ["x"], "g": ["y"], "h": ["x", "y"]}
    graph = FactorGraph.from_scopes(scopes, {"f": "a", "g": "b", "h": "c"}, {"x": "a", "y": "b"})
    bowls = Bowls(graph, np.zeros(2), np.ones(2), starts=np.array([[0.9, 0.1]]))
    failed = Faults(deaths=(Event(agent="c", round=0),))
    long = sb.ADMM(mode="asynchronous", deadline=120)
    found = maximise_by_deadline(long, bowls, failed.open(graph.agents), shares=True)
    best = sb.ADMM().maximise(bowls)
    assert found.value == pytest.approx(best.value, abs=1e-3)


def test_agents_without_links_search_independently():
    apart = nx.Graph()
    apart.add_nodes_from(CHAIN.agents)
    agreement = maximise_by_deadline(BY_DEADLINE, hills(CHAIN), InProcess().open(CHAIN.agents, apart))
    assert agreement.report.traffic.messages == 0
    assert agreement.report.links.silent == CHAIN.agents


def test_repeated_messages_change_nothing():
    functions = hills(CHAIN)
    clean = maximise_by_deadline(BY_DEADLINE, functions, InProcess().open(CHAIN.agents))
    twice = maximise_by_deadline(BY_DEADLINE, functions, Faults(duplicate=0.999).open(CHAIN.agents))
    assert (twice.point == clean.point).all()
    assert twice.report.traffic == clean.report.traffic


def test_a_larger_threshold_sends_less():
    functions = hills(CHAIN)
    methods = [sb.ADMM(mode="asynchronous", threshold=threshold) for threshold in (0.0, 0.01, 0.2)]
    sent = [maximise_by_deadline(one, functions, InProcess().open(CHAIN.agents)).report.bytes for one in methods]
    assert sent[0] > sent[1] > sent[2]


def test_invalid_messages_and_those_that_the_sender_may_not_send_are_dropped_and_counted():
    functions = replace(hills(CHAIN), phases=1)
    terms = BoxTerms.of(BY_DEADLINE, functions, 0, shares=False)
    agent = DeadlineBoxAgent("x0", terms)
    owns, other, m = agent.name, CHAIN.variable_owner("x1"), len(terms.starts)
    agent.tick(terms.schedule.first)
    before = agent._joint_starts.points[:, 1:].tolist()  # pyright: ignore[reportPrivateUsage]
    fine, nan, long, per_start = (np.full(n, value) for n, value in ((m, 0.5), (m, np.nan), (m + 1, 0.5), (m + 1, 0.0)))
    points = np.full(2 * m + 1, 0.5)  # for each run and each joint start
    offered = (np.zeros(0), per_start, np.full(2 * (m + 1), np.nan), np.full(2 * (m + 1), -1.0))  # negative reach
    messages = [
        *(Runs("x1", bad) for bad in (nan, long, np.full(m, np.inf))),
        *(Runs(x, fine) for x in ("x0", "x9")),  # its own, and an unknown one
        *(Pull(factor, "x0", fine, 1.0) for factor in ("f0", "f1")),  # its own, and not a factor of x0
        *(Offer("x1", bad, 0) for bad in offered),
        Offer("x0", np.full(2, 0.5), 0),  # its own
        *(Utility(factor, "x0", fine, 0) for factor in ("f0", "f1")),
        *(Valued(factor, per_start) for factor in ("f0", "f9")),
        *(Valued("f1", bad) for bad in (fine, np.full(m + 1, np.nan))),  # too few numbers, and NaN
        Published("f1", "f0", points, 1),  # no such phase
        Published("f1", "f0", long, 0),
        Published("f3", "f0", points, 0),
    ]

    def bundled(number, *news, decision=0):
        bundle = Bundle(number, -1, 0, (5,) * len(news), news)
        return Envelope(other, owns, Codec.encode(bundle, Label(decision, number)))

    inbox = [Envelope(other, owns, b"nonsense"), Envelope(other, owns, Codec.encode(Runs("x1", fine), Label(0, 0)))]
    inbox += [bundled(9, Runs("x1", fine), decision=7), *(bundled(n, message) for n, message in enumerate(messages))]
    agent.tick(terms.schedule.first + 1, inbox)
    assert agent.refused == {other: len(messages)}
    assert agent._joint_starts.points[:, 1:].tolist() == before  # pyright: ignore[reportPrivateUsage]
    agent.tick(terms.schedule.first + 2, [bundled(99, Runs("x1", fine), Published("f1", "f0", points, 0))])
    assert agent.refused == {other: len(messages)}


def test_the_asynchronous_mode_has_no_plan():
    with pytest.raises(sb.errors.ConfigError, match=r"\$\.coordination\.mode"):
        BY_DEADLINE.plan(hills(CHAIN), InProcess().open(CHAIN.agents).routes)


def test_a_cut_that_ends_and_a_cut_that_does_not():
    functions = hills(CHAIN)
    whole = BY_DEADLINE.maximise(functions).value
    for steps, least in (((0, 15), 0.9), (None, 0.4)):
        cut = Faults(cuts=(Cut(parts=(("x0", "x1"),), steps=steps),))
        found = maximise_by_deadline(BY_DEADLINE, functions, cut.open(CHAIN.agents)).value
        start = total_value(functions, functions.starts[:1])[0]
        assert found - start >= least * (whole - start)


APART = FactorGraph.from_scopes(
    {"f": ["x", "y"], "g": ["x", "z"]}, owners={"f": "b", "g": "c"}, variable_owners={"x": "a", "y": "b", "z": "c"}
)


@dataclass(frozen=True, eq=False)
class Counted(Bowls):
    """Bowls that record evaluations of their gradients."""

    asked: list[int] = field(default_factory=list)

    def value_and_gradient(self, stack, U, received):
        self.asked.append(len(U))
        return super().value_and_gradient(stack, U, received)


def of_apart(method: sb.ADMM) -> tuple[Counted, BoxTerms]:
    functions = Counted(APART, np.zeros(3), np.ones(3), np.empty((0, 3)))
    return functions, BoxTerms.of(method, functions, 0, shares=False)


def test_a_variable_is_at_the_weighted_mean_of_the_points_of_its_factors():
    _, terms = of_apart(BY_DEADLINE)
    agent, m = DeadlineBoxAgent("a", terms), len(terms.starts)
    pulls = {"b": Pull("f", "x", np.full(m, 0.2), 3.0), "c": Pull("g", "x", np.full(m, 0.6), 1.0)}
    inbox = [
        Envelope(sender, "a", Codec.encode(Bundle(0, -1, 0, (1,), (pull,)), Label(0, 0)))
        for sender, pull in pulls.items()
    ]
    sent = [Codec.read(envelope.payload)[1] for envelope in agent.tick(0, inbox)]
    sent_entries = [update.entries for bundle in sent for update in bundle.updates if isinstance(update, Runs)]
    assert len(sent_entries) == 2
    assert np.allclose(sent_entries, (3.0 * 0.2 + 1.0 * 0.6) / 4.0)


def test_a_factor_without_news_about_its_variables_does_not_climb_again():
    functions, terms = of_apart(sb.ADMM(mode="asynchronous", deadline=600))
    agent = DeadlineBoxAgent("b", terms)
    climbs = []
    for now in range(40):
        agent.tick(now)
        climbs.append(len(functions.asked))
    assert now < terms.schedule.first
    assert climbs[0] > 0
    assert climbs[-1] == climbs[20]
