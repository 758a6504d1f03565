"""Infos of agents as a field's world reads them: locations and outcomes, or failures."""

import re
from fractions import Fraction

import numpy as np
import pytest
from gymnasium.spaces import Box

import swarmbo as sb
from swarmbo.errors import SwarmboError
from swarmbo.worlds import FieldWorld, Report, Step

from .teams import Played

SENT = {"a[0]": 1.0, "a[1]": 1.0, "b[0]": 2.0, "b[1]": 2.0}
FAILED = None


def env_of(n_numbers=2):
    return Played(dict.fromkeys("abc", Box(0.0, 10.0, (n_numbers,), float)))


def reported(infos, sent=SENT):
    """Locations and outcomes that a world reads from infos, in its order."""
    world = FieldWorld(env_of())
    news = world.news(sent, Step({}, {}, {}, {}, infos))
    assert news.total is None
    places = world.problem.places(news.point, news.factors)
    found = {agent: (place.tolist(), news.factors[agent]) for agent, place in places.items()}
    return {agent: (place, FAILED if np.isnan(y) else y) for agent, (place, y) in found.items()}


A, B = (
    {"a": ([1.0, 1.0], FAILED)},
    {"b": ([2.0, 2.0], FAILED)},
)  # results of agents without infos: failures at the requested locations


@pytest.mark.parametrize(
    ("infos", "found"),
    [
        ({}, A | B),
        ({"a": None}, A | B),
        ({"a": {"sampled": False}}, B),  # a abstained
        ({"a": {"measurement": 3.0}}, {"a": ([1.0, 1.0], 3.0)} | B),
        ({"a": {"measurement": 3.0, "sampled": None}}, {"a": ([1.0, 1.0], 3.0)} | B),
        ({"c": {"location": [5.0, 6.0], "measurement": float("nan")}}, A | B | {"c": ([5.0, 6.0], FAILED)}),
        (
            {"b": {"location": [3.0, 3.0], "measurement": 5.0}, "a": {"location": [4.0, 4.0], "measurement": 6.0}},
            {"a": ([4.0, 4.0], 6.0), "b": ([3.0, 3.0], 5.0)},
        ),
    ],
)
def test_outcomes_have_the_reported_location_or_else_the_requested_one(infos, found):
    assert list(reported(infos).items()) == list(found.items())


@pytest.mark.parametrize("location", [[np.nan, 0.0], [1.0], [1e300, 0.0], "here", [1j, 0.0], {}, [[1.0], [1.0, 2.0]]])
def test_an_outcome_without_a_valid_location_failed_at_the_requested_one(location):
    infos = {"a": {"location": location, "measurement": 1.0}}
    assert reported(infos) == A | B
    assert reported(infos, sent=None) == {}
    report = Report.of(infos["a"], FieldWorld(env_of()).problem.box)
    assert (report.place, report.is_placed) == (None, False)
    assert re.match(r"location: got .*; wanted 2 numbers in or near the box", report.failure)


OTHER = {"a": [1.0, 2.0]}


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ({"standpoints": OTHER | {"b": [1.0, 2.0, 3.0]}}, r"standpoints\(\) of 'b': got .*; wanted 2 coordinates"),
        ({"standpoints": {"A": [1.0, 2.0]}}, r"standpoints\(\): got \['A'\]; wanted some of \['a', 'b', 'c'\]"),
        ({"prices": [1.0, 2.0, 3.0]}, r"prices\(\): got \[1.0, 2.0, 3.0\]; wanted a table {agent: …}"),
        ({"prices": {"A": 1.0}}, r"prices\(\): got \['A'\]"),
        ({"level": "high"}, r"level: got 'high'; wanted a finite number"),
    ],
)
def test_invalid_offers_of_an_environment_are_refused_by_name(told, message):
    env = env_of(3 if "prices" in told else 2)
    for name, value in told.items():
        setattr(env, name, value if name == "level" else lambda value=value: value)
    with pytest.raises(SwarmboError, match=message):
        FieldWorld(env).offers(["a", "b", "c"])


@pytest.mark.parametrize("outcome", ["1.5", np.array("1.5"), object(), -1e61, np.inf, 10**400])
def test_outcomes_that_are_not_numbers_or_extremely_large_count_as_failed(outcome):
    assert reported({"a": {"location": [1.0, 2.0], "measurement": outcome}})["a"] == ([1.0, 2.0], FAILED)


def test_only_invalid_measurements_have_a_reason_of_failure():
    for outcome, reason in ((np.True_, None), (Fraction(1, 2), None), (np.ones(2), "measurement: got"), ("x", "meas")):
        failure = Report.of({"measurement": outcome}).failure
        assert (failure is None) if reason is None else failure.startswith(reason)


@pytest.mark.parametrize(
    "info",
    [
        {},
        {"factors": "all", "source": 3, "cost": "dear", "distance": np.nan, "sampled": None},
        {"factors": None, "source": None, "location": None, "measurement": None},
    ],
)
def test_missing_and_invalid_entries_of_infos_are_read_as_defaults(info):
    report = Report.of(info)
    assert report.failure is None
    assert (report.place, dict(report.factors), report.distance, report.cost) == (None, {}, 0.0, 0.0)
    assert np.isnan(report.outcome)
    assert report.source is None


def test_an_infinite_battery_limits_no_route():
    env = env_of()
    env.travel_rounds = lambda agent, origins, places: np.ones((len(origins), len(places)), dtype=int)
    env.rounds_left, env.base = lambda agent: np.inf, lambda agent: [0.0, 0.0]
    team = sb.Team.for_env(env, acquisition="targeted-variance", coordination="routes", rounds=3)
    assert set(team.act(*env.reset(seed=0))) == set(env.agents)


def test_a_source_is_converted_to_plain_data_for_the_log():
    told = {"version": np.float32(2.5), "runs": (np.int64(1), {2: np.nan}), "engine": Fraction(1, 3)}
    assert Report.of({"source": told}).source == {
        "version": 2.5,
        "runs": [1, {"2": None}],
        "engine": "Fraction(1, 3)",
    }
