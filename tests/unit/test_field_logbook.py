import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.errors import UnknownQueryError
from swarmbo.field_logbook import FieldLogbook

A, B = np.array([0.1, 0.2]), np.array([0.3, 0.4])


def test_a_query_waits_until_all_have_told_and_ids_go_on():
    log, first = FieldLogbook().with_query({"a": A, "b": B}, 1)
    log, second = log.with_query({"a": B}, 2)
    assert (first, second, log.asked) == ("q00001", "q00002", 2)
    half = log.with_told(first, ["a"])
    assert list(half.open) == [first, second]
    assert list(half.open[first].points) == ["b"]
    assert list(half.with_told(first, ["b"]).open) == [second]
    assert list(log.open[first].points) == ["a", "b"]  # what changed it returned a new one


def test_failures_are_noted_with_the_round_of_each():
    log = FieldLogbook().with_dead(np.array([[0.1], [0.2]]), np.array([1.0, 4.0])).with_dead(np.array([[0.3]]), 5)
    assert log.dead == ((0.1, 1.0), (0.2, 4.0), (0.3, 5.0))
    assert log.failures == 3
    assert log.with_dead(np.zeros((0, 1)), 6).failures == 3


def test_a_query_without_places_counts_but_waits_for_nothing():
    log, query_id = FieldLogbook().with_query({}, 1)
    assert (log.asked, log.open) == (1, {})
    with pytest.raises(UnknownQueryError, match="not out"):
        log.batch(query_id, [])
    assert log.without([query_id]).open == {}


def test_agents_that_a_query_does_not_wait_for_are_refused():
    log, query_id = FieldLogbook().with_query({"a": A, "b": B}, 1)
    assert log.batch(query_id, ["b"]).round == 1
    with pytest.raises(UnknownQueryError, match=r"waits for \['b'\], got an outcome of \['a'\]"):
        log.with_told(query_id, ["a"]).batch(query_id, ["a"])


def test_what_a_query_waits_for_is_its_own_copy():
    place = A.copy()
    log, query_id = FieldLogbook().with_query({"a": place}, 1)
    place[:] = 9.0
    assert log.open[query_id].points["a"].tolist() == A.tolist()


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 50)), max_size=5), st.integers(0, 9))
def test_saved_logbooks_come_back(queries, failures):
    log = FieldLogbook().with_dead(np.tile(A, (failures, 1)), 2)
    for has_a, has_b, round_number in queries:
        log, _ = log.with_query(({"a": A} if has_a else {}) | ({"b": B} if has_b else {}), round_number)
    plain = {"round": 50, "asked": log.asked, **log.to_plain()}
    back = FieldLogbook.from_plain(json.loads(json.dumps(plain)))
    assert (back.asked, back.failures, list(back.open)) == (log.asked, log.failures, list(log.open))
    assert back.to_plain() == log.to_plain()


def test_queries_saved_without_their_round_count_as_of_the_last():
    log, query_id = FieldLogbook().with_query({"a": A}, 3)
    pending = log.to_plain()["pending"]
    back = FieldLogbook.from_plain({"round": 7, "asked": 1, "pending": pending})
    assert back.open[query_id].round == 7
