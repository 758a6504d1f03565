import io
import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters
from swarmbo.errors import ConfigError, ShapeError, StateVersionError
from swarmbo.kernels import KERNEL_NAMES
from swarmbo.settings import convert
from swarmbo.spaces import Domain

DOMAIN = Domain(np.array([10.0, -200.0]), np.array([110.0, 100.0]))
SMOOTH = [name for name in KERNEL_NAMES if name != "matern12"]


def random_points(n, seed=0):
    return DOMAIN.from_unit(np.random.default_rng(seed).uniform(size=(n, 2)))


def field(X):
    return 300.0 + 40.0 * np.sin(X[:, 0] / 17.0) + 0.2 * X[:, 1]


def hyperparameters(name="matern52"):
    return Hyperparameters(name, (0.3, 0.5), 1.7, 1e-3, mean=0.2, offset=290.0, scale=35.0)


def belief_on(n, name="matern52", seed=0):
    X = random_points(n, seed)
    return ExactGP.from_hyperparameters(ExactGPSettings(kernel=name), DOMAIN, hyperparameters(name), X, field(X))


def assert_same_posterior(first, second, tolerance):
    X = random_points(30, seed=99)
    for a, b in zip(first.joint_posterior(X), second.joint_posterior(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert first.log_evidence() == pytest.approx(second.log_evidence(), rel=tolerance)


def assert_equal_to_the_bit(first, second):
    X = random_points(30, seed=99)
    for a, b in zip(first.posterior_gradient(X), second.posterior_gradient(X), strict=True):
        np.testing.assert_array_equal(a, b)
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
    _, mean_gradient, _, var_gradient = belief.posterior_gradient(random_points(4))
    assert not mean_gradient.any()
    assert not var_gradient.any()


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_updates_one_by_one_equal_one_batch(name):
    X = random_points(60)
    batch = belief_on(60, name)
    single = belief_on(0, name)
    for i in range(60):
        single = single.update(X[i : i + 1], field(X[i : i + 1]))
    assert_same_posterior(single, batch, 1e-9)
    np.testing.assert_array_equal(single.X, batch.X)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_the_order_of_data_does_not_matter(name):
    X = random_points(40)
    order = np.random.default_rng(1).permutation(40)
    other = ExactGP.from_hyperparameters(
        ExactGPSettings(kernel=name), DOMAIN, hyperparameters(name), X[order], field(X[order])
    )
    assert_same_posterior(belief_on(40, name), other, 1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(0, 15), k=st.integers(1, 6), name=st.sampled_from(KERNEL_NAMES))
def test_variance_is_never_negative_and_never_grows_with_data(seed, n, k, name):
    before = belief_on(n, name, seed)
    X_new = random_points(k, seed + 1)
    X_new[0] = before.X[0] if n else X_new[0]
    after = before.update(X_new, field(X_new))
    targets = np.concatenate([random_points(10, seed + 2), X_new, before.X])
    (_, var_before), (_, var_after) = before.posterior(targets), after.posterior(targets)
    assert (var_after >= 0.0).all()
    assert (var_after <= var_before + 1e-9 * before.prior_variance).all()
    assert (var_before <= before.prior_variance).all()


def test_updates_leave_the_older_belief_as_it_was():
    before = belief_on(20)
    mean, var = before.posterior(random_points(5, 3))
    before.update(random_points(10, 4), np.zeros(10)).fit(np.random.default_rng(0))
    assert before.n_data == 20
    for old, new in zip((mean, var), before.posterior(random_points(5, 3)), strict=True):
        np.testing.assert_array_equal(old, new)
    with pytest.raises(ValueError, match="read-only"):
        before.y[0] = 1.0


def test_the_callers_arrays_stay_writable_and_unshared():
    X = random_points(5)
    y = field(X)
    belief = belief_on(0).update(X, y)
    mean, _ = belief.posterior(X)
    X[:] = 0.0
    y[:] = 0.0
    np.testing.assert_array_equal(belief.posterior(belief.X)[0], mean)


@pytest.mark.parametrize("name", KERNEL_NAMES)  # that of matern12 away from data, where it has cusps
def test_posterior_gradients_equal_finite_differences(name):
    belief, step_length, tolerance = belief_on(25, name), 1e-4, 1e-5
    if name not in SMOOTH:
        step_length, tolerance = 1e-5, 1e-4
    X = random_points(6, seed=5)
    mean, mean_gradient, var, var_gradient = belief.posterior_gradient(X)
    for a, b in zip((mean, var), belief.posterior(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    for j in range(2):
        step = np.zeros(2)
        step[j] = step_length
        (up_mean, up_var), (down_mean, down_var) = belief.posterior(X + step), belief.posterior(X - step)
        for gradient, up, down in ((mean_gradient, up_mean, down_mean), (var_gradient, up_var, down_var)):
            numeric = (up - down) / (2.0 * step_length)
            np.testing.assert_allclose(gradient[:, j], numeric, rtol=tolerance, atol=tolerance)


def test_posterior_is_the_textbook_formula_in_physical_units():
    belief, h = belief_on(12), hyperparameters()
    X = random_points(3, seed=8)
    data, targets = DOMAIN.to_unit(belief.X), DOMAIN.to_unit(X)

    def k(A, B):
        r = np.sqrt(5.0) * np.linalg.norm((A[:, None] - B[None]) / np.array(h.lengthscales), axis=2)
        return h.outputscale * h.scale**2 * (1.0 + r + r**2 / 3.0) * np.exp(-r)

    K = k(data, data) + h.noise_variance * h.scale**2 * np.eye(12)
    prior_mean = h.offset + h.scale * h.mean
    mean, cov = belief.joint_posterior(X)
    np.testing.assert_allclose(
        mean, prior_mean + k(targets, data) @ np.linalg.solve(K, belief.y - prior_mean), rtol=1e-9
    )
    expected = k(targets, targets) - k(targets, data) @ np.linalg.solve(K, k(data, targets))
    np.testing.assert_allclose(cov, expected, rtol=1e-8, atol=1e-8)
    assert belief.noise_variance == pytest.approx(1e-3 * 35.0**2)
    assert belief.prior_variance == pytest.approx(1.7 * 35.0**2)


def test_cache_covariances_equal_the_joint_ones():
    belief = belief_on(20)
    X = random_points(9, seed=2)
    mean, cov = belief.joint_posterior(X)
    cache = belief.posterior_cache(X)
    rows, cols = np.array([7, 0, 3]), np.array([3, 8])
    np.testing.assert_allclose(cache.cov(rows, cols), cov[np.ix_(rows, cols)], rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(cache.mean, mean)
    np.testing.assert_allclose(cache.var, cov.diagonal(), rtol=1e-9)


def test_a_whole_map_is_predicted_in_pieces_without_seams():
    belief = belief_on(20)
    X = random_points(5000)
    mean, var = belief.posterior(X)
    for i in (0, 4095, 4096, 4999):
        one_mean, one_var = belief.posterior(X[[i]])
        assert mean[i] == pytest.approx(one_mean[0], rel=1e-12)
        assert var[i] == pytest.approx(one_var[0], rel=1e-9)


def test_pending_points_keep_the_mean_and_shrink_the_variance_like_data():
    belief = belief_on(20)
    pending, X = random_points(4, seed=3), random_points(30, seed=4)
    conditioned = belief.condition_on_pending(pending[:3]).condition_on_pending(pending[3:])
    (mean, var), (mean_after, var_after) = belief.posterior(X), conditioned.posterior(X)
    np.testing.assert_allclose(mean_after, mean, rtol=1e-13)
    assert (var_after < var).all()
    _, var_with_data = belief.update(pending, np.zeros(4)).posterior(X)
    np.testing.assert_allclose(var_after, var_with_data, rtol=1e-9)
    hallucinated = belief.update(pending, belief.posterior(pending)[0])
    np.testing.assert_allclose(mean_after, hallucinated.posterior(X)[0], rtol=1e-10)
    assert conditioned.n_data == 20
    assert conditioned.n_pending == 4
    assert conditioned.log_evidence() == belief.log_evidence()
    assert conditioned.tells_since_fit == belief.tells_since_fit


def test_update_and_fit_forget_pending_points():
    belief = belief_on(20)
    conditioned = belief.condition_on_pending(random_points(4, seed=3))
    X = random_points(2, seed=5)
    assert_equal_to_the_bit(conditioned.update(X, field(X)), belief.update(X, field(X)))
    assert_equal_to_the_bit(conditioned.fit(np.random.default_rng(0)), belief.fit(np.random.default_rng(0)))


def test_fit_is_asked_for_with_the_first_data_and_then_every_so_many_tells():
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


def test_update_keeps_hyperparameters_and_outcome_scale_and_fit_moves_them():
    belief = belief_on(20)
    updated = belief.update(random_points(5, 7), np.full(5, 1e4))
    assert updated.hyperparameters == belief.hyperparameters
    refitted = updated.fit(np.random.default_rng(0))
    assert refitted.hyperparameters.offset == pytest.approx(updated.y.mean())
    assert refitted.hyperparameters.scale == pytest.approx(updated.y.std())


@pytest.mark.parametrize(("shift", "factor"), [(0.0, 1000.0), (-5e4, 1.0), (273.15, 0.01)])
def test_fitted_predictions_follow_an_affine_change_of_the_outcomes_unit(shift, factor):
    X, targets = random_points(40), random_points(20, seed=1)
    plain = ExactGP.create(ExactGPSettings(), DOMAIN).update(X, field(X)).fit(np.random.default_rng(0))
    other = ExactGP.create(ExactGPSettings(), DOMAIN).update(X, shift + factor * field(X)).fit(np.random.default_rng(0))
    (mean, var), (other_mean, other_var) = plain.posterior(targets), other.posterior(targets)
    scale = factor * plain.hyperparameters.scale
    np.testing.assert_allclose(other_mean, shift + factor * mean, atol=1e-3 * scale)
    np.testing.assert_allclose(other_var, factor**2 * var, rtol=1e-2)


def test_fitted_predictions_follow_an_affine_change_of_the_coordinates_unit():
    X, targets = random_points(40), random_points(20, seed=1)
    plain = ExactGP.create(ExactGPSettings(), DOMAIN).update(X, field(X)).fit(np.random.default_rng(0))
    in_feet = Domain(3.28 * DOMAIN.low + 7.0, 3.28 * DOMAIN.high + 7.0)
    other = ExactGP.create(ExactGPSettings(), in_feet).update(3.28 * X + 7.0, field(X)).fit(np.random.default_rng(0))
    mean, mean_gradient, var, _ = plain.posterior_gradient(targets)
    other_mean, other_gradient, other_var, _ = other.posterior_gradient(3.28 * targets + 7.0)
    np.testing.assert_allclose(other_mean, mean, atol=1e-3 * plain.hyperparameters.scale)
    np.testing.assert_allclose(other_var, var, rtol=1e-2)
    np.testing.assert_allclose(3.28 * other_gradient, mean_gradient, atol=1e-2)


@pytest.mark.parametrize("pending", [0, 3])
@pytest.mark.parametrize("through_files", [False, True])
def test_a_restored_belief_goes_on_exactly_as_the_saved_one(pending, through_files):
    belief = ExactGP.create(ExactGPSettings(), DOMAIN).update(random_points(20), field(random_points(20)))
    belief = belief.fit(np.random.default_rng(0)).update(random_points(3, 1), field(random_points(3, 1)))
    belief = belief.condition_on_pending(random_points(pending, 2))
    state = belief.state_dict()
    if through_files:
        file = io.BytesIO()
        np.savez(file, **state["arrays"])
        file.seek(0)
        with np.load(file) as arrays:
            state = {"json": json.loads(json.dumps(state["json"])), "arrays": dict(arrays)}
    restored = ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, state)
    assert_equal_to_the_bit(restored, belief)
    assert restored.n_pending == pending
    X = random_points(7, seed=3)
    restored, belief = restored.update(X, field(X)), belief.update(X, field(X))
    assert_equal_to_the_bit(restored, belief)
    assert_equal_to_the_bit(restored.fit(np.random.default_rng(5)), belief.fit(np.random.default_rng(5)))


def test_a_state_read_in_another_memory_order_is_put_back_in_order():
    belief = belief_on(30)
    state = belief.state_dict()
    state["arrays"]["L_0"] = np.ascontiguousarray(state["arrays"]["L_0"])
    state["arrays"]["points"] = np.asfortranarray(state["arrays"]["points"])
    restored = ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, state)
    assert restored.state_dict()["arrays"]["L_0"].flags.f_contiguous
    assert restored.X.flags.c_contiguous
    assert_equal_to_the_bit(restored, belief)


def test_a_state_of_another_version_is_refused():
    state = belief_on(3).state_dict()
    state["json"]["version"] = 99
    with pytest.raises(StateVersionError, match="got version 99"):
        ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, state)


def test_a_belief_is_rebuilt_from_its_record():
    belief = ExactGP.create(ExactGPSettings(), DOMAIN).update(random_points(20), field(random_points(20)))
    belief = belief.fit(np.random.default_rng(0))
    record = json.loads(json.dumps(msgspec.to_builtins(belief.hyperparameters)))
    rebuilt = ExactGP.from_hyperparameters(
        ExactGPSettings(), DOMAIN, msgspec.convert(record, Hyperparameters), belief.X, belief.y
    )
    assert rebuilt.hyperparameters == belief.hyperparameters
    assert_same_posterior(rebuilt, belief, 1e-9)


def test_jitter_of_noise_free_duplicates_is_on_the_record():
    h = msgspec.structs.replace(hyperparameters(), noise_variance=0.0)
    X = np.concatenate([random_points(4), random_points(4)])
    belief = ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, h, X[:4], field(X[:4]))
    assert belief.jitter == 0.0
    belief = belief.update(X[4:], field(X[4:]))
    assert 0.0 < belief.jitter < 1e-9
    np.testing.assert_allclose(belief.posterior(X)[0], field(X), rtol=1e-6)


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
    for predict in (
        belief.posterior,
        belief.joint_posterior,
        belief.posterior_gradient,
        belief.posterior_cache,
        belief.condition_on_pending,
    ):
        with pytest.raises(ShapeError, match=r"X\[1\]"):
            predict(bad)


def test_hyperparameters_of_another_dimension_are_refused():
    with pytest.raises(ShapeError, match="2 lengthscales for a domain of 1"):
        ExactGP.from_hyperparameters(
            ExactGPSettings(), Domain(np.zeros(1), np.ones(1)), hyperparameters(), np.zeros((0, 1)), np.zeros(0)
        )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"noise_floor": -1.0}, r"noise_floor: got -1.0; wanted a number in \(0, 1\]"),
        ({"lengthscale_median": 0.0}, "lengthscale_median: got 0.0"),
        ({"refit_every": 0}, "refit_every: got 0"),
        ({"restarts": -1}, "restarts: got -1"),
        ({"kernel": "matern"}, "kernel"),
        ({"noise_variance": 1.0}, "unknown key"),
    ],
)
def test_bad_settings_are_refused_with_the_key(table, message):
    with pytest.raises(ConfigError, match=message):
        convert(table, ExactGPSettings, at="$.belief")
