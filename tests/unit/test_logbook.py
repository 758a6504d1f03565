import numpy as np
import pytest

from swarmbo.deciding.logbook import Logbook
from swarmbo.errors import UnknownQueryError
from swarmbo.graph import FactorGraph
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

FACTORS = ("f", "g", "h")
SUM = Problem.of(FactorGraph.from_scopes({name: ["x", "y"] for name in FACTORS}), dict.fromkeys("xy", (0.0, 9.0)))
FIELD = Problem.of_field(["a", "b"], Domain(np.zeros(2), np.ones(2)))
A, B = np.array([0.1, 0.2]), np.array([0.3, 0.4])


def empty(problem=SUM):
    return Logbook.empty(problem)


def with_queries(n_queries):
    log, ids = empty(), []
    for place in range(n_queries):
        log, query_id = log.with_query(np.full(2, float(place)))
        ids.append(query_id)
    return log, ids


def test_a_change_leaves_the_logbook_before_it_alone():
    log, (first, _) = with_queries(2)
    after = log.with_total(first, 1.5)
    assert (len(log.history), list(log.open), log.history.n_known) == (0, [first, "q00002"], 0)
    assert (len(after.history), list(after.open), after.history.n_known) == (1, ["q00002"], 1)


def test_history_keeps_the_order_of_telling_and_pending_that_of_asking():
    log, ids = with_queries(4)
    log = log.with_total(ids[2], 2.0).with_total(ids[0], 0.0)
    assert log.history.X[:, 0].tolist() == [2.0, 0.0]
    assert log.history.totals.tolist() == [2.0, 0.0]
    assert log.pending[:, 0].tolist() == [1.0, 3.0]
    assert sorted(log.points[:, 0].tolist()) == [0.0, 1.0, 2.0, 3.0]


def test_a_query_told_in_part_can_be_closed_with_its_total():
    log, (query,) = with_queries(1)
    log = log.with_factors(query, {"f": 1.0}).with_total(query, 7.0)
    assert not log.open
    assert len(log.history) == 1
    assert (log.history.totals[0], log.history.factors[0, 0]) == (7.0, 1.0)


def test_attached_rows_without_any_outcome_count_as_failed_and_sums_follow_from_factors():
    log, _ = with_queries(0)
    nan = np.nan
    factors = np.array([[1.0, 2.0, 3.0], [nan, nan, nan], [nan, 5.0, nan]])
    log = log.with_evaluations(Dataset(np.zeros((3, 2)), np.full(3, nan), factors))
    assert (log.history.n_known, log.failures) == (2, 1)
    np.testing.assert_array_equal(log.history.totals, [6.0, nan, nan])


def sent(log, **places):
    return log.with_query(FIELD.joint({agent: np.array(place) for agent, place in places.items()}))


def test_in_a_field_a_query_waits_for_those_who_take_part_and_ids_go_on():
    log, first = sent(empty(FIELD), a=A, b=B)
    log, second = sent(log, a=B)
    assert (first, second, log.asked) == ("q00001", "q00002", 2)
    half = log.with_factors(first, {"a": 1.0})
    assert list(half.open) == [first, second]
    assert half.open[first].waits == ("b",)
    assert list(half.with_factors(first, {"b": 1.0}).open) == [second]
    assert log.open[first].waits == ("a", "b")  # what changed it returned a new one
    with pytest.raises(UnknownQueryError, match=r"waits for \['a'\], got one of \['b'\]"):
        log.with_factors(second, {"b": 1.0})


def test_a_query_in_which_nobody_takes_part_counts_but_waits_for_nothing():
    log, query_id = sent(empty(FIELD))
    assert (log.asked, log.open) == (1, {})
    with pytest.raises(UnknownQueryError, match="not pending"):
        log.query(query_id)
    assert log.without([query_id]).open == {}


def test_each_place_of_a_field_counts_where_it_was_measured_however_late_it_is_told():
    log, query_id = sent(empty(FIELD), a=A, b=B)
    log = log.with_factors(query_id, {"a": 1.0}, point=FIELD.joint({"a": np.array([0.5, 0.6])}))
    log = log.with_factors(query_id, {"b": 2.0}, point=FIELD.joint({"b": np.array([0.7, 0.8])}))
    assert log.history.X.tolist() == [[0.5, 0.6, 0.7, 0.8]]
    assert log.history.factors.tolist() == [[1.0, 2.0]]
    assert np.isnan(log.history.totals).all()  # measurements in a field have no sum


def test_a_place_that_an_outcome_was_told_of_does_not_move_with_a_later_one():
    chain = Problem.of(FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]}), dict.fromkeys("xyz", (0.0, 9.0)))
    log, query_id = empty(chain).with_query(np.array([1.0, 2.0, 3.0]))
    log = log.with_factors(query_id, {"f": 0.0}, point=np.array([4.0, 5.0, 6.0]))
    log = log.with_factors(query_id, {"g": 0.0}, point=np.array([7.0, 7.0, 7.0]))
    assert log.history.X.tolist() == [[4.0, 5.0, 7.0]]


def test_what_is_given_up_has_neither_failed_nor_is_it_awaited():
    for problem in (SUM, FIELD):
        log, query_id = empty(problem).with_query(np.full(problem.domain.n_dims, 0.5))
        told = log.with_factors(query_id, {problem.channels[0]: 1.0})
        for after in (told.without([query_id]), told.in_new_episode()):
            assert not after.open
            assert not after.history.awaited.any()
            assert not after.history.failed.any()
            assert after.failures == 0
        failed = told.with_factors(query_id, dict.fromkeys(problem.channels[1:], np.nan))
        assert failed.history.failed.tolist() == [[False, *[True] * (len(problem.channels) - 1)]]
        assert failed.failures == len(problem.channels) - 1


def test_a_record_has_an_agents_own_outcomes_and_failures_keep_their_round():
    log, first = sent(empty(FIELD), a=A, b=B)
    log, second = sent(log, a=B)
    log = log.with_factors(first, {"a": np.nan, "b": 1.0}).with_factors(second, {"a": 2.0})
    row, nan = FIELD.joint({"a": A})[None], np.full((1, 2), np.nan)
    log = log.with_evaluations(Dataset(row, nan[:, 0], nan))  # attached: nobody's own
    log = log.with_evaluations(Dataset(row, nan[:, 0], nan), attached=False)
    assert (log.record("a").tolist(), log.record("b").tolist()) == ([False, True, False], [True])
    assert log.failures == 3
    assert log.history.rounds.tolist() == [1.0, 2.0, 2.0, 2.0]
    assert log.in_new_episode().round == 1
