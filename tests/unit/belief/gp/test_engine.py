"""What the engine says of fields and of sums alike."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from swarmbo.belief import AdditiveGP, ExactGP, ExactGPSettings, Hyperparameters, TimeCorrelation
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.spaces import Domain

BOX = Domain(np.array([10.0, -200.0]), np.array([110.0, 100.0]))
FIELD = Hyperparameters("matern52", (0.3, 0.5), 1.7, 1e-3, mean=0.2, offset=290.0, scale=35.0)
GRAPH = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["x"]})


def points(n, seed=0):
    return BOX.from_unit(np.random.default_rng(seed).random((n, 2)))


def outcomes(X):
    return 300.0 + 40.0 * np.sin(X[:, 0] / 17.0) + 0.2 * X[:, 1]


def field_of(X, y, noise=None, h=FIELD):
    return ExactGP.from_hyperparameters(ExactGPSettings(), BOX, h, X, y, noise)


def sum_of(way, n=9, seed=3):
    rng = np.random.default_rng(seed)
    X, F = rng.random((n, 3)), rng.normal(size=(n, 3))
    belief = AdditiveGP(GRAPH, lengthscale=0.6, outputscale={"f": 1.0, "g": 2.0, "h": 0.5}, noise_variance=1e-2)
    if way == "factors":
        return belief.update(X, F)
    if way == "mixed":
        belief = belief.update(X[:4], F[:4])
    return belief.update(X, F.sum(axis=1))


@pytest.mark.parametrize("steps", [[25], [10, 1, 14]])
def test_noise_by_row_equals_scikit_learns_alpha(steps):
    X, noise = points(25), np.random.default_rng(1).uniform(1.0, 400.0, 25)
    noise[::4] = np.nan  # theirs is the fitted one
    y = outcomes(X) + np.sqrt(np.nan_to_num(noise)) * np.random.default_rng(2).normal(size=25)
    belief, done = field_of(X[:0], y[:0]), 0
    for step in steps:
        rows = slice(done, done + step)
        belief, done = belief.update(X[rows], y[rows], noise[rows]), done + step
    kernel = ConstantKernel(1.7) * Matern([0.3, 0.5], nu=2.5)
    reference = GaussianProcessRegressor(kernel, alpha=np.where(np.isnan(noise), 1e-3, noise / 35.0**2), optimizer=None)
    reference.fit(BOX.to_unit(X), (y - 290.0) / 35.0 - 0.2)
    places = points(8, seed=5)
    mean, cov = reference.predict(BOX.to_unit(places), return_cov=True)
    got_mean, got_cov = belief.joint_posterior(places)
    np.testing.assert_allclose(got_mean, 290.0 + 35.0 * (0.2 + mean), rtol=1e-9)
    np.testing.assert_allclose(got_cov, 35.0**2 * cov, rtol=1e-7, atol=1e-7)
    assert belief.log_evidence() == pytest.approx(reference.log_marginal_likelihood_value_, rel=1e-9)


def test_a_fit_does_not_take_known_noise_for_noise_of_the_field():
    rng, X = np.random.default_rng(0), points(80)
    noise = np.where(np.arange(80) % 2, 30.0**2, np.nan)
    y = outcomes(X) + np.sqrt(np.nan_to_num(noise)) * rng.normal(size=80)
    empty = ExactGP.create(ExactGPSettings(), BOX)
    told, untold = (empty.update(X, y, known).fit(np.random.default_rng(0)) for known in (noise, None))
    assert told.noise_variance < 0.01 * untold.noise_variance
    places = points(200, seed=9)
    errors = [np.abs(belief.posterior_mean(places) - outcomes(places)).mean() for belief in (told, untold)]
    assert errors[0] < 0.5 * errors[1]


def test_noise_that_is_none_is_refused_with_its_row():
    with pytest.raises(ShapeError, match=r"noise_variance\[1\]: got -1.0; wanted a finite number >= 0, or NaN for the"):
        field_of(points(2), np.zeros(2), [0.0, -1.0])
    with pytest.raises(ShapeError, match=r"noise_variance\[0\]\[2\]: got inf; wanted a finite number >= 0"):
        sum_of("total").update(points_of_sum(1), np.zeros((1, 3)), noise_variance=[[0.0, 1.0, np.inf]])
    with pytest.raises(ShapeError, match=r"got shape \(3,\) for 2 points; wanted \(2,\), \(2, 3\) or \(2, 4\)"):
        sum_of("total").update(points_of_sum(2), np.zeros(2), noise_variance=[0.0, 1.0, 2.0])


def points_of_sum(n):
    return np.random.default_rng(0).random((n, 3))


def test_a_reading_of_known_noise_weighs_as_many_of_the_fitted_noise_as_it_is_quieter():
    """m readings of one place and outcome, of noise variance s: the same posterior as one of s / m."""
    X, y, places, s = points(6), outcomes(points(6)), points(5, seed=3), FIELD.noise_variance * FIELD.scale**2
    empty = field_of(X[:0], y[:0])
    thrice = empty.update(np.repeat(X[:1], 3, axis=0), np.repeat(y[:1], 3)).update(X[1:], y[1:])
    once = empty.update(X, y, [s / 3.0, *[np.nan] * 5])
    for a, b in zip(once.joint_posterior(places), thrice.joint_posterior(places), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-6)


def test_noise_ahead_is_that_of_readings_on_average_where_all_are_told():
    X, noise = points(30), np.where(np.arange(30) % 2, 4.0, 16.0)
    y = outcomes(X) + np.sqrt(noise) * np.random.default_rng(5).normal(size=30)
    belief = ExactGP.create(ExactGPSettings(), BOX).update(X, y, noise).fit(np.random.default_rng(0))
    assert belief.noise_variance == pytest.approx(10.0)
    again = ExactGP.from_state_dict(ExactGPSettings(), BOX, belief.state_dict())
    for a, b in zip(again.joint_posterior(X[:3]), belief.joint_posterior(X[:3]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_outcomes_that_are_told_to_be_exact_are_learned_without_jitter():
    X = np.repeat(points(8), 2, axis=0)
    belief = field_of(X, outcomes(X), 0.0)
    assert belief.jitter == 0.0
    np.testing.assert_allclose(belief.posterior_mean(X), outcomes(X), atol=0.01)


@pytest.mark.parametrize("time", [None, TimeCorrelation("matern32", 6.0)])
def test_a_total_to_come_ties_factors_that_were_told_apart(time):
    """Variances are those of the total being told, whatever it is, also in a later round and of points one by one."""
    rng = np.random.default_rng(3)
    X, F, ahead, places = rng.random((9, 3)), rng.normal(size=(9, 3)), rng.random((2, 3)), rng.random((6, 3))
    known = AdditiveGP(
        GRAPH, lengthscale=0.6, outputscale={"f": 1.0, "g": 2.0, "h": 0.5}, noise_variance=1e-2, time=time
    )
    known = known.update(X, factors=F, rounds=np.arange(9.0))
    told = known.update(ahead, np.zeros(2), rounds=[9.0, 10.0])
    waiting = known.condition_on_pending(ahead[:1], rounds=9.0).condition_on_pending(ahead[1:], rounds=10.0)
    assert waiting.is_coupled
    assert not known.is_coupled
    for one, other in ((waiting, told), (waiting.at(12.0), told.at(12.0))):
        np.testing.assert_allclose(
            one.joint_posterior(places)[1], other.joint_posterior(places)[1], rtol=1e-6, atol=1e-9
        )
        for factor, columns in (("f", [0, 1]), ("h", [0])):
            found, wanted = (each.factor_posterior(factor, places[:, columns])[1] for each in (one, other))
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("way", ["total", "factors", "mixed"])
def test_covariances_between_subsets_are_those_of_all_points(way):
    belief, X = sum_of(way), np.random.default_rng(8).random((7, 3))
    cache, cov = belief.posterior_cache(X), belief.joint_posterior(X)[1]
    rows, columns = np.array([0, 3, 6]), np.array([5, 3])
    np.testing.assert_allclose(cache.cov(rows, columns), cov[np.ix_(rows, columns)], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(cache.var, cov.diagonal(), rtol=1e-9)
    np.testing.assert_array_equal(cache.mean, belief.joint_posterior(X)[0])


def test_points_pending_one_after_the_other_survive_saving_to_the_bit():
    belief, places = field_of(points(20), outcomes(points(20))), points(6, seed=5)
    for place in points(4, seed=6):
        belief = belief.condition_on_pending(place[None])
    restored = ExactGP.from_state_dict(ExactGPSettings(), BOX, belief.state_dict())
    for a, b in zip(restored.joint_posterior(places), belief.joint_posterior(places), strict=True):
        np.testing.assert_array_equal(a, b)
    more = points(1, seed=7)
    np.testing.assert_array_equal(
        restored.condition_on_pending(more).posterior(places)[1], belief.condition_on_pending(more).posterior(places)[1]
    )
