import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from swarmbo.acquisition import alpha, beta


def test_theory_alpha_is_theorem_1_of_daxberger_and_low():
    s2, size, sites, t, delta = 0.01, 4, 558, 3, 0.1
    C = 0.5 * math.log(1 + size / s2)
    wanted = 4 / math.log(1 + 1 / s2) * size * math.exp(2 * C) * math.log(sites * t**2 * math.pi**2 / (6 * delta))
    assert np.isclose(alpha("theory", t, 40, size, 2, sites, s2, delta), wanted)


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


def test_practical_alpha_gives_a_fresh_point_the_practical_ucb_bonus():
    s2 = 0.02
    a = alpha("practical", 5, 30, 4, 2, 1000, s2)
    assert np.isclose(math.sqrt(0.5 * a * math.log(1 + 1 / s2)), math.sqrt(beta("practical", 30, 2, 1000)))


def test_schedules_grow_with_time_and_stay_defined_without_data():
    for kind in ("practical", "theory"):
        values = [beta(kind, t, 2, 100) for t in (0, 1, 10, 100)]
        assert values == sorted(values)
        assert values[0] >= 0
