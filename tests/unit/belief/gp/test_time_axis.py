"""A belief about a field that changes: held to dense formulas, scikit-learn's product kernels, and to forgetting."""

import json

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Hyperparameter, Kernel, Matern

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters, TimeAxis, TimeCorrelation
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.kernels import Covariance
from swarmbo.settings import convert
from swarmbo.spaces import Domain

DOMAIN = Domain(np.array([10.0, -200.0]), np.array([110.0, 100.0]))
SETTINGS = ExactGPSettings(time=TimeAxis(kernel="matern12"))
FADE = TimeCorrelation("matern12", 5.0)
HYPER = Hyperparameters("matern52", (0.3, 0.5), 1.7, 1e-2, mean=0.2, offset=290.0, scale=35.0, time=FADE)


def data(n=25, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([DOMAIN.from_unit(rng.uniform(size=(n, 2))), rng.integers(0, 12, size=n)])
    return X, 300.0 + 40.0 * np.sin(X[:, 0] / 17.0 + X[:, 2] / 4.0) + 0.2 * X[:, 1]


def belief_on(n=25):
    return ExactGP.from_hyperparameters(SETTINGS, DOMAIN, HYPER, *data(n))


class Columns(Kernel):
    """One of scikit-learn's kernels on some columns, so that theirs multiply over space and time."""

    def __init__(self, kernel, columns):
        self.kernel, self.columns = kernel, columns

    def __call__(self, X, Y=None, eval_gradient=False):
        return self.kernel(X[:, self.columns], None if Y is None else Y[:, self.columns])

    def diag(self, X):
        return self.kernel.diag(X[:, self.columns])

    def is_stationary(self):
        return True

    @property
    def hyperparameters(self):
        return list[Hyperparameter]()


def test_posterior_and_evidence_equal_scikit_learns_with_a_product_kernel():
    X, y = data()
    belief = ExactGP.from_hyperparameters(SETTINGS, DOMAIN, HYPER, X[:10], y[:10])
    for i in range(10, 25):
        belief = belief.update(X[i : i + 1], y[i : i + 1])
    kernel = Columns(Matern((0.3, 0.5), nu=2.5), [0, 1]) * Columns(Matern(5.0, nu=0.5), [2])
    oracle = GaussianProcessRegressor(ConstantKernel(1.7) * kernel, alpha=1e-2, optimizer=None)

    def unit(points):
        return np.column_stack([DOMAIN.to_unit(points[:, :2]), points[:, 2]])

    oracle.fit(unit(X), (y - 290.0) / 35.0 - 0.2)
    ahead, _ = data(30, seed=1)
    expected_mean, expected_cov = oracle.predict(unit(ahead), return_cov=True)
    mean, cov = belief.joint_posterior(ahead)
    np.testing.assert_allclose((mean - 290.0) / 35.0 - 0.2, expected_mean, atol=1e-8)
    np.testing.assert_allclose(cov / 35.0**2, expected_cov, atol=1e-8)
    np.testing.assert_allclose(belief.posterior_mean(ahead), mean, rtol=1e-12)
    assert belief.log_evidence() == pytest.approx(oracle.log_marginal_likelihood_value_, rel=1e-8)


def test_points_without_a_moment_are_of_the_beliefs_own():
    belief = belief_on()
    places = data(6, seed=3)[0][:, :2]
    for moment in (0.0, 3.5, 40.0):
        stated = belief.posterior(np.column_stack([places, np.full(6, moment)]))
        np.testing.assert_array_equal(belief.at(moment).posterior(places), stated)
    learned = belief.at(7.0).update(places, np.arange(6.0))
    assert learned.X[-6:, 2].tolist() == [7.0] * 6
    assert belief.at(7.0).condition_on_pending(places).pending_rounds.tolist() == [7.0] * 6
    assert not ExactGP.create(ExactGPSettings(), DOMAIN).has_time
    with pytest.raises(ShapeError, match=r"got shape \(6, 1\); wanted \(m, 2\)"):
        belief.posterior(places[:, :1])


def test_fitting_finds_how_fast_a_field_changes():
    """Truth drawn from the prior itself: the fitted time lengthscale is near that of the draw."""
    rng, settings = np.random.default_rng(2), ExactGPSettings(time=TimeAxis(kernel="matern32"))
    X = np.column_stack([DOMAIN.from_unit(rng.uniform(size=(240, 2))), np.repeat(np.arange(24.0), 10)])
    U = np.column_stack([DOMAIN.to_unit(X[:, :2]), X[:, 2]])
    fitted: list[float] = []
    for lengthscale in (2.0, 30.0):
        K = Covariance("matern52", np.array([0.5, 0.5, lengthscale]), 1.0, "matern32").matrix(U, U)
        y = np.linalg.cholesky(K + 1e-4 * np.eye(240)) @ rng.standard_normal(240)
        h = ExactGP.create(settings, DOMAIN).update(X, y).fit(np.random.default_rng(0)).hyperparameters
        assert h.time is not None
        fitted.append(h.time.lengthscale / lengthscale)
    assert all(0.5 < ratio < 2.0 for ratio in fitted), fitted


def test_a_saved_belief_goes_on_to_the_bit():
    belief = belief_on().at(9.0).fit(np.random.default_rng(0))
    state = belief.state_dict()
    plain = json.loads(json.dumps(state["json"]))
    again = ExactGP.from_state_dict(SETTINGS, DOMAIN, {"json": plain, "arrays": state["arrays"]})
    places = data(9, seed=7)[0][:, :2]
    np.testing.assert_array_equal(again.posterior(places), belief.posterior(places))
    X, y = data(3, seed=8)
    one, other = (b.update(X, y).fit(np.random.default_rng(1)) for b in (belief, again))
    assert one.hyperparameters == other.hyperparameters
    assert one.log_evidence() == other.log_evidence()


def test_wrong_settings_of_the_time_axis_say_where():
    with pytest.raises(ConfigError, match=r"\$\.belief\.time\.lengthscale_median: got 0\.0; wanted a number > 0"):
        convert({"kind": "exact", "time": {"lengthscale_median": 0.0}}, ExactGPSettings, at="$.belief")
    with pytest.raises(ConfigError, match=r"\$\.belief\.time\.kernel: got 'matern33'; .*did you mean 'matern32'"):
        convert({"kind": "exact", "time": {"kernel": "matern33"}}, ExactGPSettings, at="$.belief")
