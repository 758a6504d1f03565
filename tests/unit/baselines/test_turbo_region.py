import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.baselines.turbo import RegionState, TurboRegion, perturbed, region_around
from swarmbo.settings import convert

TOLERANCES = ((2, 4), (4, 4), (6, 6), (24, 24))  # by number of variables
RISING = [float(2**i) for i in range(40)]


def replay(outcomes: list[float], initial: int, n_dims: int, region: TurboRegion | None = None) -> RegionState:
    chosen = np.arange(len(outcomes)) >= initial
    return (region or TurboRegion()).replay(np.array(outcomes), chosen, chosen, n_dims)


def length_after(outcomes: list[float], n_dims: int = 6, region: TurboRegion | None = None) -> float:
    return replay([1.0, 0.0, *outcomes], 2, n_dims, region).length


@pytest.mark.parametrize(
    ("outcomes", "n_dims", "length"),
    [
        (RISING[1:3], 6, 0.8),  # three improvements in a row double it, up to its limit
        (RISING[1:4], 6, 1.6),
        (RISING[1:13], 6, 1.6),
        *(([0.0] * (n - 1), d, 0.8) for d, n in TOLERANCES),  # as many failures as variables, but four at least
        *(([failed] * n, d, 0.4) for d, n in TOLERANCES for failed in (0.0, np.nan)),
        ([*[0.0] * 5, 2.0, *[0.0] * 5], 6, 0.8),  # a success resets the count of failures
        ([2.0, 3.0, 0.0, 4.0, 5.0], 6, 0.8),  # and a failure resets that of successes
        ([1.0005] * 6, 6, 0.4),  # a gain of less than a thousandth of the best is a failure
        ([1.002, 1.004, 1.0066], 6, 1.6),
    ],
)
def test_improvements_double_the_length_and_failures_halve_it(outcomes, n_dims, length):
    assert length_after(outcomes, n_dims) == length


def test_a_length_doubles_from_its_initial_value():
    assert length_after(RISING[1:7], region=TurboRegion(initial=0.1)) == 0.4


def test_the_initial_design_does_not_change_the_length():
    state = replay(RISING, len(RISING), 6)
    assert (state.length, state.first, state.n_fresh) == (0.8, 0, 0)


def test_below_its_smallest_length_a_region_restarts_with_a_new_design_and_forgets_the_best():
    region = TurboRegion(fresh=5)
    outcomes = [9.0, 8.0, *[0.0] * (7 * 4)]  # 0.8 is halved seven times before it is below 2^-7
    assert replay(outcomes[:-1], 2, 4, region).restarts == 0
    over = replay(outcomes, 2, 4, region)
    assert (over.first, over.restarts, over.length, over.n_fresh) == (len(outcomes), 1, 0.8, 5)
    design = [*outcomes, 1.0, 2.0, 3.0, 2.0, 1.0]
    assert replay(design[:-1], 2, 4, region).n_fresh == 1
    later = replay([*design, 4.0, 5.0, 6.0], 2, 4, region)
    assert (later.first, later.n_fresh, later.length) == (len(outcomes), 0, 1.6)


@given(st.lists(st.one_of(st.floats(-5, 5), st.just(np.nan)), max_size=120), st.integers(1, 12), st.integers(1, 10))
def test_the_length_stays_within_its_limits_for_all_outcomes(outcomes, initial, n_dims):
    region = TurboRegion()
    state = replay(outcomes, initial, n_dims, region)
    assert region.smallest <= state.length <= region.largest
    assert 0 <= state.first <= len(outcomes)
    assert 0 <= state.n_fresh <= max(initial, region.fresh)
    assert np.log2(state.length / region.initial) == round(np.log2(state.length / region.initial))


def test_sides_follow_the_lengthscales_with_the_length_as_their_geometric_mean():
    lengthscales = np.array([0.1, 0.4, 1.6])
    low, high = region_around(np.full(3, 0.5), 0.05, lengthscales)
    sides = high - low
    np.testing.assert_allclose(sides / lengthscales, (sides / lengthscales)[0])
    assert np.prod(sides) ** (1 / 3) == pytest.approx(0.05)
    low, high = region_around(np.array([0.0, 1.0]), 0.4, np.ones(2))
    np.testing.assert_allclose([low, high], [[0.0, 0.8], [0.2, 1.0]])


def test_candidates_keep_the_centre_in_most_coordinates_but_never_in_all():
    rng = np.random.default_rng(0)
    centre, points = np.full(40, 0.5), rng.random((4000, 40))
    moved = perturbed(rng, centre, points, 0.05) != centre
    assert moved.any(axis=1).all()
    # at least one of 40 moves: the 13 % of rows that none would move get one
    assert moved.mean() == pytest.approx(0.05 + 0.95**40 / 40, rel=0.05)
    assert (np.where(moved, perturbed(rng, centre, points, 1.0), points) == points).all()


@pytest.mark.parametrize("wrong", [{"smallest": 0.0}, {"initial": 0.001}, {"largest": 0.5}, {"failures": 0}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="wanted"):
        convert(wrong, TurboRegion)
