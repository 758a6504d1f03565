import json

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.belief import AdditiveGP, AdditiveGPSettings, AdditiveHyperparameters, FactorPrior, TimeCorrelation
from swarmbo.belief.gp.additive_settings import regrouped
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.settings import convert
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import MixedDomain

from .dense import with_own

GRAPH = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"], "h": ["c"]})
DOMAIN = Domain(np.array([0.0, -5.0, 100.0]), np.array([2.0, 5.0, 300.0]))
BOUNDS = {"a": (0.0, 2.0), "b": (-5.0, 5.0), "c": (100.0, 300.0)}


def outcomes_of(way, t, seed=0):
    rng = np.random.default_rng(seed)
    X, totals, factors = DOMAIN.from_unit(rng.random((t, 3))), 10.0 * rng.normal(size=t), 10.0 * rng.normal(size=(t, 3))
    if way == "total":
        factors[:] = np.nan
    elif way == "per-factor":
        totals[:] = np.nan
    else:
        factors[rng.random((t, 3)) < 0.4], totals[rng.random(t) < 0.4] = np.nan, np.nan
    return {"X": X, "totals": totals, "factors": factors, "noise_variance": rng.random(t) * 0.1}


def rows(data, part):
    return {name: array[part] for name, array in data.items()}


def created(outcomes="total", **changes):
    return AdditiveGP.create(AdditiveGPSettings(**changes), GRAPH, DOMAIN, outcomes)


def assert_sound(belief):
    """Assert that posteriors of the sum and of every factor are finite, with variances >= 0."""
    X = DOMAIN.from_unit(np.random.default_rng(9).random((8, 3)))
    everything = list(belief.posterior(np.concatenate([X, belief.X[:5]])))
    stacks = stacks_of(GRAPH)
    for stack in stacks:
        U = DOMAIN.to_unit(X)
        own, local = stack.take(U), {"gradient": True}
        for found in (belief.local(stack, own, **local), belief.local_contrast(stack, own, U[0], **local)):
            everything += [found.mean, found.dmean, found.var, found.dvar]
            assert (found.var >= 0.0).all()
    sample = belief.sample({f: np.random.default_rng(i) for i, f in enumerate(GRAPH.factors)}, np.random.default_rng(8))
    everything += [sample.value(stack, stack.take(DOMAIN.to_unit(X))) for stack in stacks]
    assert all(np.isfinite(array).all() for array in everything)
    assert np.isfinite(belief.log_evidence())


def test_a_belief_without_data_needs_no_fit_and_is_in_the_unit_of_outcomes():
    belief = created()
    assert (belief.n_data, belief.log_evidence(), belief.needs_fit, belief.is_coupled) == (0, 0.0, False, False)
    assert belief.fit(np.random.default_rng(0)).hyperparameters.scales == (1.0, 1.0, 1.0)


def test_a_fit_does_not_change_the_original_belief_and_arrays_are_not_shared():
    data, X = outcomes_of("mixed", 12), DOMAIN.from_unit(np.random.default_rng(1).random((6, 3)))
    belief = created().update(**data)
    before = belief.joint_posterior(X)
    belief.fit(np.random.default_rng(0))
    data["X"][:] = 7.0  # the belief has a copy of the caller's array
    for ours, theirs in zip(belief.joint_posterior(X), before, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="read-only"):
        belief.X[0, 0] = 3.0


def test_a_first_total_after_outcomes_of_factors_couples_them_in_one_unit():
    data = outcomes_of("per-factor", 10)
    fitted = created("per-factor").update(**data).fit(np.random.default_rng(0))
    assert len(set(fitted.hyperparameters.scales)) == 3
    X = DOMAIN.from_unit(np.random.default_rng(1).random((6, 3)))
    new = fitted.update(X[:2], [1e9, np.nan], noise_variance=[1e18, np.nan])  # a total without information
    assert new.is_coupled
    assert not fitted.is_coupled
    np.testing.assert_allclose(new.posterior(X), fitted.posterior(X), rtol=1e-6, atol=1e-5)


