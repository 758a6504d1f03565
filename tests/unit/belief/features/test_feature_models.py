"""Random-feature models: the recursion is Bayes' rule, whatever the order of operations."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import multivariate_normal

from swarmbo.belief.features.feature_models import FeatureModels


def data(M=3, t=12, p=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((M, t, p)), rng.standard_normal((M, t)), np.exp(rng.uniform(-6.0, 1.0, M))


def one_by_one(rows, y, noise, start=0):
    models = FeatureModels.given(rows[:, :start], y[:, :start], noise)
    for i in range(start, rows.shape[1]):
        models = models.updated(rows[:, i], y[:, i])
    return models


def dense(rows, y, noise):
    """Covariance and mean of the weights by the textbook formula."""
    P = np.eye(rows.shape[1]) + rows.T @ rows / noise
    return np.linalg.inv(P), np.linalg.solve(P, rows.T @ y / noise)


sizes = {"M": st.integers(1, 4), "t": st.integers(1, 25), "p": st.integers(1, 20), "seed": st.integers(0, 2**16)}


@given(**sizes, start=st.integers(0, 25))
def test_the_product_of_predictive_densities_is_the_batch_evidence(M, t, p, seed, start) -> None:
    rows, y, noise = data(M, t, p, seed)
    models = one_by_one(rows, y, noise, min(start, t))
    for m in range(M):
        K = rows[m] @ rows[m].T + noise[m] * np.eye(t)
        wanted = multivariate_normal.logpdf(y[m], np.zeros(t), K)
        assert models.log_evidence[m] == pytest.approx(wanted, rel=1e-8, abs=1e-8)


@given(**sizes)
def test_each_posterior_is_that_of_the_dense_formula(M, t, p, seed) -> None:
    rows, y, noise = data(M, t, p, seed)
    models = one_by_one(rows, y, noise, t // 2)
    Phi = np.random.default_rng(seed + 1).standard_normal((M, 5, p))
    mean, var = models.marginals(Phi)
    for m in range(M):
        covariance, weights = dense(rows[m], y[m], noise[m])
        np.testing.assert_allclose(mean[m], Phi[m] @ weights, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(models.mean(Phi)[m], Phi[m] @ weights, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(var[m], np.diag(Phi[m] @ covariance @ Phi[m].T), rtol=1e-7, atol=1e-7)


def test_a_draw_has_exactly_the_mean_and_covariance_of_the_posterior() -> None:
    # a draw is an affine function of standard normal numbers, so its covariance needs no sampling
    for t in (12, 45):  # the second in fewer rows than data
        rows, y, noise = data(t=t, p=8)
        models = one_by_one(rows, y, noise, 5)
        n = models.n_rows
        for m in range(3):
            mean = models.draw(m, np.zeros(8), np.zeros(n))
            linear = [models.draw(m, e[:8], e[8:]) - mean for e in np.eye(8 + n)]
            covariance, weights = dense(rows[m], y[m], noise[m])
            np.testing.assert_allclose(mean, weights, atol=1e-10)
            np.testing.assert_allclose(np.array(linear).T @ np.array(linear), covariance, atol=1e-10)


@given(st.integers(1, 9), st.integers(0, 60), st.integers(0, 60))
def test_rows_stay_below_twice_the_features_however_the_data_came(p, first, later) -> None:
    rows, y, noise = data(M=2, t=first + later, p=p, seed=first)
    models = one_by_one(rows, y, noise, first)
    assert models.n_rows < 2 * p
    assert models.n_rows == first + later or models.n_rows >= p
    for m in range(2):
        mean = models.draw(m, np.zeros(p), np.zeros(models.n_rows))
        np.testing.assert_allclose(mean, dense(rows[m], y[m], noise[m])[1], rtol=1e-6, atol=1e-7)


def test_without_data_all_is_as_the_prior_says() -> None:
    models = FeatureModels.given(np.zeros((2, 0, 3)), np.zeros((2, 0)), np.ones(2))
    Phi, prior = np.ones((2, 1, 3)), np.array([1.0, 2.0, 3.0])
    mean, var = models.marginals(Phi)
    assert mean.tolist() == [[0.0], [0.0]]
    assert var.tolist() == [[3.0], [3.0]]
    assert models.draw(0, prior, np.zeros(0)).tolist() == prior.tolist()
    assert models.log_evidence.tolist() == [0.0, 0.0]


def test_what_is_pending_lowers_the_variance_as_if_it_was_known_and_changes_nothing_else() -> None:
    rows, y, noise = data(t=9)
    told, Phi = one_by_one(rows[:, :8], y[:, :8], noise), np.random.default_rng(5).standard_normal((3, 4, 8))
    waiting, known = told.awaiting(rows[:, 8]), told.updated(rows[:, 8], y[:, 8])
    np.testing.assert_allclose(waiting.marginals(Phi)[0], told.marginals(Phi)[0], atol=1e-12)
    np.testing.assert_allclose(waiting.marginals(Phi)[1], known.marginals(Phi)[1], atol=1e-12)
    assert waiting.log_evidence.tolist() == told.log_evidence.tolist()
    prior, e = np.ones(8), np.ones(8)
    assert waiting.draw(1, prior, e).tolist() == told.draw(1, prior, e).tolist()


def test_models_that_go_on_from_one_another_do_not_disturb_each_other() -> None:
    rows, y, noise = data(t=60, p=31)
    base = one_by_one(rows[:, :30], y[:, :30], noise)
    left, right = base, base
    for i in range(30, 60):  # alternately, through more than one enlargement of the room
        left, right = left.updated(rows[:, i], y[:, i]), right.updated(rows[:, 90 - i - 1], -y[:, i])
    for branch, order, sign in ((left, range(30, 60), 1.0), (right, range(59, 29, -1), -1.0)):
        alone = one_by_one(rows[:, :30], y[:, :30], noise)
        for i, j in zip(order, range(30, 60), strict=True):
            alone = alone.updated(rows[:, i], sign * y[:, j])
        assert branch.log_evidence.tolist() == alone.log_evidence.tolist()
        assert branch.draw(2, np.ones(31), np.ones(60)).tolist() == alone.draw(2, np.ones(31), np.ones(60)).tolist()


def test_the_same_datum_many_times_over_stays_sound() -> None:
    rows, noise = np.repeat(data(t=1, p=4)[0], 300, axis=1), np.full(3, 1e-6)
    models = one_by_one(rows, np.full((3, 300), 2.0), noise)
    mean, var = models.marginals(rows[:, :1])
    np.testing.assert_allclose(mean, 2.0, rtol=1e-6)
    assert (var >= 0.0).all()
    assert np.isfinite(models.log_evidence).all()
