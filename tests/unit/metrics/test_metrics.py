"""Regrets, errors of maps, traffic and travelled distances of a run."""

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import root_mean_squared_error

import swarmbo as sb
from swarmbo.errors import ShapeError
from swarmbo.metrics import (
    agreement_traffic,
    distance_travelled,
    level_f1,
    map_rmse,
    mean_regret,
    mean_regrets,
    score_round,
    scores_of,
    sharing_traffic,
    within_rules,
)
from swarmbo.problem import Problem
from swarmbo.records import Evaluation, GroundTruth, Recommendation, RoundRecord, Sample, Score, SolveReport, Traffic

X = np.linspace(0, 10, 101)[:, None]


def parabola(points):
    return 5.0 - (points[:, 0] - 4.0) ** 2


TRUTH = GroundTruth(X, parabola(X), 5.0, np.array([4.0]), "m", "m", "parabola", parabola)


def sample(x, failed=False):
    return Sample(agent="a", location=[x], measurement=None if failed else 1.0)


def scored(number, xs, previous, failed=()):
    samples = [sample(x, failed=i in failed) for i, x in enumerate(xs)]
    record = RoundRecord(round=number, samples=samples)
    return RoundRecord(round=number, samples=samples, score=score_round(TRUTH, previous, record.samples, None, None))


@given(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=4), min_size=2, max_size=6))
def test_traces_equal_sums_and_minima_over_the_true_values(rounds):
    records, previous = [], None
    for number, xs in enumerate(rounds):
        previous = scored(number, xs, previous)
        records.append(previous)
    regrets = [[5.0 - (5.0 - (x - 4.0) ** 2) for x in xs] for xs in rounds]
    best_so_far = [min(r for row in regrets[: i + 1] for r in row) for i in range(len(rounds))]
    np.testing.assert_allclose(scores_of(records, "simple_regret"), best_so_far)
    # without the reset
    means = [np.mean([r for row in regrets[1 : i + 1] for r in row]) for i in range(1, len(rounds))]
    np.testing.assert_allclose(mean_regrets(records), [np.nan, *means], atol=1e-12)
    assert mean_regret(records) == mean_regrets(records)[-1]
    assert [record.score.batch_regret for record in records] == pytest.approx([min(row) for row in regrets])


def test_failed_measurements_do_not_count():
    first = scored(0, [0.0, 4.0], None, failed={1})
    assert first.score.simple_regret == 16.0
    second = scored(1, [4.0], first, failed={0})
    assert second.score == Score(simple_regret=16.0, batch_regret=None, total_regret=0.0)
    assert math.isnan(mean_regret([first]))  # nothing was chosen yet


def test_regrets_are_unknown_until_the_first_scored_round_and_then_omit_earlier_measurements():
    first, second = (RoundRecord(round=number, samples=[sample(2.0)]) for number in range(2))
    records = [first, second, scored(2, [3.0, 4.0], second)]
    np.testing.assert_array_equal(mean_regrets(records), [np.nan, np.nan, 0.5])
    assert mean_regret(records) == 0.5
    assert math.isnan(mean_regret(records[:2]))


def test_rounds_in_which_all_failed_before_the_first_success_add_nothing():
    records = [scored(0, [1.0], None, failed={0})]
    records.append(scored(1, [2.0], records[-1], failed={0}))
    records.append(scored(2, [3.0, 6.0], records[-1]))
    assert [record.score and record.score.simple_regret for record in records] == [None, None, 1.0]
    np.testing.assert_array_equal(mean_regrets(records), [np.nan, np.nan, 2.5])
    assert mean_regret(records) == 2.5


def test_regrets_of_recommendations_are_summed_from_the_first_round_on():
    """Daxberger & Low (2017) use this score; no method chose the measurements of the reset."""
    places, previous, so_far = [1.0, 6.0, None, 3.5, 4.0], None, []
    for number, x in enumerate(places):
        recommendation = None if x is None else Recommendation([x], 99.0, 1.0)
        score = score_round(TRUTH, previous, [sample(2.0)], recommendation, None)
        previous = RoundRecord(round=number, samples=[sample(2.0)], score=score)
        so_far.append(score.recommended_so_far)
    assert so_far == [0.0, 4.0, 4.0, 4.25, 4.25]


