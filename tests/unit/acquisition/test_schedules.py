import math

import numpy as np
from hypothesis import given, strategies as st

from swarmbo.acquisition import Progress, alpha, beta


def test_theory_alpha_is_theorem_1_of_daxberger_and_low():
    s2, size, sites, t, delta = 0.01, 4, 558, 3, 0.1
    C = 0.5 * math.log(1 + size / s2)
    wanted = 4 / math.log(1 + 1 / s2) * size * math.exp(2 * C) * math.log(sites * t**2 * math.pi**2 / (6 * delta))
    assert np.isclose(alpha("theory", Progress(t, 25, 40, 2, sites), size, s2, delta), wanted)


@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.01, 10.0))
def test_the_constant_of_the_theory_bounds_what_a_batch_tells_about_one_point(seed, size, s2):
    """C >= I[f(x); y_D] for random batches of a field whose prior variance is at most 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(size + 1, 1))
    K = np.exp(-0.5 * (X - X.T) ** 2)
    own, rest = K[0, 0], K[1:, 1:] + s2 * np.eye(size)
    left = own - K[0, 1:] @ np.linalg.solve(rest, K[0, 1:])
    information = 0.5 * math.log(own / max(left, 1e-12))
    assert information <= 0.5 * math.log(1 + size / s2) + 1e-9


def test_theory_beta_is_theorem_1_of_srinivas_et_al():
    wanted = 2 * math.log(558 * 40**2 * math.pi**2 / (6 * 0.05))
    assert np.isclose(beta("theory", Progress(3, None, 40, 2, 558), 0.05), wanted)


def test_alpha_gives_a_fresh_point_the_ucb_bonus_of_its_schedule():
    s2, progress = 0.02, Progress(5, 10, 30, 2, 1000)
    for kind in ("annealed", "practical"):
        bonus = math.sqrt(0.5 * alpha(kind, progress, 4, s2) * math.log(1 + 1 / s2))
        assert np.isclose(bonus, math.sqrt(beta(kind, progress)))


def test_practical_and_theory_grow_with_the_data_and_are_defined_without():
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
