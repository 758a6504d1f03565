import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.metrics import cumulative_regret, mean_regret, score_round, simple_regret
from swarmbo.records import GroundTruth, Recommendation, RoundRecord, Sample, Score

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
    np.testing.assert_allclose(simple_regret(records), best_so_far)
    chosen = [sum(r for row in regrets[1 : i + 1] for r in row) for i in range(len(rounds))]
    np.testing.assert_allclose(cumulative_regret(records), chosen, atol=1e-12)
    count = sum(len(xs) for xs in rounds[1:])
    assert mean_regret(records) == pytest.approx(chosen[-1] / count)
    assert [record.score.batch_regret for record in records] == pytest.approx([min(row) for row in regrets])


def test_failed_measurements_count_for_nothing():
    first = scored(0, [0.0, 4.0], None, failed={1})
    assert first.score.simple_regret == 16.0
    second = scored(1, [4.0], first, failed={0})
    assert second.score == Score(simple_regret=16.0, batch_regret=None, total_regret=0.0)
    assert math.isnan(mean_regret([first]))  # nothing was chosen yet


def test_cumulative_regret_is_unknown_from_the_first_unscored_round_on():
    start = scored(0, [1.0], None)
    records = [start, RoundRecord(round=1, samples=[sample(2.0)]), scored(2, [4.0], start)]
    assert cumulative_regret(records)[0] == 0.0
    assert np.isnan(cumulative_regret(records)[1:]).all()


def test_rounds_in_which_all_failed_before_the_first_success_add_nothing():
    records = [scored(0, [1.0], None, failed={0})]
    records.append(scored(1, [2.0], records[-1], failed={0}))
    records.append(scored(2, [3.0, 6.0], records[-1]))
    assert [record.score and record.score.simple_regret for record in records] == [None, None, 1.0]
    assert cumulative_regret(records).tolist() == [0.0, 0.0, 5.0]
    assert mean_regret(records) == 2.5


def test_regrets_of_recommendations_are_summed_from_the_first_round_on():
    """Daxberger & Low (2017) score their experiments by it; what follows the reset was no method's choice."""
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


def test_of_a_field_that_changes_every_round_is_scored_by_itself():
    """A peak that was found is not found for ever: it moves on, and what an earlier round came to does not count."""

    def at_round(number):
        def value(points):
            return 5.0 - (points[:, 0] - number) ** 2

        return GroundTruth(X, value(X), 5.0, np.array([float(number)]), "m", "m", "moving", value, at_round=at_round)

    def after(number, x, previous, failed=False):
        record = RoundRecord(round=number, samples=[sample(x, failed)])
        recommendation = Recommendation([x], 0.0, 1.0)
        score = score_round(at_round(0).at(number), previous, record.samples, recommendation, None)
        return RoundRecord(round=number, samples=record.samples, score=score)

    first = after(0, 0.0, None)
    second = after(1, 3.0, first)
    third = after(2, 4.0, second, failed=True)
    assert [record.score.simple_regret for record in (first, second, third)] == [0.0, 4.0, 4.0]
    assert after(3, 4.0, third).score.simple_regret == 1.0
