"""Thompson sampling: draws follow the posterior; agents in a field have separate draws; ensembles draw a member."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition.expected_improvement import ExpectedImprovement
from swarmbo.acquisition.thompson import EGPEI, EGPTS, FieldDraw, Thompson
from swarmbo.acquisition.utility import shortlist
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.model import EnsembleModel, Learned, learn_ensemble
from swarmbo.boundary.rng import stream
from swarmbo.errors import SwarmboError
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.problem.data import Dataset

from .fields import DOMAIN, situation, some_belief

BELIEF = AdditiveGPSettings(max_iterations=20)


def test_sums_of_drawn_factors_have_the_posterior_of_the_sum(situation_of) -> None:
    first = situation_of(t=10, noise=2.0)
    kind = Thompson(n_features=256)
    model = kind.learn(first, BELIEF, None)
    U = np.random.default_rng(0).random((8, 5))
    rounds = [replace(first, round=r) for r in range(1, 301)]
    draws = np.array([total_value(kind.local_functions(situation, model), U) for situation in rounds])
    mean, var = model.belief.posterior(first.domain.from_unit(U))
    errors = (draws.mean(axis=0) - mean) / np.sqrt(var / len(draws))
    assert np.abs(errors).max() < 4.0
    ratio = draws.var(axis=0) / var
    assert ratio.min() > 0.7
    assert ratio.max() < 1.4


SMALL = EnsembleSettings(kernels=("matern32", "rbf"), lengthscales=(0.3, 1.0), n_features=32, refit_every=6)
BOTH = pytest.mark.parametrize("outcomes", ["total", "per-factor"])


@BOTH
@pytest.mark.parametrize("kind", [Thompson(), EGPTS()])
def test_a_draw_depends_on_round_seed_and_pending_points_but_not_on_where_it_is_evaluated(
    situation_of, outcomes, kind
) -> None:
    base, U = situation_of(outcomes=outcomes), np.random.default_rng(0).random((6, 5))

    def values(situation, U=U):
        ensemble = isinstance(kind, EGPTS)
        model = learn_ensemble(situation, SMALL, None) if ensemble else kind.learn(situation, BELIEF, None)
        return total_value(kind.local_functions(situation, model), U)

    assert np.array_equal(values(base), values(base))
    np.testing.assert_allclose(values(base)[2:3], values(base, U[2:3]), rtol=1e-5)
    out = replace(base, pending=situation_of(pending=1).pending)
    every = (base, replace(base, round=4), replace(base, seed=1), out)
    assert len({float(values(situation)[0]) for situation in every}) == 4


LINE = np.linspace(0.0, 1.0, 21)[:, None]


def test_draws_have_the_mean_and_the_covariance_of_the_posterior():
    belief, rng = some_belief(), np.random.default_rng(0)
    X = DOMAIN.from_unit(np.random.default_rng(7).random((5, 2)))
    draws = np.array([FieldDraw.of(belief, X, rng).posterior_mean(X) for _ in range(1500)])
    mean, cov = belief.joint_posterior(X)
    scale = np.sqrt(np.outer(cov.diagonal(), cov.diagonal()))
    assert np.abs((draws.mean(axis=0) - mean) / np.sqrt(cov.diagonal())).max() < 0.1
    assert np.abs((np.cov(draws.T) - cov) / scale).max() < 0.1


def test_a_place_is_chosen_with_the_probability_that_it_is_the_best():
    """The definition of Thompson sampling, with one agent."""
    belief = some_belief()
    now = situation(belief, n_agents=1)
    places = now.candidates["s_0"]
    mean, cov = belief.joint_posterior(places)
    f = np.random.default_rng(1).multivariate_normal(mean, cov, size=50_000)
    expected = np.bincount(f.argmax(axis=1), minlength=len(places)) / len(f)
    counts = np.zeros(len(places))
    for round_number in range(600):
        choose = Thompson().alone(replace(now, round=round_number))
        chosen = choose("s_0", belief, places)
        assert chosen is not None
        counts[chosen] += 1
    assert np.abs(counts / 600 - expected).max() < 0.07


def test_each_agent_maximises_a_separate_draw():
    now = situation(some_belief())
    problem = Thompson().local_problem(now)
    for agent in now.agents:
        rng = stream(now.seed, "thompson", agent=agent, round=now.round)
        drawn = FieldDraw.of(now.belief, now.candidates[agent], rng).posterior_mean(problem.shortlists[agent])
        table = problem.tables[f"w_{agent}"]
        np.testing.assert_array_equal(table.max(axis=tuple(range(1, table.ndim))), drawn)
    values = [next(iter(problem.tables[f"w_{agent}"].flat)) for agent in now.agents]
    assert len(set(values)) == 3


@pytest.mark.parametrize("coordination", ["exact", "max-sum", "greedy"])
def test_agents_with_the_same_candidates_never_choose_the_same_place(coordination):
    agents = list("abc")
    team = sb.Team.for_field(agents, [0.0], [1.0], acquisition="thompson", coordination=coordination)
    team.attach(LINE[:5], LINE[:5, 0])
    for _ in range(8):
        points = team.ask(dict.fromkeys(agents, LINE[-3:])).points
        assert sorted(float(x[0]) for x in points.values()) == pytest.approx([0.9, 0.95, 1.0])


def test_a_place_at_minus_zero_equals_a_place_at_zero():
    team = sb.Team.for_field(["a"], [-1.0], [1.0], acquisition="thompson")
    assert team.ask({"a": [[-0.0], [0.0]]}).points["a"].tolist() == [0.0]


def test_draws_differ_between_rounds_and_seeds_and_equal_seeds_give_equal_draws():
    def chosen(seed):
        team = sb.Team.for_field(["a"], [0.0], [1.0], acquisition="thompson", seed=seed)
        return [float(team.ask({"a": LINE}).points["a"][0]) for _ in range(6)]

    assert chosen(0) == chosen(0)
    assert chosen(0) != chosen(1)
    assert len(set(chosen(0))) > 2


def test_a_draw_covers_some_of_very_many_places():
    belief, places = some_belief(), DOMAIN.from_unit(np.random.default_rng(2).random((1500, 2)))
    draw = FieldDraw.of(belief, places, np.random.default_rng(0))
    drawn = draw.posterior_mean(places)
    assert np.isfinite(drawn).sum() == 1024
    assert (drawn[~np.isfinite(drawn)] == -np.inf).all()
    some = np.concatenate([np.flatnonzero(drawn > -np.inf)[:40], np.flatnonzero(drawn == -np.inf)[:40]])
    listed = shortlist(draw, places[some], 70, sb.LocalUtility(0.0, 0.0, noise_variance=1.0))
    assert sorted(listed[listed < 40]) == [*range(40)]
    assert len(set(listed.tolist())) == 70
    team = sb.Team.for_field(["a", "b"], [0.0, 0.0], [100.0, 50.0], acquisition="thompson")
    assert set(team.ask(dict.fromkeys("ab", places)).points) == {"a", "b"}


def cut(situation, t):
    history = situation.history
    return replace(situation, history=Dataset(history.X[:t], history.totals[:t], history.factors[:t]))


@BOTH
def test_draws_of_many_rounds_have_the_mixtures_mean_and_spread(situation_of, outcomes) -> None:
    first = situation_of(t=12, outcomes=outcomes, noise=2.0)
    model, U = learn_ensemble(first, SMALL, None), np.random.default_rng(0).random((8, 5))
    rngs, draws = [np.random.default_rng(i) for i in range(len(model.ensemble.parts))], []
    for r in range(500):
        drawn = replace(model, chosen=model.ensemble.choose(rngs))
        draws.append(total_value(EGPTS().local_functions(replace(first, round=r), drawn), U))
    mean, std = model.posterior(first.domain.from_unit(U))
    assert np.abs((np.mean(draws, axis=0) - mean) / std * np.sqrt(1000)).max() < 4.5
    ratio = np.std(draws, axis=0) / std
    assert (np.abs(ratio - 1.0) < 0.15).all()


@BOTH
def test_members_are_drawn_as_often_as_their_weights_say(situation_of, outcomes) -> None:
    settings = msgspec.structs.replace(SMALL, floor=0.2)  # so no member is too rare to be counted
    first = situation_of(t=12, outcomes=outcomes, noise=2.0)
    last = learn_ensemble(first, settings, None)
    models = [learn_ensemble(replace(first, round=r), settings, last.learned, last) for r in range(150)]
    for i, weights in enumerate(last.ensemble.weights):
        counts = np.bincount([model.chosen[i] for model in models], minlength=4)
        error = (counts / 150 - weights) / np.sqrt(weights * (1.0 - weights) / 150)
        assert np.abs(error).max() < 4.0


def test_pending_points_change_neither_weights_nor_means(situation_of) -> None:
    base = situation_of()
    alone = learn_ensemble(base, SMALL, None)
    waiting = learn_ensemble(replace(base, pending=situation_of(pending=3, seed=4).pending), SMALL, None)
    X = base.domain.from_unit(np.random.default_rng(0).random((5, 5)))
    (mean, std), (other_mean, other_std) = alone.posterior(X), waiting.posterior(X)
    np.testing.assert_allclose(mean, other_mean, rtol=1e-9)
    assert (other_std <= std * (1.0 + 1e-9)).all()
    assert alone.ensemble.weights[0].tolist() == waiting.ensemble.weights[0].tolist()


@BOTH
def test_continuing_from_the_last_model_is_bit_identical(situation_of, outcomes) -> None:
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
    assert {learned.fitted_at, *(part.fitted_at for part in learned.ensemble.parts)} == {28}  # 10, 16, 22, 28


def test_features_are_redrawn_with_each_fit_only(situation_of) -> None:
    whole = situation_of(t=20)
    first = learn_ensemble(cut(whole, 10), SMALL, None)
    later = learn_ensemble(cut(whole, 15), SMALL, first.learned)
    refitted = learn_ensemble(cut(whole, 16), SMALL, later.learned)

    def waves(model):
        return model.ensemble.parts[0].bases[0][0].frequencies.tolist()

    assert waves(first) == waves(later)
    assert waves(first) != waves(refitted)


def test_what_was_learned_survives_serialisation(situation_of) -> None:
    situation = situation_of(t=14)
    learned = learn_ensemble(cut(situation, 10), SMALL, None).learned
    read = msgspec.convert(msgspec.json.decode(msgspec.json.encode(learned)), Learned)
    X = situation.history.X[:2]
    ours, theirs = (learn_ensemble(situation, SMALL, kept).posterior(X) for kept in (learned, read))
    assert ours[1].tolist() == theirs[1].tolist()


@BOTH
def test_the_incumbent_is_the_evaluated_point_with_the_largest_mean_of_the_mixture(situation_of, outcomes) -> None:
    situation = situation_of(scopes={"f": ["a"], "g": ["b"]}, outcomes=outcomes, t=15)
    model = learn_ensemble(situation, SMALL, None)
    U = situation.domain.to_unit(situation.history.X)
    if outcomes == "total":
        assert model.incumbent().tolist() == U[int(model.posterior(situation.history.X)[0].argmax())].tolist()
    else:
        best = model.ensemble.factor_means(U).argmax(axis=1)
        assert model.incumbent().tolist() == [U[best[0], 0], U[best[1], 1]]


@BOTH
@pytest.mark.parametrize("pending", [0, 2])
def test_expected_improvement_is_that_of_the_exact_process_of_the_drawn_member(situation_of, outcomes, pending) -> None:
    situation = situation_of(outcomes=outcomes, pending=pending)
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
def test_failures_and_empty_histories_give_finite_functions(situation_of, outcomes) -> None:
    whole = situation_of(t=10, outcomes=outcomes)
    failed = Dataset(whole.history.X, np.full(10, np.nan), np.full((10, 4), np.nan))
    totals, factors = whole.history.totals.copy(), whole.history.factors.copy()
    totals[::2], factors[1::3] = np.nan, np.nan
    some = Dataset(whole.history.X, totals, factors)
    for history in (cut(whole, 0).history, failed, some):
        situation = replace(whole, history=history)
        model = learn_ensemble(situation, SMALL, None)
        for kind in (EGPTS(), EGPEI()):
            functions = kind.local_functions(situation, model)
            for stack in stacks_of(functions.graph):
                middle = np.full((len(stack.factors), 2, stack.size), 0.4)
                assert all(np.isfinite(found).all() for found in functions.value_and_gradient(stack, middle, ()))
        assert np.isfinite(model.incumbent()).all()


def test_members_are_refitted_until_outcomes_show_their_scale(situation_of) -> None:
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
def test_a_belief_that_is_not_an_ensemble_is_refused(situation_of, kind) -> None:
    situation = situation_of()
    model = kind.learn(situation, AdditiveGPSettings(max_iterations=5), None)
    assert not isinstance(model, EnsembleModel)
    with pytest.raises(SwarmboError, match="wanted belief = 'ensemble'"):
        kind.local_functions(situation, model)
