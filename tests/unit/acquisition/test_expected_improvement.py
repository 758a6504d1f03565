"""Log expected improvement per factor, and the incumbent it is relative to."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import swarmbo as sb
from swarmbo.acquisition.expected_improvement import ExpectedImprovement
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.incumbents import incumbent, starting_points
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.problem.data import Dataset

BELIEF = AdditiveGPSettings(max_iterations=20)
DISJOINT = {"f": ["a", "b"], "g": ["c", "d"]}


def test_with_one_factor_it_is_the_log_of_the_expected_improvement_over_the_incumbent(situation_of) -> None:
    situation, kind = situation_of({"f": ["a", "b", "c"]}, t=5, noise=2.0), ExpectedImprovement()
    model = kind.learn(situation, BELIEF, None)
    functions = kind.local_functions(situation, model)
    U = np.random.default_rng(0).random((200, 3))
    values = total_value(functions, U)
    checked = 0
    for u, value in zip(U, values, strict=True):
        both = situation.domain.from_unit(np.array([u, functions.reference]))
        mean, cov = model.belief.joint_posterior(both)  # of the function here and at the incumbent
        centre, std = mean[0] - mean[1], np.sqrt(cov[0, 0] + cov[1, 1] - 2.0 * cov[0, 1])
        if centre > -5.0 * std:  # beyond that plain quadrature sees nothing
            gain = quad(lambda d, c=centre, s=std: d * norm.pdf(d, c, s), 0.0, abs(centre) + 8.0 * std, limit=500)[0]
            assert value == pytest.approx(np.log(gain), rel=1e-6, abs=1e-6)
            checked += 1
    assert checked > 20


def test_the_incumbent_is_the_evaluated_point_with_the_largest_posterior_mean(situation_of) -> None:
    situation = situation_of(t=20, noise=5.0)
    belief = ExpectedImprovement().learn(situation, BELIEF, None).belief
    best = int(np.argmax(belief.posterior(situation.history.X)[0]))
    np.testing.assert_allclose(belief.domain.from_unit(incumbent(belief)), situation.history.X[best], rtol=1e-12)


def test_a_failed_evaluation_is_no_incumbent(situation_of) -> None:
    situation = situation_of(t=20)
    history = situation.history
    best = int(np.argmax(history.totals))
    totals = np.where(np.arange(20) == best, np.nan, history.totals)
    failed = replace(situation, history=Dataset(history.X, totals, history.factors))
    for points in (situation, failed):
        belief = ExpectedImprovement().learn(points, BELIEF, None).belief
        at = belief.domain.from_unit(incumbent(belief))
        assert np.allclose(at, history.X[best]) == (points is situation)


def test_factors_seen_one_by_one_put_their_best_points_together(situation_of) -> None:
    situation = situation_of(DISJOINT, t=20, outcomes="per-factor", noise=0.0)
    belief = ExpectedImprovement().learn(situation, BELIEF, None).belief
    at = belief.domain.from_unit(incumbent(belief))
    for column, part in enumerate(([0, 1], [2, 3])):
        best = int(np.argmax(situation.history.factors[:, column]))
        np.testing.assert_allclose(at[part], situation.history.X[best, part])


def test_at_the_incumbent_nothing_is_to_be_gained_and_the_value_is_finite(situation_of) -> None:
    situation, kind = situation_of(), ExpectedImprovement()
    functions = kind.local_functions(situation, kind.learn(situation, BELIEF, None))
    here = total_value(functions, functions.reference[None])[0]
    elsewhere = total_value(functions, np.random.default_rng(0).random((200, 5)))
    assert np.isfinite(here)
    assert here < np.median(elsewhere)


@pytest.mark.parametrize(
    ("rule", "outcomes"),
    [(ExpectedImprovement(), "total"), (ExpectedImprovement(), "per-factor"), (sb.Auto(), "per-factor")],
)
def test_improvement_is_over_the_best_mean_of_told_and_pending_points_by_part(situation_of, rule, outcomes) -> None:
    situation = situation_of(DISJOINT, t=20, outcomes=outcomes, noise=0.0)
    alone = rule.local_functions(situation, rule.learn(situation, BELIEF, None))
    near = alone.reference + np.random.default_rng(1).uniform(-0.2, 0.2, (200, 4))
    hoped = situation.domain.from_unit(near.clip(0.0, 1.0))
    model = rule.learn(replace(situation, pending=hoped), BELIEF, None)
    functions, belief = rule.local_functions(replace(situation, pending=hoped), model), model.belief
    U = belief.domain.to_unit(hoped)
    for stack in stacks_of(belief.graph):
        before, now, most = (
            belief.local_mean(stack, stack.take(points)).max(axis=1)
            for points in (alone.reference[None], functions.reference[None], U)
        )
        np.testing.assert_allclose(now, np.maximum(before, most))
        assert (most > before).any()


def test_a_constant_added_to_all_outcomes_changes_nothing(situation_of) -> None:
    situation, kind = situation_of(), ExpectedImprovement()
    h = situation.history
    lifted = replace(situation, history=Dataset(h.X, h.totals + 1000.0, h.factors))
    U = np.random.default_rng(0).random((10, 5))
    values = [total_value(kind.local_functions(s, kind.learn(s, BELIEF, None)), U) for s in (situation, lifted)]
    np.testing.assert_allclose(*values, rtol=1e-5)


def test_starts_are_each_parts_best_points_best_first(situation_of) -> None:
    situation = situation_of(DISJOINT, t=20)
    belief = ExpectedImprovement().learn(situation, BELIEF, None).belief
    starts = starting_points(belief, np.zeros(4), np.ones(4), count=4)
    U = belief.domain.to_unit(situation.history.X)
    for stack in stacks_of(belief.graph):
        at_data = belief.local(stack, stack.take(U)).mean
        at_starts = belief.local(stack, stack.take(starts)).mean
        np.testing.assert_allclose(at_starts, -np.sort(-at_data, axis=1)[:, :4])
    inside = starting_points(belief, np.full(4, 0.4), np.full(4, 0.6))
    assert inside.min() >= 0.4
    assert inside.max() <= 0.6
    assert starting_points(belief, np.zeros(4), np.ones(4), count=99).shape == (20, 4)


def test_without_data_the_centre_stands_in_for_the_incumbent(situation_of) -> None:
    belief = ExpectedImprovement().learn(situation_of(t=0), BELIEF, None).belief
    assert incumbent(belief).tolist() == [0.5] * 5
    assert starting_points(belief, np.zeros(5), np.ones(5)).shape == (0, 5)
