"""EGP-TS and EGP-EI: a member is drawn by weight, then the rule is followed for it."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from swarmbo.acquisition.expected_improvement import ExpectedImprovement
from swarmbo.acquisition.thompson import EGPEI, EGPTS
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.model import EnsembleModel, Learned, learn_ensemble
from swarmbo.errors import SwarmboError
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.problem.data import Dataset

SMALL = EnsembleSettings(kernels=("matern32", "rbf"), lengthscales=(0.3, 1.0), n_features=32, refit_every=6)
BOTH = pytest.mark.parametrize("outcomes", ["total", "per-factor"])


def cut(situation, t):
    history = situation.history
    return replace(situation, history=Dataset(history.X[:t], history.totals[:t], history.factors[:t]))


@BOTH
def test_draws_of_many_rounds_have_the_mixtures_mean_and_spread(situation_of, outcomes) -> None:
    first = situation_of(t=12, outcomes=outcomes, noise=2.0)
    model, U = learn_ensemble(first, SMALL, None), np.random.default_rng(0).random((8, 5))
    rngs, draws = [np.random.default_rng(i) for i in range(len(model.ensemble.parts))], []
    for r in range(1000):
        drawn = replace(model, chosen=model.ensemble.choose(rngs))
        draws.append(total_value(EGPTS().local_functions(replace(first, round=r), drawn), U))
    mean, std = model.posterior(first.domain.from_unit(U))
    assert np.abs((np.mean(draws, axis=0) - mean) / std * np.sqrt(1000)).max() < 4.5
    ratio = np.std(draws, axis=0) / std
    assert (np.abs(ratio - 1.0) < 0.15).all()


@BOTH
def test_members_are_drawn_as_often_as_they_weigh(situation_of, outcomes) -> None:
    settings = msgspec.structs.replace(SMALL, floor=0.2)  # nobody is too rare to be counted
    first = situation_of(t=12, outcomes=outcomes, noise=2.0)
    last = learn_ensemble(first, settings, None)
    models = [learn_ensemble(replace(first, round=r), settings, last.learned, last) for r in range(150)]
    for i, weights in enumerate(last.ensemble.weights):
        counts = np.bincount([model.chosen[i] for model in models], minlength=4)
        error = (counts / 150 - weights) / np.sqrt(weights * (1.0 - weights) / 150)
        assert np.abs(error).max() < 4.0


@BOTH
def test_draws_are_for_ever_the_same_and_differ_when_they_should(situation_of, outcomes) -> None:
    base, U = situation_of(outcomes=outcomes), np.full((1, 5), 0.3)

    def value(situation):
        functions = EGPTS().local_functions(situation, learn_ensemble(situation, SMALL, None))
        return float(total_value(functions, U)[0])

    others = [replace(base, round=4), replace(base, seed=1), replace(base, pending=situation_of(pending=1).pending)]
    assert value(base) == value(base)
    assert len({value(base), *map(value, others)}) == 4


def test_points_that_are_out_change_neither_weights_nor_means(situation_of) -> None:
    base = situation_of()
    alone = learn_ensemble(base, SMALL, None)
    waiting = learn_ensemble(replace(base, pending=situation_of(pending=3, seed=4).pending), SMALL, None)
    X = base.domain.from_unit(np.random.default_rng(0).random((5, 5)))
    (mean, std), (other_mean, other_std) = alone.posterior(X), waiting.posterior(X)
    np.testing.assert_allclose(mean, other_mean, rtol=1e-9)
    assert (other_std <= std * (1.0 + 1e-9)).all()
    assert alone.ensemble.weights[0].tolist() == waiting.ensemble.weights[0].tolist()


@BOTH
def test_going_on_from_the_last_model_changes_no_bit(situation_of, outcomes) -> None:
    whole, learned, last = situation_of(t=30, outcomes=outcomes), None, None
    for t in range(10, 31):
        situation = cut(whole, t)
        model = learn_ensemble(situation, SMALL, learned, last)
        alone = learn_ensemble(situation, SMALL, learned, None)
        X = whole.domain.from_unit(np.full((1, 5), 0.4))
        assert model.posterior(X)[0].tolist() == alone.posterior(X)[0].tolist()
        for ours, theirs in zip(model.ensemble.weights, alone.ensemble.weights, strict=True):
            assert ours.tolist() == theirs.tolist()
        assert model.chosen == alone.chosen
        assert model.learned == alone.learned
        learned, last = model.learned, model
    assert learned is not None
    assert {part.fitted_at for part in learned.ensemble.parts} == {28}  # 10, 16, 22, 28
    assert learned.fitted_at == 28


def test_features_are_drawn_anew_with_each_fit_only(situation_of) -> None:
    whole = situation_of(t=20)
    first = learn_ensemble(cut(whole, 10), SMALL, None)
    later = learn_ensemble(cut(whole, 15), SMALL, first.learned)
    refitted = learn_ensemble(cut(whole, 16), SMALL, later.learned)

    def waves(model):
        return model.ensemble.parts[0].bases[0][0].frequencies.tolist()

    assert waves(first) == waves(later)
    assert waves(first) != waves(refitted)


def test_what_was_learned_survives_being_written_down(situation_of) -> None:
    situation = situation_of(t=14)
    learned = learn_ensemble(cut(situation, 10), SMALL, None).learned
    read = msgspec.convert(msgspec.json.decode(msgspec.json.encode(learned)), Learned)
    X = situation.history.X[:2]
    ours, theirs = (learn_ensemble(situation, SMALL, kept).posterior(X) for kept in (learned, read))
    assert ours[1].tolist() == theirs[1].tolist()


@BOTH
def test_the_incumbent_is_the_evaluated_point_the_mixture_thinks_most_of(situation_of, outcomes) -> None:
    situation = situation_of(scopes={"f": ["a"], "g": ["b"]}, outcomes=outcomes, t=15)
    model = learn_ensemble(situation, SMALL, None)
    U = situation.domain.to_unit(situation.history.X)
    if outcomes == "total":
        assert model.incumbent().tolist() == U[int(model.posterior(situation.history.X)[0].argmax())].tolist()
    else:
        best = model.ensemble.factor_means(U).argmax(axis=1)
        assert model.incumbent().tolist() == [U[best[0], 0], U[best[1], 1]]


@BOTH
def test_expected_improvement_is_that_of_the_exact_process_of_the_drawn_member(situation_of, outcomes) -> None:
    situation = situation_of(outcomes=outcomes)
    model = learn_ensemble(situation, SMALL, None)
    U = np.random.default_rng(0).random((4, 5))
    ours = total_value(EGPEI().local_functions(situation, model), U)
    assert ours.tolist() == total_value(ExpectedImprovement().local_functions(situation, model), U).tolist()
    h = model.belief.hyperparameters
    for part, m in zip(model.ensemble.hyper.parts, model.chosen, strict=True):
        for i, lengths in zip(part.factors, part.members[m].lengthscales, strict=True):
            assert h.lengthscales[i] == lengths
            assert h.kernels[i] == part.members[m].kernel


@BOTH
def test_failures_and_nothing_at_all_are_learned_from(situation_of, outcomes) -> None:
    whole = situation_of(t=10, outcomes=outcomes)
    failed = Dataset(whole.history.X, np.full(10, np.nan), np.full((10, 4), np.nan))
    some = Dataset(whole.history.X, whole.history.totals.copy(), whole.history.factors.copy())
    some.totals[::2], some.factors[1::3] = np.nan, np.nan
    for history in (cut(whole, 0).history, failed, some):
        situation = replace(whole, history=history)
        model = learn_ensemble(situation, SMALL, None)
        for kind in (EGPTS(), EGPEI()):
            functions = kind.local_functions(situation, model)
            for stack in stacks_of(functions.graph):
                middle = np.full((len(stack.factors), 2, stack.size), 0.4)
                assert all(np.isfinite(found).all() for found in functions.value_and_gradient(stack, middle, ()))
        assert np.isfinite(model.incumbent()).all()


def test_members_are_fitted_anew_until_outcomes_show_their_scale(situation_of) -> None:
    whole = situation_of(t=12)
    flat = Dataset(whole.history.X, np.where(np.arange(12) < 11, 5.0, 9.0), whole.history.factors)
    situation = replace(whole, history=flat)
    early = learn_ensemble(cut(situation, 10), SMALL, None)
    assert not early.learned.ensemble.parts[0].is_shown
    same = learn_ensemble(cut(situation, 10), SMALL, early.learned)
    assert same.learned == early.learned
    later = learn_ensemble(situation, SMALL, learn_ensemble(cut(situation, 11), SMALL, early.learned).learned)
    assert later.learned.ensemble.parts[0].fitted_at == 12
    assert later.learned.ensemble.parts[0].is_shown


@pytest.mark.parametrize("kind", [EGPTS(), EGPEI()])
def test_a_belief_that_is_no_ensemble_is_refused(situation_of, kind) -> None:
    situation = situation_of()
    model = kind.learn(situation, AdditiveGPSettings(max_iterations=5), None)
    assert not isinstance(model, EnsembleModel)
    with pytest.raises(SwarmboError, match="wanted belief = 'ensemble'"):
        kind.local_functions(situation, model)
