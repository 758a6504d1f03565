"""The engine of beliefs about fields and about sums."""

import json

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Hyperparameter, Kernel, Matern

from swarmbo.belief import (
    AdditiveGP,
    AdditiveGPSettings,
    ExactGP,
    ExactGPSettings,
    Hyperparameters,
    TimeAxis,
    TimeCorrelation,
)
from swarmbo.errors import ConfigError, ShapeError, StateVersionError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES, Covariance
from swarmbo.settings import convert
from swarmbo.spaces import Domain

from .dense import with_own

DOMAIN = Domain(np.array([10.0, -200.0]), np.array([110.0, 100.0]))


def random_points(n, seed=0):
    return DOMAIN.from_unit(np.random.default_rng(seed).uniform(size=(n, 2)))


def field(X):
    return 300.0 + 40.0 * np.sin(X[:, 0] / 17.0) + 0.2 * X[:, 1]


def hyperparameters(name="matern52", time=None):
    return Hyperparameters(name, (0.3, 0.5), 1.7, 1e-3, mean=0.2, offset=290.0, scale=35.0, time=time)


def scikit_learns(kernel, U, y, alpha=1e-3):
    """The same process in scikit-learn, for points of the unit cube."""
    process = GaussianProcessRegressor(ConstantKernel(1.7) * kernel, alpha=alpha, optimizer=None)
    return process.fit(U, (y - 290.0) / 35.0 - 0.2)


