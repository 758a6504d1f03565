"""Covariance intersection of measurements that arrive by two routes."""

import networkx as nx
import numpy as np
import pytest

from swarmbo.belief.features.feature_gp import Information
from swarmbo.belief.fusion import CovarianceIntersection, Proposal, exchange
from swarmbo.belief.fusion.covariance_intersection import intersection
from swarmbo.belief.fusion.fused import FusedBelief
from swarmbo.belief.fusion.proposal import FusedSettings
from swarmbo.belief.gp.hyperparameters import ExactGPSettings, Hyperparameters, TimeAxis, TimeCorrelation
from swarmbo.boundary.rng import stream
from swarmbo.spaces import Domain
from swarmbo.transport import Faults, InProcess

from .conftest import OTHER, PLACES, links_of, measure, near, ring, team

TRIALS, P = 1000, 12
LINE = Domain(np.zeros(1), np.ones(1))
KNOWN = Proposal(0, "", Hyperparameters("rbf", (0.25,), 1.0, 0.1), seed=1, n_features=P)
NAMES = ["a", "b", "c", "d"]


def after_planted_double_counting(measurements):
    """Two rounds on a ring of four: every measurement reaches the opposite agent by both routes."""
    agents = {name: near(CovarianceIntersection(name, LINE, KNOWN), links_of(NAMES)[name]) for name in NAMES}
    for name, (X, y) in measurements.items():
        agents[name].measure(X, y)
    exchange(agents.values(), InProcess().open(NAMES, links_of(NAMES)), steps=2)
    return agents


@pytest.fixture(scope="module")
def trials():
    """For each agent: errors of the weights over trials, and the covariance it reports.

    The estimate is linear in the outcomes, and the covariance does not depend on them. So one exchange per measurement
    gives the map from outcomes to estimates, and trials are its products with outcomes of drawn fields.
    """
    rng, basis = stream(0, "trials"), KNOWN.basis
    X = {name: rng.random((3 + k, 1)) for k, name in enumerate(NAMES)}
    n_measurements = sum(map(len, X.values()))
    Phi = np.concatenate([basis.features(points) for points in X.values()])
    w = rng.standard_normal((TRIALS, P))
    Y = w @ Phi.T + np.sqrt(0.1) * rng.standard_normal((TRIALS, n_measurements))
    runs = [after_planted_double_counting(by_agent(X, y)) for y in (*np.eye(n_measurements), Y[0])]
    errors, covariances = {}, {}
    for name in NAMES:
        weights_of = np.array([run[name].belief.weights for run in runs[:-1]])
        np.testing.assert_allclose(Y[0] @ weights_of, runs[-1][name].belief.weights, atol=1e-9)
        errors[name] = Y @ weights_of - w
        covariances[name] = np.linalg.inv(np.eye(P) + runs[0][name].belief.information.precision)
    return X, errors, covariances


def by_agent(X, y):
    ends = np.cumsum([len(points) for points in X.values()])
    return {name: (X[name], part) for name, part in zip(NAMES, np.split(y, ends[:-1]), strict=True)}


def largest_ratio(errors, covariance):
    """The largest eigenvalue of the mean of e eᵀ, relative to the reported covariance; 1 if that is correct."""
    L = np.linalg.cholesky(covariance)
    whitened = np.linalg.solve(L, errors.T)
    return np.linalg.eigvalsh(whitened @ whitened.T / len(errors))[-1]


# If the reported covariance is correct, the largest eigenvalue from 1,000 trials of 12 weights has its edge at
# (1 + sqrt(12 / 1000))² = 1.23 (Marchenko & Pastur), give or take a few per cent
SLACK = 1.3


def test_the_reported_covariance_covers_the_errors(trials):
    _, errors, covariances = trials
    assert max(largest_ratio(errors[name], covariances[name]) for name in NAMES) < SLACK  # by addition above 1.5


def test_the_variance_is_no_worse_than_the_best_single_agents(trials):
    X, _, covariances = trials
    basis = KNOWN.basis
    Phi = basis.features(np.linspace(0.0, 1.0, 401)[:, None])
    alone = [np.linalg.inv(np.eye(P) + basis.features(X[name]).T @ basis.features(X[name]) / 0.1) for name in NAMES]
    best = min(np.einsum("mp,pq,mq->m", Phi, covariance, Phi).mean() for covariance in alone)
    for name in NAMES:
        fused = np.einsum("mp,pq,mq->m", Phi, covariances[name], Phi).mean()
        assert fused <= best * (1.0 + 1e-2)  # the agents take the mean over 256 other places


def test_the_share_minimises_the_weighted_variance():
    rng = stream(1, "information")
    A, B, C = (rng.standard_normal((n, 5)) for n in (4, 7, 9))
    first, second = (Information(F.T @ F, rng.standard_normal(5), float(len(F))) for F in (A, B))
    W = C.T @ C
    fused, share = intersection(first, second, W)

    def measure_at(a):
        return np.trace(W @ np.linalg.inv(np.eye(5) + a * first.precision + (1 - a) * second.precision))

    np.testing.assert_allclose(fused.precision, share * first.precision + (1 - share) * second.precision)
    np.testing.assert_allclose(fused.shift, share * first.shift + (1 - share) * second.shift)
    assert measure_at(share) <= min(measure_at(a) for a in np.linspace(0.0, 1.0, 1001)) * (1.0 + 1e-9)


