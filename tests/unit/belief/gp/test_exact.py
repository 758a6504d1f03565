import numpy as np
import pytest

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


def assert_equal_to_the_bit(first, second):
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
    (mean, var), (other_mean, other_var) = plain.posterior(targets), other.posterior(3.28 * targets + 7.0)
    np.testing.assert_allclose(other_mean, mean, atol=1e-3 * plain.hyperparameters.scale)
    np.testing.assert_allclose(other_var, var, rtol=1e-2)


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


def test_a_state_with_a_wrong_hyperparameter_is_refused_by_its_name():
    state = belief_on(3).state_dict()
    state["json"]["hyperparameters"]["noise_variance"] = "loud"
    with pytest.raises(ConfigError, match=r"\$\.hyperparameters\.noise_variance: got 'loud'"):
        ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, state)


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
        ({"kernel": "matern"}, "kernel"),
        ({"noise_variance": 1.0}, "unknown key"),
    ],
)
def test_bad_settings_are_refused_with_the_key(table, message):
    with pytest.raises(ConfigError, match=message):
        convert(table, ExactGPSettings, at="$.belief")
