import numpy as np
import pytest

from swarmbo.errors import ShapeError
from swarmbo.readings import Reading, reported

SENT = {"a": np.array([1.0, 1.0]), "b": np.array([2.0, 2.0])}


def test_readings_come_in_the_order_of_the_agents_with_the_place_that_was_really_measured():
    infos = {"b": {"location": [3.0, 3.0], "measurement": 5.0}, "a": {"location": [4.0, 4.0], "measurement": 6.0}}
    readings = reported(infos, ["a", "b"], SENT, 2)
    assert [(agent, *reading.place, reading.outcome) for agent, reading in readings.items()] == [
        ("a", 4.0, 4.0, 6.0),
        ("b", 3.0, 3.0, 5.0),
    ]


def test_who_was_sent_and_is_silent_has_failed_where_it_was_sent():
    readings = reported({}, ["a", "b", "c"], SENT, 2)
    assert {agent: reading.place.tolist() for agent, reading in readings.items()} == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert not any(reading.is_good for reading in readings.values())


def test_who_declined_has_not_failed():
    assert list(reported({"a": {"sampled": False}}, ["a", "b"], SENT, 2)) == ["b"]


def test_a_failed_measurement_still_tells_where_the_agent_is():
    infos = {"c": {"location": [5.0, 6.0], "measurement": float("nan")}}
    reading = reported(infos, ["c"], {}, 2)["c"]
    assert reading.place.tolist() == [5.0, 6.0]
    assert not reading.is_good


def test_an_outcome_from_nowhere_is_refused():
    with pytest.raises(ShapeError, match="location of 'a'"):
        reported({"a": {"location": [np.nan, 0.0], "measurement": 1.0}}, ["a"], SENT, 2)
    with pytest.raises(ShapeError, match="wanted 2 finite numbers"):
        Reading.of("a", [1.0], 2.0, 2)
    assert reported({"a": {"location": [np.nan, 0.0]}}, ["a"], {}, 2) == {}
