"""DuMBO's neighbourhood bounds: identities of the paper, and what the coupled gradient repairs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.confidence_bounds import AddGPUCB
from swarmbo.acquisition.dumbo import DuMBO
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import exchange, total_value
from swarmbo_envs.functions import get

from .conftest import OVERLAPPING, moments, play, team_on, value_at

BELIEF = AdditiveGPSettings(max_iterations=20)
RING = {f"f{i}": [f"x{i}", f"x{(i + 1) % 5}"] for i in range(5)}
OUTCOMES = st.sampled_from(["total", "per-factor"])
DISJOINT = {"f": ["a", "b"], "g": ["c", "d"], "h": ["e"]}


def sum_of_slopes(functions: BoxFunctions, U: np.ndarray) -> np.ndarray:
    """The factors' gradients at a consensus, added up by variable."""
    stacks = stacks_of(functions.graph)
    points = [stack.take(U) for stack in stacks]
    received = exchange(functions, stacks, points)
    out = np.zeros_like(U)
    for stack, X, got in zip(stacks, points, received, strict=True):
        np.add.at(out.T, stack.columns, np.moveaxis(functions.value_and_gradient(stack, X, got)[1], 1, 2))
    return out


def slope_of_the_sum(functions: BoxFunctions, U: np.ndarray, step: float = 1e-6) -> np.ndarray:
    out = np.empty_like(U)
    for axis in range(U.shape[1]):
        shift = step * np.eye(U.shape[1])[axis]
        out[:, axis] = (total_value(functions, U + shift) - total_value(functions, U - shift)) / (2.0 * step)
    return out


@given(seed=st.integers(0, 10_000), scopes=st.sampled_from([RING, OVERLAPPING]), outcomes=OUTCOMES)
def test_where_agents_agree_coupled_slopes_add_up_to_that_of_the_acquisition(situation_of, seed, scopes, outcomes):
    situation, kind = situation_of(scopes, seed=seed, outcomes=outcomes, noise=3.0), DuMBO(coupled=True)
    functions = kind.local_functions(situation, kind.learn(situation, BELIEF, None))
    U = np.random.default_rng(seed).random((3, 5))
    exact = slope_of_the_sum(functions, U)
    np.testing.assert_allclose(sum_of_slopes(functions, U), exact, atol=2e-5 * np.abs(exact).max(), rtol=0)


def test_without_coupling_they_do_not(situation_of) -> None:
    situation, kind = situation_of(RING, noise=3.0), DuMBO()
    functions = kind.local_functions(situation, kind.learn(situation, BELIEF, None))
    U = np.random.default_rng(0).random((3, 5))
    exact = slope_of_the_sum(functions, U)
    assert np.abs(sum_of_slopes(functions, U) - exact).max() > 0.01 * np.abs(exact).max()


def test_coupled_or_not_the_acquisition_is_the_same_and_is_the_papers(situation_of) -> None:
    situation = situation_of(OVERLAPPING, t=20)
    U = np.random.default_rng(5).random((6, 5))
    model = DuMBO().learn(situation, BELIEF, None)
    own = moments(model, U)
    # eq. (8) by hand: f is beside g; g beside f and i; h beside i; i beside g and h
    beside = {"f": "fg", "g": "fgi", "h": "hi", "i": "ghi"}
    spread = sum(np.sqrt(sum(own[k][1] / len(beside[k]) ** 2 for k in beside[i])) for i in beside)
    means = sum(mean for mean, _ in own.values())
    # by hand too: the sum of the four roots, squared, over the four variances, if all are 1
    excess = (np.sqrt(13 / 36) + np.sqrt(17 / 36) + np.sqrt(13 / 36) + np.sqrt(17 / 36)) ** 2 / 4
    for (exploration, d), coupled in itertools.product((("paper", 5), ("practical", 5 / excess)), (False, True)):
        functions = DuMBO(coupled=coupled, exploration=exploration).local_functions(situation, model)
        expected = means + np.sqrt(0.2 * d * np.log(2 * 20)) * spread
        np.testing.assert_allclose(total_value(functions, U), expected, rtol=1e-9)


