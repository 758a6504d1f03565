"""Consensus by push-sum: exact over lossy links, across cuts, joins and leaves."""

import numpy as np
import pytest

from swarmbo.belief.fusion import PushSum, exchange
from swarmbo.transport import Faults, InProcess

from .conftest import DOMAIN, OTHER, PLACES, START, assert_all_pooled, assert_pooled, cut, links_of, measure, near, team


@pytest.fixture
def names() -> list[str]:
    return [f"s{n}" for n in range(6)]


def test_with_all_links_up_every_agent_has_the_pooled_posterior(names):
    agents = team(PushSum, names)
    traffic = exchange(agents.values(), InProcess().open(names, links_of(names)), steps=80)
    assert_all_pooled(agents)
    for agent in agents.values():
        assert agent.is_settled
        assert agent.reached == pytest.approx({name: 2 + k for k, name in enumerate(names)})
        assert agent.belief.n_data == sum(range(2, 8))
    assert traffic.messages == 80 * 12
    assert traffic.bytes > 70 * 12 * 8 * (24 * 25 / 2)


def test_with_lost_messages_every_agent_still_has_the_pooled_posterior(names):
    agents = team(PushSum, names)
    exchange(agents.values(), Faults(loss=0.3, seed=1).open(names, links_of(names)), steps=150)
    assert_all_pooled(agents)


def test_each_half_of_a_cut_network_has_the_pool_of_its_half_and_after_healing_the_whole(names):
    agents = team(PushSum, names)
    transport = Faults(loss=0.2, seed=2).open(names, links_of(names))
    left, right = [agents[name] for name in names[:3]], [agents[name] for name in names[3:]]
    exchange(agents.values(), transport, steps=7)  # before convergence, when mass of each half is in the other
    cut(transport, names[:3], names[3:])
    measure(agents["s1"], 3)
    exchange(agents.values(), transport, steps=180)
    for half in (left, right):
        for agent in half:
            assert_pooled(agent, half)
            assert set(agent.reached) == {member.name for member in half}
            assert agent.is_settled
    measure(agents["s5"], 2)
    cut(transport)
    exchange(agents.values(), transport, steps=180)
    assert_all_pooled(agents)
    for agent in agents.values():
        assert agent.reached == pytest.approx({member.name: member.n_measurements for member in left + right})


@pytest.mark.parametrize("deaf", ["a", "b"])
def test_a_link_that_works_one_way_only_is_down_for_both_ends(deaf):
    names = ["a", "b", "c"]
    agents = team(PushSum, names, patience=5)
    agents["a"].meet(["b"])  # a line: a, b, c
    agents["c"].meet(["b"])

    def talk(steps, arrives):
        for _ in range(steps):
            sent = [envelope for agent in agents.values() for envelope in agent.outbox()]
            for name, agent in agents.items():
                agent.receive([e for e in sent if e.recipient == name and arrives(e)])

    talk(60, lambda envelope: True)
    assert_pooled(agents["a"], list(agents.values()))
    talk(60, lambda envelope: {envelope.sender, envelope.recipient} != {"a", "b"} or envelope.recipient != deaf)
    assert_pooled(agents["a"], [agents["a"]])
    assert_pooled(agents["b"], [agents["b"], agents["c"]])
    talk(60, lambda envelope: True)
    assert_all_pooled(agents)


def test_the_first_name_wins_between_two_simultaneous_proposals(names):
    agents = team(PushSum, names)
    transport = InProcess().open(names, links_of(names))
    agents["s5"].propose(OTHER)
    winner = agents["s2"].propose(OTHER)
    exchange(agents.values(), transport, steps=80)
    assert all(agent.proposal == winner for agent in agents.values())
    assert_all_pooled(agents, winner)


def test_a_single_agent_has_the_posterior_of_its_measurements_or_the_prior_without_any():
    agent = PushSum("a", DOMAIN, START)
    mean, var = agent.belief.posterior(PLACES)
    np.testing.assert_allclose(mean, 7.0 + 3.0 * 0.2)
    np.testing.assert_allclose(var, 9.0 * 1.3)
    assert agent.reached == {}
    measure(agent, 5)
    assert_pooled(agent, [agent])
    assert agent.reached == {"a": 5.0}


def test_an_agent_that_returns_without_state_counts_as_a_new_agent(names):
    agents = team(PushSum, names)
    transport = Faults(loss=0.2, seed=7).open(names, links_of(names))
    exchange(agents.values(), transport, steps=90)
    gone, agents["s3"] = agents["s3"], near(PushSum("s3", DOMAIN, START), links_of(names)["s3"])
    measure(agents["s3"], 2, seed=1)
    for _ in range(16):
        exchange(agents.values(), transport, steps=10)
        for name, agent in agents.items():
            for author, count in agent.reached.items():
                most = gone.n_measurements if author == "s3" and name != "s3" else agents[author].n_measurements
                assert count <= most + 1e-6
    assert_all_pooled(agents)
    assert all(agent.reached["s3"] == pytest.approx(2.0) for agent in agents.values())


def test_an_agent_that_returns_with_an_older_state_continues_from_it(names):
    agents = team(PushSum, names)
    transport = InProcess().open(names, links_of(names))
    exchange(agents.values(), transport, steps=20)
    state = agents["s3"].state_dict()
    exchange(agents.values(), transport, steps=20)
    measure(agents["s3"], 2)
    exchange(agents.values(), transport, steps=20)
    agents["s3"].load_state_dict(state)
    exchange(agents.values(), transport, steps=150)
    assert_all_pooled(agents)


def test_while_new_measurements_spread_no_known_ones_are_lost_and_none_weighs_more_than_once(names):
    agents = team(PushSum, names)
    transport = InProcess().open(names, links_of(names))
    exchange(agents.values(), transport, steps=90)
    whole = sum(range(2, 8))
    for name in names[:3]:
        measure(agents[name], 1)
    assert sum(agents["s0"].reached.values()) == pytest.approx(whole + 1)
    for _ in range(90):
        exchange(agents.values(), transport, steps=1)
        for name, agent in agents.items():
            assert sum(agent.reached.values()) >= whole - 1e-4
            assert max(agent._view().shares.values()) <= 1.0 + 1e-9
            assert agent.belief.information.count == pytest.approx(sum(agent.reached.values())), name
    assert all(agent.is_settled for agent in agents.values())
    assert_all_pooled(agents)


def test_an_echo_of_the_last_message_does_not_keep_a_link_up():
    agents = team(PushSum, ["a", "b"], patience=4)
    exchange(agents.values(), InProcess().open(["a", "b"]), steps=30)
    assert_pooled(agents["b"], list(agents.values()))
    last = [envelope for envelope in agents["a"].outbox() if envelope.recipient == "b"]
    for _ in range(20):  # "a" is gone, but its last message arrives again and again
        agents["b"].receive(last)
        agents["b"].outbox()
    assert_pooled(agents["b"], [agents["b"]])


def test_the_smallest_patience_is_enough_if_no_message_is_lost(names):
    agents = team(PushSum, names, patience=1)
    exchange(agents.values(), InProcess().open(names, links_of(names)), steps=80)
    for agent in agents.values():
        assert_pooled(agent, list(agents.values()))
