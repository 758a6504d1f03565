"""A sum of processes that changes: held to dense formulas, scikit-learn's kernels and the exact belief."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
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
from swarmbo.belief.gp.additive_settings import regrouped
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import kernel_matrix
from swarmbo.settings import convert
from swarmbo.spaces import Domain

from .dense import dense_posterior, with_own

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


def told(factors, way, rng):
    """Totals and outcomes by factor of which some are not known."""
    if way == "total":
        return factors.sum(axis=1), np.full(factors.shape, np.nan)
    if way == "per-factor":
        return None, np.where(rng.random(factors.shape) < 0.2, np.nan, factors)
    totals = np.where(rng.random(len(factors)) < 0.5, factors.sum(axis=1), np.nan)
    return totals, np.where(rng.random(factors.shape) < 0.5, factors, np.nan)


def assert_factors_are_dense(belief, Z):
    means, cov = dense_posterior(belief, Z)
    for i, factor in enumerate(GRAPH.factors):
        mean, var = belief.factor_posterior(factor, Z[:, list(COLUMNS[i])])
        np.testing.assert_allclose(mean, means[i], atol=1e-8)
        np.testing.assert_allclose(var, np.diag(cov[i, :, i]), atol=1e-8)
    return means.sum(axis=0), cov.sum(axis=(0, 2))


@given(
    way=st.sampled_from(["total", "per-factor", "mixed"]),
    now=st.floats(-3.0, 40.0),
    seed=st.integers(0, 1000),
    n=st.integers(2, 14),
)
def test_posterior_equals_the_dense_formula_at_any_moment_and_however_it_was_told(way, now, seed, n):
    X, outcomes, rounds = data_of(n, seed)
    totals, factors = told(outcomes, way, np.random.default_rng(seed + 1))
    belief, half = belief_of(), n // 2
    for part in (slice(0, half), slice(half, None)):  # learned at different rounds of the belief's own
        rest = None if totals is None else totals[part]
        belief = belief.at(seed % 7).update(X[part], totals=rest, factors=factors[part], rounds=rounds[part])
    belief = belief.at(now)
    np.testing.assert_array_equal(belief.rounds, rounds)
    Z = np.random.default_rng(5).random((6, 3))
    mean, cov = belief.joint_posterior(Z)
    expected_mean, expected_cov = assert_factors_are_dense(belief, Z)
    np.testing.assert_allclose(mean, expected_mean, atol=1e-8)
    np.testing.assert_allclose(cov, expected_cov, atol=1e-8)
    np.testing.assert_allclose(belief.posterior(Z), [expected_mean, np.diag(expected_cov)], atol=1e-8)


@pytest.mark.parametrize("way", ["total", "per-factor", "mixed"])
def test_every_factor_fades_at_its_own_pace(way):
    X, outcomes, rounds = data_of(9)
    totals, factors = told(outcomes, way, np.random.default_rng(1))
    own, belief = tuple(TimeCorrelation("matern12", pace) for pace in (1.5, 6.0, 25.0)), belief_of()
    belief = belief.with_hyperparameters(msgspec.structs.replace(belief.hyperparameters, times=own))
    belief = belief.update(X, totals=totals, factors=factors, rounds=rounds).at(18.0)
    assert_factors_are_dense(belief, np.random.default_rng(5).random((6, 3)))


def test_one_factor_equals_the_exact_belief_and_has_the_evidence_of_scikit_learns_kernels():
    graph, domain = FactorGraph.from_scopes({"f": ["a", "b"]}), Domain(np.zeros(2), np.ones(2))
    X, outcomes, rounds = data_of(18)
    X, y, Z = X[:, :2], outcomes[:, 0], np.random.default_rng(9).random((7, 2))
    belief = AdditiveGP(graph, lengthscale=0.4, noise_variance=NOISE, time=FADE).update(X, y, rounds=rounds).at(11.0)
    h = Hyperparameters("matern52", (0.4, 0.4), 1.0, NOISE, time=FADE)
    field = ExactGP.from_hyperparameters(
        ExactGPSettings(time=TimeAxis("matern12")), domain, h, np.column_stack([X, rounds]), y
    ).at(11.0)
    np.testing.assert_allclose(belief.joint_posterior(Z)[1], field.joint_posterior(Z)[1], atol=1e-9)
    np.testing.assert_allclose(belief.posterior(Z), field.posterior(Z), atol=1e-8)
    assert belief.log_evidence() == pytest.approx(field.log_evidence(), rel=1e-10)
    gram = Matern((0.4, 0.4), nu=2.5)(X) * Matern(PACE, nu=0.5)(rounds[:, None]) + NOISE * np.eye(18)
    assert belief.log_evidence() == pytest.approx(multivariate_normal(cov=gram).logpdf(y), rel=1e-9)


def test_a_belief_without_a_time_axis_knows_no_moments():
    X, outcomes, rounds = data_of(8)
    still = AdditiveGP(GRAPH, lengthscale=0.4)
    assert still.at(9.0) is still
    np.testing.assert_array_equal(
        still.update(X, outcomes, rounds=rounds).posterior(X), still.update(X, outcomes).posterior(X)
    )


@pytest.mark.parametrize("way", ["total", "per-factor"])
def test_pending_points_keep_their_moment_as_outcomes_do(way):
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
def test_a_fit_finds_how_fast_outcomes_fade(way):
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


def test_another_decomposition_keeps_paces():
    other = FactorGraph.from_scopes({"f": ["a", "b"], "rest": ["c"]})
    belief = belief_of()
    times = regrouped(belief.hyperparameters, belief.graph, other, {0: 0}, "rbf").times
    assert [time.lengthscale for time in times] == pytest.approx([PACE, PACE])


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
