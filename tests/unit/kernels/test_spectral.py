import copy

import numpy as np
import pytest

from swarmbo.boundary.rng import stream
from swarmbo.kernels import KERNEL_NAMES, FourierDraw, draw, kernel_matrix, spectral_frequencies

LENGTHSCALES = np.array([0.4, 1.1])


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_mean_cosine_of_the_frequencies_is_the_kernel(name):
    # Bochner: E cos(v·x) = c(x); 200 000 draws leave a standard error of at most 0.0016
    v = spectral_frequencies(stream(0, "test"), name, LENGTHSCALES, 200_000)
    X = np.array([[0.1, 0.0], [0.4, 0.0], [0.0, 1.1], [0.3, -0.7], [1.0, 1.0]])
    expected = kernel_matrix(name, X, np.zeros((1, 2)), LENGTHSCALES, 1.0)[:, 0]
    np.testing.assert_allclose(np.cos(X @ v.T).mean(axis=1), expected, atol=0.008)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_covariance_over_many_draws_is_the_kernel(name):
    X = np.array([[0.0, 0.0], [0.2, 0.1], [0.5, -0.4], [1.5, 1.0]])
    rng = stream(1, "test")
    values = np.array([draw(rng, name, LENGTHSCALES, 3.0, n_features=64)(X) for _ in range(6000)])
    K = kernel_matrix(name, X, X, LENGTHSCALES, 3.0)
    np.testing.assert_allclose(values.T @ values / 6000, K, atol=0.3)  # 5 standard errors of 3 sqrt(2 / 6000)
    np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=0.12)


def test_equal_streams_draw_equal_functions_and_copies_stay_equal():
    X = stream(2, "points").uniform(size=(50, 2))
    f = draw(stream(0, "field"), "matern32", LENGTHSCALES, 1.0)
    g = draw(stream(0, "field"), "matern32", LENGTHSCALES, 1.0)
    h = FourierDraw(f.frequencies.copy(), f.sine_weights.copy(), f.cosine_weights.copy())
    for other in (g, h, copy.deepcopy(f)):
        np.testing.assert_array_equal(f(X), other(X))
    assert not np.array_equal(f(X), draw(stream(1, "field"), "matern32", LENGTHSCALES, 1.0)(X))


def test_a_draw_over_more_points_than_a_chunk_equals_the_pieces():
    f = draw(stream(0, "field"), "rbf", LENGTHSCALES, 1.0, n_features=32)
    X = stream(3, "points").uniform(size=(9000, 2))
    np.testing.assert_allclose(f(X), np.concatenate([f(X[:5000]), f(X[5000:])]), rtol=1e-12, atol=1e-12)
    assert f(X[:0]).shape == (0,)
