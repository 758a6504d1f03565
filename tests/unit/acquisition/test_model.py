"""Learning from a history: when hyper-parameters are refitted, when totals count, transformed outcomes."""

from dataclasses import replace

import numpy as np
import pytest

from swarmbo.acquisition.confidence_bounds import DECHBO
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.model import Learned, Model
from swarmbo.belief.model.warping import Warp
from swarmbo.problem.data import Dataset

BELIEF = AdditiveGPSettings(max_iterations=20, refit_every=3)


def learned_over(situation_of, rounds, settings=BELIEF) -> list[int]:
    learned: Learned | None = None
    fits = []
    for t in rounds:
        learned = DECHBO().learn(situation_of(t=t), settings, learned).learned
        fits.append(learned.fitted_at)
    return fits


def test_hyperparameters_are_refitted_after_every_few_evaluations(situation_of) -> None:
    assert learned_over(situation_of, [10, 11, 12, 13, 14, 17, 18]) == [10, 10, 10, 13, 13, 17, 17]


def test_hyperparameters_set_without_data_are_fitted_with_the_first_data(situation_of) -> None:
    assert learned_over(situation_of, [0, 1, 2], AdditiveGPSettings(max_iterations=20, refit_every=100)) == [0, 1, 1]


def test_a_refit_starts_from_what_was_learned_before(situation_of) -> None:
    one_step = AdditiveGPSettings(max_iterations=1)
    before = DECHBO().learn(situation_of(t=30), AdditiveGPSettings(max_iterations=200), None)
    warm, cold = (DECHBO().learn(situation_of(t=34), one_step, past).belief for past in (before.learned, None))
    assert warm.log_evidence() > cold.log_evidence() + 0.2


def test_between_fits_data_are_learned_with_the_hyperparameters_of_the_last_fit(situation_of) -> None:
    first = DECHBO().learn(situation_of(t=10), BELIEF, None)
    situation = situation_of(t=12)
    second = DECHBO().learn(situation, BELIEF, first.learned)
    assert second.belief.hyperparameters == first.belief.hyperparameters
    assert second.belief.n_data == 12
    h = situation.history
    learned = first.belief.hyperparameters
    by_hand = AdditiveGP.from_hyperparameters(BELIEF, situation.graph, situation.domain, learned, h.X, h.totals)
    X = situation.domain.from_unit(np.random.default_rng(0).random((4, 5)))
    np.testing.assert_array_equal(second.belief.posterior(X), by_hand.posterior(X))


def test_what_was_learned_for_another_graph_is_not_used(situation_of) -> None:
    other = DECHBO().learn(situation_of({"f": ["a", "b", "c", "d", "e"]}, t=10), BELIEF, None).learned
    assert DECHBO().learn(situation_of(t=11), BELIEF, other).learned.fitted_at == 11


def test_a_total_told_with_all_factors_adds_nothing_and_does_not_couple_them(situation_of) -> None:
    situation = situation_of(outcomes="per-factor")
    h = situation.history
    assert np.isfinite(h.totals).all()
    alone = replace(situation, history=Dataset(h.X, np.full(len(h), np.nan), h.factors))
    with_totals, without = (DECHBO().learn(s, BELIEF, None).belief for s in (situation, alone))
    assert not with_totals.is_coupled
    np.testing.assert_array_equal(with_totals.posterior(h.X + 0.01), without.posterior(h.X + 0.01))


def test_a_total_told_where_a_factor_failed_is_learned(situation_of) -> None:
    situation = situation_of(outcomes="per-factor", t=12)
    h = situation.history
    factors = h.factors.copy()
    factors[3, 1] = np.nan
    belief = DECHBO().learn(replace(situation, history=Dataset(h.X, h.totals, factors)), BELIEF, None).belief
    assert belief.is_coupled
    assert np.isfinite(belief.totals).tolist() == [i == 3 for i in range(12)]


def assert_moments_are_those_of(draws, model, X) -> None:
    """Assert that a model has the moments of sums of many draws that are transformed back."""
    mean, std = model.posterior(X)
    np.testing.assert_allclose(mean, draws.mean(axis=0), atol=5.0 * (std / np.sqrt(len(draws))).max())
    np.testing.assert_allclose(std, draws.std(axis=0), rtol=0.1)


def test_transformed_totals_are_read_in_the_unit_of_the_outcomes(situation_of) -> None:
    situation = situation_of(t=30)
    h, warp = situation.history, Warp.fitted("power", situation.history.totals)
    warped = replace(situation, history=Dataset(h.X, warp.forward(h.totals), h.factors))
    model = DECHBO().learn(warped, BELIEF, None)
    z, z_var = model.belief.posterior(h.X)
    draws = warp.backward(z + np.sqrt(z_var) * np.random.default_rng(0).standard_normal((20_000, 1)))
    assert_moments_are_those_of(draws, Model(model.belief, model.learned, warp), h.X)


def test_transformed_factors_add_up_in_the_unit_of_the_outcomes(situation_of) -> None:
    situation = situation_of({"f": ["a", "b"], "g": ["c"]}, t=30, outcomes="per-factor", noise=1.0)
    h = situation.history
    warps = tuple(Warp.fitted("power", h.factors[:, i]) for i in range(2))
    factors = np.array([warp.forward(h.factors[:, i]) for i, warp in enumerate(warps)]).T
    model = DECHBO().learn(replace(situation, history=Dataset(h.X, h.totals, factors)), BELIEF, None)
    rng, draws = np.random.default_rng(0), np.zeros((20_000, 30))
    for factor, columns, warp in (("f", [0, 1], warps[0]), ("g", [2], warps[1])):
        z, z_var = model.belief.factor_posterior(factor, h.X[:, columns])
        draws += warp.backward(z + np.sqrt(z_var) * rng.standard_normal((20_000, 30)))
    assert_moments_are_those_of(draws, Model(model.belief, model.learned, factor_warps=warps), h.X)


def test_an_untransformed_model_predicts_as_its_belief(situation_of) -> None:
    situation = situation_of()
    model = DECHBO().learn(situation, BELIEF, None)
    mean, var = model.belief.posterior(situation.history.X)
    assert np.array_equal(model.posterior(situation.history.X)[0], mean)
    assert model.posterior(situation.history.X)[1] == pytest.approx(np.sqrt(var))
