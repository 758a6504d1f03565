"""Against scikit-learn's Gaussian process, with hyper-parameters fixed."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters
from swarmbo.kernels import KERNEL_NAMES
from swarmbo.spaces import Domain

NU = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
LENGTHSCALES, OUTPUTSCALE, NOISE_VARIANCE = (0.2, 0.7, 0.4), 2.3, 1e-3
OFFSET, SCALE, MEAN = 50.0, 8.0, -0.4
DOMAIN = Domain(np.array([-3.0, 0.0, 100.0]), np.array([7.0, 0.5, 400.0]))


def data(n, seed=0):
    rng = np.random.default_rng(seed)
    X = DOMAIN.from_unit(rng.uniform(size=(n, 3)))
    return X, OFFSET + SCALE * (np.sin(X[:, 0]) + 3.0 * X[:, 1] ** 2 + 0.01 * rng.normal(size=n))


def belief_and_oracle(name, n):
    X, y = data(n)
    h = Hyperparameters(name, LENGTHSCALES, OUTPUTSCALE, NOISE_VARIANCE, mean=MEAN, offset=OFFSET, scale=SCALE)
    belief = ExactGP.from_hyperparameters(ExactGPSettings(kernel=name), DOMAIN, h, X[: n // 2], y[: n // 2])
    for i in range(n // 2, n):
        belief = belief.update(X[i : i + 1], y[i : i + 1])
    radial = RBF(LENGTHSCALES) if name == "rbf" else Matern(LENGTHSCALES, nu=NU[name])
    oracle = GaussianProcessRegressor(
        ConstantKernel(OUTPUTSCALE) * radial, alpha=NOISE_VARIANCE, optimizer=None, normalize_y=False
    )
    oracle.fit(DOMAIN.to_unit(X), (y - OFFSET) / SCALE - MEAN)
    return belief, oracle


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("n", [1, 10, 100])
def test_mean_variance_and_covariance_equal_scikit_learns(name, n):
    belief, oracle = belief_and_oracle(name, n)
    X, _ = data(40, seed=1)
    oracle_mean, oracle_cov = oracle.predict(DOMAIN.to_unit(X), return_cov=True)
    mean, var = belief.posterior(X)
    joint_mean, cov = belief.joint_posterior(X)
    for ours in (mean, joint_mean):
        np.testing.assert_allclose((ours - OFFSET) / SCALE - MEAN, oracle_mean, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(cov / SCALE**2, oracle_cov, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(var / SCALE**2, oracle_cov.diagonal(), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("n", [1, 10, 100])
def test_evidence_equals_scikit_learns(name, n):
    belief, oracle = belief_and_oracle(name, n)
    assert belief.log_evidence() == pytest.approx(oracle.log_marginal_likelihood_value_, rel=1e-8, abs=1e-8)
