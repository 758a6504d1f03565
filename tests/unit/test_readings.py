import numpy as np
import pytest

from swarmbo.errors import ShapeError
from swarmbo.readings import Reading, reported
from swarmbo.spaces import Domain

BOX = Domain(low=np.zeros(2), high=np.full(2, 10.0))
SENT = {"a": np.array([1.0, 1.0]), "b": np.array([2.0, 2.0])}


def test_readings_come_in_the_order_of_the_agents_with_the_place_that_was_really_measured():
    infos = {"b": {"location": [3.0, 3.0], "measurement": 5.0}, "a": {"location": [4.0, 4.0], "measurement": 6.0}}
    readings = reported(infos, ["a", "b"], SENT, BOX)
    assert [(agent, *reading.place, reading.outcome) for agent, reading in readings.items()] == [
        ("a", 4.0, 4.0, 6.0),
        ("b", 3.0, 3.0, 5.0),
    ]


def test_who_was_sent_and_is_silent_has_failed_where_it_was_sent():
    readings = reported({}, ["a", "b", "c"], SENT, BOX)
    assert {agent: reading.place.tolist() for agent, reading in readings.items()} == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert not any(reading.is_good for reading in readings.values())


def test_who_declined_has_not_failed():
    assert list(reported({"a": {"sampled": False}}, ["a", "b"], SENT, BOX)) == ["b"]


def test_a_failed_measurement_still_tells_where_the_agent_is():
    infos = {"c": {"location": [5.0, 6.0], "measurement": float("nan")}}
    reading = reported(infos, ["c"], {}, BOX)["c"]
    assert reading.place.tolist() == [5.0, 6.0]
    assert not reading.is_good


@pytest.mark.parametrize("location", [[np.nan, 0.0], [1.0], [1e300, 0.0], "here", [1j, 0.0], {}, [[1.0], [1.0, 2.0]]])
def test_an_outcome_from_nowhere_failed_where_the_agent_was_sent_and_is_refused_of_a_user(location):
    infos = {"a": {"location": location, "measurement": 1.0}}
    reading = reported(infos, ["a"], SENT, BOX)["a"]
    assert (reading.place.tolist(), reading.is_good) == ([1.0, 1.0], False)
    assert reported(infos, ["a"], {}, BOX) == {}
    with pytest.raises(ShapeError, match=r"location of 'a': got .*; wanted 2 numbers in or near the box"):
        Reading.of("a", location, 2.0, BOX)


@pytest.mark.parametrize("outcome", ["abc", "1.5", 1j, [1.0], np.ones(3), {"a": 1.0}, np.array("1.5"), object()])
def test_an_outcome_that_is_no_number_failed_in_a_world_and_is_refused_of_a_user(outcome):
    infos = {"a": {"location": [1.0, 2.0], "measurement": outcome}}
    assert not reported(infos, ["a"], SENT, BOX)["a"].is_good
    with pytest.raises(ShapeError, match=r"outcome of 'a': got .*; wanted a number, or None"):
        Reading.of("a", [1.0, 2.0], outcome, BOX)


@pytest.mark.parametrize("outcome", [1e60, -1e61, 1e300, np.inf, 10**400, None, np.nan])
def test_a_number_beyond_all_reason_is_a_failure_for_both(outcome):
    infos = {"a": {"location": [1.0, 2.0], "measurement": outcome}}
    for reading in (reported(infos, ["a"], SENT, BOX)["a"], Reading.of("a", [1.0, 2.0], outcome, BOX)):
        assert reading.place.tolist() == [1.0, 2.0]
        assert not reading.is_good
