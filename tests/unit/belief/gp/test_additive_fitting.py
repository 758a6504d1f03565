import msgspec
import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from swarmbo.belief import AdditiveGP, AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.evidence import LogPosterior, maximise
from swarmbo.belief.gp.observations import TOTAL
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.graph import FactorGraph
from swarmbo.kernels import draw
from swarmbo.spaces import Domain

SCOPES = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d", "a"]}
GRAPH = FactorGraph.from_scopes(SCOPES)
COLUMNS = ((0, 1), (1, 2), (2, 3, 0))
UNIT = Domain(np.zeros(4), np.ones(4))


def log_posterior_of(way, model, kernels, t=14, settings=None, seed=0):
    rng = np.random.default_rng(seed)
    channel = None if way == "total" else rng.integers(TOTAL, 3, size=t)
    prior = HyperparameterPrior.of(
        settings or AdditiveGPSettings(), GRAPH.factors, (2, 2, 3), model, [1e-3] if way == "total" else [1e-3] * 4
    )
    z, U, told = rng.normal(size=t), rng.random((t, 4)), np.where(rng.random(t) < 0.5, np.nan, 0.1)
    return LogPosterior(prior, kernels, COLUMNS, U, z, told, channel), prior


def test_evidence_of_one_factor_equals_scikit_learns_with_its_gradient():
    rng = np.random.default_rng(0)
    U, y = rng.random((40, 2)), rng.normal(size=40)
    prior = HyperparameterPrior.of(AdditiveGPSettings(), ["f"], [2], "separate", [1e-3])
    log_posterior = LogPosterior(prior, ["matern52"], [(0, 1)], U, y, np.full(40, np.nan))
    theta = np.log([0.3, 0.6, 1.4, 0.05])
    mean = float(log_posterior.means(theta)[0])
    oracle = GaussianProcessRegressor(
        ConstantKernel(1.4) * Matern((0.3, 0.6), nu=2.5) + WhiteKernel(0.05), alpha=0.0, optimizer=None
    ).fit(U, y - mean)
    expected, by_theta = oracle.log_marginal_likelihood(np.log([1.4, 0.3, 0.6, 0.05]), eval_gradient=True)
    assert log_posterior(theta)[0] - log_posterior.prior.log_density(theta)[0] == pytest.approx(expected, rel=1e-10)
    gradient = log_posterior(theta)[1] - prior.log_density(theta)[1]
    np.testing.assert_allclose(gradient, by_theta[[1, 2, 0, 3]], rtol=1e-8)


@pytest.mark.parametrize("model", ["shared", "hierarchical", "separate"])
def test_the_prior_is_the_normal_that_its_documentation_names(model):
    settings = AdditiveGPSettings(
        lengthscale_log_median=-1.0, lengthscale_log_std=0.7, deviation_log_std=0.2, outputscale_log_std=0.8
    )
    prior = HyperparameterPrior.of(settings, GRAPH.factors, (2, 2, 3), model, [1e-3])
    covariance = np.linalg.inv(prior.precision)
    q = prior.n_lengthscales
    lengths = covariance[:q, :q]
    if model == "shared":
        np.testing.assert_allclose(lengths, [[0.49]])
    elif model == "separate":
        np.testing.assert_allclose(lengths, 0.49 * np.eye(7), atol=1e-12)
    else:
        np.testing.assert_allclose(lengths, 0.49 + 0.04 * np.eye(7), rtol=1e-10)
        np.testing.assert_allclose(prior.centre[:q], -1.0 + 0.5 * np.log([2, 2, 2, 2, 3, 3, 3]))
    np.testing.assert_allclose(np.exp(prior.centre[q:-1]), 1.0 / 3.0)
    np.testing.assert_allclose(np.diag(covariance)[q:], [0.64, 0.64, 0.64, 1.5**2])
    density, gradient = prior.log_density(prior.centre)
    assert density == 0.0
    assert not gradient.any()


