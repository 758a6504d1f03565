"""Log expected improvement per factor, and the incumbent it is relative to."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad
from scipy.stats import norm

import swarmbo as sb
from swarmbo.acquisition.expected_improvement import ExpectedImprovement, log_improvement
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


def by_quadrature(z: float) -> float:
    """log of the integral of u phi(u - z) over u > 0, by substitution that leaves a well-scaled integrand."""
    if z > -1.0:
        return float(np.log(quad(lambda u: u * norm.pdf(u - z), 0.0, max(z, 0.0) + 40.0, epsabs=0, limit=500)[0]))
    # h(z) = phi(z) / z² * integral of v exp(-v - v² / (2 z²)) dv
    scaled = quad(lambda v: v * np.exp(-v - v**2 / (2.0 * z**2)), 0.0, 200.0, epsabs=0, epsrel=1e-13, limit=500)[0]
    return float(norm.logpdf(z) - 2.0 * np.log(-z) + np.log(scaled))


@pytest.mark.parametrize("z", [-1e6, -1e3, -100.0, -20.001, -19.999, -8.0, -1.001, -0.999, 0.0, 0.7, 6.0, 30.0])
def test_it_is_the_integral(z: float) -> None:
    value, _, _ = log_improvement(np.array([z]), np.ones(1))
    assert value[0] == pytest.approx(by_quadrature(z), rel=1e-11, abs=1e-11)


@given(st.floats(-1e5, 1e5), st.floats(1e-6, 1e3))
def test_it_is_finite_and_scales_with_the_unit(mean: float, std: float) -> None:
    value, by_mean, by_std = log_improvement(np.array([mean]), np.array([std]))
    assert np.isfinite([value, by_mean, by_std]).all()
    other, _, _ = log_improvement(np.array([10.0 * mean]), np.array([10.0 * std]))
    assert other[0] == pytest.approx(value[0] + np.log(10.0), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("z", [-500.0, -30.0, -20.0, -10.0, -1.0, 0.0, 2.0, 20.0])
@pytest.mark.parametrize("std", [0.01, 3.0])
def test_derivatives_are_those_of_the_value(z: float, std: float) -> None:
    def value(m: float, s: float) -> float:
        return float(log_improvement(np.array([m]), np.array([s]))[0][0])

    mean, step = z * std, 1e-5 * std
    _, by_mean, by_std = log_improvement(np.array([mean]), np.array([std]))
    assert by_mean[0] == pytest.approx((value(mean + step, std) - value(mean - step, std)) / (2 * step), rel=1e-5)
    along_std = (value(mean, std + step) - value(mean, std - step)) / (2 * step)
    assert by_std[0] == pytest.approx(along_std, rel=1e-5, abs=1e-7)


def test_derivatives_do_not_jump_where_the_formulas_change() -> None:
    for border in (-20.0, -1.0):
        z = border + np.array([-1e-9, 1e-9])
        for before, after in log_improvement(z, np.ones(2)):
            assert before == pytest.approx(after, rel=1e-7)
