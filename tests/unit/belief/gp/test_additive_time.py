"""Sums of processes over time, compared with scikit-learn's kernels and the exact belief."""

import msgspec
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import Matern

from swarmbo.belief import (
    AdditiveGP,
    AdditiveGPSettings,
    ExactGP,
    ExactGPSettings,
    Hyperparameters,
    TimeAxis,
    TimeCorrelation,
)
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import kernel_matrix
from swarmbo.settings import convert
from swarmbo.spaces import Domain

from .dense import with_own

GRAPH = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"], "h": ["c"]})
COLUMNS = ((0, 1), (1, 2), (2,))
LENGTHS = ((0.4, 0.6), (0.5, 0.3), (0.2,))
OUTPUTS, NOISE, PACE = (1.0, 0.5, 0.8), 0.01, 6.0
FADE = TimeCorrelation("matern12", PACE)


def belief_of(**changes):
    belief = AdditiveGP(GRAPH, noise_variance=NOISE, time=FADE, **changes)
    return with_own(belief, lengthscales=LENGTHS, outputscales=OUTPUTS)


def data_of(n, seed=0):
    rng = np.random.default_rng(seed)
    X, rounds = rng.random((n, 3)), rng.integers(0, 15, size=n).astype(float)
    factors = np.column_stack([np.sin(5 * X[:, list(c)].sum(axis=1) + rounds / 4) for c in COLUMNS])
    return X, factors, rounds


def test_one_factor_equals_the_exact_belief_and_has_the_evidence_of_scikit_learns_kernels():
    graph, domain = FactorGraph.from_scopes({"f": ["a", "b"]}), Domain(np.zeros(2), np.ones(2))
    X, outcomes, rounds = data_of(18)
    X, y, Z = X[:, :2], outcomes[:, 0], np.random.default_rng(9).random((7, 2))
    belief = AdditiveGP(graph, lengthscale=0.4, noise_variance=NOISE, time=FADE).update(X, y, rounds=rounds).at(11.0)
    h, own = Hyperparameters("matern52", (0.4, 0.4), 1.0, NOISE, time=FADE), ExactGPSettings(time=TimeAxis("matern12"))
    field = ExactGP.from_hyperparameters(own, domain, h, np.column_stack([X, rounds]), y).at(11.0)
    np.testing.assert_allclose(belief.joint_posterior(Z)[1], field.joint_posterior(Z)[1], atol=1e-9)
    np.testing.assert_allclose(belief.posterior(Z), field.posterior(Z), atol=1e-8)
    assert belief.log_evidence() == pytest.approx(field.log_evidence(), rel=1e-10)
    gram = Matern((0.4, 0.4), nu=2.5)(X) * Matern(PACE, nu=0.5)(rounds[:, None]) + NOISE * np.eye(18)
    assert belief.log_evidence() == pytest.approx(multivariate_normal(cov=gram).logpdf(y), rel=1e-9)


def test_a_belief_without_a_time_axis_ignores_rounds():
    X, outcomes, rounds = data_of(8)
    still = AdditiveGP(GRAPH, lengthscale=0.4)
    assert still.at(9.0) is still
    with_rounds, without = still.update(X, outcomes, rounds=rounds), still.update(X, outcomes)
    np.testing.assert_array_equal(with_rounds.posterior(X), without.posterior(X))


@pytest.mark.parametrize("way", ["total", "per-factor"])
def test_pending_points_keep_their_round_as_outcomes_do(way):
    X, outcomes, rounds = data_of(10)
    belief = belief_of(outcomes=way).update(X, outcomes, rounds=rounds).at(20.0)
    ahead, when = np.random.default_rng(2).random((4, 3)), [20.0, 20.0, 3.0, 9.0]
    nothing = np.zeros((4, 3)) if way == "per-factor" else np.zeros(4)
    done = belief.update(ahead, nothing, rounds=when)
    waiting = belief.condition_on_pending(ahead[:2]).condition_on_pending(ahead[2:], [3.0, 9.0])
    for one in (waiting, waiting.at(7.0).at(20.0)):
        np.testing.assert_allclose(one.posterior(X)[1], done.posterior(X)[1], atol=1e-10)
        np.testing.assert_allclose(one.posterior(X)[0], belief.posterior(X)[0], atol=1e-10)
    later = [one.at(31.0).posterior(ahead)[1] for one in (waiting, done)]
    np.testing.assert_allclose(*later, atol=1e-10)
    assert waiting.update(X[:1], outcomes[:1]).n_pending == 0
    with pytest.raises(ShapeError, match=r"rounds: got shape \(1,\) for 2 points"):
        belief.condition_on_pending(ahead[:2], [3.0])


@pytest.mark.parametrize("way", ["total", "per-factor"])
def test_a_fit_finds_the_lengthscales_over_time(way):
    rng = np.random.default_rng(1)
    n, graph = 160, FactorGraph.from_scopes({"f": ["a"], "g": ["b"]})
    X, rounds = rng.random((n, 2)), np.repeat(np.arange(40.0), 4)
    outcomes = np.empty((n, 2))
    for i in range(2):
        K = kernel_matrix("matern52", X[:, [i]], X[:, [i]], np.array([0.4]), 1.0)
        K *= np.exp(-np.abs(rounds[:, None] - rounds) / 7.0)
        outcomes[:, i] = np.linalg.cholesky(K + 1e-6 * np.eye(n)) @ rng.standard_normal(n)
    own = AdditiveGPSettings(time=TimeAxis("matern12", lengthscale_median=30.0))
    belief = AdditiveGP.create(own, graph, Domain(np.zeros(2), np.ones(2)))
    y = outcomes.sum(axis=1) if way == "total" else outcomes
    fitted = belief.update(X, y, rounds=rounds).fit(np.random.default_rng(0))
    paces = [time.lengthscale for time in fitted.hyperparameters.times]
    assert all(3.5 < pace < 14.0 for pace in paces), paces
    assert len(set(paces)) == (1 if way == "total" else 2)
    again = fitted.fit(np.random.default_rng(0), warm=fitted.hyperparameters)
    assert [t.lengthscale for t in again.hyperparameters.times] == pytest.approx(paces, rel=0.1)


def test_bad_input_is_refused():
    X, outcomes, _ = data_of(4)
    with pytest.raises(ShapeError, match=r"rounds: got shape \(3,\) for 4 points; wanted \(4,\)"):
        belief_of().update(X, outcomes, rounds=[1.0, 2.0, 3.0])
    with pytest.raises(ShapeError, match=r"rounds\[1\]: got nan; wanted a finite number of rounds"):
        belief_of().update(X, outcomes, rounds=[1.0, np.nan, 3.0, 4.0])
    with pytest.raises(ShapeError, match=r"rounds\[0\]: got inf"):
        belief_of().at(np.inf)
    with pytest.raises(ConfigError, match="none where a structure is learned"):
        convert({"time": {}, "structure": {"kind": "sampled"}}, AdditiveGPSettings, "$.belief")
    h = belief_of().hyperparameters
    with pytest.raises(ValueError, match="one per factor, or none"):
        msgspec.structs.replace(h, times=(FADE,))
