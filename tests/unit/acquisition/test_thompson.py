"""Thompson sampling: draws follow the posterior, and differ when they should; in a field each agent has its own."""

from dataclasses import replace

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition.thompson import FieldDraw, Thompson
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.boundary.rng import stream
from swarmbo.graph.box_functions import total_value

from .fields import DOMAIN, prices_of, situation, some_belief

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


def test_a_draw_is_the_same_function_wherever_and_whenever_it_is_asked(situation_of) -> None:
    situation, kind = situation_of(), Thompson()
    U = np.random.default_rng(0).random((6, 5))
    once, again = (kind.local_functions(situation, kind.learn(situation, BELIEF, None)) for _ in range(2))
    assert np.array_equal(total_value(once, U), total_value(again, U))
    np.testing.assert_allclose(total_value(once, U)[2:3], total_value(once, U[2:3]), rtol=1e-5)


def test_rounds_seeds_and_queries_that_are_out_each_bring_another_draw(situation_of) -> None:
    kind, U = Thompson(), np.full((1, 5), 0.3)
    base = situation_of()
    model = kind.learn(base, BELIEF, None)
    out = replace(base, pending=situation_of(pending=1).pending)
    every = (base, replace(base, round=4), replace(base, seed=1), out)
    values = {float(total_value(kind.local_functions(situation, model), U)[0]) for situation in every}
    assert len(values) == 4


LINE = np.linspace(0.0, 1.0, 21)[:, None]


def test_draws_have_the_mean_and_the_covariance_of_the_posterior():
    belief, rng = some_belief(), np.random.default_rng(0)
    X = DOMAIN.from_unit(np.random.default_rng(7).random((5, 2)))
    draws = np.array([FieldDraw.of(belief, X, rng).posterior_mean(X) for _ in range(1500)])
    mean, cov = belief.joint_posterior(X)
    scale = np.sqrt(np.outer(cov.diagonal(), cov.diagonal()))
    assert np.abs((draws.mean(axis=0) - mean) / np.sqrt(cov.diagonal())).max() < 0.1
    assert np.abs((np.cov(draws.T) - cov) / scale).max() < 0.1


def test_a_place_is_chosen_as_often_as_it_is_the_best():
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


def test_the_agents_maximise_draws_of_their_own():
    now = situation(some_belief())
    problem = Thompson().local_problem(now)
    assert problem is not None
    for agent in now.agents:
        rng = stream(now.seed, "thompson", agent=agent, round=now.round)
        drawn = FieldDraw.of(now.belief, now.candidates[agent], rng).posterior_mean(problem.shortlists[agent])
        table = problem.tables[f"w_{agent}"]
        np.testing.assert_array_equal(table.max(axis=tuple(range(1, table.ndim))), drawn)
    values = [next(iter(problem.tables[f"w_{agent}"].flat)) for agent in now.agents]
    assert len(set(values)) == 3


@pytest.mark.parametrize("coordination", ["exact", "max-sum", "greedy"])
def test_agents_that_may_go_to_the_same_places_never_meet(coordination):
    agents = list("abc")
    team = sb.Team.for_field(agents, [0.0], [1.0], acquisition="thompson", coordination=coordination)
    team.attach(LINE[:5], LINE[:5, 0])
    for _ in range(8):
        points = team.ask(dict.fromkeys(agents, LINE[-3:])).points
        assert sorted(float(x[0]) for x in points.values()) == pytest.approx([0.9, 0.95, 1.0])


def test_rounds_and_seeds_draw_anew_and_the_same_seed_draws_the_same():
    def chosen(seed):
        team = sb.Team.for_field(["a"], [0.0], [1.0], acquisition="thompson", seed=seed)
        return [float(team.ask({"a": LINE}).points["a"][0]) for _ in range(6)]

    assert chosen(0) == chosen(0)
    assert chosen(0) != chosen(1)
    assert len(set(chosen(0))) > 2


def test_a_measurement_that_costs_more_than_the_draw_promises_is_declined():
    belief = some_belief()
    for price, n_measured in ((0.0, 3), (1e6, 0)):
        now = situation(belief, prices_of(price) if price else {})
        choose = Thompson().alone(now)
        chosen = [choose(agent, belief, now.candidates[agent]) for agent in now.agents]
        assert sum(place is not None for place in chosen) == n_measured


def test_of_very_many_places_some_are_drawn_at():
    belief, places = some_belief(), DOMAIN.from_unit(np.random.default_rng(2).random((1500, 2)))
    drawn = FieldDraw.of(belief, places, np.random.default_rng(0)).posterior_mean(places)
    assert np.isfinite(drawn).sum() == 1024
    assert (drawn[~np.isfinite(drawn)] == -np.inf).all()
    team = sb.Team.for_field(["a", "b"], [0.0, 0.0], [100.0, 50.0], acquisition="thompson")
    assert set(team.ask(dict.fromkeys("ab", places)).points) == {"a", "b"}
