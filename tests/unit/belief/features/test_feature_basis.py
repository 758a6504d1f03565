import numpy as np
import pytest

from swarmbo.belief.features.feature_gp import FeatureBasis
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.kernels import KERNEL_NAMES, kernel_matrix

LENGTHSCALES = np.array([0.3, 0.8])
U = stream(0, "points").random((12, 2))


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_products_of_features_are_the_kernel(kernel):
    basis = FeatureBasis.create(1, kernel, LENGTHSCALES, 2.5, n_features=40_000)
    Phi = basis.features(U)
    # standard error of one entry: at most 2.5 / sqrt(40 000) = 0.0125
    np.testing.assert_allclose(Phi @ Phi.T, kernel_matrix(kernel, U, U, LENGTHSCALES, 2.5), atol=0.06)


@pytest.mark.parametrize("lengthscale", [1e-4, 1.0, 1e6])
def test_the_variance_is_the_outputscale_everywhere(lengthscale):
    basis = FeatureBasis.create(1, "matern12", np.full(2, lengthscale), 2.5, n_features=50)
    np.testing.assert_allclose((basis.features(U) ** 2).sum(axis=1), 2.5, rtol=1e-12)


def test_equal_arguments_give_equal_bases_which_cannot_be_changed():
    first = FeatureBasis.create(3, "rbf", LENGTHSCALES, 1.0, n_features=16)
    second = FeatureBasis.create(3, "rbf", LENGTHSCALES.copy(), 1.0, n_features=16)
    np.testing.assert_array_equal(first.features(U), second.features(U))
    other = FeatureBasis.create(4, "rbf", LENGTHSCALES, 1.0, n_features=16)
    assert not np.array_equal(first.features(U), other.features(U))
    with pytest.raises(ValueError, match="read-only"):
        first.frequencies[0, 0] = 0.0


def test_another_lengthscale_stretches_the_basis():
    narrow = FeatureBasis.create(3, "matern32", LENGTHSCALES, 1.0, n_features=16)
    wide = FeatureBasis.create(3, "matern32", 2.0 * LENGTHSCALES, 1.0, n_features=16)
    np.testing.assert_allclose(wide.features(2.0 * U), narrow.features(U), atol=1e-12)


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"n_features": 7}, "n_features"),
        ({"n_features": 0}, "n_features"),
        ({"n_features": 2**20}, "n_features"),
        ({"seed": -1}, "seed"),
        ({"kernel": "none such"}, "kernel"),
    ],
)
def test_what_is_out_of_range_is_refused_with_the_place(change, at):
    arguments = {"seed": 0, "kernel": "rbf", "lengthscales": LENGTHSCALES, "outputscale": 1.0, "n_features": 8}
    with pytest.raises(ConfigError, match=rf"^\$\.{at}: "):
        FeatureBasis.create(**(arguments | change))


def test_over_places_and_times_products_of_features_are_the_product_of_the_kernels():
    basis = FeatureBasis.create(1, "matern52", LENGTHSCALES, 2.5, n_features=40_000, time=("matern12", 6.0))
    rounds = stream(0, "rounds").uniform(0.0, 20.0, (12, 1))
    Phi = basis.features(np.hstack([U, rounds]))
    over_places = kernel_matrix("matern52", U, U, LENGTHSCALES, 2.5)
    over_times = kernel_matrix("matern12", rounds, rounds, np.array([6.0]), 1.0)
    np.testing.assert_allclose(Phi @ Phi.T, over_places * over_times, atol=0.06)
