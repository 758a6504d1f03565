"""After any events, beliefs consist of the measurements that ``reached`` counts, and none weighs more than once."""

import json

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief.fusion import (
    CommitteeFlooding,
    CovarianceIntersection,
    MeasurementFlooding,
    Proposal,
    PushSum,
    exchange,
)
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.boundary.rng import stream
from swarmbo.spaces import Domain
from swarmbo.transport import Faults

from .conftest import OTHER, PLACES, START as PRIOR, links_of, measure, near, team

NAMES = ["a", "b", "c", "d"]
DOMAIN = Domain(np.zeros(2), np.array([4.0, 2.0]))
KERNELS = [Hyperparameters("matern52", (scale, scale), 1.3, 0.05, 0.2, 7.0, 3.0) for scale in (0.02, 0.03, 0.04)]
# far below the spacing of measurements: their features are nearly independent, so that sums can be decomposed
START = Proposal(0, "", KERNELS[0], seed=0, n_features=24)
KINDS = [MeasurementFlooding, PushSum, CovarianceIntersection]

agent_numbers = st.integers(0, 3)
events = st.one_of(
    st.tuples(st.just("measure"), agent_numbers, st.integers(1, 3)),
    st.tuples(st.just("links"), st.integers(0, 63)),  # which of the six pairs have a link
    st.tuples(st.just("deaf"), agent_numbers, agent_numbers),  # one direction of a link fails unnoticed
    st.tuples(st.just("goes"), agent_numbers),
    st.tuples(st.just("comes"), agent_numbers),
    st.tuples(st.just("proposes"), agent_numbers, st.integers(0, 2)),
    st.tuples(st.just("talk"), st.integers(1, 15)),
)


class Radio:
    """Loses, doubles and delays messages, so that they arrive in any order."""

    def __init__(self, seed, loss):
        self.rng, self.loss, self.deaf, self.under_way, self.step = stream(seed, "radio"), loss, set(), [], 0

    def send(self, envelope):
        if (envelope.sender, envelope.recipient) in self.deaf:
            return
        for _ in range(1 + (self.rng.random() < self.loss)):
            if self.rng.random() >= self.loss:
                late = int(self.rng.integers(4)) if self.rng.random() < self.loss else 0
                self.under_way.append((self.step + late, self.rng.random(), envelope))

    def deliver(self):
        due = sorted((entry for entry in self.under_way if entry[0] <= self.step), key=lambda entry: entry[1])
        self.under_way = [entry for entry in self.under_way if entry[0] > self.step]
        self.step += 1
        return [envelope for _, _, envelope in due]