def assert_is(belief, oracle, X, U):
    """Assert that posteriors and evidence are those of scikit-learn, in the unit of the outcomes."""
    wanted, cov = oracle.predict(U, return_cov=True)
    for mean in (belief.posterior(X)[0], belief.joint_posterior(X)[0], belief.posterior_mean(X)):
        np.testing.assert_allclose((mean - 290.0) / 35.0 - 0.2, wanted, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(belief.joint_posterior(X)[1] / 35.0**2, cov, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(belief.posterior(X)[1] / 35.0**2, cov.diagonal(), rtol=0.0, atol=1e-8)
    assert belief.log_evidence() == pytest.approx(oracle.log_marginal_likelihood_value_, rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("n", [1, 10, 100])
def test_posterior_and_evidence_are_those_of_scikit_learn(name, n):
    belief, X, places = belief_on(n // 2, name, n), random_points(n, n), random_points(40, seed=1)
    for i in range(n // 2, n):
        belief = belief.update(X[i : i + 1], field(X[i : i + 1]))
    kernel = RBF((0.3, 0.5)) if name == "rbf" else Matern((0.3, 0.5), nu=int(name[-2]) / 2)
    assert_is(belief, scikit_learns(kernel, DOMAIN.to_unit(X), field(X)), places, DOMAIN.to_unit(places))


def belief_on(n, name="matern52", of=None):
    """A belief about measurements at the first n of ``of`` random places."""
    X = random_points(n if of is None else of, of or 0)[:n]
    return ExactGP.from_hyperparameters(ExactGPSettings(kernel=name), DOMAIN, hyperparameters(name), X, field(X))


def assert_bit_identical(first, second):
    X = random_points(30, seed=99)
    for a, b in zip(first.joint_posterior(X), second.joint_posterior(X), strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.hyperparameters == second.hyperparameters
    assert first.log_evidence() == second.log_evidence()
    assert first.needs_fit == second.needs_fit


def test_a_belief_without_data_is_its_prior():
    belief = ExactGP.create(ExactGPSettings(), DOMAIN)
    mean, cov = belief.joint_posterior(random_points(4))
    np.testing.assert_array_equal(mean, 0.0)
    np.testing.assert_array_equal(cov.diagonal(), belief.prior_variance)
    assert (belief.n_data, belief.log_evidence(), belief.needs_fit) == (0, 0.0, False)


def test_the_callers_arrays_stay_writable_and_unshared():
    X = random_points(5)
    y = field(X)
    belief = belief_on(0).update(X, y)
    mean, _ = belief.posterior(X)
    X[:] = 0.0
    y[:] = 0.0
    np.testing.assert_array_equal(belief.posterior(belief.X)[0], mean)


def test_a_whole_map_is_predicted_in_pieces_without_seams():
    belief = belief_on(20)
    X = random_points(5000)
    mean, var = belief.posterior(X)
    for i in (0, 4095, 4096, 4999):
        one_mean, one_var = belief.posterior(X[[i]])
        assert mean[i] == pytest.approx(one_mean[0], rel=1e-12)
        assert var[i] == pytest.approx(one_var[0], rel=1e-9)


def test_a_fit_is_due_with_the_first_data_and_then_after_every_few_tells():
    belief = ExactGP.create(ExactGPSettings(refit_every=3), DOMAIN)
    X = random_points(8)
    seen = []
    for i in range(4):
        belief = belief.update(X[2 * i : 2 * i + 2], field(X[2 * i : 2 * i + 2]))
        seen.append(belief.needs_fit)
        if i == 0:
            belief = belief.fit(np.random.default_rng(0))
    assert seen == [True, False, False, True]
    assert not belief.update(X[:0], np.zeros(0)).fit(np.random.default_rng(0)).needs_fit


def test_an_update_keeps_hyperparameters_and_outcome_scale_and_a_fit_changes_them():
    belief = belief_on(20)
    updated = belief.update(random_points(5, 7), np.full(5, 1e4))
    assert updated.hyperparameters == belief.hyperparameters
    refitted = updated.fit(np.random.default_rng(0))
    assert refitted.hyperparameters.offset == pytest.approx(updated.y.mean())
    assert refitted.hyperparameters.scale == pytest.approx(updated.y.std())


@pytest.mark.parametrize(
    ("shift", "factor", "stretch"), [(0.0, 1e3, 1.0), (-5e4, 1.0, 1.0), (273.15, 0.01, 1.0), (0.0, 1.0, 3.28)]
)
def test_fitted_predictions_follow_an_affine_change_of_units(shift, factor, stretch):
    X, targets, box = random_points(40), random_points(20, seed=1), DOMAIN
    plain = ExactGP.create(ExactGPSettings(), DOMAIN).update(X, field(X)).fit(np.random.default_rng(0))
    y, there = shift + factor * field(X), targets
    if stretch != 1.0:
        X, there, low, high = (stretch * array + 7.0 for array in (X, targets, DOMAIN.low, DOMAIN.high))
        box = Domain(low, high)
    other = ExactGP.create(ExactGPSettings(), box).update(X, y).fit(np.random.default_rng(0))
    (mean, var), (other_mean, other_var) = plain.posterior(targets), other.posterior(there)
    scale = factor * plain.hyperparameters.scale
    np.testing.assert_allclose(other_mean, shift + factor * mean, atol=1e-3 * scale)
    np.testing.assert_allclose(other_var, factor**2 * var, rtol=1e-2)


def test_a_state_read_in_another_memory_order_is_put_back_in_order():
    belief = belief_on(30)
    state = belief.state_dict()
    state["arrays"]["L_0"] = np.ascontiguousarray(state["arrays"]["L_0"])
    state["arrays"]["points"] = np.asfortranarray(state["arrays"]["points"])
    restored = ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, state)
    assert restored.state_dict()["arrays"]["L_0"].flags.f_contiguous
    assert restored.X.flags.c_contiguous
    assert_bit_identical(restored, belief)


def test_a_state_of_another_version_or_with_a_wrong_hyperparameter_is_refused():
    state = belief_on(3).state_dict()
    loud = {**state["json"], "hyperparameters": {**state["json"]["hyperparameters"], "noise_variance": "loud"}}
    with pytest.raises(StateVersionError, match="got version 99"):
        ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, {**state, "json": {**state["json"], "version": 99}})
    with pytest.raises(ConfigError, match=r"\$\.hyperparameters\.noise_variance: got 'loud'"):
        ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, {**state, "json": loud})


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (np.zeros((2, 3)), np.zeros(2), r"X: got shape \(2, 3\); wanted \(m, 2\)"),
        (np.zeros(2), np.zeros(2), r"X: got shape \(2,\)"),
        (np.zeros((2, 2)), np.zeros(3), r"y: got shape \(3,\) for 2 points"),
        (np.zeros((2, 2)), np.array([0.0, np.nan]), r"y\[1\]: got nan"),
        (np.zeros((2, 2)), np.array([np.inf, 0.0]), r"y\[0\]: got inf"),
        (np.zeros((2, 2)), np.array([0.0, 1e61]), r"y\[1\]: got 1e\+61"),
        (np.array([[0.0, 0.0], [0.0, np.inf]]), np.zeros(2), r"X\[1\]: got \[0.0, inf\]"),
    ],
)
def test_bad_data_are_refused_by_row(X, y, message):
    with pytest.raises(ShapeError, match=message):
        belief_on(3).update(X, y)


def test_bad_points_are_refused_by_every_prediction():
    belief, bad = belief_on(3), np.array([[0.0, 0.0], [np.nan, 0.0]])
    for predict in (belief.posterior, belief.joint_posterior, belief.posterior_cache, belief.condition_on_pending):
        with pytest.raises(ShapeError, match=r"X\[1\]"):
            predict(bad)


def test_hyperparameters_of_another_dimension_are_refused():
    line, nothing = Domain(np.zeros(1), np.ones(1)), (np.zeros((0, 1)), np.zeros(0))
    with pytest.raises(ShapeError, match="got 2 lengthscales; wanted 1"):
        ExactGP.from_hyperparameters(ExactGPSettings(), line, hyperparameters(), *nothing)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"noise_floor": -1.0}, r"noise_floor: got -1.0; wanted a number in \(0, 1\]"),
        ({"kernel": "matern"}, "kernel"),
        ({"noise_variance": 1.0}, "unknown key"),
    ],
)
def test_bad_settings_are_refused_with_the_key(table, message):
    with pytest.raises(ConfigError, match=message):
        convert(table, ExactGPSettings, at="$.belief")


