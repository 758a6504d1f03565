"""Fits of fields, and the prior of their hyper-parameters."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import approx_fprime
from scipy.stats import multivariate_normal

from swarmbo.belief import AdditiveGPSettings, ExactGP, ExactGPSettings, Hyperparameters
from swarmbo.belief.gp import cholesky
from swarmbo.belief.gp.evidence import LogPosterior
from swarmbo.belief.gp.fit import fit_field
from swarmbo.belief.gp.observations import Observations, standardisation, units
from swarmbo.belief.gp.prior import HyperparameterPrior, packed
from swarmbo.errors import ConfigError
from swarmbo.kernels import kernel_matrix
from swarmbo.spaces import Domain

SQUARE = Domain(np.zeros(2), np.ones(2))


def sample_field(seed, n, lengthscales, noise_std=0.05, name="matern52"):
    rng = np.random.default_rng(seed)
    U = rng.uniform(size=(n, 2))
    K = kernel_matrix(name, U, U, np.asarray(lengthscales), 1.0) + noise_std**2 * np.eye(n)
    return U, np.linalg.cholesky(K) @ rng.normal(size=n)


def log_posterior_of(gp_settings, prior, U, z):
    return LogPosterior(prior, [gp_settings.kernel], [range(2)], U, z, np.full(len(z), np.nan))


def fit_hyperparameters(gp_settings, U, z, seed=0, previous=None):
    data = Observations(U, np.arange(len(z)), np.zeros(len(z), dtype=int), z, np.full(len(z), np.nan), np.zeros(len(z)))
    return fit_field(gp_settings, SQUARE, data, np.random.default_rng(seed), previous)


ROUNDED = st.floats(-1e3, 1e3).map(lambda v: round(v, 3))


@given(st.lists(ROUNDED, min_size=2, max_size=20).filter(lambda v: max(v) > min(v)), st.integers(-50, 50))
def test_standardised_outcomes_have_mean_zero_and_deviation_one_at_any_magnitude(y, exponent):
    outcomes = np.array(y) * 10.0**exponent
    offset, scale, is_informative = standardisation(outcomes)
    z = (outcomes - offset) / scale
    assert is_informative
    assert z.mean() == pytest.approx(0.0, abs=1e-6)
    assert z.std() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("y", [[], [7.0], [7.0] * 5, [0.0] * 3, [1e12] * 4, [0.1 + 0.2, 0.3], [-1e59] * 3])
def test_outcomes_that_do_not_show_their_scale_get_scale_one(y):
    offset, scale, is_informative = standardisation(np.array(y))
    assert (scale, is_informative) == (1.0, False)
    assert offset == pytest.approx(y[0] if y else 0.0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.booleans())
def test_offsets_add_up_to_the_mean_of_the_totals_whose_deviation_is_the_common_unit(seed, n_seen, varies):
    rng = np.random.default_rng(seed)
    factors = rng.normal(3.0, 2.0, (9, 4))
    factors[:, n_seen:] = np.nan
    totals = rng.normal(50.0, 5.0, 9) if varies else np.full(9, 50.0)
    offsets, scales, is_shown = units(totals, factors)
    np.testing.assert_allclose(offsets[:n_seen], factors[:, :n_seen].mean(axis=0))
    np.testing.assert_allclose(offsets[n_seen:], offsets[-1])
    assert offsets.sum() == pytest.approx(totals.mean())
    own = factors[:, :n_seen].std(axis=0)
    np.testing.assert_allclose(scales, totals.std() if varies else np.sqrt((own**2).sum()))
    assert is_shown


@pytest.mark.parametrize("planted", [(0.15, 0.15), (0.2, 0.45)])
def test_a_fit_recovers_planted_lengthscales(planted):
    found = []
    for seed in range(5):
        U, z = sample_field(seed, 120, planted)
        fitted = fit_hyperparameters(ExactGPSettings(), U, z)
        found.append([*fitted.lengthscales, np.sqrt(fitted.noise_variance) * fitted.scale])
    medians = np.median(found, axis=0)
    np.testing.assert_allclose(np.log(medians[:2]), np.log(planted), atol=np.log(1.35))
    assert medians[2] == pytest.approx(0.05, rel=0.5)


def test_the_fit_ends_where_the_gradient_vanishes_and_no_start_is_better():
    gp_settings = ExactGPSettings()
    prior = HyperparameterPrior.of_field(gp_settings, SQUARE)
    U, z = sample_field(2, 40, [0.3, 0.3])
    offset, scale, _ = standardisation(z)
    log_posterior = log_posterior_of(gp_settings, prior, U, (z - offset) / scale)
    h = fit_hyperparameters(gp_settings, U, z)
    theta = prior.pack(np.array(h.lengthscales), np.array([h.outputscale]), np.array([h.noise_variance]))
    value, gradient = log_posterior(theta)
    assert np.abs(gradient).max() < 0.02
    rng = np.random.default_rng(5)
    assert value > max(log_posterior(prior.sample(rng))[0] for _ in range(300))
    numeric = approx_fprime(prior.centre, lambda t: log_posterior(t)[0], 1e-6)
    assert np.abs(numeric).max() > 0.02  # the mode of the prior is not an optimum here, so the check above can fail


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_few_points_do_not_collapse_the_fit(n):
    for seed in range(6):
        U, z = sample_field(seed, n, [0.25, 0.25])
        h = fit_hyperparameters(ExactGPSettings(), U, z)
        assert all(0.05 < lengthscale < 2.0 for lengthscale in h.lengthscales)
        assert 0.1 < h.outputscale < 10.0
        assert 1e-6 <= h.noise_variance < 0.2


def test_lengthscale_models_differ_as_documented():
    U, z = sample_field(1, 80, [0.1, 0.8])
    kinds = [ExactGPSettings(lengthscales=model) for model in ("shared", "hierarchical", "separate")]
    shared, hierarchical, separate = (fit_hyperparameters(kind, U, z).lengthscales for kind in kinds)
    assert shared[1] == pytest.approx(shared[0])
    assert 1.5 < hierarchical[1] / hierarchical[0] < separate[1] / separate[0]


def warm_start(prior, previous, scale):
    return packed(prior, previous.as_channel(), [0], [previous.noise_variance], previous.scale / scale)


def test_a_warm_start_keeps_the_physical_variances_under_a_new_scale():
    prior = HyperparameterPrior.of_field(ExactGPSettings(), SQUARE)
    previous = Hyperparameters("matern52", (0.2, 0.4), 1.5, 0.02, scale=10.0)
    lengthscales, (outputscale,), (noise_variance,) = prior.unpack(warm_start(prior, previous, 25.0))
    np.testing.assert_allclose(lengthscales, (0.2, 0.4))
    assert outputscale * 25.0**2 == pytest.approx(1.5 * 10.0**2)
    assert noise_variance * 25.0**2 == pytest.approx(0.02 * 10.0**2)
    for scale in (1e-60, 1e60):
        assert np.isfinite(warm_start(prior, previous, scale)).all()


def test_a_fit_is_never_worse_than_its_warm_start():
    U, z = sample_field(1, 40, [0.3, 0.3])
    prior = HyperparameterPrior.of_field(ExactGPSettings(), SQUARE)
    best = fit_hyperparameters(ExactGPSettings(restarts=10), U, z)
    hurried = fit_hyperparameters(ExactGPSettings(restarts=0, max_iterations=1), U, z, previous=best)
    cold = fit_hyperparameters(ExactGPSettings(restarts=0, max_iterations=1), U, z)
    log_posterior = log_posterior_of(ExactGPSettings(), prior, U, (z - best.offset) / best.scale)
    from_best, from_hurried, from_cold = (
        log_posterior(warm_start(prior, h, best.scale))[0] for h in (best, hurried, cold)
    )
    assert from_hurried >= from_best - 1e-9
    assert from_cold < from_best - 0.1


EIGHT = np.random.default_rng(0).uniform(size=(8, 2))
DEGENERATE = {
    "none": (np.zeros((0, 2)), np.zeros(0)),
    "one": (np.full((1, 2), 0.5), np.array([3.0])),
    "duplicates": (np.full((6, 2), 0.5), np.array([1.0, 2.0, 3.0, 1.0, 2.0, 3.0])),
    "equal duplicates": (np.full((6, 2), 0.5), np.full(6, 2.0)),
    "constant": (EIGHT, np.full(8, -4.0)),
    "large": (EIGHT, 1e12 * np.arange(8.0)),
    "large and constant": (EIGHT, np.full(8, 1e12)),
    "huge": (EIGHT, 9e59 * (-1.0) ** np.arange(8)),
    "tiny": (EIGHT, 1e-200 * np.arange(8.0)),
    "nearly equal points": (np.array([[0.5, 0.5], [0.5 + 1e-12, 0.5]]), np.array([0.0, 1.0])),
    "one outlier": (np.random.default_rng(0).uniform(size=(9, 2)), np.append(np.zeros(8), 1e9)),
    "far outside": (np.array([[1e9, 0.0], [0.0, 1e150], [0.5, 0.5]]), np.array([0.0, 1.0, 2.0])),
    "on a line": (np.column_stack([np.linspace(0, 1, 20), np.full(20, 0.5)]), np.linspace(0, 1, 20)),
}


@pytest.mark.parametrize("name", ["matern12", "rbf"])
@pytest.mark.parametrize("case", DEGENERATE)
def test_a_fit_of_degenerate_data_gives_a_finite_posterior(case, name):
    X, y = DEGENERATE[case]
    belief = ExactGP.create(ExactGPSettings(kernel=name), SQUARE).update(X, y).fit(np.random.default_rng(0))
    belief = belief.update(X, y).fit(np.random.default_rng(1))  # warm, and every point twice
    targets = np.concatenate([X, np.random.default_rng(1).uniform(size=(10, 2))])
    mean, var = belief.posterior(targets)
    for array in (mean, var, *belief.joint_posterior(targets)):
        assert np.isfinite(array).all()
    assert (var >= 0.0).all()
    assert np.isfinite(belief.log_evidence())
    assert belief.n_data == 2 * len(y)


@pytest.mark.parametrize("model", ["shared", "separate"])
def test_the_gradient_is_that_of_the_evidence_with_a_fixed_jitter(model, monkeypatch):
    """If jitter is really needed, finite differences show rounding only, so it is made larger here."""
    jitter = 0.05

    def with_jitter(K):
        lower = np.tril(K)
        full = lower + lower.T - np.diag(K.diagonal())
        return np.asfortranarray(np.linalg.cholesky(full + jitter * np.eye(len(K)))), jitter

    monkeypatch.setattr(cholesky, "factorise_noisy", with_jitter)
    gp_settings = ExactGPSettings(lengthscales=model)
    prior = HyperparameterPrior.of_field(gp_settings, SQUARE)
    U, z = sample_field(2, 20, [0.3, 0.6])
    log_posterior = log_posterior_of(gp_settings, prior, U, z)
    theta = prior.centre
    numeric = approx_fprime(theta, lambda at: log_posterior(at)[0], 1e-6)
    np.testing.assert_allclose(log_posterior(theta)[1], numeric, rtol=1e-4, atol=1e-4)


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


def test_pack_moves_values_outside_to_the_bounds():
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


@pytest.mark.parametrize("spread", [1e-6, 100.0])
@pytest.mark.parametrize("deviation", [1e-4, 100.0])
def test_a_prior_works_at_the_ends_of_its_ranges_and_is_refused_beyond_them(spread, deviation):
    box = Domain(np.zeros(100), np.ones(100))
    own = {"lengthscale_log_std": spread, "deviation_log_std": deviation}
    prior = HyperparameterPrior.of_field(ExactGPSettings(**own), box)
    value, slope = prior.log_density(prior.sample(np.random.default_rng(0)))
    assert np.isfinite([value, *slope]).all()
    for wrong in ({"lengthscale_log_std": 1e12}, {"deviation_log_std": 1e-9}):
        with pytest.raises(ConfigError, match="wanted a number from"):
            ExactGPSettings(**wrong)
        with pytest.raises(ConfigError, match="wanted a number from"):
            AdditiveGPSettings(**wrong)


def test_the_default_lengthscale_prior_covers_a_square_map_as_documented():
    settings = ExactGPSettings()
    spread = np.exp(np.array([-1.96, 1.96]) * settings.lengthscale_log_std)
    low, high = np.sqrt(2) * settings.lengthscale_median * spread
    assert (low, high) == pytest.approx((0.05, 0.84), abs=0.01)