def test_a_total_leaves_what_is_known_of_a_small_factor():
    data = outcomes_of("per-factor", 10)
    data["factors"][:, 1] *= 1e5
    fitted = created("total").update(**data).fit(np.random.default_rng(0))
    X = DOMAIN.from_unit(np.random.default_rng(1).random((6, 3)))
    told = fitted.update(X[:1], [0.0], noise_variance=1e30)  # a total without information
    told_later = told.update(X[1:2], factors=[[0.5, np.nan, np.nan]], noise_variance=0.05)
    later = fitted.update(X[1:2], factors=[[0.5, np.nan, np.nan]], noise_variance=0.05)
    pairs = (fitted.condition_on_pending(X[:1]), fitted), (told, fitted), (told_later, later)
    for coupled, alone in pairs:
        assert coupled.is_coupled
        assert not alone.is_coupled
        for place, factor in ((0, "f"), (2, "h")):
            own = X[:, list(GRAPH.columns[place])]
            mean, var = alone.factor_posterior(factor, own)
            found, found_var = coupled.factor_posterior(factor, own)
            np.testing.assert_allclose(found, mean, rtol=1e-4, atol=1e-3)
            np.testing.assert_allclose(found_var, var, rtol=1e-3)


def test_an_update_or_a_fit_removes_pending_points():
    belief = created().update(**outcomes_of("total", 10)).fit(np.random.default_rng(0))
    X = DOMAIN.from_unit(np.random.default_rng(1).random((6, 3)))
    waiting = belief.condition_on_pending(X[:1]).condition_on_pending(X[1:2])
    assert waiting.n_pending == 2
    assert (waiting.posterior(X)[1][:2] < 0.01 * belief.posterior(X)[1][:2]).all()
    updated = waiting.update(X[:1], [3.0])
    assert updated.n_pending == waiting.fit(np.random.default_rng(0)).n_pending == 0
    np.testing.assert_array_equal(updated.posterior(X)[1], belief.update(X[:1], [3.0]).posterior(X)[1])
    assert waiting.log_evidence() == belief.log_evidence()
    assert belief.condition_on_pending(X[:0]) is belief


def test_a_fit_is_due_at_once_and_then_after_every_few_evaluations():
    data, due = outcomes_of("total", 9), []
    data["totals"][3] = np.nan  # a failed measurement is no reason to refit
    belief = created(refit_every=3)
    for t in range(9):
        belief = belief.update(**rows(data, slice(t, t + 1)))
        due.append(belief.needs_fit)
        if belief.needs_fit:
            belief = belief.fit(np.random.default_rng(0))
    assert due == [True, False, False, False, True, False, False, True, False]


def test_a_record_of_hyperparameters_rebuilds_the_belief_without_a_fit():
    data = outcomes_of("mixed", 10)
    fitted = created().update(**data).fit(np.random.default_rng(0))
    h = convert(json.loads(msgspec.json.encode(fitted.hyperparameters)), AdditiveHyperparameters)
    rebuilt = AdditiveGP.from_hyperparameters(fitted.settings, GRAPH, DOMAIN, h, **data)
    X = DOMAIN.from_unit(np.random.default_rng(1).random((6, 3)))
    np.testing.assert_array_equal(rebuilt.joint_posterior(X)[1], fitted.joint_posterior(X)[1])
    assert not rebuilt.needs_fit


ZERO = [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("X", "more", "message"),
    [
        ([[0.0, 0.0]], {"y": [1.0]}, r"X: got shape \(1, 2\)"),
        ([[0.0, np.nan, 0.0]], {"y": [1.0]}, r"X\[0\]"),
        ([ZERO] * 2, {"y": [1.0]}, r"totals: got shape \(1,\); wanted \(2,\)"),
        ([ZERO] * 2, {"y": [1.0, np.inf]}, r"totals\[1\]: got inf"),
        ([ZERO] * 2, {"y": [1.0, -1e61]}, r"totals\[1\]"),
        ([ZERO] * 2, {"y": [[1.0, 2.0, 3.0], [1.0, -np.inf, 2.0]]}, r"factors\[1\]\[1\]: got -inf"),
        ([ZERO], {"y": [[1.0, 2.0]]}, r"factors: got shape \(1, 2\); wanted \(1, 3\)"),
        ([ZERO], {"y": [1.0], "noise_variance": [-1.0]}, r"noise_variance\[0\]: got -1"),
        ([ZERO], {"y": [1.0], "noise_variance": [np.inf]}, r"noise_variance\[0\]"),
        ([ZERO], {"y": [1.0], "noise_variance": [1.0, 2.0]}, r"noise_variance: got shape"),
        ([ZERO], {"y": [1.0], "totals": [1.0]}, "together"),
    ],
)
def test_bad_data_are_refused_with_their_row(X, more, message):
    with pytest.raises(ShapeError, match=message):
        created().update(X, **more)


def test_failed_measurements_are_left_out():
    data = outcomes_of("mixed", 8)
    more = {"X": data["X"][:2] + 0.1, "totals": [np.nan] * 2, "factors": np.full((2, 3), np.nan), "noise_variance": 0.0}
    belief = created().update(**data)
    failed = belief.update(**more)
    assert failed.n_data == belief.n_data <= 8
    assert len(failed.X) == 10
    X = DOMAIN.from_unit(np.random.default_rng(1).random((6, 3)))
    np.testing.assert_array_equal(failed.joint_posterior(X)[1], belief.joint_posterior(X)[1])


