import msgspec
import numpy as np
import pytest

from swarmbo.belief import AdditiveGP, AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.graph import FactorGraph
from swarmbo.kernels import draw
from swarmbo.spaces import Domain

from .dense import Dense

SCOPES = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d", "a"]}
GRAPH = FactorGraph.from_scopes(SCOPES)
BOX = Domain(np.zeros(3), np.ones(3))
UNIT = Domain(np.zeros(4), np.ones(4))


@pytest.mark.parametrize("model", ["shared", "hierarchical", "separate"])
def test_the_prior_is_the_normal_that_its_documentation_names(model):
    lengths = {"lengthscale_log_median": -1.0, "lengthscale_log_std": 0.7, "deviation_log_std": 0.2}
    settings = AdditiveGPSettings(**lengths, outputscale_log_std=0.8)
    prior = HyperparameterPrior.of(settings, GRAPH.factors, (2, 2, 3), model, [1e-3])
    covariance = np.linalg.inv(prior.precision)
    q = prior.n_lengthscales
    wanted = {"shared": [[0.49]], "separate": 0.49 * np.eye(7), "hierarchical": 0.49 + 0.04 * np.eye(7)}[model]
    np.testing.assert_allclose(covariance[:q, :q], wanted, rtol=1e-10, atol=1e-12)
    if model == "hierarchical":
        np.testing.assert_allclose(prior.centre[:q], -1.0 + 0.5 * np.log([2, 2, 2, 2, 3, 3, 3]))
    np.testing.assert_allclose(np.exp(prior.centre[q:-1]), 1.0 / 3.0)
    np.testing.assert_allclose(np.diag(covariance)[q:], [0.64, 0.64, 0.64, 1.5**2])
    density, gradient = prior.log_density(prior.centre)
    assert density == 0.0
    assert not gradient.any()


