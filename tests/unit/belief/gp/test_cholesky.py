import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.belief.gp.cholesky import extend, factorise, root_of, solve_lower, solve_rows
from swarmbo.kernels import kernel_matrix


def covariance(X, noise_variance=1e-4):
    return kernel_matrix("matern52", X, X, np.array([0.2, 0.3]), 1.0) + noise_variance * np.eye(len(X))


def test_five_hundred_single_appends_equal_one_fresh_factor():
    K = covariance(np.random.default_rng(0).uniform(size=(500, 2)))
    L = np.zeros((0, 0))
    for n in range(500):
        L, jitter = extend(L, K[n : n + 1, :n], K[n : n + 1, n : n + 1])
        assert jitter == 0.0
    np.testing.assert_allclose(L, np.linalg.cholesky(K), rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(L @ L.T, K, rtol=0.0, atol=1e-13)
    np.testing.assert_array_equal(np.triu(L, 1), 0.0)


@given(seed=st.integers(0, 10_000), sizes=st.lists(st.integers(0, 7), min_size=1, max_size=6))
def test_appends_of_any_block_sizes_equal_a_fresh_factor(seed, sizes):
    K = covariance(np.random.default_rng(seed).uniform(size=(sum(sizes), 2)))
    L, n = np.zeros((0, 0)), 0
    for k in sizes:
        L, _ = extend(L, K[n : n + k, :n], K[n : n + k, n : n + k])
        n += k
    np.testing.assert_allclose(L, np.linalg.cholesky(K), rtol=0.0, atol=1e-10)


def test_jitter_for_duplicates_without_noise_is_returned_and_explains_the_factor():
    X = np.repeat(np.random.default_rng(0).uniform(size=(4, 2)), 3, axis=0)
    K = covariance(X, noise_variance=0.0)
    L, jitters = np.zeros((0, 0)), []
    for n in range(12):
        L, jitter = extend(L, K[n : n + 1, :n], K[n : n + 1, n : n + 1])
        jitters.append(jitter)
    assert [jitter > 0.0 for jitter in jitters] == [False, True, True] * 4
    assert max(jitters) < 1e-12
    np.testing.assert_allclose(L @ L.T, K + np.diag(jitters), rtol=0.0, atol=1e-14)


def test_a_block_that_repeats_old_points_and_itself_gets_one_jitter():
    X = np.random.default_rng(0).uniform(size=(5, 2))
    X = np.concatenate([X, X[:2], X[:2]])
    K = covariance(X, noise_variance=0.0)
    first, _ = factorise(K[:5, :5])
    L, jitter = extend(first, K[5:, :5], K[5:, 5:])
    assert 0.0 < jitter < 1e-11
    np.testing.assert_allclose(L @ L.T, K + np.diag([0.0] * 5 + [jitter] * 4), rtol=0.0, atol=1e-13)


def test_a_singular_matrix_is_factorised_with_jitter_and_a_sound_one_without():
    L, jitter = factorise(np.ones((6, 6)))
    assert 0.0 < jitter < 1e-12
    np.testing.assert_allclose(L @ L.T, 1.0 + jitter * np.eye(6), rtol=0.0, atol=1e-15)
    assert factorise(covariance(np.random.default_rng(0).uniform(size=(6, 2))))[1] == 0.0


@pytest.mark.parametrize("bad", [np.diag([1.0, -1.0]), np.array([[1.0, np.nan], [np.nan, 1.0]])])
def test_matrices_that_are_not_covariances_are_refused(bad):
    with pytest.raises(ValueError, match="covariance matrix"):
        factorise(bad)


@pytest.mark.parametrize("lowest", [0.5, 1e-9, -1e-9, -0.02])
def test_the_error_of_a_root_is_of_the_size_of_negative_eigenvalues(lowest):
    axes, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
    C = axes @ np.diag([1.0, 0.7, lowest]) @ axes.T
    R = root_of(C)
    assert np.isfinite(np.linalg.inv(R)).all()
    np.testing.assert_allclose(R @ R.T, C, rtol=0.0, atol=max(-2.1 * lowest, 1e-8))
    np.testing.assert_array_equal(root_of(np.zeros((2, 2))), 0.0)


def test_triangular_solves_equal_the_dense_solution():
    rng = np.random.default_rng(0)
    L, _ = factorise(covariance(rng.uniform(size=(9, 2))))
    for B in (rng.normal(size=9), rng.normal(size=(9, 4)), np.zeros((9, 0))):
        np.testing.assert_allclose(L @ solve_lower(L, B), B, atol=1e-12)
        if B.ndim == 2:
            np.testing.assert_allclose(solve_rows(L, B.T.copy()) @ L.T, B.T, atol=1e-12)
        np.testing.assert_allclose(L.T @ solve_lower(L, B, transposed=True), B, atol=1e-12)