DEGENERATE = {  # functions of points and of outcomes of factors
    "nothing": lambda U, F: (U[:0], F[:0]),
    "constant": lambda U, F: (U, np.full_like(F, 4.2)),
    "300 duplicates": lambda U, F: (np.vstack([U, U[[0] * 300]]), np.vstack([F, F[[0] * 300]])),
    "1e-12 apart": lambda U, F: (np.vstack([U, U + 1e-12]), np.vstack([F, F + 1.0])),
    "1e12": lambda U, F: (U, F * 1e12),
    "tiny around 1e12": lambda U, F: (U, 1e12 + F * 1e-3),
    "one giant": lambda U, F: (U, np.where(np.arange(12)[:, None] == 3, 1e59, F)),
    "far outside": lambda U, F: (U * 1e6, F),
    "all failed": lambda U, F: (U, np.full_like(F, np.nan)),
}


@pytest.mark.parametrize("way", ["total", "per-factor"])
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_data_give_a_finite_posterior_without_a_warning(way, case):
    rng = np.random.default_rng(0)
    U, F = DEGENERATE[case](rng.random((12, 3)), rng.normal(size=(12, 3)))
    X, y = DOMAIN.from_unit(U), F if way == "per-factor" else F.sum(axis=1)
    belief = created(way).update(X, y)
    assert_sound(belief)
    fitted = belief.fit(np.random.default_rng(0))
    assert_sound(fitted)
    assert_sound(fitted.fit(np.random.default_rng(0), warm=fitted.hyperparameters))
    assert_sound(fitted.condition_on_pending(X[:3]))
    assert_sound(fitted.update(X[:3], y[:3]))


def test_duplicates_without_any_noise_are_reported_by_their_jitter():
    belief = AdditiveGP(GRAPH, noise_variance=0.0)
    X = np.repeat(np.random.default_rng(0).random((4, 3)), 3, axis=0)
    y = np.repeat([1.0, 2.0, 0.0, -1.0], 3)
    sound, jittered = belief.update(X[::3], y[::3]), belief.update(X, y)
    assert sound.jitter == 0.0
    assert 0.0 < jittered.jitter < 1e-9
    np.testing.assert_allclose(jittered.posterior(X)[0], y, atol=1e-5)
    assert (jittered.posterior(X)[1] < 1e-6).all()


def test_hyperparameters_given_by_hand_are_in_the_units_of_variables_and_outcomes():
    lengths = {"a": 0.5, "b": 2.0, "c": 40.0}
    given = {"noise_variance": np.float32(0.5), "mean": np.array(6.0)}
    belief = AdditiveGP(GRAPH, BOUNDS, kernel="rbf", lengthscale=lengths, **given)
    belief = with_own(belief, outputscales=(4.0, 1.0, 0.25))
    assert belief.hyperparameters.lengthscales == ((0.25, 0.2), (0.2, 0.2), (0.2,))
    assert (belief.prior_variance, belief.noise_variance) == (5.25, 0.5)
    box = Domain(*np.array(list(BOUNDS.values())).T)
    boxed = AdditiveGP(GRAPH, box, lengthscale=lengths)
    assert boxed.hyperparameters.lengthscales == belief.hyperparameters.lengthscales
    mean, cov = belief.joint_posterior([[0.0, 0.0, 100.0], [0.5, 2.0, 100.0]])
    np.testing.assert_allclose(mean, 6.0)
    assert cov[0, 1] == pytest.approx(4.0 * np.exp(-1.0) + np.exp(-0.5) + 0.25)
    mean, var = belief.update([[0.0, 0.0, 100.0]], [12.0]).factor_posterior("f", [[0.0, 0.0]])
    assert mean[0] == pytest.approx(2.0 + 4.0 / 5.75 * 6.0)
    assert var[0] == pytest.approx(4.0 - 16.0 / 5.75)
    assert belief.factor_posterior("h", [[150.0]])[0] == pytest.approx([2.0])


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"kernel": "cubic"}, "kernel"),
        ({"kernel": {"f": "rbf"}}, "kernel"),
        ({"kernel": "module:Class"}, "kernel: got 'module:Class'; wanted .* registered with"),
        ({"outcomes": "both"}, "outcomes"),
        ({"time": "matern32"}, "time"),
        *(({"bounds": {**BOUNDS, "b": wrong}}, "bounds.b") for wrong in ("01", (0.0, 1.0, 2.0), (1.0, 0.0))),
        ({"bounds": {**BOUNDS, "b": sb.Integer(0, 5)}}, "bounds: got variables with types"),
        ({"lengthscale": 0.0}, "lengthscale"),
        ({"lengthscale": {"a": 1.0, "b": 1.0}}, "lengthscale"),
        ({"lengthscale": {"a": 1.0, "b": 1.0, "x": 1.0}}, "lengthscale"),
        ({"lengthscale": {"a": 1.0, "b": -1.0, "c": 1.0}}, r"lengthscale\['b'\]"),
        ({"outputscale": -1.0}, "outputscale"),
        ({"outputscale": np.inf}, "outputscale"),
        ({"noise_variance": -1.0}, "noise_variance"),
        ({"noise_variance": np.nan}, "noise_variance"),
        ({"mean": np.inf}, "mean"),
        ({"bounds": {"a": (0.0, 1.0)}}, "bounds"),
        ({"bounds": {"a": (0.0, 1.0), "b": (1.0, 0.0), "c": (0.0, 1.0)}}, "bounds"),
    ],
)
def test_inadmissible_arguments_are_refused_by_name(wrong, path):
    with pytest.raises(ConfigError, match=rf"\$\.{path}"):
        AdditiveGP(GRAPH, **wrong)