def test_a_factor_may_have_a_kernel_and_priors_of_its_own():
    own = FactorPrior(
        kernel="rbf",
        lengthscale_log_median=0.5,
        lengthscale_log_std=0.1,
        outputscale_median=2.0,
        outputscale_log_std=0.2,
        noise_median=0.1,
    )
    settings = AdditiveGPSettings(
        factors={"g": own}, lengthscales="separate", lengthscale_log_std=0.9, outputscale_log_std=0.7, noise_median=2e-3
    )
    prior = HyperparameterPrior.of(settings, GRAPH.factors, (2, 2, 3), "separate", [1e-3])
    np.testing.assert_allclose(prior.centre[2:4], 0.5 + 0.5 * np.log(2.0))
    np.testing.assert_allclose(prior.centre[:2], settings.lengthscale_log_median + 0.5 * np.log(2.0))
    np.testing.assert_allclose(np.exp(prior.centre[7:10]), [1 / 3, 2.0, 1 / 3])
    variances = np.diag(np.linalg.inv(prior.precision))
    np.testing.assert_allclose(variances[[1, 2, 7, 8]], [0.81, 0.01, 0.49, 0.04])
    rng = np.random.default_rng(0)
    X, factors = rng.random((12, 4)), rng.normal(size=(12, 3))
    for outcomes, y in (("total", factors.sum(axis=1)), ("per-factor", factors)):
        belief = AdditiveGP.create(settings, GRAPH, UNIT, outcomes)
        assert belief.hyperparameters.noise_variances == pytest.approx((2e-3, 0.1, 2e-3))
        assert belief.hyperparameters.outputscales == pytest.approx((1 / 3, 2.0, 1 / 3))
        belief = belief.update(X, y).fit(rng)
        assert belief.hyperparameters.kernels == ("matern52", "rbf", "matern52")
        assert belief.hyperparameters.lengthscales[1] == pytest.approx([np.exp(0.5) * 2**0.5] * 2, rel=0.3)


