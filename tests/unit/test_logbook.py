import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.errors import UnknownQueryError
from swarmbo.logbook import Logbook

FACTORS = ("f", "g", "h")


def with_queries(n_queries, n_variables=2):
    log, ids = Logbook.empty(n_variables, FACTORS), []
    for place in range(n_queries):
        log, query_id = log.with_query(np.full(n_variables, float(place)))
        ids.append(query_id)
    return log, ids


def test_a_change_leaves_the_logbook_before_it_alone():
    log, (first, _) = with_queries(2)
    after = log.with_total(first, 1.5)
    assert (len(log.history), list(log.open), log.n_data) == (0, [first, "q00002"], 0)
    assert (len(after.history), list(after.open), after.n_data) == (1, ["q00002"], 1)


def test_history_keeps_the_order_of_telling_and_pending_that_of_asking():
    log, ids = with_queries(4)
    log = log.with_total(ids[2], 2.0).with_total(ids[0], 0.0)
    assert log.history.X[:, 0].tolist() == [2.0, 0.0]
    assert log.history.totals.tolist() == [2.0, 0.0]
    assert log.pending[:, 0].tolist() == [1.0, 3.0]
    assert sorted(log.points[:, 0].tolist()) == [0.0, 1.0, 2.0, 3.0]


@given(st.permutations(FACTORS), st.integers(1, 3))
def test_factors_told_in_any_order_and_in_parts_give_the_same_history(order, cut):
    values = {"f": 1.0, "g": 10.0, "h": 100.0}
    log, (query,) = with_queries(1)
    whole = log.with_factors(query, values)
    first, rest = order[:cut], order[cut:]
    parts = log.with_factors(query, {name: values[name] for name in first})
    if rest:
        assert list(parts.open) == [query]
        assert np.isnan(parts.history.totals[0])
        assert not len(parts.pending)
        parts = parts.with_factors(query, {name: values[name] for name in rest})
    assert not parts.open
    np.testing.assert_array_equal(parts.history.factors, whole.history.factors)
    assert parts.history.totals.tolist() == whole.history.totals.tolist() == [111.0]


def test_a_sum_with_a_failed_factor_is_unknown_and_the_others_are_kept():
    log, (query,) = with_queries(1)
    log = log.with_factors(query, {"f": 1.0, "g": np.nan}, rest_failed=True)
    assert not log.open
    assert log.failures == 2
    np.testing.assert_array_equal(log.history.factors, [[1.0, np.nan, np.nan]])
    assert np.isnan(log.history.totals).all()
    assert log.n_data == 1


def test_a_query_told_in_part_can_be_closed_with_its_total():
    log, (query,) = with_queries(1)
    log = log.with_factors(query, {"f": 1.0}).with_total(query, 7.0)
    assert not log.open
    assert len(log.history) == 1
    assert (log.history.totals[0], log.history.factors[0, 0]) == (7.0, 1.0)


def test_the_place_where_it_was_really_evaluated_counts():
    log, ids = with_queries(2)
    log = log.with_total(ids[0], 1.0, np.array([5.0, 6.0])).with_factors(ids[1], {"f": 1.0}, point=np.array([7.0, 8.0]))
    assert log.history.X.tolist() == [[5.0, 6.0], [7.0, 8.0]]


@pytest.mark.parametrize(
    ("tell", "words"),
    [
        (lambda log, q: log.with_total("q9", 1.0), "'q9' is not out"),
        (lambda log, q: log.with_total(q, 1.0).with_total(q, 1.0), "is not out"),
        (lambda log, q: log.with_factors(q, {"stranger": 1.0}), "got one of \\['stranger'\\]"),
        (lambda log, q: log.with_factors(q, {"f": 1.0}).with_factors(q, {"f": 1.0}), "got \\['f'\\] again"),
        (lambda log, q: log.without([q]).with_total(q, 1.0), "is not out"),
    ],
)
def test_what_was_never_asked_or_told_before_is_refused(tell, words):
    log, (query,) = with_queries(1)
    with pytest.raises(UnknownQueryError, match=words):
        tell(log, query)


def test_attached_rows_without_any_outcome_count_as_failed_and_sums_follow_from_factors():
    log, _ = with_queries(0)
    nan = np.nan
    factors = np.array([[1.0, 2.0, 3.0], [nan, nan, nan], [nan, 5.0, nan]])
    log = log.with_evaluations(np.zeros((3, 2)), np.full(3, nan), factors)
    assert (log.n_data, log.failures) == (2, 1)
    np.testing.assert_array_equal(log.history.totals, [6.0, nan, nan])


def test_a_logbook_that_was_written_down_goes_on_alike():
    log, ids = with_queries(3)
    log = log.with_total(ids[1], 0.1 + 0.2).with_factors(ids[2], {"g": 1 / 3})
    plain, arrays = log.to_state()
    again = Logbook.empty(2, FACTORS).from_state(plain, arrays)
    for one, other in ((log, again), (log.with_factors(ids[2], {"f": 2.0}), again.with_factors(ids[2], {"f": 2.0}))):
        np.testing.assert_array_equal(one.history.X, other.history.X)
        np.testing.assert_array_equal(one.history.totals, other.history.totals)
        np.testing.assert_array_equal(one.history.factors, other.history.factors)
        assert one.to_state()[0] == other.to_state()[0]
