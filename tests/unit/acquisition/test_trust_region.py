"""Boxes that react to outcomes, and restarts of searches."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.acquisition.trust_region import Restarts, TrustRegion, box_around
from swarmbo.errors import ConfigError

OUTCOMES = st.lists(st.one_of(st.floats(-100.0, 100.0), st.just(np.nan)), max_size=40)


@pytest.mark.parametrize(
    ("outcomes", "side"),
    [
        ([0.0, 1.0, 2.0, 3.0], 0.8),  # three gains
        ([0.0, -1.0, 0.0, -1.0], 0.2),  # three without one
        ([0.0] + [np.nan] * 5, 0.4),  # failed evaluations do not count
        ([0.0, -1.0, np.nan, 0.0, np.nan, -1.0], 0.2),
        ([0.0, 1.0, 2.0, 2.0, 3.0], 0.4),  # not in a row
        ([0.0, *range(1, 10)], 1.0),  # never larger than the domain
        ([0.0] + 12 * [-1.0], 0.1),  # never smaller than the smallest
        ([np.nan] * 5, 0.4),  # no outcome to compare with
        ([np.nan] * 5 + [1.0] * 4, 0.2),
        ([0.0], 0.4),
        ([], 0.4),
    ],
)
def test_the_side_doubles_after_gains_and_halves_after_failures(outcomes, side) -> None:
    assert TrustRegion(smallest=0.1).state(np.array(outcomes), 1).side == pytest.approx(side)


@given(OUTCOMES, st.integers(0, 10), st.floats(0.01, 50.0), st.floats(-10.0, 10.0))
def test_the_side_depends_on_the_order_of_outcomes_only(outcomes, n_initial, scale, shift) -> None:
    y, box = np.round(np.array(outcomes, dtype=float), 2), TrustRegion()
    side = box.state(y, n_initial).side
    assert box.smallest <= side <= 1.0
    assert np.log2(side / box.initial) == round(np.log2(side / box.initial)) or side == 1.0 or side == box.smallest
    assert box.state(np.exp(0.1 * scale * y / 50.0) + shift, n_initial).side == side


def test_points_outside_the_box_do_not_count_as_steps_but_may_move_it() -> None:
    box = TrustRegion(initial=0.4, successes=2, failures=2)
    near, far = [0.5, 0.6], [0.5, 0.75]  # the first is in the box around (0.5, 0.5)

    def side(*steps):
        outcomes, places = zip((0.0, [0.5, 0.5]), *steps, strict=True)
        return box.state(np.array(outcomes), 1, places=np.array(places)).side

    assert side((-1.0, near), (-1.0, near)) == 0.2
    assert side((-1.0, near), (-1.0, far)) == 0.4
    assert side((-1.0, near), (np.nan, near), (-1.0, far), (-1.0, near)) == 0.2  # in a row, not counting the other two
    assert side((1.0, near), (2.0, near)) == 0.8
    assert side((1.0, far), (2.0, far)) == 0.4  # the second is at the new centre: one success
    assert side((1.0, far), (-1.0, near), (-1.0, near)) == 0.2  # 0.15 from the new centre
    assert side((1.0, [0.5, 0.9]), (-1.0, near), (-1.0, near)) == 0.4  # 0.3 from it
    assert side((-1.0, [0.7, 0.5]), (-1.0, [0.3, 0.7])) == 0.2  # the faces belong to the box
    first_known = box.state(np.array([np.nan, 1.0, 0.0, 0.0]), 1, places=np.full((4, 1), 0.5))
    assert first_known.side == 0.2  # the first known point is in no box
    assert box.state(np.array([np.nan, 1.0, 2.0]), 1, places=np.full((3, 1), 0.5)).side == 0.4  # so it is no success


def test_steps_are_idle_until_small_gains_add_up_or_a_point_outside_gains() -> None:
    box, design = TrustRegion(initial=0.4), [0.0, 0.0, 10.0]  # of spread 10

    def idle(*steps, gain=0.1):
        outcomes, places = np.array([*design, *(y for y, _ in steps)]), np.array([[0.5]] * 3 + [[u] for _, u in steps])
        return box.state(outcomes, 3, places=places, gain=gain).idle

    assert idle() == 0
    assert idle((9.0, 0.5), (np.nan, 0.5), (9.5, 0.5)) == 2  # failed evaluations do not count
    assert idle((9.0, 0.5), (9.0, 0.9)) == 1  # a point outside is not a step
    assert idle((10.4, 0.5), (10.8, 0.5)) == 2
    assert idle((10.4, 0.5), (10.8, 0.5), (11.2, 0.5)) == 0
    assert idle((10.4, 0.5), (10.8, 0.5), (11.2, 0.5), (11.3, 0.5)) == 1
    assert idle((9.0, 0.5), (12.0, 0.9)) == 0
    assert idle((10.4, 0.5), gain=0.0) == 0
    assert box.state(np.array([np.nan, np.nan]), 0, gain=0.1).idle == 0  # without outcomes no step is idle


@given(OUTCOMES, st.integers(0, 10), st.floats(0.0, 1.0))
def test_idle_steps_do_not_decrease_if_a_larger_gain_is_required(outcomes, n_initial, gain) -> None:
    y, box = np.array([0.0, *outcomes]), TrustRegion()
    loose, strict = (box.state(y, n_initial, gain=g) for g in (0.0, gain))
    assert loose.side == strict.side == box.state(y, n_initial).side
    assert loose.idle <= strict.idle <= max(0, len(y) - n_initial)


@given(OUTCOMES, st.integers(0, 10), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_the_side_does_not_depend_on_points_outside_that_gain_nothing(outcomes, n_initial, n_more, seed) -> None:
    y, rng, box = np.round(np.array([0.0, *outcomes]), 1), np.random.default_rng(seed), TrustRegion(initial=0.1)
    inside = np.full((len(y), 2), 0.5)
    side = box.state(y, n_initial).side
    assert box.state(y, n_initial, places=inside).side == (side if n_initial else box.state(y, 1).side)
    at = np.sort(rng.integers(max(n_initial, 1), max(n_initial, len(y)) + 1, n_more)).clip(max=len(y))
    more, outside = np.insert(y, at, -1e3), np.insert(inside, at, 9.0, axis=0)
    moved, same = box.state(more, n_initial, places=outside), box.state(y, n_initial, places=inside)
    assert moved.side == same.side


@pytest.mark.parametrize(
    ("gain", "wanted"), [(0.0, True), (0.0004, True), (0.0006, False), (np.nan, False), (-5.0, True)]
)
def test_a_search_restarts_when_a_full_window_gains_less_than_a_share_of_its_spread(gain, wanted) -> None:
    # best minus median, of the design and of the window, is 0.5
    outcomes, restarts = np.array([0.0, 1.0, -1.0, 0.5, 0.5, 1.0 + gain, 0.5]), Restarts(after=4)
    arguments = {"since": 0, "start": 3, "patience": 1}
    assert restarts.is_due(outcomes, **arguments) is wanted
    assert not restarts.is_due(outcomes[:6], **arguments)
    assert not restarts.is_due(outcomes, **arguments | {"patience": 2})
    assert not restarts.is_due(outcomes, **arguments | {"start": 4})
    assert not Restarts(after=0).is_due(outcomes, **arguments)


HEAVY = [-1e9, -1e6, -1e5, *-np.linspace(30.0, 20.0, 5), *-np.linspace(19.9, 19.0, 4)]
NARROW = [0.1, 0.1, 0.11, *np.linspace(1.0, 9.0, 5), 9.0, 9.0, 9.001, 9.002]
DESIGN, IDLE, RISEN = [0.0, 1.0, -1.0], [0.5] * 4, [0.0, 9.0, 9.0, 9.0, 1.0, 2.0, 3.0]
BATCHES = np.concatenate([[0, 1, 2], np.repeat([3, 11, 19], 8)])


@pytest.mark.parametrize(
    ("outcomes", "after", "given", "wanted"),
    [
        (HEAVY, 4, {"start": 8}, False),  # gains are relative to recent outcomes, not to the first ones
        (NARROW, 4, {"start": 8}, True),
        ([*DESIGN, *IDLE, 9.0], 4, {}, True),  # full windows count, whatever came since
        ([*DESIGN, 9.0, *IDLE], 4, {}, False),
        (RISEN, 2, {"start": 5}, True),  # what was gained before the search began does not count for it
        (RISEN, 2, {"start": 5, "since": 4}, False),
        ([1.0] * 8, 3, {"start": 5}, True),  # outcomes that never vary
        ([np.nan] * 8, 3, {"start": 5}, False),
        ([*DESIGN, *[0.5] * 24], 4, {}, True),
        ([*DESIGN, *[0.5] * 24], 4, {"basis": BATCHES}, False),  # batches without gain count, not evaluations
        ([*DESIGN, *[0.5] * 24], 3, {"basis": BATCHES}, True),
    ],
)
def test_conditions_of_a_restart(outcomes, after, given, wanted) -> None:
    arguments = {"since": 0, "start": 3, "patience": 1} | given
    assert Restarts(after=after).is_due(np.array(outcomes), **arguments) is wanted


@given(OUTCOMES, st.lists(st.integers(0, 30), max_size=20))
def test_failures_neither_end_a_search_nor_change_a_box(outcomes, places) -> None:
    y = np.round(np.array(outcomes, dtype=float), 2)
    y, design = np.concatenate([[0.0, 1.0], y[np.isfinite(y)]]), 2
    failed = np.insert(y, design + np.array(sorted(place % (len(y) - 1) for place in places), dtype=int), np.nan)
    due = [Restarts(after=3).is_due(told, since=0, start=2, patience=1) for told in (y, failed)]
    assert due[0] == due[1]
    assert TrustRegion().state(y, 2).side == TrustRegion().state(failed, 2).side


def test_a_batch_without_gain_is_one_failure_and_a_batch_with_a_gain_is_one_success() -> None:
    box, design = TrustRegion(initial=0.4, successes=2, failures=2), [0.0]

    def side(*batches):
        y, sizes = np.array([*design, *itertools.chain(*batches)]), [len(batch) for batch in batches]
        basis = np.repeat(1 + np.cumsum([0, *sizes[:-1]]), sizes)
        return box.state(y, 1, basis=np.array([0, *basis])).side

    assert side([-1.0] * 8) == 0.4
    assert side([-1.0] * 8, [-1.0] * 8) == 0.2
    assert side([-1.0] * 7 + [1.0], [0.5] * 8) == 0.4  # one success, one failure, whatever their order
    assert side([1.0, 2.0, 3.0], [0.0]) == 0.4
    assert side([1.0, 2.0, 3.0], [0.0, 4.0]) == 0.8
    assert side([np.nan] * 4, [-1.0], [-1.0, np.nan]) == 0.2  # failed evaluations do not count
    assert side(*([y] for y in (-1.0, -1.0))) == box.state(np.array([0.0, -1.0, -1.0]), 1).side


def test_a_batch_without_gain_counts_as_at_most_three_idle_steps() -> None:
    """Its members have boxes of three sizes: two batches try as much as six single steps."""

    def idle(*sizes):
        basis = np.repeat(1 + np.cumsum([0, *sizes[:-1]]), sizes)
        return TrustRegion().state(np.array([0.0] + [-1.0] * sum(sizes)), 1, basis=np.array([0, *basis])).idle

    assert [idle(1), idle(2), idle(3), idle(8)] == [1, 2, 3, 3]
    assert [idle(2, 2), idle(8, 1), idle(8, 8), idle(1, 1, 1)] == [4, 4, 6, 3]


def test_a_member_gains_if_it_improves_on_outcomes_before_its_batch_whatever_other_members_found() -> None:
    box, basis = TrustRegion(initial=0.4, successes=1, failures=1), np.array([0, 1, 1])
    places = np.array([[0.5, 0.5], [0.9, 0.9], [0.5, 0.6]])  # the second is far out of the box

    def side(*outcomes):
        return box.state(np.array(outcomes), 1, places=places, basis=basis).side

    assert side(0.0, 2.0, 1.0) == 0.8
    assert side(0.0, 2.0, -1.0) == 0.2
    assert side(0.0, -1.0, 1.0) == 0.8
    assert box.state(np.array([0.0, 2.0, 1.0]), 1, places=np.full((3, 2), 0.5)).side == 0.4  # one by one


def test_with_eight_pending_queries_a_failure_counts_once_a_later_query_knows_of_it() -> None:
    asked_knowing = np.maximum(1, np.arange(-6, 26))  # eight at first, then one new query per outcome
    box = TrustRegion(initial=0.8, failures=1, smallest=1e-3)
    assert box.state(np.array([0.0] + [-1.0] * 32), 1, basis=np.array([0, *asked_knowing])).side == 0.8 / 2**4
    knowing = np.array([0, 1, 1, 2, 2, 3])  # with two pending queries every second failure counts
    assert box.state(np.array([0.0] + [-1.0] * 5), 1, basis=knowing).side == 0.8 / 2**2


def test_a_region_that_could_only_grow_by_failures_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"initial: got 0\.1; wanted a number >= `smallest`, 0\.5$"):
        TrustRegion(initial=0.1, smallest=0.5)
    assert TrustRegion(initial=0.5, smallest=0.5, failures=1).state(np.array([1.0, 0.0])).side == 0.5


def test_a_box_is_clipped_at_the_faces_of_the_unit_cube() -> None:
    low, high = box_around(np.array([0.1, 0.5]), 0.4)
    np.testing.assert_allclose((low, high), ([0.0, 0.3], [0.3, 0.7]))