def additive_data(t, seed=0, noise=0.0):
    """Draws from the model: two factors with lengthscales 0.2 and 0.8 sides."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph.from_scopes({"short": ["a", "b"], "long": ["b", "c"]})
    short, long = (draw(rng, "matern52", np.full(2, length), 1.0) for length in (0.2, 0.8))
    X = rng.random((t, 3))
    parts = [short(X[:, :2]), 3.0 * long(X[:, 1:])]
    return graph, X, 100.0 + 7.0 * np.array(parts).T + noise * rng.normal(size=(t, 2))


@pytest.mark.parametrize("way", ["total", "per-factor", "mixed"])
def test_a_fit_finds_which_factor_is_short_and_predicts_what_it_has_not_seen(way):
    graph, X, F = additive_data(90)
    settings = AdditiveGPSettings(lengthscales="separate")
    belief = AdditiveGP.create(settings, graph, Domain(np.zeros(3), np.ones(3)), "total")
    if way == "total":
        belief = belief.update(X, F.sum(axis=1))
    elif way == "per-factor":
        belief = belief.update(X, F)
    else:
        half = np.where(np.arange(90)[:, None] % 2 == 0, F, np.nan)
        belief = belief.update(X, totals=np.where(np.arange(90) % 2 == 0, np.nan, F.sum(axis=1)), factors=half)
    fitted = belief.fit(np.random.default_rng(0))
    h = fitted.hyperparameters
    assert max(h.lengthscales[0]) < min(h.lengthscales[1])
    _, Z, G = additive_data(290)
    held, truth = Z[90:], G[90:]
    mean, var = fitted.posterior(held)
    errors = truth.sum(axis=1) - mean
    assert np.sqrt(np.mean(errors**2)) < 0.35 * truth.sum(axis=1).std()
    assert np.mean(np.abs(errors) < 2.0 * np.sqrt(var)) > 0.85


def test_mixed_outcomes_are_fitted_jointly_not_by_the_larger_part_of_them():
    graph, X, F = additive_data(60, seed=1)
    domain = Domain(np.zeros(3), np.ones(3))
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, domain)
    totals = np.where(np.arange(60) < 40, F.sum(axis=1), np.nan)
    only_totals = belief.update(X, totals).fit(np.random.default_rng(0))
    factors = np.where((np.arange(60) >= 40)[:, None], F, np.nan)
    mixed = belief.update(X, totals=totals, factors=factors).fit(np.random.default_rng(0))
    assert mixed.hyperparameters.lengthscales != only_totals.hyperparameters.lengthscales
    # the factors' own outcomes say where each lies, which totals can't
    for name, column in (("short", 0), ("long", 1)):
        mean, _ = mixed.factor_posterior(name, X[:, [0, 1]] if name == "short" else X[:, [1, 2]])
        assert abs(np.mean(mean - F[:, column])) < 2.0
        off, _ = only_totals.factor_posterior(name, X[:, [0, 1]] if name == "short" else X[:, [1, 2]])
        assert abs(np.mean(mean - F[:, column])) < abs(np.mean(off - F[:, column])) + 1.0


@pytest.mark.parametrize("way", ["total", "per-factor", "mixed"])
def test_a_warm_fit_reaches_what_a_cold_one_does_in_other_units_too(way):
    graph, X, F = additive_data(60, noise=0.3)
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, Domain(np.zeros(3), np.ones(3)))
    totals = None if way == "per-factor" else F.sum(axis=1)
    factors = None if way == "total" else F
    first = belief.update(
        X[:50], totals=None if totals is None else totals[:50], factors=None if factors is None else factors[:50]
    )
    first = first.fit(np.random.default_rng(0))
    full = belief.update(X, totals=totals, factors=factors)
    cold, warm = full.fit(np.random.default_rng(0)), full.fit(np.random.default_rng(0), warm=first.hyperparameters)
    assert warm.log_evidence() == pytest.approx(cold.log_evidence(), abs=0.5)
    h = first.hyperparameters
    large = msgspec.structs.replace(
        h,
        scales=tuple(1e3 * scale for scale in h.scales),
        outputscales=tuple(1e-6 * s for s in h.outputscales),
        noise_variances=tuple(1e-6 * v for v in h.noise_variances),
        total_noise_variance=1e-6 * h.total_noise_variance,
    )
    other = full.fit(np.random.default_rng(0), warm=large)
    np.testing.assert_allclose(
        np.log(np.concatenate(other.hyperparameters.lengthscales)),
        np.log(np.concatenate(warm.hyperparameters.lengthscales)),
        atol=0.05,
    )


def test_factors_observed_alone_are_each_fitted_on_their_own_outcomes_and_scope():
    graph, X, F = additive_data(40)
    domain = Domain(np.zeros(3), np.ones(3))
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, domain, "per-factor").update(X, F)
    fitted = belief.fit(np.random.default_rng(0))
    changed = F.copy()
    changed[:, 1] = np.sin(30.0 * X[:, 2])
    other = AdditiveGP.create(AdditiveGPSettings(), graph, domain, "per-factor").update(X, changed)
    other = other.fit(np.random.default_rng(0))
    alone = FactorGraph.from_scopes({"short": ["a", "b"]})
    single = AdditiveGP.create(AdditiveGPSettings(), alone, Domain(np.zeros(2), np.ones(2)), "per-factor")
    single = single.update(X[:, :2], F[:, :1]).fit(np.random.default_rng(0))
    for part in (other, single):
        assert part.hyperparameters.lengthscales[0] == fitted.hyperparameters.lengthscales[0]
        for ours, theirs in zip(
            part.factor_posterior("short", X[:5, :2]), fitted.factor_posterior("short", X[:5, :2]), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_random_starts_find_a_maximum_at_least_as_good():
    log_posterior, prior = log_posterior_of("total", "separate", ["matern52"] * 3)
    rng = np.random.default_rng(0)
    one = maximise(log_posterior, [prior.centre], 60)[1]
    many = maximise(log_posterior, [prior.centre, *(prior.sample(rng) for _ in range(5))], 60)[1]
    assert many >= one
    theta, value = maximise(log_posterior, [prior.centre], 200)
    assert value == log_posterior(theta)[0]
    inside = (theta > prior.bounds[:, 0] + 1e-6) & (theta < prior.bounds[:, 1] - 1e-6)
    assert np.abs(log_posterior(theta)[1][inside]).max() < 0.05
