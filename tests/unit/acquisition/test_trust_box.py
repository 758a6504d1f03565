"""Boxes that react to outcomes, and searches that start over."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.acquisition.trust_box import Restarts, TrustBox, box_around

OUTCOMES = st.lists(st.one_of(st.floats(-100.0, 100.0), st.just(np.nan)), max_size=40)


@pytest.mark.parametrize(
    ("outcomes", "side"),
    [
        ([0.0, 1.0, 2.0, 3.0], 0.8),  # three gains
        ([0.0, -1.0, 0.0, -1.0], 0.2),  # three without one
        ([0.0] + [np.nan] * 5, 0.4),  # what failed says nothing
        ([0.0, -1.0, np.nan, 0.0, np.nan, -1.0], 0.2),
        ([0.0, 1.0, 2.0, 2.0, 3.0], 0.4),  # not in a row
        ([0.0, *range(1, 10)], 1.0),  # never larger than the domain
        ([0.0] + 12 * [-1.0], 0.1),  # never smaller than the smallest
        ([np.nan] * 5, 0.4),  # nothing to fail against
        ([np.nan] * 5 + [1.0] * 4, 0.2),
        ([0.0], 0.4),
        ([], 0.4),
    ],
)
def test_the_side_doubles_after_gains_and_halves_after_failures(outcomes, side) -> None:
    assert TrustBox(smallest=0.1).side(np.array(outcomes), 1) == pytest.approx(side)


@given(OUTCOMES, st.integers(0, 10), st.floats(0.01, 50.0), st.floats(-10.0, 10.0))
def test_the_side_knows_only_the_order_of_outcomes(outcomes, n_initial, scale, shift) -> None:
    y, box = np.round(np.array(outcomes, dtype=float), 2), TrustBox()
    side = box.side(y, n_initial)
    assert box.smallest <= side <= 1.0
    assert np.log2(side / box.initial) == round(np.log2(side / box.initial)) or side == 1.0 or side == box.smallest
    assert box.side(np.exp(0.1 * scale * y / 50.0) + shift, n_initial) == side


@pytest.mark.parametrize(
    ("gain", "wanted"), [(0.0, True), (0.0009, True), (0.0011, False), (np.nan, False), (-5.0, True)]
)
def test_a_search_starts_over_when_a_full_turn_gains_less_than_a_share_of_the_first_spread(gain, wanted) -> None:
    first = np.array([0.0, 1.0, -1.0])  # their spread is one
    turn = np.full(4, 0.5)
    turn[2] = 1.0 + gain
    restarts = Restarts(after=4)
    arguments = {"design": 3, "since": 0, "begun": 3, "patience": 1}
    assert restarts.is_due(np.concatenate([first, turn]), **arguments) is wanted
    assert not restarts.is_due(np.concatenate([first, turn])[:6], **arguments)
    assert not restarts.is_due(np.concatenate([first, turn]), **arguments | {"patience": 2})
    assert not restarts.is_due(np.concatenate([first, turn]), **arguments | {"begun": 4})
    assert not Restarts(after=0).is_due(np.concatenate([first, turn]), **arguments)


def test_gains_before_the_search_began_do_not_count_against_it() -> None:
    outcomes = np.array([0.0, 9.0, 9.0, 9.0, 1.0, 2.0, 3.0])
    arguments = {"design": 1, "begun": 5, "patience": 1}
    assert Restarts(after=2).is_due(outcomes, since=0, **arguments)
    assert not Restarts(after=2).is_due(outcomes, since=4, **arguments)


def test_outcomes_that_never_vary_end_a_search_too() -> None:
    assert Restarts(after=3).is_due(np.full(8, 1.0), design=5, since=0, begun=5, patience=1)


@given(OUTCOMES, st.lists(st.integers(0, 30), max_size=20))
def test_failures_neither_end_a_search_nor_change_a_box(outcomes, places) -> None:
    y = np.round(np.array(outcomes, dtype=float), 2)
    y, design = np.concatenate([[0.0, 1.0], y[np.isfinite(y)]]), 2
    failed = np.insert(y, design + np.array(sorted(place % (len(y) - 1) for place in places), dtype=int), np.nan)
    due = [Restarts(after=3).is_due(told, design=2, since=0, begun=2, patience=1) for told in (y, failed)]
    assert due[0] == due[1]
    assert TrustBox().side(y, 2) == TrustBox().side(failed, 2)
    assert not Restarts(after=3).is_due(np.full(8, np.nan), design=5, since=0, begun=5, patience=1)


def test_a_box_is_cut_off_at_the_faces() -> None:
    low, high = box_around(np.array([0.1, 0.5]), 0.4)
    np.testing.assert_allclose((low, high), ([0.0, 0.3], [0.3, 0.7]))


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (TrustBox, {"initial": 0.0}),
        (TrustBox, {"failures": 0}),
        (Restarts, {"after": -1}),
        (Restarts, {"gain": -1e-9}),
        (Restarts, {"fresh": 0}),
    ],
)
def test_settings_out_of_range_are_refused(kind, wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        kind(**wrong)
