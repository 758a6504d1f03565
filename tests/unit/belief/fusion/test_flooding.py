"""Flooding of tagged measurements."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.fusion import (
    CommitteeFlooding,
    CovarianceIntersection,
    MeasurementFlooding,
    Proposal,
    PushSum,
    exchange,
)
from swarmbo.belief.fusion.experts import robust_committee
from swarmbo.belief.gp.hyperparameters import Hyperparameters, TimeCorrelation
from swarmbo.errors import LostStateError, ShapeError, StateVersionError
from swarmbo.transport import Faults, InProcess

from .conftest import DOMAIN, OTHER, PLACES, START, cut, links_of, measure, near, ring, team

KINDS = [MeasurementFlooding, CommitteeFlooding]


def exact_pool(agents, proposal=START):
    X, y = (np.concatenate([getattr(agent, name) for agent in agents]) for name in ("X", "y"))
    h = proposal.hyperparameters
    return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), DOMAIN, h, X, y).posterior(PLACES)


def assert_has_fused(kind, agent, members, proposal=START):
    if kind is MeasurementFlooding:
        expected = exact_pool(members, proposal)
    else:
        h = proposal.hyperparameters
        own = [exact_pool([member], proposal) for member in members]
        means, variances = np.array([mean for mean, _ in own]), np.array([var for _, var in own])
        expected = robust_committee(means, variances, h.offset + h.scale * h.mean, h.scale**2 * h.outputscale)
    for got, wanted in zip(agent.belief.posterior(PLACES), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-7)


def assert_all_have_fused(kind, agents, proposal=START):
    for agent in agents.values():
        assert agent.proposal == proposal
        assert_has_fused(kind, agent, list(agents.values()), proposal)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_all_measurements_reach_all_agents_and_then_no_agent_sends(kind, loss, names):
    agents = team(kind, names)
    exchange(agents.values(), Faults(loss=loss).open(names, links_of(names)), steps=200)
    assert_all_have_fused(kind, agents)
    for agent in agents.values():
        assert agent.reached == {name: 2.0 + k for k, name in enumerate(names)}
        assert agent.outbox() == []
    first = agents["s0"].belief.posterior(PLACES)  # equal data give bit-identical beliefs
    np.testing.assert_array_equal(first, agents["s7"].belief.posterior(PLACES))


@pytest.mark.parametrize("kind", KINDS)
def test_a_belief_is_exact_for_the_measurements_that_reached_its_agent_at_every_step(kind, names):
    agents, transport = team(kind, names), InProcess().open(names, links_of(names))
    for step in range(1, 5):
        exchange(agents.values(), transport, steps=1)
        near = [names[k % 8] for k in range(-step, step + 1)]
        assert set(agents["s0"].reached) == set(near)
        assert_has_fused(kind, agents["s0"], [agents[name] for name in sorted(set(near))])


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_reaches_all_agents_after_they_stopped_sending(kind, names):
    agents = team(kind, names)
    transport = Faults(loss=0.2, seed=3).open(names, links_of(names))
    exchange(agents.values(), transport, steps=100)
    proposal = agents["s5"].propose(OTHER)
    exchange(agents.values(), transport, steps=100)
    assert_all_have_fused(kind, agents, proposal)
    assert all(agent.outbox() == [] for agent in agents.values())


@given(st.sampled_from(KINDS), st.integers(0, 2**32), st.floats(0.0, 0.5), st.lists(st.integers(0, 6), max_size=6))
def test_after_any_events_each_measurement_counts_once_when_links_are_up_again(kind, seed, loss, events):
    names = ["a", "b", "c", "d"]
    agents, transport = team(kind, names), Faults(loss=loss, seed=seed).open(names, links_of(names))
    for event in events:
        if event < 4:
            measure(agents[names[event]], 1 + event)
        elif event == 4:
            cut(transport, names[:2], names[2:])
        elif event == 5:
            cut(transport)
        else:
            agents["c"].propose(OTHER)
        exchange(agents.values(), transport, steps=3)
    cut(transport)
    exchange(agents.values(), transport, steps=200)
    assert_all_have_fused(kind, agents, agents["a"].proposal)


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_about_neighbours_does_not_grow_with_agents_that_all_know_of(kind):
    sizes = []
    for n in (4, 12):
        names = [f"s{k:02d}" for k in range(n)]
        agents = team(kind, names)
        exchange(agents.values(), InProcess().open(names, links_of(names)), steps=40)
        assert len(agents["s01"].reached) == n
        sizes.append(len(json.dumps(agents["s01"].state_dict()["json"]["peers"])))
    assert sizes[0] == sizes[1]


def test_traffic_of_measurements_is_in_proportion_to_their_size(names):
    agents = team(MeasurementFlooding, names)
    n_bytes = exchange(agents.values(), InProcess().open(names, links_of(names)), steps=50).bytes
    crossings = 8 + 4  # an entry crosses every link of the ring, and where its two routes meet from both ends
    n_measurements = sum(range(2, 10))
    assert n_bytes > 7 * n_measurements * 24
    assert n_bytes < crossings * n_measurements * 24 + 200 * 400


def by_hand(agents, steps, arrives=lambda envelope: True):
    """Run synchronous steps with the messages that ``arrives`` admits; return all that were sent."""
    sent = []
    for _ in range(steps):
        outbox = [envelope for agent in agents.values() for envelope in agent.outbox()]
        sent += outbox
        for envelope in outbox:
            if arrives(envelope):
                agents[envelope.recipient].receive([envelope])
    return sent


def test_a_new_measurement_costs_tens_of_bytes_per_link_however_much_is_known(names):
    agents = team(MeasurementFlooding, names)
    transport = InProcess().open(names, links_of(names))
    exchange(agents.values(), transport, steps=50)
    agents["s2"].propose(OTHER)
    exchange(agents.values(), transport, steps=50)
    measure(agents["s3"], 1)
    traffic = exchange(agents.values(), transport, steps=50)
    assert traffic.messages == 2 * 8  # forth and back; the opposite agent receives it from both sides at once
    assert traffic.bytes < 16 * 40  # of which the measurement itself is 24, in one direction


def test_neighbours_that_meet_again_do_not_send_what_both_received_from_others():
    names = ["a", "b", "c"]
    agents = team(MeasurementFlooding, names)
    for measures in names:
        agents["a"].meet(["c"])
        agents["b"].meet(["c"])
        measure(agents[measures], 1)
        by_hand(agents, 12)
        agents["a"].meet(["b", "c"])
        agents["b"].meet(["a", "c"])
        sent = by_hand(agents, 12)
        between = sum(len(e.payload) for e in sent if "c" not in (e.sender, e.recipient))
        own_news = 24 * 2 * (measures in ("a", "b"))  # each agent sends its newest measurement at once
        assert between < own_news + 6 * 60
        wanted = {name: float(agents[name].n_measurements) for name in names}
        assert agents["a"].reached == agents["b"].reached == wanted


def test_lost_measurements_are_sent_again_although_there_are_always_new_ones():
    agents = team(MeasurementFlooding, ["a", "b", "c"])
    agents["a"].meet(["b"])
    agents["c"].meet(["b"])
    by_hand(agents, 10)
    measure(agents["a"], 1)
    by_hand(agents, 2, arrives=lambda envelope: envelope.recipient != "c")
    for _ in range(6):  # messages from b hide from c that it has missed some measurements of a
        measure(agents["b"], 1)
        by_hand(agents, 1)
    assert agents["c"].reached["a"] == agents["a"].n_measurements


def test_an_agent_that_returns_without_state_learns_all_if_it_had_not_measured():
    agents = ring(MeasurementFlooding, ["a", "b", "c"])
    measure(agents["a"], 2)
    by_hand(agents, 12)
    agents["c"] = near(MeasurementFlooding("c", DOMAIN, START), ["a", "b"])
    by_hand(agents, 12)
    measure(agents["c"], 1)
    by_hand(agents, 12)
    for agent in agents.values():
        assert agent.reached == {"a": 2.0, "c": 1.0}
        assert agent.outbox() == []


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_returns_without_measurements_known_to_others_is_refused_and_others_do_not_change(kind):
    agents = team(kind, ["a", "b", "c"])
    by_hand(agents, 12)
    agents["c"] = near(kind("c", DOMAIN, START), ["a", "b"])
    measure(agents["c"], 1, seed=1)
    with pytest.raises(LostStateError, match=r"agent 'c': got 1 measurements, and '[ab]' knows of 4; wanted"):
        by_hand(agents, 12)
    for name in ["a", "b"]:
        assert agents[name].reached == {"a": 2.0, "b": 3.0, "c": 4.0}


def test_measurements_under_the_initial_proposal_are_accepted():
    """An agent proposes before it meets others, which still hold the initial proposal."""
    agents = {name: MeasurementFlooding(name, DOMAIN, START) for name in "abc"}
    for agent in agents.values():
        agent.team = frozenset(agents)
        measure(agent, 2)
    agents["a"].propose(OTHER, n_measurements=2)
    for agent in agents.values():
        agent.meet(agents)
    by_hand(agents, 9)
    for agent in agents.values():
        assert not agent.refused
        assert agent.proposal.proposer == "a"
        assert agent.reached == dict.fromkeys("abc", 2.0)


def test_an_agent_that_returns_with_an_older_state_receives_what_it_lacks():
    agents = team(MeasurementFlooding, ["a", "b", "c"])
    agents["b"].meet(["a"])
    agents["c"].meet(["a"])
    by_hand(agents, 12)
    state = agents["b"].state_dict()
    measure(agents["a"], 2)
    measure(agents["c"], 1)
    by_hand(agents, 12)
    agents["b"].load_state_dict(state)
    measure(agents["a"], 1)  # it shows b that it lacks measurements of a, and perhaps of others
    by_hand(agents, 12)
    assert agents["b"].reached == {"a": 5.0, "b": 3.0, "c": 5.0}
    assert_has_fused(MeasurementFlooding, agents["b"], list(agents.values()))


def test_measurements_sent_under_an_older_proposal_are_not_lost():
    agents = team(MeasurementFlooding, ["a", "b"])
    agents["a"].propose(OTHER)
    by_hand(agents, 1)
    assert agents["a"].reached == agents["b"].reached == {"a": 2.0, "b": 3.0}


def test_agents_with_different_initial_proposals_agree_on_one():
    other = Proposal(0, "", OTHER, 3, 24)
    agents = {"a": near(MeasurementFlooding("a", DOMAIN, START), ["b"])}
    agents["b"] = near(MeasurementFlooding("b", DOMAIN, other), ["a"])
    for agent in agents.values():
        measure(agent, 2)
    by_hand(agents, 12)
    assert_all_have_fused(MeasurementFlooding, agents, agents["a"].proposal)


@pytest.mark.parametrize("kind", KINDS)
def test_inadmissible_proposals_measurements_and_states_are_refused(kind):
    agent = near(kind("a", DOMAIN, START), ["b"])
    with pytest.raises(ShapeError, match="proposal: got 1 lengthscales; wanted 2"):
        agent.propose(Hyperparameters("rbf", (0.3,), 1.0, 0.1))
    with pytest.raises(ShapeError, match="time axis"):
        agent.propose(Hyperparameters("rbf", (0.3, 0.3), 1.0, 0.1, time=TimeCorrelation("rbf", 3.0)))
    with pytest.raises(ValueError, match="noise variance > 0"):
        agent.propose(Hyperparameters("rbf", (0.3, 0.3), 1.0, 0.0))
    with pytest.raises(ShapeError, match=r"X\[1\]: got"):
        agent.measure([[1.0, 2.0], [np.nan, 0.0]], [1.0, 2.0])
    with pytest.raises(ShapeError, match=r"y: got shape"):
        agent.measure([[1.0, 2.0]], [1.0, 2.0])
    with pytest.raises(StateVersionError, match=r"got \{'name': 'a'\}; wanted"):
        kind("b", DOMAIN, START).load_state_dict(agent.state_dict())
    with pytest.raises(StateVersionError, match="'kind'"):
        PushSum("a", DOMAIN, START).load_state_dict(agent.state_dict())
    assert agent.n_measurements == 0
    assert agent.proposal == START


@pytest.mark.parametrize("kind", KINDS)
def test_entries_with_an_inadmissible_noise_variance_are_refused(kind):
    agent = near(kind("a", DOMAIN, START), ["b"])

    def is_entry(variance):
        return agent._is_entry(1, np.array([50.0, 10.0, 7.0, variance]).tobytes() + b"\x01")

    assert all(map(is_entry, (0.0, 1.0, np.nan, 1e119)))
    assert not any(map(is_entry, (-1e-9, np.inf, -np.inf, 1e121)))


@pytest.mark.parametrize("n_features", [0, 7, 4096])
def test_other_sizes_of_a_basis_are_refused(n_features):
    with pytest.raises(ValueError, match="an even integer from 2 to 2048"):
        Proposal(0, "", START.hyperparameters, 0, n_features)


@pytest.mark.parametrize("kind", [*KINDS, PushSum, CovarianceIntersection])
@pytest.mark.parametrize("lengthscale", [1e-4, 1e6])
@pytest.mark.parametrize("noise", [1e-8, 1.0])
def test_extreme_hyperparameters_give_finite_beliefs(kind, lengthscale, noise):
    h = Hyperparameters("matern52", (lengthscale, lengthscale), 1.3, noise, 0.2, 7.0, 3.0)
    start = Proposal(0, "", h, 0, n_features=2)
    agents = {name: near(kind(name, DOMAIN, start), ["a", "b", "c"]) for name in ["a", "b", "c"]}
    agents["a"].measure([[50.0, 10.0]], [8.0])
    agents["b"].measure([[50.0, 10.0]] * 5, [8.0] * 5)  # c has no measurements
    by_hand(agents, 40)
    for agent in agents.values():
        mean, var = agent.belief.posterior(PLACES)
        assert np.isfinite(mean).all()
        assert ((var >= 0.0) & (var <= 9.0 * 1.3 * (1.0 + 1e-6))).all()
        assert set(agent.reached) == {"a", "b"} or kind is CovarianceIntersection


def test_a_greeting_is_answered_at_once_by_an_agent_that_has_not_greeted_yet():
    a, b = (near(MeasurementFlooding(name, DOMAIN, START), ["a", "b"]) for name in "ab")
    measure(b, 2)
    a.receive(b.outbox())
    b.receive(a.outbox())
    assert b.is_finished


def test_a_returning_neighbour_gets_a_proposal_that_was_made_in_its_absence_with_the_first_message():
    a, b = (near(MeasurementFlooding(name, DOMAIN, START), ["a", "b"]) for name in "ab")
    by_hand({"a": a, "b": b}, 6)
    a.meet([])
    wanted = a.propose(OTHER)
    a.meet(["b"])
    b.receive(a.outbox())
    assert b.proposal == wanted
