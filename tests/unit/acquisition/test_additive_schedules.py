"""The papers' weights, evaluated by another route than the code's."""

import math
from fractions import Fraction

import pytest

from swarmbo.acquisition.schedules import continuous_beta, finite_beta, group_beta, practical_beta


def test_the_finite_weight_makes_the_failures_of_all_times_points_and_factors_add_up_to_delta() -> None:
    # union bound: the sum over t of |D| |U| exp(-beta_t / 2) is delta, as the sum of 1/t² is pi²/6
    n_points, n_factors, delta = 1000, 3, 0.1
    failures = [
        n_points * n_factors * math.exp(-finite_beta(math.log(n_points), n_factors, t, delta) / 2.0)
        for t in range(1, 20_000)
    ]
    assert sum(failures) == pytest.approx(delta, rel=1e-4)


def test_the_continuous_weight_is_the_finite_one_on_the_papers_grid() -> None:
    # lemma 6: delta is halved twice, and the grid has d t² b sqrt(log(4 |U| a / delta)) points a side
    d, k, t, delta, a, b = 5, 4, 7, 0.2, 2.0, 3.0
    points_a_side = d * t**2 * b * math.sqrt(math.log(4 * k * a / delta))
    on_grid = finite_beta(d * math.log(points_a_side), k, t, delta / 4.0)
    assert continuous_beta(d, k, t, delta, a, b) == pytest.approx(on_grid, rel=1e-12)


def test_the_group_weight_is_theorem_5s() -> None:
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
