"""Kernels against formulas, and functions drawn from them against the kernels."""

import copy

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.boundary.rng import stream
from swarmbo.kernels import KERNEL_NAMES, Covariance, FourierDraw, correlation, correlation_and_slope, draw
from swarmbo.kernels.stationary import kernel_matrix, spectral_frequencies

FORMULAS = {
    "matern12": lambda r: np.exp(-r),
    "matern32": lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    "matern52": lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
    "rbf": lambda r: np.exp(-(r**2) / 2),
}
LENGTHSCALES = np.array([0.3, 1.7, 0.8])


def points(n, seed=0):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, size=(n, 3))


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("shape", [(3, 8191), (0, 4), ()])
def test_correlations_of_many_distances_are_those_of_each_and_distances_do_not_change(name, shape):
    r = np.random.default_rng(0).uniform(0.0, 5.0, size=shape)
    given = r.copy()
    expected = [float(correlation(name, one)) for one in r.ravel()[::-31]]  # of every 31st, the last one included
    for found in (correlation(name, r), correlation(name, r.T).T):
        np.testing.assert_allclose(found.ravel()[::-31], expected, rtol=1e-14)
        assert found.shape == shape
    np.testing.assert_array_equal(r, given)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_slope_is_minus_derivative_over_distance(name):
    r, step = np.linspace(0.05, 5.0, 100), 1e-6
    derivative = (correlation(name, r + step) - correlation(name, r - step)) / (2.0 * step)
    np.testing.assert_allclose(correlation_and_slope(name, r)[1], -derivative / r, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_correlations_with_and_without_slopes_are_bit_identical_and_share_no_memory_with_them(name):
    r = np.concatenate([[0.0], np.geomspace(1e-9, 1e4, 200), [np.inf]])
    near, slope = correlation_and_slope(name, r)
    np.testing.assert_array_equal(near, correlation(name, r))
    assert not np.shares_memory(near, slope)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_correlation_and_slope_are_finite_at_zero_and_at_infinity(name):
    ends = np.array([0.0, 1e-300, 1e200, np.inf])
    np.testing.assert_array_equal(correlation(name, ends), [1.0, 1.0, 0.0, 0.0])
    slope = correlation_and_slope(name, ends[[0, 2, 3]])[1]
    np.testing.assert_allclose(slope, [{"matern12": 0.0, "matern32": 3.0, "matern52": 5 / 3, "rbf": 1.0}[name], 0, 0])


def test_equal_points_are_at_distance_exactly_zero_and_close_ones_keep_their_digits():
    X = 1e3 + points(20)
    np.testing.assert_array_equal(kernel_matrix("matern12", X, X, LENGTHSCALES, 1.0).diagonal(), 1.0)
    near = np.array([[1e3, 0.0, 0.0], [1e3 + 2.0**-20, 0.0, 0.0]])
    assert kernel_matrix("matern12", near, near, np.ones(3), 1.0)[0, 1] == np.exp(-(2.0**-20))


def test_the_kernel_of_no_points_is_empty():
    assert kernel_matrix("rbf", np.zeros((0, 3)), points(4), LENGTHSCALES, 2.0).shape == (0, 4)
    assert kernel_matrix("rbf", points(4), np.zeros((0, 3)), LENGTHSCALES, 2.0).shape == (4, 0)


@pytest.mark.parametrize("name", KERNEL_NAMES)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 12), log_scale=st.floats(-3.0, 3.0))
def test_kernel_matrix_is_symmetric_and_positive_semidefinite(name, seed, n, log_scale):
    X = points(n, seed)
    K = kernel_matrix(name, X, X, np.exp(log_scale) * LENGTHSCALES, 1.0)
    np.testing.assert_array_equal(K, K.T)
    assert np.linalg.eigvalsh(K)[0] > -1e-12 * n


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
@pytest.mark.parametrize("time_kernel", KERNEL_NAMES)
def test_over_places_and_rounds_the_covariance_is_the_product(kernel, time_kernel):
    X, Z = points(6) * [1, 1, 9], points(5, seed=1) * [1, 1, 9]
    r = np.hypot(*((X[:, None, j] - Z[None, :, j]) / LENGTHSCALES[j] for j in (0, 1)))
    rounds = np.abs(X[:, None, 2] - Z[None, :, 2]) / LENGTHSCALES[2]
    expected = 2.5 * FORMULAS[kernel](r) * FORMULAS[time_kernel](rounds)
    np.testing.assert_allclose(Covariance(kernel, LENGTHSCALES, 2.5, time_kernel).matrix(X, Z), expected, rtol=1e-12)
    whole = 2.5 * FORMULAS[kernel](np.hypot(r, rounds))  # without a time kernel all coordinates are places
    np.testing.assert_allclose(Covariance(kernel, LENGTHSCALES, 2.5).matrix(X, Z), whole, rtol=1e-12)
    np.testing.assert_allclose(kernel_matrix(kernel, X, Z, LENGTHSCALES, 2.5), whole, rtol=1e-12)


SIDES = np.array([0.4, 1.1])


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_mean_cosine_of_the_frequencies_is_the_kernel(name):
    # Bochner: E cos(v·x) = c(x); 200 000 draws leave a standard error of at most 0.0016
    v = spectral_frequencies(stream(0, "test"), name, SIDES, 200_000)
    X = np.array([[0.1, 0.0], [0.4, 0.0], [0.0, 1.1], [0.3, -0.7], [1.0, 1.0]])
    expected = kernel_matrix(name, X, np.zeros((1, 2)), SIDES, 1.0)[:, 0]
    np.testing.assert_allclose(np.cos(X @ v.T).mean(axis=1), expected, atol=0.008)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_covariance_over_many_draws_is_the_kernel(name):
    X = np.array([[0.0, 0.0], [0.2, 0.1], [0.5, -0.4], [1.5, 1.0]])
    rng = stream(1, "test")
    values = np.array([draw(rng, name, SIDES, 3.0, n_features=64)(X) for _ in range(6000)])
    K = kernel_matrix(name, X, X, SIDES, 3.0)
    np.testing.assert_allclose(values.T @ values / 6000, K, atol=0.3)  # 5 standard errors of 3 sqrt(2 / 6000)
    np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=0.12)


def test_equal_streams_draw_equal_functions_and_copies_stay_equal():
    X = stream(2, "points").uniform(size=(50, 2))
    f = draw(stream(0, "field"), "matern32", SIDES, 1.0)
    g = draw(stream(0, "field"), "matern32", SIDES, 1.0)
    h = FourierDraw(f.frequencies.copy(), f.sine_weights.copy(), f.cosine_weights.copy())
    for other in (g, h, copy.deepcopy(f)):
        np.testing.assert_array_equal(f(X), other(X))
    assert not np.array_equal(f(X), draw(stream(1, "field"), "matern32", SIDES, 1.0)(X))


def test_a_draw_over_more_points_than_a_chunk_equals_the_pieces():
    f = draw(stream(0, "field"), "rbf", SIDES, 1.0, n_features=32)
    X = stream(3, "points").uniform(size=(9000, 2))
    np.testing.assert_allclose(f(X), np.concatenate([f(X[:5000]), f(X[5000:])]), rtol=1e-12, atol=1e-12)
    assert f(X[:0]).shape == (0,)
