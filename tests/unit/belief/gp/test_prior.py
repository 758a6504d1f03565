import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal, norm

from swarmbo.belief import ExactGPSettings
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.spaces import Domain

SQUARE = Domain(np.zeros(2), np.ones(2))
MODELS = ("shared", "hierarchical", "separate")


@pytest.mark.parametrize("model", MODELS)
def test_log_density_is_the_normal_one_up_to_a_constant_and_pack_inverts_unpack(model):
    prior = HyperparameterPrior.of_field(ExactGPSettings(lengthscales=model), SQUARE)
    rng = np.random.default_rng(0)
    a, b = (prior.centre + rng.normal(size=prior.centre.size) for _ in range(2))
    normal = multivariate_normal(prior.centre, np.linalg.inv(prior.precision))
    expected = normal.logpdf(a) - normal.logpdf(b)
    assert prior.log_density(a)[0] - prior.log_density(b)[0] == pytest.approx(expected)
    numeric = approx_fprime(a, lambda t: prior.log_density(t)[0], 1e-7)
    np.testing.assert_allclose(prior.log_density(a)[1], numeric, rtol=1e-5, atol=1e-5)
    theta = prior.sample(rng)
    np.testing.assert_allclose(prior.pack(*prior.unpack(theta)), theta, atol=1e-12)


def test_hierarchical_density_is_the_maximum_over_the_common_lengthscale():
    settings = ExactGPSettings(lengthscales="hierarchical")
    prior = HyperparameterPrior.of_field(settings, SQUARE)
    grid = np.linspace(-8.0, 6.0, 200_001)

    def by_search(log_lengthscales):
        common = norm.logpdf(grid, prior.centre[0], settings.lengthscale_log_std)
        deviations = sum(norm.logpdf(value, grid, settings.deviation_log_std) for value in log_lengthscales)
        return float((common + deviations).max())

    first, second = np.array([-1.0, -2.1]), np.array([0.4, -0.3])
    rest = prior.centre[2:]
    difference = prior.log_density(np.append(first, rest))[0] - prior.log_density(np.append(second, rest))[0]
    assert difference == pytest.approx(by_search(first) - by_search(second), abs=1e-6)


def test_pack_moves_what_lies_outside_to_the_bounds():
    prior = HyperparameterPrior.of_field(ExactGPSettings(noise_floor=1e-5), SQUARE)
    theta = prior.pack(np.array([1e-9, 1e9]), np.array([1e12]), np.zeros(1))
    lengthscales, (outputscale,), (noise,) = prior.unpack(theta)
    assert lengthscales == pytest.approx([5e-3, 100.0])
    assert (outputscale, noise) == pytest.approx((1e3, 1e-5))


@pytest.mark.parametrize("model", MODELS)
def test_equal_physical_lengths_centre_the_prior_on_an_isotropic_field(model):
    domain = Domain(np.zeros(2), np.array([2000.0, 500.0]))
    prior = HyperparameterPrior.of_field(ExactGPSettings(lengthscales=model, equal_in="physical"), domain)
    lengthscales, _, _ = prior.unpack(prior.centre)
    assert lengthscales * (domain.high - domain.low) == pytest.approx([0.15 * np.sqrt(2) * 2000.0] * 2)
    by_side = HyperparameterPrior.of_field(ExactGPSettings(lengthscales=model), domain)
    assert by_side.unpack(by_side.centre)[0] == pytest.approx([0.15 * np.sqrt(2)] * 2)


def test_samples_follow_the_prior():
    prior = HyperparameterPrior.of_field(ExactGPSettings(), SQUARE)
    rng = np.random.default_rng(0)
    thetas = np.array([prior.sample(rng) for _ in range(4000)])
    np.testing.assert_allclose(thetas.mean(axis=0), prior.centre, atol=0.1)
    np.testing.assert_allclose(np.cov(thetas.T), np.linalg.inv(prior.precision), atol=0.15)


def test_the_default_lengthscale_prior_covers_a_square_map_as_documented():
    settings = ExactGPSettings()
    spread = np.exp(np.array([-1.96, 1.96]) * settings.lengthscale_log_std)
    low, high = np.sqrt(2) * settings.lengthscale_median * spread
    assert (low, high) == pytest.approx((0.05, 0.84), abs=0.01)