def test_information_that_is_larger_in_every_direction_is_used_alone():
    rng = stream(2, "information")
    A = rng.standard_normal((6, 4))
    more, less = Information(A.T @ A, rng.standard_normal(4), 6.0), Information(0.3 * A.T @ A, np.zeros(4), 6.0)
    for fused, _ in (intersection(more, less), intersection(less, more)):
        np.testing.assert_array_equal(fused.packed(), more.packed())


def test_agents_stop_sending_once_all_are_about_as_certain_as_the_best(names):
    agents = team(CovarianceIntersection, names)
    transport = Faults(loss=0.3).open(names, links_of(names))
    mean_var = {name: agent.belief.posterior(PLACES)[1].mean() for name, agent in agents.items()}
    best = min(mean_var.values())
    exchange(agents.values(), transport, steps=300)
    assert all(agent.outbox() == [] for agent in agents.values())
    for name, agent in agents.items():
        assert agent.belief.posterior(PLACES)[1].mean() <= 1.05 * best
        assert sum(agent.reached.values()) == pytest.approx(agent.belief.information.count)
        assert all(share <= agents[author].n_measurements + 1e-9 for author, share in agent.reached.items()), name
    proposal = agents["s4"].propose(OTHER)
    exchange(agents.values(), transport, steps=60)
    assert all(agent.proposal == proposal for agent in agents.values())


def test_an_agent_that_joins_late_without_measurements_receives_the_information_of_others(names):
    agents = ring(CovarianceIntersection, names)
    for name in names[:7]:
        measure(agents[name], 3)
    transport = Faults(loss=0.2, seed=1).open(names, links_of(names))
    exchange([agents[name] for name in names[:7]], transport, steps=100)
    assert all(agent.outbox() == [] for agent in list(agents.values())[1:6])
    exchange(agents.values(), transport, steps=100)
    np.testing.assert_allclose(agents["s7"].belief.posterior(PLACES), agents["s6"].belief.posterior(PLACES), rtol=1e-2)
    assert all(agent.is_finished for agent in agents.values())


def test_two_agents_with_different_data_of_equal_information_stop_sending():
    agents = {name: near(CovarianceIntersection(name, LINE, KNOWN), ["a", "b"]) for name in ["a", "b"]}
    agents["a"].measure([[0.5]], [1.0])
    agents["b"].measure([[0.5]], [2.0])
    traffic = exchange(agents.values(), InProcess().open(agents), steps=100)
    assert all(agent.is_finished for agent in agents.values())
    assert traffic.messages <= 16


def test_an_agent_does_not_answer_a_neighbour_that_has_the_same_estimate():
    a, b = (near(CovarianceIntersection(name, LINE, KNOWN), ["a", "b"]) for name in "ab")
    a.measure([[0.5]], [1.0])
    traffic = exchange([a, b], InProcess().open(["a", "b"]), steps=100)
    assert traffic.messages == 9  # four by each, and one by b before it has an estimate


def test_an_agent_that_only_relays_weights_estimates_by_their_certainty_in_the_present_round():
    prior = ExactGPSettings(time=TimeAxis("matern32", lengthscale_median=5.0, lengthscale_log_std=0.01))
    settings = FusedSettings(method="covariance-intersection", n_features=64, growth=1e6, prior=prior)
    belief, places = FusedBelief(settings, LINE, ["a", "b", "c"], seed=1), np.linspace(0.0, 1.0, 12)[:, None]
    belief.at(0).learn({"a": (places, np.sin(6.0 * places[:, 0]))}, nx.Graph([("a", "c")]))
    belief.at(40).learn({"b": (places[::2], np.cos(6.0 * places[::2, 0]))}, nx.Graph([("b", "c")]))
    relay, other = (belief.agents[name].belief.at(40).posterior(places)[1].mean() for name in "cb")
    assert relay <= 1.01 * other


def test_a_restored_agent_weights_estimates_by_the_saved_round():
    timed = Proposal(0, "", Hyperparameters("rbf", (0.25,), 1.0, 0.1, time=TimeCorrelation("rbf", 5.0)), 1, 64)
    a, b = (near(CovarianceIntersection(name, LINE, timed), ["a", "b"]) for name in "ab")
    a.measure([[0.5, 0.0]], [1.0])
    b.measure([[0.2, 30.0]], [1.0])
    a.now = 30.0
    restored = CovarianceIntersection("a", LINE, timed)
    restored.load_state_dict(a.state_dict())
    for agent in (a, restored):
        agent.receive(b.outbox())
    assert restored.state_dict()["json"] == a.state_dict()["json"]


def test_estimates_are_weighted_by_their_certainty_in_the_present_round():
    h = Hyperparameters("rbf", (0.25,), 1.0, 0.1, time=TimeCorrelation("rbf", 5.0))
    timed = Proposal(0, "", h, seed=1, n_features=64)
    old, new = (near(CovarianceIntersection(name, LINE, timed), ["a", "b"]) for name in "ab")
    places = np.linspace(0.0, 1.0, 30)[:, None]
    old.measure(np.insert(places, 1, 0.0, axis=1), np.ones(30))
    new.measure(np.insert(places[::6], 1, 20.0, axis=1), np.ones(5))
    Phi = timed.basis.features(np.insert(places, 1, 20.0, axis=1))

    def mean_variance():
        precision = np.eye(64) + new.belief.information.precision
        return np.einsum("mp,pm->", Phi, np.linalg.solve(precision, Phi.T)) / len(Phi)

    alone = mean_variance()
    new.receive(old.outbox())
    assert mean_variance() <= 1.01 * alone