class History:
    """Agents, which of them are present, and all measurements."""

    def __init__(self, kind, seed, loss):
        self.kind, self.radio, self.measured = kind, Radio(seed, loss), {name: [] for name in NAMES}
        self.agents = {name: near(kind(name, DOMAIN, START), NAMES) for name in NAMES}
        self.present = set(NAMES)

    def happens(self, what, *numbers):
        name = NAMES[numbers[0] % 4]
        if what == "measure":
            self.measure(name, numbers[1])
        elif what == "links":
            pairs = [(a, b) for a in NAMES for b in NAMES if a < b]
            graph = nx.Graph([pair for k, pair in enumerate(pairs) if numbers[0] >> k & 1])
            for agent in self.agents.values():
                agent.meet(graph.adj.get(agent.name, ()))
        elif what == "deaf":
            self.radio.deaf ^= {(name, NAMES[numbers[1]])}
        elif what == "goes":
            self.present -= {name}
        elif what == "comes":
            self.present |= {name}
        elif what == "proposes":
            self.agents[name].propose(KERNELS[numbers[1]])
        else:
            self.talk(numbers[0])

    def measure(self, name, n):
        rng = stream(0, "points", agent=name, n=len(self.measured[name]))
        X, y = DOMAIN.from_unit(rng.random((n, 2))), 7.0 + 3.0 * rng.standard_normal(n)
        self.agents[name].measure(X, y)
        self.measured[name] += list(zip(X, y, strict=True))

    def talk(self, steps, checked=1):
        for step in range(steps):
            for name in sorted(self.present):
                for envelope in self.agents[name].outbox():
                    self.radio.send(envelope)
            for envelope in self.radio.deliver():
                if envelope.recipient in self.present:
                    self.agents[envelope.recipient].receive([envelope])
            for name in sorted(self.present) if step % checked == 0 else ():
                self.check(self.agents[name])

    def check(self, agent):
        weights, reached = self.weights(agent), agent.reached
        for author, of_author in weights.items():
            assert (of_author > -1e-5).all()
            assert (of_author < 1.0 + 1e-5).all(), (agent.name, author, of_author)
            assert of_author.sum() == pytest.approx(reached.get(author, 0.0), abs=1e-4)
            if self.kind is MeasurementFlooding:  # the first measurements, with weight 1
                assert np.allclose(of_author, np.arange(len(of_author)) < reached.get(author, 0.0), atol=1e-5)
        assert set(reached) <= set(weights)
        if self.kind is MeasurementFlooding:
            assert reached.get(agent.name, 0.0) == len(self.measured[agent.name])

    def weights(self, agent):
        """The weight of every measurement in an agent's belief, computed from the belief alone."""
        if self.kind is MeasurementFlooding:
            rows = [tuple(row) for row in np.column_stack([agent.belief.X, agent.belief.y])]
            return {
                author: np.array([rows.count((*x, y)) for x, y in measurements], dtype=float)
                for author, measurements in self.measured.items()
            }
        h, every = agent.proposal.hyperparameters, [r for measurements in self.measured.values() for r in measurements]
        Phi = agent.proposal.basis.features(DOMAIN.to_unit(np.array([x for x, _ in every])))
        z = (np.array([y for _, y in every]) - h.offset) / h.scale - h.mean
        rows, columns = np.triu_indices(Phi.shape[1])
        design = np.column_stack(
            [np.ones(len(z)), z[:, None] * Phi / h.noise_variance, Phi[:, rows] * Phi[:, columns] / h.noise_variance]
        ).T
        packed = agent.belief.information.packed()
        found = np.linalg.lstsq(design, packed, rcond=None)[0]
        assert np.abs(design @ found - packed).max() <= 1e-5 * max(1.0, np.abs(packed).max())
        ends = np.cumsum([len(measurements) for measurements in self.measured.values()])
        return dict(zip(self.measured, np.split(found, ends[:-1]), strict=True))

    def ends_well(self):
        """All agents are present, all links are up, and no more messages are lost."""
        self.present, self.radio.loss, self.radio.deaf = set(NAMES), 0.0, set()
        for agent in self.agents.values():
            agent.meet(NAMES)
        self.talk(60, checked=4)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.0, 0.5), st.lists(events, max_size=10))
def test_no_measurement_ever_weighs_more_than_once_and_finally_all_weigh_once(kind, seed, loss, happenings):
    history = History(kind, seed, loss)
    history.measure("b", 2)
    for happening in happenings:
        history.happens(*happening)
    history.ends_well()
    proposal = history.agents["a"].proposal
    for agent in history.agents.values():
        assert agent.proposal == proposal
        if kind is CovarianceIntersection:
            assert agent.is_finished
            continue
        assert agent.reached == pytest.approx({name: len(r) for name, r in history.measured.items() if r}, abs=1e-4)
        history.check(agent)
        assert kind is PushSum or agent.outbox() == []


@pytest.mark.parametrize("kind", [*KINDS, CommitteeFlooding])
def test_a_saved_agent_continues_bit_identically(kind, names):
    agents = team(kind, names)
    transport = Faults(loss=0.3, seed=5).open(names, links_of(names))
    exchange(agents.values(), transport, steps=5)
    agents["s4"].propose(OTHER)
    exchange(agents.values(), transport, steps=4)
    del agents["s1"]  # its neighbours do not know yet that it is gone when they are saved
    exchange(agents.values(), transport, steps=5)
    copies = {}
    for name, agent in agents.items():
        state = agent.state_dict()
        for in_order in (True, False):  # no order of stored names changes the author of a measurement
            copies[name] = kind(name, agent.domain, PRIOR)
            plain = json.loads(json.dumps(state["json"], sort_keys=in_order))
            copies[name].load_state_dict({"json": plain, "arrays": state["arrays"]})
            found, wanted = (one.belief.posterior(PLACES) for one in (copies[name], agent))
            np.testing.assert_allclose(found, wanted, rtol=1e-9)
    both = [(several, Faults(loss=0.3, seed=6).open(names, links_of(names))) for several in (agents, copies)]
    for step in range(25):
        for several, opened in both:
            if step == 2:
                measure(several["s3"], 2, seed=7)
            exchange(several.values(), opened, steps=1)
        assert [e.payload for e in agents["s0"].outbox()] == [e.payload for e in copies["s0"].outbox()]
    for name in agents:
        assert [e.payload for e in agents[name].outbox()] == [e.payload for e in copies[name].outbox()]
        np.testing.assert_array_equal(agents[name].belief.posterior(PLACES), copies[name].belief.posterior(PLACES))
