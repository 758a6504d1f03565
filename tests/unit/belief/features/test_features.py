"""Random features: bases approximate kernels, updates are Bayes' rule, beliefs equal those in function space."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import multivariate_normal

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters, TimeCorrelation
from swarmbo.belief.features.feature_gp import FeatureBasis, FeatureGP, Information, information_of, packed_size
from swarmbo.belief.features.feature_models import FeatureModels
from swarmbo.belief.fusion import Proposal
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.kernels import KERNEL_NAMES, Covariance
from swarmbo.spaces import Domain

LENGTHSCALES = np.array([0.3, 0.8])
U = stream(0, "points").random((12, 2))


KERNELS = [*((name, None) for name in KERNEL_NAMES), ("matern52", "matern12")]


@pytest.mark.parametrize(("kernel", "time_kernel"), KERNELS)
def test_products_of_features_are_the_kernel(kernel, time_kernel):
    lengths = LENGTHSCALES if time_kernel is None else np.array([*LENGTHSCALES, 6.0])
    X = U if time_kernel is None else np.hstack([U, stream(0, "rounds").uniform(0.0, 20.0, (12, 1))])
    covariance = Covariance(kernel, lengths, 2.5, time_kernel)
    Phi = FeatureBasis.create(1, covariance, 40_000).features(X)
    # standard error of one entry: at most 2.5 / sqrt(40 000) = 0.0125
    np.testing.assert_allclose(Phi @ Phi.T, covariance.matrix(X, X), atol=0.06)


@pytest.mark.parametrize("lengthscale", [1e-4, 1.0, 1e6])
def test_the_variance_is_the_outputscale_everywhere(lengthscale):
    basis = FeatureBasis.create(1, Covariance("matern12", np.full(2, lengthscale), 2.5), 50)
    np.testing.assert_allclose((basis.features(U) ** 2).sum(axis=1), 2.5, rtol=1e-12)


def test_equal_arguments_give_equal_bases_which_cannot_be_changed():
    first = FeatureBasis.create(3, Covariance("rbf", LENGTHSCALES, 1.0), 16)
    second = FeatureBasis.create(3, Covariance("rbf", LENGTHSCALES.copy(), 1.0), 16)
    np.testing.assert_array_equal(first.features(U), second.features(U))
    other = FeatureBasis.create(4, Covariance("rbf", LENGTHSCALES, 1.0), 16)
    assert not np.array_equal(first.features(U), other.features(U))
    with pytest.raises(ValueError, match="read-only"):
        first.frequencies[0, 0] = 0.0


def test_another_lengthscale_stretches_the_basis():
    narrow = FeatureBasis.create(3, Covariance("matern32", LENGTHSCALES, 1.0), 16)
    wide = FeatureBasis.create(3, Covariance("matern32", 2.0 * LENGTHSCALES, 1.0), 16)
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
def test_values_out_of_range_are_refused_with_their_path(change, at):
    seed, kernel, n_features = ({"seed": 0, "kernel": "rbf", "n_features": 8} | change).values()
    with pytest.raises(ConfigError, match=rf"^\$\.{at}: "):
        FeatureBasis.create(seed, Covariance(kernel, LENGTHSCALES, 1.0), n_features)


def data(M=3, t=12, p=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((M, t, p)), rng.standard_normal((M, t)), np.exp(rng.uniform(-6.0, 1.0, M))


def one_by_one(rows, y, noise, start=0):
    models = FeatureModels.given(rows[:, :start], y[:, :start], noise)
    for i in range(start, rows.shape[1]):
        models = models.updated(rows[:, i], y[:, i])
    return models


def dense(rows, y, noise):
    """Covariance and mean of the weights by the textbook formula."""
    P = np.eye(rows.shape[1]) + rows.T @ rows / noise
    return np.linalg.inv(P), np.linalg.solve(P, rows.T @ y / noise)


sizes = {"M": st.integers(1, 4), "t": st.integers(1, 25), "p": st.integers(1, 20), "seed": st.integers(0, 2**16)}


@given(**sizes, start=st.integers(0, 25))
def test_the_product_of_predictive_densities_is_the_batch_evidence(M, t, p, seed, start) -> None:
    rows, y, noise = data(M, t, p, seed)
    models = one_by_one(rows, y, noise, min(start, t))
    for m in range(M):
        K = rows[m] @ rows[m].T + noise[m] * np.eye(t)
        wanted = multivariate_normal.logpdf(y[m], np.zeros(t), K)
        assert models.log_evidence[m] == pytest.approx(wanted, rel=1e-8, abs=1e-8)


@given(**sizes)
def test_each_posterior_is_that_of_the_dense_formula(M, t, p, seed) -> None:
    rows, y, noise = data(M, t, p, seed)
    models = one_by_one(rows, y, noise, t // 2)
    Phi = np.random.default_rng(seed + 1).standard_normal((M, 5, p))
    mean, var = models.marginals(Phi)
    for m in range(M):
        covariance, weights = dense(rows[m], y[m], noise[m])
        np.testing.assert_allclose(mean[m], Phi[m] @ weights, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(models.mean(Phi)[m], Phi[m] @ weights, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(var[m], np.diag(Phi[m] @ covariance @ Phi[m].T), rtol=1e-7, atol=1e-7)


def test_a_draw_has_exactly_the_mean_and_covariance_of_the_posterior() -> None:
    # a draw is an affine function of standard normal numbers, so its covariance needs no sampling
    for t in (12, 45):  # the second in fewer rows than data
        rows, y, noise = data(t=t, p=8)
        models = one_by_one(rows, y, noise, 5)
        n = models.n_rows
        for m in range(3):
            mean = models.draw(m, np.zeros(8), np.zeros(n))
            linear = [models.draw(m, e[:8], e[8:]) - mean for e in np.eye(8 + n)]
            covariance, weights = dense(rows[m], y[m], noise[m])
            np.testing.assert_allclose(mean, weights, atol=1e-10)
            np.testing.assert_allclose(np.array(linear).T @ np.array(linear), covariance, atol=1e-10)


@given(st.integers(1, 9), st.integers(0, 60), st.integers(0, 60))
def test_rows_stay_below_twice_the_features_however_the_data_came(p, first, later) -> None:
    rows, y, noise = data(M=2, t=first + later, p=p, seed=first)
    models = one_by_one(rows, y, noise, first)
    assert models.n_rows < 2 * p
    assert models.n_rows == first + later or models.n_rows >= p
    for m in range(2):
        mean = models.draw(m, np.zeros(p), np.zeros(models.n_rows))
        np.testing.assert_allclose(mean, dense(rows[m], y[m], noise[m])[1], rtol=1e-6, atol=1e-7)


def test_without_data_results_are_those_of_the_prior() -> None:
    models = FeatureModels.given(np.zeros((2, 0, 3)), np.zeros((2, 0)), np.ones(2))
    Phi, prior = np.ones((2, 1, 3)), np.array([1.0, 2.0, 3.0])
    mean, var = models.marginals(Phi)
    assert [mean.tolist(), var.tolist()] == [[[0.0], [0.0]], [[3.0], [3.0]]]
    assert models.draw(0, prior, np.zeros(0)).tolist() == prior.tolist()
    assert models.log_evidence.tolist() == [0.0, 0.0]


def test_pending_points_lower_the_variance_like_known_ones_and_change_nothing_else() -> None:
    rows, y, noise = data(t=9)
    base, Phi = one_by_one(rows[:, :8], y[:, :8], noise), np.random.default_rng(5).standard_normal((3, 4, 8))
    waiting, known = base.awaiting(rows[:, 8]), base.updated(rows[:, 8], y[:, 8])
    np.testing.assert_allclose(waiting.marginals(Phi)[0], base.marginals(Phi)[0], atol=1e-12)
    np.testing.assert_allclose(waiting.marginals(Phi)[1], known.marginals(Phi)[1], atol=1e-12)
    assert waiting.log_evidence.tolist() == base.log_evidence.tolist()
    prior, e = np.ones(8), np.ones(8)
    assert waiting.draw(1, prior, e).tolist() == base.draw(1, prior, e).tolist()


def test_models_that_continue_from_the_same_model_do_not_change_each_other() -> None:
    rows, y, noise = data(t=60, p=31)
    base = one_by_one(rows[:, :30], y[:, :30], noise)
    left, right = base, base
    for i in range(30, 60):  # alternately, with more than one enlargement of the arrays
        left, right = left.updated(rows[:, i], y[:, i]), right.updated(rows[:, 90 - i - 1], -y[:, i])
    for branch, order, sign in ((left, range(30, 60), 1.0), (right, range(59, 29, -1), -1.0)):
        alone = one_by_one(rows[:, :30], y[:, :30], noise)
        for i, j in zip(order, range(30, 60), strict=True):
            alone = alone.updated(rows[:, i], sign * y[:, j])
        assert branch.log_evidence.tolist() == alone.log_evidence.tolist()
        assert branch.draw(2, np.ones(31), np.ones(60)).tolist() == alone.draw(2, np.ones(31), np.ones(60)).tolist()


def test_many_repetitions_of_one_datum_give_finite_results() -> None:
    rows, noise = np.repeat(data(t=1, p=4)[0], 300, axis=1), np.full(3, 1e-6)
    models = one_by_one(rows, np.full((3, 300), 2.0), noise)
    mean, var = models.marginals(rows[:, :1])
    np.testing.assert_allclose(mean, 2.0, rtol=1e-6)
    assert (var >= 0.0).all()
    assert np.isfinite(models.log_evidence).all()


DOMAIN = Domain(np.array([0.0, -10.0]), np.array([100.0, 30.0]))
H = Hyperparameters("matern52", (0.3, 0.5), 1.3, 0.05, 0.2, 7.0, 3.0)
RNG = stream(0, "data")
X = DOMAIN.from_unit(RNG.random((15, 2)))
y = 7.0 + 3.0 * np.sin(X[:, 0] / 20.0) + 0.5 * RNG.standard_normal(15)
PLACES = DOMAIN.from_unit(RNG.random((9, 2)))


def belief(n_features=30, rows=slice(None)):
    basis = FeatureBasis.create(0, H.prior, n_features)
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


def test_with_many_features_the_belief_is_close_to_the_exact_process():
    exact = ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, H, X, y)
    gp = belief(n_features=3000)
    mean, var = exact.posterior(PLACES)
    got_mean, got_var = gp.posterior(PLACES)
    np.testing.assert_allclose(got_mean, mean, atol=0.15 * 3.0)  # features: about sqrt(1 / 3000) of each covariance
    np.testing.assert_allclose(got_var, var, atol=0.1 * 9.0)
    assert (gp.noise_variance, gp.prior_variance) == (exact.noise_variance, exact.prior_variance)
    assert gp.n_data == exact.n_data


def test_pending_points_reduce_the_variance_and_keep_the_mean():
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


def test_with_a_time_axis_data_lose_weight_as_in_the_exact_process():
    over_time = msgspec.structs.replace(H, time=TimeCorrelation("matern32", 8.0))
    rounds = np.linspace(0.0, 14.0, 15)[:, None]
    basis = Proposal(0, "", over_time, 0, 2000).basis
    known = information_of(basis, over_time, DOMAIN, np.hstack([X, rounds]), y)
    gp = FeatureGP(domain=DOMAIN, hyperparameters=over_time, basis=basis, information=known)
    exact = ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, over_time, np.hstack([X, rounds]), y)
    for moment in (14.0, 30.0, 200.0):
        got, wanted = gp.at(moment).posterior(PLACES), exact.at(moment).posterior(PLACES)
        np.testing.assert_allclose(got[0], wanted[0], atol=0.15 * 3.0)
        np.testing.assert_allclose(got[1], wanted[1], atol=0.1 * 9.0)
    np.testing.assert_allclose(got[1], gp.prior_variance, rtol=0.05)  # old data have no weight
    now = gp.at(14.0)
    np.testing.assert_array_equal(now.posterior(PLACES), gp.posterior(np.insert(PLACES, 2, 14.0, axis=1)))


def test_a_measurement_with_a_third_of_the_noise_variance_weighs_as_much_as_three():
    """m measurements of one place and outcome with noise variance s have the information of one with s / m."""
    basis, s = Proposal(0, "", H, 0, 30).basis, H.noise_variance * H.scale**2
    thrice = information_of(basis, H, DOMAIN, X[[0, 0, *range(15)]], y[[0, 0, *range(15)]])
    once = information_of(basis, H, DOMAIN, X, y, np.array([s / 3.0, *[np.nan] * 14]))
    np.testing.assert_allclose(once.precision, thrice.precision, atol=1e-9)
    np.testing.assert_allclose(once.shift, thrice.shift, atol=1e-9)
