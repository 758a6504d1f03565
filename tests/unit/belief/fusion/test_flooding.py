"""Flooding of tagged summaries, readings and predictions."""

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.fusion import PredictionFlooding, ReadingFlooding, SummaryFlooding, exchange, robust_committee
from swarmbo.errors import ShapeError
from swarmbo.transport import Faults, InProcess

from .conftest import DOMAIN, OTHER, PLACES, START, assert_is_pool, links_of, measure, ring

KINDS = [SummaryFlooding, ReadingFlooding, PredictionFlooding]


def team(kind, names):
    agents = ring(kind, names, **({"places": PLACES} if kind is PredictionFlooding else {}))
    for k, agent in enumerate(agents.values()):
        measure(agent, 2 + k)
    return agents


def exact_pool(agents, proposal=START):
    X, y = (np.concatenate([getattr(agent, name) for agent in agents]) for name in ("X", "y"))
    h = proposal.hyperparameters
    return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), DOMAIN, h, X, y).posterior(PLACES)


def assert_has_fused(kind, agent, members, proposal=START):
    if kind is SummaryFlooding:
        assert_is_pool(agent, members, proposal, rtol=1e-8)
        return
    if kind is ReadingFlooding:
        expected = exact_pool(members, proposal)
    else:
        h = proposal.hyperparameters
        own = [exact_pool([member], proposal) for member in members]
        means, variances = np.array([mean for mean, _ in own]), np.array([var for _, var in own])
        expected = robust_committee(means, variances, h.offset + h.scale * h.mean, h.scale**2 * h.outputscale)
    for got, wanted in zip(agent.belief.posterior(PLACES), expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_all_reaches_all_and_then_nobody_speaks(kind, loss, names):
    agents = team(kind, names)
    exchange(agents.values(), Faults(loss=loss).open(names, links_of(names)), steps=200)
    for agent in agents.values():
        assert_has_fused(kind, agent, list(agents.values()))
        assert agent.reached == {name: 2.0 + k for k, name in enumerate(names)}
        assert agent.speak() == []
    first = agents["s0"].belief.posterior(PLACES)  # equal knowledge, equal beliefs, to the bit
    np.testing.assert_array_equal(first, agents["s7"].belief.posterior(PLACES))


@pytest.mark.parametrize("kind", KINDS)
def test_a_belief_is_exact_for_what_has_reached_the_agent_at_every_step(kind, names):
    agents, transport = team(kind, names), InProcess().open(names, links_of(names))
    for step in range(1, 5):
        exchange(agents.values(), transport, steps=1)
        near = [names[k % 8] for k in range(-step, step + 1)]
        assert set(agents["s0"].reached) == set(near)
        assert_has_fused(kind, agents["s0"], [agents[name] for name in sorted(set(near))])


@pytest.mark.parametrize("kind", KINDS)
def test_halves_of_a_cut_network_keep_what_had_reached_them_and_healing_brings_the_rest(kind, names):
    agents, transport = team(kind, names), Faults(loss=0.2).open(names, links_of(names))
    exchange(agents.values(), transport, steps=2)
    transport.cut(names[:4], names[4:])
    exchange(agents.values(), transport, steps=100)
    for half in (names[:4], names[4:]):
        reached = agents[half[0]].reached
        assert set(half) <= set(reached) < set(names)
        for name in half:
            assert agents[name].reached == reached
            assert_has_fused(kind, agents[name], [agents[other] for other in sorted(reached)])
    measure(agents["s1"], 3)
    measure(agents["s6"], 2)
    transport.heal()
    exchange(agents.values(), transport, steps=100)
    for agent in agents.values():
        assert_has_fused(kind, agent, list(agents.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_who_joins_late_learns_all_and_who_left_is_remembered_once(kind, names):
    agents, transport = team(kind, names), InProcess().open(names, links_of(names))
    exchange([agents[name] for name in names[:7]], transport, steps=20)
    exchange(agents.values(), transport, steps=20)
    assert_has_fused(kind, agents["s7"], list(agents.values()))
    measure(agents["s0"], 2)
    measure(agents["s7"], 2)  # while it is away
    exchange([agents[name] for name in names[:7]], transport, steps=20)
    assert agents["s3"].reached["s7"] == 9.0
    assert agents["s3"].reached["s0"] == 4.0
    exchange(agents.values(), transport, steps=20)
    for agent in agents.values():
        assert_has_fused(kind, agent, list(agents.values()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_proposal_reaches_all_also_when_they_have_fallen_silent(kind, names):
    agents = team(kind, names)
    transport = Faults(loss=0.2, seed=3).open(names, links_of(names))
    exchange(agents.values(), transport, steps=100)
    proposal = agents["s5"].propose(OTHER, seed=9)
    exchange(agents.values(), transport, steps=100)
    for agent in agents.values():
        assert agent.proposal == proposal
        assert_has_fused(kind, agent, list(agents.values()), proposal)
        assert agent.speak() == []


@pytest.mark.parametrize("kind", KINDS)
def test_late_and_doubled_messages_change_nothing(kind):
    names = ["a", "b", "c"]
    agents, kept = team(kind, names), []
    for step in range(12):
        if step in (3, 6):
            measure(agents["b"], 2)
        said = [envelope for agent in agents.values() for envelope in agent.speak()]
        kept += said
        for name, agent in agents.items():
            agent.hear([envelope for envelope in said * 2 if envelope.recipient == name])
    for name, agent in agents.items():
        agent.hear([envelope for envelope in reversed(kept) if envelope.recipient == name])
    for agent in agents.values():
        assert agent.reached == {"a": 2.0, "b": 7.0, "c": 4.0}
        assert_has_fused(kind, agent, list(agents.values()))


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 2**32), st.floats(0.0, 0.5), st.lists(st.integers(0, 6), max_size=6))
def test_whatever_happens_in_between_all_is_there_once_when_links_are_up_again(kind, seed, loss, events):
    names = ["a", "b", "c", "d"]
    agents, transport = team(kind, names), Faults(loss=loss, seed=seed).open(names, links_of(names))
    for event in events:
        if event < 4:
            measure(agents[names[event]], 1 + event)
        elif event == 4:
            transport.cut(names[:2], names[2:])
        elif event == 5:
            transport.heal()
        else:
            agents["c"].propose(OTHER, seed=int(seed) % 7)
        exchange(agents.values(), transport, steps=3)
    transport.heal()
    exchange(agents.values(), transport, steps=200)
    proposal = agents["a"].proposal
    for agent in agents.values():
        assert agent.proposal == proposal
        assert_has_fused(kind, agent, list(agents.values()), proposal)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_agent_goes_on_to_the_bit(kind, names):
    agents = team(kind, names)
    exchange(agents.values(), Faults(loss=0.3).open(names, links_of(names)), steps=3)
    fresh = ring(kind, names, **({"places": PLACES} if kind is PredictionFlooding else {}))
    for name, agent in agents.items():
        state = agent.state_dict()
        fresh[name].load_state_dict({"json": json.loads(json.dumps(state["json"])), "arrays": state["arrays"]})
    for several in (agents, fresh):
        measure(several["s3"], 2, seed=7)
        exchange(several.values(), Faults(loss=0.3, seed=6).open(names, links_of(names)), steps=4)
    for name in names:
        assert [e.payload for e in agents[name].speak()] == [e.payload for e in fresh[name].speak()]
        np.testing.assert_array_equal(agents[name].belief.posterior(PLACES), fresh[name].belief.posterior(PLACES))


def test_readings_cost_what_they_hold_and_summaries_what_the_basis_holds(names):
    bytes_of = {}
    for kind in KINDS:
        agents = team(kind, names)
        bytes_of[kind] = exchange(agents.values(), InProcess().open(names, links_of(names)), steps=50).bytes
    crossings = 8 + 4  # an entry crosses every link of the ring, and the one in the middle of its ways from both ends
    n_readings = sum(range(2, 10))
    assert bytes_of[ReadingFlooding] > 7 * n_readings * 24
    assert bytes_of[ReadingFlooding] < crossings * n_readings * 24 + 200 * 400
    assert bytes_of[SummaryFlooding] > 7 * 8 * 8 * (1 + 24 + 300)
    assert bytes_of[PredictionFlooding] > 7 * 8 * 8 * 2 * 40


def test_a_product_of_experts_knows_agreed_places_only():
    agent = PredictionFlooding("a", DOMAIN, START, places=PLACES, product="generalised-product")
    mean, var = agent.belief.posterior(PLACES[:2])
    np.testing.assert_allclose(mean, 7.6)
    np.testing.assert_allclose(var, 9.0 * 1.3)
    with pytest.raises(ShapeError, match="wanted some of the 40 places that were agreed on"):
        agent.belief.posterior(PLACES[:2] + 1.0)