def test_on_a_complete_graph_the_root_is_of_the_sum_of_all_variances(situation_of) -> None:
    scopes = {f"f{i}{j}": ["all", f"x{i}", f"x{j}"] for i, j in itertools.combinations(range(3), 2)}
    situation, kind = situation_of(scopes, t=15), DuMBO(exploration="paper", exploration_scale=2.0)
    model = kind.learn(situation, BELIEF, None)
    U = np.random.default_rng(6).random((5, 4))
    own = moments(model, U)
    mean, var = (sum(parts) for parts in zip(*own.values(), strict=True))
    bound = mean + 2.0 * np.sqrt(0.2 * 4 * np.log(30)) * np.sqrt(var)
    np.testing.assert_allclose(total_value(kind.local_functions(situation, model), U), bound, rtol=1e-9)


def test_on_disjoint_factors_it_is_add_gp_ucb_to_the_bit_of_the_weight(situation_of) -> None:
    situation = situation_of(DISJOINT, t=15)
    model = DuMBO().learn(situation, BELIEF, None)
    dumbo = DuMBO(exploration="theory").local_functions(situation, model)
    bounds = AddGPUCB().local_functions(situation, model)
    same_weight = replace(bounds, sqrt_beta=dict.fromkeys(bounds.graph.factors, dumbo.sqrt_beta))
    U = np.random.default_rng(7).random((5, 5))
    np.testing.assert_allclose(total_value(dumbo, U), total_value(same_weight, U), rtol=1e-12)
    for stack in stacks_of(dumbo.graph):
        zeros = (np.zeros((len(stack.factors), 5)),)
        slopes = [f.value_and_gradient(stack, stack.take(U), zeros)[1] for f in (dumbo, same_weight)]
        np.testing.assert_allclose(*slopes, rtol=1e-10, atol=1e-12)


def test_before_anything_was_received_neighbours_count_as_certain(situation_of) -> None:
    situation, kind = situation_of(OVERLAPPING), DuMBO(coupled=True)
    functions = kind.local_functions(situation, kind.learn(situation, BELIEF, None))
    for stack in stacks_of(functions.graph):
        X = np.random.default_rng(8).random((len(stack.factors), 4, stack.size))
        nothing = tuple(np.zeros((len(stack.factors), 4)) for _ in range(2))
        assert np.array_equal(functions.value(stack, X, ()), functions.value(stack, X, nothing))
        before, after = (functions.value_and_gradient(stack, X, received) for received in ((), nothing))
        assert all(map(np.array_equal, before, after))


def regret_on_powells_function(outcomes: str, seed: int, n: int, **settings) -> float:
    """What is left after n evaluations."""
    function = get("powell")
    scopes = {f: [function.variables[j] for j in s] for f, s in function.scopes.items()}
    rule = DuMBO(**settings)
    team = team_on(function, scopes, acquisition=rule, outcomes=outcomes, seed=seed, rounds=n, initial=10)

    def outcome(point):
        values = function.factor_values(np.array([[point[v] for v in function.variables]]))[0]
        return dict(zip(scopes, values, strict=True)) if outcomes == "per-factor" else values.sum()

    return -max(value_at(function, point) for point in play(team, outcome, n))


@pytest.mark.slow
@pytest.mark.parametrize(("outcomes", "at_most"), [("total", 1000.0), ("per-factor", 469.0)])
def test_powells_function_ends_near_what_the_paper_prints(outcomes, at_most) -> None:
    # it prints 496 and 469, means of five runs; of totals seeds spread over a factor of ten
    found = [regret_on_powells_function(outcomes, seed, 150) for seed in range(3)]
    assert np.median(found) <= at_most
    assert regret_on_powells_function(outcomes, 1, 150, exploration="paper") > 1.5 * at_most
