import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters, TimeCorrelation
from swarmbo.belief.features.feature_gp import FeatureBasis, FeatureGP, Information, information_of, packed_size
from swarmbo.belief.fusion import Proposal
from swarmbo.boundary.rng import stream
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain

DOMAIN = Domain(np.array([0.0, -10.0]), np.array([100.0, 30.0]))
H = Hyperparameters("matern52", (0.3, 0.5), 1.3, 0.05, 0.2, 7.0, 3.0)
RNG = stream(0, "data")
X = DOMAIN.from_unit(RNG.random((15, 2)))
y = 7.0 + 3.0 * np.sin(X[:, 0] / 20.0) + 0.5 * RNG.standard_normal(15)
PLACES = DOMAIN.from_unit(RNG.random((9, 2)))


def belief(n_features=30, rows=slice(None)):
    basis = FeatureBasis.create(0, H.kernel, np.array(H.lengthscales), H.outputscale, n_features)
    z = (y[rows] - H.offset) / H.scale - H.mean
    information = Information.of(basis.features(DOMAIN.to_unit(X[rows])), z, H.noise_variance)
    return FeatureGP(domain=DOMAIN, hyperparameters=H, basis=basis, information=information)


def function_space(gp, at):
    """Mean and covariance as a Gaussian process whose kernel is the features' product."""
    Phi, there = gp.basis.features(DOMAIN.to_unit(X)), gp.basis.features(DOMAIN.to_unit(at))
    K = Phi @ Phi.T + H.noise_variance * np.eye(15)
    z = (y - H.offset) / H.scale - H.mean
    mean = H.offset + H.scale * (H.mean + there @ Phi.T @ np.linalg.solve(K, z))
    return mean, H.scale**2 * (there @ there.T - there @ Phi.T @ np.linalg.solve(K, Phi @ there.T))


def test_posterior_is_that_of_the_function_space():
    gp, everything = belief(), np.arange(len(PLACES))
    mean, cov = function_space(gp, PLACES)
    by_cache = (gp.posterior_mean(PLACES), gp.posterior_cache(PLACES).cov(everything, everything))
    for got in (gp.joint_posterior(PLACES), by_cache):
        np.testing.assert_allclose(got[0], mean, rtol=1e-9)
        np.testing.assert_allclose(got[1], cov, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(gp.posterior(PLACES), (mean, np.diag(cov)), rtol=1e-8)


def test_with_many_features_it_is_the_exact_process():
    exact = ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, H, X, y)
    gp = belief(n_features=3000)
    mean, var = exact.posterior(PLACES)
    got_mean, got_var = gp.posterior(PLACES)
    np.testing.assert_allclose(got_mean, mean, atol=0.15 * 3.0)  # features: about sqrt(1 / 3000) of each covariance
    np.testing.assert_allclose(got_var, var, atol=0.1 * 9.0)
    assert (gp.noise_variance, gp.prior_variance) == (exact.noise_variance, exact.prior_variance)
    assert gp.n_data == exact.n_data


def test_points_pending_take_variance_and_leave_the_mean():
    gp = belief(rows=slice(0, 10))
    pending = gp.condition_on_pending(X[10:12]).condition_on_pending(X[12:])
    assert gp.condition_on_pending(X[:0]) is gp
    np.testing.assert_allclose(pending.posterior_mean(PLACES), gp.posterior_mean(PLACES), rtol=1e-12)
    np.testing.assert_allclose(pending.posterior(PLACES)[1], belief().posterior(PLACES)[1], rtol=1e-9)
    assert (pending.posterior(PLACES)[1] < gp.posterior(PLACES)[1]).all()


@given(st.integers(0, 15))
@settings(max_examples=10, deadline=None)
def test_parts_add_up_to_the_whole_and_survive_packing(cut):
    whole, first, second = (belief(rows=rows).information for rows in (slice(None), slice(0, cut), slice(cut, 15)))
    total = first + Information.unpacked(second.packed(), 30)
    np.testing.assert_allclose(total.packed(), whole.packed(), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(total.precision, total.precision.T)
    np.testing.assert_allclose((whole.scaled(0.25) + whole.scaled(0.75)).packed(), whole.packed())
    np.testing.assert_allclose((whole + Information.none(30)).packed(), whole.packed())
    assert len(whole.packed()) == packed_size(30) == 1 + 30 + 15 * 31


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(ShapeError, match=r"wanted \(496,\) for 30 features"):
        Information.unpacked(np.zeros(7), 30)


def test_with_a_time_axis_data_fade_as_those_of_the_exact_process():
    fading = msgspec.structs.replace(H, time=TimeCorrelation("matern32", 8.0))
    rounds = np.linspace(0.0, 14.0, 15)[:, None]
    basis = Proposal(0, "", fading, 0, 2000).basis
    known = information_of(basis, fading, DOMAIN, np.hstack([X, rounds]), y)
    gp = FeatureGP(domain=DOMAIN, hyperparameters=fading, basis=basis, information=known)
    exact = ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, fading, np.hstack([X, rounds]), y)
    for moment in (14.0, 30.0, 200.0):
        got, wanted = gp.at(moment).posterior(PLACES), exact.at(moment).posterior(PLACES)
        np.testing.assert_allclose(got[0], wanted[0], atol=0.15 * 3.0)
        np.testing.assert_allclose(got[1], wanted[1], atol=0.1 * 9.0)
    np.testing.assert_allclose(got[1], gp.prior_variance, rtol=0.05)  # long ago tells nothing
    now = gp.at(14.0)
    np.testing.assert_array_equal(now.posterior(PLACES), gp.posterior(np.insert(PLACES, 2, 14.0, axis=1)))


def test_a_reading_of_known_noise_weighs_as_many_of_the_fitted_noise_as_it_is_quieter():
    """m readings of one place and outcome, of noise variance s: the same information as one of s / m."""
    basis, s = Proposal(0, "", H, 0, 30).basis, H.noise_variance * H.scale**2
    thrice = information_of(basis, H, DOMAIN, X[[0, 0, *range(15)]], y[[0, 0, *range(15)]])
    once = information_of(basis, H, DOMAIN, X, y, np.array([s / 3.0, *[np.nan] * 14]))
    np.testing.assert_allclose(once.precision, thrice.precision, atol=1e-9)
    np.testing.assert_allclose(once.shift, thrice.shift, atol=1e-9)