def test_recommendation_regret_and_map_error_are_taken_from_the_truth():
    recommendation = Recommendation([6.0], 99.0, 1.0)
    score = score_round(TRUTH, None, [sample(1.0)], recommendation, TRUTH.values + 3.0)
    assert score.recommendation_regret == 4.0
    assert score.map_rmse == pytest.approx(3.0)


def test_simple_regret_of_a_moving_field_is_that_of_the_round_or_without_measurements_of_the_recommendation():
    def truth(number):
        def value(points):
            return -np.abs(points[:, 0] - number)

        return GroundTruth(X, value(X), 0.0, np.array([float(number)]), "", "", "", value, at_round=truth)

    previous, regrets = None, []
    for number, places in enumerate([[0.0], [5.0, 3.0], [], [9.0]]):
        score = score_round(truth(number), previous, [Evaluation([x], 1.0) for x in places], None, None)
        previous = RoundRecord(round=number, samples=[], score=score)
        regrets.append((score.simple_regret, score.batch_regret))
    assert regrets == [(0.0, 0.0), (2.0, 2.0), (2.0, None), (6.0, 6.0)]
    silent = score_round(truth(3), previous, [], Recommendation([7.5], 0.0, 1.0), None)
    assert (silent.simple_regret, silent.batch_regret) == (4.5, None)
    looking = score_round(truth(3), previous, [Evaluation([9.0], 1.0)], Recommendation([7.5], 0.0, 1.0), None)
    assert looking.simple_regret == 6.0
    still = GroundTruth(X, -X[:, 0], 0.0, np.zeros(1), "", "", "", lambda points: -points[:, 0])
    assert score_round(still, previous, [], Recommendation([1.0], 0.0, 1.0), None).simple_regret == 6.0


def test_a_score_covers_places_where_the_truth_is_known_and_can_be_logged():
    """An interpolated truth is NaN outside the hull of its samples; NaN and infinity are null in a log."""
    truth = replace(TRUTH, value=lambda points: np.where(points[:, 0] > 6.0, np.nan, parabola(points)))
    assert score_round(truth, None, [sample(7.0)], Recommendation([8.0], 0.0, 1.0), None) is None
    first = score_round(truth, None, [sample(6.0), sample(7.0)], Recommendation([8.0], 0.0, 1.0), None)
    assert first == Score(simple_regret=4.0, batch_regret=4.0, total_regret=4.0, unknown=1)
    before = RoundRecord(round=0, samples=[], score=first)
    second = score_round(truth, before, [sample(9.0)], Recommendation([3.0], 0.0, 1.0), None)
    assert (second.simple_regret, second.batch_regret, second.recommended_so_far) == (4.0, None, 1.0)
    assert msgspec.json.decode(msgspec.json.encode(second), type=Score) == second


def test_mean_regret_is_over_the_measurements_whose_regret_is_known():
    truth, records = replace(TRUTH, value=lambda at: np.where(at[:, 0] > 6.0, np.nan, parabola(at))), []
    for number, xs in enumerate([[3.0, 9.0], [3.0, 8.0, 9.0], [7.0], [4.0, 2.0, 9.0]]):
        samples = [*map(sample, xs), sample(5.0, failed=True)]
        score = score_round(truth, records[-1] if records else None, samples, None, None)
        records.append(RoundRecord(round=number, samples=samples, score=score))
    np.testing.assert_array_equal(mean_regrets(records), [np.nan, 1.0, 1.0, (1.0 + 0.0 + 4.0) / 3])


def test_maps_are_scored_where_the_truth_is_known():
    values = np.array([1.0, np.nan, 3.0])
    truth = replace(TRUTH, values=values, level=2.0, goal="level")
    mean = np.array([1.5, 9.0, 3.5])
    score = score_round(truth, None, [sample(2.0)], None, mean, {"a": mean + 0.5})
    assert (score.map_rmse, score.level_f1, score.view_rmse) == (0.5, 1.0, {"a": 1.0})
    score = score_round(replace(truth, values=values * np.nan), None, [sample(2.0)], None, mean, {"a": mean})
    assert (score.map_rmse, score.level_f1, score.view_rmse) == (None, None, None)


