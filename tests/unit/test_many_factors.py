"""Outcomes per factor: memory of a decision grows linearly with the number of factors."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.fit import prior_hyperparameters
from swarmbo.belief.gp.observations import Observations
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import neighbour_sums, neighbours_in_turn


def chain(n):
    return sb.FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n)})


def told(n, n_evaluations):
    rng = np.random.default_rng(0)
    X = rng.random((n_evaluations, n + 1))
    return X, -((X[:, 1:] - X[:, :-1] - 0.2) ** 2) + np.sin(4.0 * X[:, :-1])


def peak_of(call):
    tracemalloc.start()
    call()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def team_of(n, n_evaluations, **settings):
    team = sb.Team(chain(n), {f"x{i}": (0.0, 1.0) for i in range(n + 1)}, outcomes="per-factor", **settings)
    team.attach(*told(n, n_evaluations))
    return team


def asked(n, acquisition):
    brief = sb.ADMM(rounds=2, starts=2, screened=16, polish_steps=2)
    team = team_of(n, 3, acquisition=acquisition, coordination=brief, initial=1)

    def decided():
        assert team.ask().mean is not None  # so it comes from a model, not from the initial design

    return decided


@pytest.mark.parametrize("acquisition", ["auto", pytest.param("dumbo", marks=pytest.mark.slow)])
def test_memory_of_a_decision_is_linear_in_the_factors(acquisition):
    peak_of(asked(130, acquisition))  # loads and compiles code once
    few, many = (peak_of(asked(n, acquisition)) for n in (130, 520))
    assert many < 1.3 * 4 * few


def test_hyperparameters_without_data_need_no_square_matrix():
    own, graph = AdditiveGPSettings(), chain(1500)
    n_hyperparameters = 2 * 1500 + 2 * 1500
    assert peak_of(lambda: prior_hyperparameters(own, graph)) < 0.05 * 8 * n_hyperparameters**2


@given(st.integers(1, 6), st.integers(0, 12), st.data())
def test_outcomes_per_factor_are_those_of_each_channel_in_order(n_factors, n_points, data):
    known = st.lists(st.booleans(), min_size=n_factors + 1, max_size=n_factors + 1)
    mask = np.array([data.draw(known) for _ in range(n_points)], dtype=bool).reshape(n_points, n_factors + 1)
    table = np.where(mask, np.arange(mask.size).reshape(mask.shape), np.nan)
    U = np.random.default_rng(0).random((n_points, 3))
    noise = np.arange(float(mask.size)).reshape(mask.shape)
    outcomes = Observations.of(U, table[:, 0], table[:, 1:], noise)
    for factor, own in enumerate(outcomes.by_factor(n_factors)):
        rows = mask[:, factor + 1]
        np.testing.assert_array_equal(own.outcome, table[rows, factor + 1])
        np.testing.assert_array_equal(own.U, U[rows])
        np.testing.assert_array_equal(own.at([2, 0]), U[rows][:, [2, 0]])
        np.testing.assert_array_equal(own.noise, noise[rows, factor + 1])


def test_sums_over_neighbours_agree_with_the_graph():
    graph = sb.FactorGraph.from_scopes(
        {f: list(xs) for f, xs in {"a": "x", "b": "xy", "c": "yzw", "d": "v", "e": "wx"}.items()}
    )
    stacks = stacks_of(graph)
    numbers = {factor: np.random.default_rng(i).random(3) for i, factor in enumerate(graph.factors)}
    around = {factor: graph.neighbours(factor) for factor in graph.factors}
    told = [np.array([numbers[f] for f in s.factors]) for s in stacks]
    summed = neighbour_sums(neighbours_in_turn(around, stacks), told)
    for stack, rows in zip(stacks, summed, strict=True):
        for factor, row in zip(stack.factors, rows, strict=True):
            sharing = [f for f in graph.factors if f != factor and set(graph.scope(f)) & set(graph.scope(factor))]
            assert graph.neighbours(factor) == tuple(sharing)
            np.testing.assert_allclose(row, sum((numbers[f] for f in sharing), np.zeros(3)))


@pytest.mark.thorough
def test_a_team_with_cached_results_decides_as_a_loaded_one_without(tmp_path):
    n, brief = 130, sb.ADMM(polish_steps=2, recombination_entries=64)
    team = team_of(n, 12, belief=sb.AdditiveGPSettings(refit_every=2, restarts=0), coordination=brief)
    rng, reused = np.random.default_rng(1), list[bool]()
    for _ in range(3):
        team.save(tmp_path / "team.npz")
        query, again = team.ask(), sb.Team.load(tmp_path / "team.npz").ask()
        assert (query.point, query.mean, query.std) == (again.point, again.mean, again.std)
        reused.append(team._learner.last[1].belief.base is not None)
        outcomes = rng.normal(size=n)
        outcomes[rng.random(n) < 0.1] = np.nan
        team.tell(query, dict(zip(team.problem.graph.factors, outcomes.tolist(), strict=True)))
    assert reused == [False, True, False]  # not in rounds in which all is fitted again
