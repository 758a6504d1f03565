import warnings

import numpy as np
import pytest
from scipy.stats import qmc

from swarmbo.baselines import Random, Sobol
from swarmbo.baselines.one_outcome import known_totals, seen_totals
from swarmbo.boundary.rng import sobol, stream


def test_sobol_continues_the_scrambled_sequence_that_the_initial_design_begins(joint_situation):
    sequence = qmc.Sobol(4, rng=stream(3, "initial design")).random_base2(5)
    for t in (0, 1, 10, 31):
        now = joint_situation(np.zeros((t, 4)), np.zeros(t), seed=3)
        point, report = Sobol().decide_joint(now, None)
        assert (point == sequence[t]).all()
        assert report.messages == 0


@pytest.mark.parametrize("n", [0, 1, 31, 32])
def test_any_number_of_points_begins_the_sequence_without_a_warning(n):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        points = sobol(n, 3, None)
    assert (points == qmc.Sobol(3, scramble=False).random_base2(5)[:n]).all()
    assert points.shape == (n, 3)


def test_points_out_for_evaluation_are_not_asked_for_again(joint_situation):
    told, more = joint_situation(np.zeros((5, 4)), np.zeros(5)), np.zeros((1, 4))
    for method in (Sobol(), Random()):
        first, _ = method.decide_joint(told, None)
        second, _ = method.decide_joint(joint_situation(np.zeros((5, 4)), np.zeros(5), pending=more), None)
        assert not np.isclose(first, second).any()


def test_an_agent_draws_its_own_variables_whatever_others_there_are(joint_situation):
    small, _ = Random().decide_joint(joint_situation(np.zeros((5, 4)), np.zeros(5)), None)
    large, _ = Random().decide_joint(joint_situation(np.zeros((5, 8)), np.zeros(5)), None)
    assert (small == large[:4]).all()
    assert len(set(large.tolist())) == 8
    draws = [Random().decide_joint(joint_situation(np.zeros((t, 4)), np.zeros(t)), None)[0] for t in range(200)]
    assert np.abs(np.mean(draws, axis=0) - 0.5).max() < 0.1
    assert min(np.min(draws), 1.0 - np.max(draws)) < 0.02


def test_outcomes_of_all_factors_are_seen_as_their_sum_and_one_missing_hides_it(joint_situation):
    X = np.array([[-2.0] * 4, [3.0] * 4, [0.5] * 4, [1.0] * 4])
    parts = [[np.nan, np.nan], [1.0, 2.0], [1.0, np.nan], [4.0, 5.0]]
    now = joint_situation(X, [7.0, np.nan, np.nan, 8.0], factors=parts)
    U, y = seen_totals(now)
    assert U[:, 0].tolist() == [0.0, 1.0, 0.5, 0.6]
    np.testing.assert_array_equal(y, [7.0, 3.0, np.nan, 8.0])
    assert known_totals(now)[1].tolist() == [7.0, 3.0, 8.0]