GRAPH = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["x"]})


def field_of(X, y, noise=None):
    return ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, hyperparameters(), X, y, noise)


def sum_of(way, n=9, seed=3):
    rng = np.random.default_rng(seed)
    X, F = rng.random((n, 3)), rng.normal(size=(n, 3))
    belief = with_own(AdditiveGP(GRAPH, lengthscale=0.6, noise_variance=1e-2), outputscales=(1.0, 2.0, 0.5))
    if way == "factors":
        return belief.update(X, F)
    if way == "mixed":
        belief = belief.update(X[:4], F[:4])
    return belief.update(X, F.sum(axis=1))


@pytest.mark.parametrize("steps", [[25], [10, 1, 14]])
def test_noise_per_row_equals_scikit_learns_alpha(steps):
    X, noise = random_points(25), np.random.default_rng(1).uniform(1.0, 400.0, 25)
    noise[::4] = np.nan  # these have the fitted noise
    y = field(X) + np.sqrt(np.nan_to_num(noise)) * np.random.default_rng(2).normal(size=25)
    belief = field_of(X[:0], y[:0])
    for rows in np.split(np.arange(25), np.cumsum(steps)[:-1]):
        belief = belief.update(X[rows], y[rows], noise[rows])
    alpha, places = np.where(np.isnan(noise), 1e-3, noise / 35.0**2), random_points(8, seed=5)
    oracle = scikit_learns(Matern([0.3, 0.5], nu=2.5), DOMAIN.to_unit(X), y, alpha)
    assert_is(belief, oracle, places, DOMAIN.to_unit(places))


