"""Of how many points the truth lies in the 95 % interval, over fields drawn from the belief's own prior."""

import networkx as nx
import numpy as np
import pytest

from swarmbo.belief import AdditiveGP, ExactGP, ExactGPSettings, Hyperparameters
from swarmbo.belief.features.feature_gp import FeatureGP, Information
from swarmbo.belief.fusion import CovarianceIntersection, Proposal, PushSum, exchange
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph
from swarmbo.kernels import kernel_matrix
from swarmbo.spaces import Domain
from swarmbo.transport import Faults

# Shares over 150 fields of 60 points have a standard error of at most 0.5 %, as points of one field err together
FIELDS, N_DATA, N_TEST, NOISE = 150, 20, 60, 0.05
SQUARE = Domain(np.zeros(2), np.ones(2))
H = Hyperparameters("matern52", (0.25, 0.4), 1.0, NOISE)
NAMES = ["a", "b", "c", "d"]
START = Proposal(0, "", H, seed=2, n_features=60)


def coverage(cases):
    inside = [np.abs(truth - mean) <= 1.96 * np.sqrt(var) for truth, (mean, var) in cases]
    return float(np.mean(inside))


def points(k):
    rng = stream(0, "calibration", field=k)
    return rng, rng.random((N_DATA, 2)), rng.random((N_TEST, 2))


def drawn(rng, K):
    return np.linalg.cholesky(K + 1e-9 * np.eye(len(K))) @ rng.standard_normal(len(K))


def noisy(rng, f):
    return f[:N_DATA] + np.sqrt(NOISE) * rng.standard_normal(N_DATA)


def exact_cases():
    for k in range(FIELDS):
        rng, X, Z = points(k)
        U = np.concatenate([X, Z])
        f = drawn(rng, kernel_matrix(H.kernel, U, U, np.array(H.lengthscales), 1.0))
        belief = ExactGP.from_hyperparameters(ExactGPSettings(), SQUARE, H, X, noisy(rng, f))
        yield f[N_DATA:], belief.posterior(Z)


def additive_cases():
    graph = FactorGraph.from_scopes({"f": ["x"], "g": ["x", "z"]})
    prior = AdditiveGP(graph, kernel="matern52", lengthscale=0.3, outputscale=0.5, noise_variance=NOISE)
    for k in range(FIELDS):
        rng, X, Z = points(k)
        U = np.concatenate([X, Z])
        parts = [kernel_matrix("matern52", V, V, np.full(V.shape[1], 0.3), 0.5) for V in (U[:, :1], U)]
        f = drawn(rng, sum(parts))
        yield f[N_DATA:], prior.update(X, noisy(rng, f)).posterior(Z)


def feature_cases():
    basis = START.basis
    for k in range(FIELDS):
        rng, X, Z = points(k)
        f = basis.features(np.concatenate([X, Z])) @ rng.standard_normal(basis.n_features)
        information = Information.of(basis.features(X), noisy(rng, f), NOISE)
        belief = FeatureGP(domain=SQUARE, hyperparameters=H, basis=basis, information=information)
        yield f[N_DATA:], belief.posterior(Z)


def fused_cases(kind, fields, steps=40):
    """Every agent has its own share of the readings; the belief is that of the agent they reach last."""
    links, basis = nx.cycle_graph(NAMES), START.basis
    for k in range(fields):
        rng, X, Z = points(k)
        f = basis.features(np.concatenate([X, Z])) @ rng.standard_normal(basis.n_features)
        y = noisy(rng, f)
        agents = {name: kind(name, SQUARE, START, links[name]) for name in NAMES}
        for n, agent in enumerate(agents.values()):
            agent.measure(X[n::4], y[n::4])
        exchange(agents.values(), Faults(loss=0.2, seed=k).open(NAMES, links), steps=steps)
        yield f[N_DATA:], agents["d"].belief.posterior(Z)


@pytest.mark.parametrize(
    "cases",
    [
        pytest.param(exact_cases, id="exact", marks=pytest.mark.thorough),
        pytest.param(additive_cases, id="additive", marks=pytest.mark.thorough),
        pytest.param(feature_cases, id="random features", marks=pytest.mark.thorough),
        pytest.param(lambda: fused_cases(PushSum, 80), id="consensus", marks=pytest.mark.slow),
    ],
)
def test_95_percent_intervals_cover_93_to_97_percent(cases):
    assert 0.93 <= coverage(cases()) <= 0.97


@pytest.mark.slow
def test_covariance_intersection_covers_at_least_93_percent():
    assert coverage(fused_cases(CovarianceIntersection, fields=40, steps=10)) >= 0.93
