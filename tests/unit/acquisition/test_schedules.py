"""Weights of papers, computed independently of the code."""

import math
from fractions import Fraction

import numpy as np
import pytest

from swarmbo.acquisition import Progress, alpha, beta
from swarmbo.acquisition.schedules import continuous_beta, finite_beta, group_beta, practical_beta


def test_theory_alpha_is_theorem_1_of_daxberger_and_low():
    s2, size, sites, t, delta = 0.01, 4, 558, 3, 0.1
    C = 0.5 * math.log(1 + size / s2)
    wanted = 4 / math.log(1 + 1 / s2) * size * math.exp(2 * C) * math.log(sites * t**2 * math.pi**2 / (6 * delta))
    assert np.isclose(alpha("theory", Progress(t, 25, 40, 2, sites), size, s2, delta), wanted)


def test_theory_beta_is_theorem_1_of_srinivas_et_al():
    wanted = 2 * math.log(558 * 40**2 * math.pi**2 / (6 * 0.05))
    assert np.isclose(beta("theory", Progress(3, None, 40, 2, 558), 0.05), wanted)


def test_alpha_gives_an_unmeasured_point_the_ucb_bonus_of_its_schedule():
    s2, progress = 0.02, Progress(5, 10, 30, 2, 1000)
    for kind in ("annealed", "practical"):
        bonus = math.sqrt(0.5 * alpha(kind, progress, 4, s2) * math.log(1 + 1 / s2))
        assert np.isclose(bonus, math.sqrt(beta(kind, progress)))


def test_practical_and_theory_weights_grow_with_the_data_and_are_defined_without_data():
    for kind in ("practical", "theory"):
        values = [beta(kind, Progress(1, None, t, 2, 100)) for t in (0, 1, 10, 100)]
        assert values == sorted(values)
        assert values[0] >= 0


def test_annealing_ends_with_the_planned_rounds_and_stays_in_the_middle_without_a_plan():
    weights = [math.sqrt(beta("annealed", Progress(r, 5, 10, 2, 100))) for r in range(1, 8)]
    assert np.allclose(np.diff(weights[:5]), (weights[4] - weights[0]) / 4)
    assert weights[0] > weights[4] > 0
    assert weights[4] == weights[5] == weights[6]
    middle = math.sqrt(beta("annealed", Progress(9, None, 10, 2, 100)))
    assert np.isclose(middle, weights[2])
    assert np.isclose(math.sqrt(beta("annealed", Progress(1, 1, 0, 2, 1))), weights[0])


def test_the_finite_weight_makes_the_failures_of_all_times_points_and_factors_add_up_to_delta() -> None:
    # union bound: the sum over t of |D| |U| exp(-beta_t / 2) is delta, as the sum of 1/t² is pi²/6
    n_points, n_factors, delta = 1000, 3, 0.1
    weights = (finite_beta(math.log(n_points), n_factors, t, delta) for t in range(1, 20_000))
    failures = sum(n_points * n_factors * math.exp(-weight / 2.0) for weight in weights)
    assert failures == pytest.approx(delta, rel=1e-4)


def test_the_continuous_weight_is_the_finite_one_on_the_papers_grid() -> None:
    # lemma 6: delta is halved twice, and the grid has d t² b sqrt(log(4 |U| a / delta)) points per side
    d, k, t, delta, a, b = 5, 4, 7, 0.2, 2.0, 3.0
    points_a_side = d * t**2 * b * math.sqrt(math.log(4 * k * a / delta))
    on_grid = finite_beta(d * math.log(points_a_side), k, t, delta / 4.0)
    assert continuous_beta(d, k, t, delta, a, b) == pytest.approx(on_grid, rel=1e-12)


def test_the_group_weight_is_that_of_theorem_5() -> None:
    # e^(beta/2) = (M pi² t² / (2 delta)) (D t³)^d, in exact arithmetic but for pi
    M, D, d, t, delta = 6, 24, 4, 10, Fraction(1, 10)
    exact = Fraction(M * t**2) / (2 * delta) * Fraction(D * t**3) ** d
    assert math.exp(group_beta(d, M, D, t, float(delta)) / 2.0) == pytest.approx(math.pi**2 * float(exact), rel=1e-9)


def test_the_practical_weight_grows_with_the_logarithm_of_twice_the_evaluations() -> None:
    assert practical_beta(4, 50) / practical_beta(2, 5) == pytest.approx(4.0)
    assert practical_beta(5, 1) == pytest.approx(math.log(2))


@pytest.mark.parametrize("t", [0, 1])
def test_before_the_first_evaluation_weights_are_those_of_one(t: int) -> None:
    assert practical_beta(2, t) == practical_beta(2, 1) > 0.0
    assert finite_beta(3.0, 2, t, 0.1) == finite_beta(3.0, 2, 1, 0.1) > 0.0
    assert group_beta(1, 1, 1, t, 0.99) >= 0.0
    assert continuous_beta(1, 1, t, 0.5, 1.0, 1e-9) == 0.0  # the logarithm of a grid of less than one point