def test_a_fit_does_not_take_known_noise_for_noise_of_the_field():
    rng, X = np.random.default_rng(0), random_points(80)
    noise = np.where(np.arange(80) % 2, 30.0**2, np.nan)
    y = field(X) + np.sqrt(np.nan_to_num(noise)) * rng.normal(size=80)
    empty = ExactGP.create(ExactGPSettings(), DOMAIN)
    with_noise, without = (empty.update(X, y, known).fit(np.random.default_rng(0)) for known in (noise, None))
    assert with_noise.noise_variance < 0.01 * without.noise_variance
    places = random_points(200, seed=9)
    errors = [np.abs(belief.posterior_mean(places) - field(places)).mean() for belief in (with_noise, without)]
    assert errors[0] < 0.5 * errors[1]


def test_masked_values_count_as_nan_and_text_is_refused():
    masked = np.ma.array([0.1, 1e6, 0.3], mask=[False, True, False])
    updated = sum_of("total", 3).update(np.full((3, 3), 0.5), masked, noise_variance=np.ma.abs(masked))
    np.testing.assert_array_equal(updated.totals[-3:], [0.1, np.nan, 0.3])
    np.testing.assert_array_equal(updated.noise[-3:, 0], [0.1, np.nan, 0.3])
    with pytest.raises(ShapeError, match=r"y\[1\]: got nan; wanted a finite number"):
        field_of(random_points(3), masked)
    with pytest.raises(ShapeError, match=r"X\[0\]: got \[nan, 2.0\]; wanted finite coordinates"):
        field_of(np.ma.array([[1.0, 2.0]], mask=[[True, False]]), [1.0])
    with pytest.raises(ShapeError, match=r"X: got \[\['a', 'b'\]\]; wanted an array of numbers"):
        field_of([["a", "b"]], [1.0])


def test_noise_of_one_factor_in_a_column_is_also_that_of_the_total():
    X, y, noise = np.zeros((3, 1)), [0.5, 1.0, 2.0], np.array([0.1, 0.2, np.nan])
    alone = AdditiveGP(FactorGraph.from_scopes({"f": ["x"]}))
    for column in (noise[:, None], np.column_stack([noise, [9.0, 9.0, 9.0]])):
        np.testing.assert_array_equal(alone.update(X, y, noise_variance=column).noise[:, 0], noise)


def test_inadmissible_noise_variances_are_refused_with_their_row():
    with pytest.raises(ShapeError, match=r"noise_variance: got shape \(1, 2\) for 1 points; wanted \(1,\)"):
        field_of(np.zeros((1, 2)), [1.0], [[0.1, 0.2]])
    with pytest.raises(ShapeError, match=r"noise_variance\[1\]: got -1.0; wanted a finite number >= 0, or NaN for the"):
        field_of(random_points(2), np.zeros(2), [0.0, -1.0])
    with pytest.raises(ShapeError, match=r"noise_variance\[0\]\[2\]: got inf; wanted a finite number >= 0"):
        sum_of("total").update(np.zeros((1, 3)), np.zeros((1, 3)), noise_variance=[[0.0, 1.0, np.inf]])
    with pytest.raises(ShapeError, match=r"got shape \(3,\) for 2 points; wanted \(2,\), \(2, 3\) or \(2, 4\)"):
        sum_of("total").update(np.zeros((2, 3)), np.zeros(2), noise_variance=[0.0, 1.0, 2.0])