def test_a_factor_may_have_a_kernel_and_priors_of_its_own():
    medians = {"lengthscale_log_median": 0.5, "outputscale_median": 2.0, "noise_median": 0.1}
    own = FactorPrior(kernel="rbf", lengthscale_log_std=0.1, outputscale_log_std=0.2, **medians)
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
    """Draws from the model: two factors with lengthscales of 0.2 and 0.8 sides of the box."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph.from_scopes({"short": ["a", "b"], "long": ["b", "c"]})
    short, long = (draw(rng, "matern52", np.full(2, length), 1.0) for length in (0.2, 0.8))
    X = rng.random((t, 3))
    parts = [short(X[:, :2]), 3.0 * long(X[:, 1:])]
    return graph, X, 100.0 + 7.0 * np.array(parts).T + noise * rng.normal(size=(t, 2))


@pytest.mark.parametrize("way", ["total", "per-factor", "mixed"])
def test_a_fit_finds_the_factor_with_short_lengthscales_and_predicts_unseen_points(way):
    graph, X, F = additive_data(90)
    settings = AdditiveGPSettings(lengthscales="separate")
    has_factors = {"total": np.zeros(90), "per-factor": np.ones(90), "mixed": np.arange(90) % 2}[way] > 0
    totals, factors = np.where(has_factors, np.nan, F.sum(axis=1)), np.where(has_factors[:, None], F, np.nan)
    belief = AdditiveGP.create(settings, graph, BOX, "total").update(X, totals=totals, factors=factors)
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
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, BOX)
    totals = np.where(np.arange(60) < 40, F.sum(axis=1), np.nan)
    only_totals = belief.update(X, totals).fit(np.random.default_rng(0))
    factors = np.where((np.arange(60) >= 40)[:, None], F, np.nan)
    mixed = belief.update(X, totals=totals, factors=factors).fit(np.random.default_rng(0))
    assert mixed.hyperparameters.lengthscales != only_totals.hyperparameters.lengthscales
    # outcomes of factors determine the level of each factor, which totals cannot
    for name, column in (("short", 0), ("long", 1)):
        own = X[:, column : column + 2]
        means = (belief.factor_posterior(name, own)[0] for belief in (mixed, only_totals))
        off, off_by_totals = (abs(np.mean(mean - F[:, column])) for mean in means)
        assert off < 2.0
        assert off < off_by_totals + 1.0


@pytest.mark.parametrize("way", ["total", "per-factor", "mixed"])
def test_a_warm_fit_is_as_good_as_a_cold_one_in_other_units_too(way):
    graph, X, F = additive_data(60, noise=0.3)
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, BOX)
    every = {"totals": F.sum(axis=1), "factors": F}
    given = {name: every[name] for name in {"total": ["totals"], "per-factor": ["factors"]}.get(way, every)}
    first = belief.update(X[:50], **{name: y[:50] for name, y in given.items()}).fit(np.random.default_rng(0))
    full = belief.update(X, **given)
    cold, warm = full.fit(np.random.default_rng(0)), full.fit(np.random.default_rng(0), warm=first.hyperparameters)
    assert warm.log_evidence() == pytest.approx(cold.log_evidence(), abs=0.5)
    h = first.hyperparameters
    in_units = {name: tuple(1e-6 * np.array(getattr(h, name))) for name in ("outputscales", "noise_variances")}
    in_units |= {"scales": tuple(1e3 * np.array(h.scales)), "total_noise_variance": 1e-6 * h.total_noise_variance}
    large = msgspec.structs.replace(h, **in_units)
    other = full.fit(np.random.default_rng(0), warm=large)
    found, wanted = (np.log(np.concatenate(one.hyperparameters.lengthscales)) for one in (other, warm))
    np.testing.assert_allclose(found, wanted, atol=0.05)


def test_a_fit_finds_noise_that_its_warm_start_explains_by_narrow_peaks():
    rng, graph = np.random.default_rng(0), FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
    X = np.concatenate([rng.random((10, 3)), 0.8 + 0.02 * rng.random((24, 3))])
    belief = AdditiveGP(graph, dict.fromkeys("xyz", (0.0, 1.0))).update(X, rng.normal(size=34))
    narrow = msgspec.structs.replace(belief.hyperparameters, lengthscales=((0.006, 0.006),) * 2)
    found = belief.fit(np.random.default_rng(1), warm=narrow)
    assert found.hyperparameters.total_noise_variance > 0.5
    assert found.log_evidence() > -51.0  # -63 at narrow peaks


def test_factors_observed_alone_are_each_fitted_on_their_own_outcomes_and_scope():
    graph, X, F = additive_data(40)
    alone, square = FactorGraph.from_scopes({"short": ["a", "b"]}), Domain(np.zeros(2), np.ones(2))

    def fitted(scopes, box, points, y):
        belief = AdditiveGP.create(AdditiveGPSettings(), scopes, box, "per-factor").update(points, y)
        return belief.fit(np.random.default_rng(0))

    whole, changed = fitted(graph, BOX, X, F), np.column_stack([F[:, 0], np.sin(30.0 * X[:, 2])])
    for other in (fitted(graph, BOX, X, changed), fitted(alone, square, X[:, :2], F[:, :1])):
        assert other.hyperparameters.lengthscales[0] == whole.hyperparameters.lengthscales[0]
        found, wanted = (belief.factor_posterior("short", X[:5, :2]) for belief in (other, whole))
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("count", [12, 301])
def test_the_constant_of_a_fitted_sum_is_the_generalised_mean_of_totals(count):
    X = np.random.default_rng(0).random((count, 4))
    y = 3.0 + 5.0 * X.sum(axis=1) ** 2
    belief = AdditiveGP.create(AdditiveGPSettings(max_iterations=5), GRAPH, UNIT).update(X, y)
    dense = Dense(belief.fit(np.random.default_rng(1)))
    ones = np.ones(count)
    offset = ones @ np.linalg.solve(dense.K, dense.residual) / (ones @ np.linalg.solve(dense.K, ones))
    assert abs(offset) < 1e-3 * y.std()


def test_the_noise_of_future_outcomes_is_at_least_the_floor_if_all_noise_is_known():
    X = np.random.default_rng(0).random((12, 4))
    belief = AdditiveGP.create(AdditiveGPSettings(noise_floor=0.01), GRAPH, UNIT)
    belief = belief.update(X, X.sum(axis=1), noise_variance=1e-12)
    assert belief.fit(np.random.default_rng(1)).hyperparameters.total_noise_variance == pytest.approx(0.01)
