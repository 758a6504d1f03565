import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from swarmbo.compare.statistics import paired_difference
from swarmbo.errors import ConfigError, ShapeError


def of(values, other=None, **more):
    """The difference of results by seed, to zeros if to nothing else."""
    others = [0.0] * len(values) if other is None else other
    return paired_difference(dict(enumerate(values)), dict(enumerate(others)), **more)


def test_the_mean_is_that_of_the_common_seeds_and_the_others_are_named():
    difference = paired_difference({0: 5.0, 1: 6.0, 2: 9.0, 8: 100.0}, {0: 1.0, 1: 3.0, 2: 2.0, 7: -50.0})
    assert difference.mean == pytest.approx((4 + 3 + 7) / 3)
    assert difference.n_pairs == 3
    assert difference.unpaired == [7, 8]


def test_pairing_removes_what_a_seed_does_to_both():
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 100, size=20)
    difference = of(luck + 1 + 0.1 * rng.normal(size=20), luck)
    assert difference.is_clear
    assert 0.9 < difference.low < difference.mean < difference.high < 1.1


def test_the_interval_is_close_to_students_for_normal_differences():
    differences = np.random.default_rng(5).normal(0.3, 2.0, size=200)
    ours = of(differences)
    student = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert ours.low == pytest.approx(student.low, abs=0.03)
    assert ours.high == pytest.approx(student.high, abs=0.03)


def test_about_95_percent_of_intervals_cover_the_truth():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        sample = of(rng.exponential(1.0, size=30), resamples=500)
        covered += sample.low <= 1.0 <= sample.high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_same_data_give_the_same_interval_and_swapping_mirrors_the_mean():
    rng = np.random.default_rng(2)
    one, two = rng.normal(size=12), rng.normal(size=12)
    assert of(one, two) == of(one, two)
    assert of(one, two).mean == pytest.approx(-of(two, one).mean)


@pytest.mark.parametrize(
    ("values", "others", "mean", "interval", "is_clear"),
    [
        (range(3, 9), range(1, 7), 2.0, (2.0, 2.0), True),  # the same everywhere
        ([3.0, 4.0], [3.0, 4.0], 0.0, (0.0, 0.0), False),  # a tie
        ([3.0], [1.0], 2.0, (None, None), False),
        ([math.nan, 1.0, 2.0], [0.0] * 3, math.nan, (None, None), False),
    ],
)
def test_what_has_no_spread_has_no_width_and_what_is_one_pair_or_no_number_no_interval(
    values, others, mean, interval, is_clear
):
    found = of(values, others)
    assert ((found.low, found.high), found.is_clear) == (interval, is_clear)
    assert found.mean == pytest.approx(mean, nan_ok=True)


@pytest.mark.parametrize(("n_pairs", "is_clear"), [(2, False), (5, False), (6, True)])
def test_a_few_pairs_that_agree_by_chance_are_not_clear(n_pairs, is_clear):
    """Signs of n fair coins agree with probability 2^(1 - n): more than 5 % for five, less for six."""
    difference = of(range(1, n_pairs + 1))
    assert difference.low > 0
    assert difference.is_clear is is_clear


@pytest.mark.parametrize(("shift", "size"), [(1e9, 1e-6), (0.0, 1e-200), (0.0, 1e200)])
def test_the_interval_moves_and_grows_with_the_differences(shift, size):
    """Third powers of small differences vanish and those of large ones overflow; the interval must not."""
    around_zero = of([0.0, 1.0, 3.0, 4.0])
    ours = of([shift, shift + size, shift + 3 * size, shift + 4 * size])
    assert ours.low == pytest.approx(shift + size * around_zero.low, rel=1e-15 if shift else 1e-9)
    assert ours.high == pytest.approx(shift + size * around_zero.high, rel=1e-15 if shift else 1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan])
def test_no_common_seed_and_a_level_outside_0_and_1_are_refused(level):
    with pytest.raises(ShapeError, match="no seed is in both"):
        paired_difference({0: 1.0}, {1: 1.0})
    with pytest.raises(ConfigError, match="between 0 and 1"):
        paired_difference({0: 1.0}, {0: 1.0}, level)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6), st.floats(0.1, 10.0))
def test_no_end_of_an_interval_is_beyond_all_differences(numbers, unit):
    differences = [unit * number for number in numbers]
    found = of(differences)
    assert min(differences) <= found.low <= found.high <= max(differences)