@pytest.mark.parametrize("way", ["field", "fading field", "total", "factors", "mixed"])
def test_an_outcome_with_huge_noise_has_no_effect_however_large_its_noise(way):
    """Rounding is judged per row. Otherwise the noise of one outcome would hide all other outcomes from a fit."""
    X, time = np.random.default_rng(1).random((24, 1)), TimeAxis() if way == "fading field" else None
    y, graph, box = np.sin(6.0 * X[:, 0]), FactorGraph.from_scopes({"f": ["x"]}), Domain(np.zeros(1), np.ones(1))

    def fitted(worst):
        noise, rng = np.where(np.arange(24) == 7, worst, 1e-6), np.random.default_rng(0)
        if way.endswith("field"):
            return ExactGP.create(ExactGPSettings(time=time), box).update(X, y, noise).fit(rng)
        outcomes = {"totals": y} if way == "total" else {"factors": y[:, None]}
        if way == "mixed":
            outcomes = {
                "totals": np.where(np.arange(24) % 2, y, np.nan),
                "factors": np.where(np.arange(24) % 2, np.nan, y),
            }
            outcomes["factors"] = outcomes["factors"][:, None]
        return AdditiveGP.create(AdditiveGPSettings(), graph, box).update(X, noise_variance=noise, **outcomes).fit(rng)

    usual, extreme = fitted(1e4), fitted(1e20)
    for one, other in zip(usual.posterior([[0.31], [0.77]]), extreme.posterior([[0.31], [0.77]]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-8)
    assert extreme.jitter == 0.0
    assert extreme.noise_variance == pytest.approx(1e-6)  # future outcomes have the usual known noise


def test_noise_of_future_outcomes_is_the_median_of_known_noises_if_all_are_known():
    X, noise = random_points(30), np.where(np.arange(30) % 2, 4.0, 16.0)
    y = field(X) + np.sqrt(noise) * np.random.default_rng(5).normal(size=30)
    belief = ExactGP.create(ExactGPSettings(), DOMAIN).update(X, y, noise).fit(np.random.default_rng(0))
    assert belief.noise_variance == pytest.approx(10.0)
    assert_bit_identical(ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, belief.state_dict()), belief)


def test_outcomes_without_noise_are_learned_without_jitter():
    X = np.repeat(random_points(8), 2, axis=0)
    belief = field_of(X, field(X), 0.0)
    assert belief.jitter == 0.0
    np.testing.assert_allclose(belief.posterior_mean(X), field(X), atol=0.01)


@pytest.mark.parametrize("time", [None, TimeCorrelation("matern32", 6.0)])
def test_a_pending_total_couples_factors_with_separate_outcomes(time):
    """Variances are those after any outcome of the total, also in a later round and for points one by one."""
    rng = np.random.default_rng(3)
    X, F, ahead, places = rng.random((9, 3)), rng.normal(size=(9, 3)), rng.random((2, 3)), rng.random((6, 3))
    known = AdditiveGP(GRAPH, lengthscale=0.6, noise_variance=1e-2, time=time)
    known = with_own(known, outputscales=(1.0, 2.0, 0.5)).update(X, factors=F, rounds=np.arange(9.0))
    updated = known.update(ahead, np.zeros(2), rounds=[9.0, 10.0])
    waiting = known.condition_on_pending(ahead[:1], rounds=9.0).condition_on_pending(ahead[1:], rounds=10.0)
    assert waiting.is_coupled
    assert not known.is_coupled
    for one, other in ((waiting, updated), (waiting.at(12.0), updated.at(12.0))):
        covariances = one.joint_posterior(places)[1], other.joint_posterior(places)[1]
        np.testing.assert_allclose(*covariances, rtol=1e-6, atol=1e-9)
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


def test_points_that_became_pending_one_by_one_survive_saving_bit_identically():
    belief, more = belief_on(20), random_points(1, seed=7)
    for place in random_points(4, seed=6):
        belief = belief.condition_on_pending(place[None])
    restored = ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, belief.state_dict())
    assert_bit_identical(restored, belief)
    assert_bit_identical(restored.condition_on_pending(more), belief.condition_on_pending(more))


SETTINGS = ExactGPSettings(time=TimeAxis(kernel="matern12"))
OVER_TIME = hyperparameters(time=TimeCorrelation("matern12", 5.0))