def test_on_grid_and_logarithmic_axes_a_single_factor_equals_the_sum():
    axes = MixedDomain.of([sb.Integer(0, 4), sb.Real(0.01, 100.0, log=True)])
    belief = AdditiveGP.create(AdditiveGPSettings(), FactorGraph.from_scopes({"f": ["a", "b"]}), axes)
    belief = belief.update([[1.0, 0.1], [3.0, 9.0]], [1.0, -2.0])
    X = [[0.0, 0.05], [2.0, 3.0], [4.0, 80.0]]
    np.testing.assert_allclose(belief.factor_posterior("f", X), belief.posterior(X), rtol=1e-12)


def test_settings_and_data_that_do_not_fit_the_factors_are_refused():
    with pytest.raises(ConfigError, match=r"\$\.factors.*'q'"):
        created(factors={"q": FactorPrior(kernel="rbf")})
    with pytest.raises(ConfigError, match="outputscale_median"):
        convert({"kind": "additive", "factors": {"f": {"outputscale_median": -1.0}}}, AdditiveGPSettings)
    made = convert({"kind": "additive", "factors": {"f": {"kernel": "rbf"}}}, AdditiveGPSettings)
    assert made.factors["f"].kernel == "rbf"
    with pytest.raises(ShapeError, match="domain"):
        AdditiveGP.create(AdditiveGPSettings(), GRAPH, Domain(np.zeros(2), np.ones(2)))
    with pytest.raises(KeyError, match="nope"):
        created().factor_posterior("nope", [[0.0]])
    with pytest.raises(ConfigError, match="got outcomes of the sum; wanted outcomes of single factors"):
        created().update(np.zeros((1, 3)), [1.0]).log_evidences()
    with pytest.raises(ShapeError, match="hyperparameters"):
        created().with_hyperparameters(AdditiveGP(FactorGraph.from_scopes({"f": ["a"]})).hyperparameters)


def test_another_decomposition_keeps_lengthscales_of_variables_and_the_prior_of_the_sum():
    rng = np.random.default_rng(0)
    old = created().update(DOMAIN.from_unit(rng.random((20, 3))), rng.normal(size=20)).fit(rng).hyperparameters
    other = FactorGraph.from_scopes({"q": ["c", "a"], "h": ["c"], "r": ["b"]})
    h = regrouped(old, GRAPH, other, {1: 2}, "rbf")
    (a, b), (other_b, c), (other_c,) = old.lengthscales
    assert h.lengthscales[0] == pytest.approx((np.sqrt(c * other_c), a))
    assert h.lengthscales[2] == pytest.approx((np.sqrt(b * other_b),))
    assert h.lengthscales[1] == old.lengthscales[2]  # a kept factor keeps its own
    assert h.outputscales[1] == old.outputscales[2]
    assert h.kernels == ("rbf", old.kernels[2], "rbf")
    assert sum(h.outputscales) == pytest.approx(sum(old.outputscales))
    assert h.constant == pytest.approx(old.constant)
    assert regrouped(old, GRAPH, GRAPH, {0: 0, 1: 1, 2: 2}, "rbf") == old
    with_time = msgspec.structs.replace(old, times=(TimeCorrelation("matern12", 6.0),) * 3)
    paces = [time.lengthscale for time in regrouped(with_time, GRAPH, other, {1: 2}, "rbf").times]
    assert paces == pytest.approx([6.0] * 3)
