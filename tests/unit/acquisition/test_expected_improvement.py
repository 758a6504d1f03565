"""Expected improvement: its logarithm per factor over an incumbent; in a field, of places and of batches."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad
from scipy.stats import norm

import swarmbo as sb
from swarmbo.acquisition import LocalUtility, Situation
from swarmbo.acquisition.chain_acquisition import local_acquisition
from swarmbo.acquisition.expected_improvement import ExpectedImprovement, JointImprovement, log_improvement
from swarmbo.acquisition.local_utility import PlaceUtility
from swarmbo.acquisition.utility import shortlist
from swarmbo.belief import ExactGP, ExactGPSettings, Views
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.incumbents import incumbent, starting_points
from swarmbo.errors import ConfigError
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

from .fields import DOMAIN, NOWHERE, situation, some_belief

BELIEF = AdditiveGPSettings(max_iterations=20)
DISJOINT = {"f": ["a", "b"], "g": ["c", "d"]}


def test_with_one_factor_the_value_is_the_log_of_the_expected_improvement_over_the_incumbent(situation_of) -> None:
    situation, kind = situation_of({"f": ["a", "b", "c"]}, t=5, noise=2.0), ExpectedImprovement()
    model = kind.learn(situation, BELIEF, None)
    functions = kind.local_functions(situation, model)
    U = np.random.default_rng(0).random((100, 3))
    values = total_value(functions, U)
    checked = 0
    for u, value in zip(U, values, strict=True):
        both = situation.domain.from_unit(np.array([u, functions.reference]))
        mean, cov = model.belief.joint_posterior(both)  # of the function here and at the incumbent
        centre, std = mean[0] - mean[1], np.sqrt(cov[0, 0] + cov[1, 1] - 2.0 * cov[0, 1])
        if centre > -5.0 * std:  # below that plain quadrature is not accurate
            gain = quad(lambda d, c=centre, s=std: d * norm.pdf(d, c, s), 0.0, abs(centre) + 8.0 * std, limit=500)[0]
            assert value == pytest.approx(np.log(gain), rel=1e-6, abs=1e-6)
            checked += 1
    assert checked > 20


def test_the_incumbent_is_the_evaluated_point_with_the_largest_posterior_mean_that_did_not_fail(situation_of) -> None:
    situation = situation_of(t=20, noise=5.0)
    for _ in range(2):
        history, belief = situation.history, ExpectedImprovement().learn(situation, BELIEF, None).belief
        means = np.where(np.isnan(history.totals), -np.inf, belief.posterior(history.X)[0])
        best = int(means.argmax())
        np.testing.assert_allclose(belief.domain.from_unit(incumbent(belief)), history.X[best], rtol=1e-12)
        totals = np.where(np.arange(20) == best, np.nan, history.totals)
        situation = replace(situation, history=Dataset(history.X, totals, history.factors))


def test_with_outcomes_per_factor_the_incumbent_combines_the_best_points_of_factors(situation_of) -> None:
    situation = situation_of(DISJOINT, t=20, outcomes="per-factor", noise=0.0)
    belief = ExpectedImprovement().learn(situation, BELIEF, None).belief
    at = belief.domain.from_unit(incumbent(belief))
    for column, part in enumerate(([0, 1], [2, 3])):
        best = int(np.argmax(situation.history.factors[:, column]))
        np.testing.assert_allclose(at[part], situation.history.X[best, part])


def test_at_the_incumbent_the_value_is_low_and_finite(situation_of) -> None:
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
def test_the_reference_of_each_part_is_its_best_mean_at_evaluated_and_pending_points(
    situation_of, rule, outcomes
) -> None:
    situation = situation_of(DISJOINT, t=20, outcomes=outcomes, noise=0.0)
    alone = rule.local_functions(situation, rule.learn(situation, BELIEF, None))
    near = alone.reference + np.random.default_rng(1).uniform(-0.2, 0.2, (200, 4))
    awaited = situation.domain.from_unit(near.clip(0.0, 1.0))
    model = rule.learn(replace(situation, pending=awaited), BELIEF, None)
    functions, belief = rule.local_functions(replace(situation, pending=awaited), model), model.belief
    U = belief.domain.to_unit(awaited)
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


def test_without_data_the_centre_is_the_incumbent(situation_of) -> None:
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
def test_the_log_improvement_is_the_log_of_the_integral(z: float) -> None:
    value, _, _ = log_improvement(np.array([z]), np.ones(1))
    assert value[0] == pytest.approx(by_quadrature(z), rel=1e-11, abs=1e-11)


@given(st.floats(-1e5, 1e5), st.floats(1e-6, 1e3))
def test_the_log_improvement_is_finite_and_scales_with_the_unit(mean: float, std: float) -> None:
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


CONSENSUS = {"kind": "fused", "method": "consensus"}
LINE = np.linspace(0.0, 1.0, 21)[:, None]


def closed_form(mean, std, best):
    z = (mean - best) / std
    return std * (norm.pdf(z) + z * norm.cdf(z))


def drawn_improvement(mean, cov, best, rng, draws=200_000):
    """The expected improvement of a batch, by Monte Carlo."""
    f = rng.multivariate_normal(mean, cov, size=draws)
    return np.maximum(f.max(axis=1) - best, 0.0).mean()


def chain_sum(rule, mean, cov, order=None):
    """Sum of the gains of each place over the next ones."""
    rows = [np.arange(n, len(mean))[: None if order is None else order + 1] for n in range(len(mean))]
    return sum(rule.of_first(mean[own], cov[np.ix_(own, own)]) for own in rows)


def test_the_improvement_of_a_single_place_is_the_closed_form():
    belief, rng = some_belief(), np.random.default_rng(3)
    X = DOMAIN.from_unit(rng.random((9, 2)))
    mean, var = belief.posterior(X)
    rule = JointImprovement(over=52.0)
    np.testing.assert_allclose(rule.single(mean, var), closed_form(mean, np.sqrt(var), 52.0), rtol=1e-8, atol=1e-12)
    table = local_acquisition(belief, [np.vstack([X, NOWHERE])], rule, price=0.3)
    np.testing.assert_allclose(table[:-1], closed_form(mean, np.sqrt(var), 52.0) - 0.3, rtol=1e-8, atol=1e-12)
    assert table[-1] == 0.0


@given(size=st.integers(2, 6), seed=st.integers(0, 10_000), quantile=st.floats(0.0, 0.8), shared=st.floats(0.0, 0.9))
def test_what_each_adds_to_those_after_it_sums_to_the_improvement_of_the_batch(size, seed, quantile, shared):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(size, size))
    cov = shared * np.ones((size, size)) + (1.0 - shared) * (A @ A.T / size + 0.05 * np.eye(size))
    mean = rng.normal(size=size)
    best = float(mean.max() + quantile * np.sqrt(cov.diagonal().max()))
    expected = drawn_improvement(mean, cov, best, rng)
    assert chain_sum(JointImprovement(over=best), mean, cov) == pytest.approx(expected, rel=0.05, abs=0.003)


def test_an_agent_that_knows_fewer_other_places_overestimates_its_gain():
    mean, cov = np.zeros(5), 0.6 * np.ones((5, 5)) + 0.4 * np.eye(5)
    sums = [chain_sum(JointImprovement(over=0.5), mean, cov, order) for order in range(5)]
    assert sums == sorted(sums, reverse=True)
    assert sums[0] > 1.5 * sums[4]


@pytest.mark.parametrize("order", [1, 2])
def test_tables_have_the_gain_of_a_place_over_those_of_other_measuring_agents(order):
    belief, rng, rule = some_belief(), np.random.default_rng(1), JointImprovement(over=55.0)
    options = [np.vstack([DOMAIN.from_unit(rng.random((4, 2))), NOWHERE]) for _ in range(order + 1)]
    table = local_acquisition(belief, options, rule, price=0.4)
    for choice in itertools.product(range(5), repeat=order + 1):
        if choice[0] == 4:
            assert table[choice] == 0.0
            continue
        batch = np.array([options[n][c] for n, c in enumerate(choice) if c < 4])
        expected = rule.of_first(*belief.joint_posterior(batch))
        alone = rule.single(*belief.posterior(batch[:1]))[0]
        assert table[choice] + 0.4 == pytest.approx(expected, abs=0.1 * alone + 1e-15)
        assert table[choice] + 0.4 <= 1.1 * alone + 1e-15


def test_the_generic_value_of_a_choice_equals_the_faster_one_of_a_utility():
    rule, mean, A = LocalUtility(2.0, 1.0, 0.1), np.array([0.4, 0.2, 0.7]), np.random.default_rng(2).normal(size=(3, 3))
    assert PlaceUtility.of_first(rule, mean, A @ A.T) == pytest.approx(rule.of_first(mean, A @ A.T))


def test_two_agents_never_choose_one_place_and_a_second_measurement_nearby_gains_less():
    rule, cov = JointImprovement(over=0.0), np.array([[1.0, 0.999], [0.999, 1.0]])
    assert rule.of_first(np.zeros(2), cov) < 0.1 * rule.of_first(np.zeros(1), cov[:1, :1])
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0], acquisition="expected-improvement")
    team.attach(LINE[::5], -((LINE[::5, 0] - 0.6) ** 2))
    points = team.ask({"a": LINE, "b": LINE}).points
    assert points["a"][0] != points["b"][0]


def test_places_without_expected_improvement_are_ranked_without_overflow():
    rule = JointImprovement(over=1e6)
    mean, var = np.array([0.0, 1.0, 0.5, 1.0]), np.array([0.0, 0.0, 1e-8, 1e-30])
    with np.errstate(over="raise", invalid="raise"):
        rank = rule.rank(mean, var)
    assert np.isfinite(rank).all()
    assert rule.single(mean, var).tolist() == [0.0] * 4
    hopeful = rule.rank(np.array([0.0, 1.0, 2.0]), np.array([1.0, 1.0, 1.0]))
    assert (np.diff(hopeful) > 0).all()


def test_without_expected_improvement_an_agent_chooses_the_best_ranked_place():
    belief = some_belief()
    near = belief.X[:4, :2] + np.array([[0.01, 0.0], [0.3, 0.0], [4.0, 0.0], [0.1, 0.0]])
    mean, var = belief.posterior(near)
    best_ranked = int(((mean - 1e4) / np.sqrt(var)).argmax())
    rule = JointImprovement(over=1e4)
    assert (rule.single(mean, var) == 0.0).all()
    assert rule.best_of(belief, near) == best_ranked != 0
    assert shortlist(belief, near, 9, rule)[0] == best_ranked  # if sums are equal, the first in rank wins


@pytest.mark.parametrize("n", [60, 300])
def test_close_places_where_much_is_known_gain_no_more_together_than_the_best_alone(n):
    """Their covariances are mostly rounding errors: not positive definite, and larger than the variances allow."""
    X, near = np.linspace(0.0, 1.0, n)[:, None], 0.5 + 1e-3 * np.random.default_rng(1).random((16, 1))
    prior, domain = ExactGPSettings(kernel="rbf", restarts=0, max_iterations=20), Domain(np.zeros(1), np.ones(1))
    belief = ExactGP.create(prior, domain).update(X, np.sin(3.0 * X[:, 0])).fit(np.random.default_rng(0))
    mean, var = belief.posterior(near)
    rule = JointImprovement(over=float(mean.max()))
    most = 1.05 * rule.single(mean, var).max()  # averages over nodes are not exact
    assert local_acquisition(belief, [near[:5], near[5:10], near[10:]], rule).max() <= most
    value = rule.jointly(belief, near)
    gains = [value([k, *(j for j in range(16) if j != k)], False) for k in range(16)]
    assert 0.0 <= min(gains) <= max(gains) <= most


def test_the_reference_is_the_largest_mean_at_places_that_an_agent_knows_to_be_measured():
    belief = some_belief()
    other = ExactGP.create(ExactGPSettings(), DOMAIN).update([[50.0, 25.0]], [7.0])
    now = situation(Views({"s_0": belief, "s_1": other, "s_2": belief}, "s_0"))
    now = replace(now, measured=belief.X, measured_by={"s_1": other.X})
    assert now.best_measured() == pytest.approx(belief.posterior_mean(belief.X).max())
    assert now.seen_by("s_1").best_measured() == pytest.approx(other.posterior_mean(other.X)[0])


@pytest.mark.parametrize(
    ("belief", "coordination"),
    [("exact", "exact"), ("fused", "max-sum"), (CONSENSUS, "greedy"), ("exact", "independent")],
)
def test_a_team_finds_a_peak_with_every_belief_and_coordination_method(belief, coordination):
    settings = {"acquisition": "expected-improvement", "belief": belief, "coordination": coordination}
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0], seed=1, **settings)
    best = -np.inf
    for _ in range(6):
        query = team.ask({"a": LINE, "b": LINE})
        heights = {agent: -((float(x[0]) - 0.7) ** 2) for agent, x in query.points.items()}
        team.tell(query, heights)
        best = max(best, *heights.values())
    assert best > -0.01


def test_settings_that_only_the_other_kind_of_team_uses_are_refused():
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    words = r"\$\.acquisition\.markov_order: got 1, which has no effect for agents that set the variables of one f"
    with pytest.raises(ConfigError, match=words):
        sb.Team(graph, {"x": (0.0, 1.0)}, acquisition=ExpectedImprovement(markov_order=1))
    with pytest.raises(ConfigError, match=r"\$\.acquisition\.n_features: got 64, which has no effect for agents that"):
        sb.Team.for_field(["a"], [0.0], [1.0], acquisition=sb.Thompson(n_features=64))


def test_a_batch_asked_while_another_is_pending_improves_on_the_expected_outcomes_of_that():
    situations = list[Situation]()

    class Watching:
        def decide(self, situation, acquisition):
            situations.append(situation)
            return sb.Decision({"a": np.array([0.55])}, sb.SolveReport("not_needed"))

    watched = sb.Team.for_field(["a"], [0.0], [1.0], coordination=Watching(), seed=0)
    watched.attach([[0.0], [0.2], [0.4], [0.7], [0.9]], [0.0, 1.0, 3.0, 3.0, 1.0])
    for _ in range(2):
        watched.ask()
    before, after = situations
    assert after.best_measured() == pytest.approx(after.belief.posterior_mean(np.array([[0.55]]))[0])
    assert after.best_measured() > before.best_measured()