def data_over_time(n=25, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([DOMAIN.from_unit(rng.uniform(size=(n, 2))), rng.integers(0, 12, size=n)])
    return X, 300.0 + 40.0 * np.sin(X[:, 0] / 17.0 + X[:, 2] / 4.0) + 0.2 * X[:, 1]


class Columns(Kernel):
    """A kernel of scikit-learn on some columns, so that kernels over space and over time can be multiplied."""

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


def test_posterior_and_evidence_are_those_of_scikit_learn_with_a_product_kernel():
    X, y = data_over_time()
    belief = ExactGP.from_hyperparameters(SETTINGS, DOMAIN, OVER_TIME, X[:10], y[:10])
    for i in range(10, 25):
        belief = belief.update(X[i : i + 1], y[i : i + 1])
    kernel = Columns(Matern((0.3, 0.5), nu=2.5), [0, 1]) * Columns(Matern(5.0, nu=0.5), [2])

    def unit(points):
        return np.column_stack([DOMAIN.to_unit(points[:, :2]), points[:, 2]])

    ahead, _ = data_over_time(30, seed=1)
    assert_is(belief, scikit_learns(kernel, unit(X), y), ahead, unit(ahead))


def test_points_without_a_round_have_that_of_the_belief():
    belief = ExactGP.from_hyperparameters(SETTINGS, DOMAIN, OVER_TIME, *data_over_time())
    places = data_over_time(6, seed=3)[0][:, :2]
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
    """The truth is drawn from the prior: the fitted time lengthscale is near that of the draw."""
    rng, settings = np.random.default_rng(2), ExactGPSettings(time=TimeAxis(kernel="matern32"))
    X = np.column_stack([DOMAIN.from_unit(rng.uniform(size=(240, 2))), np.repeat(np.arange(24.0), 10)])
    U = np.column_stack([DOMAIN.to_unit(X[:, :2]), X[:, 2]])
    fitted: list[float] = []
    for lengthscale in (2.0, 30.0):
        K = Covariance("matern52", np.array([0.5, 0.5, lengthscale]), 1.0, "matern32").matrix(U, U)
        y = np.linalg.cholesky(K + 1e-4 * np.eye(240)) @ rng.standard_normal(240)
        h = ExactGP.create(settings, DOMAIN).update(X, y).fit(np.random.default_rng(0)).hyperparameters
        fitted.append(h.time.lengthscale / lengthscale)
    assert all(0.5 < ratio < 2.0 for ratio in fitted), fitted


def test_a_saved_belief_continues_bit_identically():
    belief = (
        ExactGP.from_hyperparameters(SETTINGS, DOMAIN, OVER_TIME, *data_over_time())
        .at(9.0)
        .fit(np.random.default_rng(0))
    )
    state = belief.state_dict()
    plain = json.loads(json.dumps(state["json"]))
    again = ExactGP.from_state_dict(SETTINGS, DOMAIN, {"json": plain, "arrays": state["arrays"]})
    places = data_over_time(9, seed=7)[0][:, :2]
    np.testing.assert_array_equal(again.posterior(places), belief.posterior(places))
    X, y = data_over_time(3, seed=8)
    one, other = (b.update(X, y).fit(np.random.default_rng(1)) for b in (belief, again))
    assert one.hyperparameters == other.hyperparameters
    assert one.log_evidence() == other.log_evidence()


def test_wrong_settings_of_the_time_axis_are_refused_with_their_path():
    with pytest.raises(ConfigError, match=r"\$\.belief\.time\.lengthscale_median: got 0\.0; wanted a number > 0"):
        convert({"kind": "exact", "time": {"lengthscale_median": 0.0}}, ExactGPSettings, at="$.belief")
    with pytest.raises(ConfigError, match=r"\$\.belief\.time\.kernel: got 'matern33'; .*did you mean 'matern32'"):
        convert({"kind": "exact", "time": {"kernel": "matern33"}}, ExactGPSettings, at="$.belief")