def test_level_f1_is_the_harmonic_mean_of_precision_and_recall():
    values, mean = np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([2.5, 0.0, 0.0, 3.0, 9.0])
    precision, recall = 2 / 3, 2 / 2
    assert level_f1(mean, values, 2.2) == pytest.approx(2 * precision * recall / (precision + recall))
    assert level_f1(values, values, 100.0) == 1.0
    assert level_f1(values, values, -1.0) == 1.0
    assert level_f1(-values, values, 2.2) == 0.0


def test_scores_of_a_map_are_nan_where_no_truth_is_known():
    mean, unknown = np.zeros(3), np.full(3, np.nan)
    assert math.isnan(level_f1(mean, unknown, -1.0))
    assert math.isnan(level_f1(mean, unknown, 1.0))
    assert math.isnan(map_rmse(mean, unknown))


def record(number, agreement, sharing, distances):
    samples = [Sample(agent=agent, location=[0.0], measurement=None, distance=d) for agent, d in distances.items()]
    report = None if agreement is None else SolveReport(status="exact", traffic=agreement)
    return RoundRecord(round=number, samples=samples, report=report, sharing=sharing)


RECORDS = [
    record(0, None, Traffic(2, 20, 3), {"a": 0.0, "b": 0.0}),
    record(1, Traffic(10, 500, 17), Traffic(2, 30, 2), {"a": 1.5, "b": 2.0}),
    record(2, Traffic(4, 100, 4), Traffic(1, 10, 1), {"b": 0.25}),
]


def test_traffic_is_summed_by_purpose_and_distance_by_agent_even_if_it_missed_a_round():
    assert agreement_traffic(RECORDS) == Traffic(14, 600, 21)
    assert sharing_traffic(RECORDS) == Traffic(5, 60, 6)
    assert distance_travelled(RECORDS) == pytest.approx({"a": 1.5, "b": 2.25})


def test_map_rmse_equals_that_of_scikit_learn():
    rng = np.random.default_rng(3)
    mean, values = rng.normal(size=50), rng.normal(size=50)
    assert map_rmse(mean, values) == pytest.approx(root_mean_squared_error(values, mean), rel=1e-14)


@pytest.mark.parametrize(
    ("mean", "values"), [(np.ones(3), np.ones(4)), (np.ones((2, 2)), np.ones((2, 2))), (np.ones(0), np.ones(0))]
)
def test_unequal_or_empty_maps_are_refused(mean, values):
    with pytest.raises(ShapeError, match="wanted two vectors of equal length > 0"):
        map_rmse(mean, values)


@pytest.mark.parametrize("n", [2, 20, 60])
@pytest.mark.parametrize(("slope", "largest"), [(0.0, -0.09), (0.1, -0.06)], ids=["even", "steep"])
def test_the_reference_optimum_with_a_no_go_region_is_the_largest_allowed_value(n, slope, largest):
    names = [f"x{i}" for i in range(n)]
    graph = sb.FactorGraph.from_scopes({f"f{name}": [name] for name in names})
    shut = sb.NoGoBox(low=(0.2,), high=(0.8,), variables=("x0",))
    problem = Problem.of(graph, dict.fromkeys(names, (0.0, 1.0))).with_no_go([shut])

    def value(X):
        return slope * (X[:, 0] - 0.5) - ((X - 0.5) ** 2).sum(axis=1)

    middle, at = np.full(n, 0.5), np.full(n, 0.4)
    truth = GroundTruth(middle[None], value(middle[None]), 0.0, at, "", "", "", value)
    found = within_rules(truth, problem)
    assert found.maximum == pytest.approx(largest, abs=1e-6)
    assert value(found.argmax[None])[0] == found.maximum
    assert problem.is_allowed(problem.box.to_unit(found.argmax)[None])[0]


def test_the_allowed_maximum_of_a_changing_truth_is_searched_once_per_round():
    truth, searched = GroundTruth(X, X[:, 0], 10.0, X[-1], "", "", "", lambda X: X[:, 0]), []
    moving = replace(truth, at_round=lambda number: replace(truth, name=str(number)))
    seen = moving.changed(lambda then: searched.append(then.name) or then)
    assert [seen.at(number).name for number in (1, 1, 2, 1)] == ["1", "1", "2", "1"]
    assert searched == ["", "1", "2"]
