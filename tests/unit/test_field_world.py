import numpy as np
import pytest
from gymnasium.spaces import Box

from swarmbo.worlds import FieldWorld, Report, Step


class Env:
    """As much of an environment as a team in a field asks for."""

    def __init__(self, agents=("a", "b", "c")):
        self.possible_agents = self.agents = list(agents)
        self.box = Box(0.0, 10.0, (2,), float)

    @property
    def unwrapped(self):
        return self

    def action_space(self, agent):
        return self.box


SENT = {"a[0]": 1.0, "a[1]": 1.0, "b[0]": 2.0, "b[1]": 2.0}


def reported(infos, sent=SENT, agents=("a", "b", "c")):
    """Places and outcomes that a world makes of infos."""
    world = FieldWorld(Env(agents))
    news = world.news(sent, Step({}, {}, {}, {}, infos))
    assert news.total is None
    places = world.problem.places(news.point, news.factors)
    return {agent: (place.tolist(), news.factors[agent]) for agent, place in places.items()}


def test_readings_come_in_the_order_of_the_agents_with_the_place_that_was_really_measured():
    infos = {"b": {"location": [3.0, 3.0], "measurement": 5.0}, "a": {"location": [4.0, 4.0], "measurement": 6.0}}
    assert list(reported(infos).items()) == [("a", ([4.0, 4.0], 6.0)), ("b", ([3.0, 3.0], 5.0))]


def test_who_was_sent_and_is_silent_has_failed_where_it_was_sent():
    told = reported({})
    assert {agent: place for agent, (place, _) in told.items()} == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert all(np.isnan(outcome) for _, outcome in told.values())


def test_who_declined_has_not_failed():
    assert list(reported({"a": {"sampled": False}})) == ["b"]


def test_a_failed_measurement_still_tells_where_the_agent_is():
    place, outcome = reported({"c": {"location": [5.0, 6.0], "measurement": float("nan")}})["c"]
    assert place == [5.0, 6.0]
    assert np.isnan(outcome)


def test_who_says_what_but_not_where_measured_where_it_was_sent():
    assert reported({"a": {"measurement": 3.0}})["a"] == ([1.0, 1.0], 3.0)


@pytest.mark.parametrize("location", [[np.nan, 0.0], [1.0], [1e300, 0.0], "here", [1j, 0.0], {}, [[1.0], [1.0, 2.0]]])
def test_an_outcome_from_nowhere_failed_where_the_agent_was_sent(location):
    infos = {"a": {"location": location, "measurement": 1.0}}
    place, outcome = reported(infos)["a"]
    assert place == [1.0, 1.0]
    assert np.isnan(outcome)
    assert reported(infos, sent=None) == {}


@pytest.mark.parametrize("outcome", ["abc", "1.5", 1j, [1.0], np.ones(3), {"a": 1.0}, np.array("1.5"), object()])
def test_an_outcome_that_is_no_number_failed(outcome):
    assert np.isnan(reported({"a": {"location": [1.0, 2.0], "measurement": outcome}})["a"][1])


@pytest.mark.parametrize("outcome", [1e60, -1e61, 1e300, np.inf, 10**400, None, np.nan])
def test_a_number_beyond_all_reason_is_a_failure(outcome):
    place, number = reported({"a": {"location": [1.0, 2.0], "measurement": outcome}})["a"]
    assert place == [1.0, 2.0]
    assert np.isnan(number)


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"factors": "all", "source": 3, "cost": "dear", "distance": np.nan, "sampled": None},
        {"factors": None, "source": None, "location": None, "measurement": None},
    ],
)
def test_whatever_an_agent_reports_is_read(info):
    report = Report.of(info)
    assert (report.place, dict(report.factors), report.distance, report.cost) == (None, {}, 0.0, 0.0)
    assert np.isnan(report.outcome)
    assert report.source is None


def test_a_report_says_what_was_reported():
    info = {"location": [1, 2], "measurement": 3, "factors": {"f": 1.5, "g": "none"}, "cost": 2, "distance": 4}
    report = Report.of(info | {"sampled": np.bool_(False), "source": {"by": "hand"}})
    assert (report.place.tolist(), report.outcome, report.cost, report.distance) == ([1.0, 2.0], 3.0, 2.0, 4.0)
    assert (report.declined, report.source, report.is_placed, report.is_measured) == (True, {"by": "hand"}, True, True)
    assert report.factors["f"] == 1.5
    assert np.isnan(report.factors["g"])
