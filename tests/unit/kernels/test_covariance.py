"""Separable covariances over space and time, against the formula written out."""

import numpy as np
import pytest

from swarmbo.kernels import KERNEL_NAMES, Covariance

LENGTHSCALES = np.array([0.3, 1.7, 4.0])  # two places, then rounds
FORMULAS = {
    "matern12": lambda r: np.exp(-r),
    "matern32": lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
    "matern52": lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
    "rbf": lambda r: np.exp(-(r**2) / 2),
}


def points(n, seed):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, size=(n, 3)) * [1, 1, 9]


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
@pytest.mark.parametrize("time_kernel", KERNEL_NAMES)
def test_matrix_equals_the_product_entry_by_entry(kernel, time_kernel):
    X, Z = points(6, 0), points(5, 1)
    K = Covariance(kernel, LENGTHSCALES, 2.5, time_kernel).matrix(X, Z)
    for i, x in enumerate(X):
        for j, z in enumerate(Z):
            r = np.hypot((x[0] - z[0]) / 0.3, (x[1] - z[1]) / 1.7)
            expected = 2.5 * FORMULAS[kernel](r) * FORMULAS[time_kernel](abs(x[2] - z[2]) / 4.0)
            assert K[i, j] == pytest.approx(expected, rel=1e-12)


def test_without_a_time_kernel_all_coordinates_are_places():
    X, Z = points(6, 0), points(5, 1)
    r = np.sqrt((((X[:, None] - Z[None]) / LENGTHSCALES) ** 2).sum(axis=2))
    np.testing.assert_allclose(Covariance("rbf", LENGTHSCALES, 2.0).matrix(X, Z), 2 * np.exp(-(r**2) / 2), rtol=1e-12)
